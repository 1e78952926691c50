"""pandas objects of a stock cluster: taken apart there into NumPy arrays, and put together here.

The one rule: what comes is arrays and one JSON text, whatever it was made of. Stock Dask sends
frames only as pickles, which a guarded client never opens; but the cluster runs what its client
sends. So the client submits :func:`taking_apart` for such a result, and pandas' own constructors,
which check lengths, codes and names, build it again here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from safeser.errors import PayloadError

__all__ = ["put_together", "taking_apart"]

#: Levels of lists, indexes and columns in each other.
_DEPTH = 50


def taking_apart() -> Callable[[Any], list[Any] | None]:
    """Return the function that the cluster runs: a value to arrays, the first of them JSON.

    It is local, so that it travels by value: nobody there has this module. It returns None for a
    value that it cannot take apart.
    """

    def take(value: Any) -> list[Any] | None:
        import json
        import math

        import numpy as np
        import pandas as pd

        arrays: list[Any] = [None]
        plain = (str, bool, int, type(None))

        def put(array: Any) -> int:
            if array.dtype.kind not in "biufcMmU":
                raise TypeError(array.dtype)
            arrays.append(np.ascontiguousarray(array))
            return len(arrays) - 1

        def label(name: Any) -> Any:
            if type(name) is tuple:
                return {"labels": [label(each) for each in name]}
            if isinstance(name, np.generic):
                name = name.item()
            if type(name) not in plain:
                raise TypeError(type(name))
            return name

        def text(values: Any) -> Any:
            data = [each.encode() if isinstance(each, str) else None for each in values]
            lengths = np.array([-1 if each is None else len(each) for each in data], "i8")
            return put(lengths), put(np.frombuffer(b"".join(filter(None, data)), "u1"))

        def column(array: Any) -> dict[str, Any]:
            kind = array.dtype
            if isinstance(kind, pd.CategoricalDtype):
                codes = np.asarray(array.codes)
                inner = index(kind.categories)
                return {
                    "kind": "category",
                    "codes": put(codes),
                    "of": inner,
                    "ordered": kind.ordered,
                }
            if isinstance(kind, pd.StringDtype):
                missing = "nan" if isinstance(kind.na_value, float) else "NA"
                return {"kind": "text", "at": text(array), "missing": missing}
            if isinstance(kind, pd.DatetimeTZDtype):
                naive = np.asarray(array.tz_convert(None))
                return {"kind": "zone", "at": put(naive), "zone": str(kind.tz)}
            if isinstance(kind, pd.PeriodDtype):
                return {
                    "kind": "period",
                    "at": put(np.asarray(array.asi8)),
                    "freq": array.freqstr,
                }
            if isinstance(kind, pd.IntervalDtype):
                ends = [column(pd.Series(end).array) for end in (array.left, array.right)]
                return {"kind": "interval", "of": ends, "closed": kind.closed}
            if type(array).__name__ in ("IntegerArray", "FloatingArray", "BooleanArray"):
                data = array.to_numpy(kind.numpy_dtype, na_value=0)
                mask = np.asarray(array.isna())
                return {"kind": "masked", "at": put(data), "mask": put(mask)}
            kind = getattr(kind, "numpy_dtype", kind)  # of pandas' wrapper around an array
            data = np.asarray(array)
            if not isinstance(kind, np.dtype) or data.dtype != kind:
                raise TypeError(kind)
            if kind.kind == "O":
                return {"kind": "objects", "of": [value_of(each) for each in data]}
            return {"kind": "array", "at": put(data)}

        def index(own: Any) -> dict[str, Any]:
            names = [label(name) for name in own.names]
            if isinstance(own, pd.RangeIndex):
                return {"kind": "range", "names": names, "range": [own.start, own.stop, own.step]}
            if isinstance(own, pd.MultiIndex):
                levels = [index(level) for level in own.levels]
                codes = [put(np.asarray(code)) for code in own.codes]
                return {"kind": "levels", "names": names, "of": levels, "codes": codes}
            freq = getattr(own, "freqstr", None) if isinstance(own, pd.DatetimeIndex) else None
            return {"kind": "index", "names": names, "of": column(own.array), "freq": freq}

        def value_of(each: Any) -> Any:
            if type(each) in plain:
                return each
            if type(each) is float:
                return each if math.isfinite(each) else {"kind": "float", "text": repr(each)}
            if type(each) in (list, tuple):
                return {"kind": type(each).__name__, "of": [value_of(inner) for inner in each]}
            if type(each) is dict:
                pairs = [[value_of(k), value_of(v)] for k, v in each.items()]
                return {"kind": "dict", "of": pairs}
            if isinstance(each, np.generic):
                return {"kind": "scalar", "at": put(np.array([each]))}
            if type(each) is np.ndarray:
                return {"kind": "array", "at": put(each)}
            if type(each) is pd.Series:
                return {
                    "kind": "series",
                    "index": index(each.index),
                    "of": column(each.array),
                    "name": label(each.name),
                }
            if type(each) is pd.DataFrame:
                columns = [column(each.iloc[:, n].array) for n in range(each.shape[1])]
                return {
                    "kind": "frame",
                    "index": index(each.index),
                    "of": columns,
                    "columns": index(each.columns),
                }
            if isinstance(each, pd.Index):
                return index(each)
            raise TypeError(type(each))

        try:
            said = json.dumps(value_of(value), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            return None
        arrays[0] = np.frombuffer(said, "u1")
        return arrays

    return take


def put_together(arrays: Sequence[Any]) -> Any:
    """Return the value that a cluster took apart.

    :raises PayloadError: if *arrays* are not what :func:`taking_apart` makes.
    """
    try:
        return _Builder(arrays).value(json.loads(bytes(arrays[0])), 0)
    except Exception as error:
        # pandas' constructors raise what they like about values of a peer.
        raise PayloadError(
            f"a value that the cluster took apart does not fit together: {type(error).__name__}",
            rule="stock.apart",
            fix="If the cluster is yours, report which value it was.",
        ) from None


class _Builder:
    """Builds one value from arrays and their description."""

    def __init__(self, arrays: Sequence[Any]) -> None:
        import pandas as pd

        self.pd: Any = pd
        self.arrays = arrays

    def array(self, place: Any) -> Any:
        found = self.arrays[place]
        if type(found) is not np.ndarray or type(place) is not int:
            raise TypeError
        return found

    def value(self, said: Any, depth: int) -> Any:
        if depth > _DEPTH:
            raise ValueError
        if not isinstance(said, dict):
            return said
        inner = depth + 1
        match said["kind"]:
            case "float":
                return float(said["text"])
            case "list":
                return [self.value(each, inner) for each in said["of"]]
            case "tuple":
                return tuple(self.value(each, inner) for each in said["of"])
            case "dict":
                return {self.value(k, inner): self.value(v, inner) for k, v in said["of"]}
            case "scalar":
                return self.array(said["at"])[0]
            case "array":
                return self.array(said["at"])
            case "series":
                return self.pd.Series(
                    self.column(said["of"], inner),
                    index=self.index(said["index"], inner),
                    name=_label(said["name"]),
                )
            case "frame":
                return self.frame(said, inner)
        return self.index(said, inner)

    def frame(self, said: Any, depth: int) -> Any:
        index = self.index(said["index"], depth)
        columns = self.index(said["columns"], depth)
        parts = dict(enumerate(self.column(each, depth) for each in said["of"]))
        if any(len(part) != len(index) for part in parts.values()):
            raise ValueError
        made = self.pd.DataFrame(parts, index=index)
        made.columns = columns
        return made

    def index(self, said: Any, depth: int) -> Any:
        if depth > _DEPTH:
            raise ValueError
        pd, names = self.pd, [_label(name) for name in said["names"]]
        if said["kind"] == "range":
            start, stop, step = said["range"]
            made = pd.RangeIndex(start, stop, step)
        elif said["kind"] == "levels":
            levels = [self.index(level, depth + 1) for level in said["of"]]
            made = pd.MultiIndex(levels, [self.array(code) for code in said["codes"]])
        elif said["kind"] == "index":
            data = self.column(said["of"], depth + 1)
            freq = {} if said["freq"] is None else {"freq": said["freq"]}
            made = pd.DatetimeIndex(data, **freq) if freq else pd.Index(data, dtype=data.dtype)
        else:
            raise ValueError
        made.names = names
        return made

    def column(self, said: Any, depth: int) -> Any:
        pd = self.pd
        match said["kind"]:
            case "array":
                return self.array(said["at"])
            case "category":
                categories = self.index(said["of"], depth + 1)
                kind = pd.CategoricalDtype(categories, bool(said["ordered"]))
                return pd.Categorical.from_codes(self.array(said["codes"]), dtype=kind)
            case "text":
                missing = float("nan") if said["missing"] == "nan" else pd.NA
                return pd.array(self.texts(*said["at"]), dtype=pd.StringDtype(na_value=missing))
            case "zone":
                naive = pd.DatetimeIndex(self.array(said["at"]))
                return naive.tz_localize("UTC").tz_convert(said["zone"]).array
            case "period":
                ordinals = self.array(said["at"])
                return pd.PeriodIndex.from_ordinals(ordinals, freq=said["freq"]).array
            case "interval":
                left, right = (self.column(end, depth + 1) for end in said["of"])
                return pd.arrays.IntervalArray.from_arrays(left, right, closed=said["closed"])
            case "masked":
                return self.masked(self.array(said["at"]), self.array(said["mask"]))
            case "objects":
                made = np.empty(len(said["of"]), dtype=object)
                for place, each in enumerate(said["of"]):
                    made[place] = self.value(each, depth + 1)
                return made
        raise ValueError

    def masked(self, data: Any, mask: Any) -> Any:
        arrays = self.pd.arrays
        kind = {"b": arrays.BooleanArray, "f": arrays.FloatingArray}.get(data.dtype.kind)
        return (kind or arrays.IntegerArray)(data, mask)

    def texts(self, lengths: Any, data: Any) -> list[str | None]:
        run, at = bytes(self.array(data)), 0
        made: list[str | None] = []
        for length in self.array(lengths).tolist():
            made.append(None if length < 0 else run[at : at + length].decode())
            at += max(length, 0)
        if at != len(run):
            raise ValueError
        return made


def _label(said: Any) -> Any:
    return tuple(_label(each) for each in said["labels"]) if isinstance(said, dict) else said
