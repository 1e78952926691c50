"""Names of outputs in configuration: what they mean, and that nothing else passes."""

from __future__ import annotations

import sys

import pytest

from safeser.audit.outputs.configured import outputs, sink
from safeser.audit.outputs.lines import StandardOutput, Syslog
from safeser.errors import ConfigError, MissingExtraError


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
