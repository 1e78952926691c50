"""Encode and decode pandas text columns, as Python strings or as Arrow's buffers.

The one rule: Arrow follows offsets without a check. No column keeps a buffer of offsets before each
offset is checked against its neighbours, and all bytes that it reaches, those of missing values
included, are valid UTF-8.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.families.pandas.internals import ARROW_TEXT, NAMED_MISSING, PYTHON_TEXT, pd, text_of
from safeser.families.pandas.parts import (
    Loaded,
    Part,
    Reader,
    Writer,
    are_short,
    are_texts,
    is_listed,
)
from safeser.families.tree import Node

__all__ = ["CLASSES", "read", "write"]

CLASSES = (*ARROW_TEXT, *PYTHON_TEXT)

_ASCII = 0x7F

_OFFSETS: dict[str, np.dtype[Any]] = {
    "string": np.dtype(np.int32),
    "large_string": np.dtype(np.int64),
}


def write(writer: Writer, x: Any, where: str) -> list[Any]:
    nan = x.dtype.na_value is not pd.NA
    if type(x) in PYTHON_TEXT:
        if x.dtype.storage != "python":
            # What pandas.arrays.StringArray() makes with pandas 3; the dtype tells which class.
            writer.refuse(
                x,
                "it holds Python strings under an Arrow dtype; convert it with astype",
                where,
            )
        missing = x.isna()
        texts = [None if gone else text for text, gone in zip(x, missing, strict=True)]
        return ["text", "python", nan, writer.objects(texts, where=where)]
    content = x._pa_array
    if len(content) and len(content) < 256 and content.num_chunks == 1:
        texts = content.to_pylist()
        if are_short(texts):
            return ["text", str(content.type), nan, texts]
    return ["text", str(content.type), nan, [_write_chunk(writer, part) for part in content.chunks]]


def _write_chunk(writer: Writer, chunk: Any) -> list[Any]:
    """Hand over the bitmap, offsets and bytes of *chunk*; of a slice only what is inside."""
    count, start = len(chunk), chunk.offset
    if not count:
        return [0, False]
    bitmap, offsets, data = chunk.buffers()
    ends = np.frombuffer(offsets, _OFFSETS[str(chunk.type)])[start : start + count + 1]
    first, last = int(ends[0]), int(ends[-1])
    holes = chunk.null_count > 0
    if holes:
        bits = np.frombuffer(bitmap, np.uint8)[: (start + count + 7) // 8]
        if start or count % 8:
            flags = np.unpackbits(bits, bitorder="little")[start : start + count]
            bits = np.packbits(flags, bitorder="little")
        writer.buffer(bits)
    writer.buffer(ends - ends[0] if first else ends)
    writer.frames.append(b"" if data is None else memoryview(data)[first:last])
    return [count, holes]


def read(reader: Reader, described: Any) -> Part:
    _, storage, nan, content = reader.split(described, 4)
    if type(nan) is not bool or type(storage) is not str:
        reader.refuse("the kind of its text is unknown")
    if storage == "python":
        return _read_python(reader, content, nan)
    if storage not in _OFFSETS or not is_listed(content):
        reader.refuse("the kind of its text is unknown")
    pa = _arrow(reader.node)
    if content and not is_listed(content[0]):
        if not are_short(content):
            reader.refuse("it holds something else than text", "families.child-type")
        short = tuple(content)
        return Part(
            "text",
            len(short),
            lambda values: text_of(_short(short, storage), _dtype("pyarrow", nan)),
        )
    kind = pa.type_for_alias(storage)
    whole = pa.chunked_array([_read_chunk(reader, pa, kind, item) for item in content], kind)
    return Part("text", len(whole), lambda values: text_of(whole, _dtype("pyarrow", nan)))


@functools.lru_cache(maxsize=64)
def _short(texts: tuple[str | None, ...], storage: str) -> Any:
    """Return Arrow's array of *texts*: labels of columns come again with each partition."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    kind = pa.type_for_alias(storage)
    return pa.chunked_array([pa.array(texts, kind)], kind)


@functools.cache
def _dtype(storage: str, nan: bool) -> Any:
    if not nan:
        return pd.StringDtype(storage)
    if not NAMED_MISSING:
        return pd.StringDtype(f"{storage}_numpy")
    return pd.StringDtype(storage, na_value=np.nan)


def _read_python(reader: Reader, content: Any, nan: bool) -> Part:
    count, build = reader.objects(content)
    if content is None and not are_texts(reader.node.children[reader.child_at - 1].value):
        reader.refuse("it holds something else than text", "families.child-type")

    def built(values: Loaded) -> Any:
        dtype = _dtype("python", nan)
        missing = dtype.na_value
        texts = [missing if text is None else text for text in build(values)]
        held = np.fromiter(texts, dtype=object, count=len(texts))
        return text_of(held, dtype)

    return Part("text", count, built)


def _arrow(node: Node) -> Any:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise PayloadError(
            "text kept by Arrow needs pyarrow, which is not installed here",
            rule="families.not-installed",
            where=node.where,
            fix="Install pyarrow, or have the sender convert the column to python storage.",
        ) from None
    return pa


def _read_chunk(reader: Reader, pa: Any, kind: Any, described: Any) -> Any:
    count, holes = reader.split(described, 2)
    if type(count) is not int or type(holes) is not bool or count < 0 or (holes and not count):
        reader.refuse("a chunk of its text is not described")
    if not count:
        return pa.nulls(0, kind)
    bitmap = reader.frame() if holes else None
    dtype = _OFFSETS[str(kind)]
    raw, data = reader.frame(), reader.frame()
    if raw.nbytes != (count + 1) * dtype.itemsize:
        reader.refuse("it has another number of offsets than of texts", "families.shape")
    if bitmap is not None and bitmap.nbytes != (count + 7) // 8:
        reader.refuse("it has another number of flags than of texts", "families.shape")
    offsets = np.ndarray((count + 1,), dtype, buffer=raw)
    if not offsets.flags.aligned:
        offsets = offsets.copy()
    if offsets[0] != 0 or offsets[-1] != data.nbytes:
        reader.refuse("its offsets are outside its bytes", "families.offsets")
    buffers = [pa.py_buffer(offsets), pa.py_buffer(data)]
    # Without the bitmap: Arrow's own functions follow the offsets of what is missing, too.
    bare = pa.Array.from_buffers(kind, count, [None, *buffers])
    if data.nbytes and np.maximum.reduce(np.frombuffer(data, np.uint8)) > _ASCII:
        try:
            bare.validate(full=True)
        except pa.ArrowInvalid:
            reader.refuse("its offsets go back, or its bytes are not UTF-8", "families.offsets")
    elif not (offsets[1:] >= offsets[:-1]).all():
        # Where all is ASCII, each piece of it is text; Arrow takes ten times as long to find out.
        reader.refuse("its offsets go back", "families.offsets")
    if bitmap is None:
        return bare
    return pa.Array.from_buffers(kind, count, [pa.py_buffer(bitmap), *buffers])
