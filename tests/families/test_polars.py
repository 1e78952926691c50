"""polars' frames and series: each comes back exactly, or is refused with its column's name."""

import datetime as dt
import subprocess
import sys
import tracemalloc
from functools import reduce

import pytest
from families_attack import FAMILIES, GRANT, through
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain
from tests.draws import draws

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

from tests.samples.values.polars import columns  # noqa: E402 - it needs polars

COLUMNS = columns()


def same(got, expected):
    assert type(got) is type(expected)
    assert got.n_chunks() == expected.n_chunks()
    if isinstance(expected, pl.Series):
        assert (got.name, got.dtype) == (expected.name, expected.dtype)
        assert got.equals(expected, check_dtypes=True, null_equal=True)
    else:
        assert list(got.schema.items()) == list(expected.schema.items())
        assert got.equals(expected, null_equal=True)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_comes_back(name):
    series = COLUMNS[name]
    many = pl.concat([series] * 20)
    parts = [series, many[7:13], pl.concat([series, series], rechunk=False), series[:0]]
    for part in parts:
        same(through(part), part)
        same(through(part.alias("n")), part.alias("n"))
        frame = pl.DataFrame({name: part, "": part})
        same(through(frame), frame)


def test_frames():
    whole = pl.DataFrame({name: COLUMNS[name] for name in COLUMNS})
    for frame in (whole, whole[1:], pl.DataFrame(), pl.DataFrame({"a": []})):
        same(through(frame), frame)
    got = through({"a": whole, "b": [whole["ints"]]})
    same(got["a"], whole)
    same(got["b"][0], whole["ints"])


@pytest.mark.parametrize("count", [0, 1, 254, 255, 256, 65_535, 65_536])
def test_enums_of_any_size(count):
    kind = pl.Enum([str(number) for number in range(count)])
    series = pl.Series("e", [None, *([str(count - 1), "0"] if count else [])], dtype=kind)
    same(through(series), series)
    nested = pl.Series([[None], []], dtype=pl.List(kind))
    same(through(nested), nested)


