"""The guard of keys of one scheduler, without sockets."""

from __future__ import annotations

import asyncio
import operator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from dask._task_spec import Alias, Task, TaskRef
from distributed.protocol.serialize import Serialized

from safeser.dask.scheduler import key_conflicts, scattered
from safeser.errors import PolicyDenied
from tests.dask.patched import Peer
from tests.dask.submissions import POLICY, Setup, Stream, Way, add, operations


@pytest.fixture
def setup(doors):
    return Setup(doors)


def test_who_is_first_owns_a_key_until_its_task_is_forgotten(setup):
    assert setup.submit("alice", add("k", 1, 2)) == []
    assert setup.submit("alice", add("k", 1, 2)) == []
    assert setup.submit("carol", {"k": Alias("k")}) == []  # no definition
    for who in ("alice", "carol"):
        assert operations(setup.submit(who, add("k", 1, 3))) == ["task-erred"]
    assert setup.rules == ["key.definition"] * 2
    del setup.fake.tasks["k"]
    assert setup.submit("carol", add("k", 1, 3)) == []
    assert setup.fake.events == ["refused"] * 2


def test_nothing_of_a_refused_graph_is_created_and_what_was_fine_stays(setup):
    setup.submit("alice", add("k", 1, 2))
    setup.submit("carol", add("mine", 1, 2))
    graph = {**add("k", 9, 9), **add("mine", 1, 2), **add("new", TaskRef("k"), 1)}
    assert {one["key"] for one in setup.submit("carol", graph)} == {"k", "new"}
    assert setup.fake.tasks.keys() == {"k", "mine"}
    # What was refused is not there for what depends on it later, either.
    (told,) = setup.submit("carol", add("d", TaskRef("k"), 1))
    assert (told["op"], told["key"]) == ("task-erred", "d")
    assert setup.submit("carol", add("d", 1, 1)) == []


def test_what_uses_a_refused_key_is_refused_as_long_as_the_other_task_is_there(setup):
    setup.submit("alice", add("k", 1, 2))
    setup.submit("carol", add("k", 9, 9))
    assert operations(setup.submit("carol", add("next", TaskRef("k"), 1))) == ["task-erred"]
    assert operations(setup.submit("carol", {}, "k")) == ["task-erred"]
    assert setup.submit("alice", add("next", TaskRef("k"), 1)) == []
    setup.submit("carol", add("free", TaskRef("elsewhere"), 1))


def test_the_other_words(setup):
    setup.submit("alice", add("k", 1, 2))
    (told,) = setup.submit("bob", add("k", 1, 3))
    assert (told["op"], told["topic"]) == ("event", "warn")
    (told,) = setup.submit("bob", add("k", 1, 2))
    assert told["op"] == "task-erred"
    (told,) = setup.submit("carol", add("k", 1, 2))
    assert "with the same definition" in told["event"][1]["message"]
    assert setup.rules == ["key.definition", "key.principal", "key.principal"]


def test_workers_are_nobody_else_where_the_definition_is_the_same(setup):
    setup.submit("alice", add("k", 1, 2))
    assert setup.submit("worker", add("k", 1, 2)) == []
    setup.submit("worker", add("w", 1, 2))
    assert setup.submit("bob", add("w", 1, 2)) == []
    assert operations(setup.submit("worker", add("k", 1, 3))) == ["task-erred"]


def test_a_graph_without_dependents_of_the_key_counts_as_well(setup):
    # Dask adds dependencies to tasks that are there, whether the keys asked for need them or not.
    setup.submit("alice", add("k", 1, 2))
    told = setup.submit("carol", {**add("k", TaskRef("x"), 2), **add("x", 1, 1)}, "x")
    assert [one["key"] for one in told] == ["x"]
    assert setup.fake.tasks.keys() == {"k"}


@pytest.mark.parametrize("actors", [True, ["k"]])
def test_a_task_becomes_no_actor(setup, actors):
    setup.submit("alice", add("k", 1, 2))
    assert operations(setup.submit("carol", {}, "k", actors=actors)) == ["task-erred"]
    setup.fake.tasks["k"].actor = True
    assert setup.submit("alice", add("k", 1, 2), actors=actors) == []


def test_many_conflicts_are_told_once_and_recorded_each(setup):
    graph = {name: Task(name, abs, 1) for name in range(50)}
    setup.submit("alice", graph)
    assert operations(setup.submit("carol", graph)) == ["event"]
    assert len(setup.rules) == 50


def test_a_key_is_shown_in_part_and_without_what_is_not_printed(setup):
    key = "evil\n\x1b[31m" + "x" * 500
    setup.submit("alice", add(key, 1, 2))
    (told,) = setup.submit("carol", add(key, 1, 3))
    text = str(told["exception"].data)
    assert "x" * 61 not in text
    assert "\x1b" not in text


