"""Keys of tasks as text for the log: bounded, whatever a peer chose."""

from __future__ import annotations

import pytest

from safeser.audit.record import short_key
from safeser.dask.wire.task_key import key_text, shown_key, task_of


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("inc-1", "inc-1"),
        (("x-sum", 0, -3), "('x-sum', 0, -3)"),
        (("a", ("b",)), ""),
        ((), ""),
        (None, ""),
        (("a", 1.5), ""),
        (("a", 1 << 64), ""),
        (("a", True), "('a', True)"),
        (("a", *range(9)), "('a', 0, 1, 2, 3, 4, ...)"),
    ],
)
def test_a_key_is_written_as_dask_writes_it_or_not_at_all(key, text):
    assert key_text(key) == text


def test_the_text_of_a_key_is_bounded():
    assert len(key_text("x" * 10_000_000)) == 128
    assert len(key_text(tuple(["\x00" * 1_000_000] * 100))) == 128
    assert key_text((1 << 10_000_000,)) == ""


def test_long_keys_that_differ_at_their_end_are_told_apart():
    one, other = ("x" * 200 + end for end in "ab")
    assert key_text(one) != key_text(other)
    assert key_text((one, 1)) != key_text((other, 1))
    assert key_text(one) == short_key(one)  # as the question is cut
    assert key_text("x" * 128) == "x" * 128


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (None, {}),
        (("op", "key"), {}),
        ({"op": "x"}, {}),
        ({"key": "a"}, {"task": "a", "task_author": ""}),
        ({"key": "a", "author": "alice"}, {"task": "a", "task_author": "alice"}),
        ({"key": ["x"], "author": 3}, {"task": "", "task_author": ""}),
        ({"key": "a", "author": "x" * 1000}, {"task": "a", "task_author": "x" * 64}),
    ],
)
def test_the_task_of_a_message_is_what_it_says(body, said):
    assert task_of(body) == said


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("x", "x"),
        (("x", 1), "('x', 1)"),
        (("x", ("y", 1.5)), "('x', ('y', 1.5))"),
        (("x", *[1] * 900_000), "('x', 1, 1, 1, 1, 1, Ellipsis)"),
        (("x", 1 << 10_000_000), "('x', Ellipsis)"),
        (("x", (((1,),),)), "('x', ((Ellipsis,),))"),
    ],
)
def test_an_error_shows_the_first_parts_of_a_key(key: object, shown: str) -> None:
    assert shown_key(key, 60) == shown
