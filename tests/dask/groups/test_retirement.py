"""Who is asked to take the values of a worker that retires, and when it is given up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from distributed import scheduler as dask_scheduler
from distributed.active_memory_manager import ActiveMemoryManagerExtension
from distributed.scheduler import Scheduler

from safeser.dask.groups import retirement
from safeser.dask.groups.retirement import ATTEMPTS, PATIENCE
from safeser.dask.scheduler.worker_authority import Workers
from safeser.operations import Server
from tests.dask.patched import serve, with_rows


class Task:
    def __init__(self, key, holders):
        self.key, self.who_has, self.nbytes = key, set(holders), 1
        self.state, self.actor, self.waiters = "memory", False, set()


class Worker:
    def __init__(self, number):
        self.address = f"safeser://127.0.0.1:{number}"
        self.actors, self.has_what, self.number = set(), {}, number
        # The one with the least memory is asked first.
        self.memory = SimpleNamespace(optimistic=number)


class Reported(Scheduler):
    """A scheduler of which nothing is started."""

    def __init__(self, workers):
        self.workers = {one.address: one for one in workers}
        self.running = set(workers[1:])
        self.tasks, self.handlers, self.stream_comms = {}, {}, {}
        self.asked, self.heard = [], []
        self.validate = False
        serve(self, Server.SCHEDULER, SimpleNamespace())

    def __del__(self): ...

    __repr__ = object.__repr__
    memory = SimpleNamespace(optimistic=0)

    def handle_task_erred(self, **report):
        self.heard.append(report)
        return "dask"

    def request_acquire_replicas(self, address, keys, *, stimulus_id):
        self.asked += [(self.workers[address].number, key) for key in keys]

    def task(self, key, *holders):
        made = self.tasks[key] = Task(key, holders)
        for holder in holders:
            holder.has_what[made] = None
        return made

    def fails(self, number, key, text="not for it"):
        address = f"safeser://127.0.0.1:{number}"
        report = {"key": key, "worker": address, "exception_text": text, "run_id": 1}
        return self.handle_task_erred(**report)


Known = with_rows(Reported, "distributed.scheduler:Scheduler.handle_task_erred")


@pytest.fixture
def made(monkeypatch):
    # Who may report on which task is another's to say.
    monkeypatch.setattr(Workers, "is_its_own", lambda *_: True)

    def make(many):
        workers = [Worker(number) for number in range(many)]
        scheduler = Known(workers)
        manager = ActiveMemoryManagerExtension(
            scheduler, policies=set(), measure="optimistic", register=False, start=False, interval=1
        )
        policy = dask_scheduler.RetireWorker(workers[0].address)
        manager.add_policy(policy)
        return scheduler, manager, policy, workers

    return make


def test_who_failed_is_not_asked_again_and_then_it_is_given_up(made, caplog):
    scheduler, manager, policy, workers = made(3)
    scheduler.task("a", workers[0])
    for turn in (1, 2):
        manager.run_once()
        assert scheduler.asked == [(number, "a") for number in range(1, turn + 1)]
        assert not policy.done()
        assert scheduler.fails(turn, "a") == "dask"
    manager.run_once()
    assert (policy.done(), policy.no_recipients) == (True, True)
    assert "a cannot be moved from safeser://127.0.0.1:0, which is to retire" in caplog.text
    assert len(scheduler.heard) == 2  # Dask hears of it as ever


def test_not_everybody_is_asked(made):
    scheduler, manager, policy, workers = made(ATTEMPTS + 5)
    scheduler.task("a", workers[0])
    for number in range(1, ATTEMPTS + 1):
        manager.run_once()
        scheduler.fails(number, "a")
    manager.run_once()
    assert policy.no_recipients
    assert len(scheduler.asked) == ATTEMPTS


def test_what_moves_moves_while_another_does_not(made):
    scheduler, manager, policy, workers = made(3)
    stays, moves = scheduler.task("stays", workers[0]), scheduler.task("moves", workers[0])
    manager.run_once()
    for number, key in scheduler.asked:
        if key == "stays":
            scheduler.fails(number, key)
    moves.who_has.add(workers[1])
    scheduler.asked.clear()
    stays.who_has.add(workers[2])
    assert policy.done()
    assert not policy.no_recipients


def test_a_value_that_only_takes_long_is_waited_for(made):
    scheduler, manager, policy, workers = made(2)
    scheduler.task("a", workers[0])
    for _ in range(10):
        manager.run_once()
    assert scheduler.asked == [(1, "a")] * 10
    assert not policy.done()


@pytest.fixture
def clock(monkeypatch):
    held = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(retirement, "monotonic", lambda: held.now)
    return held


def moves(task, workers):
    task.who_has = {workers[1]}
    del workers[0].has_what[task]


def test_who_takes_nothing_is_not_waited_for(made, clock, caplog):
    scheduler, manager, policy, workers = made(3)
    scheduler.task("a", workers[0])
    manager.run_once()
    clock.now += PATIENCE
    manager.run_once()
    assert scheduler.asked == [(1, "a")] * 2
    clock.now += 1
    manager.run_once()
    assert scheduler.asked[2:] == [(2, "a")]
    assert "to safeser://127.0.0.1:1: it takes no value, and reports no failure" in caplog.text
    clock.now += PATIENCE + 1
    manager.run_once()
    assert (policy.done(), policy.no_recipients) == (True, True)


def test_who_takes_one_value_after_the_other_is(made, clock):
    scheduler, manager, policy, workers = made(2)
    tasks = [scheduler.task(key, workers[0]) for key in "abc"]
    tasks[2].nbytes = 100_000_000
    manager.run_once()
    for task in tasks[:2]:
        clock.now += PATIENCE
        moves(task, workers)
        manager.run_once()
    clock.now += PATIENCE + 100
    manager.run_once()
    assert not policy._failed
    assert not policy.done()
    moves(tasks[2], workers)
    policy._give_up(clock.now)
    assert not policy._idle


def test_nobody_stops_what_a_retirement_needs(made):
    scheduler, _, policy, workers = made(2)
    amm = ActiveMemoryManagerExtension(
        scheduler, policies=set(), measure="optimistic", register=False, start=False, interval=1
    )
    scheduler.extensions, scheduler.periodic_callbacks = {"amm": amm}, {}
    handle = amm.amm_handler
    assert handle(method="running") is False
    assert handle(method="stop") is None  # that one is another's
    policy = dask_scheduler.RetireWorker(workers[0].address)
    amm.add_policy(policy)
    with pytest.raises(RuntimeError, match="retire"):
        handle(method="stop")
    handle(method="run_once")
    assert policy.done()
    assert handle(method="stop") is None


def test_only_who_was_asked_counts_and_only_while_it_goes_on(made):
    scheduler, manager, policy, workers = made(3)
    task = scheduler.task("a", workers[0])
    scheduler.fails(1, "a")  # nobody was asked yet
    manager.run_once()
    scheduler.fails(2, "a")  # another one was
    scheduler.fails(1, "other")
    task.state = "processing"
    scheduler.fails(1, "a")  # a task's own failure
    task.state = "memory"
    manager.run_once()
    assert scheduler.asked == [(1, "a"), (1, "a")]
    manager.policies.clear()
    scheduler.fails(1, "a")
    assert not policy._failed
    assert len(scheduler.heard) == 5


def test_another_schedulers_retirements_are_none_of_its_business(made):
    scheduler, manager, policy, workers = made(2)
    other, *_ = made(2)
    other.tasks["a"] = scheduler.task("a", workers[0])
    manager.run_once()
    other.fails(1, "a")
    assert not policy._failed
    scheduler.fails(1, "a")
    assert policy._failed


def test_what_a_worker_says_is_shown_short(made, caplog):
    scheduler, manager, _, workers = made(2)
    scheduler.task("a", workers[0])
    manager.run_once()
    scheduler.fails(1, "a", "x" * 10_000)
    assert len(caplog.records[-1].getMessage()) < 1000


def test_a_scheduler_that_is_not_registered_retires_as_ever(made, monkeypatch):
    scheduler, manager, policy, workers = made(ATTEMPTS + 5)
    monkeypatch.setattr(retirement, "served", lambda _: None)
    scheduler.task("a", workers[0])
    for _ in range(ATTEMPTS + 2):
        manager.run_once()
        scheduler.fails(1, "a")
    assert scheduler.asked == [(1, "a")] * (ATTEMPTS + 2)
    assert not policy.done()