def test_whoever_has_left_is_told_nothing(setup):
    setup.submit("alice", add("k", 1, 2))
    setup.fake.client_comms["Client-carol"].closed = True
    assert setup.submit("carol", add("k", 1, 3)) == []
    setup.fake.client_comms.clear()
    assert setup.submit("carol", add("k", 1, 3)) == []  # nobody knows who that was
    assert setup.ids.claim("Client-carol", "carol")
    assert setup.submit("carol", add("k", 1, 3)) == []
    assert setup.rules == ["key.definition"] * 2


def test_what_a_plugin_submits_is_the_schedulers_own(setup):
    beside = {"ordered": {}, "global_annotations": None, "annotations_by_type": {}}
    create = partial(setup.fake._create_taskstate_from_graph, **beside)
    setup.fake.join("plugin")
    create(dsk=add("p", 1, 2), keys={"p"}, client="Client-plugin")
    create(dsk=add("p", 1, 2), keys={"p"}, client="Client-plugin")
    with pytest.raises(key_conflicts._Refused):
        create(dsk=add("p", 1, 3), keys={"p"}, client="Client-plugin")
    assert operations(setup.submit("carol", add("p", 1, 2))) == ["event"]


def scatter(setup: Setup, who: str, *keys: Any) -> Any:
    comm = Peer(Way(who))
    return asyncio.run(
        setup.fake.handlers["scatter"](comm, data=dict.fromkeys(keys), client=setup.names[who])
    )


def announce(setup: Setup, who: str, key: Any, *addresses: str) -> Any:
    comm = Peer(Way(who))
    return setup.fake.handlers["update_data"](
        comm, who_has={key: addresses}, nbytes={}, client=setup.names[who]
    )


def test_data_has_an_owner_too(setup):
    assert scatter(setup, "alice", "d") == "noted"
    assert scatter(setup, "alice", "d") == "noted"
    refused = scatter(setup, "carol", "d", "e")
    assert isinstance(refused["exception"], PolicyDenied)
    assert "e" not in setup.fake.tasks
    assert operations(setup.submit("carol", add("d", 1, 2))) == ["task-erred"]
    assert operations(setup.submit("alice", add("d", 1, 2))) == ["task-erred"]
    setup.submit("alice", add("k", 1, 2))
    assert scatter(setup, "alice", "k")["exception"].rule == "key.definition"


def test_what_was_brought_to_a_worker_under_a_taken_key_is_dropped_there(setup):
    setup.fake.stream_comms = {"w1": Stream("worker"), "w2": Stream("worker")}
    assert announce(setup, "carol", "d", "w1") == "noted"
    setup.fake.tasks["d"].who_has = [SimpleNamespace(address="w1")]
    refused = announce(setup, "alice", "d", "w1", "w2", "gone")
    assert refused["exception"].rule == "key.definition"
    assert setup.fake.freed == [("w2", ["d"])]


#: Workers would take data from alice and carol, and run what alice signed.
BRINGS_SEALED = (
    POLICY.partition("  - name: bring-with-code")[0].replace("carol: {}}", "carol: {}, other: {}}")
    + """  - name: bring
    sender: [alice, carol]
    recipient: worker
    submission: sealed
    operations: {grant: [update_data, actors]}
  - name: hands-on
    sender: scheduler
    recipient: worker
    authors: [alice]
    submission: sealed
    operations: {grant: [compute-task]}
"""
)


@pytest.mark.parametrize(
    ("policy", "owner", "who", "freed"),
    [
        # The worker takes it, as it takes her tasks, and would answer with it for the task.
        (BRINGS_SEALED, "bob", "alice", ["w1"]),
        (BRINGS_SEALED, "bob", "carol", []),
        # A worker that computes the task of that name would drop it: nobody would once more.
        (POLICY, "alice", "carol", []),
    ],
)
def test_only_what_workers_take_is_dropped_under_a_taken_key(doors, policy, owner, who, freed):
    setup = Setup(doors, policy)
    setup.fake.stream_comms = {"w1": Stream("worker"), "w2": SimpleNamespace()}
    setup.submit(owner, add("k", 1, 2))
    assert announce(setup, who, "k", "w1", "w2")["exception"].rule == "key.definition"
    assert setup.fake.freed == [(worker, ["k"]) for worker in freed]


