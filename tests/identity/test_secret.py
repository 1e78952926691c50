"""Files of shared secrets: generated, private, and nothing else."""

from __future__ import annotations

import base64
import pickle

import pytest

from safeser.errors import ConfigError
from safeser.identity.secret import Secret
from tests.refusal import refusal


def test_a_secret_is_saved_for_its_owner_alone(tmp_path):
    secret = Secret.generate()
    secret.save(tmp_path / "secret")
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    assert Secret.load(tmp_path / "secret").exchange() == secret.exchange()
    with refusal(ConfigError, "config.secret"):
        secret.save(tmp_path / "secret")
    with refusal(ConfigError, "config.secret"):
        secret.save(tmp_path / "none" / "secret")


def test_a_secret_is_never_shown(tmp_path):
    secret = Secret.generate()
    assert secret.exchange().hex() not in repr(secret)
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def spelled(raw: bytes) -> bytes:
    text = base64.urlsafe_b64encode(raw).rstrip(b"=")
    return b"safeser-secret-1\nsecret: " + text + b"\n"


CONTENTS = {
    "empty": b"",
    "a passphrase": b"correct horse battery staple, and then some more of it\n",
    "text as if it were a secret": spelled(b"a passphrase with thirty-two let"),
    "zeros": spelled(bytes(32)),
    "too short": spelled(bytes(range(128, 159))),
    "too long": spelled(bytes(range(128, 161))),
    "cut off": spelled(bytes(range(128, 160)))[:-1],
    "more behind": spelled(bytes(range(128, 160))) + b"\n",
    "another version": spelled(bytes(range(128, 160))).replace(b"-1\n", b"-2\n"),
    "spare bits": spelled(bytes(range(128, 160)))[:-2] + b"9\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_other_contents_are_refused(tmp_path, name):
    path = tmp_path / "secret"
    path.write_bytes(CONTENTS[name])
    path.chmod(0o600)
    with refusal(ConfigError, "config.secret"):
        Secret.load(path)


def test_a_file_that_others_read_is_refused(tmp_path):
    Secret.generate().save(tmp_path / "secret")
    (tmp_path / "secret").chmod(0o644)
    with refusal(ConfigError, "config.secret"):
        Secret.load(tmp_path / "secret")
    with refusal(ConfigError, "config.secret"):
        Secret.load(tmp_path / "none")


def test_a_value_that_was_not_generated_is_refused():
    for raw in (bytes(32), b"a passphrase with thirty-two let", b"short", "text", bytearray(32)):
        with refusal(ConfigError, "config.secret"):
            Secret(raw)
