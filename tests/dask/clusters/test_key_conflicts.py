"""Nobody gets somebody else's result unawares: two principals and one key, on real processes.

Each conflict is in memory in tests/dask/scheduler/test_conflict_guard.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from safeser import audit

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parents[1] / "programs" / "keys.py"


@pytest.fixture(scope="module")
def seen(visit):
    client = visit("default")
    cluster = client.cluster
    answer = client.answer("client", PROGRAM, str(cluster.keys / "dave.key"), timeout=170)
    answer["records"] = [
        tuple(one.fields[name] for name in ("event", "rule", "sender", "author", "where"))
        for one in audit.read(cluster.audit)
        if str(one.fields.get("rule")).startswith("key.")
    ]
    return answer


def test_another_definition_is_refused_and_the_first_one_left_alone(seen):
    (kind, rule, text), _ = seen["definition_refused"]
    assert (kind, rule) == ("PolicyDenied", "key.definition")
    assert "key 'poisoned', submitted by 'client', was first submitted by 'dave'" in text
    assert seen["its_dependent"][0][:2] == ["PolicyDenied", "key.definition"]
    assert seen["first_untouched"] == ["finished", 80]
    assert seen["free_again"] == 42


def test_each_hears_the_word_of_the_policy(seen):
    value, (warning,) = seen["definition_warned"]
    assert value == 2
    assert "key 'ours', submitted by 'dave', was first submitted by 'client'" in warning
    assert "with another definition" in warning
    (kind, rule, _), warnings = seen["principal_refused"]
    assert (kind, rule, warnings) == ("PolicyDenied", "key.principal", [])
    value, (warning,) = seen["principal_warned"]
    assert value == 2
    assert "with the same definition" in warning


@pytest.mark.parametrize("attempt", ["data_over_a_task", "task_over_data", "direct"])
def test_data_takes_nobodys_place(seen, attempt):
    (kind, rule, text), _ = seen[attempt]
    assert (kind, rule) == ("PolicyDenied", "key.definition")
    assert "was first submitted by 'dave'" in text
    assert seen["task_untouched"] == 2
    assert seen["data_untouched"] == [1, 1]


def test_nobody_gets_what_was_handed_over_for_what_they_submit_unawares(seen):
    assert seen["handed_over"] == [671, []]
    # Dask's client looks among its futures first, so that the scheduler never hears of it.
    value, (warning,) = seen["trap_submitted"]
    assert value == 666
    assert "that was not submitted by it but handed over" in warning


def test_each_conflict_is_recorded_with_both_principals(seen):
    assert {tuple(record) for record in seen["records"]} >= {
        ("refuse", "key.definition", "client", "dave", "poisoned"),
        ("warn", "key.definition", "dave", "client", "ours"),
        ("refuse", "key.principal", "dave", "client", "ours"),
        ("warn", "key.principal", "client", "dave", "theirs"),
        ("refuse", "key.definition", "client", "dave", "data"),
    }
