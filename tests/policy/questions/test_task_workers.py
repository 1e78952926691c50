"""Which worker principals take whose tasks: derived from contexts, and equal to their decisions."""

from __future__ import annotations

import itertools

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import SEALED, Context, Kind
from safeser.policy import Policy, ready_policies
from safeser.policy.questions.task_workers import TaskWorkers
from safeser.policy.taken_tasks import Takes

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
  operations: {{grant: [compute-task]}}
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
UNMEASURED = "".join(
    HANDS.format(worker="worker-a", authors=who)
    .replace("to-worker-a", name)
    .replace("  submission", f"{host}  submission")
    for name, who, host in (
        ("here", "[alice]", "  same_host: true\n"),
        ("there", "[alice]", "  same_host: false\n"),
        ("anywhere", "[eve]", ""),
    )
)
#: What a worker tells its nanny.
TELLS = "- {{name: t, sender: [{}], recipient: [{}], operations: {{grant: [close_gracefully]}}}}\n"
BOTH = "worker-a, worker-b"


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (hands(a="[group:analysts]", b="[eve]"), "worker-b takes sealed tasks of eve"),
        (hands(a="[group:analysts]", b="[alice, bob, eve]"), "of alice, bob, eve, and worker-a"),
        (hands(a="[alice]") + OPENED, "worker-b takes tasks that the scheduler opens"),
        (BY_HOST, "worker-a takes sealed tasks of alice, and worker-a takes sealed tasks of eve"),
        (
            UNMEASURED,
            "worker-a takes sealed tasks of eve, and worker-a takes sealed tasks of alice",
        ),
        (hands(a="[alice]", b="[eve]") + TELLS.format(BOTH, BOTH), "worker-b takes sealed tasks"),
        (hands(a="[alice]", b="[eve]") + TELLS.format("worker-a", "worker-b"), "tasks of eve"),
    ],
)
def test_workers_that_take_tasks_of_different_authors_do_not_load(rules: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(HEAD + rules, source="p.yaml")
    assert caught.value.rule == "config.one-group"
    assert says in str(caught.value)


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


def test_a_nanny_that_registers_no_worker_takes_no_tasks() -> None:
    """Policies grant nannies what they grant workers; what a worker submits it signs alone."""
    rules = hands(a="[alice, worker-a]", b="[alice]")
    with pytest.raises(ConfigError, match=r"nanny-reports in place") as caught:
        Policy.parse(HEAD + rules)
    assert caught.value.rule == "config.one-group"
    text = HEAD.replace("sender: [worker-a, worker-b]", "sender: worker-a")
    nanny = HEAD[HEAD.index("- name: report\n") : HEAD.index("- name: submit\n")]
    nanny = nanny.replace("name: report", "name: nannies").replace("cluster", "nanny-reports")
    policy = Policy.parse(text + rules + nanny.replace("[worker-a, worker-b]", "worker-b"))
    assert list(TaskWorkers(policy, "scheduler").takes) == ["worker-a"]


# --- ready policies ------------------------------------------------------------------------------


def test_a_context_of_signed_tasks_takes_no_unsealed_task() -> None:
    rule = HANDS.format(worker="worker-a", authors="[alice]")
    families = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
    workers = TaskWorkers(Policy.parse(HEAD + rule + families), "scheduler")
    assert not any(takes.unsealed for takes in workers.takes.values())


@pytest.mark.parametrize("name", sorted({*ready_policies()} - {"shared", "stock-cluster"}))
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
