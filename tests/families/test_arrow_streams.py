"""Streams of Arrow's that shuffles send: honest ones pass, and others before Arrow reads them."""

import json
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from safeser.errors import PayloadError
from safeser.families.arrow import streams
from safeser.gate.values import Limits
from tests.samples.values.arrow import examples
from tests.samples.values.table import TABLE

LIMITS = Limits()
HUGE = 1 << 30
_V5 = 4
#: What no frame of pandas' becomes.
UNLISTED = ("tensor", "sliced-tensor", "dense", "sparse", "sliced-dense")
UNLISTED += ("list-view", "large-list-view", "sliced-list-view")
ARRAYS = {
    name: value
    for name, value in examples().items()
    if isinstance(value, pa.Array | pa.ChunkedArray) and name not in UNLISTED
}


def stream(*batches, schema=None, **options):
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue().to_pybytes()


def column(array, **options):
    return stream(pa.table({"v": array}), **options)


def check(data):
    streams.check_stream(data, LIMITS, decoded=LIMITS.max_array)


def refused(data):
    with pytest.raises(PayloadError) as caught:
        check(data)
    assert len(str(caught.value)) < 300
    return caught.value.message


CODED = pa.array(["a", "b"]).dictionary_encode()
#: Of which Arrow ends the process as it makes a frame, some of them without a batch.
DEADLY = {
    "extension of codes": pa.ExtensionArray.from_storage(pa.opaque(CODED.type, "a", "b"), CODED),
    "list views": pa.array([[1], [2]], pa.list_view(pa.int8())),
    "lists of large list views": pa.array([[[1]]], pa.list_(pa.large_list_view(pa.int8()))),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_what_arrow_writes_passes(name):
    array = ARRAYS[name]
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    for each in (array, array.slice(1), array.slice(0, 1), array.slice(0, 0)):
        check(column(each))
    check(column(pa.chunked_array([*chunks, *chunks], array.type)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(TABLE.keys() - {"categories of intervals", "no columns"}))
def test_what_pandas_makes_passes(name):
    for index in (True, None):
        try:
            table = pa.Table.from_pandas(TABLE[name], preserve_index=index)
        except (pa.ArrowException, ValueError, TypeError):  # Arrow makes no table of it
            return
        check(stream(table))
        check(stream(table.slice(1)))


# -- before Arrow reads it -------------------------------------------------------------------------


def test_other_versions_and_messages_are_refused():
    version = pa.ipc.MetadataVersion.V4
    assert "version" in refused(column([1], metadata_version=version))
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.zeros(3)), sink)
    tensor = sink.getvalue().to_pybytes()
    assert "begin" in refused(tensor)
    assert "no table" in refused(column([1])[:-8] + tensor)
    for data in (b"", b"\0" * 64):
        with pytest.raises((PayloadError, struct.error)):
            check(data)


def test_descriptions_that_lead_nowhere_are_refused():
    for said in (
        struct.pack("<Ii", 4, 1 << 20),
        struct.pack("<Ii", 0, 64),
    ):
        with pytest.raises((PayloadError, struct.error)):
            streams._check_schema(said)
    fields = struct.pack("<HHHH", 8, 8, 4, 6)  # a version and a kind, and nothing besides
    said = struct.pack("<I", 12) + fields + struct.pack("<ihB", 8, _V5, 1)
    with pytest.raises(PayloadError, match="lacks"):
        streams._check_schema(said)


def extension(name, metadata, storage):
    said = {"ARROW:extension:name": name, "ARROW:extension:metadata": metadata}
    schema = pa.schema([pa.field("v", storage.type, metadata=said)])
    return stream(pa.Table.from_arrays([storage], schema=schema))


def test_extensions_call_no_class_that_is_not_listed():
    class Called(pa.ExtensionType):
        def __init__(self):
            super().__init__(pa.int64(), "test.called")

        def __arrow_ext_serialize__(self):
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage_type, serialized):
            raise AssertionError("a class was called with a peer's bytes")

    numbers = pa.array([1, 2])
    pa.register_extension_type(Called())
    try:
        data = extension("test.called", "", numbers)
        assert "does not list" in refused(data)
        kind = pa.list_(
            pa.field("item", pa.int64(), metadata={"ARROW:extension:name": "test.called"})
        )
        data = stream(
            pa.table(
                {"v": pa.array([[1]], pa.list_(pa.int64()))},
                schema=pa.schema([pa.field("v", kind)]),
            )
        )
        assert "does not list" in refused(data)
    finally:
        pa.unregister_extension_type("test.called")
    check(extension("pandas.period", '{"freq": "D"}', numbers))
    assert "too great" in refused(extension("pandas.period", "[" * 9999, numbers))


