"""Arrow's values: what is not copied, what a slice sends, and what limits bound."""

import json

import numpy as np
import pyarrow as pa
import pytest

from safeser import families
from safeser.errors import PayloadError
from safeser.gate.values import Limits
from tests.samples.hostile.arrow_forged import (
    WIDE,
    forged,
)
from tests.samples.same import same
from tests.samples.typed import FAMILIES, GRANT, refused, through

LONG = "x" * 1000


@pytest.mark.parametrize(
    "values",
    [
        pa.array([LONG, "y"]), pa.array([LONG, "y"], pa.large_string()),
        pa.array([LONG.encode(), b""]), pa.array([LONG.encode()] * 2, pa.binary(1000)),
        pa.array([[LONG], []]), pa.array([{"a": LONG}, None]),
    ],
    ids=lambda values: str(values.type),
)  # fmt: skip
def test_runs_do_not_stand_for_more_than_limits_allow(values):
    def runs(length):
        return pa.RunEndEncodedArray.from_arrays(pa.array([1 << 10, length], pa.int32()), values)

    limits = Limits(max_array=1 << 21, max_bytes=1 << 24)
    honest = runs((1 << 10) + 1)
    same(through(honest), honest)
    same(through(honest.slice(9, 9)), honest.slice(9, 9))
    header, frames = families.serialize(honest, FAMILIES)
    families.deserialize(header, frames, GRANT, limits=limits)
    flipped = pa.RunEndEncodedArray.from_arrays(
        pa.array([1 << 20, (1 << 20) + 1], pa.int32()), values
    )
    tables = [pa.table({"a": flipped}), flipped, pa.chunked_array([flipped.slice(5)])]
    for each in tables:
        header, frames = families.serialize(each, FAMILIES)
        with pytest.raises(PayloadError) as caught:
            families.deserialize(header, frames, GRANT, limits=limits)
        assert caught.value.rule == "families.max-array"
    several = pa.table({f"{number}": honest for number in range(20)})
    header, frames = families.serialize(several, FAMILIES)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, limits=limits)
    assert caught.value.rule == "families.max-bytes"


def noted(**columns):
    """Return a table of which pandas is said to have noted *columns*, alike in their makers."""
    said = json.dumps({"columns": [], "column_indexes": [], "index_columns": [], **columns})
    return pa.table({"v": [1]}).replace_schema_metadata({"pandas": said.replace("t", "\\u0074")})


ZONED = "datetime64[ns, dateutil/%s]"


@pytest.mark.parametrize(
    "columns",
    [
        {"columns": [{"name": "v", "numpy_type": f"interval[{ZONED}, left]"}]},
        {"columns": [{"numpy_type": "int64", "metadata": {"timezone": "dateutil/%s"}}]},
        {"column_indexes": [{"name": "v", "metadata": [{"timezone": "dateutil/%s"}]}]},
    ],
)
def test_no_table_leads_to_a_file_that_pandas_takes_for_a_zone(columns, tmp_path):
    path = tmp_path / "zone"
    path.write_text("TZif")
    text = json.dumps(columns).replace("%s", str(path))
    for made in (noted(**json.loads(text)), noted(**json.loads(text)).schema):
        with pytest.raises(PayloadError) as caught:
            through(made)
        assert caught.value.rule == "value.time-zone"


def test_what_pandas_cannot_have_noted_is_refused():
    for said in (b"\xff", b"{", b"[" * 100_000):
        with pytest.raises(PayloadError):
            through(pa.schema([], metadata={"pandas": said}))
    for said in ({"name": ZONED, "field_name": ZONED, "numpy_type": "int64"}, 7, None):
        through(noted(columns=[said], attributes={"x": ZONED}))
    through(pa.schema([], metadata={"pandas": b"[]"}))


def sizes(value):
    return sum(memoryview(frame).nbytes for frame in families.serialize(value, FAMILIES)[1])


