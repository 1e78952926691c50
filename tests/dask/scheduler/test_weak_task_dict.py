"""Notes of tasks: of the very task, and not of the next one of its key."""

from __future__ import annotations

import gc
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from distributed.scheduler import TaskGroup, TaskPrefix, TaskState

from safeser.dask.scheduler.weak_task_dict import WeakTaskDict, WeakTaskSet


def task() -> TaskState:
    return TaskState("k", None, "released", TaskGroup("g", TaskPrefix("g")), validate=False)


@pytest.mark.parametrize("kind", [WeakKeyDictionary, WeakTaskDict], ids=["stock", "noted"])
def test_bypass_what_is_noted_of_a_task_goes_with_the_one_before(kind):
    notes: Any = kind()
    before, after = task(), task()
    assert before == after
    notes[before] = "bob"
    notes[after] = "alice"
    assert notes.get(before, "") == ("bob" if kind is WeakTaskDict else "alice")
    del before
    gc.collect()
    assert notes.get(after, "nobody") == ("alice" if kind is WeakTaskDict else "nobody")


def test_some_tasks():
    some, before, after = WeakTaskSet(), task(), task()
    assert not some
    some.add(before)
    assert before in some
    assert after not in some
    some.update([before, after])
    assert len(some) == 2
    del before
    gc.collect()
    assert after in some
    assert len(some) == 1
