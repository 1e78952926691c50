"""Parts of a shuffle that another worker forged so that joining them leaves or takes memory."""

from __future__ import annotations

import json
import types

import dask.dataframe  # noqa: F401 - registers how Arrow's tables become frames
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask.array import core
from distributed.shuffle import _arrow, _rechunk, _shuffle
from distributed.shuffle._arrow import buffers_to_table, serialize_table

from safeser.dask import joining, partitions
from safeser.errors import PayloadError

STOCK = getattr(_rechunk.convert_chunk, "__wrapped__", _rechunk.convert_chunk)


@pytest.fixture(autouse=True)
def _whole(monkeypatch):
    counts = getattr(core.chunks_from_arrays, "__wrapped__", core.chunks_from_arrays)
    monkeypatch.setattr(core, "chunks_from_arrays", counts)  # which controls call as well
    monkeypatch.setattr(_rechunk, "convert_chunk", STOCK)
    joining.join_in_full()
    joining.join_in_full()
    assert _rechunk.convert_chunk.__wrapped__ is STOCK


def refused(*shards):
    with pytest.raises(PayloadError) as caught:
        _rechunk.convert_chunk([list(shards)])
    assert caught.value.rule == "shuffle.pieces"


def grid(rows, columns):
    return [
        ((i, j), np.full((height, width), 10.0 * i + j))
        for i, height in enumerate(rows)
        for j, width in enumerate(columns)
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        grid((2, 3), (1, 4, 2)),
        grid((1,), (0, 3)),
        [((1,), np.arange(3)), ((0,), np.arange(2))],
        [((0,), np.arange(9)), ((np.int64(0),), np.arange(2))],  # the latest one counts
        [((0,), np.ma.masked_array([1, 2], [True, False])), ((1,), np.arange(3))],
    ],
)
def test_whole_arrays_are_joined_as_by_dask(pieces):
    made, expected = _rechunk.convert_chunk([pieces[:1], pieces[1:]]), STOCK([pieces])
    assert type(made) is type(expected)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(np.ma.filled(made, -1), np.ma.filled(expected, -1))


#: Two in the place of one, in a row with another one: three pieces for four places.
LISTED = [((0, 0), [np.ones((1, 1, 1)), np.ones((1, 1, 1))]), ((1, 0), np.ones((50, 1, 1)))]


def test_no_part_is_left_unwritten(monkeypatch):
    empty = np.empty
    with monkeypatch.context() as used:
        used.setattr(
            np, "empty", lambda shape, dtype: np.full(shape, 77 if dtype != "O" else None, dtype)
        )
        made = STOCK([LISTED])
    assert np.count_nonzero(made == 77) == 50, "the control did not run"
    assert np.empty is empty

    refused(*LISTED)


def test_no_array_becomes_larger_than_its_pieces():
    row, column = ((0, 0), np.ones((1, 1000))), ((1, 0), np.ones((1000, 1)))
    assert STOCK([[row, column]]).size == 1_001_000
    refused(row, column)


WIDE = [((0, 0), np.full((1, 1), b"x" * 500)), ((0, 1), np.ones((1, 1000), "?"))]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", [np.asarray, np.ma.masked_array])
def test_few_wide_elements_do_not_widen_all_others(kind):
    wide = [(place, kind(piece)) for place, piece in WIDE]
    assert STOCK([wide]).nbytes == 500_500, "the control did not run"
    with pytest.raises(PayloadError) as caught:
        _rechunk.convert_chunk([wide])
    assert caught.value.rule == "shuffle.size"
    with pytest.raises(PayloadError):
        _rechunk.convert_chunk([[((0, 0), wide[0][1]), ((0, 1), np.full((1, 10), "é"))]])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "pieces",
    [
        [((0,), np.arange(9000)), ((1,), np.arange(9000))],
        [((0,), np.arange(9000, dtype="f4")), ((1,), np.arange(9, dtype="f8"))],
        [((0,), np.arange(9, dtype="f8")), ((1,), np.full(1, "x"))],
        [((0,), np.full(10, "abcde")), ((1,), np.full(200, "ab"))],
        [((0,), np.zeros(9, [("a", "i4")])), ((1,), np.zeros(3, "M8[s]"))],
    ],
)
def test_pieces_of_other_types_pass(pieces):
    refusal = None
    try:
        _rechunk.convert_chunk([pieces])
    except (TypeError, ValueError) as error:  # NumPy's word for what it does not make of others
        refusal = error
    assert not isinstance(refusal, PayloadError)


