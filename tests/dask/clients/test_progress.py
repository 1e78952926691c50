"""Bars of clients that may not hand the scheduler a function: they count their own futures."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from distributed.diagnostics.progressbar import MultiProgressBar, ProgressBar

from tests.dask.patched import patched


class Holder(SimpleNamespace):
    """A namespace that can be referred to weakly."""


class Bar:
    """Draws into a list; what it is drawn with is what comes of each look."""

    def _draw_bar(self, **found):
        self.drawn = [*getattr(self, "drawn", []), found]

    def _draw_stop(self, **found):
        self.stopped = found


class One(Bar, ProgressBar):
    pass


class Many(Bar, MultiProgressBar):
    pass


@pytest.fixture
def bars():
    """Return what makes a bar over futures in given states, of a client that may not feed."""
    keep = []

    def made(cls, states, *, feeds=False, **options):
        futures = {k: SimpleNamespace(status=s, exception="why") for k, s in states.items()}
        client = Holder(futures=futures, _may_feed=lambda: feeds, connection_args={})
        keys = [SimpleNamespace(key=key, client=client) for key in states]
        keep.append(client)  # a bar refers to its client weakly
        bar = cls(keys, scheduler="safeser://127.0.0.1:1", interval="1ms", **options)
        bar.comm = SimpleNamespace(abort=lambda: None)
        return bar, futures

    with patched(
        *(f"{cls.__module__}:{cls.__name__}.listen" for cls in (ProgressBar, MultiProgressBar))
    ):
        yield made


def listens(bar):
    asyncio.run(asyncio.wait_for(bar.listen(), 20))


def test_a_bar_ends_when_all_of_its_futures_did(bars):
    bar, futures = bars(One, {"a": "finished", "b": "pending", "c": "cancelled"})
    draw = bar._draw_bar

    def drawn(**found):
        draw(**found)
        futures["b"].status = "finished"

    bar._draw_bar = drawn
    listens(bar)
    assert bar.drawn == [
        {"all": 3, "remaining": 1, "status": "running"},
        {"all": 3, "remaining": 0, "status": "finished"},
    ]
    assert bar.stopped == bar._last_response == bar.drawn[-1]


def test_a_future_that_failed_ends_it_and_says_why(bars):
    bar, _ = bars(One, {"a": "error", "b": "pending"})
    listens(bar)
    assert bar.drawn == [{"all": 2, "remaining": 1, "status": "error", "exception": "why"}]


def test_several_kinds_of_tasks_are_counted_by_kind(bars):
    bar, _ = bars(Many, {"add-1": "finished", "add-2": "finished", "neg-1": "finished"})
    listens(bar)
    assert bar.stopped == {
        "all": {"add": 2, "neg": 1},
        "remaining": {"add": 0, "neg": 0},
        "status": "finished",
    }


@pytest.mark.parametrize("cls", [One, Many])
def test_who_may_have_functions_run_asks_the_scheduler_as_ever(bars, cls, monkeypatch):
    async def connect(address, **options):
        raise OSError(f"asked {address}")

    monkeypatch.setattr("distributed.diagnostics.progressbar.connect", connect)
    bar, _ = bars(cls, {"a": "finished"}, feeds=True)
    with pytest.raises(OSError, match="asked safeser"):
        listens(bar)