class Slow:
    """Data that has reached some worker, and not yet all."""

    def __init__(self, setup: Setup, monkeypatch: Any) -> None:
        self.setup = setup
        self.arrives = asyncio.Event()
        self.fails = False
        monkeypatch.setattr(setup.fake, "on_its_way", self.arriving)

    async def arriving(self) -> None:
        await self.arrives.wait()
        if self.fails:
            raise OSError("one of the workers")

    def begin(self, who: str = "alice") -> asyncio.Task[Any]:
        comm = Peer(Way(who))
        scatter = self.setup.fake.handlers["scatter"]
        client = self.setup.names[who]
        return asyncio.ensure_future(scatter(comm, data={"d": 1}, client=client))

    async def submit(self, who: str, dsk: dict[Any, Any]) -> list[str]:
        client = self.setup.names[who]
        stream = self.setup.fake.client_comms[client]
        update = self.setup.fake.stream_handlers["update-graph"]
        await update(client=client, keys=set(dsk), dsk=dsk)
        told = operations(stream.sent)
        stream.sent.clear()
        return told


def test_no_task_gets_the_key_of_data_that_is_on_its_way(setup, monkeypatch):
    async def races() -> None:
        slow = Slow(setup, monkeypatch)
        first = slow.begin()
        await asyncio.sleep(0)
        assert await slow.submit("carol", add("d", 1, 2)) == ["task-erred"]
        assert await slow.submit("carol", add("other", 1, 2)) == []
        again, other = slow.begin(), slow.begin("carol")
        refused = await other
        assert refused["exception"].rule == "key.definition"
        slow.arrives.set()
        assert [await first, await again] == ["noted", "noted"]
        # What uses the refused key would get the data of that name.
        uses = {"e": Task("e", operator.add, TaskRef("d"), 1)}
        assert await slow.submit("carol", uses) == ["task-erred"]
        assert set(setup.fake.tasks) == {"d", "other"}

    asyncio.run(races())
    assert setup.fake.freed == []


@pytest.mark.parametrize("known", [False, True])
def test_data_that_did_not_all_arrive_is_dropped_where_nobody_knows_of_it(
    setup, monkeypatch, known
):
    monkeypatch.setattr(scattered, "_SETTLING", 0.01)
    setup.fake.stream_comms = {"w1": None, "w2": None}

    async def fails() -> None:
        slow = Slow(setup, monkeypatch)
        slow.arrives.set()
        if known:
            assert await slow.begin() == "noted"
            setup.fake.tasks["d"].who_has = [SimpleNamespace(address="w1")]
        slow.fails = True
        with pytest.raises(OSError, match="workers"):
            await slow.begin()
        # Its key is free only after that.
        assert await slow.submit("carol", add("d", 1, 2)) == ["task-erred"]
        while setup.guard._coming:
            await asyncio.sleep(0.01)
        assert known or await slow.submit("bob", add("d", 1, 2)) == []

    asyncio.run(fails())
    assert setup.fake.freed == [("w1", ["d"]), ("w2", ["d"])][known:]


def test_a_task_that_came_in_between_keeps_what_it_has(setup, monkeypatch):
    # Where policy says that a conflict is a warning.
    monkeypatch.setattr(scattered, "_SETTLING", 0.01)
    setup.fake.stream_comms = {"w1": None}

    async def fails() -> None:
        slow = Slow(setup, monkeypatch)
        slow.fails = True
        first = slow.begin()
        await asyncio.sleep(0)
        assert await slow.submit("bob", add("d", 1, 2)) == ["event"]
        slow.arrives.set()
        with pytest.raises(OSError, match="workers"):
            await first
        while setup.guard._coming:
            await asyncio.sleep(0.01)

    asyncio.run(fails())
    assert setup.fake.freed == []


def test_data_that_nobody_sent_is_the_schedulers(setup):
    assert setup.fake.update_data(who_has={"s": []}, nbytes={}) == "noted"
    nobody = setup.fake.handlers["update_data"](Peer(), who_has={"s": []}, nbytes={})
    assert nobody == "noted"
    assert scatter(setup, "alice", "s")["exception"].rule == "key.definition"


def test_a_failure_of_a_graph_is_told_to_its_own_client(setup):
    failure = {"op": "task-erred", "key": "k"}
    setup.fake.report(failure, client="Client-carol")
    assert setup.fake.client_comms["Client-carol"].sent == [failure]
    assert setup.fake.reported == []
    setup.fake.report(failure)
    setup.fake.report({"op": "key-in-memory", "key": "k"}, client="Client-carol")
    assert len(setup.fake.reported) == 2


