"""Objects and buffers are free once nobody uses them, without the garbage collector's help."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from safeser import families
from safeser.values import Grant

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