def test_pandas_notes_are_looked_at():
    noted = '{"columns": [{"numpy_type": "datetime64[ns, dateutil//dev/tty]"}]}'
    empty = pa.table({"v": [1]})
    assert "zone" in refused(stream(empty.replace_schema_metadata({"pandas": noted})))
    twice = pa.KeyValueMetadata([("pandas", "{}"), ("pandas", noted)])
    schema = pa.schema([pa.field("v", pa.int64())], metadata=twice)
    assert "more than once" in refused(stream(pa.table({"v": [1]}, schema=schema)))


def noted(columns, **types):
    """A table of those columns, whose names pandas noted to be of some *types*."""
    told = {"columns": [], "index_columns": [], "column_indexes": [{"name": None, **types}]}
    schema = pa.schema(columns).with_metadata({"pandas": json.dumps(told)})
    return pa.table([pa.nulls(1, field.type) for field in schema], schema=schema)


RANGE = {"kind": "range", "name": None, "start": 0, "stop": 1000, "step": 1}
ZONED = {
    "name": "v", "field_name": "v", "pandas_type": "datetimetz", "numpy_type": "datetime64[ns]",
    "metadata": {"timezone": "Europe/Paris"},
}  # fmt: skip


def rows(columns=(), index=()):
    told = {"columns": columns, "index_columns": index, "column_indexes": []}
    table = pa.table({"v": pa.array(range(1000), pa.timestamp("ns", "UTC"))})
    return table.replace_schema_metadata({"pandas": json.dumps(told)})


def test_ranges_took_memory_for_each_row():
    assert rows(index=[RANGE] * 99).to_pandas().index.nlevels == 99, "the control did not run"
    frame = pd.DataFrame({"a": range(9), "b": range(9), "c": range(9)})
    for each in (frame, frame.set_index("a"), frame.set_index(["a", "b"])):
        check(stream(pa.Table.from_pandas(each, preserve_index=True)))
        check(stream(pa.Table.from_pandas(each)))
    check(stream(rows([ZONED], ["v"])))


def test_types_do_not_double_without_end():
    kind = pa.int8()
    for _ in range(10):
        kind = pa.struct([("a", kind), ("b", pa.int8())])
    data = bytearray(stream(schema=pa.schema([("v", kind)])))
    # Of two children, the second is made to be the first one over again.
    begin = 8
    _, schema = streams._described(bytes(data[begin:]))
    (field,) = schema.tables(1)
    for _ in range(10):
        vector = field._place(5)
        vector += field._number("<I", vector)
        target = vector + 4 + field._number("<I", vector + 4)
        struct.pack_into("<I", data, begin + vector + 8, target - vector - 8)
        field = streams._Table(field._data, target)
    assert "too often" in refused(bytes(data))


# -- what it holds ---------------------------------------------------------------------------------


def test_columns_do_not_share_their_bytes():
    size, columns = 70_400, 99
    arrays = [pa.array(np.full(size, number, "i1")) for number in range(columns)]
    data = stream(pa.table(arrays, names=[f"{number}" for number in range(columns)]))
    begin = data.index(bytes([0] * size))
    head, rest = data[:begin], data[begin + columns * size :]
    check(head + data[begin : begin + columns * size] + rest)
    head = head.replace(struct.pack("<q", columns * size), struct.pack("<q", 2 * size))
    for number in range(2, columns):
        here = struct.pack("<qq", number * size, size)
        assert here in head
        head = head.replace(here, struct.pack("<qq", 0, size))
    assert "more bytes" in refused(head + data[begin : begin + 2 * size] + rest)


FAR = struct.pack("<i", HUGE)
EMPTY = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(FAR), pa.py_buffer(b"")])


def test_a_dictionary_counts_once_for_all_of_its_tables():
    values = pa.array(["x" * (1 << 18), "y"])
    batches = [
        pa.RecordBatch.from_arrays([pa.DictionaryArray.from_arrays(indexes, values)], ["v"])
        for indexes in (pa.array([0, None, 1], pa.int8()), pa.nulls(2, pa.int8())) * 20
    ]
    data = stream(*batches)
    assert len(data) < 1 << 20
    check(data)
    nested = pa.ListArray.from_arrays([0, 1], batches[0].column(0).slice(0, 1))
    check(stream(*[pa.RecordBatch.from_arrays([nested], ["v"])] * 2))


