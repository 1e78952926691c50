"""``safeser policy``: check, show, explain and their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from safeser.operations import GROUPS
from safeser.policy.source.words import granted

EXPLAIN = ("policy", "explain", "demo", "--recipient=scheduler", "--operation=update-graph")

VALUES = Path(__file__).parents[1] / "dask" / "values" / "values.yaml"


@pytest.mark.parametrize("name", ["default", "demo"])
def test_check_of_a_ready_policy_is_fine(safeser, name):
    ended = safeser("policy", "check", name)
    assert ended.code == 0
    assert ended.out.startswith(f"{name}: fine, {name} revision ")


def test_check_names_the_place_and_goes_on_to_the_next(safeser, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("safeser: 1\nname: x\nrevision: 1\nprinciples: {}\n...\n")
    ended = safeser("policy", "check", bad, "default")
    assert ended.code == 1
    assert f"{bad}, line 4, column 1" in ended.err
    assert ended.err.count("\n") == 1
    assert "default: fine" in ended.out


NEAR = (
    "safeser: 1\nname: p\nrevision: 1\nprincipals: {ann: {}, bea: {}}\ncontexts:\n"
    "- {name: far, sender: ann, recipient: bea, same_host: false}\n"
    "- {name: all, sender: ann, recipient: bea, operations: {grant: [basic]}}\n"
)


def test_check_warns_of_a_context_that_leaves_what_it_refuses_to_a_later_one(safeser, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(f"{NEAR}...\n")
    ended = safeser("policy", "check", path)
    assert (ended.code, ended.err) == (0, "")
    fine, warning = ended.out.splitlines()
    assert fine.startswith(f"{path}: fine, p revision 1")
    assert warning.startswith(f"{path}: warning: context 'far' (line 6) grants less than 'all'")


@pytest.mark.parametrize("end", ["", "...\n\n", "...\n# the end\n", "# above\r\n...\r\n\r\n"])
def test_check_writes_the_last_line_of_a_file_that_is_whole(safeser, tmp_path, end):
    path, link = tmp_path / "p.yaml", tmp_path / "link.yaml"
    path.write_bytes((NEAR + end).encode())
    path.chmod(0o640)
    link.symlink_to(path)
    before = safeser("policy", "check", link)
    assert (before.code, "[policy.unfinished]" in before.err) == (1, True)
    assert f"safeser policy check --fix {link}" in before.err
    ended = safeser("policy", "check", "--fix", link)
    assert ended.out.startswith(f"{link}: its last line is '...' now\n{link}: fine, p revision 1")
    left = re.sub(r"\.\.\.\r?\n", "", NEAR + end)
    assert path.read_bytes() == f"{left}...\n".encode()
    assert (link.is_symlink(), path.stat().st_mode & 0o777) == (True, 0o640)
    assert "last line" not in safeser("policy", "check", "--fix", link, "default").out


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
def test_check_completes_no_line_and_marks_nothing_that_is_no_policy(safeser, tmp_path, text, rule):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    ended = safeser("policy", "check", "--fix", path)
    assert (ended.code, f"[{rule}]" in ended.err) == (1, True), ended.err
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["defualt", "./missing.yaml"])
def test_check_of_nothing_could_not_run(safeser, name):
    ended = safeser("policy", "check", name)
    assert ended.code == 2
    assert ended.err.startswith("safeser: ")


def test_lint_names_what_contradicts_itself_and_goes_on_to_the_next(safeser):
    ended = safeser("policy", "lint", VALUES, "dask-cluster")
    assert ended.code == 1
    *paths, alice, carol, last = ended.out.splitlines()
    assert len(paths) == 2
    assert all(
        "[lint.code] If that is meant, list it under 'acknowledge'" in each for each in paths
    )
    assert alice.startswith(f"{VALUES}: 'values' keeps values of carol, erin from alice, whose")
    assert "[lint.values] Give carol a cluster of its own" in carol
    assert last == "dask-cluster: nothing found, dask-cluster revision 1"


def test_lint_of_a_policy_without_findings_is_fine(safeser):
    assert safeser("policy", "lint", "default").code == 0


def test_lint_of_what_does_not_load_could_not_run(safeser, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("safeser: 1\nname: x\nrevision: 1\nprinciples: {}\n...\n")
    ended = safeser("policy", "lint", bad)
    assert ended.code == 2
    assert ended.err.startswith("safeser: ")


def test_show_without_a_name_lists_the_ready_ones(safeser):
    ended = safeser("policy", "show")
    assert ended.code == 0
    assert "default" in ended.out
    assert "demo" in ended.out


def test_show_spells_everything_out(safeser):
    ended = safeser("policy", "show", "demo")
    assert ended.code == 0
    assert "scheduler, worker -> alice, bob: admin, data" in ended.out
    assert "submission  code: the sender can run any code there" in ended.out
    assert "operations  basic, diagnose, worker-reports (" in ended.out


def test_show_says_whose_tasks_run_in_which_workers(safeser):
    shown = [each.split() for each in safeser("policy", "show", VALUES).out.splitlines()]
    assert ["scheduler", "worker", "alice,", "carol,", "erin", "(sealed)"] in shown
    out = safeser("policy", "show", "dask-cluster").out
    assert "worker carol (sealed)" in " ".join(out.split())
    assert "take tasks of" not in safeser("policy", "show", "stock-cluster").out


def test_show_says_where_no_task_is_taken(safeser, tmp_path):
    policy = tmp_path / "none.yaml"
    policy.write_text(
        "safeser: 1\nname: x\nrevision: 1\nprincipals: {s: {}, w: {}}\ncontexts:\n"
        "- name: c\n  sender: [s, w]\n  recipient: [s, w]\n"
        "  operations: {grant: [compute-task, register-worker]}\n...\n"
    )
    shown = [each.split() for each in safeser("policy", "show", policy).out.splitlines()]
    assert ["s", "w", "none"] in shown


def test_show_names_types_of_other_libraries(safeser, tmp_path):
    policy = tmp_path / "types.yaml"
    policy.write_text(
        "safeser: 1\nname: x\nrevision: 1\nprincipals: {a: {}, b: {}}\ncontexts:\n"
        "- name: c\n  sender: a\n  recipient: b\n  deserializers: [dask, msgpack]\n"
        '  dask: {types: ["my.lib:Thing"]}\n...\n'
    )
    policy.chmod(0o600)
    assert "types       my.lib:Thing" in safeser("policy", "show", policy).out


def test_show_names_what_else_a_context_asks_for(safeser, tmp_path):
    policy = tmp_path / "more.yaml"
    policy.write_text(
        "safeser: 1\nname: x\nrevision: 1\nprincipals: {a: {}, b: {}, c: {}}\ncontexts:\n"
        "- name: near\n  sender: a\n  recipient: b\n  transport: [safeser, library]\n"
        "  same_host: true\n  authors: [c]\n  submission: sealed\n"
        "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
        "  operations: {grant: [look, update-graph]}\n  key_conflicts: {definition: warn}\n"
        "- name: far\n  sender: a\n  recipient: b\n  same_host: false\n  suite: encrypt\n"
        "- name: outside\n  sender: unknown\n  recipient: b\n  transport: tls\n...\n"
    )
    policy.chmod(0o600)
    shown = safeser("policy", "show", policy).out
    for row in (
        "transport   library, safeser",
        "suite       authenticate",
        "suite       encrypt",
        "same host   yes",
        "same host   no, another",
        "authors     c, relayed",
        "submission  sealed: what authors signed runs there",
        "conflicts   definition: warn, principal: warn",
        "operations  look, update-graph (",
    ):
        assert row in shown
    assert "suite" not in shown.partition("outside")[2]  # there is no session
    asked = ("--sender=a", "--recipient=b", "--family=pickle", "--author=c", "--same-host")
    ended = safeser("policy", "explain", policy, *asked, "--transport=safeser")
    assert ended.code == 0
    assert "over safeser, from the same host" in ended.out
    assert "their session: suite authenticate or stricter" in ended.out
    ended = safeser("policy", "explain", policy, *asked[:-1], "--other-host", "--transport=tls")
    assert ended.code == 1
    assert "near: not for transport tls" in ended.out
    ended = safeser("policy", "explain", policy, *asked, "--transport=inproc")
    assert ended.code != 0
    assert "the transport of a context must be one of safeser, tcp, tls, library" in ended.err


def test_show_names_each_operation_when_asked(safeser):
    ended = safeser("policy", "show", "default", "--operations")
    assert "    update-graph\n" in ended.out
    assert "    update-graph\n" not in safeser("policy", "show", "default").out


def test_show_names_operations_beyond_whole_groups():
    operations = GROUPS["cluster"] | {"echo-of-mine"}
    assert granted(operations) == f"cluster, echo-of-mine ({len(operations)} in all)"


def test_show_tells_sealing_from_opening(safeser, tmp_path):
    policy = tmp_path / "p.yaml"
    policy.write_text(
        "safeser: 1\nname: p\nrevision: 1\nprincipals: {a: {}, b: {}}\n"
        "contexts:\n- {name: c, sender: a, recipient: b, serializers: [dask, msgpack]}\n...\n"
    )
    out = safeser("policy", "show", policy).out
    assert "seals       dask, msgpack" in out
    assert "opens       msgpack" in out
    assert "operations  none\n" in out


def test_explain_permits_with_code_0(safeser):
    ended = safeser(*EXPLAIN, "--sender=alice", "--kind=task", "--family=cloudpickle")
    assert ended.code == 0
    assert ended.out.splitlines()[-1].startswith("permitted [")


def test_explain_denies_with_code_1_and_the_edit(safeser):
    ended = safeser(*EXPLAIN, "--sender=bob", "--kind=task", "--family=cloudpickle")
    assert ended.code == 1
    assert "denied: " in ended.out
    assert ended.out.splitlines()[-1].startswith("  fix: ")


def test_explain_asks_for_the_sending_side_and_authors_too(safeser):
    ended = safeser(
        "policy", "explain", "default", "--sender=scheduler", "--recipient=client",
        "--family=pickle", "--sealing", "--author=worker",
    )  # fmt: skip
    assert ended.code == 1
    assert "written by worker (sealing)" in ended.out


def test_explain_refuses_a_kind_that_does_not_exist(safeser):
    ended = safeser(*EXPLAIN, "--sender=bob", "--kind=everything", "--family=dask")
    assert ended.code == 2
    assert "admin, data, task, control" in ended.err


@pytest.mark.parametrize(
    ("option", "rule", "fix"),
    [
        ("--family=cloudpikle", "config.family", "'cloudpickle'"),
        ("--operation=update_graph", "config.operation", "'update-graph'"),
    ],
)
def test_explain_refuses_misspelt_names_instead_of_answering(safeser, option, rule, fix):
    ended = safeser(*EXPLAIN, "--sender=alice", "--family=msgpack", option)
    assert (ended.code, ended.out) == (2, "")
    assert rule in ended.err
    assert f"Did you mean {fix}?" in ended.err


def test_explain_knows_the_families_that_a_policy_declares(safeser, tmp_path):
    (tmp_path / "own.yaml").write_text(
        "safeser: 1\nname: own\nrevision: 1\nfamilies: [my-frames]\nprincipals: {a: {}, b: {}}\n"
        "contexts:\n  - {name: all, sender: a, recipient: b, deserializers: [msgpack, my-frames]}\n"
        "...\n"
    )
    asked = ("--sender=a", "--recipient=b", "--family=my-frames")
    assert safeser("policy", "explain", tmp_path / "own.yaml", *asked).code == 0


def test_show_prints_the_file_to_begin_ones_own_with(safeser, tmp_path):
    ended = safeser("policy", "show", "dask-cluster", "--yaml")
    (tmp_path / "mine.yaml").write_text(ended.out)
    assert ended.out.startswith("# For a shared Dask cluster")
    copied = safeser("policy", "check", tmp_path / "mine.yaml").out.partition(": fine")[2]
    assert copied == safeser("policy", "check", "dask-cluster").out.partition(": fine")[2]


def test_the_schema_is_json_and_says_what_it_is_of(safeser):
    ended = safeser("policy", "schema")
    assert (ended.code, ended.err) == (0, "")
    made = json.loads(ended.out)
    assert made["title"] == "safeser policy"
    assert made["properties"]["safeser"]["const"] == 1


def test_show_says_whose_values_reach_whom(safeser):
    out = safeser("policy", "show", VALUES).out
    shown = [each.split() for each in out.splitlines()]
    assert ["alice,", "carol", "none"] in shown
    assert ["vera", "alice,", "carol,", "erin,", "scheduler,", "worker"] in shown
    assert ["worker", "alice,", "carol,", "erin,", "scheduler,", "vera"] in shown
    assert "values      of alice, carol, erin, beside the sender's own" in out
    assert "read values of" not in safeser("policy", "show", "stock-cluster").out


def test_check_has_a_line_for_each_fault(safeser, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(
        "safeser: 1\nname: x\nrevision: -1\nprincipals: {a: {}}\n"
        "contexts: [{name: c, sender: b, recipient: d}]\n...\n"
    )
    ended = safeser("policy", "check", path)
    assert ended.code == 1
    rules = [line.partition("[")[2].partition("]")[0] for line in ended.err.splitlines()]
    assert rules == ["config.ambiguous", "config.undefined", "config.undefined"]


def test_show_draws_a_matrix_and_writes_a_page(safeser, tmp_path):
    shown = safeser("policy", "show", "strict").out
    assert "The most that passes, in the kinds admin, data, task and control:" in shown
    assert "  C  any code of the sender" in shown
    page = tmp_path / "page.html"
    ended = safeser("policy", "show", "strict", "--html", page)
    assert (ended.code, ended.out) == (0, f"{page}: written, strict revision 1\n")
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert safeser("policy", "show", "strict", "--html", tmp_path / "no" / "page.html").code == 2


def test_show_says_that_a_policy_only_observes(safeser):
    assert "mode observe: it refuses the floors alone" in safeser("policy", "show", "observe").out


def test_lint_looks_at_the_dates_of_a_roster(safeser, keys):
    ended = safeser("policy", "lint", "strict", "--roster", keys / "roster")
    assert ended.code == 0
    assert "nothing found" in ended.out
    ended = safeser("policy", "lint", "dask-cluster", "--roster", keys / "roster")
    assert ended.code == 0
    assert "dask-cluster: carol has no key that opens sessions today [lint.date]" in ended.out
    assert "(a note)" in ended.out
