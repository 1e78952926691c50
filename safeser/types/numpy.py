"""Check NumPy dtypes, shapes and elements against bounds.

The one rule: NumPy does not verify a dtype. A field that ends outside its record reads and writes
foreign memory, a flag that is neither 0 nor 1 makes NumPy count beyond its buffers, and a code
point past Unicode aborts the interpreter; so no part of a dtype reaches NumPy before it is checked
here.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from safeser.errors import PayloadError
from safeser.gate.values import Limits
from safeser.types import refused

Array = np.ndarray[Any, Any]
Dtype = np.dtype[Any]


@functools.cache
def chararray() -> Any:
    """Return NumPy's class of arrays of text, whose module NumPy imports when it is asked for.

    From 2.5 on it is deprecated, and still received.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return np.char.chararray


#: Attributes by which NumPy and its like ask an object for an address, an address by way of a
#: structure, and a capsule.
MEMORY = frozenset(("__array_interface__", "__array_struct__", "__cuda_array_interface__"))
#: The same, with the names by which notebooks, templates and Dask ask an object for what they show
#: or run: HTML from a peer runs in the notebook that shows it.
ASKED = MEMORY | {
    "__dask_graph__",
    "__html__",
    "_ipython_display_",
    *(f"_repr_{kind}_" for kind in ("html", "javascript", "jpeg", "json", "latex", "markdown")),
    *(f"_repr_{kind}_" for kind in ("mimebundle", "pdf", "png", "pretty", "svg")),
}

#: Fields and sub-arrays of a dtype with those of its fields. Comparing or printing walks them all,
#: and a dtype that shares its parts doubles at each level.
MAX_PARTS = 10_000
#: Records and sub-arrays inside each other: NumPy recurses over them in C.
MAX_NESTING = 16
#: NumPy keeps sizes and offsets as C ints, and adds them without a look.
_MAX_ITEMSIZE = (1 << 31) - 1
_MAX_DIMENSIONS = 64
_MAX_LENGTH = 1 << 62
#: Of what a user attached to a dtype; h5py has one or two.
_MAX_METADATA = 1000
#: Characters of a field's name that an error shows.
_SHOWN = 40
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

_MAX_CODE_POINT = 0x10FFFF
_POINTS = {order: np.dtype(f"{order}u4") for order in "<>="}
#: 80 bits of Intel's in 16 bytes, the leading one written out.
_X87 = np.finfo(np.longdouble).nmant == 63 and np.dtype("g").itemsize == 16

#: Letters whose elements have more bits than values: flags, text and long doubles.
_STRICT = frozenset("?UgG")


# -- dtypes ----------------------------------------------------------------------------------------


class Field(NamedTuple):
    """One field of a record dtype."""

    name: str
    dtype: Dtype
    offset: int
    title: str | None = None


def record(fields: Sequence[Field], size: int, *, align: bool) -> Dtype:
    """Return the dtype of records of *size* bytes with *fields*.

    :raises PayloadError: if a field ends outside the record or two of them overlap.
    """
    spans = ((f.offset, _without_objects(f.dtype, f.name).itemsize) for f in fields)
    _check_places(spans, size)
    form: dict[str, Any] = {
        "names": [field.name for field in fields],
        "formats": [field.dtype for field in fields],
        "offsets": [field.offset for field in fields],
        "itemsize": size,
    }
    if any(field.title is not None for field in fields):
        form["titles"] = [field.title for field in fields]
    make: Any = np.dtype  # typeshed wants a literal
    try:
        built: Dtype = make(form, align=align)
    except (ValueError, TypeError, OverflowError):
        raise _bad("its fields do not fit together") from None
    if built.itemsize != size:
        raise _bad("its fields do not fit together")
    return built


def subarray(base: Dtype, shape: tuple[int, ...]) -> Dtype:
    """Return the dtype of elements that are each an array of *shape* over *base*."""
    _check_subarray(_without_objects(base), check_shape(shape))
    return np.dtype((base, shape))


def _check_subarray(base: Dtype, shape: tuple[int, ...]) -> None:
    size = math.prod(shape) * base.itemsize
    if not shape or not size:
        # Its description is small, but printing an element walks over the whole shape.
        raise _bad("a sub-array of it has no bytes")
    if size > _MAX_ITEMSIZE or base.subdtype is not None:
        raise _bad("a sub-array of it is out of range, or holds a sub-array")


def with_metadata(dtype: Dtype, attached: Mapping[str, Any]) -> Dtype:
    """Return *dtype* with its user's metadata, which are plain values by name."""
    if not attached:
        return dtype
    _check_metadata(attached)
    make: Any = np.dtype  # typeshed does not know the argument
    return make(dtype, metadata=dict(attached))  # type: ignore[no-any-return]  # it makes a dtype


