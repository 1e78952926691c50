"""What the messages carry: one harmless pickle, in the forms that each wire has for it.

The one rule: the pickle writes its process's id into one file, its marker, and does nothing else;
the file is the proof. One payload is no pickle: an object of a class that is only named, with the
sender's attributes in place of its ``__init__``, which writes the file when it is dropped.
Each attack is one message with a place for it, so that stock Dask and
safeser are sent the same; safeser is sent it in all its own forms besides.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dbm import dumb
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
from distributed.protocol.serialize import Pickled, Serialized

from safeser.dask.wire.codec import PayloadRow
from tests.dask.live.wires import Eager

__all__ = [
    "CANARY",
    "FORMS",
    "Evil",
    "Here",
    "data_of",
    "evil",
    "filled",
    "in_all_forms",
    "in_stock",
    "places",
]


class _Runs:
    def __init__(self, code: str) -> None:
        self._code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (self._code,)


#: Stands in each payload, and in no honest message.
CANARY = "safeser-live-canary-of-payloads"


def evil(marker: Path, then: str = "None") -> bytes:
    """Return a pickle that writes *marker* when it is opened, and then is what *then* evaluates to.

    Where Dask does something with it that would fail for None, nothing looks wrong.
    """
    made = f"__import__('pathlib').Path({str(marker)!r}).write_text(str(__import__('os').getpid()))"
    return pickle.dumps(_Runs(f"({made}, {then})[1]  # {CANARY}"))


@dataclass(frozen=True, slots=True)
class Evil:
    """The place of the payload in a message.

    :param how: how stock Dask takes it there: ``pickled`` (its marker for ``ToPickle``),
        ``opaque`` (``Serialized`` of family pickle), ``bytes``, or a trick with a typed header.
    :param then: what it is once it was opened, as an expression.
    """

    how: str
    then: str = "None"


@dataclass(frozen=True, slots=True)
class Here:
    """The place of something that only a running cluster knows, by its name."""

    name: str


def filled(template: Any, make: Callable[[Any], Any]) -> Any:
    """Return *template* with ``make(place)`` in each place."""
    if isinstance(template, Evil | Here):
        return make(template)
    if isinstance(template, dict):
        return {key: filled(item, make) for key, item in template.items()}
    if isinstance(template, list | tuple):
        return type(template)(filled(item, make) for item in template)
    return template


def places(template: Any) -> set[str]:
    """Return how stock Dask takes the payload, for each place of it in *template*."""
    found: set[str] = set()
    filled(template, lambda place: found.add(getattr(place, "how", "")))
    return found - {""}


# --- stock Dask ---------------------------------------------------------------------------------


def _typed(type_pickle: bytes, sub: dict[str, Any]) -> dict[str, Any]:
    header = {"serializer": "dask", "type": "x", "type-serialized": type_pickle}
    return {**header, "sub-header": sub}


_ARRAY = pickle.dumps(np.ndarray)
_MASKED = pickle.dumps(np.ma.MaskedArray)
_DICT = pickle.dumps(dict)
_PICKLE = {"serializer": "pickle", "writeable": ()}
_ONE = np.ones(1, "i8").tobytes()
_SHAPE = {"dtype": (0, "<i8"), "shape": (1,), "strides": (8,), "writeable": (True,)}
_PLAIN_DICT = {"serializer": "dask", "type-serialized": _DICT, "simple": {}, "complex": {}}
_PART = {"header": _PICKLE, "start": 0, "stop": 1}
_LIST = {"is-collection": True, "type-serialized": "list", "frame-lengths": (1,)}

_DUMB = pickle.dumps(dumb._Database)  # type: ignore[attr-defined]


def _without_init(path: bytes) -> Serialized:
    """Return a database that was changed and never opened: when it goes, it writes its index."""
    name = path.decode()
    said = {"_index": {}, "_modified": True, "_dirfile": name, "_bakfile": f"{name}.bak"}
    sub = {**_PLAIN_DICT, "type-serialized": _DUMB, "simple": {**said, "_mode": 0o600}}
    return Serialized(_typed(_DICT, sub), [])


def data_of(how: str, marker: Path, then: str = "None") -> bytes:
    """Return what goes into a payload that is taken as *how*."""
    if how.removeprefix("stock-") == _WITHOUT_INIT:
        return str(marker).encode()
    return evil(marker, then)


_WITHOUT_INIT = "without-init"

_STOCK: dict[str, Callable[[bytes], Any]] = {
    "bytes": lambda data: data,
    "pickled": lambda data: Pickled({"pickled-obj": data}, []),
    "opaque": lambda data: Serialized(_PICKLE, [data]),
    "dask-type": lambda data: Serialized(_typed(data, {}), [b"x"]),
    "object-array": lambda data: Serialized(_typed(_ARRAY, {"pickle": True}), [data]),
    "custom-dtype": lambda data: Serialized(_typed(_ARRAY, {**_SHAPE, "dtype": (1, data)}), [_ONE]),
    "fill-value": lambda data: Serialized(
        _typed(_MASKED, {"data-header": _SHAPE, "nframes": 1, "fill-value": (True, data)}), [_ONE]
    ),
    "generic-type": lambda data: Serialized(
        _typed(_DICT, {**_PLAIN_DICT, "type-serialized": data}), []
    ),
    "generic-nested": lambda data: Serialized(
        _typed(_DICT, {**_PLAIN_DICT, "complex": {"a": _PART}}), [data]
    ),
    _WITHOUT_INIT: _without_init,
    "collection": lambda data: Serialized({**_LIST, "sub-headers": (_PICKLE,)}, [data]),
    "cuda": lambda data: Serialized({"serializer": "cuda", "type-serialized": data}, [b""]),
    # What Dask sends for exceptions: bytes in a payload of family dask, a pickle in those.
    "dask-bytes": lambda data: Serialized(_typed(pickle.dumps(bytes), {}), [data]),
}


def in_stock(template: Any, marker: Path, here: Callable[[str], Any]) -> Any:
    """Return the message as stock Dask is sent it."""

    def make(place: Any) -> Any:
        if isinstance(place, Here):
            return here(place.name)
        return _STOCK[place.how](data_of(place.how, marker, place.then))

    return filled(template, make)


# --- safeser ------------------------------------------------------------------------------------

_OWN_PICKLE = {"serializer": "pickle", "writeable": []}
_OBJECTS = {"shape": [1], "order": "C", "writeable": True, "dtype": "|O"}


def _row(header: dict[str, Any], *frames: bytes, **more: Any) -> PayloadRow:
    return PayloadRow(header, frames, **more)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _header(how: str) -> Callable[[bytes], Any]:
    """Return what makes the header that stock Dask understands a row of safeser's."""

    def made(data: bytes) -> PayloadRow:
        stock = _STOCK[how](data)
        return PayloadRow(_plain(stock.header), tuple(stock.frames))

    return made


