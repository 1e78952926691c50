"""Read fields that stock Dask fills with pickles of its own, as data.

The one rule: they are read as records, by opcodes, and nothing is imported or called for them; the
result is text, the name of a class, or nothing, as a peer on ``safeser://`` would have sent it.

Which fields (distributed 2026.8.0): ``exception`` and ``traceback`` of whatever failed, ``type`` of
a result, ``message`` and ``category`` of a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safeser import pickles
from safeser.channel import Unreadable
from safeser.dask.contents import failures
from safeser.dask.messages import translate
from safeser.dask.stock.headers import name_of
from safeser.dask.stock.reader import Stock
from safeser.dask.wire.codec import PayloadRow
from safeser.dask.wire.fields import transform
from safeser.dask.wire.reader import Reference
from safeser.errors import PayloadError
from safeser.families.errors.wire import encode
from safeser.operations import Encoding

__all__ = ["PlainFields"]

#: Bytes of pickled errors that are read of one message: a thousand honest ones, or half a second.
_READ = 4 << 20

#: Errors of one message that are distinguished.
_ERRORS = 10_000

_TOO_MUCH = "an error that was not read: too many came at once"


class PlainFields:
    """Turns the pickles in the fields of one message into data."""

    def __init__(self, message: Stock) -> None:
        self._message = message
        self._left = _READ
        self._told = self._last = 0

    def elements(self, body: Any) -> Any:
        """Return a batch of stream elements without pickles in those fields."""
        return tuple(self.element(each) if isinstance(each, dict) else each for each in body)

    def element(self, element: dict[str, Any]) -> dict[str, Any]:
        element = self.failure(element)
        if element.get("op") == "key-in-memory":
            element["type"] = _type_name(element.get("type"))
        elif element.get("op") == "event" and element.get("topic") == translate.WARN:
            match element.get("event"):
                case (stamp, dict() as event):
                    element["event"] = (stamp, self._warning(event))
        return element

    def _warning(self, event: dict[str, Any]) -> dict[str, Any]:
        plain = dict(event)
        if isinstance(plain.get("message"), bytes):
            plain["message"] = self._text(plain["message"])
        if "category" in plain:
            plain["category"] = _type_name(plain["category"])
        return plain

    def _text(self, data: bytes) -> str:
        try:
            return pickles.exception_record(data).text if self._take(data) else _TOO_MUCH
        except PayloadError:
            return "a warning that could not be read"

    def reply(self, fields: Mapping[str, Encoding], body: Any) -> Any:
        """Return a reply without them; *fields* are those of what was asked for."""
        if isinstance(body, dict):
            body = self.failure(body)
        for path, encoding in fields.items():
            holder, _, name = path.rpartition(".")
            if encoding is Encoding.ERROR and name in ("exception", "traceback"):
                body = transform(body, holder, self._failed)
            elif encoding is Encoding.NESTED:
                body = transform(body, path, self._failed)
            elif encoding is Encoding.RAW and name == "type":
                body = transform(body, path, _type_name)
        return body

    def _failed(self, part: Any) -> Any:
        return self.failure(part) if isinstance(part, dict) else part

    def failure(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return *message* with its error, if it has one, as data, and without its traceback."""
        if "exception" not in message and "traceback" not in message:
            return dict(message)
        value = message.get("exception")
        data = self._bytes_of(value)
        plain = dict(message)
        if "traceback" in plain:
            plain["traceback"] = None
        if data is not None:
            plain["exception"] = self._error(data, message)
        return plain

    def _error(self, data: bytes, message: Mapping[str, Any]) -> Reference:
        text = message.get("traceback_text")
        if not isinstance(text, str) or not text:
            text = self._lines(message.get("traceback"))
        self._told += 1
        if self._told > _ERRORS:
            return Reference(self._last, eager=False)
        if not self._take(data) or self._told == _ERRORS:
            message, data, text = {"exception_text": _TOO_MUCH}, b"", ""
        failure = failures.from_pickled_error(data, message, text)
        self._last = len(self._message.rows)
        return self._message.add({"serializer": "error"}, [encode(failure)], eager=False)

    def _lines(self, traceback: Any) -> str:
        """Return a pickled traceback as it is printed: places, without the lines of the source."""
        data = self._bytes_of(traceback)
        if data is None or not self._take(data):
            return ""
        try:
            frames = pickles.traceback_record(data)
        except PayloadError:
            return ""
        return "".join(
            f'  File "{frame.filename}", line {frame.line}, in {frame.function}\n'
            for frame in frames
        )

    def _take(self, data: bytes) -> bool:
        self._left -= len(data)
        return self._left >= 0

    def _bytes_of(self, value: Any) -> bytes | None:
        """Return the bytes that a field holds, bare or as a payload that is nothing but bytes."""
        if isinstance(value, bytes):
            return value
        if not isinstance(value, Reference):
            return None
        row: PayloadRow = self._message.rows[value.index]
        plain = row.header.get("type") in ("builtins:bytes", "builtins:bytearray")
        if isinstance(row.header, Unreadable) or not plain or len(row.frames) != 1:
            return None
        frame = memoryview(row.frames[0])
        return bytes(frame) if frame.nbytes <= _READ else b""


def _type_name(value: Any) -> str | None:
    """Return the name of a pickled class; Dask sends text where a class could not be pickled."""
    if isinstance(value, bytes):
        return name_of(value)
    return value if isinstance(value, str) else None
