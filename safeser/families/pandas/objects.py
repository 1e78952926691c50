"""Encode columns of Python objects: as a list, or as distinct texts and their positions.

The one rule: two elements share one decoded object only if the object is immutable text, so
sharing has no observable effect.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from safeser.families.pandas.internals import pd
from safeser.families.pandas.parts import (
    WRITEABLE,
    Array,
    Loaded,
    Part,
    Reader,
    Writer,
    are_texts,
    settled,
)

__all__ = ["read", "read_coded", "read_marked", "write"]

_LONG = 256  # columns for which it is worth asking whether texts repeat
_SAMPLE = 4096  # elements that tell it
_SOME = 8  # elements that are worth marks for those that are missing
_MISSING = (None, pd.NA, pd.NaT)
_MARKS = {type(missing): mark for mark, missing in enumerate(_MISSING, 1)}
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})
_TEXT = frozenset({str, type(None)})


def write(writer: Writer, x: Array, where: str) -> list[Any]:
    """Return the description of one column of objects."""
    flags = WRITEABLE if x.flags.writeable else 0
    items = x.tolist()
    if _are_missing(items):
        marks = np.fromiter(
            map(_MARKS.get, map(type, items), itertools.repeat(0)), np.uint8, len(items)
        )
        writer.buffer(marks)
        there = [item for item, mark in zip(items, marks.tolist(), strict=True) if not mark]
        return ["marked", flags, writer.objects(there, where=where)]
    if len(items) > _LONG and _repeats(items) and set(map(type, items)) <= _TEXT:
        # Not by pandas.factorize: in pandas 2 it takes texts for the same that differ behind a NUL.
        numbers = dict(zip(dict.fromkeys(items), itertools.count(), strict=False))
        kind = np.min_scalar_type(len(numbers))
        codes = np.fromiter(map(numbers.__getitem__, items), kind, len(items))
        key, _ = writer.numbers(codes, where=where)
        return ["coded", flags, key, writer.objects(list(numbers), where=where)]
    return ["objects", flags, writer.objects(items, where=where)]


def _repeats(items: list[Any]) -> bool:
    """Whether of some texts from all over *items* every other one was there before."""
    sample = items[:: 1 + len(items) // _SAMPLE]
    return set(map(type, sample)) <= _TEXT and len(set(sample)) <= len(sample) // 2


def _are_missing(items: list[Any]) -> bool:
    """Whether marks for what is missing spare the others a header each."""
    kinds = set(map(type, items))
    if len(items) < _SOME or not kinds & _MARKS.keys():
        return False
    rest = kinds - _MARKS.keys()
    return kinds <= {type(None)} or not rest <= _PLAIN or not kinds <= _PLAIN


def read(reader: Reader, described: Any, columns: int | None) -> Part:
    _, flags, content = reader.split(described, 3)
    flags = reader.flags(flags, WRITEABLE)
    count, build = reader.objects(content)
    if columns not in (None, 1):
        reader.refuse("a block of objects has one column")

    def built(values: Loaded) -> Array:
        array: Array = np.fromiter(build(values), dtype=object, count=count)
        return _shaped(array, flags, columns)

    return Part("objects", count, built, np.dtype(object))


def _shaped(array: Array, flags: int, columns: int | None) -> Array:
    array.flags.writeable = bool(flags)
    return array if columns is None else array.reshape(1, len(array))


def read_marked(reader: Reader, described: Any, columns: int | None) -> Part:
    _, flags, content = reader.split(described, 3)
    flags, marks = reader.flags(flags, WRITEABLE), reader.numbers("|u1")
    count, build = reader.objects(content)
    if columns not in (None, 1) or (len(marks) and marks.max() > len(_MISSING)):
        reader.refuse("its marks are not those of one column", "families.codes")
    if len(marks) - np.count_nonzero(marks) != count:
        reader.refuse("it has another number of objects than of marks for them", "families.shape")
    if len(marks) * 8 > reader.limits.max_array:
        reader.refuse("it is larger than max_array", "families.too-large")

    def built(values: Loaded) -> Array:
        array: Array = np.full(len(marks), None, object)
        array[marks == 0] = np.fromiter(build(values), dtype=object, count=count)
        for mark, missing in enumerate(_MISSING, 1):
            if missing is not None:
                array[marks == mark] = missing
        return _shaped(array, flags, columns)

    return Part("objects", len(marks), built, np.dtype(object))


def read_coded(reader: Reader, described: Any, columns: int | None) -> Part:
    _, flags, key, content = reader.split(described, 4)
    flags, codes = reader.flags(flags, WRITEABLE), reader.numbers(key)
    count, build = reader.objects(content)
    if content is None and not are_texts(reader.node.children[reader.child_at - 1].value):
        reader.refuse("it holds a value that is not text", "families.child-type")
    if columns not in (None, 1) or codes.dtype.kind != "u" or not codes.dtype.isnative:
        reader.refuse("its codes are not those of one column", "families.child-type")
    if len(codes) and codes.max() >= count:
        reader.refuse("its codes are outside its list of texts", "families.codes")
    if len(codes) * 8 > reader.limits.max_array:
        reader.refuse("it is larger than max_array", "families.too-large")

    def built(values: Loaded) -> Array:
        texts: Array = np.fromiter(build(values), dtype=object, count=count)
        return _shaped(texts.take(settled(codes, 0)), flags, columns)

    return Part("objects", len(codes), built, np.dtype(object))
