"""Labels of rules: those that the code names, and no more than a bound of others."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.audit.outputs.rules import MAX_COMPOSED, OTHER, KnownRules, declared_rules
from tests.audit.outputs import declared


@pytest.mark.slow
@pytest.mark.unmeasured
def test_the_file_has_the_rules_of_the_code():
    have, want = declared.PLACE.read_text("ascii").split(), declared.text().split()
    assert have == want, "run: python -m tests.audit.outputs.declared"


def test_rules_of_the_code_are_labels():
    rules = KnownRules()
    for rule in ("context.none", "authentication", "permit", "suite.encrypt", "policy.drift"):
        assert rules.label(rule) == rule
        assert rule in declared_rules()


def test_a_composed_rule_of_a_known_group_is_a_label():
    assert KnownRules().label("raw.a-field-of-tomorrow") == "raw.a-field-of-tomorrow"


@given(st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text()).map(tuple)))
def test_what_no_code_names_is_other(rule):
    label = KnownRules().label(rule)
    assert label == OTHER or label in declared_rules() or "." in label
    assert set(label) <= set(string.printable)


def test_a_peer_that_invents_rules_gets_a_bounded_number_of_labels():
    rules = KnownRules()
    labels = {rules.label(f"raw.field-{n}") for n in range(10_000)}
    assert len(labels) == MAX_COMPOSED + 1
    assert OTHER in labels
    assert rules.label("raw.field-0") == "raw.field-0"
    assert rules.label("context.none") == "context.none"
    assert rules.label(f"raw.{'x' * 10_000}") == OTHER
