"""What somebody who only looks leaves behind on a scheduler of Dask's own.

Each attack is made on a scheduler as it comes, too: where nothing is left there any more, its
mend here can go.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import versions

from safeser.dask import visits
from safeser.dask.visits import forget_names_of_packages, leave_nothing
from safeser.operations import Channel, Server, lookup
from tests.dask.visitors import VIEWER, Shared, Stream, Visited, on, shared


@pytest.fixture(params=["stock", "guarded"])
def guarded(request) -> bool:
    return bool(request.param == "guarded")


def test_keys_that_are_not_there_are_not_kept_as_warnings(guarded):
    async def wants(visited: Visited) -> list[str]:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            visited.hear("client-desires-keys", keys=["nowhere", "k"], client=VIEWER)
        assert not visited.scheduler.tasks
        return [str(each.message) for each in said]

    assert bool(on(guarded, wants)) is not guarded


def test_a_key_that_is_there_is_wanted_as_ever(guarded):
    async def wants(visited: Visited) -> bool:
        task = visited.task("k")
        visited.hear("client-desires-keys", keys=["k", "nowhere"], client=VIEWER)
        return visited.scheduler.clients[VIEWER] in task.who_wants

    assert on(guarded, wants)


# --- topics and semaphores ------------------------------------------------------------------------


def test_each_handler_has_a_name_that_dask_may_log():
    async def names(visited: Visited) -> list[str]:
        return [each.__name__ for each in visited.scheduler.handlers.values()]

    assert len(on(True, names)) == len(on(False, names))


def test_asking_for_a_topic_or_a_semaphore_makes_none(guarded):
    async def asks(visited: Visited) -> list[int]:
        scheduler = visited.scheduler
        topics, leases = scheduler._broker._topics, scheduler.extensions["semaphores"].leases
        before = len(topics)
        assert await visited.ask("events", topic="nothing") == ()
        assert await visited.ask("semaphore_value", name="none") == 0
        visited.hear("unsubscribe-topic", topic="nothing-either", client=VIEWER)
        return [len(topics) - before, len(leases)]

    assert on(guarded, asks) == ([0, 0] if guarded else [2, 1])


def test_what_there_is_is_seen(guarded):
    async def asks(visited: Visited) -> None:
        scheduler = visited.scheduler
        visited.hear("subscribe-topic", topic="t", client=VIEWER)
        scheduler.log_event("t", 1)
        assert [said for _, said in await visited.ask("events", topic="t")] == [1]
        assert "t" in await visited.ask("events")
        assert [m["op"] for m in scheduler.client_comms[VIEWER].sent] == ["event"]
        await visited.ask("semaphore_register", name="s", max_leases=2, lease_timeout=10)
        await visited.ask("semaphore_acquire", name="s", timeout=1, lease_id="l")
        assert await visited.ask("semaphore_value", name="s") == 1

    on(guarded, asks)


def test_leases_that_nobody_knows_are_told_of_in_one_line(guarded, caplog):
    async def refreshes(visited: Visited) -> None:
        await visited.ask("semaphore_register", name="x" * 500, max_leases=2, lease_timeout=None)
        await visited.ask("semaphore_acquire", name="x" * 500, timeout=1, lease_id=0)
        await visited.ask("semaphore_refresh_leases", name="x" * 500, lease_ids=range(20))
        assert await visited.ask("semaphore_value", name="x" * 500) == 20
        await visited.ask("semaphore_refresh_leases", name="none", lease_ids=[1])
        assert await visited.ask("semaphore_value", name="none") == (0 if guarded else 1)

    on(guarded, refreshes)
    assert (len(caplog.text) < 500) is guarded


def test_no_lease_ends_the_search_for_those_that_timed_out():
    """By a text in place of seconds, a lock whose holder is gone was nobody's any more."""

    async def leases(visited: Visited) -> None:
        for name, seconds in (("theirs", "30s"), ("lock", 1e-9)):
            given = {"name": name, "max_leases": 1, "lease_timeout": seconds}
            await visited.ask("semaphore_register", **given)
            await visited.ask("semaphore_acquire", name=name, timeout=1, lease_id=0)
        with pytest.raises(TypeError):
            visited.scheduler.extensions["semaphores"]._check_lease_timeout()
        assert await visited.ask("semaphore_value", name="lock") == 1

    on(True, leases)
    row = lookup(Server.SCHEDULER, Channel.RPC, "semaphore_register")
    fits = row.shape_of("lease_timeout")
    assert [fits(each) for each in ("30s", 30, 0.5, None)] == [False, True, True, True]


