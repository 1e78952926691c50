"""The conversation in memory: each row is refused by its rule and recorded, and opens nothing."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import pytest
from distributed.core import clean_exception

from safeser.dask.contents.failures import Relayed
from safeser.errors import SafeserError
from safeser.gate.noise import HandshakeRefused
from safeser.identity import RosterEntry, today
from safeser.operations import NAMES
from tests.dask.attacks.rows import MARKER, Raw, Row
from tests.dask.attacks.table import ROWS, STRANGERS
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import SigningDoors as Signing


def read_as_dask_does(message: Any) -> None:
    """Do to errors anywhere in *message* what Dask's servers and clients do to them."""
    if isinstance(message, dict):
        if not isinstance(message.get("exception"), Relayed | None):
            clean_exception(message["exception"], message.get("traceback"))
        for item in message.values():
            read_as_dask_does(item)
    elif isinstance(message, tuple | list):
        for item in message:
            read_as_dask_does(item)
    elif isinstance(message, bytes):  # Client.run takes bytes for an exception
        with suppress(pickle.UnpicklingError, EOFError):
            pickle.loads(message)


def said(row: Row) -> tuple[Any, Any, list[Any]]:
    """Return what the recipient of *row* reads, its log, and its answers."""
    message = row.message() if callable(row.message) else row.message
    listed = message.listed if isinstance(message, Raw) else isinstance(message, list)
    if row.asked is None and not (listed and row.sender == "scheduler"):
        t = Talk(Signing(), row.sender, row.recipient, row.policy).greet()
        if listed:
            t = t.worker_stream() if row.sender == "worker" else t.client_stream()
        got = t.raw(*message.frames) if isinstance(message, Raw) else t.attack(message)
        return got, t.far.audit, t.answers
    t = Talk(Signing(), row.recipient, row.sender, row.policy).greet()
    if row.asked is not None:
        t.request({"reply": True, **row.asked})
    else:
        t = t.worker_stream() if row.recipient == "worker" else t.client_stream()
    got = Talk.SKIP
    with suppress(SafeserError):
        got = t.raw_back(*message.frames) if isinstance(message, Raw) else t.attack_back(message)
    return got, t.near.audit, []


def named(row: Row) -> str:
    """Return the operation that *row* names: in an answer, and by an unknown name, none."""
    message = row.message() if callable(row.message) else row.message
    first = message[0] if isinstance(message, list) and message else message
    name = first.get("op") if isinstance(first, dict) and row.asked is None else None
    return name if isinstance(name, str) and name in NAMES else ""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_row_ends_as_its_table_says(row):
    got, audit, answers = said(row)
    assert audit.rules == ([] if row.rule is None else row.rule.split())
    for record in audit.events:
        if not record["permitted"]:
            operation = named(row) if row.operation is None else row.operation
            found = record["sender"], record["recipient"], record["operation"]
            assert found == (row.sender, row.recipient, operation)
    if row.rule is not None and row.asked is None:
        read = () if got is Talk.SKIP else tuple(element["op"] for element in got)
        assert read == row.leaves
    for each in (got, answers):
        read_as_dask_does(each)
    assert not MARKER.exists()


def _shakes(doors: Any, stranger: Any, channel: Any, said: bytes | None) -> None:
    if said is None:
        doors.shake(stranger, channel)
    else:
        channel.handshake(initiator=False).feed(said)


@pytest.mark.parametrize("row", STRANGERS, ids=lambda row: row.name)
def test_who_proves_no_listed_key_has_no_session(row):
    """Its record is the listener's; see the live runner."""
    doors = Signing()
    channel = doors.channel(row.recipient, row.policy)
    own = doors.identity("bob", "another")
    listed = doors.roster(channel.policy).with_entry(RosterEntry.of(own, created=today()))
    stranger = doors.channel("bob", row.policy, identity=own, roster=listed)
    with pytest.raises(HandshakeRefused) as caught:
        _shakes(doors, stranger, channel, row.message)
    assert bool(caught.value.key) is (row.rule == "authentication.key")
    assert not MARKER.exists()


def test_names_are_unique():
    assert len({row.name for row in (*ROWS, *STRANGERS)}) == len(ROWS) + len(STRANGERS)
