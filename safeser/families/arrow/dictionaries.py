"""Compute the size of dictionary-encoded Arrow arrays once every row is expanded.

The one rule: the size is computed without expanding anything. A text of one megabyte that 100,000
rows refer to arrives as 1.1 MB and takes 100 GB as plain text: pandas and Arrow expand it to
convert a column to another type, and Arrow expands any such column inside a list or a structure.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

from safeser.families.arrow.types import storage_of

__all__ = ["decoded_size"]

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")
_compute: Any = importlib.import_module("pyarrow.compute")


def decoded_size(array: Any) -> int:
    """Return the expanded size in bytes of the dictionary-encoded parts of *array*, at any depth.

    :param array: an array that was validated.
    """
    total = 0
    pending = [array] if _names_others(array.type) else []
    while pending:
        part = _stored(pending.pop())
        if pa.types.is_dictionary(part.type):
            total += _named_size(part)
        else:
            pending += _held(part)
    return total


def _names_others(kind: Any) -> bool:
    """Tell whether arrays of *kind* are dictionary-encoded at any depth."""
    pending = [kind]
    while pending:
        kind = storage_of(pending.pop())
        if pa.types.is_dictionary(kind):
            return True
        pending += [kind.field(at).type for at in range(kind.num_fields)]
    return False


def _named_size(array: Any) -> int:
    """Return how many bytes the values take that the rows of *array* name."""
    counted = array.indices.drop_null().value_counts()
    times = counted.field("counts")
    rows = _compute.sum(times).as_py() or 0
    values = _stored(array.dictionary)
    if not pa.types.is_dictionary(values.type) and not _held(values):
        try:
            # What is taken here is no larger than what it is counted as.
            texts = values.take(counted.field("values")).cast(pa.large_binary())
            lengths = _compute.multiply(_compute.binary_length(texts), times)
            return int(_compute.sum(lengths).as_py() or 0)
        except pa.ArrowNotImplementedError:
            with suppress(ValueError):  # a type without a fixed width
                return int(rows) * -(-int(values.type.bit_width) // 8)
    # At most as much for each row as all values take together.
    return int(rows) * (int(values.nbytes) + decoded_size(values))


def _stored(array: Any) -> Any:
    """Return the array in which *array* is stored: itself, but for extensions."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def _held(array: Any) -> list[Any]:
    """Return the arrays of which *array* is made."""
    if pa.types.is_struct(array.type):
        return [array.field(at) for at in range(array.type.num_fields)]
    if pa.types.is_map(array.type):
        return [array.keys, array.items]
    if hasattr(array, "flatten"):  # of all kinds of lists
        return [array.flatten()]
    return [array.values] if array.type.num_fields else []  # of runs, their values
