"""The bytes of a log file, plain or compressed, from its start to its end.

The one rule: memory does not depend on what a compressed file holds, and neither does the time that
it takes beyond :data:`MAX_PLAIN` bytes: a larger one is refused there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeAlias

from safeser.audit.files import COMPRESSED, Handle
from safeser.errors import AuditError

__all__ = ["GZIP", "MAX_PLAIN", "Read", "Unpacking", "plain"]

#: Bytes of a log file that are still compressed, and read back: sixteen times what a file may have
#: before it is rotated by default. A bomb of 1 MiB gives as much.
MAX_PLAIN = 1 << 30

_CHUNK = 64 << 10
#: gzip with the largest window, as zlib counts.
GZIP = 31

#: Returns up to so many bytes that follow, or nothing at the end.
Read: TypeAlias = Callable[[int], bytes]


def plain(handle: Handle, name: str) -> Read:
    """Return what reads the open log file *name* as it is now, from its start.

    What its process writes meanwhile is left: one that writes faster than this reads would keep it
    busy for ever.
    """
    if name.endswith(COMPRESSED):
        unpacking = Unpacking()
        return lambda size: unpacking.read(handle, size)
    size, at = handle.stat().st_size, 0

    def read(count: int) -> bytes:
        nonlocal at
        data = handle.read(min(count, size - at), at)
        at += len(data)
        return data

    return read


class Unpacking:
    """How far one compressed file was read; the file itself need not stay open meanwhile.

    It is one gzip member and nothing else.
    """

    __slots__ = ("_at", "_inflate", "_pending", "position")

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=GZIP)
        self._at = 0
        self._pending = b""
        self.position = 0  # plain bytes so far

    def read(self, handle: Handle, size: int) -> bytes:
        """Return up to *size* plain bytes that follow, or nothing at the end.

        :raises AuditError: if the file is not what the log compresses a file to.
        """
        while not self._inflate.eof:
            data = self._pending or self._next(handle)
            try:
                found = self._inflate.decompress(data, size)
            except zlib.error:
                raise _malformed(handle, "is damaged") from None
            self._pending = self._inflate.unconsumed_tail
            if found:
                self.position += len(found)
                if self.position > MAX_PLAIN:
                    raise _malformed(handle, f"holds more than {MAX_PLAIN >> 20} MiB")
                return found
        if self._inflate.unused_data or handle.read(1, self._at):
            raise _malformed(handle, "goes on after its end")
        return b""

    def _next(self, handle: Handle) -> bytes:
        data = handle.read(_CHUNK, self._at)
        if not data:
            raise _malformed(handle, "is cut short")
        self._at += len(data)
        return data


def _malformed(handle: Handle, what: str) -> AuditError:
    return AuditError(
        f"a compressed log file {what}",
        rule="audit.compressed",
        where=handle.place,
        fix="Run safeser audit verify on its folder.",
    )
