"""A policy that extends another: what decides is the expanded text, and errors name their file.

The one rule: whatever two files say together is one policy that stands alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.channel.reload import LiveFiles
from safeser.errors import ConfigError
from safeser.policy import Policy, ready_policies
from safeser.policy.questions.difference import compare
from safeser.policy.ready import text_of
from safeser.policy.source.extends import Text
from safeser.policy.source.loader import read
from tests.draws import draws
from tests.refusal import refusal

OURS = """\
safeser: 1
name: ours
revision: 1
extends: dask-cluster
principals: {alice: {groups: [engineers]}, bob: {groups: [viewers]}}
...
"""

BASE = """\
safeser: 1
name: base
revision: 7
mode: observe
principals: {one: {}, two: {}, ann: {groups: [team]}, ben: {groups: [guests]}}
contexts:
  - {name: first, sender: one, recipient: [two, 'group:team'], serializers: [dask, msgpack, pickle]}
  - {name: guests, sender: 'group:guests', recipient: two}
  - {name: both, sender: ['group:guests', one], recipient: one, values: ['group:guests'],
     operations: {grant: [get_data]}}
limits: {max_depth: 50, max_bytes: 1GiB}
...
"""


def own(*lines: str, extends: str = "./base.yaml") -> str:
    return "\n".join(
        ["safeser: 1", "name: own", "revision: 1", f"extends: {extends}", *lines, "...", ""]
    )


@pytest.fixture
def files(tmp_path: Path):
    """Write files of a folder; return the path of the first."""

    def write(text: str, base: str = BASE) -> Path:
        for name, each in (("own.yaml", text), ("base.yaml", base)):
            (tmp_path / name).write_text(each)
            os.chmod(tmp_path / name, 0o600)
        return tmp_path / "own.yaml"

    return write


def test_six_lines_put_two_people_into_a_ready_policy():
    ours, base = Policy.parse(OURS), Policy.load("dask-cluster")
    assert list(ours.principals) == ["alice", "bob", "scheduler", "worker", "nanny"]
    assert [rule.name for rule in ours.contexts] == [rule.name for rule in base.contexts]
    assert ours.sha256 not in (base.sha256, Policy.parse(OURS.replace("bob", "rob")).sha256)


@pytest.mark.parametrize("name", ready_policies())
def test_what_says_nothing_more_decides_the_same(name: str):
    base = Policy.load(name)
    assert not compare(base, Policy.parse(own(extends=name)))


@pytest.mark.parametrize(
    "text", [OURS, own(extends="analysts"), own("mode: observe", extends="strict")]
)
def test_the_expanded_text_stands_alone(text: str):
    made = Policy.parse(text)
    expanded = text_of(text.encode(), "<text>").expanded
    assert Policy.parse(expanded).sha256 == made.sha256
    assert b"extends" not in expanded
    assert not compare(made, Policy.parse(expanded))


def test_each_field_of_both(files):
    made = Policy.load(
        files(
            own(
                "mode: enforce",
                "principals: {eve: {groups: [team]}}",
                "contexts: [{name: above, sender: eve, recipient: one}]",
                "limits: {max_bytes: 64KiB}",
                'amend: {first: {pickle: {allow: {"ours.shapes:Point": class}}},',
                "        both: {operations: {grant: [identity]}}}",
            )
        )
    )
    assert (made.name, made.revision, made.observes) == ("own", 1, False)
    # People of the base do not come along, nor what only they could do.
    assert sorted(made.principals) == ["eve", "one", "two"]
    assert [rule.name for rule in made.contexts] == ["above", "first", "both"]
    assert made.contexts[1].recipients == {"two", "eve"}
    assert (made.contexts[2].senders, made.contexts[2].values) == ({"one"}, frozenset())
    assert (made.limits.max_bytes, made.limits.max_depth) == (1 << 16, 50)
    assert [each.name for each in made.contexts[1].allow] == ["ours.shapes:Point"]
    assert made.contexts[2].operations == {"get_data", "identity"}
    assert made.contexts[1].place == f"line 7 of {made.source.replace('own', 'base')}"
    assert made.contexts[0].place == "line 7"


ROWS = [
    # (name, own lines, changes of the base, rule, where)
    ("chain", [], ("mode", "mode"), "config.extends", "own.yaml, line 4, column 1"),
    ("no such ready policy", "dask-clutser", None, "config.extends", "own.yaml, line 4, column 10"),
    ("no such file", "./bass.yaml", None, "config.file", "bass.yaml"),
    ("amends nothing", None, None, "config.missing-key", "own.yaml"),
    ("misspelt", None, None, "config.unknown-key", "Did you mean 'extends'?"),
    ("not text", "[a, b]", None, "config.value", "own.yaml, line 4, column 10"),
    (
        "a number of principals",
        ["principals: 5"],
        None,
        "config.value",
        "own.yaml, line 5, column 13",
    ),
    ("a number of contexts", ["contexts: 5"], None, "config.value", "own.yaml, line 5, column 11"),
    ("unknown key", ["amends: {}"], None, "config.unknown-key", "own.yaml, line 5, column 1"),
    (
        "unknown key of the base",
        [],
        ("limits:", "limit:"),
        "config.unknown-key",
        "base.yaml, line 11, column 1",
    ),
    (
        "a context of its name",
        ["contexts: [{name: both, sender: one, recipient: two}]"],
        None,
        "config.duplicate-name",
        "own.yaml, line 5, column 13",
    ),
    (
        "no context to amend",
        ['amend: {furst: {pickle: {allow: {"a:B": class}}}}'],
        None,
        "config.extends",
        "own.yaml, line 5, column 9",
    ),
    (
        "more than globals",
        ["amend: {first: {pickle: {profile: code}}}"],
        None,
        "config.unknown-key",
        "own.yaml, line 5, column 26",
    ),
    (
        "other fields of a context",
        ["amend: {first: {submission: code}}"],
        None,
        "config.unknown-key",
        "own.yaml, line 5, column 17",
    ),
    (
        "a global that is there",
        ['amend: {first: {pickle: {allow: {"a:B": class}}}}'],
        ("pickle]}", 'pickle], pickle: {allow: {"a:B": class}}}'),
        "config.extends",
        "own.yaml, line 5, column 34",
    ),
    (
        "a global without a meaning",
        ['amend: {first: {pickle: {allow: {"a B": class}}}}'],
        None,
        "config.allow",
        "own.yaml, line 5, column 41",
    ),
    (
        "a floor",
        ["contexts: [{name: x, sender: unknown, recipient: one, serializers: [msgpack, pickle]}]"],
        None,
        "floor.unknown",
        "own.yaml, line 5",
    ),
    (
        "a floor of the base",
        [],
        ("sender: 'group:guests'", "sender: unknown, serializers: [msgpack, pickle]"),
        "floor.unknown",
        "base.yaml, line 8",
    ),
    (
        "a group that is misspelt",
        ["principals: {eve: {groups: [team, gests]}}"],
        None,
        "config.undefined",
        "Did you mean 'guests'?",
    ),
    (
        "a group of its own that nobody is in",
        ["principals: {eve: {}}", "contexts: [{name: x, sender: 'group:guests', recipient: one}]"],
        None,
        "config.undefined",
        "own.yaml, line 6",
    ),
]


@pytest.mark.parametrize(
    ("lines", "change", "rule", "where"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_an_error_names_the_file_and_the_line(files, lines, change, rule, where):
    text = own(extends=lines) if isinstance(lines, str) else own(*lines or ())
    base = BASE if change is None else BASE.replace(*change)
    if lines is None:
        text = {"config.missing-key": "amend", "config.unknown-key": "extend"}[rule] + ": {}"
        text = BASE.replace("mode: observe", text)
    if change == ("mode", "mode"):
        base = BASE.replace("revision: 7", "revision: 7\nextends: default")
    with refusal(ConfigError, rule) as error:
        Policy.load(files(text, base))
    assert where in str(error.value)


def test_a_text_without_a_folder_extends_ready_policies_alone():
    with refusal(ConfigError, "config.extends"):
        Policy.parse(own())


def test_a_base_that_others_may_write_is_refused(files):
    path = files(own())
    path.with_name("base.yaml").chmod(0o666)
    with refusal(ConfigError, "config.file-mode"):
        Policy.load(path)


def test_a_running_process_takes_a_changed_base_with_the_next_revision(files, doors, tmp_path):
    path = files(own())
    channel = doors.channel("one", Policy.load(path))
    channel.identity.save(tmp_path / "one.key")
    live = LiveFiles(channel, identity=tmp_path / "one.key", policy=str(path), roster=None)
    steps = [
        ("base.yaml", BASE.replace("max_depth: 50", "max_depth: 40"), 50, "policy.same-revision"),
        ("own.yaml", own().replace("revision: 1", "revision: 2"), 40, "policy.adopted"),
        ("base.yaml", BASE.removesuffix("...\n"), 40, "policy.unfinished"),
    ]
    for name, text, depth, rule in steps:
        (tmp_path / name).write_text(text)
        live.look()
        assert channel.policy.limits.max_depth == depth
        assert channel.audit.events[-1]["rule"] == rule


VALUES = st.recursive(
    st.sampled_from(["group:team", "a", 7, "1GiB", "unknown", "operations"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=4,
)


@draws(100)
@given(st.data())
def test_any_two_texts_are_one_policy_or_one_error(data):
    own_, base = (
        spoiled(data, text)
        for text in (
            own(
                "principals: {eve: {groups: [team]}}",
                "contexts: [{name: above, sender: eve, recipient: one}]",
                'amend: {first: {pickle: {allow: {"a:B": class}}, operations: {grant: [run]}}}',
                "limits: {max_bytes: 64KiB}",
            ),
            BASE,
        )
    )
    try:
        made = Policy.parse(Text(own_, "own", Text(base, "base")))
    except ConfigError:
        return
    assert Policy.parse(Text(own_, "own", Text(base, "base")).expanded).sha256 == made.sha256


def spoiled(data, text: str) -> bytes:
    """Return *text* with one value of it replaced by another."""
    value = json.loads(json.dumps(read(text.encode(), source="x").value))
    places = list(read(text.encode(), source="x").places)
    path = data.draw(st.sampled_from(places))
    if path:
        *above, last = path
        holder = value
        for part in above:
            holder = holder[part]
        holder[last] = data.draw(VALUES)
    return (json.dumps(value) + "\n...\n").encode()
