"""Contexts with a last day, on live connections: what rests on one ends with it."""

from __future__ import annotations

import datetime

import pytest

from safeser.channel.standing import Ending
from safeser.errors import PolicyDenied
from safeser.gate.values import Kind
from safeser.policy import Policy
from tests.refusal import refusal

LAST = datetime.datetime(2026, 6, 30, 12, tzinfo=datetime.UTC).timestamp()
AFTER = LAST + 86_400

ONE = ({"serializer": "msgpack"}, [b"\x01"])


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = LAST

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def dated(policy, *names):
    for name in names:
        assert f"- name: {name}\n" in policy
        policy = policy.replace(f"- name: {name}\n", f"- name: {name}\n    until: '2026-06-30'\n")
    return policy


@pytest.fixture
def connected(doors, policy, clock):
    """Return a function that makes both sides of a connection from ann to bea."""

    def made(*names):
        parsed = Policy.parse(dated(policy, *names), clock=clock)
        near, far = doors.shake(doors.channel("ann", parsed), doors.channel("bea", parsed))
        return near, far

    return made


def admitted(near, far, *payloads, kind=Kind.DATA, operation=None):
    message = far.verify(near.session.seal(b"", []))
    context = far.inbound(kind, operation)
    each = [far.payload(message, context, f"x{at}", *one) for at, one in enumerate(payloads)]
    return far.admit(message, context, each)


def test_the_next_message_is_refused_before_the_channel_looks(connected, clock):
    near, far = connected("code")
    assert far.load(admitted(near, far, ONE)) == [1]
    clock.now = AFTER
    with refusal(PolicyDenied, "context.ended"):
        admitted(near, far, ONE)
    assert far.audit.rules[-1] == "context.ended"
    assert not far.session.ended


def test_a_repeated_message_is_not_admitted_by_the_last_decision(connected, clock):
    near, far = connected("code")
    message = far.verify(near.session.seal(b"", []))
    far.admit(message, far.inbound(Kind.ADMIN, "identity"))
    assert far.holds_again(message, far.policy)
    clock.now = AFTER
    assert not far.holds_again(message, far.policy)


def test_a_channel_takes_the_policy_anew_and_records_the_end(connected, clock):
    _near, far = connected("code")
    channel, before = far.channel, far.policy
    channel.review()
    assert far.policy is before
    clock.now = AFTER
    channel.review()
    assert far.policy is not before
    assert far.policy.sha256 == before.sha256
    (event,) = [each for each in far.audit.events if each["rule"] == "policy.ended"]
    assert (event["event"], event["where"]) == ("reload", "code")
    after = far.policy
    channel.review()
    assert far.policy is after
    assert not far.session.ended  # bea may still answer


def test_a_session_ends_where_nothing_may_pass_any_more(connected, clock):
    _near, far = connected("code", "answers")
    clock.now = AFTER
    assert not far.session.ended
    far.channel.review()
    assert far.session.ended
    assert far.over == Ending("policy.no-context", "ann")


@pytest.mark.parametrize("done", ["sealed", "verified", "read"])
def test_what_was_begun_before_the_end_is_refused_after_it(connected, clock, done):
    near, far = connected("code")
    message = near.session.seal(b"", [])
    context = far.inbound(Kind.DATA)
    payloads = []
    if done != "sealed":
        message = far.verify(message)
    if done == "read":
        payloads = [far.payload(message, context, "x", *ONE)]
    clock.now = AFTER
    if done == "sealed":
        message = far.verify(message)
    with refusal(PolicyDenied, "context.ended"):
        far.admit(message, context, payloads)


def test_a_shadow_follows_its_dates_as_well(doors, policy, clock):
    shadow = Policy.parse(dated(policy, "code").replace("name: doors", "name: s"), clock=clock)
    bea = doors.channel("bea", policy, shadow=shadow)
    near, far = doors.shake(doors.channel("ann", policy), bea)
    admitted(near, far, ONE)
    clock.now = AFTER
    admitted(near, far, ONE)
    bea.review()
    assert bea.shadow is not shadow
    admitted(near, far, ONE)
    said = [each.get("shadow_rule") for each in far.audit.events if each["event"] == "admit"]
    assert said == [None, "context.ended", "context.ended"]
