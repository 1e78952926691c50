"""Shared secrets: 32 random bytes in a file, for teams too small for a roster.

The one rule: a secret is generated. Text that a person chose can be guessed offline by a process
that has one message.
"""

from __future__ import annotations

import hmac
import os
import re
from pathlib import Path
from typing import Any, Self

from safeser.errors import ConfigError
from safeser.gate.key_pairs import KEY_SIZE, KeepsSecrets, decode, encode
from safeser.identity.files import read_file, reason, refused, write_new

__all__ = ["ENVIRONMENT", "Secret", "load_secrets"]

#: The environment variable that holds the paths of secrets, separated as in ``PATH``.
ENVIRONMENT = "SAFESER_SECRET"

_TEXT = re.compile(rb"safeser-secret-1\nsecret: ([A-Za-z0-9_-]{43})\n\Z")
_MAX = 128  # a file has 69 bytes
_RULE = "config.secret"

#: Random bytes have fewer different ones once in 10**14 secrets, and are text as seldom.
_LEAST_DIFFERENT = 16


class Secret(KeepsSecrets):
    """One generated secret of 32 bytes; never printed, pickled or compared.

    :ivar id: 32 bytes that tell secrets apart and say nothing about them.
    """

    __slots__ = ("_raw", "id")

    def __init__(self, raw: bytes) -> None:
        if type(raw) is not bytes or len(raw) != KEY_SIZE or _is_chosen(raw):
            raise refused("a secret", "was not generated", rule=_RULE, fix=_MAKE)
        self._raw = raw
        self.id = hmac.digest(raw, b"safeser secret 1 id", "sha256")

    @classmethod
    def generate(cls) -> Self:
        """Make a new secret; nothing is written until :meth:`save`."""
        return cls(os.urandom(KEY_SIZE))

    def exchange(self) -> bytes:
        """Return the 32 secret bytes that all who have it share."""
        return self._raw

    @property
    def fingerprint(self) -> str:
        """The start of its id, for people to compare."""
        return self.id.hex()[:16]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a new file at *path*, mode 0600; an existing file is never replaced.

        :raises ConfigError: if that cannot be done.
        """
        text = f"safeser-secret-1\nsecret: {encode(self._raw)}\n"
        try:
            write_new(Path(path), text.encode("ascii"), mode=0o600)
        except FileExistsError:
            raise refused(
                path,
                "exists already",
                rule=_RULE,
                fix="Choose another path; secrets are never overwritten.",
            ) from None
        except (OSError, ValueError) as error:
            raise refused(path, f"cannot be written: {reason(error)}", rule=_RULE) from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that :meth:`save` or ``safeser keys secret`` wrote.

        It belongs to this user or root and is read by no other, as the file of an identity.

        :raises ConfigError: for any other content, or if other users can read it.
        """
        data = read_file(path, "private", limit=_MAX, rule=_RULE, make="safeser keys secret")
        match = _TEXT.match(data)
        raw = decode(match[1].decode("ascii")) if match else None
        if raw is None or _is_chosen(raw):
            raise refused(path, "holds no generated secret", rule=_RULE, fix=_MAKE)
        return cls(raw)

    def __repr__(self) -> str:
        return f"Secret(fingerprint={self.fingerprint!r})"


_MAKE = "Make one with 'safeser keys secret FILE'; text can be guessed from one message."


def _is_chosen(raw: bytes) -> bool:
    """Tell whether *raw* is text in disguise, or too regular to be random."""
    return raw.isascii() or len(set(raw)) < _LEAST_DIFFERENT


def load_secrets(given: Any) -> list[Secret]:
    """Return the one or two secrets that *given* names, or the environment where it is None."""
    if given is None:
        paths = os.environ.get(ENVIRONMENT, "")
        given = paths.split(os.pathsep) if paths else []
    one = isinstance(given, str | bytes | os.PathLike | Secret)
    listed = [given] if one else list(given)
    if not 1 <= len(listed) <= 2 or any(isinstance(each, bytes) for each in listed):
        raise ConfigError(
            "a shared box takes one secret, or two while it is replaced",
            rule="config.secret",
            fix="Make one with 'safeser keys secret FILE', and pass its path or set"
            f" {ENVIRONMENT}; text and passphrases can be guessed.",
        )
    return [each if isinstance(each, Secret) else Secret.load(each) for each in listed]