ONE = np.ones(1)


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [((1,), ONE)],
        [((0,), ONE), ((2,), ONE)],
        [((1,), ONE), ((-1,), ONE)],
        [((0,), ONE), ((0, 1), ONE)],
        [((), np.array(1.0))],
        [((0, 0), ONE)],
        [((0,), 1.0)],
        [((0,), np.float64(1))],
        [((0,), types.SimpleNamespace(shape=(1,), dtype="f8"))],
        [((0.0,), ONE)],
        [((False,), ONE)],
        [(0, ONE)],
        [("0", ONE)],
        [((0,), ONE, ONE)],
        [iter(((0,), ONE))],
        [{(0,): ONE, 1: ONE}],
    ],
)
def test_what_is_no_grid_of_arrays_is_refused(pieces):
    refused(*pieces)


def test_what_is_not_joined_is_recorded(doors, monkeypatch):
    channel = doors.channel("worker", "demo")
    monkeypatch.setattr(partitions, "open_channels", lambda: (channel,))
    refused(*LISTED)
    (record,) = channel.audit.events
    told = [record[name] for name in ("sender", "recipient", "operation", "rule", "where")]
    assert told == ["unknown", "worker", "shuffle_receive", "shuffle.pieces", "data"]


# -- columns --------------------------------------------------------------------------------------

CONVERT = getattr(_shuffle.convert_shards, "__wrapped__", _shuffle.convert_shards)
TEXTS = pa.array(["x" * 1000, "é"])


@pytest.fixture
def small(doors, monkeypatch):
    """A process whose policy lets no array have more than 10,000 bytes."""
    channel = doors.channel("worker", "demo")
    limits = types.SimpleNamespace(max_array=10_000)
    given = types.SimpleNamespace(
        identity=channel.identity, audit=channel.audit, policy=types.SimpleNamespace(limits=limits)
    )
    monkeypatch.setattr(_shuffle, "convert_shards", CONVERT)
    monkeypatch.setattr(partitions, "open_channels", lambda: (channel,))
    monkeypatch.setattr(joining, "open_channels", lambda: (given,))
    joining.write_out_little()
    joining.write_out_little()
    assert _shuffle.convert_shards.__wrapped__ is CONVERT
    return channel


def table(indices, texts=TEXTS, **more):
    named = pa.DictionaryArray.from_arrays(pa.array(indices, "i1"), texts)
    columns = {"v": named, **more, "_partitions": pa.array([0] * len(indices))}
    return buffers_to_table([(0, serialize_table(pa.table(columns)))])


def converted(*shards, kind="str", **more):
    meta = {"v": kind, **more, "_partitions": "i8"}
    frame = pd.DataFrame({name: pd.Series([], dtype=each) for name, each in meta.items()})
    return _shuffle.convert_shards(list(shards), frame, "_partitions", True)


@pytest.mark.usefixtures("small")
def test_few_texts_are_written_out():
    made = converted(table([0] * 9 + [None, 1]), table([1] * 400))
    assert made.v.dtype == "str"
    assert made.v[0] == "x" * 1000
    assert made.v[9:].isna().sum() == 1
    assert len(made) == 411


def test_many_are_not(small):
    with pytest.raises(PayloadError) as caught:
        converted(table([0] * 6), table([1, 0, 0, 0, 0]))
    assert caught.value.rule == "shuffle.size"
    assert [record["rule"] for record in small.audit.events] == ["shuffle.size"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("texts", [TEXTS.cast(pa.large_string()), TEXTS.cast(pa.string_view())])
def test_however_they_are_kept(texts):
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 11, "i1"), texts)
    named = pa.table({"v": rows, "_partitions": [0] * 11, "__input_partition_id": [0] * 11})
    assert joining._text_of(named) == 11_000


