"""Which worker principals take whose tasks: derived from contexts, and equal to their decisions."""

from __future__ import annotations

import itertools

import pytest

from safeser.policy import Policy, ready_policies
from safeser.policy.questions.worker_groups import UNSEALED, Takes, WorkerGroups
from safeser.values import SEALED, Context, Kind

HEAD = """\
safeser: 1
name: groups
revision: 1
principals:
  scheduler: {}
  worker-a: {}
  worker-b: {}
  alice: {groups: [analysts]}
  bob: {groups: [analysts]}
  eve: {groups: [engineers]}
contexts:
- name: report
  sender: [worker-a, worker-b]
  recipient: scheduler
  operations: {grant: [cluster]}
- name: submit
  sender: [alice, bob, eve]
  recipient: scheduler
  submission: sealed
  operations: {grant: [basic]}
"""
HANDS = """\
- name: to-{worker}
  sender: scheduler
  recipient: {worker}
  submission: sealed
  authors: {authors}
  operations: {{grant: [compute-task, statement-renewed]}}
"""


def handing(**authors: str) -> WorkerGroups:
    rules = (HANDS.format(worker=f"worker-{name}", authors=who) for name, who in authors.items())
    return WorkerGroups(Policy.parse(HEAD + "".join(rules)), "scheduler")


def handed(sender: str, worker: str, *, same_host: bool | None) -> Context:
    return Context(
        sender, worker, Kind.TASK, "compute-task", transport="safeser", same_host=same_host
    )


def test_each_author_has_the_workers_that_list_it() -> None:
    groups = handing(a="[group:analysts]", b="[group:engineers, bob]")
    assert groups.of("alice") == {"worker-a"}
    assert groups.of("bob") == {"worker-a", "worker-b"}
    assert groups.of("eve") == {"worker-b"}
    assert groups.of("nobody") == groups.of(UNSEALED) == frozenset()


def test_who_may_not_register_is_no_worker() -> None:
    rules = HANDS.format(worker="worker-a", authors="[alice]")
    text = (HEAD + rules).replace("sender: [worker-a, worker-b]", "sender: worker-b")
    assert not WorkerGroups(Policy.parse(text), "scheduler").takes


def test_another_principal_hands_out_nothing() -> None:
    policy = Policy.parse(HEAD + HANDS.format(worker="worker-a", authors="[alice]"))
    assert not WorkerGroups(policy, "eve").takes


def test_workers_of_one_principal_may_differ_by_host() -> None:
    here = HANDS.format(worker="worker-a", authors="[alice]").replace(
        "  submission", "  same_host: true\n  submission"
    )
    there = HANDS.format(worker="worker-a", authors="[eve]").replace("to-worker-a", "elsewhere")
    policy = Policy.parse(HEAD + here + there)
    assert WorkerGroups(policy, "scheduler").of("alice") == {"worker-a"}
    task = handed("scheduler", "worker-a", same_host=False)
    assert Takes.by(policy, task) == Takes(frozenset({"eve"}))


def test_dask_cluster_has_its_workers_take_sealed_and_approved_tasks() -> None:
    groups = WorkerGroups(Policy.load("dask-cluster"), "scheduler")
    assert groups.of(UNSEALED) == frozenset()
    assert groups.of("carol") == {"worker"}
    assert groups.of("alice") == {"worker"}


@pytest.mark.parametrize("name", ["default", "strict", "demo", "trusted"])
def test_workers_of_one_persons_cluster_take_what_the_scheduler_pickles(name: str) -> None:
    assert "worker" in WorkerGroups(Policy.load(name), "scheduler").of(UNSEALED)


def test_a_context_of_signed_tasks_takes_no_unsealed_task() -> None:
    rule = HANDS.format(worker="worker-a", authors="[alice]")
    families = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
    groups = WorkerGroups(Policy.parse(HEAD + rule + families), "scheduler")
    assert groups.of(UNSEALED) == frozenset()


@pytest.mark.parametrize("name", sorted({*ready_policies()} - {"stock-cluster"}))
def test_what_is_derived_is_what_is_decided(name: str) -> None:
    _agrees(Policy.load(name))


def test_what_is_derived_is_what_is_decided_in_divided_policies() -> None:
    _agrees(handing(a="[group:analysts]", b="[group:engineers, bob]").policy)


def _agrees(policy: Policy) -> None:
    names = [*policy.principals, "stranger"]
    for (sender, worker), same in itertools.product(
        itertools.permutations(policy.principals, 2), (True, False, None)
    ):
        task = handed(sender, worker, same_host=same)
        takes = Takes.by(policy, task)
        for author in names:
            decided = policy.decide(task, SEALED, author=author).permitted
            assert takes.includes(author) == decided, (task, author)
