"""What a shuffle makes of the parts that others sent: not much more than these, all of it written.

The one rule: pieces of an array have one place each, and those beside each other are equally long;
what is made of other types than arrived is no larger than an array that may be sent.

Dask takes room for what the first pieces of each row and column say, and writes each piece into its
place as NumPy broadcasts it (distributed 2026.8.0, ``shuffle/_rechunk.py``): a list in the place of
a piece left parts unwritten, which are memory that the worker has used for others, and a row beside
a column, 256 kB in all, took ten gigabytes. One element of a megabyte makes all others as wide.
Where a shuffle is of texts, it writes out what came as categories (``_arrow.py``): one long text
that is named by each of 200,000 rows took 420 kB, and whoever wrote it out 8 GB; inside lists and
structures, Arrow itself writes them out. And where tables are joined, each gets the columns of all:
a row with one of 50 kB made 5 GB beside 100,000 others, and so did a list of such beside one of
100,000 elements that are nothing. Columns and fields of nothing take no bytes, and each row of a
frame has a place for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any

from distributed.shuffle import _arrow, _rechunk, _shuffle

from safeser.dask.partitions import is_numbered, refused_shard
from safeser.dask.settings import open_channels
from safeser.values import Limits

__all__ = [
    "fill_little",
    "held_arrays",
    "join_in_full",
    "most_bytes",
    "names_others",
    "stored",
    "write_out_little",
]

_PAIR = (tuple, list)

#: As much more do numbers take that are joined with longer ones.
_TWICE = 2


def join_in_full() -> None:
    """Have shuffles of this process join whole arrays alone; once is enough."""
    joins = _rechunk.convert_chunk
    if hasattr(joins, "__wrapped__"):
        return

    @wraps(joins)
    def join(shards: Iterable[Any]) -> Any:
        pieces = _pieces(shards)
        if pieces is None or not _is_grid(pieces):
            raise refused_shard(
                "shuffle.pieces", "the pieces of a part of a shuffle make up no whole array"
            )
        if _widened(pieces.values()) > most_bytes():
            raise refused_shard(
                "shuffle.size", "few pieces have wide elements, which all of the others would get"
            )
        # What was looked at, and no iterator, which is read once.
        return joins([list(pieces.items())])

    _rechunk.convert_chunk = join


def _pieces(shards: Iterable[Any]) -> dict[tuple[int, ...], Any] | None:
    """Return the pieces of *shards* by their places, the latest one of each, as Dask does."""
    pieces = {}
    for piece in (each for shard in shards for each in shard):
        if type(piece) not in _PAIR or len(piece) != 2 or not is_numbered(piece[0]):
            return None
        pieces[piece[0]] = piece[1]
    return pieces


def _is_grid(pieces: dict[tuple[int, ...], Any]) -> bool:
    lengths: dict[tuple[int, int], int] = {}
    for place, piece in pieces.items():
        # Arrays say by their class how they are joined; what else has a shape may hold anything.
        is_array = hasattr(type(piece), "__array_function__")
        if not place or min(place) < 0 or not is_array or len(piece.shape) != len(place):
            return False
        for axis, (number, length) in enumerate(zip(place, piece.shape, strict=True)):
            if lengths.setdefault((axis, number), length) != length:
                return False
    ends = [max(axis) + 1 for axis in zip(*pieces, strict=False)]
    return len({len(place) for place in pieces}) == 1 and math.prod(ends) == len(pieces)


def _widened(pieces: Iterable[Any]) -> int:
    """Return how many bytes *pieces* take together, if that is far more than each by itself.

    All get the type of one of them, or one that has room for all.
    """
    import numpy as np  # noqa: PLC0415 - only shuffles of arrays need it

    arrays = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    kinds = {array.dtype for array in arrays}
    if len(kinds) < 2:
        return 0
    with suppress(TypeError):  # nothing has room for all
        kinds.add(np.result_type(*kinds))
    size = max(kind.itemsize for kind in kinds) * sum(array.size for array in arrays)
    return size if size > _TWICE * sum(array.nbytes for array in arrays) else 0


def most_bytes() -> int:
    """Return how large an array may be here: what is larger could not be sent either."""
    limits = (each.policy.limits.max_array for each in open_channels())
    return min(limits, default=Limits().max_array)


def write_out_little() -> None:
    """Have shuffles of this process write out no more text than may be sent; once is enough."""
    converts = _shuffle.convert_shards
    if hasattr(converts, "__wrapped__"):
        return

    @wraps(converts)
    def convert(shards: Sequence[Any], meta: Any, column: str, drop: bool) -> Any:
        named = [shard for shard in shards if names_others(shard.schema)]
        most = most_bytes()
        if named and (
            sum(map(_text_inside, named)) > most
            or (_writes_out(shards, meta) and sum(map(_text_of, named)) > most)
        ):
            raise refused_shard(
                "shuffle.size", "categories stand for more text than limits.max_array allows"
            )
        return converts(shards, meta, column, drop)

    _shuffle.convert_shards = convert


def _writes_out(shards: Sequence[Any], meta: Any) -> bool:
    """Tell whether texts are made of categories that *shards* hold: what has no rows says so.

    Dask makes them where the shuffle is of texts, and Arrow where a note of pandas says that a
    column is to be of another type.
    """
    import pandas as pd  # noqa: PLC0415 - as Arrow, only shuffles of frames need it
    import pyarrow as pa  # noqa: PLC0415

    if not any(
        pa.types.is_dictionary(stored(kind)) for each in shards for kind in each.schema.types
    ):
        return False
    from dask.dataframe.dispatch import from_pyarrow_table_dispatch  # noqa: PLC0415

    first = pa.concat_tables([shard.slice(0, 0) for shard in shards], promote_options="permissive")
    frame = from_pyarrow_table_dispatch(meta, first)
    named = sum(pa.types.is_dictionary(stored(kind)) for kind in first.schema.types)
    if sum(map(_names, (*frame.dtypes, frame.index.dtype))) < named:
        return True
    types = frame.dtypes
    return any(
        isinstance(wanted, pd.StringDtype) and isinstance(types.get(name), pd.CategoricalDtype)
        for name, wanted in meta.dtypes.items()
    )


def _names(kind: Any) -> bool:
    """Tell whether what is of that *kind*, of pandas' own, names each value by a number."""
    import pandas as pd  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    of_arrow = isinstance(kind, pd.ArrowDtype) and pa.types.is_dictionary(kind.pyarrow_dtype)
    return of_arrow or isinstance(kind, pd.CategoricalDtype)


