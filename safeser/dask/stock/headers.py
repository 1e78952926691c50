"""Convert headers of stock Dask to those of safeser, by a table of class names.

The one rule: ``type-serialized`` is a pickle, and is read as a single name that is never imported.
The name selects a row of a table here, or the payload is refused. safeser's families check the
frames against that row and build the object, never code of :mod:`distributed.protocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

from safeser import pickles
from safeser.dask.contents.unreadable import malformed, unreadable
from safeser.dask.stock import arrays, wire
from safeser.dask.wire.reader import Reader
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.plain import Unencodable
from safeser.gate.values import Limits

__all__ = ["NoExtensions", "Translator", "name_of"]

Header = dict[str, Any]
Made = tuple[Header, list[Any]]

_COLLECTION = frozenset({"sub-headers", "is-collection", "frame-lengths", "type-serialized"})
_COLLECTIONS = ("list", "tuple", "set", "dict")
_TYPED = frozenset({"serializer", "type", "type-serialized", "sub-header"})
_TRANSPORT = ("compression", "split-num-sub-frames", "split-offsets")

#: Characters of the sender's text that an error repeats.
_SAID = 120


class Translator:
    """Translates the payloads of one message, whose decompressed frames share one bound."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._opened = wire.Room(limits)

    def outermost(self, header: Header, frames: Sequence[Any]) -> Made:
        """Return safeser's header and frames for a payload as it came over the wire.

        :raises PayloadError: naming what it holds, if safeser reads none such from a stock cluster.
        """
        whole = self.plain_frames(header, frames)
        bare = {key: value for key, value in header.items() if key not in _TRANSPORT}
        return self.value(bare, whole)

    def plain_frames(self, header: Mapping[str, Any], frames: Sequence[Any]) -> list[Any]:
        """Return *frames* as their sender made them: decompressed, and joined where it cut them."""
        opened = wire.decompressed(header.get("compression"), frames, self._opened)
        return wire.joined(header, opened, self._limits)

    def value(self, header: Any, frames: list[Any]) -> Made:
        """Return safeser's header and frames for one value, which may hold others."""
        if not isinstance(header, dict):
            malformed("its header is no dictionary")
        if "is-collection" in header:
            return self._collection(header, frames)
        match header.get("serializer"):
            case "dask":
                return self._typed(header, frames)
            case "msgpack":
                return self._plain(header, frames)
            case "pickle":
                return _pickle(header, frames)
            case "error":
                _unsent(frames)
        raise PayloadError(
            "a value came in a family that is not one of dask, msgpack and pickle",
            rule="stock.family",
            fix="Ask for deserializers=['dask', 'msgpack'].",
        )

    def _collection(self, header: Header, frames: list[Any]) -> Made:
        kind = header.get("type-serialized")
        headers, lengths = header.get("sub-headers"), header.get("frame-lengths")
        if header.keys() != _COLLECTION or kind not in _COLLECTIONS:
            malformed("it is no collection")
        if type(headers) is not tuple or type(lengths) is not tuple or len(headers) != len(lengths):
            malformed("its elements are not described")
        if not all(type(n) is int and n >= 0 for n in lengths) or sum(lengths) != len(frames):
            malformed("its elements do not fit its frames")
        made: list[Made] = []
        keys: list[Any] = []
        at = 0
        for inner, length in zip(headers, lengths, strict=True):
            bare = inner
            if kind == "dict":
                if not isinstance(inner, dict) or "key" not in inner:
                    malformed("an element of a dictionary has no key")
                bare = dict(inner)
                keys.append(bare.pop("key"))
            made.append(self.value(bare, frames[at : at + length]))
            at += length
        if kind == "dict":
            made.insert(0, self._packed(tuple(keys)))
        return arrays.holding({"serializer": "collection", "type": kind}, made)

    def _plain(self, header: Header, frames: list[Any]) -> Made:
        if header.keys() != {"serializer"}:
            malformed("its header has more than a family")
        # Dask's unpacker makes tuples of all sequences, and so does this; ours keeps them apart.
        return self._packed(NoExtensions(self._limits).read(self.run(frames)))

    def run(self, frames: list[Any]) -> Any:
        """Return *frames* as one, which is as long as they are: so long as one value may be."""
        if len(frames) == 1:
            return frames[0]
        if sum(memoryview(frame).nbytes for frame in frames) > self._limits.max_array:
            raise PayloadError("the frames of one value are over max_array", rule="stock.frames")
        return b"".join(frames)

    def _packed(self, value: Any) -> Made:
        try:
            return {"serializer": "msgpack"}, [plain.encode(value, limits=self._limits)]
        except Unencodable:
            raise PayloadError(
                "plain values hold something that is none, or too much of it", rule="stock.msgpack"
            ) from None

    def _typed(self, header: Header, frames: list[Any]) -> Made:
        if header.keys() != _TYPED or type(header["sub-header"]) is not dict:
            malformed("its header is not that of a typed value")
        name = self.type_of(header)
        make = _TYPES.get(name)
        if make is None:
            unreadable(name)
        return make(self, name, header["sub-header"], frames)

    def type_of(self, header: Mapping[str, Any]) -> str:
        """Return the name of the class that *header* holds pickled."""
        pickled = header.get("type-serialized")
        name = name_of(pickled) if type(pickled) is bytes else None
        if name is None:
            malformed("the pickle of its type is not one name")
        return name


