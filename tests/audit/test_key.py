"""The key of a log: a file for its owner alone, which no error and no text shows."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from safeser.audit import AuditKey, AuditLog, verify
from safeser.errors import ConfigError

TEXT = b"safeser-audit-key-v1 " + b"0" * 64 + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.key"


def test_a_key_comes_back_from_its_file_and_is_not_printed_or_pickled(path, key):
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
def test_a_file_with_anything_else_is_refused_without_showing_it(path, content):
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="does not hold an audit key") as caught:
        AuditKey.load(path)
    assert "0" * 32 not in str(caught.value)
