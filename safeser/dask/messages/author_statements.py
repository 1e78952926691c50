"""Add authors to messages that order, report or request values, and read them from such messages.

The one rule: the author of a key is stated in the message that names the key, so that the statement
is about the task that has the key at that moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["StatedKeys", "stated", "stated_by", "statement", "stating", "take_stated"]

#: What requests of one name, sent in this context, state of authors.
_stated: ContextVar[tuple[str, Mapping[str, Any]] | None] = ContextVar(
    "safeser-stated", default=None
)


class StatedKeys(dict[Any, Any]):
    """The holders of keys, as the scheduler names them, with the authors that it states.

    :ivar author: of the key that is to be computed; None if there is none.
    :ivar authors: of the others, where they are not of the same author.
    """

    author: str | None = None
    authors: Mapping[Any, str] = {}

    @classmethod
    def taken_from(cls, element: dict[str, Any]) -> None:
        """Move the authors that *element* states in fields unknown to Dask to its keys."""
        keys = element["who_has"] = cls(element.get("who_has") or {})
        keys.author = element.pop("author", None)
        keys.authors = element.pop("authors", None) or {}


@contextmanager
def stating(name: str, **fields: Any) -> Iterator[None]:
    """Add *fields* to the requests *name* that are sent within the block."""
    token = _stated.set((name, fields))
    try:
        yield
    finally:
        _stated.reset(token)


def stated(request: dict[str, Any]) -> dict[str, Any]:
    """Return *request* with the authors of its values."""
    said = _stated.get()
    if said is None or said[0] != request["op"]:
        return request
    fields = said[1]
    if "keys" in request:  # of many requests, each to another peer
        fields = statement(request["keys"], fields["authors"])
    return {**request, **fields}


def statement(keys: Collection[Any], authors: Mapping[Any, str]) -> dict[str, Any]:
    """Return the fields of a message that state the known authors of *keys*."""
    found = {key: authors[key] for key in keys if key in authors}
    one = len(found) == len(keys) and len(set(found.values())) == 1
    if one:
        return {"author": next(iter(found.values()))}
    return {"authors": found} if found else {}


def take_stated(message: dict[str, Any], keys: Iterable[Any]) -> dict[Any, str]:
    """Remove from *message* the authors that it states for *keys*, and return them."""
    author, authors = message.pop("author", None), message.pop("authors", None)
    found = {} if author is None else dict.fromkeys(keys, author)
    found.update(authors or {})
    return found


def stated_by(event: Any) -> Mapping[Any, str]:
    """Return the authors that the scheduler states with *event*, by their keys."""
    keys = event.who_has
    if type(keys) is not StatedKeys:
        return {}
    if keys.author is None:
        return keys.authors
    found = dict.fromkeys(keys, keys.author)
    # The author that signed it takes precedence over the author that the scheduler states.
    found[event.key] = getattr(event.run_spec, "author", keys.author)
    found.update(keys.authors)
    return found
