"""Peers of a channel as a dashboard shows them."""

from __future__ import annotations

from pathlib import Path

from safeser.dask.monitoring import activity_of
from safeser.policy import Policy


def test_peers_with_key_and_policy(doors):
    from safeser.dask.monitoring.page import Peers

    scheduler = doors.channel("scheduler", "demo")
    own = doors.policy("demo")
    text = Path(own.source).read_text(encoding="utf-8")
    newer = Policy.parse(text.replace("revision: 1", "revision: 9", 1))
    doors._policies["newer"] = newer
    links = [
        doors.shake(doors.channel("alice", "demo"), scheduler),
        doors.shake(doors.channel("alice", "demo"), scheduler),
        doors.shake(doors.channel("bob", "newer"), scheduler),
    ]
    alice, bob = (doors.identity(name).public.fingerprint for name in ("alice", "bob"))
    assert Peers(scheduler).rows() == [
        ("alice", alice, f"demo revision {own.revision}", "yes", 2),
        ("bob", bob, "demo revision 9", "NO", 1),
    ]
    assert activity_of(scheduler) is None
    for near, far in links:
        near.session.end("over")
        far.session.end("over")
    assert Peers(scheduler).rows() == []
