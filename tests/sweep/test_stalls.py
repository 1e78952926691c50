"""The sweep of messages has something to send of each operation that takes much."""

from __future__ import annotations

from safeser.policy import Policy
from tests.sweep.stalls import of_operations


def test_operations_are_attacked_by_who_may_ask_for_them():
    attacks = list(of_operations(Policy.load("dask-cluster")))
    assert {each.sender for each in attacks} >= {"dashboard", "worker"}
    assert len({each.name for each in attacks}) > 300
