from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from safeser.audit import AuditKey, AuditLog, verify
from safeser.errors import ConfigError


def test_a_key_comes_back_from_its_file(tmp_path: Path):
    key = AuditKey.new()
    key.save(tmp_path / "audit.key")
    assert AuditKey.load(tmp_path / "audit.key").secret == key.secret
    assert (tmp_path / "audit.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("secret", [b"", b"x" * 31, b"x" * 33, bytearray(32), "x" * 32])
def test_a_key_of_another_length_or_type_is_refused(secret):
    with pytest.raises(ConfigError, match="32 bytes"):
        AuditKey(secret)


@pytest.mark.parametrize("secret", [b"", b"x" * 31])
def test_the_log_and_verification_refuse_a_short_key(place: Path, secret: bytes):
    with pytest.raises(ConfigError):
        AuditLog.open(place, key=secret, principal="alice")
    with pytest.raises(ConfigError):
        verify(place, key=secret)


def test_a_key_is_never_overwritten(tmp_path: Path):
    AuditKey.new().save(tmp_path / "audit.key")
    before = (tmp_path / "audit.key").read_bytes()
    with pytest.raises(ConfigError, match="File exists"):
        AuditKey.new().save(tmp_path / "audit.key")
    assert (tmp_path / "audit.key").read_bytes() == before


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o660, 0o644])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int):
    path = tmp_path / "audit.key"
    AuditKey.new().save(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="others") as caught:
        AuditKey.load(path)
    assert "chmod 600" in caught.value.fix


def test_a_key_of_another_user_is_refused(tmp_path: Path, monkeypatch):
    path = tmp_path / "audit.key"
    AuditKey.new().save(path)
    status = list(os.stat(path))
    status[4] = os.geteuid() + 1000
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(status))
    with pytest.raises(ConfigError, match="another user"):
        AuditKey.load(path)


def test_fifos_directories_and_missing_files_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("fifo", "folder", "missing"):
        with pytest.raises(ConfigError):
            AuditKey.load(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"00" * 32,
        b"safeser-audit-key-v1 " + b"0" * 63 + b"\n",
        b"safeser-audit-key-v1 " + b"0" * 64,
        b"safeser-audit-key-v1 " + b"A" * 64 + b"\n",
        b"safeser-audit-key-v1 " + b"0" * 64 + b"\n\n",
        b"safeser-audit-key-v2 " + b"0" * 64 + b"\n",
        b"\xff" * 1000,
    ],
)
def test_a_file_with_anything_else_is_refused_without_showing_it(tmp_path: Path, content: bytes):
    path = tmp_path / "audit.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="does not hold an audit key") as caught:
        AuditKey.load(path)
    assert "0" * 32 not in str(caught.value)


def test_a_key_is_not_printed_or_pickled(key: AuditKey):
    for text in (repr(key), str(key), f"{key}"):
        assert key.secret.hex() not in text
        assert repr(key.secret) not in text
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)
