"""Large buffers are never copied, and free once nobody uses them, without the garbage collector."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr
from scipy import sparse
from sklearn import neighbors

from safeser import families
from safeser.gate.values import Grant
from tests.samples import classes as own
from tests.samples.typed import shifted

GRANT = Grant("c", ("dask", "msgpack", "error", "pickle", "cloudpickle"), ("data", "numpy"))
ORDER = ("dask", "msgpack", "error", "cloudpickle")


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Holder:
    """A type that only the last family can carry."""

    def __init__(self, array):
        self.array = array


@pytest.mark.parametrize("hold", [lambda a: a, lambda a: [a, 1], lambda a: {"x": {"y": a}}, Holder])
def test_nothing_keeps_what_was_sent(hold):
    array = np.zeros(10_000)
    gone = weakref.ref(array)
    sent = families.serialize(hold(array), ORDER)
    assert sent
    del array, sent
    assert gone() is None


@pytest.mark.parametrize("hold", [lambda a: a, lambda a: [a, 1], lambda a: {"x": {"y": a}}])
def test_nothing_keeps_the_buffers_of_what_was_received(hold):
    header, frames = families.serialize(hold(np.zeros(10_000)), ORDER)
    received = [bytearray(frame) for frame in frames]
    assert families.deserialize(header, [memoryview(each) for each in received], GRANT) is not None
    for buffer in received:
        buffer.append(0)  # raises BufferError while anything still looks at it


ROWS = 50_000
ONES = np.ones((ROWS, 3))
KNN = neighbors.KNeighborsRegressor(algorithm="brute").fit(ONES, ONES[:, 0])
LABELLED = pd.DataFrame({"a": pd.array([1, None]), "b": [1, 2], "c": ["x", None]}).set_index("c")
FRAMES = {
    "numbers": pd.DataFrame(ONES),
    "turned": pd.DataFrame(ONES).T.copy().T,
    "two kinds": pd.DataFrame({"a": np.arange(ROWS), "b": np.ones(ROWS), "c": 1}),
    "dates": pd.DataFrame({"a": pd.date_range("2020", periods=ROWS, unit="s")}),
    "zoned": pd.DataFrame({"a": pd.date_range("2020", periods=ROWS, tz="UTC")}),
    "nullable": pd.DataFrame({"a": pd.array(np.arange(ROWS), dtype="Int64")}),
    "categories": pd.DataFrame({"a": pd.Categorical(["a", "b"] * (ROWS // 2))}),
    "periods": pd.DataFrame({"a": pd.period_range("2020", periods=ROWS, freq="h")}),
    "text": pd.DataFrame({"a": pd.array(["some text"] * ROWS, dtype=pd.StringDtype("pyarrow"))}),
    "sparse": pd.DataFrame({"a": pd.arrays.SparseArray(np.arange(1.0, ROWS))}),
}
LARGE = FRAMES | {
    "view": memoryview(bytes(ROWS)),
    "array": ONES,
    "fixed array": np.frombuffer(bytes(8 * ROWS)),
    "axes in another order": ONES.reshape(50, -1, 3).transpose(2, 0, 1),
    "matrix": ONES.view(np.matrix),
    "records": np.zeros(ROWS, np.dtype((np.record, [("n", "i4")]))),
    "masked": np.ma.array(ONES),
    "sparse matrix": sparse.csr_array(ONES),
    "table": pa.table({"a": np.arange(ROWS), "b": ["text"] * ROWS, "c": [1, None] * (ROWS // 2)}),
    "estimator": KNN,
    "dataset": xr.Dataset({"a": (("x", "y"), ONES)}),
    "object": own.Bag(w=ONES, shape=(2, 500)),
    "collection": {"x": [ONES]},
}


def held(call, *args):
    """Return what *call* returns, and how much memory that holds of its own."""
    call(*args)  # what is imported or made once is nobody's copy
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    made = call(*args)
    own = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    return made, own


@pytest.mark.parametrize("name", LARGE)
def test_large_buffers_are_not_copied(name):
    (header, frames), sending = held(families.serialize, LARGE[name], ORDER)
    size = sum(memoryview(frame).nbytes for frame in frames)
    assert size >= max(ROWS, 2 * sending)
    received = [bytearray(frame) for frame in frames]
    back, receiving = held(families.deserialize, header, received, GRANT)
    assert size > 2 * receiving
    assert repr(back) == repr(LARGE[name]) or name in ("view", "object")


def test_bytes_are_the_frame_that_carries_them():
    large = b"x" * ROWS
    header, frames = families.serialize(large, ORDER)
    assert frames[0] is large
    assert families.deserialize(header, frames, GRANT) is large


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (LABELLED, lambda made: [made["b"].to_numpy()]),
        (sparse.csr_array(ONES[:9]), lambda made: [made.data, made.indices]),
        (KNN, lambda made: [made._fit_X, made._y]),
        (xr.Variable("x", np.arange(3.0)), lambda made: [made.values]),
        (pa.array(np.arange(3000.0)), lambda made: [made.to_numpy()]),
    ],
)
def test_what_compiled_code_reads_is_aligned_wherever_frames_begin(value, parts):
    header, frames = families.serialize(value, ORDER)
    made = parts(families.deserialize(header, shifted(frames), GRANT))
    assert all(part.flags.aligned for part in made)


@pytest.mark.parametrize("name", FRAMES)
def test_checking_keeps_no_frames_in_memory(name):
    # What is to be built waits in the node: a cycle would keep frames until somebody collects it.
    frame = FRAMES[name].set_flags(allows_duplicate_labels=False)
    header, frames = families.serialize(frame, ORDER)
    received = [bytearray(part) for part in frames]
    before = [sys.getrefcount(part) for part in received]
    families.check(header, received)
    assert [sys.getrefcount(part) for part in received] == before
    families.deserialize(header, received, GRANT)
    assert [sys.getrefcount(part) for part in received] == before
