"""What once came back altered, or ended the process of its receiver, though nobody attacked."""

import datetime as dt
import os
import zoneinfo

import pytest
from families_attack import FAMILIES, GRANT, through
from test_arrow_forged import forged, raw

from safeser import families
from safeser.errors import PayloadError, SerializationError
from safeser.families import plain

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
bounds = pytest.importorskip("safeser.types.pandas")
parts = pytest.importorskip("safeser.families.pandas.parts")


def refused(value):
    with pytest.raises(SerializationError) as caught:
        families.serialize(value, FAMILIES)
    return str(caught.value)


@pytest.mark.parametrize("missing", [None, float("nan"), "b"])
def test_texts_of_a_column_that_differ_behind_a_nul(missing):
    """pandas 2 told them apart as C does, and so every "a\\0" came back as "a"."""
    texts = ["a", "a\0", "a\0b", missing] * 100
    for held in (pd.Series(texts, dtype=object), pd.Index(texts, dtype=object)):
        assert list(map(repr, through(held))) == list(map(repr, held))


def test_a_zone_that_was_read_from_a_file_is_none_of_the_database():
    installed = [path for path in zoneinfo.TZPATH if os.path.exists(f"{path}/Asia/Tokyo")]
    if not installed:
        pytest.skip("there is no zone database")
    with open(f"{installed[0]}/Asia/Tokyo", "rb") as file:
        zone = zoneinfo.ZoneInfo.from_file(file, key="Europe/Berlin")
    stamps = pd.DatetimeIndex(["2020"], tz=zone)
    for value in (zone, [dt.datetime(2020, 1, 1, tzinfo=zone)] * 5, stamps, stamps[0]):
        assert "installed zoneinfo.ZoneInfo" in refused(value)
    for sound in (zoneinfo.ZoneInfo("Asia/Tokyo"), zoneinfo.ZoneInfo.no_cache("Asia/Tokyo")):
        assert through(sound).key == "Asia/Tokyo"


def test_texts_of_python_under_a_dtype_of_arrow():
    """pandas 3 makes them with its public constructor; they came back with another dtype."""
    texts = pd.arrays.StringArray(np.array(["a", pd.NA], object))
    if texts.dtype.storage == "python":
        assert through(texts).dtype == texts.dtype
        return
    assert "(column 'x')" in refused(pd.DataFrame({"x": texts}))
    assert "convert it" in refused(texts)


def test_the_array_of_an_index_stays_one_that_nobody_writes_to():
    for held in (pd.date_range("2020", periods=2), pd.Index([1, 2], dtype="Int64")):
        array = held.array
        assert getattr(through(array), "_readonly", None) == getattr(array, "_readonly", None)
        assert getattr(through(array.copy()), "_readonly", False) is False
    header, frames = families.serialize(pd.array([1, 2]), FAMILIES)
    for flag in (False, 1, None, []):
        header["sub-header"]["readonly"] = flag
        with pytest.raises(PayloadError):
            families.deserialize(header, frames, GRANT)


def test_columns_named_by_dates_that_no_datetime_can_hold():
    """Naming the column for an error that nobody raised was an error of its own."""
    if pd.__version__ < "3":
        pytest.skip("this version has names for them")
    far = pd.DatetimeIndex(np.array([10**14], "M8[s]")).tz_localize("UTC")
    columns = far.tz_convert(zoneinfo.ZoneInfo("Europe/Berlin"))
    frame = pd.DataFrame({0: pd.Categorical(["text"])})
    frame.columns = columns
    assert through(frame).columns.dtype == columns.dtype
    frame = pd.DataFrame({0: pd.Categorical([object()])})
    frame.columns = columns
    assert "(column 0)" in refused(frame)


# Arrow looks for the bitmap of a dictionary's values, where values of type null have none.
HOLLOW = ("dictionary", False, "int8", "null")


def test_indexes_into_a_dictionary_of_nulls():
    indexes = pa.array([0, None, 1], pa.int8())
    hollow = pa.DictionaryArray.from_arrays(indexes, pa.nulls(2))
    within = pa.StructArray.from_arrays([hollow], ["a"])
    own = pa.ExtensionArray.from_storage(pa.opaque(pa.null(), "t", "v"), pa.nulls(2))
    for value in (hollow, within, pa.DictionaryArray.from_arrays(indexes, own), hollow[0]):
        assert "nothing but nulls" in refused(value)
    assert "(column 'x')" in refused(pa.table({"x": hollow}))
    for nothing in (hollow.slice(1, 1), pa.nulls(3).dictionary_encode(), hollow.slice(0, 0)):
        got = through(nothing)
        assert got.equals(nothing)
        assert got.is_null().to_pylist() == [True] * len(nothing)


def test_forged_indexes_into_a_dictionary_of_nulls():
    values = (2, 0, 1, -1)
    there, gone = (2, 0, 2, -1, raw("b", 0, 1)), (2, 0, 2, raw("B", 0), raw("b", 0, 1))
    one = ("struct", 1, "a", True, None, *HOLLOW)
    for kind in (HOLLOW, one):
        outer = (2, 0, 1, -1) if kind is one else ()
        # A dictionary that stands alone may be shared, and then has a number.
        shared = (None,) if kind is HOLLOW else ()
        header, frames = forged("Array", *kind, *outer, *there, *shared, *values)
        with pytest.raises(PayloadError) as caught:
            families.deserialize(header, frames, GRANT)
        assert "nothing but nulls" in str(caught.value)
        header, frames = forged("Array", *kind, *outer, *gone, *shared, *values)
        assert len(families.deserialize(header, frames, GRANT)) == 2


