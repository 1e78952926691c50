"""Arrow's values that no sender sends."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


class Mine(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int8(), "test.mine")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()  # pyarrow asks for it itself, where it dropped the instance


NESTED = pa.int8()
for _ in range(40):
    NESTED = pa.list_(NESTED)

# Arrow itself looks at none of these before somebody asks it to.
# Arrow itself looks at none of these before somebody asks it to.
BACKWARDS = [None, pa.py_buffer(np.array([0, 100, 2], "i4")), pa.py_buffer(b"ab")]
OUTSIDE = [None, pa.py_buffer(np.array([0, 100, 200, 2], "i4")), pa.py_buffer(b"ab")]
REFUSED = {
    "backwards": (pa.Array.from_buffers(pa.string(), 2, BACKWARDS)[1:], "run backwards"),
    "outside": (pa.Array.from_buffers(pa.string(), 3, OUTSIDE)[:2], "smaller than its Arrow"),
    "name": (pa.field(b"\xff", pa.int8()), "not kept exactly"),
    "name in a schema": (pa.schema([pa.field(b"\xff", pa.int8())]), "not kept exactly"),
    "extension": (pa.ExtensionArray.from_storage(Mine(), pa.array([1], pa.int8())), "test.mine"),
    "extension type": (Mine(), "test.mine"),
    "column": (pa.table({"x": pa.nulls(2, Mine())}), "'x'"),
    "zone": (pa.timestamp("s", "\x00../passwd"), "is not kept exactly"),
    "zone inside": (pa.list_(pa.timestamp("s", "/etc/passwd")), "is not kept exactly"),
    "negative scale": (pa.decimal128(5, -2), "is not kept exactly"),
    "nested": (NESTED, "nested more than 16 deep"),
    "rows": (pa.table({"x": [1, 2]}).select([]), "rows without any column"),
    "keys": (
        pa.schema(
            [pa.field("a", pa.int8(), metadata=pa.KeyValueMetadata([("a", "1"), ("a", "2")]))]
        ),
        "occurs twice",
    ),
    "part of a day": (pa.array([86_400_000, 1]).view(pa.date64()), "no whole day"),
    "part of a day in a column": (pa.table({"x": pa.array([1]).view(pa.date64())}), "whole day"),
    "keys of a schema": (
        pa.schema([], metadata=pa.KeyValueMetadata([("a", "1"), ("a", "2")])),
        "occurs twice",
    ),
}


def hollow():
    """Yield indexes into dictionaries of nulls: Arrow looks for a bitmap that these have not."""
    indexes = pa.array([0, None, 1], pa.int8())
    nulls = pa.DictionaryArray.from_arrays(indexes, pa.nulls(2))
    own = pa.ExtensionArray.from_storage(pa.opaque(pa.null(), "t", "v"), pa.nulls(2))
    yield from (nulls, pa.StructArray.from_arrays([nulls], ["a"]), nulls[0])
    yield from (pa.DictionaryArray.from_arrays(indexes, own), pa.table({"x": nulls}))


UNSENT = [*REFUSED.values(), *((value, "nothing but nulls") for value in hollow())]
