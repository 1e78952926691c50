"""A scheduler, or a worker, that answers as its script says, and honestly to everything else.

The one rule: an attack is in one answer alone, so that what comes of it has one cause, and the same
client can be shown to work afterwards.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import msgpack
from distributed.protocol.serialize import Serialized

from tests.dask.live.wires import Host, Wire

__all__ = ["Hostile"]


class Hostile:
    """One hostile server on one wire.

    :param row: makes a payload row of safeser's; None on stock Dask.
    :param keys: holds the key of whoever listens; None on stock Dask.
    """

    def __init__(self, *, channel: Any = None, worker_channel: Any = None, row: Any = None) -> None:
        self.op = ""
        self.script: deque[Any] = deque()
        self._row = row
        self._channel = channel
        self._lock = threading.Lock()
        self._stream: Wire | None = None
        self.scheduler = Host(self._answer, channel=channel)
        # Direct fetches go to a worker, which holds a worker's key.
        self.worker = Host(self._answer, channel=worker_channel)

    def greeting(self, greeting: dict[str, Any]) -> str:
        """Return the address of the same server with *greeting* in its handshake."""
        host = Host(self._answer, channel=self._channel, greeting=greeting)
        self._more = [*getattr(self, "_more", []), host]
        return host.address

    def plan(self, op: str, script: list[Any]) -> None:
        self.op, self.script = op, deque(script)

    def close(self) -> None:
        for host in (self.scheduler, self.worker, *getattr(self, "_more", [])):
            host.close()

    # --- one connection -------------------------------------------------------------------------

    def _answer(self, wire: Wire) -> None:
        while True:
            message = wire.read()
            if isinstance(message, list | tuple):
                self._elements(wire, message)
            elif isinstance(message, dict):
                self._one(wire, message)

    def _one(self, wire: Wire, message: dict[str, Any]) -> None:
        op = message["op"]
        if op == "register-client":
            # Known before the client hears of it, which asks for an element at once, elsewhere.
            with self._lock:
                self._stream = wire
                wire.send([{"op": "stream-start"}])
        elif op == self.op and self.script:
            wire.send(self.script.popleft())
        elif op == "get_metadata" and self.op == "stream":
            self._push([self.script.popleft()])
            self._push([{"op": "event", "topic": "done", "event": (0, 1)}])
            wire.send("OK")
        elif message.get("reply", True) is not False:
            wire.send(self._honest(op, message))

    def _honest(self, op: str, message: dict[str, Any]) -> Any:
        if op == "identity":
            nothing = {"started": 0.0, "n_workers": 0, "total_threads": 0, "total_memory": 0}
            who = {"type": "Scheduler", "id": "s", "address": self.scheduler.address}
            return {**who, **nothing, "services": {}, "workers": {}}
        if op == "who_has":
            return {"k": [self.worker.address]}
        if op == "gather":
            data = {key: self._value(5) for key in message["keys"]}
            return {"status": "OK", "data": data}
        return "OK"

    def _value(self, value: Any) -> Any:
        header, frame = {"serializer": "msgpack"}, msgpack.packb(value)
        if self._row is None:
            return Serialized(header, [frame])
        return self._row(header, (frame,))

    def _elements(self, wire: Wire, elements: Any) -> None:
        for element in elements:
            if element.get("op") == "update-graph":
                for key in element["keys"]:
                    self._push([{"op": "key-in-memory", "key": key, "type": None}])

    def _push(self, elements: list[Any]) -> None:
        with self._lock:
            assert self._stream is not None
            self._stream.send(elements)
