"""Profile pandas: what Arrow reads does not change later, is sound, and is charged by its bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, loads
from safeser.pickles.shims.arrow.widths import widths_of
from tests.pickles.forging import PROFILE, opened, refused
from tests.samples import pickles_arrow as forged
from tests.samples.pickles_arrow import LIST, NUMBER, TEXT, nest, numbers, raw


def test_offsets_of_empty_arrays_are_not_kept():
    # Arrow validates none of them, and joins of such arrays read from there.
    got = opened(nest(LIST, 0, [None, raw([0x7FFFFFFF], "i4")], numbers(1)))
    assert got.equals(pa.array([], LIST))
    assert pa.chunked_array([got, got]).combine_chunks().flatten().to_pylist() == []


def test_the_same_buffer_again_and_again_is_charged():
    state = (NUMBER, 100_000, 0, 0, [None, raw([0] * 100_000, "i8")], [], None)
    again = pickle.dumps([forged.restored(*state) for _ in range(50)])
    refused(
        "pickle.max-memory",
        loads,
        again,
        profile=PROFILE,
        limits=Limits(max_memory=1000 << 7, max_sharing=99),
    )


def test_what_arrow_reads_does_not_change_later():
    memory = bytearray(np.array([0, 1, 2], "i4").tobytes())
    state = (TEXT, 2, 0, 0, [None, pa.py_buffer(memory), pa.py_buffer(b"ab")], [], None)
    buffers = []
    data = pickle.dumps(forged.restored(*state), 5, buffer_callback=buffers.append)
    given = [bytearray(buffer.raw()) for buffer in buffers]
    got = loads(data, buffers=given, profile=PROFILE)
    for buffer in given:
        buffer[:] = b"\x7f" * len(buffer)
    assert got.to_pylist() == ["a", "b"]


TEXTS = pa.array(["", "abc", None, "defgh"])
WIDTHS = [0, 3, 0, 5]
NUMBERS = pa.array(range(4), pa.int16())
ENDS = pa.array([0, 1, 2, 4], pa.int32())
VIEWS = (pa.array([1, 1, 3], pa.int32()), pa.array([1, 3, 0], pa.int32()))
EXTENSION = pa.opaque(pa.string(), "a", "b")


@pytest.mark.parametrize(("array", "widths"), [
    *((TEXTS.cast(kind), WIDTHS) for kind in (pa.string(), pa.large_string())),
    *((TEXTS.cast(kind), WIDTHS) for kind in (pa.binary(), pa.large_binary())),
    (TEXTS.cast(pa.string_view()), WIDTHS),
    (TEXTS.cast(pa.string_view()).cast(pa.binary_view()), WIDTHS),
    (pa.ExtensionArray.from_storage(EXTENSION, TEXTS), WIDTHS), (NUMBERS, [2] * 4),
    (pa.array([True] * 4), [1] * 4), (pa.nulls(4), [1] * 4),
    (pa.array([{}] * 4, pa.struct([])), [1] * 4), (pa.array([b"xyz"] * 4, pa.binary(3)), [3] * 4),
    (pa.DictionaryArray.from_arrays([3, None, 1], TEXTS), [5, 0, 3]),
    (pa.ListArray.from_arrays(ENDS, TEXTS), [0, 3, 5]),
    (pa.LargeListArray.from_arrays(ENDS.cast(pa.int64()), TEXTS), [0, 3, 5]),
    (pa.MapArray.from_arrays(ENDS, NUMBERS, TEXTS), [2, 5, 9]),
    (pa.ListViewArray.from_arrays(*VIEWS, TEXTS), [3, 8, 0]),
    (pa.LargeListViewArray.from_arrays(*(each.cast(pa.int64()) for each in VIEWS), TEXTS), [3, 8,
        0]),
    (pa.FixedSizeListArray.from_arrays(TEXTS, 2), [3, 5]),
    (pa.StructArray.from_arrays([TEXTS, NUMBERS], ["a", "b"]), [2, 5, 2, 7]),
    (pa.RunEndEncodedArray.from_arrays([1, 3], pa.array(["ab", "c"])), [3] * 3),
    (pa.UnionArray.from_sparse(pa.array([0] * 4, pa.int8()), [TEXTS, NUMBERS]), [16] * 4),
    (pa.ListArray.from_arrays([0, 2], pa.ListArray.from_arrays([0, 2, 4], TEXTS)), [8]),
], ids=lambda value: str(getattr(value, "type", "")))  # fmt: skip
def test_each_element_has_its_width(array, widths):
    made = widths_of(array)
    assert made.tolist() == widths
    assert made.dtype == np.float64
    if not pa.types.is_run_end_encoded(array.type) and not pa.types.is_union(array.type):
        assert widths_of(array.slice(1)).tolist() == widths[1:]
        assert widths_of(array.slice(1, 1)).tolist() == widths[1:2]
    assert widths_of(array.slice(0, 0)).tolist() == []


@pytest.mark.parametrize("elements", [["x" * 100_000] * 9, ["x" * 100_000, *[""] * 9000]])
@pytest.mark.parametrize("kind", [pa.ListViewArray, pa.LargeListViewArray])
def test_views_of_wide_elements_are_no_longer_than_few_bytes(elements, kind):
    # No more elements than there are, or a few, and yet far more bytes.
    number = pa.int32() if kind is pa.ListViewArray else pa.int64()
    views = pa.array([0] * 2000, number), pa.array([1] * 2000, number)
    wide = pa.array(elements)
    array = kind.from_arrays(*views, wide)
    assert array.flatten().nbytes > 200_000_000, "the control did not run"
    for each in (
        array,
        kind.from_arrays(*views, pa.StructArray.from_arrays([wide], ["a"])),
        pa.ListArray.from_arrays([0, 2000], array),
    ):
        refused("pickle.max-bytes", loaded, each)
    apart = kind.from_arrays(pa.array([0, 1], number), pa.array([1, 2], number), wide)
    assert len(loaded(apart)) == 2


def loaded(array):
    return loads(pickle.dumps(array), profile=DATA_PROFILES)
