"""Peers of a channel as a dashboard shows them."""

from __future__ import annotations

from pathlib import Path

from safeser.dask.monitoring.state import activity_of, peers
from safeser.policy import Policy


def test_peers_with_key_and_policy(doors):
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
    found = peers(scheduler)
    assert [(peer.principal, peer.policy, peer.agrees, count) for peer, count in found] == [
        ("alice", f"demo revision {own.revision}", True, 2),
        ("bob", "demo revision 9", False, 1),
    ]
    assert found[0][0].key == doors.identity("alice").public.fingerprint
    assert activity_of(scheduler) is None
    for near, far in links:
        near.session.end("over")
        far.session.end("over")
    assert peers(scheduler) == []
