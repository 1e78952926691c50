"""Who reads which value of a scheduler, without sockets: a scheduler of Dask's own with users."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm import Comm as DaskComm
from distributed.scheduler import ClientState

from safeser.dask.messages.author_statements import stated
from safeser.dask.scheduler.conflicts import Origin
from safeser.dask.scheduler.key_conflicts import Guard
from safeser.dask.scheduler.request_authority import require_authority
from safeser.dask.servers import served
from safeser.errors import PolicyDenied
from tests.dask.registered import Cluster, Comm, address, on

TEXT = (Path(__file__).parents[1] / "values" / "values.yaml").read_text()

WARNS = TEXT.replace(
    "  - name: users-submit\n",
    "  - name: users-submit\n    key_conflicts: {definition: warn}\n",
)


class Users(Cluster):
    async def add(self, *ports: int) -> None:
        for port in ports:
            await self.register(port, str(port))

    @property
    def guard(self) -> Guard:
        known = served(self.scheduler)
        assert known is not None
        return known.part(self.scheduler, Guard)

    def own(self, key: str, owner: str) -> Any:
        """Return a task of *owner* that is there."""
        task = self.held(key, 3)
        self.guard._owners.note(task, Origin(owner))
        return task

    def told(self, port: int) -> list[Any]:
        """Return what waits to be sent to the worker at *port*."""
        return list(self.scheduler.stream_comms[address(port)].buffer)

    def user(self, name: str) -> Comm:
        return Comm(self.link(name, name))

    def refused(self, name: str, op: str, **request: Any) -> bool:
        """Tell whether the request of *name* is refused because of whose a value is."""
        known = served(self.scheduler)
        assert known is not None
        try:
            require_authority(known, self.scheduler, self.user(name), {"op": op, **request})
        except PolicyDenied as error:
            return error.rule == "values.author"
        return False


def on_users(doors: Any, what: Any, policy: str = TEXT) -> None:
    async def main(cluster: Cluster) -> Any:
        cluster.__class__ = Users
        await cluster.add(3)
        return await what(cluster)

    on(doors, True, main, policy=policy)


READERS = {"carol": True, "vera": True, "worker": True, "alice": False}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (True, {"status": "error", "keys": ["k"]}),
        (False, {"status": "OK", "data": {"k": "a secret"}}),
    ],
)
def test_a_key_that_changes_hands_while_it_is_gathered_is_not_handed_over(
    doors, monkeypatch, change, told
):
    """A worker that delays its answer lets its accomplice release the key meanwhile."""

    async def main(c):
        c.own("k", "alice")
        asked = []

        async def fetch(who_has, **_):
            asked.append(sorted(who_has))
            if len(asked) == 1:
                if change:
                    c.scheduler.remove_all_replicas(c.scheduler.tasks.pop("k"))
                    c.own("k", "carol")
                return {}, ["k"], [], []
            return {"k": "a secret"}, [], [], []

        monkeypatch.setattr("distributed.scheduler.gather_from_workers", fetch)
        assert await c.ask("gather", c.link("alice", "alice"), keys=["k"]) == told
        assert asked == [["k"], ["k"]]
        assert c.refused("alice", "gather", keys=["k"]) is change

    on_users(doors, main)


@pytest.mark.parametrize("policy", [TEXT, WARNS], ids=["refuses", "warns"])
def test_the_scheduler_says_whose_values_it_gathers(doors, monkeypatch, policy):
    """A worker may still have a value of the task that had the key before."""

    async def main(c):
        c.own("k", "alice")
        asked = []

        async def fetch(who_has, **_):
            asked.append(stated({"op": "get_data", "keys": sorted(who_has)}))
            return {"k": 1}, [], [], []

        monkeypatch.setattr("distributed.scheduler.gather_from_workers", fetch)
        await c.ask("gather", c.link("alice", "alice"), keys=["k"])
        # Where keys can be taken, whose a value is is open.
        assert asked[0].get("author") == ("alice" if policy is TEXT else None)

    on_users(doors, main, policy)


@pytest.mark.parametrize("says", ["alice", "carol", None])
def test_a_copy_of_a_former_value_is_none_of_what_the_key_names(doors, says):
    async def main(c):
        await c.add(4)
        task = c.own("k", "carol")
        [holder] = task.who_has
        said = {} if says is None else {"author": says}
        hear = c.scheduler.stream_handlers["add-keys"]
        hear(worker=address(4), keys=["k", "gone"], stimulus_id="s", **said)
        kept = says != "alice"
        assert {state.address for state in task.who_has} == (
            {holder.address, address(4)} if kept else {holder.address}
        )
        dropped = [each["keys"] for each in c.told(4) if each["op"] == "remove-replicas"]
        assert dropped == ([["gone"]] if kept else [["k"], ["gone"]])

    on_users(doors, main)


@pytest.mark.parametrize("change", [None, "alice", "carol"])
def test_what_was_copied_of_a_key_that_changed_hands_is_no_copy(doors, change):
    async def main(c):
        await c.add(4)
        c.own("k", "alice")

        async def copy(who_has):
            if change is not None:
                c.scheduler.remove_all_replicas(c.scheduler.tasks.pop("k"))
                c.own("k", change)
            return {"status": "OK"}

        c.scheduler.rpc = lambda addr: SimpleNamespace(gather=copy)
        assert not await c.scheduler.gather_on_worker(address(4), {"k": [address(3)]})
        have = {state.address for state in c.scheduler.tasks["k"].who_has}
        assert have == ({address(3)} if change == "carol" else {address(4), address(3)})
        dropped = [each["keys"] for each in c.told(4) if each["op"] == "remove-replicas"]
        assert dropped == ([["k"]] if change == "carol" else [])

    on_users(doors, main)


@pytest.mark.parametrize(("name", "reads"), READERS.items())
def test_values_are_gathered_by_who_may_read_them(doors, name, reads):
    async def main(c: Users) -> None:
        # That a client wants it publishes it to nobody.
        c.own("x", "carol").who_wants = {ClientState("Client-carol")}
        assert c.refused(name, "gather", keys=["gone", "x"]) is not reads
        assert not c.refused(name, "gather", keys=["gone"])

    on_users(doors, main)


@pytest.mark.parametrize("relay", ["proxy", "broadcast"])
def test_a_relayed_call_of_an_actor_is_one_of_who_asks(doors, relay):
    async def main(c: Users) -> None:
        c.own("x", "carol")
        for operation in ("actor_execute", "actor_attribute"):
            asked = {"op": operation, "actor": "x"}
            assert c.refused("alice", relay, msg=asked)
            assert not c.refused("carol", relay, msg=asked)
        assert not c.refused("alice", relay, msg={"op": "identity"})
        assert not c.refused("alice", relay, msg=None)

    on_users(doors, main)


# --- datasets ------------------------------------------------------------------------------------


async def publish(c: Users, name: str, key: str) -> None:
    put = c.scheduler.handlers["publish_put"]
    said = {"client": f"Client-{name}", "override": False}
    flushed = getattr(c.scheduler.extensions["publish"], "_flush_received", None)
    if "names" in put.__code__.co_names or flushed is not None:
        said |= {"names": (key,), "keys": ((key,),), "data": (b"",), "uid": b"1"}
        flushed[b"1"].set()
    await put(c.user(name), **said)


@pytest.mark.parametrize("name", ["alice", "carol"])
def test_who_may_read_a_value_publishes_it_for_all(doors, name):
    async def main(c: Users) -> None:
        assert issubclass(Comm, DaskComm)
        task = c.own("x", "carol")
        client = "published-x"
        c.scheduler.clients[client] = ClientState(client)
        if name == "carol":
            await publish(c, name, "x")
        else:
            # The key is looked at when the dataset takes it: it may not have been there before.
            with pytest.raises(PolicyDenied, match=r"values\.author"):
                await publish(c, name, "x")
        assert bool(task.who_wants) is (name == "carol")
        assert c.refused("alice", "gather", keys=["x"]) is (name == "alice")

    on_users(doors, main)


def test_copies_are_sent_with_their_authors(doors):
    async def main(c: Users) -> None:
        c.own("x", "carol")
        sent: list[Any] = []
        c.scheduler.stream_comms["w"] = type(
            "Stream", (), {"send": lambda _, one: sent.append(one)}
        )()
        c.scheduler.request_acquire_replicas("w", ["x"], stimulus_id="s")
        del c.scheduler.stream_comms["w"]
        [message] = sent
        assert message["authors"] == {"x": "carol"}
        assert message["op"] == "acquire-replicas"

    on_users(doors, main)
