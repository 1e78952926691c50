"""A scheduler of Dask's own with workers of two groups: what it would give to which of them.

The same is asked of a scheduler as it comes: there, nothing keeps tasks apart.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.scheduler import ClientState

from safeser.dask.groups.placement import Placement, Places
from safeser.dask.groups.value_moves import keeping, rebalanced, replicated
from safeser.dask.sealed.node import SealedTask
from safeser.dask.servers import part_of, served
from safeser.errors import PolicyDenied
from safeser.policy import Policy
from tests.dask.registered import Cluster, Comm, address, on

POLICY = (Path(__file__).parent / "groups.yaml").read_text()

#: By their ports.
ANALYSTS, ENGINEERS = (1, 2), (3, 4)


@pytest.fixture(params=["stock", "guarded"])
def guarded(request) -> bool:
    return bool(request.param == "guarded")


def at(*ports: int) -> set[str]:
    return {address(port) for port in ports}


class Grouped(Cluster):
    """The cluster of registered.py, with what these tests ask of it."""

    async def add(self, *ports: int) -> None:
        for port in ports:
            peer = "worker-analysts" if port in ANALYSTS else "worker-engineers"
            await self.register(port, str(port), comm=Comm(self.link(str(port), peer)))

    @property
    def placement(self) -> Placement:
        found = part_of(self.scheduler, Placement)
        assert found is not None
        return found

    def node(self, key: str, author: str, *dependencies: str) -> Any:
        """Return a task as a scheduler has it that was sent a graph of *author*."""
        made = object.__new__(SealedTask)
        statement = SimpleNamespace(statement=SimpleNamespace(author=author))
        head = SimpleNamespace(key=key, dependencies=dependencies, flags=0)
        made._place(SimpleNamespace(signed=statement, heads=[head]), 0)
        return made

    def submit(
        self, key: str, author: str, *dependencies: str, workers: Any = None, loose: bool = False
    ) -> Any:
        """Take a graph of one task in, as far as its place is decided."""
        node = self.node(key, author, *dependencies)
        if self.guarded:
            self.placement.require_places({key: node})
        task = self.scheduler.new_task(key, node, "released")
        for each in dependencies:
            task.add_dependency(self.scheduler.tasks[each])
        said = {} if workers is None else {"workers": {key: workers}}
        if loose:
            said["allow_other_workers"] = {key: True}
        self.scheduler._apply_annotations(tasks=[task], annotations_by_type=said)
        return task

    def valid(self, task: Any) -> set[str] | None:
        """Return where *task* may run; None for everywhere."""
        found = self.scheduler.valid_workers(task)
        return None if found is None else {state.address for state in found}

    def change_policy(self, old: str, new: str) -> None:
        text = POLICY.replace(old, new).replace("revision: 1", "revision: 2")
        assert text.count(new) > POLICY.count(new)
        known = served(self.scheduler)
        assert known is not None
        known.channel.adopt(policy=Policy.parse(text))


def on_groups(doors: Any, what: Any, guarded: bool = True) -> Any:
    async def main(cluster: Cluster) -> Any:
        cluster.__class__ = Grouped
        return await what(cluster)

    return on(doors, guarded, main, policy=POLICY)


# --- tasks ---------------------------------------------------------------------------------------


def test_a_task_may_run_where_its_author_is_listed(doors, guarded):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        tasks = [c.submit(name, name) for name in ("alice", "carol", "erin")]
        found = list(map(c.valid, tasks))
        assert found == ([at(*ANALYSTS), at(*ENGINEERS), None] if guarded else [None] * 3)

    on_groups(doors, main, guarded)


def test_workers_come_and_go(doors):
    async def main(c: Grouped) -> None:
        await c.add(3)
        task = c.submit("x", "alice")
        # An empty set would be no restriction to Dask.
        assert task.worker_restrictions
        assert c.valid(task) == set()
        await c.add(1)
        assert c.valid(task) == at(1)
        await c.add(2)
        assert c.valid(task) == at(1, 2)
        await c.scheduler.remove_worker(address(1), stimulus_id="s")
        assert c.valid(task) == at(2)

    on_groups(doors, main)


def test_one_group_alone_is_left_as_dask_has_it(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS)
        task = c.submit("x", "alice", workers="w1", loose=True)
        assert task.worker_restrictions == at(1)
        assert type(task.worker_restrictions) is set
        assert task.loose_restrictions
        assert c.submit("y", "alice").worker_restrictions is None

    on_groups(doors, main)


def test_what_is_there_is_placed_when_another_group_comes(doors):
    async def main(c: Grouped) -> None:
        scheduler = c.scheduler
        await c.add(1)
        task = c.submit("x", "alice")
        queued = c.submit("y", "alice")
        queued.who_wants = {scheduler.clients.setdefault("c", ClientState("c"))}
        queued.state, queued.priority = "queued", (0,)
        scheduler.queued.add(queued)
        await c.add(3)
        assert c.valid(task) == at(1)
        # The next one of the queue goes to any worker.
        assert not scheduler.queued
        assert queued.processing_on.address == address(1)

    on_groups(doors, main)


def test_a_new_policy_places_what_is_there_at_the_next_graph(doors):
    async def main(c: Grouped) -> None:
        await c.add(1, 3)
        task = c.submit("x", "erin")
        assert c.valid(task) is None
        c.change_policy("erin: {groups: [analysts, engineers,", "erin: {groups: [engineers,")
        c.submit("y", "erin")
        assert c.valid(task) == at(3)
        assert not isinstance(c.submit("z", "alice").worker_restrictions, set)

    on_groups(doors, main)


def test_a_new_policy_places_what_is_there_whatever_looked_at_it_first(doors):
    async def main(c: Grouped) -> None:
        await c.add(1, 3)
        task = c.submit("x", "erin")
        other = c.submit("y", "alice")
        c.change_policy("erin: {groups: [analysts, engineers,", "erin: {groups: [engineers,")
        assert c.valid(other) == at(1)
        c.submit("z", "alice")
        assert c.valid(task) == at(3)

    on_groups(doors, main)


def test_a_new_policy_narrows_tasks_by_inputs_that_it_sets_apart(doors):
    async def main(c: Grouped) -> None:
        await c.add(1, 3)
        c.submit("input", "erin")
        task = c.submit("x", "alice", "input")
        assert c.valid(task) == at(1)
        c.change_policy("erin: {groups: [analysts, engineers,", "erin: {groups: [engineers,")
        c.submit("y", "carol")
        assert c.valid(task) == set()

    on_groups(doors, main)


@pytest.mark.parametrize("apart", [True, False])
def test_a_task_that_waits_runs_once_a_new_policy_has_a_worker_take_it(doors, apart):
    async def main(c: Grouped) -> None:
        await c.add(*((1, 3) if apart else (1,)))
        await c.scheduler.remove_worker(address(3), stimulus_id="s")
        task = c.submit("x", "carol")
        task.who_wants = {c.scheduler.clients.setdefault("c", ClientState("c"))}
        task.priority = (0,)
        c.scheduler.transitions({"x": "waiting"}, "s")
        assert task.state == "no-worker"
        c.change_policy("carol: {groups: [engineers,", "carol: {groups: [analysts, engineers,")
        c.submit("y", "carol")
        assert task.processing_on.address == address(1)

    on_groups(doors, main)


@pytest.mark.parametrize(
    ("workers", "loose", "found"),
    [
        (None, False, (1, 2)),
        ("w1", False, (1,)),
        (["w1", "w3"], False, (1,)),
        ("w3", False, ()),
        ("w3", True, (1, 2)),
        (["w3", "w2"], True, (2,)),
        ("127.0.0.1", False, (1, 2)),
        ("no-such-host", False, ()),
        ("no-such-host", True, (1, 2)),
    ],
)
def test_users_choose_among_the_workers_of_their_group(doors, workers, loose, found):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        task = c.submit("x", "alice", workers=workers, loose=loose)
        assert c.valid(task) == at(*found)
        decided = c.scheduler.decide_worker_non_rootish(task)
        assert (decided is None) if not found else decided.address in at(*found)

    on_groups(doors, main)


def test_a_shuffle_pins_and_frees_tasks_within_their_group(doors, guarded):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        plugin = c.scheduler.extensions["shuffle"]
        task = c.submit("x", "alice", workers=["w2", "w3"])
        for port, left in ((2, at(2)), (3, set())):
            plugin._set_restriction(task, address(port))
            assert c.valid(task) == (left if guarded else at(port))
            # It is sent to workers.
            kept = task.annotations["shuffle_original_restrictions"]
            assert (type(kept), kept) == (set, at(2, 3))
            plugin._unset_restriction(task)
            assert c.valid(task) == (at(2) if guarded else at(2, 3))

    on_groups(doors, main, guarded)


def test_a_shuffle_runs_on_the_workers_of_its_author(doors, guarded):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        c.submit("shuffle-barrier-1", "alice")
        spec = SimpleNamespace(
            id="1",
            output_partitions=range(8),
            pick_worker=lambda part, among: among[part % len(among)],
        )
        places = c.scheduler.extensions["shuffle"]._calculate_worker_for(spec)
        expected = at(*ANALYSTS) if guarded else at(*ANALYSTS, *ENGINEERS)
        assert set(places.values()) == expected

    on_groups(doors, main, guarded)


# --- refused graphs ------------------------------------------------------------------------------


def test_a_graph_that_no_worker_could_take_is_refused(doors):
    async def main(c: Grouped) -> None:
        await c.add(1)
        with pytest.raises(PolicyDenied, match="takes sealed tasks of 'kate'") as caught:
            c.submit("x", "kate")
        assert caught.value.rule == "worker-group.none"
        with pytest.raises(PolicyDenied, match="takes tasks that are not sealed"):
            c.placement.require_places({"y": SimpleNamespace(dependencies=())})
        c.placement.require_places({})

    on_groups(doors, main)


def test_inputs_decide_with_the_author(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        for name in ("alice", "carol", "erin"):
            c.submit(f"of-{name}", name)
        assert c.valid(c.submit("1", "erin", "of-alice")) == at(*ANALYSTS)
        assert c.valid(c.submit("2", "erin", "of-carol")) == at(*ENGINEERS)
        assert c.valid(c.submit("3", "alice", "of-erin")) == at(*ANALYSTS)
        for author, inputs in (("alice", ["of-carol"]), ("erin", ["of-alice", "of-carol"])):
            with pytest.raises(PolicyDenied, match="may have it") as caught:
                c.submit("4", author, *inputs)
            assert caught.value.rule == "worker-group.values"

    on_groups(doors, main)


def test_what_another_author_computes_already_is_not_refused(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        c.submit("input", "carol")
        task = c.submit("x", "carol", "input")
        graph = {"input": c.node("input", "alice"), "x": c.node("x", "alice", "input")}
        c.placement.require_places(graph)
        assert c.valid(task) == at(*ENGINEERS)
        with pytest.raises(PolicyDenied, match="may have it"):
            c.placement.require_places({"y": c.node("y", "alice", "x")})

    on_groups(doors, main)


def test_an_input_that_one_brought_counts_as_ones_own(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        data = c.held("data", 3)
        owners = {data: "carol"}
        c.placement.owner_of = owners.__getitem__
        with pytest.raises(PolicyDenied, match="value of 'carol'"):
            c.submit("x", "alice", "data")
        # What a worker's task brought, that worker may have.
        owners[data] = "worker-analysts"
        assert c.valid(c.submit("y", "alice", "data")) == at(*ANALYSTS)
        with pytest.raises(PolicyDenied, match="value of 'worker-analysts'"):
            c.submit("z", "carol", "data")

    on_groups(doors, main)


def test_what_belongs_to_no_group_may_be_anywhere(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        data = c.held("data", 3)
        for owner in ("kate", "scheduler", "nobody"):
            c.placement.owner_of = {data: owner}.__getitem__
            task = c.submit(f"after-{owner}", "alice", "data")
            assert c.valid(task) == at(*ANALYSTS)
            assert keeping(c.scheduler, c.placement.brought_by(owner), None) is None

    on_groups(doors, main)


def test_data_that_becomes_a_task_is_placed_like_a_new_one(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        task = c.scheduler.new_task("x", None, "released")
        node = c.node("x", "alice")
        c.placement.require_places({"x": node})
        task.run_spec = node
        c.scheduler._apply_annotations(tasks=[], annotations_by_type={})
        assert c.valid(task) == at(*ANALYSTS)

    on_groups(doors, main)


# --- values --------------------------------------------------------------------------------------


def test_what_moves_values_gives_them_to_those_who_may_have_them(doors, guarded):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        scheduler = c.scheduler
        task = c.held("x", 1)
        task.run_spec = c.node("x", "alice")
        if guarded:
            c.placement.require_places({"x": task.run_spec})
        manager = scheduler.extensions["amm"]
        manager.workers_memory = dict.fromkeys(scheduler.workers.values(), 0)
        asked = [None, {scheduler.workers[each] for each in at(3, 4)}]
        found = [manager._find_recipient(task, candidates, set()) for candidates in asked]
        if guarded:
            assert [each and each.address for each in found] == [address(2), None]
        else:
            assert found[1].address in at(3, 4)

    on_groups(doors, main, guarded)


def test_values_are_copied_to_those_who_may_have_them(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        for name in ("alice", "carol", "erin"):
            c.held(name, 1).run_spec = c.node(name, name)
        asked = []

        async def stock(**request: Any) -> Any:
            asked.append((sorted(request["keys"]), request["workers"]))
            return (
                {"status": "partial-fail", "keys": ["carol"]}
                if "carol" in request["keys"]
                else None
            )

        keys = ["alice", "carol", "erin", "none"]
        said = await replicated(c.scheduler, stock, keys=keys, n=2)
        assert said == {"status": "partial-fail", "keys": ["carol"]}
        assert {(*keys, *sorted(at or ())) for keys, at in asked} == {
            ("alice", *sorted(at(*ANALYSTS))),
            ("carol", *sorted(at(*ENGINEERS))),
            ("erin", "none"),
        }
        said = await replicated(c.scheduler, stock, keys=["alice"], workers=["w3"])
        assert said == {"status": "partial-fail", "keys": ["alice"]}

    on_groups(doors, main)


def test_values_are_balanced_within_each_group(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        asked = []

        async def stock(**request: Any) -> Any:
            asked.append(set(request["workers"]))
            failed = {"status": "partial-fail", "keys": ["x"]}
            return {"status": "OK"} if address(1) in request["workers"] else failed

        said = await rebalanced(c.scheduler, stock, keys=["x"])
        assert said == {"status": "partial-fail", "keys": ["x"]}
        assert asked == [at(*ANALYSTS), at(*ENGINEERS)]
        asked.clear()
        assert await rebalanced(c.scheduler, stock, workers=list(at(1))) == {"status": "OK"}
        assert asked == [at(1)]

    on_groups(doors, main)


def test_values_are_brought_to_those_who_may_have_them(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS)
        assert keeping(c.scheduler, "alice", None) is None
        await c.add(*ENGINEERS)
        assert set(keeping(c.scheduler, "alice", None)) == at(*ANALYSTS)
        assert keeping(c.scheduler, "alice", ["w1"]) == [address(1)]
        assert keeping(c.scheduler, "erin", ["w3"]) == ["w3"]
        with pytest.raises(PolicyDenied, match="'alice' names workers"):
            keeping(c.scheduler, "alice", ["w1", "w3"])

    on_groups(doors, main)


def test_a_worker_with_the_address_of_another_one_as_its_name_is_given_no_values(doors):
    async def main(c: Grouped) -> None:
        await c.add(1)
        link = c.link("3", "worker-engineers")
        await c.register(3, "3", comm=Comm(link), name=address(1))
        assert c.scheduler.coerce_address(address(1)) == address(1)
        assert keeping(c.scheduler, "alice", ["w1"]) == [address(1)]

    on_groups(doors, main)


def test_a_worker_named_by_an_address_keeps_no_other_worker_from_it(doors):
    async def main(c: Grouped) -> None:
        link = c.link("3", "worker-engineers")
        await c.register(3, "3", comm=Comm(link), name=address(1))
        await c.add(1)
        assert set(c.scheduler.workers) == at(1, 3)
        assert keeping(c.scheduler, "alice", None) == [address(1)]

    on_groups(doors, main)


def test_values_are_balanced_among_the_workers_that_are_still_there(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        asked = []

        async def stock(**request: Any) -> Any:
            asked.append(set(request["workers"]))
            await c.scheduler.remove_worker(address(3), stimulus_id="s")
            return {"status": "OK"}

        assert await rebalanced(c.scheduler, stock) == {"status": "OK"}
        assert asked == [at(*ANALYSTS), at(4)]

    on_groups(doors, main)


def test_one_group_alone_moves_values_as_dask_does(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS)
        c.held("x", 1).run_spec = c.node("x", "alice")

        async def stock(**request: Any) -> Any:
            return request

        asked = {"keys": ["x"], "workers": None}
        assert await rebalanced(c.scheduler, stock, **asked) == asked
        assert not c.placement.divides

    on_groups(doors, main)


def test_places_are_a_set_of_addresses(doors):
    async def main(c: Grouped) -> None:
        await c.add(*ANALYSTS, *ENGINEERS)
        places = c.submit("x", "alice").worker_restrictions
        assert isinstance(places, Places)
        assert places is c.submit("y", "alice").worker_restrictions
        assert places == at(*ANALYSTS)
        assert places & at(1, 3) == at(1)
        assert address(1) in places
        assert address(3) not in places
        assert len(places) == 2
        assert places.copy() == set()
        assert repr(places).startswith("<Places ['safeser://127.0.0.1:1'")

    on_groups(doors, main)
