"""Which refusals are remembered for those that depend on what was refused, and for how long."""

from __future__ import annotations

from safeser.dask.scheduler import lost_futures
from safeser.dask.scheduler.lost_futures import LostFutures
from safeser.errors import PolicyDenied

FIRST, SECOND = (PolicyDenied(text, rule="key.definition") for text in ("first", "second"))


def test_the_client_that_was_refused_hears_why_again():
    made = LostFutures()
    made.note("a", ["x", "y"], FIRST, present=["a", "b"])
    made.note("b", ["x"], SECOND, present=["a", "b"])
    assert made.refusal_of("a", ["z", "y"]) is FIRST
    assert made.refusal_of("b", ["x"]) is SECOND
    assert made.refusal_of("b", ["y"]) is None
    assert made.refusal_of("c", ["x"]) is None


def test_what_exists_by_now_was_not_refused():
    made = LostFutures()
    made.found("a", ["x"])
    made.note("a", ["x", "y"], FIRST, present=["a"])
    made.found("a", ["x", "z"])
    assert made.refusal_of("a", ["x"]) is None
    assert made.refusal_of("a", ["y"]) is FIRST


def test_nothing_is_kept_of_who_left_nor_more_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(lost_futures, "MOST", 3)
    made = LostFutures()
    made.note("a", ["x"], FIRST, present=["a"])
    made.note("b", range(5), SECOND, present=["b"])
    assert made.refusal_of("a", ["x"]) is None
    assert [made.refusal_of("b", [n]) for n in range(5)] == [None, None, SECOND, SECOND, SECOND]
