"""Signed values: the functions and plugins that a client has workers or nannies run.

The one rule: all pickles of one request are signed for that request, the place that each has in it,
and one cluster. A scheduler hands them on as the bytes that they are, and keeps those of plugins
for workers that come later.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from safeser.dask.sealed.definitions import DIGEST_SIZE, digest
from safeser.dask.sealed.statement import SKEW
from safeser.dask.wire.reader import packed
from safeser.errors import ConfigError, PayloadError, PolicyDenied
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import check_principal
from safeser.identity import Identity, VerifyingKey

__all__ = ["MAGIC", "Requests", "SignedValue", "sign_request"]

#: How the bytes of a signed value begin; no pickle begins so.
MAGIC = b"safeser signed value 1\n"

_DOMAIN = b"safeser sealed value v1\n"
_SIGNATURE_SIZE, _ID_SIZE = 64, 16

#: Seconds for which a function may be run, and for which new workers take a plugin.
_OF_FUNCTION, _OF_PLUGIN = 3600, 30 * 24 * 3600

#: More than any statement about a value takes: a plugin has a name.
_MOST_BYTES = 1024

#: Requests of one author that one server remembers until they are over.
_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class SignedValue:
    """One pickle, with the statement of its author about it.

    :param purpose: operation and field that it is for, and the name of a plugin.
    :param request: random id of the request that it is part of.
    :param parts: how many values that request has.
    """

    author: str
    signer: VerifyingKey
    audience: PublicKey
    purpose: str
    request: bytes
    parts: int
    digest: bytes
    issued: int
    expires: int
    signature: bytes
    said: bytes
    pickle: memoryview

    def verify(self) -> bool:
        """Tell whether the key that it names made the signature, over this very pickle."""
        signed = self.signer.verify(self.signature, _DOMAIN + self.said)
        return signed and self.digest == digest(self.pickle)

    def is_current(self, now: float) -> bool:
        return self.issued - SKEW <= now < self.expires

    @classmethod
    def parse(cls, data: bytes) -> SignedValue:
        """Return the value that *data* spells; its signature is not verified yet.

        :raises PayloadError: if it spells none.
        """
        at = len(MAGIC) + 2
        size = int.from_bytes(data[len(MAGIC) : at], "big")
        end = at + size
        said, signature = data[at:end], data[end : end + _SIGNATURE_SIZE]
        if not data.startswith(MAGIC) or size > _MOST_BYTES or len(signature) < _SIGNATURE_SIZE:
            raise _malformed()
        try:
            fields = _fields(msgpack.unpackb(said, raw=False, use_list=False))
        except (ValueError, TypeError, ConfigError, msgpack.UnpackException):
            raise _malformed() from None
        return cls(*fields, signature, said, memoryview(data)[end + _SIGNATURE_SIZE :])


def _fields(said: Any) -> tuple[str, VerifyingKey, PublicKey, str, bytes, int, bytes, int, int]:
    author, signer, audience, purpose, request, parts, of, issued, expires = said
    if not all(type(each) is str for each in (author, purpose)):
        raise ValueError
    if not all(type(each) is int and 0 <= each < 1 << 53 for each in (parts, issued, expires)):
        raise ValueError
    if type(request) is not bytes or len(request) != _ID_SIZE:
        raise ValueError
    if type(of) is not bytes or len(of) != DIGEST_SIZE:
        raise ValueError
    if not issued < expires <= issued + _lifetime(purpose):
        raise ValueError
    check_principal(author)
    keys = VerifyingKey(signer), PublicKey(audience)
    return author, *keys, purpose, request, parts, of, issued, expires


def _lifetime(purpose: str) -> int:
    return _OF_PLUGIN if purpose.startswith("plugin") else _OF_FUNCTION


def sign_request(
    pickles: Mapping[str, bytes], identity: Identity, audience: PublicKey
) -> dict[str, bytes]:
    """Return the *pickles* of one request signed, each under its purpose.

    :param audience: key of the server that the request is sent to.
    :raises ConfigError: if *identity* has no signing key.
    """
    signer, request, now = identity.require_verifying(), secrets.token_bytes(_ID_SIZE), time.time()
    signed = {}
    for purpose, pickle in pickles.items():
        about = [identity.principal, signer.raw, audience.raw, purpose, request, len(pickles)]
        said = packed([*about, digest(pickle), int(now), int(now) + _lifetime(purpose)])
        signature = identity.sign(_DOMAIN + said)
        signed[purpose] = b"".join((MAGIC, len(said).to_bytes(2, "big"), said, signature, pickle))
    return signed


class Requests:
    """Requests to run functions that one server has taken: none is taken twice."""

    def __init__(self) -> None:
        # Of each author, so that none takes up what is remembered of the others.
        self._until: dict[str, dict[bytes, int]] = {}
        self._lock = threading.Lock()

    def take(self, value: SignedValue) -> None:
        """Record the request of *value*.

        :raises PolicyDenied: if it was taken before, or too many of its author are remembered.
        """
        now = time.time()
        with self._lock:
            until = self._until.setdefault(value.author, {})
            if len(until) >= _REMEMBERED:
                until = {each: end for each, end in until.items() if end > now}
                self._until[value.author] = until
            if value.request in until or len(until) >= _REMEMBERED:
                raise PolicyDenied(
                    "a request to run a function came a second time, or after too many others of"
                    " its author",
                    rule="sealed.replayed",
                    fix="Run it again from the client.",
                )
            until[value.request] = value.expires


def _malformed() -> PayloadError:
    return PayloadError("a signed value is malformed", rule="sealed.value")