def test_one_principal_begins_few_topics(doors, monkeypatch):
    monkeypatch.setattr(visits, "_MAX_TOPICS", 3)

    def logs(s: Shared) -> None:
        def log(who: str, *topics: str) -> Any:
            comm = SimpleNamespace(link=s.links[who])
            topic: Any = topics[0] if len(topics) == 1 else topics
            return s.scheduler.handlers["log_event"](comm, topic=topic, msg=1)

        assert log("bob", "a") is None
        assert log("bob", "a", "b", "c") is None
        refused = log("bob", "a", "d")["exception"]
        assert (refused.rule, "d" in s.scheduler._broker._topics) == ("events.many-topics", False)
        assert "begun 3 topics" in str(refused)
        assert [said for _, said in s.scheduler.get_events("a")] == [1, 1]
        assert log("bob", "b") is None
        assert log("alice", "d") is None  # nobody else's count
        assert log("bob", "d") is None  # which is there now
        assert s.links["bob"].audit.rules == ["events.many-topics"]
        assert s.links["bob"].audit.events[0]["operation"] == "log_event"
        s.scheduler.handlers["log_event"](None, topic=["own", "e"], msg=1)

    shared(doors, logs)


def test_a_large_event_is_kept_under_one_topic(doors, monkeypatch):
    monkeypatch.setattr(visits, "_MAX_REPEATED", 1000)
    large = ["x" * 600, {"x" * 250: {"y" * 250: [0] * 100}}, b"x" * 600, [[0] * 600], object()]

    def logs(s: Shared) -> None:
        s.scheduler.stream_comms["w"] = Stream(s.links["alice"])
        comm = SimpleNamespace(link=s.links["bob"])
        log = s.scheduler.handlers["log_event"]
        for msg in large:
            assert log(comm, topic=("a", "b"), msg=msg)["exception"].rule == "events.repeated"
            s.scheduler.stream_handlers["log-event"](worker="w", topic=["a", "b"], msg=msg)
            assert log(comm, topic="a", msg=msg) is None
            assert log(comm, topic=("a",), msg=msg) is None
        assert log(comm, topic=("a", "b"), msg={"x": ("y" * 400, None, 1.5)}) is None
        assert [len(s.scheduler.get_events(topic)) for topic in "ab"] == [11, 1]
        assert s.links["bob"].audit.rules == ["events.repeated"] * 5
        assert s.links["alice"].audit.rules == ["events.repeated"] * 5
        s.scheduler.handlers["log_event"](None, topic=["a", "b"], msg="x" * 2000)

    shared(doors, logs)


class State:
    address = "w"


def test_copies_are_told_of_by_addresses(guarded):
    """The states of workers are no data: their event kept everybody from being told any."""

    async def copies(visited: Visited) -> Any:
        scheduler = visited.scheduler
        state = State()
        scheduler.running = {state}
        scheduler.log_event("all", {"action": "other", "workers": 5})
        await inspect.unwrap(type(scheduler).replicate)(scheduler, keys=[], n=1)
        told = [said["workers"] for _, said in await visited.ask("events", topic="all")]
        return told == [5, ["w"] if guarded else [state]]

    assert on(guarded, copies)


