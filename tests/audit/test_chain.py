"""The key of a log, which no text shows, and the chains and heads that are made with it."""

from __future__ import annotations

import hashlib
import hmac
import pickle
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.audit import AuditKey, AuditLog, verify
from safeser.audit.key import file_keys, index_keys
from safeser.errors import AuditError, ConfigError
from safeser.gate.chain import HEAD_SIZE, ZERO, Head, pae, step


def test_pae_is_a_count_and_then_each_length_and_its_bytes():
    assert pae() == bytes(8)
    assert pae(b"") == bytes([1]) + bytes(15)
    assert pae(b"ab", b"c") == (b"\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0ab\x01\0\0\0\0\0\0\0c")


@given(st.binary(min_size=32, max_size=32), st.integers(0, 2**53), st.binary(max_size=100))
def test_a_step_is_hmac_over_pae(previous: bytes, sequence: int, body: bytes):
    key = b"k" * 32
    message = pae(previous, struct.pack("<Q", sequence), body)
    assert step(key, previous, sequence, body) == hmac.new(key, message, hashlib.sha256).digest()


def test_keys_are_those_of_rfc_5869(key: AuditKey):
    info = pae(b"safeser audit v1", b"file chain", b"d" * 32, b"f" * 32)
    extracted = hmac.new(bytes(32), key.secret, hashlib.sha256).digest()
    expected = hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()
    assert file_keys(key, directory="d" * 32, file="f" * 32).chain == expected


def test_every_purpose_directory_and_file_has_its_own_key(key: AuditKey):
    a, b = "a" * 32, "b" * 32
    found = [
        *(file_keys(key, directory=d, file=f) for d in (a, b) for f in (a, b)),
        *(index_keys(key, directory=d) for d in (a, b)),
        file_keys(AuditKey(b"x" * 32), directory=a, file=a),
    ]
    secrets = [each.chain for each in found] + [each.head for each in found]
    assert len(set(secrets)) == len(secrets)
    assert found[0].chain.hex() not in repr(found[0])
    assert repr(found[0].chain) not in repr(found[0])


def test_a_head_comes_back():
    head = Head("a" * 32, 12, b"\x05" * 32, 4_000)
    data = head.encode(b"k" * 32)
    assert len(data) == HEAD_SIZE
    assert Head.decode(data, b"k" * 32) == head


@given(st.integers(0, HEAD_SIZE - 1), st.integers(1, 255))
def test_any_changed_byte_of_a_head_is_found(place: int, change: int):
    data = bytearray(Head("a" * 32, 12, b"\x05" * 32, 4_000).encode(b"k" * 32))
    data[place] ^= change
    with pytest.raises(AuditError):
        Head.decode(bytes(data), b"k" * 32)


@given(st.binary(max_size=400))
def test_any_bytes_are_no_head(data: bytes):
    with pytest.raises(AuditError):
        Head.decode(data, b"k" * 32)


def test_a_head_of_another_key_is_refused():
    data = Head("a" * 32, 1, ZERO, 0).encode(b"k" * 32)
    with pytest.raises(AuditError):
        Head.decode(data, b"l" * 32)


# --- the file of a key ----------------------------------------------------------------------------

TEXT = b"safeser-audit-key-v1 " + b"0" * 64 + b"\n"


def test_a_key_comes_back_from_its_file_and_is_not_printed_or_pickled(tmp_path, key):
    path = tmp_path / "audit.key"
    key.save(path)
    assert AuditKey.load(path).secret == key.secret
    assert path.stat().st_mode & 0o777 == 0o600
    for text in (repr(key), str(key), f"{key}"):
        assert key.secret.hex() not in text
        assert repr(key.secret) not in text
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)


@pytest.mark.parametrize("secret", [b"", b"x" * 31, b"x" * 33, bytearray(32), "x" * 32])
def test_a_key_of_another_length_or_type_is_refused(place, secret):
    with pytest.raises(ConfigError):
        AuditKey(secret)
    if type(secret) is bytes:
        with pytest.raises(ConfigError):
            AuditLog.open(place, key=secret, principal="alice")
        with pytest.raises(ConfigError):
            verify(place, key=secret)


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"00" * 32, TEXT[:-2] + b"\n", TEXT[:-1], TEXT + b"\n", TEXT.replace(b"v1", b"v2")),
        *(TEXT.replace(b"0" * 64, b"A" * 64), b"\xff" * 1000),
    ],
)
def test_a_file_with_anything_else_is_refused_without_showing_it(tmp_path, content):
    path = tmp_path / "audit.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="does not hold an audit key") as caught:
        AuditKey.load(path)
    assert "0" * 32 not in str(caught.value)
