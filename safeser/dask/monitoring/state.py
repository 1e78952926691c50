"""The sessions of one channel, as rows for metrics and dashboards.

The one rule: a row holds names that a handshake proved or the policy lists; what a peer only states
is cut and printable.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from safeser.audit import AuditLog
from safeser.audit.outputs.activity import Activity
from safeser.audit.record import printable
from safeser.channel import Channel, Link

__all__ = ["Peer", "activity_of", "peers"]


class Peer(NamedTuple):
    """One peer with one key that decides by one policy.

    :param policy: the name and revision that it states; it is not proven.
    :param agrees: whether that is the policy of this process, by its hash.
    """

    principal: str
    key: str
    policy: str
    agrees: bool


def activity_of(channel: Channel) -> Activity | None:
    """Return the counts of *channel*'s log; None where it keeps none."""
    return channel.audit.activity if isinstance(channel.audit, AuditLog) else None


def peers(channel: Channel) -> list[tuple[Peer, int]]:
    """Return the peers of *channel*, each with the number of its sessions."""
    own = channel.policy.sha256
    return sorted(Counter(_peer(link, own) for link in channel.live_links()).items())


def _peer(link: Link, own: str) -> Peer:
    session, claims = link.session, link.session.peer_claims
    policy = printable(f"{claims.policy} revision {claims.revision}", 80)
    agrees = claims.sha256 == own
    return Peer(link.peer, session.peer_key.fingerprint, policy, agrees)
