"""Names of outputs in configuration, and labels of rules: what they mean, and their bounds."""

from __future__ import annotations

import string
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.audit.outputs.configured import outputs, sink
from safeser.audit.outputs.lines import StandardOutput, Syslog
from safeser.audit.outputs.rules import MAX_COMPOSED, OTHER, KnownRules, declared_rules
from safeser.errors import ConfigError, MissingExtraError
from tests.audit.outputs import declared


def test_names_of_outputs():
    made = outputs(["stdout", "syslog"])
    assert [feed.name for feed in made.feeds] == ["stdout", "syslog"]
    assert isinstance(sink("stdout"), StandardOutput)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("syslog", "/dev/log"),
        ("syslog:///run/own/log", "/run/own/log"),
        ("syslog://collector", ("collector", 514)),
        ("syslog://collector:1514", ("collector", 1514)),
        ("syslog://[::1]:1514", ("::1", 1514)),
    ],
)
def test_addresses_of_syslog(name, address):
    made = sink(name)
    assert isinstance(made, Syslog)
    assert made._address == address


@pytest.mark.parametrize(
    "name",
    [
        *("", "stderr", "stdout:1", "syslog:", "syslog:relative", "\x1b[2J"),
        *("otlp:host:4318", "otlp:file:///etc/passwd"),
        *(f"syslog://{place}" for place in ("", "host:port", "host:99999", "host/path", "[::1")),
    ],
)
def test_other_names_are_refused_with_the_ones_that_there_are(name):
    with pytest.raises(ConfigError) as caught:
        sink(name)
    assert caught.value.rule == "config.audit-outputs"
    assert "syslog://HOST:514" in str(caught.value)
    assert str(caught.value).isprintable()


def test_an_output_stands_once():
    with pytest.raises(ConfigError, match="twice"):
        outputs(["stdout", "stdout"])


def test_the_extra_is_named_where_its_packages_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "safeser.audit.outputs.opentelemetry", None)
    with pytest.raises(MissingExtraError, match=r"safeser\[otel\]"):
        sink("otlp")


# --- labels of rules ------------------------------------------------------------------------------


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
