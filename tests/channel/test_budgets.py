"""Each message has its limits once, however often, and between which others, it is looked at."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from safeser.channel.admitted import MessageBudgets, Unverified
from safeser.errors import SafeserError
from safeser.gate.values import Kind, Limits

DEMO = Path(__file__).parents[2] / "policies" / "demo.yaml"
HEADER = {"serializer": "pickle", "writeable": []}
#: More than half of what one message may hold.
MANY = pickle.dumps(list(range(600)))
FEW = pickle.dumps([1, 2, 3])


@pytest.fixture
def reporting(doors):
    """A worker's link to a scheduler that reads its pickles, and takes a thousand elements."""
    head, _, _ = DEMO.read_text().partition("\nlimits:")
    return doors.links("worker", "scheduler", f"{head}\nlimits: {{max_memory: 128000}}\n")


@pytest.fixture
def arrives(reporting):
    near, far = reporting
    return lambda: far.verify(near.session.seal(b"", [b"x"]))


@pytest.fixture
def reads(reporting):
    """Look at one payload of a message, and return by which rule it is too much, if it is."""
    _, far = reporting
    context = far.inbound(Kind.DATA)

    def look(message, data):
        try:
            payload = far.payload(message, context, "x", HEADER, (data,))
            far.admit(message, context, [payload])
        except SafeserError as error:
            return error.rule
        return None

    return look


def test_two_messages_in_turn_have_no_more_than_each(arrives, reads):
    one, two = arrives(), arrives()
    assert [reads(one, MANY), reads(two, MANY)] == [None, None]
    refused = [reads(one, MANY), reads(two, MANY)]
    assert refused == ["pickle.max-memory"] * 2
    # Neither gets any of it back by what the other, or a third one, did meanwhile.
    assert reads(arrives(), MANY) is None
    assert [reads(one, MANY), reads(two, MANY)] == refused


def test_nor_does_one_message_that_is_looked_at_twice(arrives, reads):
    message = arrives()
    assert reads(message, MANY) is None
    assert reads(message, MANY) == "pickle.max-memory"
    assert reads(arrives(), FEW) is None


def test_the_elements_of_one_message_share_its_budgets(arrives):
    for one, two in ((arrives(), arrives()), [Unverified((), b"", at) for at in range(2)]):
        first = MessageBudgets.of(one, Limits())
        assert MessageBudgets.of(two, Limits()) is not first
        assert MessageBudgets.of(one, Limits(max_memory=1)) is first
        # Reading takes nothing from loading.
        assert len({id(each) for each in (first.reading, first.checking, first.loading)}) == 3
        assert first.loading is first.loading
