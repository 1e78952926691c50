"""The table of keys that collide within one client, each row on real processes.

Where the policy says warn instead, tests/dask/clients/test_future_reuse.py has it in memory.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parents[1] / "programs" / "one_client.py"


@pytest.fixture(scope="module")
def seen(visit):
    return visit("sealed").answer("alice", PROGRAM, timeout=170)


#: What differs, by the submission.
DIFFERENT = {
    "other_output": "(function: mul instead of add)",
    "dependency": "(argument 1, dependency 'other' instead of a value)",
    "actor": "(an actor instead of a task)",
    "get": "(function: mul instead of add)",
    "map": "(function: mul instead of add)",
    "compute": "(function: mul instead of add)",
    "persist": "(function: mul instead of add)",
    "scatter": "(data instead of a task)",
    "scatter_other": "(other data)",
    "task_over_data": "(a task instead of data)",
    "async_other": "(function: mul instead of add)",
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_definition_is_never_answered(seen, name):
    (rule, text), warned = seen[name]
    assert rule == "key.definition"
    assert warned == []
    assert DIFFERENT[name] in text
    assert text.startswith("key '")
    assert len(text) < 400


def test_the_future_that_was_held_stays_as_it_was(seen):
    assert seen["first"] == ["finished", 5]
    assert seen["scattered"] == 1
    assert seen["async_first"] == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("same", 5),
        ("scatter_same", 1),
        ("async_same", None),
        ("honest", 6400.0),
    ],
)
def test_the_same_definition_is_silent(seen, name, value):
    got, warned = seen[name]
    assert warned == []
    if value is None:
        assert got in ("pending", "finished")
    else:
        assert got == value


def test_a_released_key_is_free_at_once(seen):
    assert seen["released"] == [6, []]


def test_clients_of_tasks_compare_as_well(seen):
    assert seen["in_a_task"] == [5, "key.definition", 5]


def test_what_was_handed_over_survives_a_refusal_of_what_came_later(seen):
    assert seen["handed_same"][0] == 23
    for name in ("handed_same", "handed_other"):
        assert "handed over" in seen[name][1][0]
    assert seen["handed_mapped"][0][0] == "key.definition"
    assert seen["handed"] == [["finished", 23], ["finished", 23]]