def test_a_small_slice_sends_little():
    rows = 20_000
    codes = pa.array([number % 2 for number in range(rows)], pa.int8())
    places = pa.array([number // 2 for number in range(rows)], pa.int32())
    halves = [pa.array(range(rows // 2)), pa.array([f"text {n}" for n in range(rows // 2)])]
    texts = [f"a text that is long {number}" for number in range(rows)]
    lists = [[number] * 3 for number in range(rows)]
    arrays = [
        pa.array(range(rows)),
        pa.array([True, None] * (rows // 2)),
        pa.array(texts),
        pa.array(texts, pa.string_view()),
        pa.array([text.encode() for text in texts], pa.binary_view()),
        pa.array(lists),
        pa.array(lists, pa.list_(pa.int64(), 3)),
        pa.array(lists, pa.list_view(pa.int64())),
        pa.array([{"a": text} for text in texts]),
        pa.array([[(text, 1)] for text in texts], pa.map_(pa.string(), pa.int8())),
        pa.UnionArray.from_dense(codes, places, halves),
        pa.UnionArray.from_sparse(codes, [pa.array(range(rows)), pa.array(texts)]),
        pa.RunEndEncodedArray.from_arrays(pa.array(range(1, rows + 1), pa.int32()), texts),
    ]
    for array in arrays:
        part = array[rows // 2 + 3 : rows // 2 + 9]
        same(through(part), part)
        assert sizes(part) < 1500, array.type
        assert sizes(array) > 2000


def test_chunks_that_share_a_dictionary_send_it_once():
    words = pa.array([f"word {number}" for number in range(10_000)])
    chunks = [
        pa.DictionaryArray.from_arrays(pa.array([number, 0], pa.int32()), words)
        for number in range(50)
    ]
    other = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["other"]))
    inner = pa.array([["a"], None], pa.list_(pa.string()))
    whole = pa.chunked_array([*chunks, other, *chunks])
    got = through(whole)
    same(got, whole)
    assert sizes(whole) < 1.2 * sizes(words)
    assert got.chunk(0).dictionary.equals(words)
    # Dictionaries of lists lie in several places, so each is sent.
    nested = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), inner)
    same(through(pa.chunked_array([nested, nested])), pa.chunked_array([nested, nested]))


def test_views_of_nulls_lead_nowhere():
    """Whatever stands behind a null is not followed, and not sent."""
    bitmap = pa.py_buffer(b"\x05")
    words = np.array([1, 97, 0, 0, 30, 0, 99, 7, 1, 98, 0, 0], "i4")
    views = pa.Array.from_buffers(pa.string_view(), 3, [bitmap, pa.py_buffer(words)])
    offsets, lengths = np.array([0, 77, 1], "i4"), np.array([1, 9, 1], "i4")
    lists = pa.Array.from_buffers(
        pa.list_view(pa.int64()), 3, [bitmap, pa.py_buffer(offsets), pa.py_buffer(lengths)],
        children=[pa.array([5, 6])],
    )  # fmt: skip
    assert through(views).to_pylist() == ["a", None, "b"]
    assert through(lists).to_pylist() == [[5], None, [6]]


def test_sizes_are_met_by_the_sender():
    table = pa.table({"a": np.arange(3000.0), "b": np.arange(3000.0)})
    for limits, said in (
        (Limits(max_array=20_000), "larger than max_array: send it in chunks"),
        (Limits(max_frames=2), "more than 2 large buffers"),
        (Limits(max_memory=500), "more memory than max_memory"),
    ):
        with pytest.raises(PayloadError, match=f"of type pyarrow.lib:Table .*{said}"):
            families.serialize(table, FAMILIES, limits=limits)
    header, frames = families.serialize(table, FAMILIES, limits=Limits(max_frames=3))
    got = families.deserialize(header, frames, GRANT, limits=Limits(max_frames=3))
    assert got.equals(table)


def test_limits_bound_what_is_forged():
    large = forged("Array", "int8", 1 << 13, 0, 2, -1, 1 << 13, frames=[bytes(1 << 13)])
    many = [word for at in range(400) for word in (f"f{at}", True, None, "int8")]
    few = Limits(max_memory=500 << 7)
    assert refused(*large, limits=Limits(max_array=1 << 12)) == "families.too-large"
    assert refused(*forged("Schema", 400, *many, None), limits=few) == "families.memory"
    assert refused(*forged("Array", "null", 100_000, 0, 1, -1), limits=few) == "families.max-memory"
    # A word may stand for many empty chunks: what is read of it is shared.
    empty = families.deserialize(*forged("ChunkedArray", *WIDE, 2000, *[0] * 2000), GRANT)
    assert (empty.num_chunks, len(empty)) == (2000, 0)


def test_what_is_read_cannot_be_changed():
    table = pa.table({"a": ["text"] * 3000})
    header, frames = families.serialize(table, ("dask", "msgpack"))
    got = families.deserialize(header, [bytearray(frame) for frame in frames], GRANT)
    for buffer in got["a"].chunk(0).buffers()[1:]:
        with pytest.raises((ValueError, TypeError, BufferError)):
            np.frombuffer(buffer, "u1")[0] = 255
