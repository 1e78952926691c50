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
import scipy.special

from safeser import TokenizationError, tokenize


def distinct(*values):
    return len({tokenize(each, ensure_deterministic=True) for each in values}) == len(values)


def same(*values):
    return len({tokenize(each, ensure_deterministic=True) for each in values}) == 1


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


class OwnArray(np.ndarray):
    def __reduce__(self):
        return OwnArray, (self.shape,), {"x": 1}


class OwnNumber(np.float64):
    pass


class OwnReduced(np.float64):
    def __reduce__(self):
        return OwnReduced, (5,)


class OwnText(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.string(), "own text")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


def padded(fill):
    """Return records whose padding is *fill*: views of whole bytes, as a copy may leave it out."""
    made = np.full(48, fill, "u1").view(np.dtype([("a", "i1"), ("b", "i8")], align=True))
    made["a"], made["b"] = 1, 2
    return made


def long_double():
    made = np.full(np.longdouble(0).nbytes, 255, "u1").view(np.longdouble)
    made[:] = 1
    return made


def hidden_numbers():
    numbers = pa.py_buffer(np.array([1, 99, 3]))
    return pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x05"), numbers])


def hidden_text():
    offsets = pa.py_buffer(np.array([0, 1, 3], "i4"))
    buffers = [pa.py_buffer(b"\x01"), offsets, pa.py_buffer(b"abc")]
    return pa.Array.from_buffers(pa.string(), 2, buffers)


def hidden_entries():
    entries = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], "int32"), pa.array(["a", "b"]), pa.array([1, 2])
    )
    fields = [entries.type.key_field, entries.type.item_field]
    struct = pa.StructArray.from_arrays([entries.keys, entries.items], fields=fields)
    buffers = [pa.py_buffer(b"\x01"), entries.buffers()[1]]
    return pa.Array.from_buffers(entries.type, 2, buffers, children=[struct])


def looked_at(matrix):
    assert matrix.has_sorted_indices
    assert matrix.has_canonical_format
    return matrix


class Own(np.ndarray):
    pass


FRAME = pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": ["x", None]})
COLUMN_BY_COLUMN = pd.DataFrame({"a": [1, 2]})
COLUMN_BY_COLUMN["b"], COLUMN_BY_COLUMN["c"] = [3, 4], pd.Series(["x", None])
NOTED = FRAME.copy()
NOTED.attrs["unit"] = "m"
CSR = scipy.sparse.csr_array([[1, 0], [0, 2]])
SQUARE = np.arange(4).reshape(2, 2)
MASKED = np.ma.masked_array([1, 2], [0, 1])
BYTES = np.arange(10, dtype="u1")
STORED = pd.arrays.IntegerArray(np.array([1, 99, 3]), np.array([False, True, False]))
TABLE = pa.table({"a": [1]})
WIDE = pd.MultiIndex.from_product([[1, 2], ["a", "b"]])

#: What differs in memory alone.
SAME = {
    "blocks": [FRAME, COLUMN_BY_COLUMN, FRAME.copy(), pd.concat([FRAME[:1], FRAME[1:]])],
    "unused levels": [WIDE[:1], pd.MultiIndex.from_tuples([(1, "a")])],
    "under a null": [pd.array([1, None, 3], dtype="Int64"), STORED],
    "under a null of Arrow": [pa.array([1, None, 3]), hidden_numbers()],
    "text under a null": [pa.array(["a", None]), hidden_text()],
    "flags of a matrix": [CSR.copy(), looked_at(CSR.copy())],
    "padding": [padded(0), padded(255)],
    "padding of a number": [long_double(), np.ones(1, np.longdouble)],
    "class": [SQUARE.view(Own), SQUARE.view(Own)],
    "no mask": [np.ma.masked_array([1, 2]), np.ma.masked_array([1, 2], [0, 0])],
    "fill value": [MASKED, np.ma.masked_array([1, 2], [0, 1], fill_value=999999)],
    "own pickle": [np.zeros(2).view(OwnArray), np.ones(2).view(OwnArray)],
    "own number": [OwnReduced(1), OwnReduced(2)],
    "strides": [pickle.PickleBuffer(BYTES[::2]), pickle.PickleBuffer(BYTES[::2].copy())],
}
#: Of which no two have one token.
DISTINCT = {
    "frames": [
        FRAME, FRAME.assign(b=[3, 5]), FRAME.rename(columns={"a": "d"}), FRAME[["b", "a", "c"]],
        FRAME[::-1], NOTED, FRAME.set_index("a"), FRAME.astype({"a": "int32"}),
        FRAME.set_flags(allows_duplicate_labels=False),
    ],
    "series": [
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
        pd.Series([1, 2]).set_flags(allows_duplicate_labels=False),
    ],
    "Arrow": [
        TABLE, pa.table({"b": [1]}), pa.table({"a": [2]}),
        TABLE.replace_schema_metadata({"k": "v"}), pa.table({"a": pa.array([1], "int32")}),
        TABLE.to_batches()[0], TABLE["a"], TABLE.schema, pa.array([1]), pa.array([1], "int32"),
        pa.array([], "int8"), pa.chunked_array([], "int8"), pa.int8(), pa.int16(),
        pa.list_(pa.int8()), pa.array([[1]]), *ARROW,
    ],
    "extension types": [
        *(pa.ExtensionArray.from_storage(OwnText(), pa.array([each])) for each in "ab"),
        pa.array(["a"]),
    ],
    "matrices": [
        CSR, scipy.sparse.csr_array([[1, 0], [0, 3]]), scipy.sparse.csr_matrix([[1, 0], [0, 2]]),
        CSR.tocsc(), CSR.tocoo(), CSR.astype("f4"),
    ],
    "classes of arrays": [
        SQUARE, SQUARE.view(Own), SQUARE.view(np.recarray), np.ma.masked_array(SQUARE),
    ],
    "masks": [MASKED, np.ma.masked_array([1, 2], [0, 0]), np.ma.masked_array([1, 3], [0, 1])],
    "own pickles": [
        np.zeros(2).view(OwnArray), np.zeros(2), OwnNumber(1), OwnNumber(2), np.float64(1),
        OwnReduced(1),
    ],
    "buffers": [pickle.PickleBuffer(each) for each in (BYTES, BYTES[::2], BYTES[1:])],
    "views": [memoryview(BYTES), memoryview(BYTES[::2]), memoryview(BYTES.reshape(2, 5))],
    "ufuncs": [np.add, np.multiply, scipy.special.erf, scipy.special.gamma],
}  # fmt: skip
REFUSED = {
    "layout": lambda: pa.UnionArray.from_sparse(
        pa.array([0, 1], "int8"), [pa.array([1, 2]), pa.array(["a", "b"])]
    ),
    "hides entries": hidden_entries,
}


@pytest.mark.parametrize("name", SAME)
def test_memory_does_not_count(name):
    assert same(*SAME[name])


@pytest.mark.parametrize("name", DISTINCT)
def test_values_types_and_names_count(name):
    assert distinct(*DISTINCT[name])


@pytest.mark.parametrize("word", REFUSED)
def test_what_arrow_hides_or_safeser_does_not_know_is_refused(word):
    with pytest.raises(TokenizationError, match=word):
        tokenize(REFUSED[word](), ensure_deterministic=True)


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