def names_others(schema: Any) -> bool:
    """Tell whether a table of that *schema* has categories, in whatever depth."""
    pending = list(schema.types)
    while pending:
        kind = stored(pending.pop())
        if hasattr(kind, "index_type"):
            return True
        pending += [kind.field(at).type for at in range(kind.num_fields)]
    return False


def _text_of(shard: Any) -> int:
    """Return how many bytes are written out for which all categories of *shard* stand."""
    chunks = (each for column in shard.columns for each in column.chunks)
    return sum(_written(chunk, everywhere=True) for chunk in chunks)


def _text_inside(shard: Any) -> int:
    """Return for how many bytes those stand that are inside others: these are always written."""
    chunks = (each for column in shard.columns for each in column.chunks)
    return sum(_written(chunk, everywhere=False) for chunk in chunks)


def _written(array: Any, *, everywhere: bool) -> int:
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    total = 0
    pending = [(stored(array), everywhere)]
    while pending:
        array, counts = pending.pop()
        if not hasattr(array, "dictionary"):
            pending += [(stored(part), True) for part in held_arrays(array)]
            continue
        values = stored(array.dictionary)
        pending.append((values, False))
        if not counts or not len(values):
            continue
        named = np.bincount(array.indices.drop_null(), minlength=len(values))
        try:
            lengths = pc.binary_length(pc.cast(values, pa.large_binary())).fill_null(0)
        except pa.ArrowNotImplementedError:
            # Each takes as much as another, or at most as much as all do.
            each = _width(values.type) if not values.type.num_fields else values.nbytes
            total += int(named.sum()) * each
        else:
            total += int(named @ lengths.to_numpy(zero_copy_only=False))
    return total


def stored(thing: Any) -> Any:
    """Return what an extension's type or array is kept as."""
    import pyarrow as pa  # noqa: PLC0415

    while isinstance(thing, pa.BaseExtensionType):
        thing = thing.storage_type
    while isinstance(thing, pa.ExtensionArray):
        thing = thing.storage
    return thing