def test_no_event_is_too_deep_for_who_asks_for_all_of_them(doors):
    def nested(levels: int, kind: Any) -> Any:
        value: Any = "x"
        for _ in range(levels):
            value = kind(value)
        return value

    def logs(s: Shared) -> None:
        s.scheduler.stream_comms["w"] = Stream(s.links["alice"])
        link = s.links["bob"]
        comm, most = SimpleNamespace(link=link), link.policy.limits.max_depth - 8
        log = s.scheduler.handlers["log_event"]
        for kind in (lambda x: (x,), lambda x: {"k": x}, lambda x: [1, x]):
            assert log(comm, topic="a", msg=nested(most, kind)) is None
            deep = nested(most + 1, kind)
            assert log(comm, topic="a", msg=deep)["exception"].rule == "events.deep"
            s.scheduler.stream_handlers["log-event"](worker="w", topic="a", msg=deep)
        assert len(s.scheduler.get_events("a")) == 3
        assert link.audit.rules == s.links["alice"].audit.rules == ["events.deep"] * 3

    shared(doors, logs)


def test_nor_does_a_worker_on_its_stream(doors, monkeypatch):
    monkeypatch.setattr(visits, "_MAX_TOPICS", 3)

    def logs(s: Shared) -> None:
        s.scheduler.stream_comms["w"] = Stream(s.links["alice"])

        def log(*topics: str, worker: str = "w") -> None:
            log_event = s.scheduler.stream_handlers["log-event"]
            log_event(worker=worker, topic=topics, msg={"x": 1})

        log("a", "b")
        log("a", "c", "d")
        topics = s.scheduler._broker._topics
        assert ["b" in topics, "c" in topics] == [True, False]
        assert [said for _, said in s.scheduler.get_events("a")] == [{"x": 1, "worker": "w"}]
        assert s.links["alice"].audit.events[0]["operation"] == "log-event"
        log("a", "c")
        log("e", worker="gone")
        assert ["c" in topics, "e" in topics] == [True, True]

    shared(doors, logs)


def test_topics_are_forgotten_with_who_heard_of_them(guarded):
    async def leaves(visited: Visited) -> list[bool]:
        topics = visited.scheduler._broker._topics
        for topic in ("t", "u"):
            visited.hear("subscribe-topic", topic=topic, client=VIEWER)
        visited.scheduler.log_event("t", 1)
        visited.hear("close-client", client=VIEWER)
        # Of what was said there, there is still a record.
        return ["u" in topics, bool(topics["t"].subscribers)]

    assert on(guarded, leaves) == [not guarded, not guarded]


def test_nobody_hears_of_more_topics_than_anybody_needs(monkeypatch, caplog):
    monkeypatch.setattr(visits, "_MAX_TOPICS", 2)

    async def subscribes(visited: Visited) -> None:
        topics = visited.scheduler._broker._topics
        for topic in "abcb":
            visited.hear("subscribe-topic", topic=topic, client=VIEWER)
        assert {"a", "b"} <= topics.keys()
        assert "c" not in topics
        visited.hear("unsubscribe-topic", topic="a", client=VIEWER)
        visited.hear("subscribe-topic", topic="c", client=VIEWER)
        assert "a" not in topics
        assert "c" in topics

    on(True, subscribes)
    assert "no more" in caplog.text


# --- variables -----------------------------------------------------------------------------------


async def _told(visited: Visited, **more: Any) -> Any:
    task = visited.task("k")
    await visited.ask("variable_set", name="v", key="k")
    visited.scheduler.remove_client("variable-other")
    said = await visited.ask("variable_get", name="v", **more)
    assert {"type", "value", "token", "state"} == said.keys()
    return task, said["token"]


def test_a_reader_who_says_no_more_keeps_nothing(guarded):
    async def reads(visited: Visited) -> bool:
        await _told(visited)
        deleting = asyncio.ensure_future(visited.hear("variable_delete", name="v"))
        await asyncio.wait([deleting], timeout=0.2)
        done = deleting.done()
        deleting.cancel()
        assert ("k" not in visited.scheduler.tasks) is done
        return done

    assert on(guarded, reads) is guarded


