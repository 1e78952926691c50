"""Bound the number of parts, the width and the depth of Arrow types.

The one rule: Arrow trusts types. It recurses over them in C++, and one null of a wide type takes
all of its width, so a type is measured before any array of it is built.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from safeser.types import refused

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")
_is: Any = pa.types

#: Types inside types; more than any real type has.
MAX_NESTING = 16
#: Elements of one value of fixed size. A null takes them all, and no byte stands for it.
MAX_WIDTH = 1 << 24
#: Types that share their parts double at each level; comparing or printing them never ends.
_MAX_PARTS = 10_000


def parts_of(kind: Any) -> list[Any]:
    """Return the types that *kind* is made of, in the order of its children."""
    if isinstance(kind, pa.BaseExtensionType):
        return [kind.storage_type]
    if _is.is_dictionary(kind):
        return [kind.index_type, kind.value_type]
    if _is.is_run_end_encoded(kind):
        return [kind.run_end_type, kind.value_type]
    if _is.is_map(kind):
        return [pa.struct([kind.key_field, kind.item_field])]
    if _is.is_struct(kind) or _is.is_union(kind):
        return [kind.field(at).type for at in range(kind.num_fields)]
    return [kind.value_type] if kind.num_fields else []


def measured(kind: Any) -> tuple[int, int]:
    """Return how many parts *kind* has, and how many elements one value of it takes, null or not.

    :raises PayloadError: if it has too many parts, is too wide or nests too deep.
    """
    level, parts, width = [(kind, 1, False)], 0, 0
    for _ in range(MAX_NESTING):
        below = []
        for part, repeated, in_dense in level:
            parts += 1
            times = repeated * part.list_size if _is.is_fixed_size_list(part) else repeated
            if _is.is_fixed_size_binary(part) and not _is.is_decimal(part):
                width += times * part.byte_width
            width += times
            if parts > _MAX_PARTS or width > MAX_WIDTH:
                raise refused("arrow-type", "an Arrow type has too many parts or is too wide")
            if isinstance(part, pa.BaseExtensionType) and _is_unstorable(part.storage_type):
                raise refused(
                    "arrow-type", "an Arrow extension is stored as what Arrow cannot take apart"
                )
            if _is.is_union(part) and not part.num_fields:
                # It has no value, and Arrow takes the first part for the type of a null.
                raise refused("arrow-type", "an Arrow union has no parts")
            dense = bool(_is.is_union(part)) and part.mode == "dense"
            if dense and in_dense:
                # nbytes of the outer one asks the inner one for elements that it does not have.
                raise refused("arrow-type", "an Arrow dense union is part of another")
            if _is.is_run_end_encoded(part) and holds_list_view(part.value_type):
                # Decoding no run of them leaves no chunk, and see chunked.
                raise refused("arrow-type", "an Arrow type has runs of list views")
            below += [(inner, times, dense or in_dense) for inner in parts_of(part)]
        if not below:
            return parts, width
        level = below
    raise refused("arrow-type", f"an Arrow type is nested more than {MAX_NESTING} deep")


def empty_of(kind: Any) -> Any:
    """Return the array of *kind* without elements.

    Arrow's own ``nulls`` gives runs that are part of something else a bitmap, at which its
    validation stops.
    """
    return _empty(kind) if holds(_is.is_run_end_encoded, kind) else pa.nulls(0, kind)


def chunked(chunks: list[Any], kind: Any) -> Any:
    """Return *chunks* of *kind* as one array.

    Where list views have no chunk at all, Arrow ends the process as it makes NumPy's array of them.
    They get one chunk without elements.
    """
    if not chunks and holds_list_view(kind):
        chunks = [empty_of(kind)]
    return pa.chunked_array(chunks, kind)


def _is_unstorable(kind: Any) -> bool:
    """Tell whether Arrow ends the process as it shows or joins extensions stored as *kind*.

    It does for dictionaries in ``to_pandas``, for unions without a chunk and for extensions in
    slices with a step.
    """
    own = isinstance(kind, pa.BaseExtensionType)
    return bool(own or _is.is_dictionary(kind) or _is.is_union(kind))


def holds_union(kind: Any) -> bool:
    """Tell whether *kind* is a structure with a union among its fields, or those of a field."""
    if not _is.is_struct(kind):
        return False
    fields = [kind.field(at).type for at in range(kind.num_fields)]
    return any(_is.is_union(part) or holds_union(part) for part in fields)


def check_whole(missing: bool) -> None:
    """Refuse a structure that holds unions if one of its elements is *missing*.

    As it sorts or flattens one, Arrow gives its bitmap to its fields. Unions have none, and Arrow
    ends the process, whether or not an element is missing: so the bitmap is left out too.
    """
    if missing:
        raise refused("arrow", "an element of a structure with unions is missing")


def check_dictionary(values: Any, *, used: bool) -> None:
    """Refuse a dictionary whose values are of type *values* if an index leads into it.

    Nulls have no bitmap, and Arrow ends the process as it looks there for those of a dictionary.

    :param used: whether an index leads into it.
    """
    while isinstance(values, pa.BaseExtensionType):
        values = values.storage_type
    if used and _is.is_null(values):
        raise refused("arrow", "an index leads into a dictionary of nothing but nulls")


def dictionary_of(indexes: Any, values: Any, *, ordered: bool) -> Any:
    """Return the array whose *indexes* stand for *values*, or refuse it."""
    check_dictionary(values.type, used=indexes.null_count < len(indexes))
    # It refuses indexes out of range, before one is followed.
    return pa.DictionaryArray.from_arrays(indexes, values, ordered=ordered)


def _is_view(kind: Any) -> bool:
    return bool(_is.is_list_view(kind) or _is.is_large_list_view(kind))


def holds_list_view(kind: Any) -> bool:
    """Tell whether *kind* is a list view, or made of one."""
    return holds(_is_view, kind)


def holds(wanted: Callable[[Any], bool], kind: Any) -> bool:
    """Tell whether *kind*, or something that it is made of, is *wanted*."""
    pending = [kind]
    while pending:
        part = pending.pop()
        if wanted(part):
            return True
        pending += parts_of(part)
    return False


def _empty(kind: Any) -> Any:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _empty(kind.storage_type))
    if _is.is_dictionary(kind):
        indexes, values = pa.nulls(0, kind.index_type), _empty(kind.value_type)
        return pa.DictionaryArray.from_arrays(indexes, values, ordered=kind.ordered)
    if not kind.num_fields and not _is.is_struct(kind):
        return pa.nulls(0, kind)
    buffers = [None, *map(pa.py_buffer, _BUFFERS.get(kind.id, ()))]
    return pa.Array.from_buffers(kind, 0, buffers, -1, 0, [_empty(part) for part in parts_of(kind)])


#: Buffers after the bitmap of an array without elements, which still has one offset.
_BUFFERS = {
    pa.lib.Type_LIST: (bytes(4),),
    pa.lib.Type_MAP: (bytes(4),),
    pa.lib.Type_LARGE_LIST: (bytes(8),),
    pa.lib.Type_LIST_VIEW: (b"", b""),
    pa.lib.Type_LARGE_LIST_VIEW: (b"", b""),
    pa.lib.Type_SPARSE_UNION: (b"",),
    pa.lib.Type_DENSE_UNION: (b"", b""),
}
