"""Findings of ``safeser policy lint``: what a policy permits against its own statements."""

from __future__ import annotations

import datetime

import pytest

from safeser.policy import Policy, ready_policies
from safeser.policy.questions.lint import lint

TEXT = """safeser: 1
name: test
revision: 1
principals:
  scheduler: {}
  worker-a: {confined: {read: [/data], write: [/scratch], execute: false, connect: cluster}}
  worker-b: {}
  ann: {}
  bea: {}
contexts:
- name: tasks-a
  sender: scheduler
  recipient: worker-a
  authors: [ann, bea]
  submission: sealed
  operations: {grant: [compute-task]}
- name: report
  sender: [worker-a, worker-b]
  recipient: scheduler
  operations: {grant: [register-worker, gather]}
- name: ann-submits
  sender: ann
  recipient: scheduler
  submission: sealed
  values: [bea]
  operations: {grant: [basic]}
- name: bea-submits
  sender: bea
  recipient: scheduler
  submission: sealed
  values: [ann]
  operations: {grant: [basic]}
"""


#: Paths of code and roles have tests of their own: test_acknowledged.py, test_lint_grants.py.
OTHERS = ("lint.code", "lint.role")


def found(*changes: tuple[str, str]) -> list[tuple[str, str]]:
    text = TEXT
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return [
        (each.rule, each.message)
        for each in lint(Policy.parse(text, source="p.yaml"), today=TODAY)
        if not each.is_note and each.rule not in OTHERS
    ]


TODAY = datetime.date(2026, 3, 15)
ANN = "sender: ann\n  recipient: scheduler"
BEA = "sender: bea\n  recipient: scheduler"
EVERY = "[dask, msgpack, cloudpickle, pickle]"
CONFINED = "{confined: {read: [/data], write: [/scratch], execute: false, connect: cluster}}"

#: A second worker, whose key is no other group's.
BOTH = (
    "- name: report\n",
    """- name: tasks-b
  sender: scheduler
  recipient: worker-b
  authors: [ann, bea]
  submission: sealed
  operations: {grant: [compute-task]}
- name: report
""",
)
NEITHER = "authors: [ann, bea]", "authors: [ann]"
KEPT = "  values: [bea]\n", ""
CODE = (
    f"{ANN}\n  submission: sealed",
    f"{ANN}\n  submission: code\n  deserializers: {EVERY}\n  serializers: {EVERY}",
)


def test_users_of_one_cluster_who_read_each_other_give_no_finding():
    assert found() == []


@pytest.mark.parametrize("name", ready_policies())
def test_the_ready_policies_have_no_findings(name):
    expected = ["lint.observe"] if name == "observe" else []
    assert [each.rule for each in lint(Policy.load(name), today=TODAY)] == expected


def test_an_author_whose_tasks_no_worker_takes():
    message = "bea may submit to scheduler, and no worker takes tasks of bea"
    assert ("lint.no-worker", message) in found(NEITHER)


def test_who_may_submit_nothing_needs_no_worker():
    assert found(NEITHER, (f"{BEA}\n  submission: sealed", BEA)) == []


def test_a_graph_that_the_scheduler_opens_needs_workers_that_take_its_pickles():
    assert ("lint.no-worker", "ann may submit to scheduler, and no worker takes tasks of ann") in (
        found(CODE)
    )


def test_code_that_runs_in_a_confined_process_and_outside():
    where = "runs in worker-a, which is confined, and in worker-b, which is not"
    assert found(BOTH) == [("lint.confinement", f"code of {who} {where}") for who in ("ann", "bea")]


@pytest.mark.parametrize(
    "change",
    [("worker-b: {}", f"worker-b: {CONFINED}"), (f"worker-a: {CONFINED}", "worker-a: {}")],
    ids=["confined", "free"],
)
def test_code_in_two_processes_of_one_sort_is_no_contradiction(change):
    assert found(BOTH, change) == []


def test_values_that_keep_nothing_from_an_author_whose_code_runs_where_they_are():
    kept = "from ann, whose code runs in worker-a and can read all that is there"
    assert found(KEPT) == [("lint.values", f"'values' keeps values of bea {kept}")]
    assert found(KEPT, CODE)[-1][0] != "lint.values"  # which no worker takes
