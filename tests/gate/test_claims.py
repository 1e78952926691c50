"""Claims have one encoding, and any other block is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError, EnvelopeError
from safeser.gate.claims import CLAIMS_SIZE, Claims
from tests.refusal import refusal

GOOD = Claims("alice", "bob", "production", 7, "0123456789abcdef" * 4)

names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")
claims_strategy = st.builds(
    Claims,
    names,
    st.none() | names,
    names,
    st.integers(0, 2**63 - 1),
    st.binary(min_size=32, max_size=32).map(bytes.hex),
)


@given(claims_strategy)
def test_round_trip(claims):
    block = claims.encode()
    assert len(block) == CLAIMS_SIZE
    assert Claims.decode(block) == claims


def test_the_longest_claims_fit():
    longest = Claims("a" * 64, "b" * 64, "c" * 64, 2**63 - 1, "f" * 64)
    assert Claims.decode(longest.encode()) == longest


@given(st.binary(max_size=CLAIMS_SIZE))
def test_any_bytes(data):
    for block in (
        data,
        data.ljust(CLAIMS_SIZE, b"\0"),
        (len(data).to_bytes(2, "little") + data).ljust(CLAIMS_SIZE, b"\0")[:CLAIMS_SIZE],
    ):
        try:
            assert Claims.decode(block).encode() == block
        except EnvelopeError as error:
            assert error.rule == "envelope.claims"  # noqa: PT017  (both outcomes are right)


@pytest.mark.parametrize(
    ("field", "values", "rule"),
    [
        ("principal", ["", "a\n", None], "config.principal"),
        ("peer", [""], "config.principal"),
        ("policy", ["../x", "-x", None], "config.policy-name"),
        ("revision", [-1, 2**63, True, 1.0, "1"], "config.revision"),
        ("sha256", ["AB" * 32, "ab" * 31, "x", bytes(32)], "config.hash"),
    ],
)
def test_claims_that_cannot_be(field, values, rule):
    good = {name: getattr(GOOD, name) for name in Claims.__slots__}
    for value in values:
        with refusal(ConfigError, rule):
            Claims(**{**good, field: value})
