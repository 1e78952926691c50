"""Records as lines of JSON on standard output, and as messages of syslog.

The one rule: one record is one line or one message, whatever its fields hold. JSON in ASCII has no
character that ends a line, and the header of a message holds no text of a peer.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
from collections.abc import Sequence
from logging.handlers import SysLogHandler
from typing import Final, NoReturn

from safeser.audit.record import Record
from safeser.audit.report import stamp

__all__ = ["RaisingSysLogHandler", "StandardOutput", "Syslog", "json_line", "line_with"]

#: Bytes of one message: what receivers of RFC 5424 take who take more than the least.
MAX_MESSAGE: Final = 8_192

#: Fields that a message keeps where it would be longer.
_KEPT = ("event", "permitted", "rule", "sender", "recipient", "operation", "family", "task")

_WORD = re.compile(r"[^!-~]")


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def json_line(record: Record) -> str:
    """Return *record* as one line of JSON, ASCII, without its newline."""
    return line_with(record, dict(record.fields))


def line_with(record: Record, fields: dict[str, object]) -> str:
    """Return *fields* as the line of *record*; its number, time and type are added to them."""
    fields["sequence"] = record.sequence
    fields["time"] = stamp(record.time)
    fields["type"] = record.type
    return _encode(fields).replace("\x7f", "\\u007f")


class StandardOutput:
    """Lines of JSON on standard output, for containers whose runtime collects it.

    :param descriptor: of the open file.
    """

    name = "stdout"

    def __init__(self, descriptor: int = 1) -> None:
        self._descriptor = descriptor

    def send(self, records: Sequence[Record]) -> None:
        """Write a line for each of *records*.

        :raises OSError: if the other end is gone.
        """
        for record in records:
            data = memoryview(f"{json_line(record)}\n".encode("ascii"))
            while data:
                data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Leave the descriptor open: it is the process's."""


class RaisingSysLogHandler(SysLogHandler):
    """The handler of the standard library, which raises where it cannot send."""

    append_nul = False

    def handleError(self, record: logging.LogRecord) -> NoReturn:
        raise  # noqa: PLE0704 - logging calls this while it handles the error


class Syslog:
    """Messages of RFC 5424 to a syslog daemon, by datagrams.

    :param address: path of its socket, or its host and port.
    """

    name = "syslog"

    def __init__(self, address: str | tuple[str, int] = "/dev/log") -> None:
        self._address = address
        self._handler: RaisingSysLogHandler | None = None
        self._host = _word(socket.gethostname(), 255)

    def send(self, records: Sequence[Record]) -> None:
        """Send a message for each of *records*.

        :raises OSError: if there is no daemon, or it takes none.
        """
        try:
            if self._handler is None:
                self._handler = RaisingSysLogHandler(
                    self._address, facility=SysLogHandler.LOG_AUTHPRIV
                )
            for record in records:
                self._handler.emit(self._logged(record))
        except OSError:
            self.close()  # the next try opens another socket
            raise

    def _logged(self, record: Record) -> logging.LogRecord:
        level = logging.WARNING if record.fields.get("permitted") is False else logging.INFO
        text = self._message(record)
        return logging.LogRecord("safeser", level, "", 0, text, None, None)

    def _message(self, record: Record) -> str:
        """Return a message of RFC 5424 behind its priority, which the handler writes."""
        event = record.fields.get("event")
        kind = _word(event if isinstance(event, str) and event else record.type, 32)
        head = f"1 {stamp(record.time)} {self._host} safeser {os.getpid()} {kind} - "
        text = json_line(record)
        if len(head) + len(text) > MAX_MESSAGE:
            text = json_line(_shortened(record))
        return head + text

    def close(self) -> None:
        """Close the socket."""
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.close()


def _shortened(record: Record) -> Record:
    """Return *record* with what says most of it; a longer datagram would not be sent at all."""
    fields = {name: record.fields[name] for name in _KEPT if name in record.fields}
    said = {
        name: value[:256] if isinstance(value, str) else value
        for name, value in fields.items()
        if isinstance(value, str | bool | int)
    }
    said |= {"file": record.text("file"), "log": record.text("log"), "shortened": True}
    return Record(record.sequence, record.time, record.type, said, record.mac)


def _word(text: str, most: int) -> str:
    """Return *text* as one word of a header: printable, without spaces."""
    return _WORD.sub("?", text)[:most] or "-"
