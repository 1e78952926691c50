"""The key of the task that a message is about, as text for the audit log and for errors.

The one rule: the text has bounded length and costs a bounded time, whatever key the peer chose; a
key that is not one of Dask's has none.
"""

from __future__ import annotations

from typing import Any

from safeser.audit.record import short_key
from safeser.gate.refusals import legible, shortened

__all__ = ["key_text", "shown_key", "task_of"]

#: Parts of a tuple that a record has.
_PARTS = 6

#: Levels of tuples that an error shows.
_LEVELS = 2


def key_text(key: Any) -> str:
    """Return *key* as Dask writes it, a string or a tuple of them and of numbers, cut if long."""
    if isinstance(key, str):
        return short_key(key)
    if isinstance(key, tuple) and len(key) > 0:
        parts = [_part(each) for each in key[:_PARTS]]
        beyond = ["..."] if len(key) > _PARTS else []
        return short_key(f"({', '.join(parts + beyond)})") if all(parts) else ""
    return ""


def shown_key(key: Any, most: int) -> str:
    """Return *key*, which a peer chose, in *most* characters for an error or a line of a log."""
    return legible(str(_begun(key, most)), most)


def _begun(key: Any, most: int, depth: int = 0) -> Any:
    """Return *key* without what is beyond its first parts: of all of them str() takes seconds."""
    if isinstance(key, str):
        return shortened(key, most)
    if isinstance(key, bytes):
        return key[:most]
    if not isinstance(key, tuple):
        return ... if isinstance(key, int) and not -(1 << 63) <= key < 1 << 64 else key
    parts = key[:_PARTS] if depth < _LEVELS else ()
    beyond = (...,) if len(key) > len(parts) else ()
    return (*(_begun(part, most, depth + 1) for part in parts), *beyond)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return repr(short_key(part))
    # str() of an int of a megabyte takes a minute; no partition has such a number.
    return str(part) if isinstance(part, int) and -(1 << 63) <= part < 1 << 63 else ""


def task_of(body: Any) -> dict[str, str]:
    """Return the task that a request or stream element is about, and whose task the peer says."""
    if not isinstance(body, dict) or "key" not in body:
        return {}
    author = body.get("author")
    stated = author[:64] if isinstance(author, str) else ""
    return {"task": key_text(body["key"]), "task_author": stated}
