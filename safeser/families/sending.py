"""Objects to headers and frames, through the families that a context allows, in its order.

The one rule: an object is sent exactly as it is or refused by name; nothing falls back to a family
that was not asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from safeser.errors import PayloadError, SafeserError
from safeser.families import errors, pickled, plain
from safeser.families.plain import DEFAULTS, DEPTH_CEILING, Unencodable, label
from safeser.families.registry import registry
from safeser.values import FAMILIES, Limits

__all__ = ["serialize"]

#: Bytes inside a list or dict that are longer than this travel in a frame of their own, uncopied.
_LARGE_BYTES = 1 << 20

#: Shorter ones are cheaper inside msgpack than with a header of their own.
_SMALL_BYTES = 1 << 12

_PLAIN = frozenset({type(None), bool, int, float, str})
_COLLECTIONS = frozenset({list, tuple, set, frozenset, dict})

Sent = tuple[dict[str, Any], list[Any]]


def serialize(
    x: object,
    families: Sequence[str],
    *,
    limits: Limits = DEFAULTS,
    iterate_collection: bool | None = None,
    context: Mapping[str, Any] | None = None,
) -> Sent:
    """Return the header and frames of *x* in the first of *families* that can carry it.

    :param iterate_collection: whether elements of a list, tuple, set or dict are serialized one by
        one; None lets each element's own type decide.
    :param context: kept for families that want it; those built in are the same for every peer.
    :raises PayloadError: that names the object inside *x* that none of *families* can carry.
    """
    for family in families:
        if family not in FAMILIES:
            raise PayloadError("an unknown family was asked for", rule="families.serializer")
    sender = _Sender(tuple(families), limits, iterate_collection)
    try:
        return sender.send(x, 0)
    except Unencodable as error:
        _refuse(error, sender.families)
    except RecursionError:
        raise PayloadError(
            "the object is nested too deep to serialize",
            rule="families.cannot-serialize",
            fix="Flatten it, or break the cycle inside it.",
        ) from None


def _refuse(error: Unencodable, families: Sequence[str]) -> NoReturn:
    kind = type(error.value)
    name = f"{kind.__module__}:{kind.__qualname__}"[:120]
    name = "".join(char if char.isprintable() else "?" for char in name)
    inside = "an object inside it" if error.where else "an object"
    reason = f": {error.reason}" if error.reason else ""
    tried = ", ".join(families) or "no family at all"
    raise PayloadError(
        f"cannot serialize {inside} of type {name} by {tried}{reason}",
        rule="families.cannot-serialize",
        where=error.where.strip(),
        fix=_advice(error.value, families),
    ) from None


def _advice(value: object, families: Sequence[str]) -> str:
    if isinstance(value, type) or inspect.isroutine(value):
        return "A function or class is code: ask for a context that grants family cloudpickle."
    if "dask" not in families:
        return "Allow family dask too, or convert it to plain values."
    advice = (
        "Convert it to arrays, frames or plain values, or register its type with"
        " safeser.families.registry on both sides"
    )
    if "pickle" in families:
        return f"{advice}."
    return f"{advice}, or ask for a context that grants family pickle."


class _Sender:
    """One run over one object; counts what it holds so that shared or cyclic parts end."""

    def __init__(
        self, families: tuple[str, ...], limits: Limits, iterate_collection: bool | None
    ) -> None:
        self.families = families
        self.limits = limits
        self.iterate = iterate_collection
        self.room = limits.max_refs
        self.depth = min(limits.max_depth, DEPTH_CEILING)
        self.pickles = any(family in families for family in ("pickle", "cloudpickle"))

    def send(self, x: Any, depth: int, *, inside: bool = False) -> Sent:
        """Try each family in turn; raise the most precise failure among them.

        :param inside: whether *x* is part of a typed value, which may always hold plain values.
        """
        self.room -= 1
        if depth > self.depth:
            raise Unencodable(x, f"it is nested more than {self.depth} deep")
        if self.room < 0:
            raise Unencodable(x, f"there are more than {self.limits.max_refs} objects")
        families = self.families
        if inside and "msgpack" not in families:
            families = (*families, "msgpack")
        failure: Unencodable | None = None
        try:
            for family in families:
                try:
                    return _WAYS[family](self, x, depth, families)
                except Unencodable as error:
                    rank = (len(error.path), bool(error.reason))
                    if failure is None or rank > (len(failure.path), bool(failure.reason)):
                        failure = error
            raise failure or Unencodable(x)
        finally:
            # Its traceback holds this frame: the cycle would keep x in memory until the garbage
            # collector comes by.
            failure = None

    def msgpack(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        try:
            return self.plain(x, families)
        except Unencodable:
            if type(x) not in _COLLECTIONS or "dask" in families or not self.iterates(x):
                raise
            return self.collection(x, depth)

    def plain(self, x: Any, families: Sequence[str]) -> Sent:
        largest = _LARGE_BYTES if "dask" in families else None
        return {"serializer": "msgpack"}, [plain.encode(x, limits=self.limits, largest=largest)]

    def dask(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        if isinstance(x, BaseException):
            return self.error(x, depth, families)
        if type(x) in _COLLECTIONS:
            if "msgpack" in families and self.iterate is not True:
                try:
                    return self.plain(x, families)
                except Unencodable:
                    pass  # something in it is not plain: element by element
            if not self.iterates(x):
                raise Unencodable(x)
            return self.collection(x, depth)
        small = type(x) in _PLAIN or (type(x) is bytes and len(x) < _SMALL_BYTES)
        if small and "msgpack" in families:
            return self.plain(x, families)
        return self.typed(x, depth)

    def typed(self, x: Any, depth: int) -> Sent:
        typed = registry.for_object(x)
        if typed is None:
            raise Unencodable(x)
        parts = typed.encode(x, self.limits)
        header: dict[str, Any] = {
            "serializer": "dask",
            "type": typed.name,
            "sub-header": parts.meta,
        }
        frames = list(parts.frames)
        if parts.children:
            self.children(header, frames, parts.children, depth)
        return header, frames

    def collection(self, x: Any, depth: int) -> Sent:
        header: dict[str, Any] = {"serializer": "collection", "type": type(x).__name__}
        children: list[tuple[str, object]]
        if type(x) is dict:
            children = [(".keys()", tuple(x)), *((f"[{label(k)}]", v) for k, v in x.items())]
        else:
            children = [(f"[{position}]", item) for position, item in enumerate(x)]
        frames: list[Any] = []
        self.children(header, frames, children, depth)
        return header, frames

    def children(
        self,
        header: dict[str, Any],
        frames: list[Any],
        children: Sequence[tuple[str, object]],
        depth: int,
    ) -> None:
        """Serialize *children* into *header*, and their frames behind those that are there."""
        header["sub-headers"], header["frame-lengths"] = [], []
        for name, child in children:
            try:
                sub_header, sub_frames = self.send(child, depth + 1, inside=True)
            except Unencodable as error:
                error.path.append(name)
                raise
            header["sub-headers"].append(sub_header)
            header["frame-lengths"].append(len(sub_frames))
            frames.extend(sub_frames)

    def iterates(self, x: Any) -> bool:
        """Whether a collection goes element by element rather than whole to a pickle."""
        if self.iterate is not None:
            return self.iterate
        return not self.pickles or _holds_typed(x, 5)

    def error(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        if not isinstance(x, BaseException):
            raise Unencodable(x)
        return {"serializer": "error"}, [errors.encode(errors.to_data(x), limits=self.limits)]

    def pickle(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        return self.pickled(x, "pickle")

    def cloudpickle(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        return self.pickled(x, "cloudpickle")

    def pickled(self, x: Any, family: str) -> Sent:
        try:
            return pickled.encode(x, family)
        except SafeserError as error:
            raise Unencodable(x, error.message) from None


def _holds_typed(x: Any, room: int) -> bool:
    """Whether something at most *room* levels down in *x* has a typed serializer."""
    if type(x) not in _COLLECTIONS:
        return type(x) not in _PLAIN and registry.for_object(x) is not None
    items = x.values() if type(x) is dict else x
    return room > 0 and any(_holds_typed(item, room - 1) for item in items)


_WAYS: dict[str, Callable[[_Sender, Any, int, Sequence[str]], Sent]] = {
    "msgpack": _Sender.msgpack,
    "error": _Sender.error,
    "dask": _Sender.dask,
    "pickle": _Sender.pickle,
    "cloudpickle": _Sender.cloudpickle,
}
