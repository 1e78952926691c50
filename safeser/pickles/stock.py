"""The only module that pickles and unpickles by CPython: write pickles, and load granted code.

The one rule: :func:`load_code` alone passes a peer's bytes to a stock unpickler, and only from a
sender that is granted code.
"""

from __future__ import annotations

import copyreg
import inspect
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from functools import WRAPPER_ASSIGNMENTS, lru_cache, partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, ClassVar, NewType

import cloudpickle

from safeser.errors import PayloadError
from safeser.trace.probe import Done, is_traced, size_of, watch

__all__ = ["PickleError", "Reductions", "dumps", "is_sent_by_value", "load_code", "take_apart"]

#: What compiled classes raise at a layout that is not theirs.
PickleError = pickle.PickleError

_PROTOCOL = 5

#: Where the items begin and the entries end in what a reducer returns.
_ITEMS, _ENTRIES_END = 3, 5

#: Objects of one pickle whose reductions are kept.
_MOST_KEPT = 10_000


def dumps(
    obj: Any,
    *,
    buffer_callback: Callable[[Any], object] | None = None,
    code: bool = False,
    persistent_id: Callable[[Any], Any] | None = None,
    reductions: Reductions | None = None,
) -> bytes:
    """Return *obj* as a pickle of protocol 5, or raise :class:`PayloadError`.

    :param buffer_callback: called with each out-of-band ``pickle.PickleBuffer``, in order, once
        the pickle is complete.
    :param code: fall back to cloudpickle, which writes functions and classes by value, for what
        plain pickle can't write and what it could only name inside ``__main__`` or a module that
        is registered for pickling by value. Only a receiver who grants this sender code loads it.
    :param persistent_id: returns an id for what the receiver knows already, else None.
    :param reductions: gets what reducers return; not together with *persistent_id*.
    """
    buffers: list[Any] = []
    out_of_band = buffer_callback is not None
    plain, by_value_too = _writers(persistent_id) if reductions is None else reductions.writers()
    try:
        written = _dump(plain, obj, buffers, out_of_band=out_of_band)
        by_value = code and (b"__main__" in written or _registered_by_value(obj))
    except Exception as error:  # reducers are the object's own code and may raise anything
        if not code:
            raise PayloadError(
                f"an object of type {type(obj).__qualname__}, or something in it,"
                " cannot be pickled by reference",
                rule="pickle.unwritable",
                fix="Functions and classes made in a script or notebook need family cloudpickle."
                " The error that is chained to this one names what it was.",
            ) from error
        by_value = True
    if by_value:
        try:
            written = _dump(by_value_too, obj, buffers, out_of_band=out_of_band)
        except Exception as error:  # as above
            raise PayloadError(
                f"an object of type {type(obj).__qualname__} cannot be pickled",
                rule="pickle.unwritable",
            ) from error
    if buffer_callback is not None:
        for buffer in buffers:
            buffer_callback(buffer)
    return written


class Reductions:
    """What reducers returned of the objects in one pickle, so that nothing has to call them again.

    It keeps those objects alive.
    """

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Any, Any]] = {}

    def get(self, obj: Any) -> Any:
        """Return what the reducer of *obj* returned, or None if that is not known.

        In place of iterators there are lists.
        """
        known = self.kept.get(id(obj))
        return None if known is None else known[1]

    def writers(self) -> tuple[Callable[..., bytes], Callable[..., bytes]]:
        """Return the writers of plain pickles and of pickles with code by value, as they record."""
        return partial(self._dump, _Recording), partial(self._dump, _RecordingByValue)

    def _dump(self, pickler: Any, obj: Any, **options: Any) -> bytes:
        file = io.BytesIO()
        made = pickler(file, **options)
        made.kept = self.kept
        made.dump(obj)
        return file.getvalue()


def _recorded(obj: Any, kept: dict[int, tuple[Any, Any]]) -> Any:
    """Return what pickle would get of *obj*, for ``reducer_override``, and keep it."""
    reducer = copyreg.dispatch_table.get(type(obj))
    reduced = obj.__reduce_ex__(_PROTOCOL) if reducer is None else reducer(obj)
    if len(kept) >= _MOST_KEPT:
        return reduced
    if type(reduced) is tuple and len(reduced) > _ITEMS:
        # Its items and entries are iterators, each of which pickle takes to its end.
        head, tail = reduced[:_ITEMS], reduced[_ITEMS:_ENTRIES_END]
        lists = [None if each is None else list(each) for each in tail]
        rest = reduced[_ENTRIES_END:]
        kept[id(obj)] = obj, (*head, *lists, *rest)
        return (*head, *(None if each is None else iter(each) for each in lists), *rest)
    kept[id(obj)] = obj, reduced
    return reduced


#: Classes whose objects pickle writes itself, as it does functions: classes by name, and exceptions
#: because libraries register reducers of them that add tracebacks.
_LEFT = (type, BaseException)


class _Recording(pickle.Pickler):
    """Writes a plain pickle and records what reducers return."""

    kept: dict[int, tuple[Any, Any]]

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        if cls is FunctionType or cls is BuiltinFunctionType or issubclass(cls, _LEFT):
            return NotImplemented
        return _recorded(obj, self.kept)


