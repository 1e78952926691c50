"""Profile pandas: frames come back equal, and forged blocks are refused."""

from __future__ import annotations

import datetime
import pickle
import tracemalloc

import numpy as np
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import loads
from tests.pickles.derived import family_of

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
PROFILE = ("data", "numpy", "pandas")

FRAMES = [
    pd.DataFrame({"a": [1, 2], "s": ["x", None], "f": [1.5, np.nan], "b": [True, False]}),
    pd.DataFrame({"a": [1, 2], 3: [4, 5]}, index=pd.Index(["r", "s"], name="n")),
    pd.DataFrame({"t": pd.date_range("2026", periods=3), "d": pd.to_timedelta([1, 2, 3], "s")}),
    pd.DataFrame({"o": pd.Series([1, "a", None, [2]], dtype=object)}),
    pd.DataFrame(np.arange(12.0).reshape(3, 4)),
    pd.DataFrame(),
    pd.DataFrame({"a": []}),
    pd.DataFrame([[1, 2]], columns=["same", "same"]),
    pd.DataFrame({"a": range(200)}, index=pd.Index([1] * 200, dtype=object)),
]
SERIES = [
    pd.Series([1.5, 2], name="q"),
    pd.Series(["a", "é", None]),
    pd.Series([1, 2], index=[5, 6]),
    pd.Series(pd.date_range("2026", periods=2)),
]


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("frame", FRAMES, ids=range(len(FRAMES)))
def test_frames(frame, protocol):
    data = pickle.dumps(frame, protocol)
    got = loads(data, profile=PROFILE)
    pd.testing.assert_frame_equal(got, frame)
    assert family_of(data) == "pickle"


@pytest.mark.parametrize("series", SERIES, ids=range(len(SERIES)))
def test_series(series):
    got = loads(pickle.dumps(series), profile=PROFILE)
    pd.testing.assert_series_equal(got, series)


def test_frames_out_of_band():
    buffers = []
    data = pickle.dumps(FRAMES[0], 5, buffer_callback=buffers.append)
    got = loads(data, buffers=[bytearray(b.raw()) for b in buffers], profile=PROFILE)
    pd.testing.assert_frame_equal(got, FRAMES[0])


@pytest.mark.parametrize(
    "value",
    [
        pd.Timestamp("2026-01-02 03:04:05.6"),
        pd.Timestamp("2026", tz=datetime.timezone(datetime.timedelta(hours=2))),
        pd.NaT,
        pd.NA,
        pd.RangeIndex(3, 9, 2, name="r"),
        pd.Index([1, 2]),
        pd.StringDtype("pyarrow"),
    ],
    ids=repr,
)
def test_values(value):
    got = loads(pickle.dumps(value), profile=PROFILE)
    assert repr(got) == repr(value)
    assert type(got) is type(value)


def test_frames_need_the_profile():
    with pytest.raises(PolicyDenied):
        loads(pickle.dumps(FRAMES[0]), profile=("data", "numpy"))


def text(a, offsets, content, *, kind="large_string", size=2, children=b"]"):
    buffers = [a.call("pyarrow.lib:py_buffer", a.raw(part)) for part in (offsets, content)]
    parts = (
        a.call("pyarrow.lib:type_for_alias", a.text(kind)),
        a.number(size),
        b"K\x00",
        b"K\x00",
        a.list(b"N", *buffers),
        children,
        b"N",
    )
    dtype = a.call("pandas:StringDtype", a.text("pyarrow"), a.name("pandas:NA"))
    array = a.call("pyarrow.lib:_restore_array", a.tuple(*parts))
    fields = a.dict(a.text("_pa_array"), array, a.text("_dtype"), dtype)
    return a.build(a.new("pandas.arrays:ArrowStringArray"), fields)


def offsets(*ends):
    return b"".join(end.to_bytes(8, "little", signed=True) for end in ends)


def test_text_is_read_where_its_offsets_are_sound(asm):
    got = loads(asm.pickle(text(asm, offsets(0, 1, 3), b"abc")), profile=PROFILE)
    assert got.tolist() == ["a", "bc"]


@pytest.mark.parametrize(
    "recipe",
    [
        lambda a: text(a, offsets(0, 1, 1 << 40), b"abc"),
        lambda a: text(a, offsets(0, -8, 1), b"abc"),
        lambda a: text(a, offsets(2, 1, 0), b"abc"),
        lambda a: text(a, offsets(0, 1), b"abc"),
        lambda a: text(a, offsets(0, 1, 3), b"\xff\xff\xff"),
        lambda a: text(a, offsets(0, 1, 3), b"abc", size=1 << 62),
        lambda a: text(a, offsets(0, 1, 3), b"abc", kind="large_binary"),
        lambda a: text(a, offsets(0, 1, 3), b"abc", children=b"N"),
    ],
)
def test_forged_text_is_refused(asm, recipe):
    with pytest.raises(PayloadError):
        loads(asm.pickle(recipe(asm)), profile=PROFILE)


