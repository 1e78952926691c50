"""The signed statement of a graph: one spelling, one purpose, and no field that can be changed."""

from __future__ import annotations

from dataclasses import fields, replace

import msgpack
import pytest
from dask._task_spec import Task
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.sealed.statement import LIFETIME, MOST_TASKS, SignedStatement, Statement
from safeser.errors import PayloadError, SafeserError
from tests.refusal import refusal

NOW = 1_800_000_000


@pytest.fixture(scope="module")
def statement(sealed):
    graph = sealed({"x": Task("x", len, ())})
    return replace(graph.signed.statement, issued=NOW, expires=NOW + LIFETIME)


@pytest.fixture(scope="module")
def signed(statement, alice):
    return statement.signed_by(alice)


def packed_of(signed, **changed):
    """Return the fields as msgpack has them, some of them changed, in their order."""
    names = [each.name for each in fields(Statement)]
    said = dict(zip(names, msgpack.unpackb(signed.data), strict=True))
    return [*{**said, **changed}.values()]


def parsed(signature, data):
    return SignedStatement.parse(signature + data)


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_bit_can_be_changed(signed, at, bit):
    packed = bytearray(signed.packed)
    packed[at % len(packed)] ^= 1 << bit
    try:
        found = SignedStatement.parse(bytes(packed))
    except PayloadError:
        return
    assert not found.verify()


BAD = {
    "author": ["", "a b", "-x", "a" * 65, b"alice", None, 7, "alice\n", "älice", ["alice"]],
    "signer": [bytes(32), bytes(31), b"\xff" * 32, "x" * 32, None, b"\x01" + bytes(31), 5],
    "audience": [bytes(32), bytes(31), b"\xff" * 32, "x" * 32, None, True],
    "graph": [b"", bytes(15), bytes(17), "g" * 16, None],
    "size": [-1, MOST_TASKS + 1, True, 1.0, "3", None, 1 << 60],
    "root": [b"", bytes(31), bytes(33), "r" * 32, None],
    "issued": [-1, True, float(NOW), None, 1 << 60, NOW - 1],
    "expires": [NOW, NOW - 1, NOW + LIFETIME + 1, True, float("nan"), float("inf"), None, 1 << 63],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_field_of_another_kind_is_refused(signed, name, value):
    with refusal(PayloadError, "sealed.statement"):
        parsed(signed.signature, msgpack.packb(packed_of(signed, **{name: value})))


def test_a_statement_has_one_spelling(signed):
    whole = packed_of(signed)
    longer = b"\xdc\x00\x08" + signed.data[1:]  # the same array by a longer header
    assert msgpack.unpackb(longer) == msgpack.unpackb(signed.data)
    for data in (
        longer,
        signed.data.replace(b"\xa5alice", b"\xd9\x05alice"),
        signed.data + b"\x00",
        signed.data + bytes(512),
        signed.data[:-1],
        b"",
        msgpack.packb([*whole, 1]),
        msgpack.packb(dict(enumerate(whole))),
        msgpack.packb(7),
        b"\x91" * 300,
        b"\xc1",
    ):
        with refusal(PayloadError, "sealed.statement"):
            parsed(signed.signature, data)


@given(st.binary(min_size=65, max_size=576))
def test_any_bytes_are_a_statement_or_one_clear_error(data):
    with pytest.raises(SafeserError):
        SignedStatement.parse(data)


def test_a_signature_counts_for_this_purpose_alone(signed, alice):
    # What the same key signs for another purpose begins with other bytes.
    for prefix in (b"", b"safeser sealed graph v2\n", b"safeser sealed call v1\n"):
        assert not parsed(alice.sign(prefix + signed.data), signed.data).verify()


def test_a_statement_is_current_from_issue_to_expiry(statement):
    assert statement.is_current(NOW)
    assert statement.is_current(NOW - 300)
    assert not statement.is_current(NOW - 301)
    assert statement.is_current(NOW + LIFETIME - 1)
    assert not statement.is_current(NOW + LIFETIME)
    assert not replace(statement, expires=NOW + 1).is_current(NOW + 1)
