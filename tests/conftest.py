"""Two sides of the one door in memory, a log that remembers order, and one real cluster for all."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from safeser.channel import Channel, Link
from safeser.errors import AuditError
from safeser.keys import Identity, PrivateKey, Roster
from safeser.policy import Policy


class Witness:
    """An audit sink in memory. What it saw is in :attr:`events`, in order.

    :ivar broken: events of these names cannot be recorded.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.counts: list[tuple[str, str, str, str, bool]] = []
        self.broken: set[str] = set()

    def record(self, event: Mapping[str, Any], /) -> None:
        if event["event"] in self.broken:
            raise AuditError("the disk is full", rule="audit.write")
        self.events.append(dict(event))

    def count(
        self, sender: str, recipient: str, operation: str, rule: str, permitted: bool
    ) -> None:
        if "count" in self.broken:
            raise AuditError("the disk is full", rule="audit.write")
        self.counts.append((sender, recipient, operation, rule, permitted))

    def note(self, what: str) -> None:
        """Put something that is no record into the order of events."""
        self.events.append({"event": what, "rule": "", "permitted": False})

    @property
    def order(self) -> list[str]:
        return [event["event"] for event in self.events]

    @property
    def rules(self) -> list[str]:
        return [event["rule"] for event in self.events if not event["permitted"]]


class Doors:
    """Channels of principals with fixed keys, and links between them without a socket."""

    def __init__(self) -> None:
        self._policies: dict[str, Policy] = {}

    def identity(self, principal: str, key: str = "") -> Identity:
        seed = hashlib.sha256((key or principal).encode()).digest()
        return Identity(principal, PrivateKey.from_bytes(seed))

    def policy(self, name_or_text: str) -> Policy:
        """Return a ready policy, or the one that the text spells, with a key for each principal."""
        if name_or_text not in self._policies:
            plain = "\n" in name_or_text
            made = Policy.parse(name_or_text) if plain else Policy.load(name_or_text)
            self._policies[name_or_text] = made
        return self._policies[name_or_text]

    def roster(self, policy: Policy) -> Roster:
        lines = [
            f"{self.identity(name).public.text} {name} active 2026-01-01"
            for name in policy.principals
        ]
        return Roster.parse("\n".join(lines) + "\n")

    def channel(self, principal: str, policy: str, **options: Any) -> Channel:
        loaded = self.policy(policy)
        options = {"audit": Witness(), "roster": self.roster(loaded), **options}
        return Channel(identity=self.identity(principal), policy=loaded, **options)

    def shake(self, initiator: Channel, responder: Channel, **options: Any) -> tuple[Link, Link]:
        """Carry the bytes of a handshake between two channels; return both links."""
        one = initiator.handshake(initiator=True, **options)
        two = responder.handshake(initiator=False)
        to_two, to_one = one.outgoing, b""
        while one.wanted or two.wanted:
            if two.wanted and len(to_two) >= two.wanted:
                size = two.wanted
                to_one += two.feed(to_two[:size])
                to_two = to_two[size:]
            else:
                size = one.wanted
                to_two += one.feed(to_one[:size])
                to_one = to_one[size:]
        return initiator.link(one), responder.link(two)

    def links(self, one: str, two: str, policy: str = "demo") -> tuple[Link, Link]:
        return self.shake(self.channel(one, policy), self.channel(two, policy))


@pytest.fixture(scope="session")
def doors() -> Doors:
    return Doors()


class Marker:
    """A file that a pickle makes when somebody opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def pickle(self) -> bytes:
        return pickle.dumps(_Touch(str(self.path)))

    @property
    def made(self) -> bool:
        return self.path.exists()


class _Touch:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self._path, "w")


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Marker]:
    """Yield an attack, and fail the test if it ran."""
    found = Marker(tmp_path / "marker")
    yield found
    assert not found.made, "bytes of a peer were executed"
