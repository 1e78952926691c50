"""What is known about one operation of Dask's protocol.

The one rule: a row is constant data. It says what Dask does with a message of that name, never
which principal may send it; the policy says that.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from safeser.gate.values import Kind
from safeser.operations.ceilings import Ceiling, Ceilings, ceilings
from safeser.operations.releases import Release, is_between
from safeser.operations.shapes import Shape

__all__ = ["Channel", "Encoding", "Operation", "Server"]


class Server(enum.Enum):
    """Who handles an operation."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    NANNY = "nanny"
    CLIENT = "client"

    __hash__ = object.__hash__  # quicker than enum's own, see values.Kind


class Channel(enum.Enum):
    """How an operation arrives."""

    RPC = "rpc"  # a request that is answered on the same connection
    STREAM = "stream"  # one element of a one-way stream of batches

    __hash__ = object.__hash__  # likewise


class Encoding(enum.Enum):
    """How a payload stands in its field, and so which process unpickles it in stock Dask."""

    MARKED = "marked"
    """Dask's own marker, ``Serialized`` or ``__Pickled__``, opened by its codec."""

    RAW = "raw"
    """Bare pickled bytes in plain msgpack, opened by the handler; in a container, each item."""

    WRAPPED = "wrapped"
    """A marker; if what it holds is bytes, the handler unpickles those, as it does bare bytes."""

    ERROR = "error"
    """An exception or traceback: pickled bytes, bare or marked, raised by the peer that asked."""

    NESTED = "nested"
    """A request of its own to a worker or a nanny, or what they replied to it."""

    __hash__ = object.__hash__  # likewise


#: What is opened, or decided by itself, even where no payload stands in its field.
_OPENED = frozenset({Encoding.RAW, Encoding.WRAPPED, Encoding.NESTED})


#: Of a row without fields.
_UNLISTED = ceilings((), code=False, bulk=False, heard=False, values=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """One row: an operation as one server handles it on one channel.

    Fields are named by paths: ``msg.message`` is a key inside a field, ``[]`` stands for each
    element of a sequence, ``*`` for each value of a mapping, and the empty path for the whole.
    No row lists ``exception`` and ``traceback``, which any reply that failed may carry: the peer
    that sent the request raises them if ``status`` is ``uncaught-error``, and a client does so,
    whatever the operation, for each stream element whose ``status`` says error.

    :param kind: what it is because of its name; payloads found in a message only add to that.
    :param group: the one group of this row; a name has several rows where servers share it.
    :param fields: payloads that the request or element may carry.
    :param reply: payloads that a successful reply may carry.
    :param becomes: what the connection is afterwards: ``"client-stream"``, ``"worker-stream"``,
        ``"feed"`` (the server goes on writing), ``"raw-stream"`` (every stream operation, by any
        peer), or None where requests go on.
    :param streams: states of the connection in which honest peers send this stream element. Dask
        itself keeps one dict of handlers for all streams and lets the sender's fields override the
        identity that it registered with, so that a client could report other workers' tasks.
    :param inline: whether it has no registered handler: Dask's loops handle it themselves, or
        safeser does, whose own operation it is.
    :param bulk: whether honest workers send many keys in it.
    :param splits: the field whose list may travel in parts, each in an element of its own.
    :param ceilings: how large it may be, by its fields.
    :param since: the first release of distributed that has it; empty where all do.
    :param until: the first one that has it no more; empty where none lacks it.
    :param wire: what messages call it, where several rows share one handler: a message belongs to
        the row whose shapes its fields have, so that a group can depend on what a field says.
    :param spelt: its fields as ``field:shape``, with their releases until the row has shapes.
    :param takes: each field that it may have and its shape; ``*`` stands for any other.
    :param shapes: the same with the fields that Dask's loop takes away before the handler is
        called, whatever the handler calls so.
    :param forms: which of its fields have to be looked at, by names and classes of all; remembered
        by who checks them.
    :param plain: whether a message without payloads has nothing in it that a handler would unpickle
        or pass on to another server.
    """

    server: Server
    channel: Channel
    name: str
    kind: Kind
    group: str
    fields: Mapping[str, Encoding] = field(default_factory=dict, hash=False)
    reply: Mapping[str, Encoding] = field(default_factory=dict, hash=False)
    becomes: str | None = None
    streams: frozenset[str] = frozenset()
    inline: bool = False
    bulk: bool = False
    splits: str = ""
    ceilings: Ceilings = field(default=_UNLISTED, repr=False)
    since: str = ""
    until: str = ""
    wire: str = ""
    spelt: tuple[str, ...] = ()
    takes: Mapping[str, Shape] = field(default_factory=dict, hash=False, repr=False)
    shapes: Mapping[str, Shape] = field(default_factory=dict, hash=False, repr=False)
    plain: bool = field(init=False, compare=False, repr=False)
    forms: dict[tuple[Any, ...], Sequence[tuple[str, Shape]]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        opened = any(
            encoding in _OPENED and not self.reports(path) for path, encoding in self.fields.items()
        )
        object.__setattr__(self, "plain", not opened)
        object.__setattr__(self, "wire", self.wire or self.name)
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))
        object.__setattr__(self, "reply", MappingProxyType(dict(self.reply)))

    def is_in(self, given: Release) -> bool:
        """Tell whether the release *given* has it."""
        return is_between(given, self.since, self.until)

    def ceiling(self, *, submits: bool) -> Ceiling:
        """Return how large it may be, from a sender that may submit work or from another."""
        return self.ceilings.submitter if submits else self.ceilings.other

    def reports(self, path: str) -> bool:
        """Tell whether Dask's field *path* holds the pickled class of a result.

        On safeser:// it is a name, and bytes in its place lose the name, not the whole element.
        """
        return path == "type" and self.name in ("task-finished", "key-in-memory")

    def fits(self, message: Mapping[str, Any]) -> bool:
        """Tell whether *message* has all fields of this row, each of its shape, and no other."""
        if not self.takes.keys() <= message.keys():
            return False
        found = [(self.shape_of(name), value) for name, value in message.items()]
        return all(shape is not None and shape(value) for shape, value in found)

    def shape_of(self, name: object) -> Shape | None:
        """Return the shape of its field *name*, or None if it takes no such field."""
        if not isinstance(name, str):
            return None
        return self.shapes.get(name) or self.shapes.get("*")
