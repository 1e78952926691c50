"""NumPy's arrays, scalars and dtypes."""

from __future__ import annotations

import numpy as np


def examples() -> dict[str, object]:
    nested = np.dtype(
        [("a", ">i4"), ("b", [("c", "U3"), ("d", "M8[s]", (2, 1))]), (("title", "e"), "?")],
        align=True,
    )
    gaps = {"names": ["b", "a"], "formats": ["i2", "i4"], "offsets": [8, 0], "itemsize": 16}
    objects = np.empty((2, 2), object)
    objects[0] = [1, 2], np.arange(3)
    return {
        "ints": np.arange(6).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "flags": np.array([True, False]),
        "text": np.array(["a", "\U0001f600\0b", ""]),
        "bytes": np.array([b"a", b"bc"]),
        "raw": np.zeros(2, "V3"),
        "dates": np.array(["2020", "NaT"], "M8[25us]"),
        "durations": np.array([1, 2], ">m8"),
        "long-double": np.ones(2, "g"),
        "half": np.ones(2, "e"),
        "nested": np.zeros(3, nested),
        "gaps": np.zeros(2, gaps),
        "no-fields": np.zeros(2, []),
        "zero-d": np.array(5),
        "empty": np.zeros((0, 3)),
        "broadcast": np.broadcast_to(np.arange(3.0), (4, 3)),
        "objects": objects,
        "plain-objects": np.array([1, "a", None, 2.5], object),
        "masked": np.ma.array([1, 2], mask=[0, 1], fill_value=7),
        "masked-fields": np.ma.array([("a", 1)], [("x", "U2"), ("y", "i4")], mask=[(True, False)]),
        "scalar": np.float32(1),
        "date": np.datetime64("2020-01-01"),
        "void": np.void(b"abc"),
        "record": np.zeros(1, nested)[0],
        "string": np.str_("a"),
        "byte-string": np.bytes_(b"a\0"),
        "dtype": nested,
        "list": [np.arange(3), {"a": np.ones(2)}, (1, 2j)],
        "dict": {"x": np.arange(2), 1: np.arange(2)},
    }