FAR = pl.Series([2**31 - 1, None], dtype=pl.Int32).cast(pl.Date)
LATE = pl.Series([2**62], dtype=pl.Int64)
#: Which polars panics at, and no handler of exceptions stops that.
LONG = pl.Series([-(2**63)], dtype=pl.Int64).cast(pl.Duration("ms"))
LONGEST = pl.Series([dt.timedelta.max.days, -dt.timedelta.max.days]) * 86_400_000
REFUSED = {
    "objects": (pl.Series([object()], dtype=pl.Object), "'Object' is not kept"),
    "large integers": (pl.Series([1 << 100], dtype=pl.Int128), "'Int128' is not kept"),
    "empty arrays": (pl.Series([[]], dtype=pl.Array(pl.Int64, 0)), "is not kept"),
    "own categories": (
        pl.Series(["a"], dtype=pl.Categorical(pl.Categories("own"))),
        "named categories",
    ),
    "far dates": (FAR, "dates outside of the years 1 to 9999"),
    "long durations": (LONG, "of more than a billion days"),
    "long durations in lists": (LONG.implode(), "of more than a billion days"),
    "far times": (LATE.cast(pl.Datetime("us")), "dates outside of the years 1 to 9999"),
    "zoned times": (LATE.cast(pl.Datetime("ms", "UTC")), "dates outside of the years 1 to 9999"),
    "dates in lists": (FAR.implode(), "dates outside of the years 1 to 9999"),
    "dates in structures": (pl.DataFrame({"x": FAR}).to_struct("s"), "dates outside"),
    "dates in arrays": (FAR.reshape((1, 2)), "dates outside of the years 1 to 9999"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_altered_is_refused(name):
    series, said = REFUSED[name]
    for value in (series, pl.DataFrame({"fine": series.is_null(), "wrong": series})):
        with pytest.raises(PayloadError, match=said) as caught:
            families.serialize(value, FAMILIES)
        if "outside" not in said and "days" not in said and isinstance(value, pl.DataFrame):
            assert caught.value.where == "(column 'wrong')"


def test_durations_that_python_has_are_kept():
    longest = LONGEST.cast(pl.Duration("ms"))
    same(through(longest), longest)
    for unit in ("us", "ns"):
        least = pl.Series([-(2**63)], dtype=pl.Int64).cast(pl.Duration(unit))
        same(through(least), least)


def test_plans_are_refused_on_both_sides():
    with pytest.raises(PayloadError, match="collect"):
        families.serialize(pl.DataFrame({"a": [1]}).lazy(), FAMILIES)
    header = {"serializer": "dask", "type": "polars:LazyFrame", "sub-header": {}}
    with pytest.raises(PayloadError, match="a lazy frame is a plan"):
        families.deserialize(header, [b""], GRANT)


def test_rows_without_columns_are_refused():
    with pytest.raises(PayloadError, match="rows without any column"):
        families.serialize(pl.DataFrame(height=3), FAMILIES)


def forged(described, table, *, kind="DataFrame"):
    """Return what comes of a peer who says that *table* holds columns as *described*."""
    inner, frames = families.serialize(table, FAMILIES)
    header = {
        "serializer": "dask", "type": f"polars:{kind}", "sub-header": {},
        "sub-headers": [inner], "frame-lengths": [len(frames)],
    }  # fmt: skip
    frames = [plain.encode(described), *frames]
    return families.deserialize(header, [bytes(frame) for frame in frames], GRANT)


def of(kind, values=()):
    return pa.table({"x": pa.array(values, kind)})


def coded(*words, index=None, ordered=False, metadata=None):
    codes = pa.array(range(len(words)), index or pa.uint32())
    values = pa.array(words, pa.string_view())
    array = pa.DictionaryArray.from_arrays(codes, values, ordered=ordered)
    return pa.table([array], pa.schema([pa.field("x", array.type, metadata=metadata)]))


def ranked(*words):
    return coded(*words, index=pa.uint8(), ordered=True)


FORGED = {
    # polars panics at the first, and cannot know the others' classes
    "wide decimals": ([["x", "Int64"]], of(pa.decimal256(50, 2))),
    "intervals": ([["x", "Int64"]], of(pa.month_day_nano_interval())),
    "other numbers": ([["x", "Int64"]], of(pa.int32())),
    "other text": ([["x", "String"]], of(pa.large_string())),
    "another name": ([["y", "Int64"]], of(pa.int64())),
    "a column too many": ([["x", "Int64"], ["y", "Int64"]], of(pa.int64())),
    "metadata": ([["x", "Categorical"]], coded("a", metadata={"_PL_CATEGORICAL2": "9"})),
    "wrong index": ([["x", "Categorical"]], coded("a", index=pa.int32())),
    "unknown type": ([["x", "Object"]], of(pa.int64())),
    "unknown parts": ([["x", ["Series", "Int64"]]], of(pa.int64())),
    "no parts": ([["x", ["List"]]], of(pa.large_list(pa.int64()))),
    "empty": ([["x", []]], of(pa.int64())),
    "none": ([["x", None]], of(pa.int64())),
    "number": (5, of(pa.int64())),
    "pair": (["x"], of(pa.int64())),
    "name": ([[5, "Int64"]], of(pa.int64())),
    "unit": ([["x", ["Duration", "s"]]], of(pa.duration("s"))),
    "zone": ([["x", ["Datetime", "us", "No/Where"]]], of(pa.timestamp("us", "No/Where"))),
    "zone by number": ([["x", ["Datetime", "us", 5]]], of(pa.timestamp("us", "UTC"))),
    "precision": ([["x", ["Decimal", 1 << 80, 2]]], of(pa.decimal128(5, 2))),
    "scale": ([["x", ["Decimal", 5, -2]]], of(pa.decimal128(5, 2))),
    "size": ([["x", ["Array", 1 << 80, "Int8"]]], of(pa.list_(pa.int8(), 2))),
    "no size": ([["x", ["Array", 0, "Int8"]]], of(pa.list_(pa.int8(), 0))),
    "enum of numbers": ([["x", ["Enum", [1]]]], ranked("a")),
    "enum twice": ([["x", ["Enum", ["a", "a"]]]], ranked("a")),
    "enum of others": (
        [["x", ["Enum", ["a"]]]],
        ranked("b"),
    ),
    "far dates": (
        [["x", "Date"]],
        pa.table({"x": pa.array([2**31 - 1], pa.int32()).view("date32")}),
    ),
    "long durations": (
        [["x", ["Duration", "ms"]]],
        pa.table({"x": pa.array([-(2**63)]).view(pa.duration("ms"))}),
    ),
    "early times": (
        [["x", ["Datetime", "ms", None]]],
        pa.table({"x": pa.array([-(2**60)]).view(pa.timestamp("ms"))}),
    ),
    "deep": ([["x", reduce(lambda inner, _: ["List", inner], range(40), "Int8")]], ranked("a")),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_polars_would_not_have_written_is_refused(name):
    described, table = FORGED[name]
    with pytest.raises(PayloadError) as caught:
        forged(described, table)
    assert caught.value.rule.startswith("families.")


def test_a_name_stands_for_one_column():
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(PayloadError, match="two of its columns"):
        forged([["x", "Int64"], ["x", "Int64"]], twice)
    with pytest.raises(PayloadError, match="does not list its columns"):
        forged([["x", "Int64"], ["y", "Int64"]], of(pa.int64()), kind="Series")
    assert forged([["x", "Int64"]], of(pa.int64(), [1]), kind="Series").to_list() == [1]
    header, frames = families.serialize(5, FAMILIES)
    holder = {
        "serializer": "dask", "type": "polars:Series", "sub-header": {},
        "sub-headers": [header], "frame-lengths": [len(frames)],
    }  # fmt: skip
    with pytest.raises(PayloadError, match="does not hold an Arrow table"):
        families.deserialize(holder, [plain.encode([["x", "Int64"]]), *frames], GRANT)


def test_chunks_of_many_parts_are_bounded():
    # A word stands for an empty chunk, and polars takes each apart.
    fields = [[f"f{number}", "Date"] for number in range(600)]
    kind = pa.struct([(name, pa.date32()) for name, _ in fields])
    column = pa.chunked_array([pa.nulls(0, kind)] * 2000, kind)
    described = [["x", ["Struct", fields]]]
    with pytest.raises(PayloadError, match="more parts than max_refs"):
        forged(described, pa.table({"x": column}))
    assert forged(described, pa.table({"x": column.slice(0)}).combine_chunks()).height == 0


def test_a_panic_is_a_refusal(monkeypatch):
    """Panics are no Exception: one that came through would end whatever thread reads messages."""

    def panic(*_, **__):
        raise pl.exceptions.PanicException("out of range")

    frame = pl.DataFrame({"a": [1]})
    header, frames = families.serialize(frame, FAMILIES)
    monkeypatch.setattr(pl, "from_arrow", panic)
    with pytest.raises(PayloadError, match="cannot import it"):
        families.deserialize(header, frames, GRANT)
    monkeypatch.setattr(pl.DataFrame, "to_arrow", panic)
    with pytest.raises(PayloadError, match="cannot export it"):
        families.serialize(frame, FAMILIES)


def test_arrow_is_known_where_polars_is():
    """A plan that was refused had polars' types listed without those of the tables in them."""
    code = """
import polars
from safeser import families
from safeser.errors import SafeserError
from safeser.families.registry import registry
try:
    families.serialize(polars.DataFrame({"a": [1]}).lazy(), ("dask",))
except SafeserError:
    assert registry.listed("pyarrow:Table") is not None
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_large_buffers_are_not_copied():
    frame = pl.DataFrame({"a": np.arange(100_000.0), "b": ["text that is long"] * 100_000})
    exported = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    header, frames = families.serialize(frame, FAMILIES)
    sent = {pa.py_buffer(sent).address for sent in frames}
    for name in "ab":
        chunk = exported[name].chunk(0)
        assert {buffer.address for buffer in chunk.buffers() if buffer} <= sent
    received = [memoryview(bytearray(sent)) for sent in frames]
    places = {pa.py_buffer(sent).address for sent in received}
    tracemalloc.start()
    got = families.deserialize(header, received, GRANT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < frame.estimated_size() // 10
    chunk = got.to_arrow(compat_level=pl.CompatLevel.newest())["a"].chunk(0)
    assert chunk.buffers()[1].address in places


@draws(25)
@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=8),
    st.lists(st.one_of(st.none(), st.text(max_size=20)), max_size=8),
    st.lists(st.one_of(st.none(), st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)))),
)
def test_any_values_come_back(numbers, texts, moments):
    kinds = (pl.Int64, pl.String, pl.Datetime("us"))
    for values, kind in zip((numbers, texts, moments), kinds, strict=True):
        for series in (
            pl.Series("n", values, dtype=kind),
            pl.Series("n", [values, None, []], dtype=pl.List(kind)),
            pl.Series("n", [{"x": value} for value in values], dtype=pl.Struct({"x": kind})),
        ):
            same(through(series), series)
