"""The tag against a second implementation that knows only the document, and its ambiguities."""

from __future__ import annotations

import hashlib
import hmac
import struct

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from safeser.envelope.mac import AuthenticationKeys

HMAC_KEY, GMAC_KEY = bytes(range(32)), bytes(range(32, 64))
FIELDS = bytes(32)


def gmac(nonce, data):
    cipher = Cipher(algorithms.AES256(GMAC_KEY), modes.GCM(nonce)).encryptor()
    cipher.authenticate_additional_data(data)
    cipher.finalize()
    return cipher.tag


def pae(*elements):
    encoded = struct.pack("<Q", len(elements))
    return encoded + b"".join(struct.pack("<Q", len(one)) + one for one in elements)


def reference(sequence, fields, header, frames):
    parts = []
    for index, frame in enumerate(frames):
        if len(frame) < 4096:
            mode, body = b"\0", frame
        else:
            mode = b"\1"
            body = gmac(sequence.to_bytes(8, "big") + index.to_bytes(4, "big"), frame)
        parts.append(struct.pack("<Q", len(frame)) + mode + body)
    return hmac.digest(HMAC_KEY, pae(fields, header, *parts), hashlib.sha256)


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


def test_a_frame_is_not_its_own_gmac():
    # The mode and the frame's length stand before the body: nobody sends the GMAC as a frame.
    frame = b"x" * 4096
    body = gmac(struct.pack(">QI", 1, 0), frame)
    assert tag(1, FIELDS, b"", [frame]) != tag(1, FIELDS, b"", [body])


def test_a_frame_does_not_hold_the_encoding_of_two():
    one, two = b"a" * 10, b"b" * 20
    inside = one + struct.pack("<QQB", 9 + len(two), len(two), 0) + two
    assert tag(1, FIELDS, b"", [one, two]) != tag(1, FIELDS, b"", [inside])
    assert tag(1, FIELDS, b"", [one, two]) != tag(1, FIELDS, b"", [inside, b""])


@pytest.mark.parametrize("size", [4096, 8192])
def test_gmac_depends_on_sequence_and_index(size):
    frame = b"x" * size
    tags = {
        tag(sequence, FIELDS, b"", [b""] * index + [frame])
        for sequence in (1, 2, 1 << 32)
        for index in (0, 1)
    }
    assert len(tags) == 6


@pytest.mark.parametrize("position", [0, 4095])
def test_each_end_of_a_big_frame_counts(position):
    frame = bytearray(4096)
    before = tag(1, FIELDS, b"", [frame])
    frame[position] ^= 1
    assert tag(1, FIELDS, b"", [frame]) != before