def test_a_reader_keeps_the_key_from_when_it_is_told_until_it_lets_go():
    async def reads(visited: Visited) -> None:
        tasks = visited.scheduler.tasks
        _, token = await _told(visited, client=VIEWER)
        await visited.hear("variable_delete", name="v")
        assert "k" in tasks
        # What it let go of was another future of the key: its word crossed the answer.
        visited.hear("client-releases-keys", keys=["k"], client=VIEWER)
        assert "k" in tasks
        confirm = {"name": "v", "key": "k", "token": token, "client": VIEWER}
        visited.hear("variable-future-received-confirm", **confirm)
        visited.hear("variable-future-received-confirm", **confirm)
        assert "k" in tasks
        visited.hear("client-releases-keys", keys=["k"], client=VIEWER)
        assert "k" not in tasks

    on(True, reads)


def test_two_readings_of_one_client_are_two_words():
    async def reads(visited: Visited) -> None:
        _, token = await _told(visited, client=VIEWER)
        again = (await visited.ask("variable_get", name="v", client=VIEWER))["token"]
        await visited.hear("variable_delete", name="v")
        for said in (token, again):
            visited.hear("client-releases-keys", keys=["k"], client=VIEWER)
            assert "k" in visited.scheduler.tasks
            confirm = {"name": "v", "key": "k", "token": said, "client": VIEWER}
            visited.hear("variable-future-received-confirm", **confirm)
        visited.hear("client-releases-keys", keys=["k"], client=VIEWER)
        assert "k" not in visited.scheduler.tasks

    on(True, reads)


def test_a_reader_who_leaves_lets_go():
    async def reads(visited: Visited) -> None:
        await _told(visited, client=VIEWER)
        await visited.hear("variable_delete", name="v")
        visited.hear("close-client", client=VIEWER)
        assert "k" not in visited.scheduler.tasks

    on(True, reads)


def test_who_is_told_of_a_dataset_has_time_to_want_its_keys(guarded, monkeypatch):
    looks = []
    monkeypatch.setattr(visits, "monotonic", lambda: 100.0)

    async def reads(visited: Visited) -> bool:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda seconds, look: looks.append((seconds, look)))
        tasks, published = visited.scheduler.tasks, visited.scheduler.extensions["publish"]
        visited.task("k", "published-d")
        visited.task("j", "published-e")
        published.datasets |= {"d": {"data": b"", "keys": ("k",)}}
        published.datasets |= {"e": {"data": b"", "keys": ("j",)}}
        for _ in range(2):
            [told, nothing] = await visited.ask("publish_get", names=("d", "none"))
            assert told == published.datasets["d"]
            assert nothing is None
        # Somebody else replaces it before the reader has said anything.
        visited.hear("client-releases-keys", keys=["k"], client="published-d")
        kept = "k" in tasks
        if guarded:
            [(seconds, look)] = looks
            monkeypatch.setattr(visits, "monotonic", lambda: 100.0 + seconds)
            await visited.ask("publish_get", names=("e",))
            look()
            assert "k" not in tasks
            [_, (_, look)] = looks  # for what somebody was told of meanwhile
            monkeypatch.setattr(visits, "monotonic", lambda: 100.0 + 2 * seconds)
            visited.hear("client-releases-keys", keys=["j"], client="published-e")
            assert "j" in tasks
            look()
            assert "j" not in tasks
            assert len(looks) == 2
        return kept

    assert on(guarded, reads) is guarded


def test_a_dataset_without_keys_is_not_waited_for():
    async def reads(visited: Visited) -> None:
        visited.scheduler.extensions["publish"].datasets["d"] = {"data": b"", "keys": ()}
        await visited.ask("publish_get", names=("d", "none"))
        assert visits._TOLD not in visited.scheduler.clients

    on(True, reads)


def test_a_variable_may_hold_a_value_that_looks_like_a_future():
    async def reads(visited: Visited) -> None:
        await visited.ask("variable_set", name="v", data={"token": 1})
        said = await visited.ask("variable_get", name="v", client=VIEWER)
        assert said == {"type": "msgpack", "value": {"token": 1}}

    on(True, reads)


