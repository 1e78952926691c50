"""A peer that decides by another policy: recorded once for each session, trusted for nothing."""

from __future__ import annotations

import pytest

from safeser.gate.values import Kind

NEWER = ("revision: 3", "revision: 4")
OTHER = ("name: doors", "name: windows")
SAME_NAME = ("# ann may", "# Ann may")


def changed(policy, *changes):
    policy = "# ann may\n" + policy
    for old, new in changes:
        assert old in policy
        policy = policy.replace(old, new)
    return policy


@pytest.mark.parametrize(
    ("changes", "name", "revision"),
    [([NEWER], "doors", 4), ([OTHER], "windows", 3), ([SAME_NAME], "doors", 3)],
)
def test_drift_is_recorded_once_by_each_side(doors, policy, changes, name, revision):
    one = doors.channel("ann", changed(policy))
    two = doors.channel("bea", changed(policy, *changes))
    near, far = doors.shake(one, two)
    [event] = one.audit.events
    assert (event["event"], event["sender"], event["recipient"]) == ("drift", "bea", "ann")
    assert (event["peer_policy"], event["peer_revision"]) == (name, revision)
    assert event["peer_sha256"] == two.policy.sha256 != one.policy.sha256
    assert (event["rule"], event["permitted"]) == ("policy.drift", True)
    assert [e["peer_revision"] for e in two.audit.events] == [3]
    context = far.inbound(Kind.DATA)
    for number in range(3):
        assert two.open(one.seal(number, context), context) == number
    assert [e["event"] for e in one.audit.events] == ["drift"]
    assert [e["event"] for e in two.audit.events] == ["drift", "admit", "admit", "admit"]
    doors.shake(one, two)
    assert [e["event"] for e in one.audit.events] == ["drift", "drift"]
    assert near.policy is one.policy  # the peer's word changes nothing


def test_a_drift_that_cannot_be_recorded_ends_nothing(doors, policy, caplog):
    one = doors.channel("ann", policy)
    two = doors.channel("bea", changed(policy, NEWER))
    one.audit.broken = {"drift"}
    near, _ = doors.shake(one, two)
    assert near.peer == "bea"
    assert "disk is full" in caplog.text
