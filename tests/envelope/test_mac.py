"""The tag against a second implementation that knows only the document, and its ambiguities."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.envelope.mac import AuthenticationKeys
from tests.envelope import document

HMAC_KEY, GMAC_KEY = bytes(range(32)), bytes(range(32, 64))
FIELDS = bytes(32)


def reference(sequence, fields, header, frames):
    """Return the tag by the document's decoder."""
    nonces = (document._nonce(sequence, index) for index in range(len(frames)))
    parts = map(document._part_1, itertools.repeat(GMAC_KEY), nonces, frames)
    return hmac.digest(HMAC_KEY, document._pae(fields, header, *parts), hashlib.sha256)


def tag(sequence, fields, header, frames):
    keys = AuthenticationKeys(hmac_key=HMAC_KEY, gmac_key=GMAC_KEY)
    return keys.tag(sequence, fields, header, list(map(memoryview, frames)))


sizes = st.one_of(st.integers(0, 30), st.sampled_from([4095, 4096, 4097, 10_000]))
frames_strategy = st.lists(st.tuples(sizes, st.integers(0, 255)), max_size=6).map(
    lambda pairs: [bytes([value]) * size for size, value in pairs]
)


@given(
    st.integers(1, 2**64 - 1),
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=40),
    frames_strategy,
)
def test_two_implementations_agree(sequence, fields, header, frames):
    assert tag(sequence, fields, header, frames) == reference(sequence, fields, header, frames)


@pytest.mark.parametrize("count", [255, 256, 257, 512, 1000])
def test_many_frames_are_one_encoding(count):
    frames = [bytes([index % 256]) * (index % 7) for index in range(count)]
    assert tag(1, FIELDS, b"h", frames) == reference(1, FIELDS, b"h", frames)


@given(st.lists(st.tuples(st.binary(max_size=3), frames_strategy), min_size=2, max_size=2))
def test_different_messages_have_different_tags(messages):
    tags = {tag(1, FIELDS, header, frames) for header, frames in messages}
    assert (len(tags) == 1) == (messages[0] == messages[1])


def test_a_frame_is_not_its_own_gmac_and_holds_no_encoding_of_two():
    # The mode and the frame's length stand before the body.
    frame = b"x" * 4096
    body = document._part_1(GMAC_KEY, document._nonce(1, 0), frame)[9:]
    one, two = b"a" * 10, b"b" * 20
    inside = one + struct.pack("<QQB", 9 + len(two), len(two), 0) + two
    messages = [frame], [body], [one, two], [inside], [inside, b""]
    assert len({tag(1, FIELDS, b"", frames) for frames in messages}) == len(messages)
