"""Principals that sign, links between them, and graphs as their authors write them out."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from safeser.dask.sealed.call import Kept, Sent
from safeser.dask.sealed.graph import SealedGraph, parse
from safeser.dask.sealed.node import VerifiedTask, nodes
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import Limits
from safeser.identity import Identity, Roster, RosterEntry, SigningKey
from safeser.policy import Policy
from tests.conftest import Doors
from tests.dask.sealed.graphs import written

POLICY = (Path(__file__).parent / "sealed.yaml").read_text()

#: From which all keys are listed.
DAY = datetime.date(2026, 1, 1)


class SigningDoors(Doors):
    """Channels whose identities have signing keys, which the roster lists."""

    def identity(
        self, principal: str, key: str = "", *, signing: SigningKey | None = None
    ) -> Identity:
        seed = hashlib.sha256(b"signing " + (key or principal).encode()).digest()
        made = signing or SigningKey.from_bytes(seed)
        return super().identity(principal, key, signing=made)

    def roster(self, policy: Policy, **changed: Mapping[str, Any]) -> Roster:
        lines = (RosterEntry.of(self.identity(name), created=DAY) for name in policy.principals)
        return Roster(tuple(replace(each, **changed.get(each.principal, {})) for each in lines))


@pytest.fixture(scope="session")
def doors() -> SigningDoors:
    return SigningDoors()


@pytest.fixture(scope="session")
def alice(doors: SigningDoors) -> Identity:
    return doors.identity("alice")


@pytest.fixture(scope="session")
def audience(doors: SigningDoors) -> PublicKey:
    return doors.identity("scheduler").public


@pytest.fixture(scope="session")
def sealed(alice: Identity, audience: PublicKey) -> Any:
    """Return what writes tasks out, as *author* does, and reads them as a scheduler does."""

    def made(tasks: Any, author: Identity = alice, audience: Any = audience) -> SealedGraph:
        header, frames = written(tasks, author, audience)
        return parse(header, [memoryview(frame) for frame in frames], Limits())

    return made


@pytest.fixture(scope="session")
def reopened(sealed: Any) -> Any:
    """Return what hands tasks to a worker and returns them as it opens them, by their keys."""

    def made(tasks: Any) -> dict[Any, Any]:
        sent, kept, found = Sent(), Kept(), {}
        for key, node in nodes(sealed(tasks)).items():
            frames = [memoryview(frame) for frame in sent.frames(node.call)]
            task = VerifiedTask(kept.call(frames, Limits()), Limits(), lambda: None)
            assert task.key == key
            assert task.dependencies == node.dependencies
            assert task.is_coro == task.open().is_coro
            assert task.data_producer == node.data_producer == task.open().data_producer
            found[key] = task.open()
        return found

    return made
