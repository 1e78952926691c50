"""Fetch pandas objects from a stock cluster as safeser's typed values.

The one rule: one reader. Stock Dask sends pandas objects only as pickles, which a guarded client
never opens; but the cluster runs what its client submits. So the client submits
:func:`frame_writer`, which writes a value there exactly as family ``dask`` writes it, and reads the
answer as it reads any typed value: same checks, same bounds of :mod:`safeser.types`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from safeser import families
from safeser.dask.contents.unreadable import unreadable
from safeser.errors import PayloadError
from safeser.families import plain, tree
from safeser.gate.values import Grant, Limits

__all__ = ["frame_writer", "rebuild_value"]

#: Arrays came because policy lets family dask in; what they spell is of no other family.
_GRANT = Grant(context="", families=("dask",))

#: What :func:`frame_writer` writes; a guarded client reads nothing else from such an answer.
_TYPES = frozenset(
    {
        "datetime:timedelta",
        "numpy:generic",
        "numpy:ndarray",
        "numpy:str_",
        "pandas:DataFrame",
        "pandas:Index",
        "pandas:MultiIndex",
        "pandas:NA",
        "pandas:NaT",
        "pandas:RangeIndex",
        "pandas:Series",
        "pandas:Timedelta",
        "pandas:Timestamp",
    }
)
_UNTYPED = frozenset({"msgpack", "collection"})


def frame_writer() -> Callable[[Any], list[Any] | None]:
    """Return the function that the cluster runs: a value to a typed header and its frames.

    It is local, so that it travels by value: the cluster has no safeser. It returns arrays of
    bytes, the header in msgpack first, or None for a value that it cannot write exactly.
    """

    def take(value: Any) -> list[Any] | None:
        import datetime as dt
        import zoneinfo

        import msgpack
        import numpy as np
        import pandas as pd

        plain_types = {type(None), bool, int, float, str, bytes}

        # -- values: each function returns a header and its frames -------------------------------

        def memory(array: Any) -> Any:
            return np.ascontiguousarray(array).reshape(-1).view("u1")

        def packed(x: Any) -> Any:
            if type(x) is tuple:
                return [msgpack.ExtType(1, b""), *map(packed, x)]
            if type(x) is list:
                return x if {*map(type, x)} <= plain_types else [*map(packed, x)]
            if type(x) is dict and {*map(type, x)} <= plain_types:
                return {key: packed(each) for key, each in x.items()}
            if type(x) not in plain_types:
                raise TypeError(type(x))
            return x

        def encoded(x: Any) -> bytes:
            made: bytes = msgpack.packb(packed(x))
            return made

        def holding(header: Any, frames: Any, children: Any) -> Any:
            header["sub-headers"] = [inner for inner, _ in children]
            header["frame-lengths"] = [len(own) for _, own in children]
            return header, [*frames, *(frame for _, own in children for frame in own)]

        def typed(name: str, meta: Any, frames: Any = (), children: Any = ()) -> Any:
            header = {"serializer": "dask", "type": name, "sub-header": meta}
            return holding(header, frames, children) if children else (header, [*frames])

        def plain_or_parts(x: Any) -> Any:
            try:
                return {"serializer": "msgpack"}, [np.frombuffer(encoded(x), "u1")]
            except TypeError:
                if type(x) not in (list, tuple, dict):
                    raise
            members = [tuple(x), *x.values()] if type(x) is dict else x
            header = {"serializer": "collection", "type": type(x).__name__}
            return holding(header, [], [send(each) for each in members])

        def dtype_of(kind: Any) -> Any:
            order = kind.str[0]
            if kind.kind in "biufc":
                return f"{order}{kind.char}{kind.itemsize}"
            if kind.kind in "SU":
                return [kind.kind, kind.itemsize, order]
            unit, step = np.datetime_data(kind)  # TypeError if it is no time
            if step != 1:
                raise TypeError(kind)
            return f"{order}{kind.kind}8[{unit}]"

        def array(x: Any) -> Any:
            turned = x.flags.f_contiguous and not x.flags.c_contiguous
            meta = {"shape": list(x.shape), "order": "F" if turned else "C"}
            meta |= {"writeable": x.flags.writeable, "dtype": dtype_of(x.dtype)}
            return typed("numpy:ndarray", meta, [memory(x.T if turned else x)])

        def scalar(x: Any) -> Any:
            if type(x) is np.str_:
                return typed("numpy:str_", {}, children=[send(str.__str__(x))])
            return typed("numpy:generic", {"dtype": dtype_of(x.dtype), "data": x.tobytes()})

        def moment(x: Any) -> Any:
            meta = {"value": int(x.asm8.view("i8")), "unit": x.unit}
            if type(x) is pd.Timestamp:
                meta |= {"zone": zone_of(x.tz), "fold": x.fold}
            return typed(f"pandas:{type(x).__name__}", meta)

        def zone_of(zone: Any) -> Any:
            if zone is None:
                return None
            if type(zone) is dt.timezone:
                offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # of no stub
                return [offset.days, offset.seconds, offset.microseconds, *(name or [None])]
            listed = ["pytz"] if type(zone).__module__.split(".")[0] == "pytz" else []
            key = zone.zone if listed else getattr(zone, "key", None)
            if type(key) is not str or not (listed or type(zone) is zoneinfo.ZoneInfo):
                raise TypeError(type(zone))
            return [*listed, key]

        def send(x: Any) -> Any:
            if type(x) in (pd.DataFrame, pd.Series) or isinstance(x, pd.Index):
                return Described().value(x)
            if type(x) is np.ndarray:
                return array(x)
            if isinstance(x, np.generic):
                return scalar(x)
            if x is pd.NA or x is pd.NaT:
                return typed("pandas:NA" if x is pd.NA else "pandas:NaT", {})
            if type(x) in (pd.Timestamp, pd.Timedelta):
                return moment(x)
            if type(x) is dt.timedelta:
                value = encoded((x.days, x.seconds, x.microseconds))
                return typed("datetime:timedelta", {"value": value})
            return plain_or_parts(x)

        # -- one object of pandas': buffers and objects in the order of its description ----------

        class Described:
            def __init__(self) -> None:
                self.frames: list[Any] = []
                self.children: list[Any] = []

            def value(self, x: Any) -> Any:
                kind = type(x).__name__
                if type(x) is pd.DataFrame:
                    meta = self.about(x)
                    meta["columns"] = self.index(x.columns)
                    meta["blocks"] = [self.block(x, places) for places in self.groups(x)]
                elif type(x) is pd.Series:
                    meta = self.about(x)
                    meta["name"] = self.name(x.name)
                    meta["values"] = self.column(x.array)
                else:
                    meta = {"index": self.index(x)}
                    kind = kind if kind in ("RangeIndex", "MultiIndex") else "Index"
                return typed(f"pandas:{kind}", meta, self.frames, self.children)

            def child(self, x: Any) -> None:
                self.children.append(send(x))

            def name(self, x: Any) -> Any:
                if x is None or (type(x) is str and x.isprintable() and len(x) < 1000):
                    return x
                self.child(x)
                return []

            def numbers(self, x: Any) -> Any:
                self.frames.append(memory(x))
                return [x.dtype.str, 1]

            def about(self, x: Any) -> Any:
                if x.attrs:
                    self.child(x.attrs)
                unique = not x.flags.allows_duplicate_labels
                return {"index": self.index(x.index), "attrs": bool(x.attrs), "unique": unique}

            def groups(self, x: Any) -> Any:
                """Return positions of columns, together where one array of NumPy's holds them."""
                found: dict[Any, list[int]] = {}
                for at, kind in enumerate(x.dtypes):
                    numbers = isinstance(kind, np.dtype) and kind.kind != "O"
                    found.setdefault(kind.str if numbers else at, []).append(at)
                return found.values()

            def block(self, x: Any, places: list[int]) -> Any:
                if len(places) == 1:
                    return [self.column(x.iloc[:, places[0]].array), places[0], 1, 1]
                values = x.iloc[:, places].to_numpy()
                turned = values.flags.c_contiguous  # a row lies behind the other
                key, _ = self.numbers(values if turned else values.T)
                self.frames.append(memory(np.array(places, "<i8")))
                return [["numbers", key, 3 if turned else 1], None, len(places), 0]

            def column(self, x: Any) -> Any:
                kind = x.dtype
                if isinstance(kind, pd.CategoricalDtype):
                    inner = self.index(kind.categories)
                    return ["categories", inner, kind.ordered, *self.numbers(np.asarray(x.codes))]
                if isinstance(kind, pd.StringDtype):
                    return ["text", *self.text(x)]
                if isinstance(kind, pd.DatetimeTZDtype):
                    utc = np.asarray(x.tz_convert(None))
                    return ["dates", *self.numbers(utc), zone_of(kind.tz)]
                if isinstance(kind, pd.PeriodDtype):
                    return ["periods", *self.numbers(x.asi8), self.offset(kind.freq)]
                if isinstance(kind, pd.IntervalDtype):
                    ends = [self.column(pd.Series(end).array) for end in (x.left, x.right)]
                    return ["intervals", kind.closed, *ends, None, None]
                if type(x).__name__ in ("IntegerArray", "FloatingArray", "BooleanArray"):
                    data = self.numbers(x.to_numpy(kind.numpy_dtype, na_value=0))
                    return ["masked", *data, self.numbers(np.asarray(x.isna()))[1]]
                if type(x) is pd.arrays.NumpyExtensionArray:
                    kind = kind.numpy_dtype
                data = np.asarray(x)
                if not isinstance(kind, np.dtype) or data.dtype != kind:
                    raise TypeError(kind)
                if kind.kind != "O":
                    return ["numbers", *self.numbers(data)]
                return self.objects(data.tolist())

            def objects(self, x: Any) -> Any:
                if {*map(type, x)} <= {str, type(None)} and 2 * len(held := {*x}) <= len(x):
                    codes = {text: at for at, text in enumerate(held)}
                    key, _ = self.numbers(np.array([codes[text] for text in x], "u4"))
                    self.child([*held])
                    return ["coded", 1, key, None]
                self.child(x)
                return ["objects", 1, None]

            def text(self, x: Any) -> Any:
                named = x.dtype.na_value is not pd.NA
                if x.dtype.storage == "python":
                    gone = x.isna()
                    self.child([None if no else each for each, no in zip(x, gone, strict=True)])
                    return ["python", named, None]
                whole = x.__arrow_array__()
                chunks = [self.chunk(each) for each in getattr(whole, "chunks", [whole])]
                return [str(whole.type), named, chunks]

            def chunk(self, x: Any) -> Any:
                if not len(x):
                    return [0, False]
                _, ends, data = x.buffers()
                size = {"string": "i4", "large_string": "i8"}[str(x.type)]
                ends = np.frombuffer(ends, size)[x.offset : x.offset + len(x) + 1]
                if x.null_count:
                    self.frames.append(np.packbits(np.asarray(x.is_valid()), bitorder="little"))
                self.frames.append(memory(ends - ends[0]))
                held = np.frombuffer(data or b"", "u1")[ends[0] : ends[-1]]
                self.frames.append(held)
                return [len(x), x.null_count > 0]

            def offset(self, x: Any) -> Any:
                if x is None:
                    return None
                if type(x).__name__ == "DateOffset":
                    return ["DateOffset", x.n, x.normalize, dict(x.kwds)]
                _, (count, normalize, *parts) = x.__reduce__()[:2]
                held = parts
                if not {*map(type, parts)} <= {type(None), bool, int, str}:
                    self.child(tuple(parts))
                    held = None
                return [type(x).__name__, count, normalize, held]

            def index(self, x: Any) -> Any:
                kind = type(x).__name__
                if getattr(pd, kind, None) is not type(x):
                    raise TypeError(type(x))
                if type(x) is pd.MultiIndex:
                    return self.levels(x)
                name = self.name(x.name)
                if type(x) is pd.RangeIndex:
                    return ["range", name, x.start, x.stop, x.step]
                dated = type(x) in (pd.DatetimeIndex, pd.TimedeltaIndex)
                freq = self.offset(x.freq) if dated else None
                return [kind, name, freq, self.column(x.array)]

            def levels(self, x: Any) -> Any:
                order = None if x.sortorder is None else int(x.sortorder)
                names, levels, codes = [self.name(name) for name in x.names], [], []
                for level, code in zip(x.levels, x.codes, strict=True):
                    levels.append(self.index(level.rename(None)))
                    codes.append(self.numbers(np.asarray(code)))
                return ["multi", names, order, levels, codes]

        try:
            header, frames = send(value)
            head = msgpack.packb(header)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None
        return [np.frombuffer(head, "u1"), *frames]

    return take