class NoExtensions(Reader):
    """Reads msgpack of stock Dask, which has no extensions."""

    def _ext(self, code: int, data: Any) -> NoReturn:
        raise PayloadError(
            f"msgpack extension {code} means nothing in stock Dask", rule="payload.ext"
        )


#: Longer than the pickle of any real class; what is remembered is a peer's.
_CLASS_PICKLE = 1000


def name_of(pickled: bytes) -> str | None:
    """Return the name of a pickled class, or None if *pickled* is something else."""
    return _name_of(pickled) if len(pickled) <= _CLASS_PICKLE else None


@lru_cache(maxsize=256)
def _name_of(pickled: bytes) -> str | None:
    return pickles.global_of(pickled)


def _pickle(header: Header, frames: list[Any]) -> Made:
    flags = header.get("writeable")
    if type(flags) is not tuple or not all(type(flag) is bool for flag in flags):
        malformed("its header is not that of a pickle")
    return {"serializer": "pickle", "writeable": list(flags)}, frames


def _unsent(frames: list[Any]) -> NoReturn:
    """Raise the error that a stock peer sends in place of a value that it may not serialize."""
    said = bytes(frames[0][: _SAID * 4]).decode("utf-8", "replace") if frames else ""
    said = "".join(char if char.isprintable() else " " for char in said)[:_SAID]
    raise PayloadError(
        f"the cluster could send this value only as a pickle, which was not asked for: {said}",
        rule="stock.unsent",
        fix="Convert it on the cluster to numbers, text or NumPy arrays, as .to_numpy() or"
        " float(...) do; or run the cluster on safeser://, which carries many more types.",
    )


# -- classes that are read as stock Dask writes them ----------------------------------------------


def _bytes(own: Translator, name: str, meta: Header, frames: list[Any]) -> Made:
    if meta:
        malformed("bytes have no description")
    return arrays.typed(name, {}), [own.run(frames)]


#: By the name that the pickle of a class holds. Dask makes a plain array of a memory map, too.
_TYPES: dict[str, Callable[[Translator, str, Header, list[Any]], Made]] = {
    "builtins:bytes": _bytes,
    "builtins:bytearray": _bytes,
    **dict.fromkeys(
        ("numpy:ndarray", "numpy:memmap"),
        lambda _, __, meta, frames: arrays.translated(meta, frames),
    ),
}