def block(a, values, start, stop, ndim=b"K\x02", step=1):
    where = a.call("builtins:slice", a.number(start), a.number(stop), a.number(step))
    return a.call("pandas._libs.internals:_unpickle_block", values, where, ndim)


def numbers(a, *shape):
    dtype = a.build(
        a.call("numpy:dtype", a.text("f8"), b"\x89", b"\x88"),
        a.tuple(b"K\x03", a.text("<"), b"N", b"N", b"N", a.number(-1), a.number(-1), b"K\x00"),
    )
    raw = a.raw(bytes(8 * int(np.prod(shape))))
    sizes = a.tuple(*map(a.number, shape))
    return a.call("numpy._core.numeric:_frombuffer", raw, dtype, sizes, a.text("C"))


def index(a, size, **more):
    fields = {"name": b"N", "start": b"K\x00", "stop": a.number(size), "step": b"K\x01", **more}
    pairs = [part for name, value in fields.items() for part in (a.text(name), value)]
    return a.call(
        "pandas.core.indexes.base:_new_Index", a.name("pandas:RangeIndex"), a.dict(*pairs)
    )


def frame(a, *blocks, columns=2, rows=3, **more):
    axes = a.list(index(a, columns), index(a, rows))
    manager = a.call("pandas.core.internals.managers:BlockManager", a.tuple(*blocks), axes)
    fields = {"_mgr": manager, **more}
    pairs = [part for name, value in fields.items() for part in (a.text(name), value)]
    return a.build(a.new("pandas:DataFrame"), a.dict(*pairs))


def test_the_recipe_makes_a_frame(asm):
    body = frame(asm, block(asm, numbers(asm, 2, 3), 0, 2))
    assert loads(asm.pickle(body), profile=PROFILE).shape == (3, 2)


@pytest.mark.parametrize(
    "recipe",
    [
        lambda a: frame(a, block(a, numbers(a, 1, 3), 0, 1)),
        lambda a: frame(a, block(a, numbers(a, 2, 3), 1, 3)),
        lambda a: frame(a, block(a, numbers(a, 2, 3), 0, 1 << 40)),
        lambda a: frame(a, *[block(a, numbers(a, 2, 3), 0, 2)] * 2),
        lambda a: frame(a, block(a, numbers(a, 2, 4), 0, 2)),
        lambda a: frame(a, block(a, numbers(a, 2, 3, 1), 0, 2)),
        lambda a: frame(a, block(a, numbers(a, 2, 3), -2, 0)),
        lambda a: frame(a, block(a, numbers(a, 2, 3), 0, 2, b"K\x01")),
        lambda a: frame(a, block(a, b"]", 0, 1), columns=1),
        lambda a: frame(a, b"N"),
        lambda a: frame(a, block(a, numbers(a, 2, 3), 0, 2), attrs=b"]"),
        lambda a: frame(a, block(a, numbers(a, 2, 3), 0, 2), _flags=a.dict(a.text("x"), b"N")),
        lambda a: frame(a, columns=1 << 40),
        lambda a: a.build(a.new("pandas:DataFrame"), a.dict(a.text("_mgr"), b"N")),
        lambda a: a.build(a.new("pandas:Series"), a.dict(a.text("_mgr"), b"]")),
        lambda a: a.build(
            a.new("pandas.core.internals.managers:SingleBlockManager"),
            a.tuple(a.list(index(a, 2)), a.list(numbers(a, 3)), b"]", b"}"),
        ),
        lambda a: a.new("pandas:DataFrame"),
        lambda a: index(a, 3, data=b"]"),
        lambda a: index(a, 1 << 62),
        lambda a: index(a, 3, name=b"]"),
        lambda a: a.call("pandas.core.internals.managers:BlockManager", b")", a.list(b"N", b"N")),
        lambda a: a.call("pandas:StringDtype", a.text("other")),
        lambda a: a.call("pyarrow.lib:py_buffer", a.text("x")),
        lambda a: a.call("pyarrow.lib:_restore_array", a.tuple(*[b"N"] * 7)),
        lambda a: a.call(
            "pyarrow.lib:_restore_array",
            a.tuple(
                a.call("pyarrow.lib:type_for_alias", a.text("string")),
                a.number(-1),
                b"K\x00",
                b"K\x00",
                b"]",
                b"]",
                b"N",
            ),
        ),
        lambda a: a.build(
            a.new("pandas.arrays:ArrowStringArray"),
            a.dict(
                a.text("_pa_array"),
                b"N",
                a.text("_dtype"),
                a.call("pandas:StringDtype", a.text("pyarrow")),
            ),
        ),
        lambda a: a.call("pandas._libs.arrays:__pyx_unpickle_NDArrayBacked", b"N", b"N", b"N"),
        lambda a: a.build(
            a.call(
                "pandas._libs.arrays:__pyx_unpickle_NDArrayBacked",
                a.name("pandas.arrays:DatetimeArray"),
                b"N",
                b"N",
            ),
            a.tuple(b"N", numbers(a, 1), b"}"),
        ),
        lambda a: a.call("pandas._libs.tslibs.nattype:_nat_unpickle", b"K\x01"),
        lambda a: a.call(
            "pandas._libs.tslibs.timestamps:_unpickle_timestamp", b"K\x00", b"N", b"K\x05"
        ),
    ],
)
def test_forged_frames_are_refused(asm, recipe):
    with pytest.raises(PayloadError):
        loads(asm.pickle(recipe(asm)), profile=PROFILE)


