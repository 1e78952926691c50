"""Messages that programs seal by themselves: as a library's author does, and as a stranger might.

The decoder of tests/gate/document.py knows nothing but docs/reference/envelope.md; it and
the channel must read the same and refuse the same.
"""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import safeser
from safeser.channel import link
from safeser.errors import PayloadError
from safeser.gate import canonical
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import Context
from tests.channel.test_channel import Pair
from tests.gate import document

VECTORS = json.loads(
    (Path(__file__).parents[1] / "vectors" / "envelope-v2.json").read_text(encoding="ascii")
)


@pytest.fixture
def pair(doors, policy):
    return lambda one="bea", two="ann": Pair(doors, policy, one, two)


def cases(kind):
    return pytest.mark.parametrize("case", VECTORS[kind], ids=[v["name"] for v in VECTORS[kind]])


# --- a library author's round trips --------------------------------------------------------------

VALUES = [{"weights": np.zeros(3_000, "<f4"), "shape": [2, (2, 1)]}, ValueError("no")]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("compression", [None, "zlib"])
def test_what_is_serialized_already_is_sealed_as_it_is(pair, value, compression):
    p = pair()
    header, frames = safeser.serialize(value, compression=compression)
    for _ in range(2):
        sealed = p.one.seal(safeser.Serialized(header, frames), p.context)
        assert repr(p.two.open(sealed, p.context)) == repr(value)
    sealed = p.one.seal(safeser.Serialized(header, frames), p.context)
    [payload] = p.two.admit(sealed, p.context).payloads
    assert repr(safeser.deserialize(payload.header, payload.frames)) == repr(value)
    # Header and frames travel as values, too; by hand in a message they say what to do.
    got = p.two.open(p.one.seal((header, frames), p.context), p.context)
    assert repr(safeser.deserialize(*got)) == repr(value)
    sealed = p.there.session.seal(canonical.pack([header, "data", None]), list(frames))
    with pytest.raises(PayloadError, match="'lengths'") as caught:
        p.two.open(sealed, p.context)
    assert "safeser.Serialized(header, frames)" in caught.value.fix


# --- the document --------------------------------------------------------------------------------

LAYERS = {
    "library header": ("payload.header", "payload.parts"),
    "family header": ("families.",),
}


def told(value: Any) -> Any:
    """Return a value in the words of the vectors."""
    match value:
        case bytes():
            return {"bytes": value.hex()}
        case tuple():
            return {"tuple": list(map(told, value))}
        case set():
            return {"set": list(map(told, value))}
        case int() if type(value) is int and abs(value) >= 1 << 63:
            return {"integer": str(value)}
        case list():
            return list(map(told, value))
        case {"type": kind, "sub-header": _}:
            return {"typed": kind}
        case {"failures": failures}:
            return {"failure": failures[0][0]}
        case {"pickle": data}:
            return {"pickle": data[-2]}
        case dict():
            return {key: told(item) for key, item in value.items()}
        case np.ndarray():
            return {"typed": "numpy:ndarray"}
        case BaseException():
            return {"failure": getattr(value, "remote_type", type(value).__name__)}
    return value


def frames_of(case: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(frame) for frame in case["frames"]]


@cases("library messages")
def test_the_document_says_what_each_message_is(case):
    value, kind, operation = document.decode(bytes.fromhex(case["header"]), frames_of(case))
    assert (kind, operation) == (case["kind"], case["operation"])
    assert told(document.read_value(value)) == case["value"]


@cases("library messages")
def test_a_channel_reads_each_message_as_the_document_does(pair, case):
    p = pair("ann", "bea") if case["kind"] != "data" else pair()
    context = Context(p.context.sender, p.context.recipient, case["kind"], case["operation"])
    if case["operation"] is not None or case["kind"] != "data":
        # No context grants these: what is read of them is shown below the policy.
        verified = p.back.verify(
            p.there.session.seal(bytes.fromhex(case["header"]), frames_of(case))
        )
        message = link.parse(verified.header)
        assert (message.kind, message.operation) == (case["kind"], case["operation"])
        return
    sealed = p.there.session.seal(bytes.fromhex(case["header"]), frames_of(case))
    if case["name"] == "a failure in place of a value":
        with pytest.raises(safeser.SerializationError):
            p.two.open(sealed, context)
        return
    found = p.two.open(sealed, context)
    expected = case["value"]
    if isinstance(expected, dict) and "pickle" in expected:
        expected = expected["pickle"]
    assert told(found) == expected


@cases("invalid library messages")
def test_the_document_refuses_each_invalid_message(case):
    error = {
        "library header": document.HeaderError,
        "family header": document.FamilyHeaderError,
    }[case["layer"]]
    with pytest.raises(error):
        document.decode(bytes.fromhex(case["header"]), frames_of(case))


@cases("invalid library messages")
def test_a_channel_refuses_each_invalid_message_by_the_same_layer(pair, case):
    p = pair()
    sealed = p.there.session.seal(bytes.fromhex(case["header"]), frames_of(case))
    with pytest.raises(PayloadError) as caught:
        p.two.open(sealed, p.context)
    assert caught.value.rule.startswith(LAYERS[case["layer"]])
    assert [event["permitted"] for event in p.two.audit.events] == [False]
    # The session goes on: the message was its peer's, and complete.
    assert p.two.open(p.one.seal(5, p.context), p.context) == 5


@cases("invalid public keys")
def test_invalid_public_keys(case):
    with pytest.raises(safeser.ConfigError):
        PublicKey.parse(case["text"])
    with pytest.raises(ValueError):
        document.parse_key(case["text"])


# --- any bytes -----------------------------------------------------------------------------------

WORDS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def both(data: bytes) -> tuple[bool, bool]:
    """Return whether safeser and the document's decoder take *data*."""
    taken = []
    for read in (canonical.unpack, document.read_canonical):
        try:
            value = read(data)
        except (ValueError, document.HeaderError):
            taken.append(False)
        else:
            taken.append(True)
            assert canonical.pack(value) == data
    return taken[0], taken[1]


@given(st.binary(max_size=24))
@example(b"\xc7\x00\xff")
@example(b"\xd6\xff\x00\x00\x00\x00")
@example(b"\xc1")
@example(b"\x81\xc0\xc0")
def test_any_bytes_are_taken_by_both_or_by_none(data):
    one, other = both(data)
    assert one is other


@given(WORDS, st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3))
def test_packed_and_changed_bytes_are_taken_by_both_or_by_none(value, changes):
    packed = bytearray(canonical.pack(value))
    for at, byte in changes:
        packed[at % len(packed)] = byte
    one, other = both(bytes(packed))
    assert one is other
    assert one or changes


def test_what_containers_claim_to_hold_takes_no_memory():
    claims = b"\xdc\xea\x60" * 1000 + b"\xc0" * 60_000  # each 60,000 items, one inside the other
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="plain values"):
            canonical.unpack(claims)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
