"""Arrow's types, arrays, tables and scalars come back as they were."""

from __future__ import annotations

import datetime
import decimal

import pytest

from tests.pickles.forging import reopened
from tests.samples.values.arrow import examples

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

NUMBER = pa.int64()
FIELD = pa.field("a", NUMBER, nullable=False, metadata={"x": "y"})
DAY, NOON = datetime.date(2026, 1, 2), datetime.time(12, 0, 1)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4)

#: Flat types beside those of the examples that are sent as typed values too.
VALUES = {
    pa.int8(): [1, None, -3],
    pa.uint64(): [1, None, 1 << 63],
    pa.float16(): [1.5, None],
    pa.float64(): [1.5, None, float("inf")],
    pa.decimal64(5, 2): [decimal.Decimal("1.25")],
    pa.date32(): [DAY, None],
    pa.time64("ns"): [NOON, None],
    pa.timestamp("ns"): [MOMENT],
    pa.timestamp("s", "UTC"): [MOMENT, None],
    pa.timestamp("us", "+02:00"): [MOMENT],
    pa.duration("ns"): [datetime.timedelta(1), None],
    pa.binary(): [b"a", None, b""],
    pa.large_binary(): [b"a"],
    pa.struct([FIELD, pa.field("b", pa.string())]): [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
    pa.dictionary(pa.int32(), NUMBER, ordered=True): [5, 6],
}
ARRAYS = {
    **{name: value for name, value in examples().items() if isinstance(value, pa.Array)},
    **{str(kind): pa.array(values, kind) for kind, values in VALUES.items()},
    "codes": pa.UnionArray.from_dense(
        pa.array([5, 9], pa.int8()),
        pa.array([0, 0], pa.int32()),
        [pa.array([1, 3, 4]), pa.array(["a", "b", "c"])],
        type_codes=[5, 9],
    ),
}
PROTOCOLS = [2, 4, 5, None]


def same(got, expected):
    assert type(got) is type(expected)
    assert got.equals(expected)
    assert got.type.equals(expected.type, check_metadata=True)
    got.validate(full=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name, protocol):
    array = ARRAYS[name]
    for part in (array, array[1:], array[:0], pa.nulls(3, array.type)):
        same(reopened(part, protocol), part)
    whole = pa.chunked_array([array, array[1:]])
    same(reopened(whole, protocol), whole)


@pytest.mark.parametrize("name", ARRAYS)
def test_tables(name):
    column = ARRAYS[name]
    for kind in (pa.table, pa.record_batch):
        table = kind({"c": column, "d": column}, metadata={"k": "v"})
        got = reopened(table, 5)
        assert got.equals(table)
        assert got.schema.equals(table.schema, check_metadata=True)


# Arrow itself cannot read the scalars of these back, or not even write them.
WITHOUT_SCALARS = {"intervals", "dense", "codes", "sparse", "runs", "bool8"}
WITHOUT_SCALARS |= {f"sliced-{name}" for name in WITHOUT_SCALARS}


@pytest.mark.parametrize("name", sorted(ARRAYS.keys() - WITHOUT_SCALARS))
def test_scalars(name):
    for scalar in (*ARRAYS[name], pa.scalar(None, ARRAYS[name].type)):
        got = reopened(scalar, 5)
        assert type(got) is type(scalar)
        assert got.equals(scalar)


@pytest.mark.parametrize(
    "value",
    [
        FIELD,
        pa.schema([FIELD, pa.field("z", pa.list_(FIELD))], metadata={"k": b"\xff"}),
        pa.schema([]),
        *(array.type for array in ARRAYS.values()),
    ],
    ids=str,
)
def test_types(value):
    got = reopened(value, 4)
    assert type(got) is type(value)
    assert got.equals(value, check_metadata=True)


def test_small_things():
    assert reopened(pa.KeyValueMetadata({"a": "b"}), 5) == pa.KeyValueMetadata({"a": "b"})
    assert reopened(pa.py_buffer(b"abc"), 5).equals(pa.py_buffer(b"abc"))
    assert reopened(pa.py_buffer(bytearray(b"abc")), None).equals(pa.py_buffer(b"abc"))
    empty = pa.chunked_array([], type=NUMBER)
    assert reopened(empty, 5).equals(empty)
    assert reopened(pa.table({}), 5).equals(pa.table({}))
    sliced = pa.table({"a": [*range(100)]}).slice(10, 20)
    assert reopened(sliced, 5).equals(sliced)


def test_frames_as_tables_keep_what_pandas_noted():
    frame = pd.DataFrame({"a": [1, 2], "c": pd.Categorical(["x", "y"]), "s": ["x", None]})
    table = pa.Table.from_pandas(frame)
    pd.testing.assert_frame_equal(reopened(table, 5).to_pandas(), table.to_pandas())