class _Caching:
    """What is written as ``lru_cache(maxsize, typed)``, to be called with the function."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._given = parameters["maxsize"], parameters["typed"]

    def __call__(self, function: Any) -> Any:
        return lru_cache(*self._given)(function)

    def __reduce__(self) -> tuple[Any, ...]:
        return lru_cache, self._given


def _cached(obj: Any) -> Any:
    """Return how to write a function with a cache that workers cannot import: without content."""
    if cloudpickle.cloudpickle._lookup_module_and_qualname(obj) and not is_sent_by_value(
        obj.__module__
    ):
        return obj.__reduce__()
    state = {name: each for name, each in vars(obj).items() if name not in _REMADE}
    return _Caching(obj.cache_parameters()), (obj.__wrapped__,), state or None


def _new_type(obj: Any) -> Any:
    if cloudpickle.cloudpickle._lookup_module_and_qualname(obj):
        return obj.__reduce__()
    return NewType, (obj.__name__, obj.__supertype__), vars(obj)


_REMADE = {"cache_parameters", "__wrapped__", "__annotations__", *WRAPPER_ASSIGNMENTS}


class _ByValue(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no types
    """Writes by content, too, what says itself that it is a name in its module."""

    _dispatch_table: ClassVar[dict[Any, Any]] = {
        **cloudpickle.Pickler._dispatch_table,
        type(lru_cache(len)): _cached,
        NewType: _new_type,
    }
    dispatch_table: ClassVar[Any] = ChainMap(_dispatch_table, copyreg.dispatch_table)


def _written(pickler: Any, obj: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    pickler(file, **options).dump(obj)
    return file.getvalue()


class _RecordingByValue(_ByValue):
    """Writes a pickle with code by value and records what reducers of other objects return."""

    kept: dict[int, tuple[Any, Any]]

    def reducer_override(self, obj: Any) -> Any:
        made = super().reducer_override(obj)
        if made is not NotImplemented:
            return made
        cls = type(obj)
        named = cls is FunctionType or cls is BuiltinFunctionType or issubclass(cls, _LEFT)
        if named or cls in self._dispatch_table:
            return NotImplemented
        return _recorded(obj, self.kept)


class _TakingApart(pickle.Pickler):
    """Writes one pickle, with numbers in place of the values that are sent separately."""

    def __init__(self, file: io.BytesIO, keep: Callable[[Any], bool], is_apart: Any) -> None:
        super().__init__(file, protocol=_PROTOCOL, buffer_callback=keep)
        self.is_apart = is_apart
        self.apart: list[Any] = []
        self.numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not self.is_apart(obj):
            return None
        number = self.numbers.setdefault(id(obj), len(self.apart))
        if number == len(self.apart):
            self.apart.append(obj)
        return number


def take_apart(
    obj: Any,
    *,
    keep: Callable[[pickle.PickleBuffer], bool],
    reducers: Mapping[type, Callable[[Any], Any]],
    is_apart: Callable[[Any], bool] | None,
) -> tuple[bytes, list[Any]]:
    """Return *obj* as a plain pickle of protocol 5, and the values that are separate from it.

    :param keep: called with each buffer, in order; tells whether it is to stand in the pickle.
    :param reducers: by exact class, what returns what ``__reduce_ex__`` would.
    :param is_apart: tells of what the pickle has its number alone, as a persistent id.
    :raises PayloadError: it cannot be pickled.
    """
    file = io.BytesIO()
    if is_apart is None:
        pickler = pickle.Pickler(file, protocol=_PROTOCOL, buffer_callback=keep)
    else:
        pickler = _TakingApart(file, keep, is_apart)
    if reducers:
        table: Any = ChainMap(dict(reducers), copyreg.dispatch_table)
        pickler.dispatch_table = table
    try:
        pickler.dump(obj)
    except PayloadError:
        raise
    except Exception as error:  # reducers are the object's own code and may raise anything
        raise PayloadError(
            "it, or something in it, cannot be taken apart", rule="pickle.unwritable"
        ) from error
    return file.getvalue(), getattr(pickler, "apart", [])


def _writers(
    persistent_id: Callable[[Any], Any] | None,
) -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    """Return the writers of plain pickles and of pickles with code by value."""
    if persistent_id is None:
        return pickle.dumps, partial(_written, _ByValue)
    named = persistent_id
    methods: dict[str, Any] = {"persistent_id": lambda _, obj: named(obj)}
    plain, by_value = (type("Pickler", (base,), methods) for base in (pickle.Pickler, _ByValue))
    return partial(_written, plain), partial(_written, by_value)


def _dump(dump: Callable[..., bytes], obj: Any, buffers: list[Any], *, out_of_band: bool) -> bytes:
    buffers.clear()
    return dump(obj, protocol=_PROTOCOL, buffer_callback=buffers.append if out_of_band else None)


def _registered_by_value(obj: Any) -> bool:
    by_value = cloudpickle.list_registry_pickle_by_value()
    return bool(by_value) and getattr(inspect.getmodule(obj), "__name__", None) in by_value


def is_sent_by_value(module: str) -> bool:
    """Tell whether :func:`dumps` with *code* writes what *module* defines by value, as asked for.

    Asked for by ``cloudpickle.register_pickle_by_value``, for a package with all of its modules.
    """
    by_value = cloudpickle.list_registry_pickle_by_value()
    return any(f"{module}.".startswith(f"{each}.") for each in by_value)


def load_code(data: bytes, *, buffers: Sequence[Any] = ()) -> Any:
    """Unpickle *data* with CPython's own unpickler. **This runs whatever the sender wrote.**

    There are no limits and no profile, and nothing is left of any other check once it starts: the
    sender can act as this process. Call it only for a payload whose sender policy grants code, on
    exactly the bytes that were decided and recorded. It raises whatever loading raises.
    """
    if not is_traced():
        return pickle.loads(data, buffers=buffers)  # noqa: S301 - granted code, see above
    size = len(data) + size_of(buffers)
    return watch(
        "deserialize",
        lambda: pickle.loads(data, buffers=buffers),  # noqa: S301 - as above
        lambda made: Done(made, "cloudpickle", size),
    )
