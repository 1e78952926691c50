"""Profile pandas: what costs nothing to say, memory that is shared, and functions that lack."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from safeser.errors import PayloadError
from safeser.pickles import loads
from tests.pickles.forging import PROFILE, New, opened, refused, reopened
from tests.samples import pickles_pandas as forged
from tests.samples.pickles_honest import PANDAS, REMEMBERING, SPARSE
from tests.samples.values import collect_all


def colliding(count):
    """Return integers that pandas' table puts into one place, in no order."""
    low = np.arange(1, count + 1, dtype=np.int64) * 7919 % (1 << 31)
    high = (low ^ (low << 11)) & ((1 << 31) - 1)
    return np.random.default_rng(0).permutation((high << 33) | low)


def test_labels_that_collide_cost_no_quadratic_time():
    # A megabyte of them kept pandas busy for nine seconds: it must not even begin.
    labels = pd.Index(colliding(100_000))
    categories = opened(New(pd.CategoricalDtype, {"categories": labels, "ordered": False}))
    assert len(categories.categories) == 100_000
    assert categories.categories.is_unique
    assert not categories.categories._engine.is_mapping_populated


def test_what_is_not_written_out_takes_no_memory():
    state = {"categories": pd.RangeIndex(5_000_000), "ordered": False}
    data = pickle.dumps(New(pd.CategoricalDtype, state))
    wide = [forged.frame_of_places(slice(0, 1 << bits, 1)) for bits in (0, 24, 62)]
    tracemalloc.start()
    try:
        assert len(loads(data, profile=PROFILE).categories) == 5_000_000
        for each in wide:
            with pytest.raises(PayloadError):
                opened(each)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def text_over(raw):
    arrow = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(raw), pa.py_buffer(b"ab")])
    return pd.Series(pd.arrays.ArrowStringArray(arrow, dtype=pd.StringDtype("pyarrow")))


def test_what_was_checked_does_not_change_through_a_buffer():
    # Compiled code follows codes and offsets without looking once they were checked.
    shared = np.array([0, 1], "i1")
    text = text_over(bytearray(np.array([0, 1, 2], np.int32).tobytes()))
    parts = [forged.backed(pd.Categorical, forged.AB, shared), forged.levels([shared]), text]
    buffers = []
    data = pickle.dumps([*parts, shared], 5, buffer_callback=buffers.append)
    memory = [bytearray(buffer.raw()) for buffer in buffers]
    categories, index, texts, _ = loads(data, buffers=memory, profile=PROFILE)
    for buffer in memory:
        buffer[:] = b"\x7f" * len(buffer)
    assert [*categories] == [*texts] == ["a", "b"]
    assert [*index] == [("a",), ("b",)]


def test_without_the_function_for_blocks_frames_are_made_by_columns(monkeypatch):
    monkeypatch.delattr(pd.api.internals, "create_dataframe_from_blocks", raising=False)
    for frame in [*PANDAS, *collect_all()["frames/DataFrame"]]:
        if type(frame) is pd.DataFrame and len(frame.columns) < 1000:
            pd.testing.assert_frame_equal(reopened(frame, 5), frame)
    refused("pickle.max-memory", opened, pd.DataFrame(np.zeros((0, 100_000), "i1")))


def test_sparse_arrays_without_the_function_for_them(monkeypatch):
    monkeypatch.delattr(SPARSE, "from_indices", raising=False)
    with warnings.catch_warnings(action="ignore"):
        for array in (*PANDAS, *REMEMBERING):
            if type(array) is SPARSE:
                pd.testing.assert_extension_array_equal(reopened(array, 5), array)


def test_views_stay_read_only():
    array = pd.Series(1, index=pd.date_range("2026", periods=3)).index.array
    got = reopened(array, 5)
    assert getattr(got, "_readonly", False) is getattr(array, "_readonly", False)
