"""One budget for messages that have begun to arrive: who waits, who goes on, who is cut off."""

from __future__ import annotations

import asyncio
import threading

import pytest

from safeser.dask.transport.unfinished import LEAST_RATE, Arriving, Unfinished


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
    """A budget of 400 bytes, of which one principal may hold 300."""
    return Unfinished(400, patience=0.05, clock=clock)


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_message_over_the_whole_budget_is_read_if_it_began_first(budget):
    with Arriving(budget, "p", pytest.fail) as one:
        await one.take(180)
        await one.take(1000)
        await one.take(1000)
        assert budget.held == 180  # the rest is beyond the budget, of this one message


async def test_others_wait_until_it_is_decided_and_then_go_on_in_turn(budget):
    order = []

    async def other(name, size):
        with Arriving(budget, "p", pytest.fail) as arriving:
            await arriving.take(size)
            order.append(name)
            await turns()

    with Arriving(budget, "p", pytest.fail) as first:
        await first.take(300)
        first.complete = True
        tasks = [asyncio.create_task(other(name, 240)) for name in "ab"]
        await turns()
        assert order == []
    await asyncio.gather(*tasks)
    assert order == ["a", "b"]
    assert budget.held == 0


async def test_a_sender_that_stalls_loses_its_connection_while_others_wait(budget, clock):
    aborted = []
    stalled = Arriving(budget, "p", lambda: aborted.append("stalled"))
    busy = Arriving(budget, "p", lambda: aborted.append("busy"))
    with stalled, busy:
        await stalled.take(180)
        await busy.take(120)
        busy.note(10 * LEAST_RATE)
        await asyncio.sleep(0.02)
        assert aborted == []  # nothing waits
        with Arriving(budget, "p", lambda: aborted.append("waiting")) as waiting:
            task = asyncio.create_task(waiting.take(30))
            await turns()
            clock.now = 1.0
            while not aborted:
                await asyncio.sleep(0.001)
            assert aborted == ["stalled"]
            stalled.__exit__(None, None, None)  # what closing its connection does
            await task


async def test_a_message_that_waits_or_is_complete_does_not_stall(budget, clock):
    aborted = []
    with Arriving(budget, "p", lambda: aborted.append("complete")) as complete:
        await complete.take(300)
        complete.complete = True
        with Arriving(budget, "p", lambda: aborted.append("waiting")) as waiting:
            task = asyncio.create_task(waiting.take(30))
            await turns()
            clock.now = 1000.0
            await asyncio.sleep(0.05)
            assert aborted == []
            complete.__exit__(None, None, None)
            await task
            clock.now += 0.04
            assert not waiting.stalls(clock.now, 0.05)  # it could not send before


def test_who_waits_in_another_event_loop_is_woken(budget, run):
    done = threading.Event()

    def elsewhere():
        async def main():
            with Arriving(budget, "p", pytest.fail) as arriving:
                await arriving.take(150)
                done.set()

        asyncio.run(main())

    async def main():
        with Arriving(budget, "p", pytest.fail) as one:
            await one.take(240)
            thread = threading.Thread(target=elsewhere)
            thread.start()
            while len(budget._arriving) < 2:
                await asyncio.sleep(0.001)
            assert not done.is_set()
        await asyncio.to_thread(thread.join, 30)
        assert done.is_set()

    run(main())


def test_who_waits_in_a_loop_that_is_closed_ends_nobody(budget):
    async def begin():
        arriving = Arriving(budget, "p", pytest.fail)
        await arriving.take(600)
        arriving.waits = asyncio.Event()
        return arriving

    arriving = asyncio.run(begin())
    arriving.wake()
    arriving.abort()


async def test_a_wait_that_is_cancelled_leaves_nothing(budget):
    with Arriving(budget, "p", pytest.fail) as one:
        await one.take(300)

        async def wait():
            with Arriving(budget, "p", pytest.fail) as arriving:
                await arriving.take(1)

        task = asyncio.create_task(wait())
        await turns()
        task.cancel()
        await asyncio.wait([task])
        assert budget.held == 300
    assert not budget._arriving


async def test_one_principal_leaves_room_to_the_others(budget):
    with Arriving(budget, "p", pytest.fail) as first, Arriving(budget, "p", pytest.fail) as own:
        await first.take(300)
        task = asyncio.create_task(own.take(1))
        await turns()
        assert not task.done()
        with Arriving(budget, "q", pytest.fail) as other:
            await other.take(75)
        first.__exit__(None, None, None)
        await task


async def test_what_a_sender_sent_before_buys_it_no_silence(budget, clock):
    aborted = []
    with Arriving(budget, "p", lambda: aborted.append("stalled")) as stalled:
        await stalled.take(300)
        stalled.note(1000 * LEAST_RATE)
        with Arriving(budget, "p", pytest.fail) as waiting:
            task = asyncio.create_task(waiting.take(30))
            await turns()
            for clock.now in (1.0, 2.0):
                assert not aborted
                seen = budget._looked
                while budget._looked == seen:
                    await asyncio.sleep(0.001)
            while not aborted:
                await asyncio.sleep(0.001)
            stalled.__exit__(None, None, None)
            await task


async def test_only_those_are_woken_for_whom_there_is_room(budget, monkeypatch):
    one, last = Arriving(budget, "p", pytest.fail), Arriving(budget, "p", pytest.fail)
    many = [Arriving(budget, "p", pytest.fail) for _ in range(20)]
    await one.take(150)
    await last.take(150)
    tasks = [asyncio.create_task(each.take(100)) for each in many]
    await turns()
    woken = []
    for each in many:
        monkeypatch.setattr(each, "wake", lambda each=each: woken.append(each))
    last.__exit__(None, None, None)
    assert woken == many[:2]
    for each in (*tasks, one):
        each.cancel() if each is not one else one.__exit__(None, None, None)
    await asyncio.wait(tasks)
