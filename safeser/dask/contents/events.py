"""Turn events that Dask's client prints or logs into escaped text.

The one rule: the peer that logs an event chooses every part of it, and another user's terminal
shows it. What will be printed is turned into text and escaped first; a log record has its message
and no arguments.

Where Dask does it (distributed 2026.8.0, ``client.py``): ``_handle_print`` prints what comes,
``_handle_forwarded_log_record`` makes a :class:`logging.LogRecord` of whatever attributes come, and
a logger of its name.
"""

from __future__ import annotations

import logging
from typing import Any

from safeser.dask.wire.bounded_repr import has_bounded_repr, type_name
from safeser.errors import PayloadError
from safeser.families.errors.failures import shown

__all__ = ["plain_event"]

#: The topic of what ``distributed.print`` says, and how those of forwarded log records begin.
_PRINT, _FORWARDED = "print", "forwarded-log-record"

#: Attributes of a record that are numbers, and come from the clock and the process of its worker.
_NUMBERS = frozenset(
    {"created", "levelno", "lineno", "msecs", "process", "relativeCreated", "thread"}
)


def plain_event(topic: str, event: Any) -> Any:
    """Return *event* as Dask's client may handle it.

    :raises PayloadError: if it is not one that Dask makes of that topic.
    """
    if topic != _PRINT and not topic.startswith(_FORWARDED):
        return event
    match event:
        case (stamp, said):
            return stamp, _printed(said) if topic == _PRINT else _record(said)
    raise _malformed()


def _malformed() -> PayloadError:
    return PayloadError("an event is not one that can be shown", rule="raw.event", where="event")


def _printed(said: Any) -> Any:
    if not isinstance(said, dict):
        return _text(said)
    args, file = said.get("args"), said.get("file")
    if not isinstance(args, tuple):
        return {"args": _text(args)}  # of which Dask logs that it is no tuple
    if not (file is None or (type(file) is int and file in (1, 2))):
        return {"args": (), "file": _text(file)}  # of which it logs that it is no file
    between = {name: said.get(name) for name in ("sep", "end")}
    if not all(isinstance(text, str | None) for text in between.values()):
        raise _malformed()
    return {
        "args": tuple(map(_text, args)),
        **{name: text if text is None else shown(text) for name, text in between.items()},
        "file": file,
        "flush": said.get("flush") is True,
    }


def _text(value: Any) -> str:
    """Return the text that ``print`` writes of *value*, without control characters.

    Dask's own ``print`` and its loggers send text; others may send anything.
    """
    try:
        return shown(str(value) if has_bounded_repr(value) else type_name(value))
    except Exception as error:  # a type's own code; and an integer may be too long to be printed
        return f"<its text could not be made: {type(error).__name__}>"


def _record(said: Any) -> dict[str, Any]:
    """Return the attributes of a log record that are plain, and name no part of its class.

    ``msg % args`` of a peer's choice is a gigabyte in twelve bytes; an honest worker made one text
    of both.
    """
    name = said.get("name") if isinstance(said, dict) else None
    if not isinstance(name, str):
        raise _malformed()
    kept: dict[str, Any] = {}
    for name, value in said.items():
        if not isinstance(name, str) or hasattr(logging.LogRecord, name):
            continue
        if name in _NUMBERS:
            kept[name] = value if type(value) in (int, float) else 0
        elif isinstance(value, str):
            kept[name] = shown(value)
        elif value is None or type(value) in (bool, int, float):
            kept[name] = value
    return {**kept, "msg": _text(said.get("msg", "")), "args": None, "exc_info": None}
