"""Nobody gets somebody else's result unawares: two principals and one key, on real processes."""

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
    assert "Name another key" in text
    assert seen["first_untouched"] == ["finished", 80]
    assert seen["still_works"] == 3


def test_what_depends_on_a_refused_future_fails_as_well(seen):
    (first, _), (second, _) = seen["its_dependents"]
    assert first[:2] == ["PolicyDenied", "key.definition"]
    assert second[0] == "FutureCancelledError"  # of what was never created, as on stock Dask


def test_a_key_is_free_once_its_task_is_forgotten(seen):
    assert seen["free_again"] == 42


def test_where_policy_says_warn_dask_does_as_ever_and_the_submitter_hears_of_it(seen):
    value, (warning,) = seen["definition_warned"]
    assert value == 2
    assert "key 'ours', submitted by 'dave', was first submitted by 'client'" in warning
    assert "with another definition" in warning
    value, (warning,) = seen["principal_warned"]
    assert value == 2
    assert "with the same definition" in warning


def test_where_policy_says_refuse_one_definition_is_not_shared_either(seen):
    (kind, rule, _), warnings = seen["principal_refused"]
    assert (kind, rule, warnings) == ("PolicyDenied", "key.principal", [])
    assert seen["principal_kept"] == ["finished", 4, 2]


@pytest.mark.parametrize(
    "attempt", ["data_over_a_task", "data_over_data", "task_over_data", "direct", "actor"]
)
def test_data_and_actors_take_nobodys_place(seen, attempt):
    (kind, rule, text), _ = seen[attempt]
    assert (kind, rule) == ("PolicyDenied", "key.definition")
    assert "was first submitted by 'dave'" in text


def test_what_was_there_is_what_it_was(seen):
    assert seen["task_untouched"] == 2
    assert seen["data_untouched"] == [1, 1]
    assert seen["own_data_again"] == [1, []]


def test_data_is_announced_by_nobody_elses_client(seen):
    assert seen["announced"][0][:2] == ["PolicyDenied", "stream.client-id"]


def test_what_was_handed_over_is_no_conflict(seen):
    assert seen["handed_over"] == [17, []]


def test_nobody_gets_what_was_handed_over_for_what_they_submit_unawares(seen):
    # Dask's client looks among its futures first, so that the scheduler never hears of it.
    value, (warning,) = seen["trap_submitted"]
    assert value == 666
    assert "that was not submitted by it but handed over" in warning
    assert "that was not submitted by it but handed over" in seen["trap_mapped"][0]


def test_a_graph_that_fails_fails_nobody_elses_futures(seen):
    assert seen["failing_graph"][0] == "no graph at all"
    assert seen["others_future"] == "finished"


def test_each_conflict_is_recorded_with_both_principals(seen):
    records = {tuple(record) for record in seen["records"]}
    for record in [
        ("refuse", "key.definition", "client", "dave", "poisoned"),
        ("warn", "key.definition", "dave", "client", "ours"),
        ("refuse", "key.principal", "dave", "client", "also-ours"),
        ("warn", "key.principal", "client", "dave", "theirs"),
        ("refuse", "key.definition", "client", "dave", "data"),
    ]:
        assert record in records