def test_without_the_library_the_refusal_says_which(monkeypatch):
    from safeser.pickles.shims import registry

    monkeypatch.setitem(registry._MODULES, "gone", "safeser.pickles.shims.gone")
    with pytest.raises(PayloadError, match="needs gone"):
        registry.shim("gone.thing")


def test_the_refusal_names_the_library_and_not_the_module(monkeypatch):
    import importlib

    from safeser.pickles.shims import registry

    def missing(name):
        raise ModuleNotFoundError(name="pyarrow.lib")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(PayloadError, match="needs pyarrow, which is not installed"):
        registry.shim("arrow.nothing")


def test_columns_without_rows_are_counted_before_they_are_taken_apart(asm):
    # 700 bytes took seven gigabytes: one view for each of the columns of a block without rows.
    from pandas._libs.internals import _unpickle_block
    from pandas.core.internals.managers import BlockManager

    class Reduced:
        def __init__(self, *made):
            self.made = made

        def __reduce__(self):
            return self.made[0], self.made[1:]

    def frame(places, labels):
        block = Reduced(_unpickle_block, np.empty((1 << 24, 0), "i1"), places, 2)
        return pickle.dumps(Reduced(BlockManager, (block,), [labels, pd.RangeIndex(0)]))

    tracemalloc.start()
    try:
        for places in (slice(0, 1, 1), slice(0, 1 << 24, 1), slice(0, 1 << 62, 1)):
            with pytest.raises(PayloadError):
                loads(frame(places, pd.Index([0])), profile=PROFILE)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_text_does_not_change_through_an_array_over_its_buffer(asm):
    # Arrow follows offsets without looking once they were checked.
    raw = bytearray(np.array([0, 1, 2], np.int32).tobytes())
    pieces = [pa.py_buffer(raw), pa.py_buffer(b"ab")]
    arrow = pa.Array.from_buffers(pa.string(), 2, [None, *pieces])
    frame = pd.Series(pd.arrays.ArrowStringArray(arrow, dtype=pd.StringDtype("pyarrow")))
    buffers = []
    data = pickle.dumps(frame, 5, buffer_callback=buffers.append)
    given = [bytearray(buffer.raw()) for buffer in buffers]
    got = loads(data, buffers=given, profile=PROFILE)
    expected = got.tolist()
    for buffer in given:
        buffer[:] = b"\x7f" * len(buffer)
    assert got.tolist() == expected


@pytest.mark.parametrize(("rows", "columns"), [(0, 100_000), (0, 200_000), (1, 200_000)])
def test_columns_without_rows_are_counted(rows, columns):
    # 551 bytes of a frame without rows kept pandas busy for minutes, for gigabytes.
    frame = pd.DataFrame(np.zeros((rows, columns), "i1"))
    data = pickle.dumps(frame)
    if rows or columns < 1 << 17:
        assert loads(data, profile=PROFILE).equals(frame)
    else:
        with pytest.raises(PayloadError, match="frame without rows"):
            loads(data, profile=PROFILE)


def test_each_column_is_charged_where_pandas_takes_them_one_by_one(monkeypatch):
    monkeypatch.delattr(pd.api.internals, "create_dataframe_from_blocks", raising=False)
    with pytest.raises(PayloadError, match="more elements than allowed"):
        loads(pickle.dumps(pd.DataFrame(np.zeros((0, 100_000), "i1"))), profile=PROFILE)
