"""Arrow's types, fields, schemas, arrays, tables and scalars, nested ones and extremes included."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

from tests.types.making import made

__all__ = ["ARROW", "ARROW_TYPES"]


def _nested_type(draw):
    kind = draw(ARROW_TYPES)
    wrap = draw(
        st.sampled_from(
            [
                pa.list_,
                pa.large_list,
                pa.list_view,
                lambda inner: pa.list_(inner, 2),
                lambda inner: pa.list_(inner, 1 << 25),
                lambda inner: pa.map_(pa.string(), inner),
                lambda inner: pa.map_(inner, pa.int8()),
                lambda inner: pa.struct([pa.field("x", inner, metadata={"a": "b"})]),
                lambda inner: pa.dense_union([pa.field("a", inner)]),
                lambda inner: pa.dictionary(pa.int8(), inner),
                lambda inner: pa.run_end_encoded(pa.int32(), inner),
            ]
        )
    )
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 3, 14, 15, 16, 40]))):
        kind = wrap(kind)
    return kind


FLAT_TYPES = [pa.null(), pa.bool_(), pa.int8(), pa.float64(), pa.string(), pa.large_binary()]
FLAT_TYPES += [pa.string_view(), pa.binary(3), pa.binary(0), pa.decimal128(5, 2), pa.date64()]
FLAT_TYPES += [pa.timestamp("us", "Europe/Paris"), pa.duration("s"), pa.month_day_nano_interval()]
FLAT_TYPES += [pa.uuid(), pa.bool8(), pa.json_(), pa.opaque(pa.int8(), "a", "b"), pa.struct([])]
FLAT_TYPES += [
    pa.dictionary(pa.int8(), pa.string()),
    pa.struct([(f"f{n}", "i1") for n in range(9)]),
]
ARROW_TYPES = st.deferred(
    lambda: st.sampled_from(FLAT_TYPES) | made(_nested_type).filter(lambda kind: kind is not None)
)


def _width(kind):
    """Return how many elements a row of *kind* has at least."""
    own = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
    return own * max((_width(kind.field(n).type) for n in range(kind.num_fields)), default=1)


def _arrow_array(draw):
    kind = draw(ARROW_TYPES.filter(lambda kind: _width(kind) < 10_000))
    items = draw(
        st.sampled_from([[], [None], [None] * 3, [[]], [[], None], [{}], ["a"], [1], [b"abc"]])
    )
    if draw(st.booleans()):
        array = pa.nulls(draw(st.integers(0, 3)), kind)
    else:
        array = pa.array(items, kind)
    array = array[draw(st.integers(0, 2)) :]
    # What Arrow itself finds invalid is refused, by whichever of its checks comes first.
    array.validate(full=True)
    form = draw(st.sampled_from(["array", "chunked", "table", "batch", "scalar"]))
    if form == "chunked":
        return pa.chunked_array([array, array], kind)
    if form == "table":
        return pa.table({"a": array}, metadata=draw(st.sampled_from([None, {"k": "v"}])))
    if form == "batch":
        return pa.record_batch({"a": array})
    return array[0] if form == "scalar" and len(array) else array


ARROW = st.one_of(
    ARROW_TYPES,
    made(_arrow_array),
    made(_arrow_array),
    ARROW_TYPES.map(lambda kind: pa.field("a", kind)),
    ARROW_TYPES.map(lambda kind: pa.schema([("a", kind), ("b", kind)], metadata={"k": "v"})),
    st.just(pa.py_buffer(b"abc")),
)