def test_what_was_refused_is_forgotten_with_the_client_that_it_was_refused_to(setup):
    setup.submit("alice", add("k", 1, 2))
    for turn in range(5):
        setup.names["carol"] = f"Client-carol-{turn}"
        setup.fake.clients[f"Client-carol-{turn}"] = setup.fake.clients["Client-carol"]
        setup.fake.client_comms[f"Client-carol-{turn}"] = setup.fake.client_comms["Client-carol"]
        assert operations(setup.submit("carol", add("k", 1, 3))) == ["task-erred"]
        del setup.fake.clients[f"Client-carol-{turn}"]
    assert setup.guard._refused.keys() == {"Client-carol-4"}


def test_bypass_a_value_of_data_whose_key_is_somebody_elses_by_now(setup):
    def scatter(who: str) -> Any:
        request = {"data": {"d": 1}, "client": setup.names[who]}
        handler = setup.fake.handlers["scatter"]
        return asyncio.run(handler(Peer(Way(who)), **request))

    tasks = setup.fake.tasks
    scatter("alice")
    setup.submit("alice", {**add("k", TaskRef("d"), 1), **add("l", TaskRef("k"), 1)})
    del tasks["d"]  # released; what was computed of it stays
    tasks["k"].has_lost_dependencies = True
    assert scatter("carol") == "noted"
    (told,) = setup.submit("carol", add("k", TaskRef("d"), 1))
    assert (told["op"], setup.rules[-1]) == ("task-erred", "key.definition")
    # Where it is a part of another task, as well.
    fused = Task.fuse(*add("k", TaskRef("d"), 1).values(), *add("l", TaskRef("k"), 1).values())
    assert operations(setup.submit("carol", {"l": fused}, "l")) == ["task-erred"]
    assert setup.submit("alice", add("k", TaskRef("d"), 1)) == []  # what she has is her own
    assert setup.submit("alice", {"l": fused}, "l") == []


def test_bypass_data_that_a_client_tells_of_on_its_stream(setup):
    tell = setup.fake.stream_handlers["update-data"]
    setup.submit("alice", add("k", 1, 2))
    tell(who_has={"k": ["w"], "new": ["w"]}, nbytes={}, client=setup.names["carol"])
    assert setup.fake.tasks.keys() == {"k"}
    assert setup.rules == ["key.definition"]
    tell(who_has={"new": ["w"]}, nbytes={}, client=setup.names["carol"])
    assert setup.guard._owners.of(setup.fake.tasks["new"]) == "carol"
    tell(who_has={"more": ["w"]}, nbytes={}, client="Client-gone")
    assert "more" not in setup.fake.tasks


#: Whoever is on this machine may share keys with others' definitions, everybody else may not.
BY_HOST = POLICY.replace(
    """  - name: bob
    sender: bob
""",
    """  - name: bob-from-elsewhere
    sender: bob
    recipient: scheduler
    same_host: false
    submission: sealed
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    operations: {grant: [update-graph]}
  - name: bob
    sender: bob
""",
)


@pytest.mark.parametrize("same_host", [True, False])
def test_conflicts_are_decided_by_the_hop_on_which_the_graph_came(doors, same_host):
    setup = Setup(doors, BY_HOST)
    setup.fake.join("bob", same_host=same_host)
    setup.submit("alice", add("k", 1, 2))
    told = operations(setup.submit("bob", add("k", 1, 3)))
    assert told == (["event"] if same_host else ["task-erred"])


class Reduced:
    """Counts how often its reducer is called."""

    calls = 0

    def __reduce__(self):
        Reduced.calls += 1
        return Reduced, ()


def sent(*frames):
    return Serialized({"serializer": "pickle"}, list(frames))


@pytest.mark.parametrize(
    ("principal", "second", "calls"),
    [
        ("alice", sent(b"one graph"), 0),
        ("alice", sent(b"another"), 2),
        ("alice", sent(b"one ", b"graph"), 2),
        ("alice", sent(bytes(2 << 20)), 2),
        ("alice", None, 2),
        ("bob", sent(b"one graph"), 2),
    ],
    ids=["same bytes", "other bytes", "other frames", "large", "no bytes", "another principal"],
)
def test_the_same_bytes_of_one_principal_are_not_compared(
    setup, monkeypatch, principal, second, calls
):
    monkeypatch.setattr(Reduced, "calls", 0)
    setup.submit("alice", add("k", Reduced()), expr_ser=sent(b"one graph"))
    setup.submit(principal, add("k", Reduced()), expr_ser=second)
    assert Reduced.calls == calls


def test_a_key_that_is_another_task_by_now_is_compared(setup):
    setup.submit("alice", add("k", 1), expr_ser=sent(b"one graph"))
    del setup.fake.tasks["k"]
    setup.submit("alice", add("k", 2), expr_ser=sent(b"another"))
    (told,) = setup.submit("alice", add("k", 1), expr_ser=sent(b"one graph"))
    assert told["op"] == "task-erred"
