"""What a link keeps between messages."""

from __future__ import annotations

import pytest

from safeser.channel.records import CONTEXTS_MAX
from safeser.gate.values import Context, Kind


@pytest.fixture
def ann(doors, policy):
    return doors.links("ann", "bea", policy)[0]


def test_the_same_context_is_made_once(ann):
    assert ann.inbound(Kind.DATA, "gather") is ann.inbound(Kind.DATA, "gather")
    assert ann.inbound(Kind.DATA) != ann.outbound(Kind.DATA)


def test_a_caller_with_many_operations_does_not_grow_a_link(ann):
    for number in range(3 * CONTEXTS_MAX):
        name = f"operation-{number}"
        assert ann.inbound(Kind.DATA, name) == Context(
            "bea", "ann", Kind.DATA, name, transport="library"
        )
        assert len(ann._contexts) <= CONTEXTS_MAX


def test_a_context_that_cannot_be_is_not_kept(ann):
    for _ in range(2):
        with pytest.raises(Exception, match="operation"):
            ann.inbound(Kind.DATA, "x" * 1000)
    assert not ann._contexts
