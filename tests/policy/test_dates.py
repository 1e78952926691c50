"""``until``: what a context grants ends with its day, at once, in every answer, and for good."""

from __future__ import annotations

import datetime
from types import SimpleNamespace

import pytest

from safeser.errors import ConfigError, PolicyDenied
from safeser.gate.values import Context
from safeser.policy import Policy, periods
from safeser.policy.questions.lint import lint
from safeser.policy.questions.readable import read_by
from tests.policy.random_policies import (
    noon,
)

TEXT = """safeser: 1
name: p
revision: 1
principals: {a: {}, b: {}, c: {}, w: {}}
contexts:
- name: temporary
  sender: a
  recipient: b
  until: '2026-06-30'
  submission: code
  serializers: [msgpack, dask, pickle, cloudpickle]
  deserializers: [msgpack, dask, pickle, cloudpickle]
  values: [c]
  operations: {grant: [basic, gather, run]}
- name: always
  sender: [a, c]
  recipient: b
  deserializers: [msgpack, dask]
  operations: {grant: [basic]}
"""


class Clock:
    """A clock that a test sets."""

    def __init__(self, day: str) -> None:
        self.now = noon(day)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock("2026-06-30")


@pytest.fixture
def policy(clock: Clock) -> Policy:
    return Policy.parse(TEXT, clock=clock)


def test_the_last_second_of_the_day_is_the_last(clock: Clock, policy: Policy) -> None:
    midnight = noon("2026-07-01") - 12 * 3600
    clock.now = midnight - 0.001
    assert policy.decide(Context("a", "b"), "cloudpickle").permitted
    clock.now = midnight
    decision = policy.decide(Context("a", "b"), "cloudpickle")
    assert (decision.permitted, decision.rule, decision.context) == (
        *(False, "context.ended"),
        "temporary",
    )
    assert "2026-06-30" in decision.reason


def test_every_answer_that_was_remembered_ends(clock: Clock, policy: Policy) -> None:
    run = Context("a", "b", "control", "run")
    graph = Context("a", "b", "task", "update-graph")
    plain = Context("a", "b")

    def answers() -> list[bool]:
        def has_grant() -> bool:
            try:
                return bool(policy.grant(plain).families)
            except PolicyDenied as denied:
                return denied.rule != "context.ended"

        return [
            policy.decide(run, "cloudpickle").permitted,
            policy.decide(plain, "msgpack").permitted,
            policy.decide(Context("a", "b", "admin"), "msgpack").permitted,
            policy.permits_operation(run).permitted,
            policy.permits_operation(graph).permitted,
            has_grant(),
            policy.key_conflicts(graph).principal == "warn",
            "c" in read_by(policy, "a"),
            any(rule.submission == "code" for rule in policy.contexts),
        ]

    assert answers() == [True] * 9 == answers()
    clock.now = noon("2026-07-01")
    assert answers() == [False] * 9 == answers()


def test_a_clock_that_is_set_back_brings_nothing_back(clock: Clock, policy: Policy) -> None:
    clock.now = noon("2026-07-01")
    assert not policy.decide(Context("a", "b"), "dask").permitted
    clock.now = noon("2026-01-01")
    assert not policy.decide(Context("a", "b"), "dask").permitted
    assert not policy.renewed().decide(Context("a", "b"), "dask").permitted


def test_a_policy_whose_date_has_passed_loads(clock: Clock) -> None:
    """A process that is restarted after it must not stay down."""
    clock.now = noon("2026-07-01")
    policy = Policy.parse(TEXT, clock=clock)
    assert policy.decide(Context("a", "b"), "msgpack").rule == "context.ended"


def test_a_policy_is_another_object_once_a_context_has_ended(clock: Clock, policy: Policy) -> None:
    assert policy.renewed() is policy
    assert not policy.has_passed
    clock.now = noon("2026-07-01")
    assert policy.has_passed
    assert [rule.name for rule in policy.passed()] == ["temporary"]
    renewed = policy.renewed()
    assert renewed is not policy
    assert renewed.sha256 == policy.sha256
    assert renewed.renewed() is renewed
    assert renewed.passed() == []


