"""``values``: whose values a sender may read from a recipient, and whose it reads anyway."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy, explain
from safeser.policy.questions.readable import is_worker, may_read, readable, run_by
from safeser.values import Context, Kind

TEXT = """safeser: 1
name: test
revision: 1
principals:
  scheduler: {}
  worker-a: {groups: [workers]}
  worker-b: {groups: [workers]}
  ann: {groups: [staff]}
  bea: {groups: [staff]}
  cy: {groups: [guests]}
  dan: {groups: [guests]}
contexts:
- name: tasks-a
  sender: scheduler
  recipient: worker-a
  authors: [ann]
  submission: sealed
  operations: {grant: [compute-task]}
- name: tasks-b
  sender: scheduler
  recipient: worker-b
  authors: [bea, cy]
  submission: sealed
  operations: {grant: [compute-task]}
- name: report
  sender: group:workers
  recipient: scheduler
  operations: {grant: [register-worker, gather]}
- name: a-reads
  sender: worker-a
  recipient: worker-b
  operations: {grant: [get_data]}
  values: [cy]
- name: exchange
  sender: worker-b
  recipient: worker-a
  operations: {grant: [get_data]}
- name: users
  sender: [ann, bea, cy]
  recipient: scheduler
  submission: sealed
  operations: {grant: [basic]}
  values: [group:guests]
"""


def policy(old: str = "", new: str = "") -> Policy:
    assert old in TEXT
    return Policy.parse(TEXT.replace(old, new), source="p.yaml")


def read(loaded: Policy, sender: str, recipient: str) -> list[str]:
    context = Context(sender, recipient, Kind.DATA, "get_data", transport="safeser")
    return sorted(readable(loaded, context))


def test_a_user_reads_its_own_values_and_those_that_are_listed() -> None:
    assert read(policy(), "ann", "scheduler") == ["ann", "cy", "dan"]
    assert read(policy("  values: [group:guests]\n"), "ann", "scheduler") == ["ann"]


def test_a_worker_reads_values_of_whose_tasks_it_runs_and_those_that_are_listed() -> None:
    # Dan's tasks run nowhere: what he scatters belongs to no group.
    assert read(policy(), "worker-a", "worker-b") == ["ann", "cy", "dan", "scheduler", "worker-a"]
    assert "cy" not in read(policy("  values: [cy]\n"), "worker-a", "worker-b")
    assert read(policy(), "worker-b", "worker-a") == ["bea", "cy", "dan", "scheduler", "worker-b"]
    assert read(policy(), "worker-b", "scheduler") == read(policy(), "worker-b", "worker-a")


def test_without_a_context_no_value_is_read() -> None:
    assert read(policy(), "ann", "worker-a") == []
    assert read(policy(), "nobody", "scheduler") == []


def test_processes_of_one_principal_read_values_of_each_other() -> None:
    for author in ("bea", None):
        assert may_read(policy(), Context("worker-a", "worker-a", Kind.DATA, "get_data"), author)
        across = Context("worker-a", "worker-b", Kind.DATA, "get_data")
        assert not may_read(policy(), across, author)


def test_workers_of_graphs_that_the_scheduler_opens_read_values_of_their_authors() -> None:
    text = TEXT.replace(
        "  sender: [ann, bea, cy]\n  recipient: scheduler\n  submission: sealed\n",
        "  sender: [ann, bea, cy]\n  recipient: scheduler\n  submission: code\n"
        "  serializers: [dask, msgpack, pickle, cloudpickle]\n"
        "  deserializers: [dask, msgpack, pickle, cloudpickle]\n",
    ).replace(
        "  authors: [ann]\n  submission: sealed\n",
        "  submission: code\n  serializers: [msgpack, pickle, cloudpickle]\n"
        "  deserializers: [msgpack, pickle, cloudpickle]\n",
    )
    loaded = Policy.parse(text, source="p.yaml")
    assert {"ann", "bea", "cy"} <= run_by(loaded, "worker-a")
    assert not {"ann", "bea"} & run_by(loaded, "worker-b")


def test_who_is_a_worker() -> None:
    assert [each for each in policy().principals if is_worker(policy(), each)] == [
        "worker-a",
        "worker-b",
    ]


@pytest.mark.parametrize(
    ("values", "rule", "words"),
    [
        ("[nobody]", "config.undefined", "no principal is called"),
        ("[group:nobody]", "config.undefined", "no principal is in"),
        ("[any]", "floor.author", "Leave any out"),
        ("[unknown]", "floor.author", "Leave unknown out"),
        ("[worker-a]", "config.no-effect", "its own values anyway"),
        ("[]", "config.empty", "values"),
    ],
)
def test_names_that_mean_nothing_are_refused(values: str, rule: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy("  values: [cy]\n", f"  values: {values}\n")
    assert caught.value.rule == rule
    assert words in str(caught.value)


def test_a_group_of_one_may_be_listed_for_itself() -> None:
    text = TEXT.replace("ann: {groups: [staff]}", "ann: {groups: [solo]}")
    text = text.replace("sender: [ann, bea, cy]", "sender: ann")
    loaded = Policy.parse(text.replace("values: [group:guests]", "values: [group:solo]"))
    assert read(loaded, "ann", "scheduler") == ["ann"]


def test_values_need_an_operation_that_reads_some() -> None:
    with pytest.raises(ConfigError, match="the sender may ask the recipient for none"):
        policy(
            "  operations: {grant: [get_data]}\n  values",
            "  operations: {grant: [identity]}\n  values",
        )


def test_nobody_unknown_reads_values_of_others() -> None:
    with pytest.raises(ConfigError) as caught:
        policy(
            "  sender: [ann, bea, cy]\n  recipient: scheduler\n  submission: sealed\n",
            "  sender: [ann, unknown]\n  recipient: scheduler\n",
        )
    assert caught.value.rule == "floor.unknown"


def test_an_explanation_names_whose_values_may_be_read() -> None:
    context = Context("ann", "scheduler", Kind.DATA, "gather", transport="safeser")
    assert "the sender may read values of these authors from the recipient: cy, dan" in str(
        explain(policy(), context, "msgpack")
    )
