"""Encode and decode pandas indexes, categories included.

The one rule: codes lie within their levels, labels that must be unique are unique, a freq fits
every value, and a range is charged as if it were expanded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.families.keys import check_labels
from safeser.families.pandas import arrays as pandas_arrays
from safeser.families.pandas.arrays import read_array, write_array
from safeser.families.pandas.internals import (
    categorical,
    dated,
    index_of,
    mark_unique,
    pd,
    range_of,
    texts_of,
    values_of,
)
from safeser.families.pandas.offsets import read_freq, with_freq, write_freq
from safeser.families.pandas.parts import Loaded, Part, Reader, Writer, charged, settled
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, registry, required
from safeser.families.reviewed import reviewed
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles.shims.pandas import arrays as shims
from safeser.types import pandas as bounds

__all__ = ["apart", "read_index", "register", "write_index"]

_CLASSES = "Index CategoricalIndex DatetimeIndex IntervalIndex PeriodIndex TimedeltaIndex"
_KINDS: dict[str, Any] = {name: getattr(pd, name) for name in _CLASSES.split()}
_MOMENTS = (pd.DatetimeIndex, pd.TimedeltaIndex)
#: Index classes by the kind of array behind them; moments without a zone are numbers.
_OF_ARRAY = {
    "categories": "CategoricalIndex",
    "dates": "DatetimeIndex",
    "intervals": "IntervalIndex",
    "periods": "PeriodIndex",
}
_OF_NUMBERS = {"M": "DatetimeIndex", "m": "TimedeltaIndex"}
#: pandas has no engine that looks such labels up.
_UNKNOWN = frozenset("egG")
_SIGNED = frozenset(np.dtype(f"i{size}") for size in (1, 2, 4, 8))


def write_index(writer: Writer, x: Any, where: str) -> list[Any]:
    """Return the description of the index *x*, or raise Unencodable with *where* it is."""
    kind = type(x)
    if kind is pd.RangeIndex:
        numbers = x._range
        with writer.bounded(x, where):
            bounds.integer_range(numbers.start, numbers.stop, numbers.step, limits=writer.limits)
        name = writer.name(x.name, where=f"{where}.name")
        return ["range", name, numbers.start, numbers.stop, numbers.step]
    if kind is pd.MultiIndex:
        return _write_multi(writer, x, where)
    if _KINDS.get(kind.__name__) is not kind:
        writer.refuse(x, "an index of a class that is not pandas' own is not kept", where)
    name = writer.name(x.name, where=f"{where}.name")
    freq = write_freq(writer, x.freq, len(x)) if kind in _MOMENTS else None
    if x.dtype == object:
        with writer.bounded(x, where):
            check_labels(x.tolist())
    with writer.bounded(x, where):
        bounds.check_labels(x)
    return [kind.__name__, name, freq, write_array(writer, values_of(x), where)]


def read_index(reader: Reader, described: Any) -> Part:
    """Return the checked index that *described* is."""
    if not isinstance(described, list | tuple) or not described:
        reader.refuse("an index of it is not described by a list")
    kind = described[0]
    if kind == "range":
        _, name, start, stop, step = reader.split(described, 5)
        if any(type(number) is not int for number in (start, stop, step)):
            reader.refuse("its bounds are not integers")
        numbers = bounds.integer_range(start, stop, step, limits=reader.limits)
        named = reader.name(name)
        return Part("range", len(numbers), lambda values: range_of(numbers, named(values)))
    if kind == "multi":
        return reader.within(_read_multi, described)
    if type(kind) is not str or kind not in _KINDS:
        reader.refuse("the kind of an index is not listed")
    return reader.within(_read_plain, described)


def _read_plain(reader: Reader, described: Any) -> Part:
    kind, name, freq, content = reader.split(described, 4)
    named = reader.name(name)
    if freq is not None and _KINDS[kind] not in _MOMENTS:
        reader.refuse("its kind has no freq")
    made = read_freq(reader, freq)
    part = read_array(reader, content)
    if _class_of(reader, part) != kind:
        reader.refuse("its values are not those of its kind", "families.child-type")
    limits = reader.limits

    def built(values: Loaded) -> Any:
        array = part.build(values)
        if part.kind == "objects":
            check_labels(array.tolist())
        if part.kind == "numbers" and array.dtype.kind in "mM":
            array = dated(array)
        index = index_of(_KINDS[kind], array, named(values))
        bounds.check_labels(index)
        return index if freq is None else with_freq(index, made(values), values, limits)

    return Part(kind, part.length, built)


def _class_of(reader: Reader, part: Part) -> str:
    if part.kind == "wrapped":
        reader.refuse("its values are not those of its kind", "families.child-type")
    if part.kind != "numbers":
        return _OF_ARRAY.get(part.kind, "Index")
    assert part.dtype is not None
    if part.dtype.char in _UNKNOWN:
        reader.refuse("its dtype is none that an index may have", "families.dtype")
    return _OF_NUMBERS.get(part.dtype.kind, "Index")


# -- several levels ----------------------------------------------------------------------------


def _write_multi(writer: Writer, x: Any, where: str) -> list[Any]:
    order = None if x.sortorder is None else int(x.sortorder)
    with writer.bounded(x, where):
        bounds.check_levels(x.levels, limits=writer.limits)
        bounds.ordered(x, order)
    names = [writer.name(name, where=f"{where}.names") for name in x.names]
    levels, codes = [], []
    for at, (level, code) in enumerate(zip(x.levels, x.codes, strict=True)):
        within = f"{where}.levels[{at}]"
        levels.append(write_index(writer, level.rename(None), within))
        codes.append(writer.numbers(np.asarray(code), where=f"{where}.codes[{at}]"))
    return ["multi", names, order, levels, codes]


def _read_multi(reader: Reader, described: Any) -> Part:
    _, names, order, levels, codes = reader.split(described, 5)
    if order is not None and type(order) is not int:
        reader.refuse("its sortorder is not a number")
    if type(levels) not in (list, tuple) or not levels:
        reader.refuse("it has no levels", "families.child-count")
    named = [reader.name(name) for name in reader.split(names, len(levels))]
    parts, numbers = [], []
    for level, code in zip(levels, reader.split(codes, len(levels)), strict=True):
        parts.append(_read_level(reader, level))
        numbers.append(_read_codes(reader, code, parts[-1].length))
    length = len(numbers[0])
    if any(len(code) != length for code in numbers):
        reader.refuse("its codes are of several lengths", "families.shape")
    limits = reader.limits

    def built(values: Loaded) -> Any:
        made = [part.build(values) for part in parts]
        bounds.check_levels(made, limits=limits)
        made = [apart(level, values, limits) for level in made]
        for part, level, code in zip(parts, made, numbers, strict=True):
            required(part.length is not None or _inside(code, len(level)))
        index = pd.MultiIndex(
            made,
            [settled(code, 1) for code in numbers],
            names=[name(values) for name in named],
            verify_integrity=False,
        )
        required(
            all(code.dtype == sent.dtype for code, sent in zip(index.codes, numbers, strict=True))
        )
        return bounds.ordered(index, order)

    return Part("multi", length, built)


def _read_level(reader: Reader, described: Any) -> Part:
    part = read_index(reader, described)
    if part.kind == "multi":
        reader.refuse("a level of it has levels", "families.child-type")
    return part


def _read_codes(reader: Reader, described: Any, length: int | None) -> Any:
    key, flags = reader.split(described, 2)
    codes, _ = reader.numbers(key), reader.flags(flags)
    if codes.dtype not in _SIGNED:
        reader.refuse("its codes are not native signed integers", "families.child-type")
    if length is not None and not _inside(codes, length):
        reader.refuse("its codes are outside their levels or categories", "families.codes")
    return codes


def _inside(codes: Any, length: int) -> bool:
    if not len(codes):
        return True
    # Where nothing is missing one look is enough: what is below zero is large without its sign.
    unsigned = codes.view(f"u{codes.dtype.itemsize}")
    return bool(
        np.maximum.reduce(unsigned) < length
        or (np.maximum.reduce(codes) < length and np.minimum.reduce(codes) >= -1)
    )


# -- categories --------------------------------------------------------------------------------


def _write_categories(writer: Writer, x: Any, where: str) -> list[Any]:
    inner = write_index(writer, x.categories, where)
    return ["categories", inner, bool(x.ordered), *writer.numbers(x._ndarray, where=where)]


def _read_categories(reader: Reader, described: Any, columns: int | None) -> Part:
    _, inner, ordered, *numbers = reader.split(described, 5)
    if type(ordered) is not bool or columns not in (None, 1):
        reader.refuse("its flag is not a flag")
    part = read_index(reader, inner)
    codes = _read_codes(reader, numbers, part.length)
    flags: int = numbers[1]
    if part.kind == "multi":
        reader.refuse("its categories have levels", "families.child-type")
    limits = reader.limits

    def built(values: Loaded) -> Any:
        categories = apart(part.build(values), values, limits)
        required(part.length is not None or _inside(codes, len(categories)))
        return categorical(settled(codes, flags), pd.CategoricalDtype(categories, ordered))

    return Part("categories", len(codes), built)


def apart(index: Any, values: Loaded, limits: Limits) -> Any:
    """Return *index* marked as unique after checking that no label occurs twice.

    pandas would put the labels into a hash table in which a sender can make them collide. Texts are
    put into Python's own, whose hash has a secret; the check of restricted pickle covers others.
    """
    if len(index) > limits.elements:
        required(isinstance(index.dtype, np.dtype))
    if type(index) is pd.RangeIndex:
        return mark_unique(index)
    dtype = index.dtype
    if isinstance(dtype, pd.StringDtype) or dtype.kind == "O":
        labels = texts_of(index)
        if set(map(type, labels)) <= {str}:
            required(len(set(labels)) == len(labels))
            return mark_unique(index)
    with reviewed(values.node):
        return shims.unique(values.site(limits), index)


# -- indexes that stand alone ------------------------------------------------------------------


def _encode(x: Any, limits: Limits) -> Parts:
    writer = Writer(limits)
    try:
        return writer.parts({"index": write_index(writer, x, "")})
    except Unencodable as error:
        error.path = [part for part in error.path if part]
        raise


def _check(node: Node, limits: Limits) -> None:
    reader = Reader(node, limits)
    (described,) = node.expect("index", frames=len(node.frames), children=None)
    part = read_index(reader, described)
    reader.finish()
    if _NAMES.get(part.kind, "pandas:Index") != node.type:
        node.refuse("its kind is not that of its type", "families.header")
    node.value = part.build


#: Kinds with a name of their own, on which those may rely that hold an index.
_NAMES = {"range": "pandas:RangeIndex", "multi": "pandas:MultiIndex"}


def register() -> None:
    """List pandas' indexes; called once, when the first is needed."""
    pandas_arrays.add("categories", (pd.Categorical,), _write_categories, _read_categories)
    for name, classes in (
        ("pandas:Index", tuple(_KINDS.values())),
        ("pandas:RangeIndex", (pd.RangeIndex,)),
        ("pandas:MultiIndex", (pd.MultiIndex,)),
    ):
        registry.register(charged(name, classes, _encode, _check))
