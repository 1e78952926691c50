"""What a result is found to hold, counted once in a load."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pyarrow as pa
import pytest

from safeser.pickles import DATA_PROFILES, loads
from safeser.pickles.building.memory import Memory


def test_memory_is_counted_once():
    memory, array = Memory(), np.zeros(1000)
    assert memory.added(array)[0] == 8000
    assert memory.added([array[:500], array])[0] == 0


def test_memory_that_the_call_was_given_is_not_counted():
    raw = bytes(1000)
    made = np.frombuffer(raw)
    assert Memory().added(made, (raw,))[0] == 0
    assert Memory().added(made)[0] == 1000


def test_a_small_view_counts_all_that_it_keeps():
    assert Memory().added(np.frombuffer(bytearray(1000), "u1", 8))[0] == 1000


def test_arrow_buffers_are_told_apart_by_address():
    memory, array = Memory(), pa.array(range(1000))
    assert memory.added(array)[0] == 8000
    assert memory.added(array.slice(0, 3))[0] == 0


def test_items_of_a_tuple_count():
    few, many = (Memory().added(tuple(range(count)))[1] for count in (1, 1001))
    assert many - few == 8000


def test_long_text_counts_among_many_elements():
    texts = [str(at) * 1000 for at in range(100)]
    assert Memory().added(texts)[0] == sum(map(len, texts))


def test_what_is_forgotten_counts_again():
    memory, held = Memory(), [None]
    first = memory.added(held)
    assert memory.added(held) == (0, 0)
    memory.forget(held)
    assert memory.added(held) == first


def test_no_code_of_a_class_runs():
    class Loud:
        def __getattribute__(self, name):
            raise AssertionError(name)

        def __sizeof__(self):
            raise AssertionError

        __len__ = __hash__ = __sizeof__

    assert Memory().added(Loud())[1] > 0


@pytest.mark.unmeasured
@pytest.mark.parametrize("kind", [list, dict, set])
def test_containers_of_the_pickle_are_not_charged_to_the_call_that_holds_them(kind):
    value = functools.partial(max, [kind() for _ in range(50_000)])
    assert len(loads(pickle.dumps(value, 5), profile=DATA_PROFILES).args[0]) == 50_000
