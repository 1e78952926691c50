"""``acknowledge``: paths of code that a policy says are meant, exactly those that it has."""

from __future__ import annotations

import datetime

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy, ready_policies
from safeser.policy.questions.lint import lint
from safeser.policy.ready import locate

TODAY = datetime.date(2026, 3, 15)

TEXT = """safeser: 1
name: p
revision: 1
principals:
  s: {}
  w: {}
  ann: {groups: [users]}
  bea: {groups: [users]}
contexts:
- name: submit
  sender: group:users
  recipient: s
  submission: code
  deserializers: [msgpack, pickle, cloudpickle]
- name: direct
  sender: s
  recipient: w
  submission: code
  deserializers: [msgpack, pickle, cloudpickle]
"""
WHOLE = (
    ("group:users", "s"),
    ("group:users", "s", "w"),
    ("s", "w"),
)


def found(text: str, *paths: tuple[str, ...]) -> list[tuple[str, str]]:
    listed = "".join(f"- {{path: [{', '.join(each)}], reason: meant}}\n" for each in paths)
    policy = Policy.parse(text + (f"acknowledge:\n{listed}" if listed else ""))
    rules = ("lint.code", "lint.acknowledged")
    return [(each.rule, each.message) for each in lint(policy, today=TODAY) if each.rule in rules]


@pytest.mark.parametrize("name", ready_policies())
def test_ready_policies_acknowledge_their_paths_and_no_others(name: str) -> None:
    policy = Policy.load(name)
    rules = {each.rule for each in lint(policy, today=TODAY)}
    assert not rules & {"lint.code", "lint.acknowledged"}
    # One that is taken out is found, so that the test can fail.
    text = locate(name).read_text("utf-8")
    lines = text.splitlines(keepends=True)
    listed = [at for at, line in enumerate(lines) if line.startswith("  - {path: ")]
    assert bool(listed) == (name not in ("stock-cluster", "shared"))
    for at in listed:
        left = "".join(lines[:at] + lines[at + 1 :]).replace("acknowledge:\n\n", "\n")
        fewer = Policy.parse(left)
        assert "lint.code" in {each.rule for each in lint(fewer, today=TODAY)}


def test_a_path_that_is_not_acknowledged_names_its_grants() -> None:
    assert found(TEXT, *WHOLE) == []
    assert found(TEXT, *WHOLE[:1], *WHOLE[2:]) == [
        (
            "lint.code",
            "a holder of the key of group:users can run code as w: group:users -> s by submit;"
            " s -> w by direct",
        )
    ]
    assert len(found(TEXT)) == 3


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (("w", "s"), "the path of code w -> s is acknowledged, and there is none"),
        (("s", "ann"), "the path of code s -> ann is acknowledged, and there is none"),
        # There is one from s to w, and a longer one gives nothing more.
        (
            ("ann", "bea", "s"),
            "the path of code ann -> bea -> s is acknowledged, and there is none",
        ),
        (("unknown", "s"), "the path of code unknown -> s is acknowledged, and there is none"),
    ],
)
def test_an_acknowledgement_of_no_path_is_a_finding(path: tuple[str, ...], message: str) -> None:
    assert ("lint.acknowledged", message) in found(TEXT, *WHOLE, path)


def test_a_group_acknowledges_what_all_of_its_members_have() -> None:
    alone = TEXT.replace("sender: group:users", "sender: ann")
    rules = found(alone, *WHOLE)
    assert {rule for rule, _ in rules} == {"lint.acknowledged"}
    assert rules[0][1].endswith("there is none for bea -> s")
    assert found(alone, ("ann", "s"), ("ann", "s", "w"), ("s", "w")) == []


def test_a_group_that_is_both_ends_is_no_path_to_oneself() -> None:
    among = TEXT.replace("  recipient: s\n", "  recipient: group:users\n")
    assert found(among, ("group:users", "group:users"), ("s", "w")) == []
    single = among.replace("  bea: {groups: [users]}\n", "")
    assert found(single, ("s", "w")) == []


@pytest.mark.parametrize(
    ("entry", "rule"),
    [
        ("{path: [ann, s], reason: ' '}", "config.reason"),
        ("{path: [ann, s], reason: ''}", "config.yaml"),
        ("{path: [ann, s]}", "config.missing-key"),
        ("{path: [ann], reason: x}", "config.value"),
        ("{path: [ann, mallory], reason: x}", "config.undefined"),
        ("{path: ['group:nobody', s], reason: x}", "config.undefined"),
        ("{path: [ann, s], reason: x, until: '2026-01-01'}", "config.unknown-key"),
        ("{path: ['*', s], reason: x}", "config.undefined"),
        ('{path: [ann, s], reason: "x\\e[2J"}', "config.characters"),
        (f"{{path: [{', '.join(['ann', 's'] * 5)}], reason: x}}", "config.value"),
    ],
)
def test_an_acknowledgement_without_meaning_does_not_load(entry: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(f"{TEXT}acknowledge:\n- {entry}\n", source="p.yaml")
    assert caught.value.rule == rule
    assert "line 2" in str(caught.value.where)
