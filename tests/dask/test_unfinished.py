"""One budget for messages that have begun to arrive: who waits, who goes on, who is cut off."""

from __future__ import annotations

import asyncio
import threading

import pytest

from safeser.dask.unfinished import LEAST_RATE, Unfinished


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def budget(clock):
    """A budget of a hundred bytes whose waiters look for stalled senders at once."""
    return Unfinished(100, patience=0.05, clock=clock)


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_fits_does_not_wait(budget, run):
    async def main():
        with budget.arriving(pytest.fail) as one, budget.arriving(pytest.fail) as other:
            await one.take(60)
            await other.take(40)
            assert budget.held == 100
        assert budget.held == 0

    run(main())


def test_a_message_over_the_whole_budget_is_read_if_it_began_first(budget, run):
    async def main():
        with budget.arriving(pytest.fail) as one:
            await one.take(60)
            await one.take(1000)
            assert budget.held == 1060

    run(main())


def test_others_wait_until_it_is_decided_and_then_go_on_in_turn(budget, run):
    async def main():
        order = []

        async def other(name, size):
            with budget.arriving(pytest.fail) as arriving:
                await arriving.take(size)
                order.append(name)
                await turns()

        with budget.arriving(pytest.fail) as first:
            await first.take(100)
            first.end()
            tasks = [asyncio.create_task(other(name, 80)) for name in "ab"]
            await turns()
            assert order == []
        await asyncio.gather(*tasks)
        assert order == ["a", "b"]
        assert budget.held == 0

    run(main())


def test_an_idle_connection_is_not_the_first(budget, run):
    async def main():
        with budget.arriving(pytest.fail), budget.arriving(pytest.fail) as one:
            await one.take(1000)

    run(main())


def test_a_sender_that_stalls_loses_its_connection_while_others_wait(budget, clock, run):
    async def main():
        aborted = []
        stalled = budget.arriving(lambda: aborted.append("stalled"))
        busy = budget.arriving(lambda: aborted.append("busy"))
        with stalled, busy:
            await stalled.take(60)
            await busy.take(40)
            busy.note(10 * LEAST_RATE)
            await asyncio.sleep(0.02)
            assert aborted == []  # nothing waits
            with budget.arriving(lambda: aborted.append("waiting")) as waiting:
                task = asyncio.create_task(waiting.take(10))
                await turns()
                clock.now = 1.0
                while not aborted:
                    await asyncio.sleep(0.001)
                assert aborted == ["stalled"]
                stalled.__exit__(None, None, None)  # what closing its connection does
                await task

    run(main())


def test_a_message_that_waits_or_is_complete_does_not_stall(budget, clock, run):
    async def main():
        aborted = []
        with budget.arriving(lambda: aborted.append("complete")) as complete:
            await complete.take(100)
            complete.end()
            with budget.arriving(lambda: aborted.append("waiting")) as waiting:
                task = asyncio.create_task(waiting.take(10))
                await turns()
                clock.now = 1000.0
                await asyncio.sleep(0.05)
                assert aborted == []
                complete.__exit__(None, None, None)
                await task
                assert waiting.began == 1000.0  # it could not send before

    run(main())


def test_who_waits_in_another_event_loop_is_woken(budget, run):
    done = threading.Event()

    def elsewhere():
        async def main():
            with budget.arriving(pytest.fail) as arriving:
                await arriving.take(50)
                done.set()

        asyncio.run(main())

    async def main():
        with budget.arriving(pytest.fail) as one:
            await one.take(80)
            thread = threading.Thread(target=elsewhere)
            thread.start()
            while len(budget._arriving) < 2:
                await asyncio.sleep(0.001)
            assert not done.is_set()
        await asyncio.to_thread(thread.join, 30)
        assert done.is_set()

    run(main())


def test_a_waiter_whose_loop_is_closed_wakes_nobody(budget):
    async def begin():
        arriving = budget.arriving(pytest.fail)
        await arriving.take(200)
        arriving.waits = asyncio.Event()
        return arriving

    arriving = asyncio.run(begin())
    arriving.wake()
    arriving.abort()


def test_a_wait_that_is_cancelled_leaves_nothing(budget, run):
    async def main():
        with budget.arriving(pytest.fail) as one:
            await one.take(100)

            async def wait():
                with budget.arriving(pytest.fail) as arriving:
                    await arriving.take(1)

            task = asyncio.create_task(wait())
            await turns()
            task.cancel()
            await asyncio.wait([task])
            assert budget.held == 100
        assert not budget._arriving

    run(main())
