"""Read messages of stock Dask as structure, without acting on the markers of its codec.

The one rule: the result is plain values and references to payloads, as from a peer on
``safeser://``. ``__Serialized__`` and ``__Pickled__`` become references, ``__Set__`` a set;
``__Enum__`` (two attributes of any module of Dask, imported first) is refused, and with it the part
of the message that it stands in, not the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safeser.channel import Unreadable
from safeser.dask.contents.unreadable import malformed
from safeser.dask.stock.headers import NoExtensions, Translator
from safeser.dask.wire.codec import PayloadRow
from safeser.dask.wire.reader import MARKERS, Reference
from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits

__all__ = ["Stock"]

#: A header beyond this describes no honest value; as the envelope's own.
_MAX_HEADER = 16 << 20


#: Errors kept of one message: eleven bytes make one, which takes a kilobyte.
_MAX_ERRORS = 100


class _Structure(NoExtensions):
    """Reads frame 0, or a header: *marked* makes a value of a dictionary with a marker in it."""

    def __init__(self, limits: Limits, left: int, marked: Any = None) -> None:
        super().__init__(limits, left)
        self._marked = marked

    def _pairs(self, pairs: list[tuple[Any, Any]]) -> Any:
        if self._marked is None or not any(_is_marker(key) for key, _ in pairs):
            return super()._pairs(pairs)
        self.charge(1 + 2 * len(pairs))
        try:
            return self._marked(pairs)
        except SafeserError as error:
            return self._marked(error)


def _is_marker(key: Any) -> bool:
    return key.__class__ is str and key in MARKERS


class Stock:
    """Reads one message of stock Dask; what it holds is in :attr:`body` and :attr:`rows`.

    :raises PayloadError: if its structure is none, or larger than *limits*.
    """

    def __init__(self, frames: Sequence[memoryview], limits: Limits) -> None:
        self._frames = frames
        self._limits = limits
        self._used = bytearray(len(frames))
        self._failed = self._last = 0
        self._translator = Translator(limits)
        self.rows: list[PayloadRow] = []
        if not frames:
            raise PayloadError("a message has no frames", rule="stock.frames")
        reader = _Structure(limits, limits.elements, self._marked)
        self._left = reader.left
        self._reader = reader
        self.body = reader.read(frames[0])

    def add(self, header: dict[str, Any], frames: Sequence[Any], *, eager: bool) -> Reference:
        """Return a reference to one more payload."""
        self.rows.append(PayloadRow(header, tuple(frames)))
        return Reference(len(self.rows) - 1, eager)

    def _marked(self, found: list[tuple[Any, Any]] | SafeserError) -> Any:
        if isinstance(found, SafeserError):
            return self._unreadable(found, eager=True)
        names = [key for key, _ in found]
        value = found[0][1]
        if names == ["__Set__", "as-list"] and value is True and type(found[1][1]) is tuple:
            return self._reader.make_set(found[1][1])
        whole = len(found) == 1 and type(value) is int and value > 0
        if whole and names == ["__Serialized__"]:
            return self._payload(value, self._serialized, eager=False)
        if whole and names == ["__Pickled__"]:
            return self._payload(value, self._pickled, eager=True)
        marker = next(key for key in names if _is_marker(key))
        raise PayloadError(
            f"{marker} in that form is an instruction to Dask's decoder, not data",
            rule=MARKERS[marker],
            fix="No honest peer sends it; rename the key if it is your own data.",
        )

    def _payload(self, offset: int, read: Any, *, eager: bool) -> Reference:
        try:
            header, frames = read(offset)
        except SafeserError as error:
            return self._unreadable(error, eager=eager)
        except RecursionError:
            deep = PayloadError("a value is nested too deep", rule="stock.header")
            return self._unreadable(deep, eager=eager)
        return self.add(header, frames, eager=eager)

    def _unreadable(self, error: SafeserError, *, eager: bool) -> Reference:
        """Return a reference to what could not be read, of which only the first say why."""
        self._failed += 1
        if self._failed > _MAX_ERRORS:
            return Reference(self._last, eager)
        self._last = len(self.rows)
        return self.add(Unreadable(error), (), eager=eager)

    def _serialized(self, offset: int) -> tuple[dict[str, Any], list[Any]]:
        return self._translator.outermost(*self._taken(offset))

    def _pickled(self, offset: int) -> tuple[dict[str, Any], list[Any]]:
        header, frames = self._taken(offset)
        data = header.get("pickled-obj")
        if type(data) is not bytes:
            malformed("it holds no pickle")
        plain = self._translator.plain_frames(header, frames)
        return {"serializer": "pickle", "writeable": [True] * len(plain)}, [data, *plain]

    def _taken(self, offset: int) -> tuple[dict[str, Any], list[memoryview]]:
        """Return the header at *offset* and the frames it claims; each frame is claimed once.

        Frames that nothing names are left alone: Dask leaves some behind when it begins anew.
        """
        if offset >= len(self._frames):
            malformed("its header is missing")
        # Also where nothing comes of it: three bytes would have it read again and again.
        self._take(offset, offset + 1)
        packed = self._frames[offset]
        if packed.nbytes > _MAX_HEADER:
            malformed("its header is too large")
        reader = _Structure(self._limits, self._reader.left)
        header = reader.read(packed)
        self._reader.left = reader.left
        count = header.get("num-sub-frames") if isinstance(header, dict) else None
        if type(count) is not int or not 0 <= count < len(self._frames) - offset:
            malformed("it claims frames that are missing")
        self._take(offset + 1, offset + 1 + count)
        assert isinstance(header, dict)
        del header["num-sub-frames"]
        return header, list(self._frames[offset + 1 : offset + 1 + count])

    def _take(self, start: int, stop: int) -> None:
        """Take the frames of one value, each of which belongs to no other."""
        if self._used.find(1, start, stop) >= 0:
            malformed("its frames belong to another value")
        self._used[start:stop] = b"\x01" * (stop - start)
