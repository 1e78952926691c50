"""The shapes that a field of Dask's protocol may have.

The one rule: a shape tests plain data, returns a bool, and never raises. It keeps text from a place
where Dask iterates over keys, an object of a peer's from the place of a name or number, a path from
the place of a file's name, and an address of another scheme from everywhere. What a handler does
with a value of the right shape is Dask's.

Spelling: ``=word`` (that very text), ``text``, ``text?`` (or None), ``text*`` (a sequence or set),
``key->number`` (a mapping), ``flag|count`` (one of several). ``*`` binds closest, then ``->`` (to
the right), then ``|``, ``?``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from numbers import Integral
from types import MappingProxyType
from typing import Any

__all__ = ["ANYTHING", "SURE", "UNLESS_NONE", "Shape", "fields", "meant", "shape"]

#: Tells whether a value has the shape.
Shape = Callable[[Any], bool]

#: Far more than any cluster has of bytes, seconds or tasks, and still a float without rounding.
_MOST = 1 << 53

#: Longer than any real address or status.
_WORD = 1000

#: Longest name of a file that usual file systems take, in bytes.
_FILE = 255

#: What separates folders, drives and streams anywhere that Python runs, or ends a name in C.
_NOT_IN_NAMES = frozenset("/\\:\0")

#: What a sequence of many items arrives as, and what plain Python code may hand in.
_MANY = (tuple, list, set, frozenset)

#: The only scheme whose addresses a process on safeser may be told to connect to.
_SCHEME = "safeser://"


def _anything(value: Any) -> bool:
    del value
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _word(value: Any) -> bool:
    # Servers print names that they are told, of clients and workers first of all.
    return isinstance(value, str) and len(value) <= _WORD and value.isprintable()


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _integer(value: Any) -> bool:
    if value.__class__ is int:  # as nearly all are; to ask for any integer is slow
        return -_MOST <= value <= _MOST
    return isinstance(value, Integral) and not _flag(value) and -_MOST <= int(value) <= _MOST


def _number(value: Any) -> bool:
    # NaN compares as false with everything, and is refused like infinity.
    if value.__class__ is float or value.__class__ is int or isinstance(value, float):
        return bool(-_MOST <= value <= _MOST)
    return _integer(value)


def _count(value: Any) -> bool:
    return _integer(value) and value >= 0


def _key(value: Any) -> bool:
    if value.__class__ is str:
        return True
    if isinstance(value, tuple):
        return all(map(_key, value))
    return isinstance(value, str | bytes | float | Integral)


def _address(value: Any) -> bool:
    if not _word(value):
        return False
    return "://" not in value or value.startswith(_SCHEME)


def _worker(value: Any) -> bool:
    """A worker's address, or the name that it was given, which may be a number."""
    return _address(value) if isinstance(value, str) else _key(value)


def _file(value: Any) -> bool:
    """The name of a file as such: joined to a folder, it leads nowhere else.

    An absolute path would take the folder's place, and a step up leave it.
    """
    if not _word(value) or value in ("", ".", ".."):
        return False
    return _NOT_IN_NAMES.isdisjoint(value) and len(value.encode()) <= _FILE


def _bytes(value: Any) -> bool:
    return isinstance(value, bytes)


_ATOMS: Mapping[str, Shape] = MappingProxyType(
    {
        "any": _anything,
        "event": _anything,  # of a size of its own, see ceilings.py
        "text": _text,
        "word": _word,
        "flag": _flag,
        "number": _number,
        "count": _count,
        "key": _key,
        "address": _address,
        "worker": _worker,
        "file": _file,
        "bytes": _bytes,
    }
)

#: What to write instead, where a shape is narrower than the type that Dask documents.
_MEANT: Mapping[Shape, str] = MappingProxyType(
    {
        _file: "Name a file without any folder: it is written to the folder of its server.",
        _address: f"Name an address that begins with {_SCHEME}.",
    }
)

#: The shape of a field whose content something else decides on.
ANYTHING: Shape = _anything

#: Classes of plain values of which each has the shape, which need not be asked then. Those of
#: optional shapes are added as they are made.
SURE: dict[Shape, frozenset[type]] = {
    _text: frozenset({str}),
    _key: frozenset({str, bytes, int, float, bool}),
    _flag: frozenset({bool}),
    _bytes: frozenset({bytes}),
}

#: What each optional shape asks of a value that is not None.
UNLESS_NONE: dict[Shape, Shape] = {}


@lru_cache(maxsize=256)  # the table spells fewer
def shape(spelt: str) -> Shape:
    """Return the shape that *spelt* stands for; KeyError for one that nothing stands for."""
    if spelt.endswith("?"):
        inner = shape(spelt.removesuffix("?"))
        optional: Shape = lambda value: value is None or inner(value)  # noqa: E731 - as the others
        SURE[optional] = SURE.get(inner, frozenset()) | {type(None)}
        UNLESS_NONE[optional] = inner
        return optional
    if "|" in spelt:
        several = [shape(one) for one in spelt.split("|")]
        return lambda value: any(fits(value) for fits in several)
    if spelt.startswith("="):
        word = spelt.removeprefix("=")
        return lambda value: value.__class__ is str and value == word
    key, arrow, held = spelt.partition("->")
    if arrow:
        name, content = shape(key), shape(held)
        return lambda value: (
            isinstance(value, dict) and all(map(name, value)) and all(map(content, value.values()))
        )
    if spelt.endswith("*"):
        item = shape(spelt.removesuffix("*"))
        return lambda value: isinstance(value, _MANY) and all(map(item, value))
    return _ATOMS[spelt]


def meant(fits: Shape) -> str | None:
    """Return what to write where *fits* was False, if it is more than Dask's documentation has."""
    return _MEANT.get(fits)


def fields(spelt: Iterable[str]) -> dict[str, Shape]:
    """Return the fields that *spelt* lists as ``name:shape``."""
    pairs = (one.partition(":") for one in spelt)
    return {name: shape(content) for name, _, content in pairs}