def test_two_that_share_only_what_has_ended_have_no_session(clock: Clock) -> None:
    alone = TEXT.replace("sender: [a, c]", "sender: c")
    policy = Policy.parse(alone, clock=clock)
    assert policy.counterparts("a") == {"b"}
    clock.now = noon("2026-07-01")
    assert policy.counterparts("a") == frozenset()
    # A context below that covers them as well is not reached.
    below = Policy.parse(TEXT, clock=clock)
    assert below.counterparts("a") == frozenset()
    assert below.counterparts("b") == {"c"}


def test_an_observing_policy_records_what_has_ended(clock: Clock) -> None:
    text = TEXT.replace("revision: 1\n", "revision: 1\nmode: observe\n")
    observed = Policy.parse(text, clock=clock)
    assert observed.written is not None
    clock.now = noon("2026-07-01")
    assert observed.decide(Context("a", "b"), "cloudpickle").permitted
    assert observed.written.decide(Context("a", "b"), "dask").rule == "context.ended"
    assert observed.has_passed
    assert not observed.renewed().has_passed


# --- for people -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("2026-06-30", "config.ambiguous"),  # without quotes: a date to some readers of YAML
        ("'2026-6-30'", "config.date"),
        ("'2026-02-30'", "config.date"),
        ("'0000-01-01'", "config.date"),
        ("'2026-06-30T12:00'", "config.date"),
        ("'20260630'", "config.date"),
        ("'soon'", "config.date"),
        ("1", "config.value"),
        ("[]", "config.value"),
        ("'9999-12-31'", None),
        ("'0001-01-01'", None),
    ],
)
def test_a_date_is_written_in_one_way(written: str, rule: str | None) -> None:
    text = TEXT.replace("'2026-06-30'", written)
    if rule is None:
        Policy.parse(text)
        return
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text, source="p.yaml")
    assert caught.value.rule == rule
    assert "line 9" in str(caught.value.where)


def test_a_clock_that_was_set_back_gives_nothing_to_a_policy_that_is_loaded(monkeypatch) -> None:
    monkeypatch.setattr(periods._Forward, "latest", noon("2026-06-29"))
    monkeypatch.setattr(periods, "time", SimpleNamespace(time=lambda: noon("2026-07-01")))
    before = Policy.parse(TEXT)
    assert not before.decide(Context("a", "b"), "dask").permitted
    monkeypatch.setattr(periods, "time", SimpleNamespace(time=lambda: noon("2026-06-29")))
    assert not before.decide(Context("a", "b"), "dask").permitted
    assert not Policy.parse(TEXT).decide(Context("a", "b"), "dask").permitted


def test_a_clock_without_a_time_lets_no_date_pass_unseen(clock: Clock, policy: Policy) -> None:
    assert policy.decide(Context("a", "b"), "dask").permitted
    clock.now = float("nan")
    assert not policy.decide(Context("a", "b", operation="x"), "dask").permitted


def test_a_thread_that_read_the_clock_earlier_takes_no_end_back(clock: Clock) -> None:
    periods = Policy.parse(TEXT, clock=clock)._periods
    clock.now = noon("2026-07-01")
    ended = periods.compiled()
    assert periods._advance(noon("2026-06-29")) is ended
    assert periods.compiled() is ended


@pytest.mark.parametrize(
    ("day", "found"),
    [("2026-05-30", []), ("2026-05-31", [True]), ("2026-06-30", [True]), ("2026-07-01", [False])],
)
def test_lint_notes_what_ends_soon_and_finds_what_has_ended(
    policy: Policy, day: str, found: list[bool]
) -> None:
    findings = lint(policy, today=datetime.date.fromisoformat(day))
    assert [each.is_note for each in findings if each.rule == "lint.until"] == found
