"""Turning what Dask writes into frames: each value by a family that policy lets leave.

The one rule: a value that may not leave is never sent by another family than those allowed. A
request that holds one is refused here; in a reply or stream element the reason travels instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from distributed.protocol.serialize import Pickled, Serialize, Serialized, ToPickle

from safeser import families
from safeser.channel import Link
from safeser.dask import translate
from safeser.dask.codec import Encoder, PayloadRow
from safeser.dask.translate import Failure, Relayed
from safeser.errors import PayloadError, SafeserError
from safeser.operations import Channel, Operation, Server, lookup
from safeser.values import Grant, Kind, Payload

__all__ = ["encode_elements", "encode_message", "encode_plain"]

logger = logging.getLogger("safeser.dask")

#: A stray leaf of an otherwise plain message, such as a NumPy integer in a key, may be this.
_STRAY = ("msgpack", "dask")

_Leaf = Callable[[Any], tuple[PayloadRow, bool]]


def encode_plain(elements: Sequence[Any], *, listed: bool = False) -> list[Any]:
    """Return the frames of messages that hold plain data and failures, nothing else."""
    return _encode([(element, _failures_only) for element in elements], listed=listed)


def encode_message(
    link: Link,
    message: Any,
    row: Operation | None,
    *,
    serializers: Sequence[str] | None,
    fails: bool,
) -> list[Any]:
    """Return the frames of one request (*row* given) or reply.

    :param serializers: families that Dask or its user asked for; narrows what policy allows.
    :param fails: send the reason in place of a value that may not leave, instead of raising.
    """
    return _encode([(message, _Values(link, row, serializers, fails=fails))], listed=False)


def encode_elements(
    link: Link, server: Server, elements: Sequence[Any], *, listed: bool
) -> list[Any]:
    """Return the frames of stream elements for *server*'s table; unknown ones are left out."""
    known = []
    for element in elements:
        name = element.get("op") if isinstance(element, dict) else None
        row = lookup(server, Channel.STREAM, name) if isinstance(name, str) else None
        if row is None:
            logger.error("Not sent to %s: operation %r is not known", link.peer, name)
            continue
        known.append((element, _Values(link, row, None, fails=True)))
    return _encode_apart(known, listed=listed)


def _encode(elements: Sequence[tuple[Any, _Leaf]], *, listed: bool) -> list[Any]:
    encoder = Encoder()
    for element, leaf in elements:
        encoder.add(translate.outgoing(element), leaf)
    return encoder.frames(listed=listed)


def _encode_apart(elements: Sequence[tuple[Any, _Leaf]], *, listed: bool) -> list[Any]:
    """Encode a batch; an element that cannot be sent is left out, or its error would end the
    stream that carries everybody's."""
    encoder = Encoder()
    for element, leaf in elements:
        try:
            encoder.add(translate.outgoing(element), leaf)
        except SafeserError as error:
            logger.error("Not sent: %r: %s", element.get("op"), error)  # noqa: TRY400 - one line
    return encoder.frames(listed=listed)


def _failures_only(leaf: Any) -> tuple[PayloadRow, bool]:
    if isinstance(leaf, Failure):
        return _failure_row(leaf), False
    raise PayloadError("this message can hold plain data only", rule="payload.unsendable")


def _failure_row(failure: Failure, *, failed: bool = False) -> PayloadRow:
    header, frames = translate.serialize_failure(failure)
    return PayloadRow(header, tuple(frames), None, failed)


class _Values:
    """Turns each leaf of one outgoing message into a payload row, as policy allows."""

    def __init__(
        self,
        link: Link,
        row: Operation | None,
        serializers: Sequence[str] | None,
        *,
        fails: bool,
    ) -> None:
        self._link = link
        kind = Kind.DATA if row is None or row.kind is Kind.ADMIN else row.kind
        self._context = link.outbound(kind, None if row is None else row.name)
        self._serializers = serializers
        self._fails = fails
        self._known: Grant | None = None

    def __call__(self, leaf: Any) -> tuple[PayloadRow, bool]:
        if isinstance(leaf, Failure):
            return _failure_row(leaf), False
        eager = not isinstance(leaf, Serialize | Serialized)
        try:
            return self._row(leaf), eager
        except SafeserError as error:
            if not self._fails:
                raise
            logger.warning("Not sent to %s: %s", self._link.peer, error)
            return _failure_row(translate.failure_of(error), failed=True), eager

    def _row(self, leaf: Any) -> PayloadRow:
        author, failed = None, False
        if isinstance(leaf, Relayed):
            header, frames = leaf.sealed_header, leaf.frames
            author, failed = leaf.author, leaf.failed
        elif isinstance(leaf, Serialized):
            header, frames = translate.from_dask_pickle(leaf.header, leaf.frames)
        elif isinstance(leaf, Pickled):
            raise PayloadError("bytes that Dask pickled are not passed on", rule="payload.pickled")
        elif isinstance(leaf, Serialize | ToPickle):
            header, frames = self._link.serialize(leaf.data, self._grant)
        else:
            header, frames = self._link.serialize(leaf, self._grant.narrowed(_STRAY))
        family = families.claimed(header)
        if family == "pickle" and "cloudpickle" in self._grant.families:
            family = "cloudpickle"  # the most that it can be; reading it would change nothing
        payload = Payload("", family, header, tuple(frames), author or self._link.local)
        self._link.permit_sending(self._context, payload)
        return PayloadRow(header, payload.frames, author, failed)

    @property
    def _grant(self) -> Grant:
        if self._known is None:
            self._known = self._link.allowed(self._context, self._serializers)
        return self._known