# --- keys that never come -------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["variable_set", "queue_put"])
def test_nobody_waits_for_ever_for_a_key(monkeypatch, op):
    monkeypatch.setattr(visits, "_LATE_SECONDS", 0.05)

    async def hands_on(visited: Visited) -> None:
        await visited.ask("queue_create", name="n")
        for timeout in (None, 0, "1 hour"):
            with pytest.raises(TimeoutError):
                await visited.ask(op, name="n", key="never", timeout=timeout)
        asyncio.get_running_loop().call_later(0.02, visited.task, "late")
        await visited.ask(op, name="n", key="late")
        await visited.ask(op, name="n", data=5)

    on(True, hands_on)


def test_names_of_packages_are_not_remembered_for_ever(monkeypatch):
    monkeypatch.setattr(versions, "_version_cached", versions._version_cached)
    forget_names_of_packages()
    bounded = versions._version_cached
    assert bounded.cache_parameters()["maxsize"] == visits._MAX_PACKAGES
    forget_names_of_packages()
    assert versions._version_cached is bounded
    assert versions.get_package_info(["msgpack", "no-such"])["no-such"] is None


def test_another_object_is_left_alone():
    other = SimpleNamespace()
    leave_nothing(other)
    assert not vars(other)


# --- samplers of memory ---------------------------------------------------------------------------

SAMPLER = {"measure": "process", "interval": 3600}


def sample(s: Visited, client: str, **fields: Any) -> Any:
    comm = s.scheduler.client_comms[client].comm
    return s.scheduler.handlers["memory_sampler_start"](comm, client=client, **SAMPLER, **fields)


def sampling(s: Visited) -> int:
    running = [name for name in s.scheduler.periodic_callbacks if name.startswith("MemorySampler")]
    assert len(running) == len(s.scheduler.extensions["memory_sampler"].samples)
    return len(running)


def test_samplers_of_one_principal_are_few_and_the_next_is_refused_by_name(doors):
    def samples(s: Shared) -> None:
        s.join("Client-again", s.links["bob"])
        keys = [sample(s, client) for client in ("Client-bob", "Client-again") * 4]
        for client in ("Client-bob", "Client-again"):
            refused = sample(s, client)["exception"]
            assert refused.rule == "sampler.many"
            assert "bob has 8 memory samplers" in str(refused)
            assert "with block" in refused.fix
        assert s.links["bob"].audit.rules == ["sampler.many"] * 2
        assert s.links["bob"].audit.events[0]["operation"] == "memory_sampler_start"
        assert sampling(s) == 8
        assert isinstance(sample(s, "Client-alice"), str)  # nobody else's count
        [[_, size]] = s.scheduler.handlers["memory_sampler_stop"](key=keys[0])
        assert size == 0
        assert isinstance(sample(s, "Client-bob"), str)

    shared(doors, samples)


def test_samplers_end_with_the_client_that_began_them(guarded):
    async def leaves(visited: Visited) -> list[int]:
        visited.join("Client-stays")
        for client in (VIEWER, VIEWER, "Client-stays"):
            comm = {"comm": None} if guarded else {}
            await visited.ask("memory_sampler_start", client=client, **comm, **SAMPLER)
        before = sampling(visited)
        visited.hear("close-client", client=VIEWER)
        return [before, sampling(visited)]

    # Dask looks again when the next sample is due.
    assert on(guarded, leaves) == ([3, 1] if guarded else [3, 3])


def test_a_client_that_is_not_there_begins_no_sampler(guarded):
    async def begins(visited: Visited) -> int:
        comm = {"comm": None} if guarded else {}
        await visited.ask("memory_sampler_start", client="Client-gone", **comm, **SAMPLER)
        return sampling(visited)

    assert on(guarded, begins) == 0


def test_of_a_long_sampler_the_latest_samples_are_kept(guarded, monkeypatch):
    monkeypatch.setattr(visits, "_MAX_SAMPLES", 3)

    async def samples(visited: Visited) -> Any:
        comm = {"comm": None} if guarded else {}
        key = await visited.ask("memory_sampler_start", client=VIEWER, **comm, **SAMPLER)
        take = visited.scheduler.periodic_callbacks[f"MemorySampler-{key}"].callback
        for _ in range(5):
            take()
        return await visited.ask("memory_sampler_stop", key=key)

    got = on(guarded, samples)
    assert type(got) is list
    assert len(got) == (3 if guarded else 6)