def held_arrays(array: Any) -> list[Any]:
    """Return the arrays of which *array* is made."""
    if hasattr(array, "field"):
        return [array.field(at) for at in range(array.type.num_fields)]
    if hasattr(array, "items"):
        return [array.keys, array.items]
    if hasattr(array, "flatten"):
        return [array.flatten()]
    return [array.values] if array.type.num_fields else []  # of runs, their values


# -- rows -----------------------------------------------------------------------------------------

#: As often do honest tables take their size, and some to spare: columns of which one has no value
#: at all, and others do, take nothing there.
_FILLED = 64
_SPARE = 1 << 24

#: Bytes that frames take for each value of a column or a field that was filled, of whatever type.
_LEAST = 16
#: As many columns do honest tables get that have their own: lists of objects have any fields.
_OFTEN = 16
_MANY = 100_000


def fill_little() -> None:
    """Have shuffles of this process fill few rows that lack columns; once is enough."""
    joins = _arrow.concat_tables
    if hasattr(joins, "__wrapped__"):
        return

    @wraps(joins)
    def join(tables: Iterable[Any]) -> Any:
        tables = list(tables)
        if any(each.schema != tables[0].schema for each in tables[1:]):
            _require_little(tables)
        return joins(tables)

    _arrow.concat_tables = join


def _require_little(tables: Sequence[Any]) -> None:
    import pyarrow as pa  # noqa: PLC0415

    schemas = [each.schema for each in tables]
    joined = pa.unify_schemas(schemas, promote_options="permissive")
    if _number(joined) * len(tables) > _OFTEN * sum(map(_number, schemas)) + _MANY:
        raise refused_shard("shuffle.size", "each table of a shuffle has other columns")
    arrived = sum(each.nbytes for each in tables)
    most = max(_TWICE * arrived, min(most_bytes(), _FILLED * arrived + _SPARE))
    if _filled(joined, tables) > most:
        raise refused_shard(
            "shuffle.size", "tables have columns that others lack, which would be filled"
        )


def _number(schema: Any) -> int:
    """Return how many columns a table of that *schema* has, with those inside others."""
    pending = list(schema.types)
    for each in pending:
        kind = stored(each)
        pending += [kind.field(at).type for at in range(kind.num_fields)]
    return len(pending)


def _filled(joined: Any, tables: Sequence[Any]) -> int:
    """Return how many bytes the rows of *tables* take at least, as *joined* describes them."""
    total = 0
    for table in tables:
        for field in joined:
            at = table.schema.get_field_index(field.name)
            if at < 0:
                total += _lacking(field.type) * len(table)
            else:
                total += sum(_taken(field.type, chunk) for chunk in table.column(at).chunks)
    return total


def _taken(kind: Any, array: Any) -> int:
    """Return how many bytes *array* takes at least once it is of that *kind*."""
    kind, array = stored(kind), stored(array)
    takes = _width(kind) * len(array)
    if type(kind) is not type(array.type) and not (_is_list(kind) and _is_list(array.type)):
        return takes
    if hasattr(kind, "index_type"):
        return takes + _taken(kind.value_type, array.dictionary)
    if _is_list(kind):
        return max(takes, _taken(kind.value_type, array.flatten()))
    if hasattr(kind, "key_type"):
        return takes + _taken(kind.key_type, array.keys) + _taken(kind.item_type, array.items)
    if not hasattr(kind, "get_field_index"):
        return takes
    return sum(
        _lacking(field.type) * len(array)
        if (at := array.type.get_field_index(field.name)) < 0
        else _taken(field.type, array.field(at))
        for field in kind
    )


def _is_list(kind: Any) -> bool:
    return hasattr(kind, "value_field")


def _lacking(kind: Any) -> int:
    return max(_width(kind), _LEAST)


def _width(kind: Any) -> int:
    """Return how many bytes each row takes at least of a column of that *kind*."""
    import pyarrow as pa  # noqa: PLC0415

    kind = stored(kind)
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return sum(_width(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_dictionary(kind):
        kind = kind.index_type
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:  # offsets, or nothing
        return 0 if pa.types.is_null(kind) else 4
