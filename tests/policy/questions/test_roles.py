"""What roles ask of each other, held to the table of operations."""

from __future__ import annotations

from safeser.gate.values import Kind
from safeser.operations import IN_ANY_RELEASE, Channel, Server
from safeser.policy.questions import roles
from safeser.policy.questions.roles import Need, Roles
from safeser.policy.rules import HANDING

ROLES = Roles("s", workers=("w", "v"), nannies=("n",), clients=("c",))


def test_every_word_between_scheduler_and_worker_is_listed() -> None:
    """A new element of their streams is reviewed here, not forgotten."""
    asked = {(need.sender, need.recipient, need.operation) for need in ROLES.needs()}
    optional = {
        "shuffle-fail",  # a user's shuffle that fails is told so by its tasks
    }
    for row in IN_ANY_RELEASE:
        if row.channel is Channel.STREAM and "worker-stream" in row.streams:
            ends = ("s", "w") if row.server is Server.WORKER else ("w", "s")
            assert (*ends, row.name) in asked or row.name in optional, row.name


def test_needs_have_the_kind_of_their_row() -> None:
    needs = set(ROLES.needs())
    assert Need("s", "w", Kind.CONTROL, "close") in needs
    assert Need("w", "n", Kind.CONTROL, "close_gracefully") in needs
    assert Need("s", "c", Kind.DATA, "key-in-memory") in needs
    assert Need("w", "w", Kind.DATA, "get_data") in needs
    assert not [need for need in needs if {need.sender, need.recipient} == {"w", "v"}]


def test_upkeep_hands_out_nothing() -> None:
    kept = {need.operation for need in ROLES.needs() if not need.is_upkeep}
    assert kept == {"compute-task", "get_data", "shuffle_receive", "gather"}
    assert kept & HANDING
    assert roles.REGISTERING["register-client"] is Server.CLIENT