@pytest.mark.usefixtures("small")
def test_categories_that_stay_some_may_stand_for_anything():
    assert len(converted(table([0] * 500), kind="category")) == 500
    assert len(converted(table([0] * 500), kind="object")) == 500


def noted(rows, kind):
    """A shard of categories, of which pandas noted that they are to be of another *kind*."""
    column = {"name": "v", "field_name": "v", "pandas_type": "categorical", "numpy_type": kind}
    told = {"columns": [{**column, "metadata": None}], "index_columns": [], "column_indexes": []}
    return table([0] * rows).replace_schema_metadata({"pandas": json.dumps(told)})


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["large_string[pyarrow]", "binary[pyarrow]"])
def test_what_pandas_noted_does_not_write_categories_out(kind):
    meta = pd.DataFrame({"v": pd.Series([], dtype="category"), "_partitions": []})
    made = CONVERT([noted(500, kind)], meta, "_partitions", True)
    assert made.v.iloc[0] in {"x" * 1000, b"x" * 1000}, "the control did not run"
    with pytest.raises(PayloadError) as caught:
        converted(noted(500, kind), kind="category")
    assert caught.value.rule == "shuffle.size"
    assert len(converted(noted(5, kind), kind="category")) == 5


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["int8", "dictionary<values=string, indices=int8>[pyarrow]"])
def test_what_stays_named_by_numbers_may_stand_for_anything(kind, monkeypatch):
    if kind != "int8":  # pandas makes no type of that text by itself
        held = pd.ArrowDtype(pa.dictionary("i1", "str"))
        monkeypatch.setattr(
            "dask.dataframe.dispatch.from_pyarrow_table_dispatch",
            lambda meta, table: table.to_pandas(
                ignore_metadata=True, types_mapper=lambda kind: pd.ArrowDtype(kind)
            ),
        )
        assert joining._names(held)
    shard = noted(500, "int8")
    assert not joining._writes_out([shard], pd.DataFrame({"v": pd.Series([], dtype="category")}))


@pytest.mark.usefixtures("small")
def test_numbers_and_none_are_no_texts():
    numbers = pa.DictionaryArray.from_arrays(pa.array([0] * 500, "i1"), pa.array([7]))
    nothing = pa.DictionaryArray.from_arrays(pa.array([None] * 500, "i1"), pa.array([], "str"))
    assert len(converted(table([1] * 500, w=numbers, n=nothing), w="category", n="category")) == 500


@pytest.mark.usefixtures("small")
def test_what_came_as_text_is_not_written_out():
    plain = pa.table({"v": ["x" * 1000] * 20, "_partitions": [0] * 20})
    assert len(converted(buffers_to_table([(0, serialize_table(plain))]))) == 20


# -- rows -----------------------------------------------------------------------------------------

TABLES = getattr(_arrow.concat_tables, "__wrapped__", _arrow.concat_tables)
ROWS = pa.table({"v": np.arange(1000)})
OPAQUE = pa.opaque(pa.binary(90), "a", "b")


@pytest.fixture
def filling(small, monkeypatch):
    monkeypatch.setattr(_arrow, "concat_tables", TABLES)
    monkeypatch.setattr(joining, "_SPARE", 0)
    joining.fill_little()
    joining.fill_little()
    assert _arrow.concat_tables.__wrapped__ is TABLES


