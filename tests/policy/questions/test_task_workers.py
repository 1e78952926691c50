"""Which worker principals take whose tasks: derived from contexts, and equal to their decisions."""

from __future__ import annotations

import itertools

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy, ready_policies
from safeser.policy.questions.task_workers import TaskWorkers
from safeser.policy.taken_tasks import Takes
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
OPENED = """\
- name: to-worker-b
  sender: scheduler
  recipient: worker-b
  submission: code
  serializers: [msgpack, pickle, cloudpickle]
  deserializers: [msgpack, pickle, cloudpickle]
  operations: {grant: [compute-task]}
"""


def hands(**authors: str) -> str:
    rules = (HANDS.format(worker=f"worker-{name}", authors=who) for name, who in authors.items())
    return "".join(rules)


def handing(**authors: str) -> TaskWorkers:
    return TaskWorkers(Policy.parse(HEAD + hands(**authors)), "scheduler")


def handed(sender: str, worker: str, *, same_host: bool | None) -> Context:
    return Context(
        sender, worker, Kind.TASK, "compute-task", transport="safeser", same_host=same_host
    )


def test_each_author_has_the_workers_that_list_it() -> None:
    workers = handing(a="[group:analysts]", b="[alice, bob]")
    assert workers.of("alice") == workers.of("bob") == {"worker-a", "worker-b"}
    assert workers.of("eve") == workers.of("nobody") == frozenset()


# --- one cluster, one trust group ----------------------------------------------------------------

BY_HOST = HANDS.format(worker="worker-a", authors="[alice]").replace(
    "  submission", "  same_host: true\n  submission"
) + HANDS.format(worker="worker-a", authors="[eve]").replace("to-worker-a", "elsewhere")


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (hands(a="[group:analysts]", b="[eve]"), "worker-b takes sealed tasks of eve"),
        (hands(a="[group:analysts]", b="[alice, bob, eve]"), "of alice, bob, eve, and worker-a"),
        (hands(a="[alice]") + OPENED, "worker-b takes tasks that the scheduler opens"),
        (BY_HOST, "worker-a takes sealed tasks of alice, and worker-a takes sealed tasks of eve"),
    ],
    ids=["apart", "subset", "opened", "by-host"],
)
def test_workers_that_take_tasks_of_different_authors_do_not_load(rules: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(HEAD + rules, source="p.yaml")
    assert caught.value.rule == "config.one-group"
    for words in (says, "safeser up --group", "Write two policies", "p.yaml, line "):
        assert words in str(caught.value)


def test_a_principal_that_is_handed_no_tasks_is_no_worker() -> None:
    text = HEAD + hands(a="[alice]", b="[eve]")
    rules = text.replace("sender: [worker-a, worker-b]", "sender: worker-b")
    assert list(TaskWorkers(Policy.parse(rules), "scheduler").takes) == ["worker-b"]
    assert not TaskWorkers(Policy.parse(rules), "eve").takes


def test_two_schedulers_of_one_policy_are_two_clusters() -> None:
    text = HEAD.replace("  scheduler: {}\n", "  scheduler: {}\n  second: {}\n")
    text = text.replace("  sender: [worker-a, worker-b]", "  sender: worker-a")
    rules = hands(a="[alice]") + HANDS.format(worker="worker-b", authors="[eve]").replace(
        "sender: scheduler", "sender: second"
    )
    report = (
        "- {name: other, sender: worker-b, recipient: second, operations: {grant: [cluster]}}\n"
    )
    policy = Policy.parse(text + rules + report)
    assert TaskWorkers(policy, "scheduler").of("alice") == {"worker-a"}
    assert TaskWorkers(policy, "second").of("eve") == {"worker-b"}


@pytest.mark.parametrize("retires", [True, False])
def test_a_nanny_takes_other_tasks_than_its_worker(retires: bool) -> None:
    """Policies grant nannies what they grant workers; what a worker submits it signs alone."""
    rules = hands(a="[alice, worker-a]", b="[alice]")
    tells = "close_gracefully" if retires else "identity"
    rules += f"- {{name: retire, sender: worker-a, recipient: worker-b, operations: [{tells}]}}\n"
    rules = rules.replace(f"operations: [{tells}]", f"operations: {{grant: [{tells}]}}")
    if retires:
        assert TaskWorkers(Policy.parse(HEAD + rules), "scheduler").of("alice")
    else:
        with pytest.raises(ConfigError, match=r"config\.one-group"):
            Policy.parse(HEAD + rules)


# --- ready policies ------------------------------------------------------------------------------


def test_dask_cluster_has_its_workers_take_sealed_tasks() -> None:
    workers = TaskWorkers(Policy.load("dask-cluster"), "scheduler")
    assert workers.of("carol") == {"worker", "nanny"}
    assert workers.of("alice") == frozenset()  # an analyst, who looks and fetches


@pytest.mark.parametrize("name", ["default", "strict", "trusted"])
def test_workers_of_one_persons_cluster_take_what_the_scheduler_pickles(name: str) -> None:
    assert "worker" in TaskWorkers(Policy.load(name), "scheduler").of("client")


def test_a_context_of_signed_tasks_takes_no_unsealed_task() -> None:
    rule = HANDS.format(worker="worker-a", authors="[alice]")
    families = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
    workers = TaskWorkers(Policy.parse(HEAD + rule + families), "scheduler")
    assert not any(takes.unsealed for takes in workers.takes.values())


@pytest.mark.parametrize("name", sorted({*ready_policies()} - {"stock-cluster"}))
def test_what_is_derived_is_what_is_decided(name: str) -> None:
    policy = Policy.load(name)
    for (sender, worker), same in itertools.product(
        itertools.permutations(policy.principals, 2), (True, False, None)
    ):
        task = handed(sender, worker, same_host=same)
        takes = Takes.by(policy, task)
        for author in (*policy.principals, "stranger"):
            decided = policy.decide(task, SEALED, author=author).permitted
            assert (author in takes.authors) == decided, (task, author)
