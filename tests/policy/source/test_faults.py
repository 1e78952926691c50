"""All faults of a file are reported at once, each with a hint that mends it."""

from __future__ import annotations

import pickle

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy

TEXT = """
safeser: 1
name: bad
revision: -1
principals:
  alice: {groups: [engineers]}
  scheduler: {}
contexts:
  - name: a
    sender: engineers
    recipient: scheduler
    same_host: yes
    kinds: [tasks]
  - name: b
    sender: alice
    recipient: sheduler
    serialisers: [dask]
    submission: 2026-12-01
"""


def faults(text):
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text, "p.yaml")
    return caught.value.faults


def test_all_faults_are_reported_each_once_and_with_its_place():
    found = faults(TEXT)
    assert [(each.rule, each.where) for each in found] == [
        ("config.ambiguous", "p.yaml, line 4, column 11"),
        ("config.ambiguous", "p.yaml, line 12, column 16"),
        ("config.ambiguous", "p.yaml, line 18, column 17"),
        ("config.unknown-key", "p.yaml, line 17, column 5"),
        ("config.undefined", "p.yaml, line 10, column 13"),
        ("config.kind", "p.yaml, line 13, column 13"),
        ("config.undefined", "p.yaml, line 16, column 16"),
    ]


def test_what_follows_from_another_fault_is_not_reported():
    # The principal that a fault keeps from being defined, and the key that is misspelt.
    text = TEXT.replace("  scheduler: {}", "  scheduler: {key: }")
    assert [each.rule for each in faults(text)] == ["config.yaml"]
    text = "safeser: 1\nname: x\nrevison: 1\nprincipals: {a: {}}\ncontexts: []\n"
    rules = [each.rule for each in faults(text)]
    assert rules[0] == "config.unknown-key"
    assert "config.missing-key" not in rules


def test_only_names_follow_from_a_fault_of_the_section_that_defines_them():
    """What a profile or a kind is called does not depend on the principals."""
    text = TEXT.replace("alice: {groups", "alice: {since: 2026-12-01, groups")
    found = [(each.rule, each.where) for each in faults(text)]
    assert ("config.kind", "p.yaml, line 13, column 13") in found
    assert "config.undefined" not in [rule for rule, _ in found]
    text = TEXT.replace("principals:", "families: dask\nprincipals:").replace(
        "serialisers", "serializers"
    )
    rules = [each.rule for each in faults(text.replace("[dask]", "[mine, msgpack]"))]
    assert "config.family" not in rules
    assert rules.count("config.undefined") == 2


def test_contexts_that_do_not_fit_are_reported_all():
    text = """
safeser: 1
name: bad
revision: 1
principals: {alice: {}, scheduler: {}}
contexts:
- {name: a, sender: alice, recipient: scheduler, kinds: [admin], serializers: [dask, msgpack]}
- {name: a, sender: alice, recipient: scheduler}
- {name: b, sender: unknown, recipient: scheduler, submission: code}
- {name: c, sender: scheduler, recipient: alice}
"""
    assert [(each.rule, each.where.partition("line ")[2]) for each in faults(text)] == [
        ("floor.admin", "7, column 79"),
        ("config.duplicate-name", "8, column 10"),
        ("floor.unknown", "9, column 64"),
    ]
    many = "".join(
        f"- {{name: n{at}, sender: unknown, recipient: alice, submission: code}}\n"
        for at in range(30)
    )
    assert len(faults(text + many)) == 20


def test_a_file_of_another_version_has_that_fault_alone():
    assert [each.rule for each in faults(TEXT.replace("safeser: 1", "safeser: 2"))] == [
        "config.version"
    ]


def test_of_many_faults_the_first_are_reported():
    lines = "".join(f"  - {{name: n{at}, sender: absent{at}, recipient: s}}\n" for at in range(900))
    text = f"safeser: 1\nname: x\nrevision: 1\nprincipals: {{s: {{}}}}\ncontexts:\n{lines}"
    assert len(faults(text)) == 20


def test_the_text_and_a_copy_have_all():
    with pytest.raises(ConfigError) as caught:
        Policy.parse(TEXT, "p.yaml")
    assert len(str(caught.value).splitlines()) == 7
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    one = pickle.loads(pickle.dumps(ConfigError("x", fix="y")))
    assert (str(one), one.faults) == ("x [config] y", (one,))