@pytest.mark.usefixtures("filling")
@pytest.mark.parametrize(
    ("column", "more"),
    [
        (pa.array([b"x" * 100], pa.binary(100)), 100_000),
        (pa.array([[1.0] * 16], pa.list_(pa.float64(), 16)), 128_000),
        (pa.array([dict.fromkeys("abcdefghijklmn", 1)]), 112_000),
        (
            pa.ExtensionArray.from_storage(
                pa.opaque(pa.binary(90), "a", "b"), pa.array([b"x" * 90], pa.binary(90))
            ),
            90_000,
        ),
    ],
)
def test_rows_are_not_filled_with_columns_of_others(column, more):
    wide = pa.table({"v": [1], "w": column})
    assert TABLES([ROWS, wide]).nbytes > more, "the control did not run"
    for tables in ([ROWS, wide], iter((wide, ROWS))):
        with pytest.raises(PayloadError) as caught:
            _arrow.concat_tables(tables)
        assert caught.value.rule == "shuffle.size"


@pytest.mark.usefixtures("filling")
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"w": [None]},
        {"w": ["x"]},
        {"w": [True], "x": pa.array(["a"]).dictionary_encode()},
        {"w": pa.array([1], "i1")},
    ],
)
def test_few_columns_are_filled(more, monkeypatch):
    monkeypatch.setattr(joining, "_LEAST", 1)
    made = _arrow.concat_tables(each for each in (ROWS, pa.table({"v": [1], **more})))
    assert made.equals(TABLES([ROWS, pa.table({"v": [1], **more})]))
    assert _arrow.concat_tables([ROWS, ROWS]).num_rows == 2000


# -- inside others --------------------------------------------------------------------------------

NAMED = pa.DictionaryArray.from_arrays(pa.array([0] * 500, "i1"), pa.array(["x" * 1000]))
ALL = pa.array([0, 500], "i4")
BOTH = pa.StructArray.from_arrays([NAMED], ["a"])
KEYS = pa.array(range(500))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays(ALL, NAMED),
        pa.ListArray.from_arrays(ALL, BOTH),
        pa.FixedSizeListArray.from_arrays(NAMED, 500),
        pa.MapArray.from_arrays(ALL, KEYS, NAMED),
        pa.DictionaryArray.from_arrays(pa.array([0], "i1"), pa.ListArray.from_arrays(ALL, NAMED)),
        pa.ExtensionArray.from_storage(
            pa.opaque(pa.list_(NAMED.type), "a", "b"), pa.ListArray.from_arrays(ALL, NAMED)
        ),
        pa.ListArray.from_arrays(
            ALL, pa.DictionaryArray.from_arrays(NAMED.indices, pa.array([[7] * 1000]))
        ),
    ],
)
def test_categories_inside_others_are_written_out(column):
    shard = pa.table({"v": column, "_partitions": [0], "__input_partition_id__": [0]})
    with pytest.raises(PayloadError) as caught:
        converted(shard, kind="object")
    assert caught.value.rule == "shuffle.size"


@pytest.mark.usefixtures("small")
def test_few_inside_others_pass():
    few = pa.array([[{"a": "x"}, None], None], pa.list_(pa.struct([("a", NAMED.type)])))
    ids = pa.array([[1, 2]] * 2, pa.list_(pa.dictionary("i1", "i8")))
    nothing = pa.array([[None]] * 2, pa.list_(NAMED.type))
    rows = {"v": few, "w": ids, "n": nothing}
    shard = pa.table({**rows, "_partitions": [0] * 2, "__input_partition_id__": [0] * 2})
    made = converted(shard, kind="object", w="object", n="object")
    assert made.v[0].tolist() == [{"a": "x"}, None]
    assert made.w[1].tolist() == [1, 2]


def test_runs_hold_their_values():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([9], "i4"), pa.array(["x"]))
    assert joining.held_arrays(runs)[0].to_pylist() == ["x"]


def lists(elements, kind=pa.ListArray):
    return kind.from_arrays([0, len(elements)], elements)


NOTHING, FLAGS = pa.nulls(1000), pa.array([True] * 1000)
WIDE_ELEMENT = pa.array([b"x" * 900], pa.binary(900))
OF_FLAGS = pa.StructArray.from_arrays([FLAGS], ["a"])
OF_BOTH = pa.StructArray.from_arrays([FLAGS[:1], WIDE_ELEMENT], ["a", "b"])