def check_itemsize(dtype: Dtype, limits: Limits) -> None:
    """Refuse *dtype* if one element of it is larger than an array may be."""
    if dtype.itemsize > limits.max_array:
        raise refused("dtype", "an element of a dtype is larger than max_array", limit="max_array")


def check_dtype(dtype: Dtype) -> int:
    """Refuse *dtype* unless arrays of it can be used; return how many parts it has.

    :raises PayloadError: if it is a record or sub-array that holds objects, has too many parts,
        nests too deep, or has fields that overlap or end outside it.
    """
    if dtype.char == "T":
        raise refused(
            "dtype",
            "NumPy's StringDType is refused: byteswap() of any array of it ends the process",
            fix="Convert the array with astype(object) or astype(str).",
        )
    level, parts = [dtype], 0
    for _ in range(MAX_NESTING + 1):
        parts += len(level)
        if parts > MAX_PARTS + 1:
            raise _bad(f"it has more than {MAX_PARTS} fields")
        level = [inner for part in level for inner in _parts_of(part)]
        if not level:
            return parts
    raise _bad(f"it is nested more than {MAX_NESTING} deep")


def _parts_of(dtype: Dtype) -> list[Dtype]:
    """Return the dtypes right inside *dtype*, whose places in it are sound."""
    if dtype.metadata:
        _check_metadata(dtype.metadata)
    if dtype.subdtype is not None:
        _check_subarray(*dtype.subdtype)
        return [_without_objects(dtype.base)]
    if dtype.names is None:
        return []
    if len(dtype.names) > MAX_PARTS:
        raise _bad(f"it has more than {MAX_PARTS} fields")
    if dtype.type not in (np.void, np.record):
        raise _bad("it is a record with a scalar type of its own")
    fields: Any = dtype.fields
    held = [fields[name] for name in dtype.names]
    for name, (inner, *_) in zip(dtype.names, held, strict=True):
        _without_objects(inner, name)
    if any(type(title) is not str for _, _, *titles in held for title in titles):
        raise _bad("a field's title is not text")
    _check_places(((offset, inner.itemsize) for inner, offset, *_ in held), dtype.itemsize)
    return [inner for inner, *_ in held]


def _without_objects(dtype: Dtype, name: str = "") -> Dtype:
    if dtype.hasobject:
        shown = f"field {name!r} of it" if name.isidentifier() and len(name) <= _SHOWN else "it"
        raise _bad(f"{shown} holds objects")
    return dtype


def _check_places(spans: Iterable[tuple[int, int]], size: int) -> None:
    """Refuse fields that end outside their record of *size* bytes, or that overlap.

    NumPy adds offset and size in 32 bits: a field at 2**31 - 8 passes its own check. Ten thousand
    fields over the same bytes would make every pass over them that long.
    """
    if not 0 <= size <= _MAX_ITEMSIZE:
        raise _bad("its size is out of range")
    end = 0
    for offset, length in sorted(spans):
        if not 0 <= offset <= offset + length <= size:
            raise _bad("a field ends outside of its record")
        if length and offset < end:
            raise _bad("its fields overlap")
        end = max(end, offset + length)


def _check_metadata(attached: Mapping[Any, Any]) -> None:
    """Refuse metadata of a dtype unless they are few plain values by name."""
    if any(type(key) is not str for key in attached):
        raise _bad("its metadata are not plain values by name")
    pending, seen = list(attached.values()), 0
    while pending:
        value = pending.pop()
        seen += 1
        if type(value) in (list, tuple):
            pending += value
        elif type(value) is dict:
            pending += [*value, *value.values()]
        elif type(value) not in _PLAIN:
            raise _bad("its metadata are not plain values by name")
        if seen + len(pending) > _MAX_METADATA:
            raise _bad("its metadata hold too many values")


def _bad(message: str) -> PayloadError:
    return refused("dtype", f"a dtype is refused: {message}")


# -- shapes ----------------------------------------------------------------------------------------


def check_shape(shape: Any) -> tuple[int, ...]:
    """Return *shape* as a tuple of lengths that NumPy could have; their product is not judged."""
    if not isinstance(shape, (list, tuple)) or len(shape) > _MAX_DIMENSIONS:
        raise refused("shape", f"a shape is not a list of at most {_MAX_DIMENSIONS} lengths")
    for length in shape:
        if type(length) is not int or not 0 <= length < _MAX_LENGTH:
            raise refused("shape", "a shape holds a value that is no length")
    return tuple(shape)


def check_extent(shape: tuple[int, ...], itemsize: int, limits: Limits) -> int:
    """Return how many elements *shape* has; refuse one that its users cannot walk over.

    A length of zero hides the others, but NumPy multiplies them and tolist() walks over them. No
    byte stands for an element of size zero.
    """
    if math.prod(length or 1 for length in shape) * max(itemsize, 1) > limits.max_array:
        raise refused("array-size", "an array is larger than max_array", limit="max_array")
    count = math.prod(shape)
    if not itemsize and count > limits.elements:
        raise refused(
            "array-size",
            "an array has more elements of no bytes than max_memory allows",
            limit="max_memory",
        )
    return count


