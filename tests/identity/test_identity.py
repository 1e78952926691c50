"""A private key stays in its file and in its process, and a file that others touch is no key."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.key_pairs import PrivateKey
from safeser.identity import Identity, SigningKey
from tests.refusal import refusal

SECRET = bytes(range(1, 33))
SECRET_TEXT = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA"
SEED = bytes(range(33, 65))
SEED_TEXT = "ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0-P0A"


@pytest.fixture
def alice():
    return Identity("alice", PrivateKey.from_bytes(SECRET), SigningKey.from_bytes(SEED))


@pytest.fixture
def old():
    """An identity of before there were signing keys."""
    return Identity("alice", PrivateKey.from_bytes(SECRET))


@pytest.fixture
def path(tmp_path, alice):
    path = tmp_path / "alice.key"
    alice.save(path)
    return path


def refused(path, *words):
    with pytest.raises(ConfigError) as caught:
        Identity.load(path)
    text = str(caught.value)
    assert caught.value.rule == "config.identity"
    for word in words:
        assert word in text
    assert SECRET_TEXT not in text
    assert SEED_TEXT not in text
    assert caught.value.__cause__ is None
    return text


def test_save_and_load(path, alice):
    path.chmod(0o400)  # stricter is fine
    loaded = Identity.load(str(path))
    assert (loaded.principal, loaded.public) == ("alice", alice.public)
    assert loaded.exchange(alice.public) == alice.exchange(loaded.public)
    assert path.read_bytes() == GOOD
    assert loaded.public_text == f"{alice.public.text} {alice.verifying.text}"
    assert loaded.verifying.verify(alice.sign(b"data"), b"data")
    assert not loaded.verifying.verify(alice.sign(b"data"), b"other")
    assert Identity.generate("bob").public_text != Identity.generate("bob").public_text
    with pytest.raises(ConfigError):
        Identity.generate("no name\n")


def test_a_file_of_format_1_loads_and_signs_nothing(tmp_path, old):
    path = tmp_path / "old.key"
    old.save(path)
    assert path.read_bytes() == OLD
    loaded = Identity.load(path)
    assert (loaded.public, loaded.verifying) == (old.public, None)
    assert loaded.public_text == old.public.text
    with refusal(ConfigError, "config.signing"):
        loaded.sign(b"data")


def test_the_file_is_its_owners_whatever_the_umask(tmp_path, alice):
    before = os.umask(0)
    try:
        alice.save(tmp_path / "open")
        os.umask(0o777)
        alice.save(tmp_path / "shut")
    finally:
        os.umask(before)
    for name in ("open", "shut"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_key_is_never_overwritten_nor_a_link_followed(path, tmp_path):
    before = path.read_bytes()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for taken in (path, link):
        with pytest.raises(ConfigError, match="exists already"):
            Identity.generate("a" * 64).save(taken)
    assert path.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()
    Identity.generate("a" * 64).save(tmp_path / "long")
    assert Identity.load(tmp_path / "long").principal == "a" * 64  # the longest file


def test_half_a_key_is_not_left_behind(tmp_path, alice, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        alice.save(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["missing/key", "a\0b", "x" * 300])
def test_paths_that_cannot_be(tmp_path, alice, name):
    with pytest.raises(ConfigError):
        alice.save(tmp_path / name)
    with pytest.raises(ConfigError):
        Identity.load(tmp_path / name)


def test_missing(tmp_path, monkeypatch):
    refused(tmp_path / "none", "none", "does not exist", "safeser keys new")
    monkeypatch.chdir(tmp_path)
    refused("keys/none", "does not exist", f"looked for in {tmp_path}, or make one")


@pytest.mark.parametrize(("call", "code"), [("read", 5), ("open", 13)])
def test_unreadable(path, monkeypatch, call, code):
    def fails(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fails)
    refused(path, os.strerror(code))


OLD = f"safeser-identity-1\nprincipal: alice\nprivate: {SECRET_TEXT}\n".encode()
GOOD = OLD.replace(b"-1", b"-2") + f"signing: {SEED_TEXT}\n".encode()


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\0" * 100, b"-----BEGIN PRIVATE KEY-----\n", OLD[:-1], OLD + OLD),
        *(GOOD[:-1], GOOD + b"\n", GOOD.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + GOOD),
        *(GOOD.replace(b"-2", version) for version in (b"-1", b"-3", b"-")),
        *(OLD.replace(b"-1", b"-2"), OLD + GOOD.splitlines(keepends=True)[-1]),
        *(GOOD.replace(b"signing", b"sign"), GOOD.replace(b"private", b"signing")),
        *(GOOD.replace(b"private", b"public"), GOOD.replace(b"AQ", b"+Q")),
        *(GOOD.replace(b"P0A", end) for end in (b"P0B", b"P0")),  # B: the spare bits of the last
        *(GOOD.replace(b"HyA", end) for end in (b"HyB", b"Hy", b"HyAA")),
        *(GOOD.replace(b"alice", name) for name in (b"", b"a" * 65, b"al ice", b"-alice")),
    ],
)
def test_malformed(path, data):
    path.write_bytes(data)
    text = refused(path, str(path), "not an identity file")
    assert "alice\n" not in text


def test_too_large(path):
    path.write_bytes(GOOD + b"#" * 300)
    refused(path, "too large")


@given(st.binary(max_size=300))
def test_any_content(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "key"
    path.touch(mode=0o600)
    path.write_bytes(data)
    refused(path)


@pytest.fixture(params=["identity", "private", "signing"])
def secret(request, alice):
    return {"identity": alice, "private": alice._private, "signing": SigningKey.from_bytes(SEED)}[
        request.param
    ]


def test_no_secret_is_shown(secret):
    raw = (SECRET_TEXT, SECRET.hex(), repr(SECRET), SEED_TEXT, SEED.hex(), repr(SEED))
    for text in (repr(secret), str(secret), f"{secret}", repr([secret])):
        assert "alice" in text or "25519" in text
        assert not any(each in text for each in raw)


@pytest.mark.parametrize(
    "attempt", [pickle.dumps, cloudpickle.dumps, copy.copy, copy.deepcopy, json.dumps, vars]
)
def test_no_secret_is_shared(secret, attempt):
    with pytest.raises(TypeError):
        attempt(secret)


def test_identities_do_not_change(alice):
    for name in ("principal", "public", "verifying", "anything"):
        with pytest.raises(AttributeError):
            setattr(alice, name, "mallory")