FORMS: dict[str, Callable[[bytes], Any]] = {
    "bytes": lambda data: data,
    "opaque": lambda data: _row(_OWN_PICKLE, data),
    "eager": lambda data: Eager(_row(_OWN_PICKLE, data)),
    "cloudpickle": lambda data: _row({**_OWN_PICKLE, "serializer": "cloudpickle"}, data),
    "failed": lambda data: _row(_OWN_PICKLE, data, failed=True),
    "author": lambda data: _row(_OWN_PICKLE, data, author="alice"),
    "own-array": lambda data: _row(
        {"serializer": "dask", "type": "numpy:ndarray", "sub-header": _OBJECTS}, data
    ),
    "in-msgpack": lambda data: _row({"serializer": "msgpack"}, msgpack.packb(data)),
    "eager-in-msgpack": lambda data: Eager(_row({"serializer": "msgpack"}, msgpack.packb(data))),
    "marker": lambda data: {"__Pickled__": 1, "__Serialized__": True, "data": data},
    **{f"stock-{how}": _header(how) for how in _STOCK if how not in ("bytes", "pickled")},
}

#: Beside these the forms that a place has by itself are enough for most attackers.
_SHORT = ("bytes", "eager", "marker")


def in_all_forms(
    template: Any, marker: Callable[[str], Path], here: Callable[[str], Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the message with the most likely forms of the payload and the place's own, by name."""
    own = {f"stock-{how}" for how in places(template)}
    names = [name for name in FORMS if name in _SHORT or name in own]
    for form in names if own else ["as-is"]:

        def make(place: Any, form: str = form) -> Any:
            if isinstance(place, Here):
                return here(place.name)
            return FORMS[form](data_of(form, marker(form), place.then))

        yield form, filled(template, make)
