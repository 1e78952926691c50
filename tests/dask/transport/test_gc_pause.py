"""While a large message is read nobody looks for garbage; before and after it is as it was."""

from __future__ import annotations

import gc
import threading

import pytest

from safeser.dask.transport.gc_pause import gc_paused


@pytest.fixture(autouse=True)
def switched_on():
    gc.enable()
    yield
    gc.enable()


@pytest.mark.parametrize("on", [True, False])
def test_it_is_off_inside_and_as_it_was_again_whatever_happens(on):
    def fails():
        with gc_paused:
            assert not gc.isenabled()
            raise ValueError("odd")

    if not on:
        gc.disable()
    with pytest.raises(ValueError, match="odd"):
        fails()
    assert gc.isenabled() is on


def test_the_last_one_of_several_threads_switches_it_on():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with gc_paused:
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    with gc_paused:
        thread.start()
        assert entered.wait(30)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()