# -- elements --------------------------------------------------------------------------------------


def check_elements(dtype: Dtype, *, ndim: int) -> None:
    """Refuse *dtype* as that of an array of *ndim* dimensions whose elements are bytes."""
    if dtype.hasobject:
        raise refused("dtype", "bytes are never read as objects")
    if dtype.subdtype is not None:
        raise refused("dtype", "an array has elements that are arrays")
    if dtype.names is not None and ndim + _structure(dtype).dimensions > _MAX_DIMENSIONS:
        raise refused("shape", "a field of an array has more dimensions than NumPy's arrays")


def check_kind(kind: str, *, ndim: int, dtype: Dtype) -> None:
    """Refuse to show an array of *ndim* dimensions of *dtype* as NumPy's subclass *kind*."""
    if kind == "matrix" and ndim != 2:
        raise refused("shape", "a matrix has two dimensions")
    if kind == "chararray" and dtype.kind not in "SU":
        raise refused("dtype", "a chararray holds texts")


def is_padded(dtype: Dtype) -> bool:
    """Whether *dtype* is of long doubles whose last six bytes, of sixteen, are nothing."""
    return dtype.char in "gG" and _X87


def is_strict(dtype: Dtype) -> bool:
    """Whether some of the bytes of an array of *dtype* may be wrong; see :func:`strict_fields`."""
    return dtype.char in _STRICT if dtype.names is None else _structure(dtype).strict


class _Structure(NamedTuple):
    """The layout that all elements of a record share.

    :param strict: whether a field of it, at any depth, is of :data:`_STRICT`.
    :param dimensions: the most that a field, at any depth, adds to those of an array of it.
    """

    strict: bool
    dimensions: int


@functools.lru_cache(maxsize=128)
def _structure(dtype: Dtype) -> _Structure:
    """Return what *dtype*, which was checked, has in all of its elements."""
    base = dtype.base
    if base.names is None:
        return _Structure(base.char in _STRICT, len(dtype.shape))
    fields: Any = base.fields
    inner = [_structure(fields[name][0]) for name in base.names]
    deepest = max((part.dimensions for part in inner), default=0)
    return _Structure(any(part.strict for part in inner), len(dtype.shape) + deepest)


def strict_fields(array: Array) -> Iterator[Array]:
    """Yield the parts of *array* whose bytes may be wrong, at every depth.

    Those are flags, text and long doubles, which have more bits than values.
    """
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from strict_fields(array[name])
    elif array.dtype.char in _STRICT:
        yield array


def sound(array: Array) -> Array:
    """Return *array*, or a copy of it in which each flag that is not 0 is 1.

    NumPy counts true flags by adding bytes and then writes that many results, so a flag of 2 makes
    it read or write past its buffers. Memory that was never set holds such, and they are true.

    :raises PayloadError: if text is none, or a long double is no number.
    """
    for part in strict_fields(array):
        if part.size == 0 or part.dtype.itemsize == 0:
            continue
        if part.dtype.kind == "b":
            if np.maximum.reduce(part.view(np.uint8), axis=None) > 1:
                return sound(_with_flags(array))
        elif part.dtype.kind == "U":
            # Code points past Unicode stop the interpreter's own string constructors.
            whole = part if part.flags.c_contiguous else np.ascontiguousarray(part)
            points = whole.reshape(-1).view(_POINTS[part.dtype.byteorder])
            if np.maximum.reduce(points) > _MAX_CODE_POINT:
                raise refused("elements", "an array of text holds what is no character")
        elif _X87:
            # Long doubles that no arithmetic makes: C libraries have crashed when printing them.
            words = np.ascontiguousarray(part).reshape(-1)
            words = (words if part.dtype.isnative else words.byteswap()).view("u8")
            normal, leading = words[1::2] & 0x7FFF != 0, words[::2] >> 63 != 0
            if (normal != leading).any():
                raise refused("elements", "an array holds a long double that is no number")
    return array


def writable(part: Array) -> Array:
    """Return *part* of a container that changes its parts in place, copied if it cannot be.

    A container that may write to one part and not to another fails half-way: after ``resize`` a
    sparse matrix has fewer indices than its rows say, and compiled code reads beyond them. What is
    one element seen many times stays so: it would take memory that no byte was sent for.
    """
    return part if part.flags.writeable or 0 in part.strides else part.copy(order="K")


def _with_flags(array: Array) -> Array:
    """Return a copy of *array* in which each flag that is not 0 is 1, with zeros between fields."""
    made = np.zeros_like(array)
    made[...] = array
    for part in strict_fields(made):
        if part.dtype.kind == "b":
            part[...] = part.view(np.uint8) != 0
    return made
