"""The table of keys that collide within one client, each row on real processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parents[1] / "programs" / "one_client.py"
POLICIES = Path(__file__).parents[3] / "policies"

#: Under ``dask-cluster`` workers submit nothing; here they sign what their tasks submit.
_WORKERS = """  - name: workers-submit
    sender: worker
    recipient: scheduler
    submission: sealed
    values: [group:engineers]
"""


class Submitted(NamedTuple):
    """How the program submits: by which principal, under which ready policy.

    :param changed: what that policy says, and what it says here.
    :param contexts: those that keys of the program and of its tasks are compared in.
    """

    principal: str
    policy: str
    contexts: str
    changed: tuple[tuple[str, str], ...] = ()

    def text(self, word):
        text = (POLICIES / f"{self.policy}.yaml").read_text()
        for was, now in self.changed:
            assert was in text
            text = text.replace(was, now)
        decided = rf"\1    key_conflicts: {{definition: {word}}}\n"
        text, found = re.subn(rf"(  - name: (?:{self.contexts})\n)", decided, text)
        assert found == 2
        return text


SUBMITTED = {
    "code": Submitted("client", "default", "tasks-submit|client-submits-code"),
    "sealed": Submitted(
        *("carol", "dask-cluster", "workers-submit|engineers-submit-sealed"),
        changed=(
            (
                "  - name: workers-report\n    sender: worker\n    recipient: scheduler\n",
                _WORKERS,
            ),
            (
                "    kinds: [task]\n    authors: [group:engineers]\n",
                "    kinds: [task]\n    authors: [group:engineers, worker]\n",
            ),
        ),
    ),
}


@pytest.fixture(scope="module", params=[("code", "warn"), ("sealed", "refuse")])
def way(request):
    return request.param


@pytest.fixture(scope="module")
def word(way):
    return way[1]


@pytest.fixture(scope="module")
def seen(cluster_under, way):
    submitted, word = SUBMITTED[way[0]], way[1]
    principals = ("scheduler", "worker", "nanny", submitted.principal)
    with cluster_under(submitted.text(word), principals, workers=1, nannies=0) as cluster:
        ended = cluster.run(submitted.principal, PROGRAM, cluster.address, word, timeout=170)
        assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
        return ended.answer


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
