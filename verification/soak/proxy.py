"""A road to the scheduler that can be cut: TCP passed on unread, until somebody resets it.

The one rule: it holds no key and reads nothing. What it can do is what the network can.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading

#: Close without a word: the other end sees a reset, as when a host disappears.
_RESET = struct.pack("ii", 1, 0)

_PIECE = 1 << 18


class Road:
    """Listens on loopback and joins every connection to one address.

    :param target: host and port behind it.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def cut(self, chance: random.Random, *, most: int) -> int:
        """Reset up to *most* connections; return how many."""
        with self._lock:
            pairs = sorted(self._pairs, key=lambda pair: pair[0].fileno())
            chosen = chance.sample(pairs, min(most, len(pairs)))
        for pair in chosen:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    # Closing alone would leave the other thread in its recv.
                    end.shutdown(socket.SHUT_RDWR)
        return len(chosen)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut(random.Random(0), most=1 << 16)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (near, far)
            with self._lock:
                self._pairs.add(pair)
            for source, sink in (pair, pair[::-1]):
                carrier = (pair, source, sink)
                threading.Thread(target=self._carry, args=carrier, daemon=True).start()

    def _carry(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket
    ) -> None:
        """Pass on what *source* says until either end is gone; then both are."""
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                sink.sendall(piece)
        with self._lock:
            last = pair not in self._pairs
            self._pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            if last:  # the other thread has left: nobody reads a number that is used again
                end.close()
