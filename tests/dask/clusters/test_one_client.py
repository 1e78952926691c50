"""The table of keys that collide within one client, each row on real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parents[1] / "programs" / "one_client.py"


#: By the word of the policy for another definition: on which cluster and as whom.
WAYS = {"warn": ("default", "dave"), "refuse": ("sealed", "alice")}


@pytest.fixture(scope="module", params=WAYS)
def word(request):
    return request.param


@pytest.fixture(scope="module")
def seen(visit, word):
    name, principal = WAYS[word]
    return visit(name).answer(principal, PROGRAM, word, timeout=170)


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
FIRST = {"map": [5, 8], "scatter_other": 1, "task_over_data": 1}
VALUELESS = {"actor", "async_other"}


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_definition_is_never_answered_without_a_word(seen, word, name):
    value, warned = seen[name]
    if word == "refuse":
        rule, text = value
        assert rule == "key.definition"
        assert warned == []
    else:
        text = warned[0]
        if name not in VALUELESS:
            assert value == FIRST.get(name, 5)
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


def test_clients_of_tasks_compare_as_well(seen, word):
    same, other, *rest = seen["in_a_task"]
    assert same == 5
    if word == "refuse":
        assert [other, *rest] == ["key.definition", 5]
    else:
        assert other == 5
        assert "(function: mul instead of add)" in rest[0]


def test_what_was_handed_over_survives_a_refusal_of_what_came_later(seen, word):
    assert seen["handed_same"][0] == 23
    for name in ("handed_same", "handed_other"):
        assert "handed over" in seen[name][1][0]
    if word == "refuse":
        assert seen["handed_mapped"][0][0] == "key.definition"
    else:
        assert seen["handed_mapped"][0] == 23
    assert seen["handed"] == [["finished", 23], ["finished", 23]]
