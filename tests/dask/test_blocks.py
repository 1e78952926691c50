"""Blocks of an array that another worker made so that joining them leaves or takes memory."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
import types

import dask.array
import numpy as np
import pytest
from dask.array import core

from safeser.dask import blocks, partitions
from safeser.errors import PayloadError

STOCK = getattr(core.chunks_from_arrays, "__wrapped__", core.chunks_from_arrays)
#: A list where the first block belongs. Of the second row, ten elements of a hundred are written.
LISTED = [[np.ones((1, 10)), np.ones((1, 90))], np.ones(10)]


@pytest.fixture
def guarded(monkeypatch, doors):
    channel = doors.channel("worker", "demo")
    monkeypatch.setattr(partitions, "open_channels", lambda: (channel,))
    monkeypatch.setattr(core, "chunks_from_arrays", STOCK)
    blocks.join_blocks_in_full()
    blocks.join_blocks_in_full()
    assert core.chunks_from_arrays.__wrapped__ is STOCK
    return channel


def test_no_part_of_an_array_is_left_unwritten(monkeypatch, request):
    empty = np.empty
    with monkeypatch.context() as used:
        used.setattr(core, "chunks_from_arrays", STOCK)
        used.setattr(np, "empty", lambda shape, dtype: np.full(shape, 77, dtype))
        assert np.count_nonzero(core.finalize(LISTED) == 77) == 900, "the control did not run"
    assert np.empty is empty

    channel = request.getfixturevalue("guarded")
    with pytest.raises(PayloadError) as caught:
        core.finalize(LISTED)
    assert caught.value.rule == "blocks.grid"
    (record,) = channel.audit.events
    told = [record[name] for name in ("sender", "recipient", "operation", "rule", "where")]
    assert told == ["unknown", "worker", "compute-task", "blocks.grid", "data"]


ONE = np.ones((1, 1))


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize(
    "arrays",
    [
        [[ONE, ONE], [ONE]],
        [[ONE], [ONE, ONE]],
        [[ONE, ONE], ONE],
        [[ONE, [ONE]], [ONE, ONE]],
        ([ONE, ONE], (ONE,)),
        [[ONE], []],
    ],
)
def test_what_is_no_grid_of_blocks_is_refused(arrays):
    with pytest.raises(PayloadError) as caught:
        core.concatenate3(arrays)
    assert caught.value.rule == "blocks.grid"


@pytest.mark.usefixtures("guarded")
@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ([[ONE, ONE], [ONE, ONE]], np.ones((2, 2))),
        ([ONE[0], np.arange(3)], [1, 0, 1, 2]),
        (iter([np.arange(2), np.arange(3)]), [0, 1, 0, 1, 2]),
        ([1, 2], [1, 2]),
        ([], []),
    ],
)
def test_whole_ones_are_joined_as_by_dask(arrays, expected):
    np.testing.assert_array_equal(core.concatenate3(arrays), expected)


def test_no_array_becomes_far_larger_than_its_blocks(guarded, monkeypatch):
    row, column = np.ones((1, 500)), np.ones((500, 1))
    crossed = [[row, np.ones((1, 1))], [column, ONE]]
    assert core.concatenate3(crossed).shape == (501, 501)
    monkeypatch.setattr(blocks, "most_bytes", lambda: 1000)
    with pytest.raises(PayloadError) as caught:
        core.concatenate3(crossed)
    assert caught.value.rule == "blocks.size"
    wide = [np.full(1, b"x" * 900), np.ones(900, "?")]
    with pytest.raises(PayloadError):
        core.concatenate3(wide)
    assert [each["rule"] for each in guarded.audit.events] == ["blocks.size"] * 2
    assert core.concatenate3([np.ones(1), np.ones(900, "?")]).nbytes == 7208
    assert len(core.concatenate3([np.ones(1000), np.ones(1000)])) == 2000


MASKED = np.ma.array(np.ones((2, 4)), mask=False)

#: What leaves a part of the room that is taken for its argument as it was.
ROOMS = {
    "core:_vindex_merge": (([0, 1], [2, 3]), [MASKED, np.ma.masked]),
    "creation:linear_ramp_chunk": (np.ones((0, 4)), 0, 3, 0, 1),
    "creation:wrapped_pad_func": (MASKED, lambda *_: np.ma.masked, (1, 1), 0, {}),
}


def _sevens(name, function, monkeypatch):
    """Return how many numbers of what the function makes are as memory was before: 77."""
    with monkeypatch.context() as used:
        used.setattr(np, "empty_like", lambda like, **kwargs: np.full_like(like, 77, **kwargs))
        return np.count_nonzero(np.asarray(function(*ROOMS[name])) == 77)


@pytest.mark.parametrize("name", ROOMS)
def test_rooms_that_tasks_take_hold_nothing_used(name, monkeypatch):
    room, _, named = name.partition(":")
    module = importlib.import_module(f"dask.array.{room}")
    function = getattr(module, named)
    names = ["np" if each.startswith("_numpy") else each for each in function.__code__.co_names]
    stock = types.FunctionType(function.__code__.replace(co_names=tuple(names)), vars(module))
    assert _sevens(name, stock, monkeypatch), "the control did not run"

    blocks.join_blocks_in_full()
    assert _sevens(name, function, monkeypatch) == 0
    assert pickle.loads(pickle.dumps(function)) is function is getattr(module, named)


def test_whoever_imports_arrays_later_has_them_guarded():
    told = """
import sys
from safeser.dask.blocks import join_blocks_in_full
join_blocks_in_full()
join_blocks_in_full()
assert "dask.array.core" not in sys.modules
import dask.array
print(len([each for each in sys.meta_path if type(each).__name__ == "_Watch"]))
print(hasattr(dask.array.core.chunks_from_arrays, "__wrapped__"))
print(dask.array.ones(4, chunks=2).sum().compute(scheduler="sync"))
"""
    made = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["1", "True", "4.0"]


def test_the_module_is_guarded_once_it_was_run(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.delitem(sys.modules, "dask.array.core")
    blocks.join_blocks_in_full()
    blocks.join_blocks_in_full()
    watch, *_ = sys.meta_path
    assert sum(type(each) is type(watch) for each in sys.meta_path) == 1
    assert watch.find_spec("dask.array.other", None) is None
    found = watch.find_spec("dask.array.core", dask.array.__path__)
    module = types.ModuleType("dask.array.core")
    module.__package__ = "dask.array"
    module.__file__ = found.origin
    module.__spec__ = found
    found.loader.exec_module(module)
    assert hasattr(module.chunks_from_arrays, "__wrapped__")
    assert module._vindex_merge([[1], [0]], [np.ones((1, 2)), np.zeros((1, 2))])[0, 0] == 0