def named_by(values):
    return pa.DictionaryArray.from_arrays(pa.array([0]), values)


@pytest.mark.usefixtures("filling")
@pytest.mark.parametrize(
    ("many", "one"),
    [
        (lists(NOTHING), lists(WIDE_ELEMENT)),
        (lists(NOTHING, pa.LargeListArray), lists(WIDE_ELEMENT)),
        (pa.FixedSizeListArray.from_arrays(NOTHING, 1000), lists(WIDE_ELEMENT)),
        (lists(OF_FLAGS), lists(OF_BOTH)),
        (lists(lists(NOTHING)), lists(lists(WIDE_ELEMENT))),
        (
            pa.StructArray.from_arrays([lists(NOTHING)], ["a"]),
            pa.StructArray.from_arrays([lists(WIDE_ELEMENT)], ["a"]),
        ),
        (named_by(NOTHING), named_by(WIDE_ELEMENT)),
        (named_by(lists(NOTHING)), named_by(lists(WIDE_ELEMENT))),
        (
            pa.MapArray.from_arrays([0, 1000], pa.array([1] * 1000, "i1"), NOTHING),
            pa.MapArray.from_arrays([0, 1], pa.array([1], "i1"), WIDE_ELEMENT),
        ),
    ],
)
def test_elements_are_not_filled_as_those_of_others(many, one):
    tables = [pa.table({"v": many}), pa.table({"v": one})]
    assert TABLES(tables).nbytes > 800_000, "the control did not run"
    with pytest.raises(PayloadError) as caught:
        _arrow.concat_tables(tables)
    assert caught.value.rule == "shuffle.size"


@pytest.mark.usefixtures("filling")
def test_lists_of_nothing_pass_with_others():
    full = pa.table({"v": [[1.5] * 90] * 9, "w": [{"a": 1}] * 9})
    made = _arrow.concat_tables([full, pa.table({"v": [[None]] * 9, "w": [{"b": [1]}] * 9})])
    assert made["v"].to_pylist()[9:] == [[None]] * 9
    assert made["w"].to_pylist()[9] == {"a": None, "b": [1]}


FIELDS = [f"f{at}" for at in range(50)]
OF_MANY = pa.StructArray.from_arrays([pa.nulls(1)] * 50, FIELDS)


@pytest.mark.usefixtures("filling")
@pytest.mark.parametrize(
    ("many", "one"),
    [
        ({"v": FLAGS}, dict.fromkeys(FIELDS, pa.nulls(1))),
        ({"v": OF_FLAGS}, {"v": OF_MANY}),
        ({"v": lists(OF_FLAGS)}, {"v": lists(OF_MANY)}),
    ],
)
def test_columns_of_nothing_count_where_they_are_filled(many, one):
    tables = [pa.table(many), pa.table(one)]
    (first, *_) = TABLES(tables).to_pandas().iloc[0]
    assert len(TABLES(tables).to_pandas().columns) > 50 or len(np.ravel(first)[0]) > 50
    with pytest.raises(PayloadError) as caught:
        _arrow.concat_tables(tables)
    assert caught.value.rule == "shuffle.size"


@pytest.mark.usefixtures("filling")
def test_tables_do_not_have_all_other_columns(monkeypatch):
    monkeypatch.setattr(joining, "_MANY", 100)
    monkeypatch.setattr(joining, "_SPARE", 1 << 24)
    monkeypatch.setattr(joining, "most_bytes", lambda: 1 << 30)
    columns = [pa.table({f"{at}": pa.nulls(1)}) for at in range(40)]
    fields = [
        pa.table({"v": pa.StructArray.from_arrays([pa.nulls(1)], [f"{at}"])}) for at in range(40)
    ]
    for tables in (columns, fields):
        with pytest.raises(PayloadError) as caught:
            _arrow.concat_tables(tables)
        assert caught.value.rule == "shuffle.size"
        assert _arrow.concat_tables(tables[:8]).num_rows == 8
