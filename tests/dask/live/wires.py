"""Peers without any rule, on both wires: they write frames by themselves and keep a real key.

The one rule: nothing of what is attacked stands between an attacker and the socket. On stock Dask
that is its framing, on ``safeser://`` a session whose handshake was honest, and frames as forged.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from distributed.protocol import dumps, loads
from distributed.protocol.serialize import Pickled, Serialized
from distributed.protocol.utils import pack_frames_prelude, unpack_frames

from safeser import families
from safeser.channel import Channel
from safeser.dask.wire.codec import PayloadRow, parse, substitute
from safeser.gate.format import PRELUDE_SIZE
from safeser.gate.values import Grant, Limits
from tests.dask.forged import Eager, forged

__all__ = ["Eager", "Host", "Sealing", "Stock", "Wire", "forged", "rows_in", "value_of"]

#: Nobody answers later than this on a machine that does other things too.
PATIENCE = 30.0

_DATA = Grant(context="", families=("dask", "msgpack", "error"))

GREETING = {"compression": None, "pickle-protocol": 5, "python": tuple(sys.version_info)[:3]}


def rows_in(value: Any) -> Iterator[Any]:
    """Yield each payload row at or below *value*."""
    if isinstance(value, PayloadRow):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from rows_in(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from rows_in(item)


def value_of(leaf: Any) -> Any:
    """Return what an answer holds where a value stands; the peers here are our own."""
    if isinstance(leaf, PayloadRow):
        return families.deserialize(leaf.header, leaf.frames, _DATA, limits=Limits())
    if isinstance(leaf, Serialized | Pickled):
        from distributed.protocol.serialize import deserialize

        return deserialize(leaf.header, leaf.frames)
    return leaf


class Wire:
    """One connection. What it reads is never opened."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(PATIENCE)
        self.last: bytes = b""  # all that was read of the last message

    def take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            more = self.socket.recv(min(size - len(taken), 1 << 20))
            if not more:
                raise ConnectionError("the peer closed the connection")
            taken += more
        return bytes(taken)

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.read()

    def send(self, message: Any) -> None:
        raise NotImplementedError

    def read(self) -> Any:
        raise NotImplementedError

    def greet(self, more: dict[str, Any]) -> None:
        self.send({**GREETING, **more})
        self.read()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def place(address: str) -> tuple[str, int]:
    host, _, port = address.partition("://")[2].rpartition(":")
    return host, int(port)


class Stock(Wire):
    """Dask's own framing over TCP."""

    scheme = "tcp://"

    @classmethod
    def to(cls, address: str, **greeting: Any) -> Stock:
        made = cls(socket.create_connection(place(address), timeout=PATIENCE))
        made.greet(greeting)
        return made

    def send(self, message: Any) -> None:
        self.socket.sendall(self.encoded(message))

    @staticmethod
    def encoded(message: Any) -> bytes:
        frames = [bytes(frame) for frame in dumps(message)]
        body = pack_frames_prelude(frames) + b"".join(frames)
        return struct.pack("Q", len(body)) + body

    def read(self) -> Any:
        (size,) = struct.unpack("Q", self.take(8))
        frames, missing = unpack_frames(self.take(size), partial=True)
        frames += [self.take(each) for each in missing]
        self.last = b"".join(bytes(frame) for frame in frames)
        return loads(frames, deserialize=False)


class Sealing(Wire):
    """A session of safeser's, by a principal's own key; frames above it as they are given."""

    scheme = "safeser://"

    def __init__(self, connection: socket.socket, channel: Channel, *, asks: bool) -> None:
        super().__init__(connection)
        handshake = channel.handshake(initiator=asks)
        connection.sendall(handshake.outgoing)
        while not handshake.complete:
            connection.sendall(handshake.feed(self.take(handshake.wanted)))
        self.link = channel.link(handshake, shared=False)
        if asks:
            assert self.read_frames() == [b"accepted"]
        else:
            self.send_frames([b"accepted"])

    @classmethod
    def to(cls, address: str, channel: Channel, **greeting: Any) -> Sealing:
        connection = socket.create_connection(place(address), timeout=PATIENCE)
        try:
            made = cls(connection, channel, asks=True)
            made.greet(greeting)
        except BaseException:
            connection.close()
            raise
        return made

    def send_frames(self, frames: list[Any]) -> None:
        self.socket.sendall(b"".join(map(bytes, self.link.session.seal(b"", frames))))

    def send(self, message: Any) -> None:
        self.send_frames(forged(message))

    def read_frames(self) -> list[bytes]:
        session = self.link.session
        prelude = session.prelude(self.take(PRELUDE_SIZE))
        arrival = session.arrival(prelude, self.take(prelude.block))
        verified = arrival.whole(memoryview(self.take(prelude.rest)))
        return [bytes(frame) for frame in verified.frames]

    def read(self) -> Any:
        frames = self.read_frames()
        self.last = b"".join(frames)
        parsed = parse(frames, Limits())
        return substitute(parsed.body, dict(enumerate(parsed.rows)))


class Host:
    """A hostile server: accepts connections and answers each by *answer*, in a thread of its own.

    :param answer: is called with each wire that was greeted.
    :param greeting: what it adds to Dask's handshake.
    """

    def __init__(
        self,
        answer: Callable[[Wire], None],
        *,
        channel: Channel | None = None,
        greeting: dict[str, Any] | None = None,
    ) -> None:
        self.answer = answer
        self.channel = channel
        self.greeting = greeting or {}
        self.connections = 0  # whether or not their peer was accepted
        self.refused: list[str] = []  # why handshakes failed
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = Stock.scheme if channel is None else Sealing.scheme
        self.address = f"{scheme}127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            wire: Wire
            if self.channel is None:
                wire = Stock(connection)
            else:
                wire = Sealing(connection, self.channel, asks=False)
            wire.greet(self.greeting)
            self.answer(wire)
        except Exception as error:  # whatever ends a connection, ends this one alone
            self.refused.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()

    def close(self) -> None:
        # A thread that waits in accept() keeps the port open until it is woken.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.close()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def channel_of(keys: Path, principal: str, policy: Any, audit: Any) -> Channel:
    """Return the channel of whoever holds the key of *principal*."""
    from safeser.identity import Identity, Roster

    identity = Identity.load(keys / f"{principal}.key")
    return Channel(
        identity=identity, policy=policy, audit=audit, roster=Roster.load(keys / "roster")
    )
