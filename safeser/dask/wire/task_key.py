"""The key of the task that a message is about, as text for the audit log.

The one rule: the text has bounded length and costs a bounded time, whatever key the peer chose; a
key that is not one of Dask's has none.
"""

from __future__ import annotations

from typing import Any

from safeser.audit.record import short_key

__all__ = ["key_text", "task_of"]

#: Parts of a tuple that a record has.
_PARTS = 6


def key_text(key: Any) -> str:
    """Return *key* as Dask writes it, a string or a tuple of them and of numbers, cut if long."""
    if isinstance(key, str):
        return short_key(key)
    if isinstance(key, tuple) and len(key) > 0:
        parts = [_part(each) for each in key[:_PARTS]]
        beyond = ["..."] if len(key) > _PARTS else []
        return short_key(f"({', '.join(parts + beyond)})") if all(parts) else ""
    return ""


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