def rebuild_value(arrays: Any, limits: Limits) -> Any:
    """Return the value that a cluster wrote by :func:`frame_writer`.

    :param arrays: what came as the result of that task, from a cluster that may be hostile.
    :raises PayloadError: if it is not a header and its frames, is of another type than
        :func:`frame_writer` writes, or is out of any bound of a typed value.
    """
    if type(arrays) is not list or not arrays or not all(map(_is_run, arrays)):
        _malformed("its parts are not arrays of bytes")
    head, *frames = arrays
    header = plain.decode(head.tobytes(), limits=limits)
    if type(header) is not dict:
        _malformed("its header is no dictionary")
    for node in tree.parse(header, frames, limits=limits):
        if node.serializer not in _UNTYPED and node.type not in _TYPES:
            unreadable(node.type or node.serializer)
    return families.deserialize(header, frames, _GRANT, limits=limits)


def _is_run(array: Any) -> bool:
    """Whether *array* is bytes in a row: one byte that is seen many times takes no memory."""
    return (
        type(array) is np.ndarray
        and array.dtype == np.uint8
        and array.ndim == 1
        and bool(array.flags.c_contiguous)
    )


def _malformed(problem: str) -> NoReturn:
    raise PayloadError(
        f"the cluster's answer is not a value that safeser's function wrote: {problem}",
        rule="stock.apart",
        fix="An unmodified Dask worker does not send this. If the cluster is yours, report the type"
        " of the value and the cluster's versions of distributed and pandas.",
    )
