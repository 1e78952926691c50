"""What a sender may say bounds what is read of it."""

from __future__ import annotations

import pytest

from safeser.gate.values import Context
from safeser.operations import MANY, UNBOUNDED, Channel, Server, lookup
from safeser.policy import Policy
from safeser.policy.ceilings import ceiling, largest

CLUSTER = Policy.load("dask-cluster")
WHO_HAS = lookup(Server.SCHEDULER, Channel.RPC, "who_has")


def to_scheduler(sender):
    return Context(sender, "scheduler", "admin", transport="safeser")


def test_submitters_ask_for_many_keys():
    assert ceiling(CLUSTER, to_scheduler("carol"), WHO_HAS) == WHO_HAS.ceilings.submitter


@pytest.mark.parametrize("sender", ["alice", "dashboard", "worker", "unknown", "nobody"])
def test_others_ask_for_fewer(sender):
    assert ceiling(CLUSTER, to_scheduler(sender), WHO_HAS) == WHO_HAS.ceilings.other


def requests_of(sender):
    return largest(CLUSTER, to_scheduler(sender), Server.SCHEDULER, Channel.RPC)


def test_a_viewer_says_little():
    found = requests_of("dashboard")
    assert found.structure < 1 << 20
    assert found.values < 1 << 20


def test_who_submits_sends_values():
    found = requests_of("carol")
    assert MANY < found.structure < 2 * MANY or found.structure == UNBOUNDED
    assert found.values == UNBOUNDED


def test_who_is_granted_nothing_says_nothing():
    assert requests_of("unknown") == (0, 0, 0)
    assert largest(CLUSTER, to_scheduler("dashboard"), Server.NANNY, Channel.RPC) != ()
    away = Context("dashboard", "nanny", "admin", transport="safeser")
    assert largest(CLUSTER, away, Server.NANNY, Channel.RPC) == (0, 0, 0)
