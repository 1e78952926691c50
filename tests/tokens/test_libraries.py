"""Arrays, frames and tables: their values count, and how they lie in memory does not."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse

from safeser import TokenizationError, tokenize


def distinct(*values):
    return len({tokenize(each, ensure_deterministic=True) for each in values}) == len(values)


def same(*values):
    return len({tokenize(each, ensure_deterministic=True) for each in values}) == 1


def test_blocks_of_a_frame_do_not_count():
    one = pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": ["x", None]})
    other = pd.DataFrame({"a": [1, 2]})
    other["b"], other["c"] = [3, 4], pd.Series(["x", None])
    assert same(one, other, one.copy(), pd.concat([one[:1], one[1:]]))
    changed = [
        one.assign(b=[3, 5]),
        one.rename(columns={"a": "d"}),
        one[["b", "a", "c"]],
        one[::-1],
    ]
    attributes = one.copy()
    attributes.attrs["unit"] = "m"
    assert distinct(one, *changed, attributes, one.set_index("a"), one.astype({"a": "int32"}))


def test_series_and_indexes_count_by_values_names_and_types():
    assert distinct(
        pd.Series([1, 2]), pd.Series([1, 2], name="a"), pd.Series([1, 2], index=[1, 2]),
        pd.Series([1.0, 2]), pd.Index([1, 2]), pd.Index([1, 2], name="a"), pd.RangeIndex(1, 3),
        pd.Series(["a", "b"]), pd.Series(["a", "b"], dtype=object), pd.Series(["a", None]),
        pd.Series(["a", "b"], dtype="category"),
        pd.Series(pd.Categorical(["a", "b"], ["b", "a"])),
        pd.Series(pd.Categorical(["a", "b"], ordered=True)), pd.CategoricalIndex(["a", "b"]),
        pd.date_range("2026", periods=2), pd.date_range("2026", periods=2, tz="UTC"),
        pd.period_range("2026", periods=2), pd.timedelta_range("1D", periods=2),
        pd.date_range("2026-01-31", periods=1, freq="D"),
        pd.date_range("2026-01-31", periods=1, freq="ME"),
        pd.MultiIndex.from_tuples([(1, 2)]), pd.MultiIndex.from_tuples([(1, 2)], names=["a", "b"]),
        pd.interval_range(0, 2), pd.interval_range(0, 2, closed="left"),
    )  # fmt: skip
    wide = pd.MultiIndex.from_product([[1, 2], ["a", "b"]])
    assert same(wide[:1], pd.MultiIndex.from_tuples([(1, "a")])), "unused levels do not count"


def test_what_lies_under_a_null_does_not_count():
    one = pd.array([1, None, 3], dtype="Int64")
    other = pd.arrays.IntegerArray(np.array([1, 99, 3]), np.array([False, True, False]))
    assert same(one, other)
    hidden = pa.Array.from_buffers(
        pa.int64(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([1, 99, 3]))]
    )
    assert same(pa.array([1, None, 3]), hidden)
    text = pa.Array.from_buffers(
        pa.string(), 2,
        [pa.py_buffer(b"\x01"), pa.py_buffer(np.array([0, 1, 3], "i4")), pa.py_buffer(b"abc")],
    )  # fmt: skip
    assert same(pa.array(["a", None]), text)


ARROW = [
    pa.array([1, 2, None, 4]), pa.array([1.5, 2, None, 4]), pa.array(["a", None, "bcd", ""]),
    pa.array([b"a", b"", None, b"x"]), pa.array(["a", None, "bcd", ""], pa.large_string()),
    pa.array([True, None, False, True]), pa.array([[1], [], None, [2, 3]]),
    pa.array([[1], [], None, [2, 3]], pa.large_list(pa.int8())), pa.nulls(4),
    pa.array([{"a": 1}, None, {"a": None}, {"a": 4}]),
    pa.array([[1, 2]] * 4, pa.list_(pa.int8(), 2)),
    pa.array([[("k", 1)], [], [("l", 2)], [("m", None)]], pa.map_(pa.string(), pa.int8())),
    pa.array(["x", "y", None, "x"]).dictionary_encode(), pa.array([b"abc"] * 4, pa.binary(3)),
]  # fmt: skip


@pytest.mark.parametrize("array", ARROW, ids=lambda each: str(each.type))
def test_chunks_and_offsets_of_arrow_do_not_count(array):
    part = array.slice(1, 3)
    rebuilt = pa.array(part.to_pylist(), part.type)
    if not pa.types.is_dictionary(array.type):  # whose dictionary is part of a slice as well
        assert same(part, rebuilt, pa.concat_arrays([array.slice(1, 1), array.slice(2, 2)]))
    assert same(pa.chunked_array([array[:1], array[1:]]), pa.chunked_array([array]))
    assert same(pa.table({"a": array}), pa.table({"a": pa.chunked_array([array[:2], array[2:]])}))
    assert distinct(array, array.slice(1), array.slice(0, 3), array[::-1] if len(array) else 1) or (
        array.type == pa.null()
        or pa.types.is_fixed_size_list(array.type)
        or array.type == pa.binary(3)
    )
    assert tokenize(array.slice(4, 0), ensure_deterministic=True)


def test_arrow_counts_by_types_names_and_metadata():
    table = pa.table({"a": [1]})
    assert distinct(
        table, pa.table({"b": [1]}), pa.table({"a": [2]}),
        table.replace_schema_metadata({"k": "v"}),
        pa.table({"a": pa.array([1], "int32")}), table.to_batches()[0], table["a"], table.schema,
        pa.array([1]), pa.array([1], "int32"), pa.array([], "int8"), pa.chunked_array([], "int8"),
        pa.int8(), pa.int16(), pa.list_(pa.int8()), pa.array([[1]]), *ARROW,
    )  # fmt: skip


def test_an_unknown_layout_of_arrow_is_no_deterministic_token():
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], "int8"), [pa.array([1, 2]), pa.array(["a", "b"])]
    )
    with pytest.raises(TokenizationError, match="layout"):
        tokenize(union, ensure_deterministic=True)


def test_sparse_matrices_count_by_what_they_store():
    one = scipy.sparse.csr_array([[1, 0], [0, 2]])
    before = tokenize(one, ensure_deterministic=True)
    assert one.has_sorted_indices
    assert one.has_canonical_format
    assert tokenize(one) == before
    assert distinct(
        one, scipy.sparse.csr_array([[1, 0], [0, 3]]), scipy.sparse.csr_matrix([[1, 0], [0, 2]]),
        one.tocsc(), one.tocoo(), one.astype("f4"),
    )  # fmt: skip


def test_padding_does_not_count():
    kind = np.dtype([("a", "i1"), ("b", "i8")], align=True)
    # Views of whole bytes: a copy of records may leave out what lies between their fields.
    one, other = (np.full(48, fill, "u1").view(kind) for fill in (0, 255))
    for each in (one, other):
        each["a"], each["b"] = 1, 2
    assert one.tobytes() != other.tobytes()
    assert same(one, other)
    if np.longdouble(0).nbytes == 16:
        longs = np.full(16, 255, "u1").view(np.longdouble)
        longs[:] = 1
        assert same(longs, np.ones(1, np.longdouble))


def test_subclasses_of_arrays_count_by_their_class():
    class Own(np.ndarray):
        pass

    array = np.arange(4).reshape(2, 2)
    assert distinct(array, array.view(Own), array.view(np.recarray), np.ma.masked_array(array))
    assert same(array.view(Own), array.view(Own))
    masked = np.ma.masked_array([1, 2], [0, 1])
    assert distinct(masked, np.ma.masked_array([1, 2], [0, 0]), np.ma.masked_array([1, 3], [0, 1]))
    assert same(np.ma.masked_array([1, 2]), np.ma.masked_array([1, 2], [0, 0]))
    assert same(masked, np.ma.masked_array([1, 2], [0, 1], fill_value=999999))


class OwnArray(np.ndarray):
    def __reduce__(self):
        return OwnArray, (self.shape,), {"x": 1}


class OwnNumber(np.float64):
    pass


class OwnReduced(np.float64):
    def __reduce__(self):
        return OwnReduced, (5,)


def test_subclasses_with_a_pickle_of_their_own_count_by_it():
    array = np.zeros(2).view(OwnArray)
    assert same(array, np.ones(2).view(OwnArray))
    assert distinct(array, np.zeros(2), OwnNumber(1), OwnNumber(2), np.float64(1), OwnReduced(1))
    assert same(OwnReduced(1), OwnReduced(2))


def test_buffers_count_by_their_bytes():
    array = np.arange(10, dtype="u1")
    buffers = [pickle.PickleBuffer(each) for each in (array, array[::2], array[1:])]
    assert distinct(*buffers)
    assert same(buffers[1], pickle.PickleBuffer(array[::2].copy()))
    assert distinct(memoryview(array), memoryview(array[::2]), memoryview(array.reshape(2, 5)))


class OwnText(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.string(), "own text")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


def test_extension_types_of_arrow_count_by_what_they_store():
    made = [pa.ExtensionArray.from_storage(OwnText(), pa.array(each)) for each in (["a"], ["b"])]
    assert distinct(*made, pa.array(["a"]))


def test_a_map_that_hides_entries_under_a_null_is_refused():
    entries = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], "int32"), pa.array(["a", "b"]), pa.array([1, 2])
    )
    buffers = [pa.py_buffer(b"\x01"), entries.buffers()[1]]
    fields = [entries.type.key_field, entries.type.item_field]
    struct = pa.StructArray.from_arrays([entries.keys, entries.items], fields=fields)
    hidden = pa.Array.from_buffers(entries.type, 2, buffers, children=[struct])
    with pytest.raises(TokenizationError, match="hides entries"):
        tokenize(hidden, ensure_deterministic=True)


def test_ufuncs_count_by_name():
    import scipy.special

    assert distinct(np.add, np.multiply, scipy.special.erf, scipy.special.gamma)


def test_a_library_that_is_imported_later_does_not_change_tokens():
    """Exceptions: tblib registers reducers of its own for them, and distributed imports it."""
    code = """if True:
        from safeser import TokenizationError, tokenize
        values = [ValueError("a", 1), KeyError("x"), {"a": [1, len]}]
        before = list(map(tokenize, values))
        import distributed, tblib.pickling_support
        tblib.pickling_support.install()
        assert list(map(tokenize, values)) == before
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
