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
  authors: [ann]
  submission: sealed
  operations: {grant: [compute-task]}
- name: tasks-b
  sender: scheduler
  recipient: worker-b
  authors: [bea]
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
  operations: {grant: [basic]}
- name: bea-submits
  sender: bea
  recipient: scheduler
  submission: sealed
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
REPORT = "operations: {grant: [register-worker, gather]}"
EVERY = "[dask, msgpack, cloudpickle, pickle]"
CONFINED = "{confined: {read: [/data], write: [/scratch], execute: false, connect: cluster}}"

BOTH = "authors: [bea]", "authors: [ann, bea]"
NEITHER = "authors: [bea]", "authors: [worker-b]"
READS = REPORT, f"values: [bea]\n  {REPORT}"
CODE = (
    f"{ANN}\n  submission: sealed",
    f"{ANN}\n  submission: code\n  deserializers: {EVERY}\n  serializers: {EVERY}",
)


def test_groups_that_are_kept_apart_give_no_finding():
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
    rules = [rule for rule, _ in found(BOTH)]
    assert "lint.confinement" in rules
    [message] = [message for rule, message in found(BOTH) if rule == "lint.confinement"]
    assert message == (
        "code of ann runs in worker-a, which is confined, and in worker-b, which is not"
    )


@pytest.mark.parametrize(
    "change",
    [("worker-b: {}", f"worker-b: {CONFINED}"), (f"worker-a: {CONFINED}", "worker-a: {}")],
    ids=["confined", "free"],
)
def test_code_in_two_processes_of_one_sort_is_no_contradiction(change):
    assert "lint.confinement" not in [rule for rule, _ in found(BOTH, change)]


def test_code_that_reads_in_a_worker_what_its_author_may_not_gather():
    assert found(READS) == [
        (
            "lint.values",
            "code of ann runs in worker-a, which may read values of bea; ann may not",
        )
    ]


def test_what_an_author_may_gather_its_code_may_read():
    assert found(READS, (ANN, f"{ANN}\n  values: [bea]")) == []


def test_authors_who_share_a_worker_read_each_other_there():
    assert [message for rule, message in found(BOTH) if rule == "lint.values"] == [
        "code of ann runs in worker-b, which may read values of bea; ann may not",
        "code of bea runs in worker-b, which may read values of ann; bea may not",
    ]


def test_each_finding_says_what_to_change():
    text = TEXT.replace(*BOTH)
    [outside, *read] = [
        each
        for each in lint(Policy.parse(text, source="p.yaml"), today=TODAY)
        if each.rule not in OTHERS
    ]
    assert outside.fix == (
        "Take ann from 'authors' of the contexts to worker-b, or confine those as well."
    )
    assert all("'values' of the context from" in each.fix for each in read)
