"""``safeser policy``: check, lint, show, explain, and their exit codes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
from pathlib import Path

import pytest

from safeser.identity import files

VALUES = Path(__file__).parents[1] / "dask" / "values" / "values.yaml"
NEAR = (
    "safeser: 1\nname: p\nrevision: 1\nprincipals: {ann: {}, bea: {}}\ncontexts:\n"
    "- {name: far, sender: ann, recipient: bea, same_host: false}\n"
    "- {name: all, sender: ann, recipient: bea, operations: {grant: [basic]}}\n"
)
HEAD = "safeser: 1\nname: x\nrevision: 1\nprincipals: {a: {}, b: {}, c: {}}\ncontexts:\n"
POLICIES = {
    "bad.yaml": "safeser: 1\nname: x\nrevision: 1\nprinciples: {}\n...\n",
    "near.yaml": f"{NEAR}...\n",
    "faults.yaml": "safeser: 1\nname: x\nrevision: -1\nprincipals: {a: {}}\n"
    "contexts: [{name: c, sender: b, recipient: d}]\n...\n",
    "types.yaml": f"{HEAD}- name: c\n  sender: a\n  recipient: b\n"
    '  deserializers: [dask, msgpack]\n  dask: {types: ["my.lib:Thing"]}\n...\n',
    "seals.yaml": f"{HEAD}- {{name: c, sender: a, recipient: b, serializers: [dask, msgpack]}}\n"
    "...\n",
    "own.yaml": HEAD.replace("principals", "families: [my-frames]\nprincipals")
    + "- {name: all, sender: a, recipient: b, deserializers: [msgpack, my-frames]}\n...\n",
    "more.yaml": f"{HEAD}- name: near\n  sender: a\n  recipient: b\n  same_host: true\n"
    "  transport: [safeser, library]\n  authors: [c]\n  submission: sealed\n"
    "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
    "  operations: {grant: [look, update-graph]}\n  key_conflicts: {definition: warn}\n"
    "- name: far\n  sender: a\n  recipient: b\n  same_host: false\n"
    "- name: outside\n  sender: unknown\n  recipient: b\n  transport: tls\n...\n",
}
DEMO = "explain demo --recipient=scheduler --operation=update-graph"
MORE = "explain more.yaml --sender=a --recipient=b --family=pickle --author=c"


@pytest.fixture
def policy(safeser, tmp_path, monkeypatch):
    """Run ``safeser policy`` in a folder of the policies above."""
    monkeypatch.chdir(tmp_path)
    for name, text in POLICIES.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return lambda text: safeser("policy", *shlex.split(text.replace("VALUES", str(VALUES))))


#: A command, its exit code, and what it prints; with two spaces, cells of one row.
ROWS = [
    ("check default", 0, ["default: fine, default revision "]),
    ("check demo", 0, ["demo: fine, demo revision "]),
    ("check bad.yaml default", 1, ["bad.yaml, line 4, column 1", "default: fine"]),
    ("check near.yaml", 0, ["near.yaml: warning: context 'far' (line 6) grants less than 'all'"]),
    ("check faults.yaml", 1, ["[config.ambiguous]", "[config.undefined]"]),
    ("check defualt", 2, []),
    ("check ./missing.yaml", 2, []),
    ("lint default", 0, []),
    ("lint bad.yaml", 2, []),
    ("show", 0, ["default", "demo"]),
    ("show demo", 0, ["scheduler, worker -> alice, bob: admin, data"]),
    ("show demo", 0, ["submission  code: the sender can run any code there"]),
    ("show VALUES", 0, ["scheduler  worker  alice, carol, erin (sealed)"]),
    ("show VALUES", 0, ["alice, carol  none", "vera  alice, carol, erin, scheduler, worker"]),
    ("show VALUES", 0, ["values  of alice, carol, erin, beside the sender's own"]),
    ("show stock-cluster", 0, ["!take tasks of", "!read values of"]),
    ("show types.yaml", 0, ["types       my.lib:Thing"]),
    ("show default --operations", 0, ["    update-graph\n"]),
    ("show default", 0, ["!    update-graph\n"]),
    ("show observe", 0, ["mode observe: it refuses the floors, and code"]),
    ("show seals.yaml", 0, ["seals       dask, msgpack", "opens       msgpack"]),
    *(
        ("show more.yaml", 0, [says])
        for says in (
            "transport   library, safeser",
            *("same host   yes", "same host   no, another", "authors     c, relayed"),
            "submission  sealed: what authors signed runs there",
            "conflicts   definition: warn, principal: warn",
            "operations  look, update-graph (",
        )
    ),
    (f"{MORE} --same-host --transport=safeser", 0, ["over safeser, from the same host"]),
    (f"{MORE} --other-host --transport=tls", 1, ["near: not for transport tls"]),
    (f"{MORE} --same-host --transport=inproc", 2, ["one of safeser, tcp, tls, library"]),
    (f"{DEMO} --sender=alice --kind=task --family=cloudpickle", 0, ["permitted ["]),
    (f"{DEMO} --sender=bob --kind=task --family=cloudpickle", 1, ["denied: ", "\n  fix: "]),
    (f"{DEMO} --sender=bob --kind=everything --family=dask", 2, ["admin, data, task, control"]),
    (f"{DEMO} --sender=alice --family=cloudpikle", 2, ["config.family", "'cloudpickle'?"]),
    (
        "explain demo --sender=alice --recipient=scheduler --family=msgpack"
        " --operation=update_graph",
        2,
        ["config.operation", "'update-graph'?"],
    ),
    (
        "explain default --sender=scheduler --recipient=client --family=pickle --sealing"
        " --author=worker",
        1,
        ["written by worker (sealing)"],
    ),
    ("explain own.yaml --sender=a --recipient=b --family=my-frames", 0, []),
]


@pytest.mark.parametrize(("text", "code", "says"), ROWS, ids=lambda value: str(value))
def test_a_command_says(policy, text, code, says):
    ended = policy(text)
    assert ended.code == code, ended.err
    assert ended.err.count("\n") == ((code == 2) or ended.err.count("["))
    assert code != 2 or (ended.out, ended.err[:9]) == ("", "safeser: ")
    printed = ended.out + ended.err
    cells = " ".join(printed.split())
    for each in says:
        if each.startswith("!"):
            assert each[1:] not in printed
        else:
            assert each in printed or " ".join(each.split()) in cells


@pytest.mark.parametrize("end", ["", "...\n\n", "...\n# the end\n", "# above\r\n...\r\n\r\n"])
def test_check_writes_the_last_line_of_a_file_that_is_whole(policy, tmp_path, end):
    path, link = tmp_path / "p.yaml", tmp_path / "link.yaml"
    path.write_bytes((NEAR + end).encode())
    path.chmod(0o640)
    link.symlink_to(path)
    before = policy(f"check {link}")
    assert (before.code, "[policy.unfinished]" in before.err) == (1, True)
    assert f"safeser policy check --fix {link}" in before.err
    ended = policy(f"check --fix {link}")
    assert ended.out.startswith(f"{link}: its last line is '...' now\n{link}: fine, p revision 1")
    left = re.sub(r"\.\.\.\r?\n", "", NEAR + end)
    assert path.read_bytes() == f"{left}...\n".encode()
    assert (link.is_symlink(), path.stat().st_mode & 0o777) == (True, 0o640)
    assert "last line" not in policy(f"check --fix {link} default").out


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (NEAR[:-1], "policy.unfinished"),
        (NEAR[: NEAR.index("ann")], "policy.unfinished"),
        (NEAR[: NEAR.index("contexts")], "config.missing-key"),
        (f"{NEAR}...\n...\n", "config.yaml"),
        (f"{NEAR}...\nlimits: {{max_depth: 3}}\n", "config.yaml"),
    ],
)
def test_check_completes_no_line_and_marks_nothing_that_is_no_policy(policy, tmp_path, text, rule):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    ended = policy("check --fix p.yaml")
    assert (ended.code, f"[{rule}]" in ended.err) == (1, True), ended.err
    assert path.read_text() == text


@pytest.mark.parametrize("edited", [True, False])
def test_check_loses_no_edit_of_another_operator(policy, tmp_path, monkeypatch, edited):
    """One is made between reading and writing, or another command has the folder locked."""
    path = tmp_path / "p.yaml"
    path.write_text(NEAR)
    handle = os.open(tmp_path, os.O_RDONLY)
    stock, edit = files.write_new, NEAR.replace("revision: 1", "revision: 2")

    def meanwhile(place, data, *, mode):
        path.write_text(edit)
        stock(place, data, mode=mode)

    if edited:
        monkeypatch.setattr(files, "write_new", meanwhile)
    else:
        monkeypatch.setattr("safeser.identity.files._PAUSE", 0.0)
        fcntl.flock(handle, fcntl.LOCK_EX)
    ended = policy("check --fix p.yaml")
    os.close(handle)
    rule = "config.file" if edited else "policy.locked"
    assert (ended.code, f"[{rule}]" in ended.err) == (2 if edited else 1, True), ended.err
    assert path.read_text() == (edit if edited else NEAR)
    assert not [*tmp_path.glob(".p.yaml.*")]  # what was written to take its place


def test_lint_names_what_contradicts_itself_and_goes_on_to_the_next(policy):
    ended = policy("lint VALUES dask-cluster")
    assert ended.code == 1
    rules = [line.partition("[")[2].partition("]")[0] for line in ended.out.splitlines()]
    assert rules == ["lint.code", "lint.code", "lint.values", "lint.values", ""]
    assert ended.out.endswith("dask-cluster: nothing found, dask-cluster revision 1\n")


def test_lint_looks_at_the_dates_of_a_roster(safeser, keys):
    ended = safeser("policy", "lint", "strict", "--roster", keys / "roster")
    assert (ended.code, "nothing found" in ended.out) == (0, True)
    ended = safeser("policy", "lint", "dask-cluster", "--roster", keys / "roster")
    assert (ended.code, "[lint.date]" in ended.out, "(a note)" in ended.out) == (0, True, True)


def test_show_prints_the_file_to_begin_ones_own_with(policy, tmp_path):
    ended = policy("show dask-cluster --yaml")
    (tmp_path / "mine.yaml").write_text(ended.out)
    assert ended.out.startswith("# For a shared Dask cluster")
    copied = policy("check mine.yaml").out.partition(": fine")[2]
    assert copied == policy("check dask-cluster").out.partition(": fine")[2]


def test_show_writes_a_page(policy, tmp_path):
    ended = policy("show strict --html page.html")
    assert (ended.code, ended.out) == (0, "page.html: written, strict revision 1\n")
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    ended = policy("show strict --html no/page.html")
    assert (ended.code, "config.page" in ended.err) == (2, True)


def test_the_schema_is_json_and_says_what_it_is_of(policy):
    ended = policy("schema")
    assert (ended.code, ended.err) == (0, "")
    made = json.loads(ended.out)
    assert made["title"] == "safeser policy"
    assert made["properties"]["safeser"]["const"] == 1