def test_tables_are_as_long_as_their_columns():
    data = column(pa.array([7, 8, 9]))
    rows = struct.pack("<q", 3)
    assert data.count(rows) == 2  # of the table, and of its column
    with pytest.raises((OSError, pa.ArrowException)):
        check(data.replace(rows, struct.pack("<q", HUGE), 1))
    empty = pa.array([{}] * 3, pa.struct([]))
    assert "without any column" in refused(stream(pa.RecordBatch.from_struct_array(empty)))
    check(stream(pa.RecordBatch.from_struct_array(empty.slice(0, 0))))


def united():
    for name in ("dense", "sparse", "sliced-dense"):
        union = examples()[name]
        within = pa.StructArray.from_arrays([union], ["a"])
        yield from (union, pa.ListArray.from_arrays([0, 1], union))
        yield pa.DictionaryArray.from_arrays([0], within)


def coded(number):
    indexes = pa.array([number] * 9, pa.int8())
    array = pa.DictionaryArray.from_arrays(indexes, pa.array(["x", "y"]), safe=False)
    return pa.RecordBatch.from_arrays([array], ["v"])


def deep(levels):
    return pa.int8() if not levels else pa.list_(deep(levels - 1))


NAMED = [
    *({"pandas_type": kind} for kind in ("U999", "str", "S9")),
    *(
        {"pandas_type": "unicode", "numpy_type": kind}
        for kind in ("S999", "bytes", "S999,S999", "V999", "(99,99)f8", "i8" + " " * 999, 7)
    ),
    {"numpy_type": {"names": [], "formats": [], "itemsize": 999}},
    {"numpy_type": ["S999"]},
]
TEXTS = pa.array(["x" * 999] * 999).dictionary_encode()
NULLS = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.nulls(1))
INNER = [pa.array([], pa.int8())]
FAR_LIST = pa.Array.from_buffers(pa.list_(pa.int8()), 0, [None, pa.py_buffer(FAR)], children=INNER)
BELOW = pa.Array.from_buffers(
    pa.list_(pa.string()), 2, [None, pa.py_buffer(bytes(12))], children=[EMPTY]
)
LARGE = pa.Array.from_buffers(
    pa.large_binary(), 0, [None, pa.py_buffer(b"\xff" * 8), pa.py_buffer(b"")]
)
#: Streams by a word of their refusal.
REFUSED = {
    "list views": [pa.table({"v": DEADLY[name]}) for name in DEADLY if "list views" in name],
    "extension": [pa.table({"v": DEADLY["extension of codes"]})],
    "union": [pa.table({"v": array}) for array in united()],
    "that no column has": [noted([("v", pa.int64())], **types) for types in NAMED],
    "pandas noted": [
        *(rows([], [RANGE] * 17), rows([ZONED, {**ZONED, "name": "w"}])),
        *(rows([{**ZONED, "field_name": None}, ZONED]), rows([], ["v", "v"])),
        *(rows([], "vv"), rows([], RANGE)),
    ],
    # A few bytes that are many elements.
    "more": [
        pa.table({"v": pa.nulls(HUGE)}),
        pa.table({"v": pa.Array.from_buffers(pa.binary(0), HUGE, [None, pa.py_buffer(b"")])}),
        pa.table({"v": pa.RunEndEncodedArray.from_arrays(pa.array([HUGE], pa.int32()), ["x"])}),
    ],
    "outside its buffers": [
        pa.RecordBatch.from_arrays([array], ["v"]) for array in (EMPTY, FAR_LIST, BELOW, LARGE)
    ],
    "nulls": [pa.table({"v": NULLS})],
    "too deep": [pa.table({"v": pa.array([], deep(40))})],
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_shuffle_sends_is_refused(why):
    for table in REFUSED[why]:
        assert why in refused(stream(table))


def test_what_no_frame_is_made_of_is_refused_without_a_batch():
    for array in DEADLY.values():
        refused(stream(schema=pa.schema([("v", array.type)])))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_nothing_is_decompressed(compression):
    for array in (np.zeros(1 << 20), TEXTS):
        assert "compressed" in refused(column(array, compression=compression))


@pytest.mark.parametrize("index", [2, -1])
def test_each_index_leads_into_its_dictionary(index):
    assert "outside its dictionary" in refused(stream(coded(1), coded(index)))
