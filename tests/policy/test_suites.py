"""``suite``: per context and by default, and what a session between two principals is then."""

from __future__ import annotations

import itertools

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.values import UNKNOWN, Suite

ONE, TWO = Suite.AUTHENTICATE, Suite.ENCRYPT

TEXT = """
safeser: 1
name: suites
revision: 1
principals: {a: {}, b: {}, c: {}, d: {}, loner: {}}
contexts:
  - {name: data-there, sender: a, recipient: b, kinds: [admin, data], suite: encrypt}
  - {name: rest-there, sender: a, recipient: b, kinds: [task, control]}
  - {name: never-reached, sender: a, recipient: [b, c], suite: authenticate}
  - {name: abroad, sender: c, recipient: d, same_host: false, suite: encrypt}
  - {name: at-home, sender: c, recipient: d}
  - {name: by-library, sender: d, recipient: a, transport: library, suite: encrypt}
  - {name: to-self, sender: d, recipient: d}
"""


def parsed(*changes: tuple[str, str]) -> Policy:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return Policy.parse(text)


def refused(*changes: tuple[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parsed(*changes)
    return caught.value


@pytest.mark.parametrize(
    ("one", "other", "transport", "same_host", "suite"),
    [
        ("a", "b", "safeser", True, TWO),  # one context of several is enough
        ("b", "a", "safeser", True, TWO),  # whoever asks
        ("a", "c", "safeser", True, ONE),
        ("c", "d", "safeser", True, ONE),
        ("c", "d", "safeser", False, TWO),
        ("c", "d", "safeser", None, ONE),  # what was not measured matches no context that asks
        ("d", "a", "safeser", True, ONE),  # no context decides anything: the default
        ("d", "a", "library", None, TWO),
        ("d", "d", "safeser", True, ONE),
        ("loner", "a", "safeser", True, ONE),
        ("a", "nobody", "safeser", True, ONE),
    ],
)
def test_the_strictest_context_that_decides_anything(one, other, transport, same_host, suite):
    policy = parsed()
    assert policy.suite(one, other, transport=transport, same_host=same_host) is suite
    assert policy.suite(other, one, transport=transport, same_host=same_host) is suite


@pytest.mark.parametrize(
    ("one", "transport", "same_host", "suite"),
    [
        ("a", "safeser", True, TWO),
        ("b", "safeser", True, TWO),
        ("c", "safeser", True, ONE),
        ("c", "safeser", False, TWO),
        ("d", "library", None, TWO),
        ("d", "safeser", True, ONE),
        ("loner", "safeser", True, ONE),
        ("nobody", "safeser", True, ONE),
    ],
)
def test_the_strictest_with_any_that_one_may_meet(one, transport, same_host, suite):
    assert parsed().suite(one, transport=transport, same_host=same_host) is suite


def test_a_default_holds_where_a_context_says_nothing():
    policy = parsed(("revision: 1\n", "revision: 1\nsuite: encrypt\n"))
    way = {"transport": "safeser", "same_host": True}
    assert policy.suite("c", "d", **way) is TWO
    assert policy.suite("loner", "a", **way) is TWO  # and where none decides
    assert policy.suite("a", "c", **way) is ONE  # and where one does, that one
    assert {rule.name: rule.suite for rule in policy.contexts}["rest-there"] is TWO


def test_no_initiator_proposes_less_than_it_requires_of_the_one_it_meets():
    policy = parsed()
    for one, other in itertools.product(policy.principals, repeat=2):
        for transport, same_host in itertools.product(("safeser", "library"), (True, False, None)):
            way = {"transport": transport, "same_host": same_host}
            found = policy.suite(one, other, **way)
            if other in policy.counterparts(one):
                assert policy.suite(one, **way) >= found


@pytest.mark.parametrize("word", ["encrypted", "Encrypt", "ENCRYPT", "none", "plain"])
def test_a_suite_that_there_is_not(word):
    error = refused(("revision: 1\n", f"revision: 1\nsuite: {word}\n"))
    assert error.rule == "config.suite"
    error = refused(("suite: authenticate", f"suite: {word}"))
    assert error.rule == "config.suite"
    assert "never-reached" in str(error) or "line" in str(error)


@pytest.mark.parametrize("way", ["", ", transport: tls", ", transport: [tcp, safeser]"])
def test_a_suite_where_there_is_no_session(way):
    entry = f"  - {{name: odd, sender: unknown, recipient: a{way}"
    text = TEXT.replace("contexts:\n", f"contexts:\n{entry}, suite: encrypt}}\n")
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text)
    assert caught.value.rule == "config.no-effect"
    loaded = Policy.parse(text.replace(", suite: encrypt}\n", "}\n", 1))
    assert not loaded.contexts[0].in_sessions
    assert all(rule.in_sessions for rule in loaded.contexts[1:])


def test_who_is_unknown_has_no_session():
    assert parsed().suite(UNKNOWN, UNKNOWN) is ONE