def odd(frame):
    """Return *frame* at an address at which no number should begin."""
    held = bytearray(len(frame) + 1)
    held[1:] = frame
    return memoryview(held)[1:]


def through_odd(value):
    header, frames = families.serialize(value, FAMILIES)
    return families.deserialize(header, [odd(bytes(frame)) for frame in frames], GRANT)


def test_numbers_that_nobody_may_write_to_where_frames_begin_anywhere():
    """They were copied to where compiled code wants them, and then anybody could write to them."""
    xr = pytest.importorskip("xarray")
    for writeable in (False, True):
        variable = xr.Variable("x", np.arange(3.0))
        variable.values.flags.writeable = writeable
        assert through_odd(variable).values.flags.writeable is writeable


def test_numbers_that_are_seen_many_times_are_not_written_out_to_be_aligned():
    """Eight bytes at an odd address took as much memory as they claimed to be seen."""
    xr = pytest.importorskip("xarray")
    got = through_odd(xr.Variable("x", np.broadcast_to(np.float64(3), (1 << 20,))))
    assert got.values.strides == (0,)
    assert got.values.flags.aligned


def in_frame(blocks, columns, **more):
    meta = {
        "index": ["range", None, 0, 0, 1],
        "attrs": False,
        "unique": False,
        "columns": ["range", None, 0, columns, 1],
        "blocks": blocks,
    }
    return {"serializer": "dask", "type": "pandas:DataFrame", "sub-header": meta, **more}


def test_columns_that_cost_nothing_to_say():
    """Three and a half kilobytes said that there were a hundred million, and took 1.6 GB."""
    most = 10**6
    for widths in ((most + 1,), (most,) * 2, (1 << 16,) * 3):
        blocks = [[["numbers", "<f8", 0], at * width, width, 1] for at, width in enumerate(widths)]
        with pytest.raises(PayloadError) as caught:
            families.deserialize(in_frame(blocks, sum(widths)), [b""] * len(blocks), GRANT)
        assert caught.value.rule == "value.columns"


def test_many_parts_do_not_each_count_all_frames(monkeypatch):
    """A megabyte of sparse columns without rows took ten minutes."""
    count = 50
    sparse = ["sparse", ["numbers", "<f8", 0], False, 0]
    blocks = [[sparse, at, 1, 1] for at in range(count)]
    index = ["Index", None, None, ["numbers", "<f8", 0]]
    blocks += [[["categories", index, False, "|i1", 0], at, 1, 1] for at in range(count, 2 * count)]
    header = in_frame(
        blocks,
        2 * count,
        **{"sub-headers": [{"serializer": "msgpack"}] * count, "frame-lengths": [1] * count},
    )
    frames = [b""] * 4 * count + [plain.encode(0.0)] * count
    counted = []
    site = parts.site
    monkeypatch.setattr(parts, "site", lambda *args: counted.append(args) or site(*args))
    assert families.deserialize(header, frames, GRANT).shape == (0, 2 * count)
    assert len(counted) == 1


# Asked for JSON of such a column, pandas 3.1 raises in C and frees what it does not own.
UNKNOWN = [pa.string_view(), pa.list_view(pa.int8()), pa.run_end_encoded(pa.int16(), pa.int8())]


@pytest.mark.parametrize("kind", UNKNOWN, ids=str)
def test_columns_of_arrow_types_that_pandas_does_not_know(kind, monkeypatch):
    content = pa.chunked_array([pa.nulls(2, kind)])
    column = pd.arrays.ArrowExtensionArray(content)
    assert "(column 'x')" in refused(pd.DataFrame({"x": column}))
    assert through(content).type == kind
    monkeypatch.setattr(bounds, "is_known", lambda kind: True)
    header, frames = families.serialize(pd.DataFrame({"x": column}), FAMILIES)
    monkeypatch.undo()
    with pytest.raises(PayloadError):
        families.deserialize(header, frames, GRANT)


@pytest.mark.parametrize("within", [lambda dtype: dtype, lambda dtype: [("in", dtype, (2,))]])
def test_fields_that_were_not_chosen_stay_at_home(within):
    """A view of some fields went with the memory of the others."""
    whole = np.zeros(3, [("name", "S4"), ("secret", "S8"), ("n", "i4")])
    whole["secret"] = b"SECRET!!"
    whole["n"] = 7
    chosen = whole[["name", "n"]]
    if within(1) != 1:
        outer = np.zeros(2, within(chosen.dtype))
        outer.view("u1")[...] = np.frombuffer(b"SECRET!!", "u1")[0]
        outer["in"]["n"] = 7
        chosen = outer
    for value in (chosen, chosen[0], chosen[::2], chosen.view(np.recarray), np.ma.array(chosen)):
        header, frames = families.serialize(value, FAMILIES)
        sent = plain.encode(header) + b"".join(map(bytes, frames))
        assert b"SECRET" not in sent
        assert b"SSSSS" not in sent  # the name has four of them
        got = through(value)
        assert got.dtype == value.dtype
        assert repr(got) == repr(value)
    frozen = np.broadcast_to(chosen[:1], (4,))
    assert repr(through(frozen)) == repr(frozen)


def test_intervals_that_receivers_refuse_are_refused_where_the_column_has_a_name():
    for dtype in ("Int64", ">i8"):
        ends = pd.array([1, 2], dtype=dtype) if dtype == "Int64" else np.array([1, 2], dtype)
        column = pd.arrays.IntervalArray.from_breaks(ends)
        if column._left.dtype == dtype:
            assert "(column 'x')" in refused(pd.DataFrame({"x": column}))
    for sound in (pd.interval_range(0, 3), pd.interval_range(pd.Timestamp("2020"), periods=2)):
        assert through(sound).equals(sound)
