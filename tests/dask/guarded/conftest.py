"""A conversation with a stock peer without a socket: its bytes are made by Dask's own functions."""

from __future__ import annotations

from typing import Any

import pytest
from distributed.protocol import dumps

from safeser.channel import OpenLink
from safeser.dask.guarded.conversation import GuardedConversation
from safeser.policy import Policy

GREETING = {"compression": None, "python": (3, 11, 7), "pickle-protocol": 5}
ADDRESS = "tcp://127.0.0.1:8786"


class Peer:
    """A stock peer who says what it likes, and the guarded side that reads it."""

    def __init__(self, audit: Any, policy: Policy, **options: Any) -> None:
        self.link = OpenLink(
            local="client", policy=policy, audit=audit, transport="tcp", address=ADDRESS
        )
        self.audit = audit
        self.conversation = GuardedConversation(
            self.link, **{"deserializers": ("dask", "msgpack"), **options}
        )

    def greet(self) -> Peer:
        self.conversation.note_sent(GREETING)
        assert self.hear(GREETING) == GREETING
        return self

    def hear(self, message: Any, **options: Any) -> Any:
        """Return what Dask reads when the peer writes *message* by Dask's own codec."""
        return self.hear_frames(dumps(message, **options))

    def hear_frames(self, frames: Any) -> Any:
        views = [memoryview(bytearray(frame)) for frame in map(memoryview_of, frames)]
        return self.conversation.receive(self.link.hear(views), None)

    def answer(self, reply: Any, *, op: str = "get_metadata", **asked: Any) -> Any:
        """Return what Dask reads of *reply* to a request for *op*."""
        self.conversation.note_sent({"op": op, **asked})
        return self.hear(reply)

    def stream(self) -> Peer:
        self.conversation.note_sent({"op": "register-client", "client": "c", "reply": False})
        assert self.hear([{"op": "stream-start"}]) == ({"op": "stream-start"},)
        return self

    @property
    def rules(self) -> list[str]:
        return self.audit.rules


def memoryview_of(frame: Any) -> memoryview:
    return memoryview(frame).cast("B")


class Log:
    """An audit sink in memory."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.counts: list[str] = []

    def record(self, event: Any, /) -> None:
        self.events.append(dict(event))

    def count(
        self, sender: str, recipient: str, operation: str, rule: str, permitted: bool
    ) -> None:
        self.counts.append(rule)

    @property
    def rules(self) -> list[str]:
        return [event["rule"] for event in self.events if not event["permitted"]]


@pytest.fixture(scope="session")
def make_peer() -> Any:
    policy = Policy.load("stock-cluster")
    return lambda **options: Peer(Log(), policy, **options)


@pytest.fixture
def peer(make_peer: Any) -> Peer:
    return make_peer().greet()
