"""Sealed submissions between real processes: an engineer's day, and a stolen key of the scheduler.

The one rule: whether something ran is read from files, and whether it was refused from the log of
the worker that refused it.
"""

from __future__ import annotations

import itertools
import os
import queue
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cloudpickle
import msgpack
import pytest
from dask._task_spec import Task, TaskRef

from safeser.channel import Channel
from safeser.dask.sealed.call import Sent
from safeser.dask.sealed.graph import parse, write_out
from safeser.dask.sealed.node import nodes
from safeser.dask.sealed.statement import LIFETIME
from safeser.dask.wire.codec import PayloadRow
from safeser.identity import Identity, Roster
from safeser.policy import Policy
from safeser.values import Limits
from tests.conftest import DASK, Cluster, until
from tests.dask.live.rig import Log, Silent
from tests.dask.live.wires import Eager, Host
from tests.dask.sealed.graphs import Graph
from tests.dask.sealed.watched import Watched

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
HEADER = {"serializer": "sealed"}

MODULE = """
import os
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: int

class Unlucky(Exception):
    pass

tries = []

class Counted:
    def __init__(self, path): self.path = path
    def __radd__(self, other): return other
    def __reduce__(self):
        note(self.path, "pickled")
        return rebuilt, (self.path,)

def rebuilt(path):
    note(path, "unpickled")
    return Counted(path)

def note(path, what):
    with open(path, "a") as file:
        file.write(f"{what} {os.getpid()}\\n")

def double(x): return 2 * x
def total(point): return point.x + point.y
def fail(): raise Unlucky("of the user's")

def flaky():
    tries.append(1)
    if len(tries) < 2:
        raise Unlucky("again")
    return "at last"

def in_place(a, b):
    a += 1
    return a - b
"""


class Sealing(Cluster):
    """A cluster whose workers and clients can import a module that its scheduler cannot."""

    def __init__(self, path):
        policy = path / "policy.yaml"
        policy.write_text((HERE / "sealed.yaml").read_text())
        super().__init__(path, str(policy))
        self.modules = path / "modules"
        self.modules.mkdir()
        (self.modules / "only_on_workers.py").write_text(MODULE)
        self.watched = Watched(path / "watched")

    def environment(self, principal, **more):
        if principal == "scheduler":
            own = self.watched.environment
        else:
            own = {"PYTHONPATH": str(self.modules)}
        made = super().environment(principal, **own, **more)
        if principal != "scheduler":
            inherited = os.environ.get("PYTHONPATH")
            made["PYTHONPATH"] = ":".join(filter(None, [str(self.modules), inherited]))
        return made


class Impostor:
    """Who has the scheduler's keys, and says to the worker that registers what it likes."""

    def __init__(self, cluster, policy):
        channel = Channel(
            identity=Identity.load(cluster.keys / "scheduler.key"),
            policy=Policy.load(policy),
            audit=Silent(),
            roster=Roster.load(cluster.keys / "roster"),
        )
        self.heard = queue.Queue()
        self.wires = queue.Queue()
        self.host = Host(self.answer, channel=channel)
        self.wire = None
        scratch = str(cluster.path / f"scratch-of-{Path(policy).stem}")
        cluster.start(
            f"victim-of-{Path(policy).stem}",
            *(DASK, "worker", self.host.address, "--no-nanny", "--nthreads", "1"),
            *("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"),
            *("--local-directory", scratch),
            environment=cluster.environment("worker", DASK_SAFESER__POLICY=policy),
        )

    def answer(self, wire):
        wire.socket.settimeout(None)  # a worker without tasks says nothing on its stream
        while True:
            message = wire.read()
            if not isinstance(message, dict):
                for each in message:
                    self.heard.put(each)
                continue
            plugins = {"worker-plugins": {}} if message["op"] == "register-worker" else {}
            if message.get("reply", True) is not False or plugins:
                told = {"status": "OK", "time": time.time(), "heartbeat-interval": 5}
                wire.send({**told, **plugins})
            if plugins:
                self.wires.put(wire)

    def say(self, *elements):
        if self.wire is None:
            self.wire = self.wires.get(timeout=60)
        self.wire.send(list(elements))

    def outcome(self, key):
        """Return what the worker says of the task *key*: the operation that names it."""
        while True:
            each = self.heard.get(timeout=60)
            if each.get("key") == key and each["op"] in ("task-erred", "task-finished"):
                return each["op"]

    def close(self):
        self.host.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Sealing(tmp_path_factory.mktemp("sealed"))
    try:
        impostors = {
            "sealed": Impostor(made, made.policy),
            "code": Impostor(made, "demo"),
        }
        made.impostors = impostors
        made.begin(1, nannies=2)
        yield made
        for each in impostors.values():
            each.close()
    finally:
        made.stop()


@pytest.fixture(scope="module")
def day(cluster):
    ended = cluster.run("alice", HERE / "everyday.py", cluster.address, timeout=180)
    assert ended.code == 0, f"{ended.out}\n{ended.err}\n{cluster.logs()}"
    return ended.answer


DAY = {
    "submit": 3,
    "lambda": 42,
    "map": [0, 2, 4, 6, 8],
    "future": 4,
    "futures in containers": 7,
    "futures in nested containers": 3,
    "method": 8,
    "coroutine": 4,
    "module of the user's": 8,
    "class of the user's": 3,
    "error": ["ZeroDivisionError", "division by zero"],
    "error of a dependency": ["ZeroDivisionError", "division by zero"],
    "retries": "at last",
    "priority": 5,
    "no resources": "pending",
    "workers": 6,
    "equal arguments": 3.0,
    "scattered": 1,
    "array": 3200.0,
    "persist": 1.0,
    "rechunk among peers": 79800,
    "rechunk of unknown sizes": 78030,
    "bag": 285,
    "delayed": 4,
    "annotations": 3,
    "grouped": {"a": 90, "b": 100},
    "merged among peers": 1900,
    "shuffled": 190,
    "legacy graph": [4],
    "many": 124750,
    "run": [1, 1],
    "run again": [1, 1],
    "run a coroutine": [2, 2],
    "run on nannies": [2, 2],
    "a worker's plugin": ["by a plugin"] * 2,
    "a nanny's plugin": ["by a nanny's plugin"] * 2,
    "an uploaded file": 15,
    "an error recreated": "division by zero",
    "a dataset": 21,
    "an actor's method": 7,
    "an actor's attribute": 5,
    "an actor of a collection": 7,
}


@pytest.mark.parametrize("step", DAY)
def test_an_engineer_s_day_is_as_ever(day, step):
    assert day[step] == DAY[step]


def test_an_error_of_the_user_s_own_says_what_it_was(day):
    assert "of the user's" in day["error of the user's"][1]


def test_how_often_an_argument_is_pickled(cluster, day):
    """Never on the scheduler; a worker unpickles it once for each task."""
    scheduler, client = str(cluster.scheduler), day["pid"]
    for name, lines in day["counted"].items():
        assert scheduler not in {pid for _, pid in lines}, name
        counts = Counter((what, pid == client) for what, pid in lines)
        assert counts["unpickled", False] == (5 if name == "map" else 1), name
        assert counts["pickled", False] == 0, name


def test_the_scheduler_unpickled_and_imported_nothing(cluster, day):
    assert day
    assert cluster.watched.unpickled() == set()
    assert not [name for name in cluster.watched.imported() if "only_on_workers" in name]
    assert "only_on_workers" not in cluster.log("scheduler")


def test_no_honest_task_was_refused(cluster, day):
    assert day
    assert not [each for each in Log(cluster.audit).refusals() if each["rule"][:6] == "sealed"]


# -- a stolen key of the scheduler ----------------------------------------------------------------


class Thief:
    """All that a thief of the scheduler's key has, beside what alice signed and it was sent."""

    def __init__(self, cluster, markers):
        self.impostor = cluster.impostors["sealed"]
        self.markers = markers
        self.scheduler = Identity.load(cluster.keys / "scheduler.key")
        self.alice = Identity.load(cluster.keys / "alice.key")
        self.bob = Identity.load(cluster.keys / "bob.key")
        self.log = Log(cluster.audit)

    def task(self, name, identity=None, *, more=None, **options):
        """Return a sealed task that makes the marker *name*."""
        tasks = {name: Task(name, Path.touch, self.markers / name), **(more or {})}
        audience = options.get("audience", self.scheduler.public)
        header, frames = write_out(Graph(tasks), identity or self.alice, audience, Limits())
        return nodes(parse({**header, "sizes": tuple(header["sizes"])}, frames, Limits()))[name]

    def restated(self, node, identity, **changed):
        call = node.call
        return replace(call, signed=replace(call.signed.statement, **changed).signed_by(identity))

    def row(self, call):
        first, *parts = Sent().frames(call)
        *told, _ = msgpack.unpackb(first, strict_map_key=False)
        return PayloadRow(HEADER, (msgpack.packb([*told, True], use_bin_type=True), *parts))


def element(key, spec, **changed):
    who_has = changed.pop("who_has", {})
    return {
        "op": "compute-task",
        "key": key,
        "run_id": 1,
        "run_spec": spec,
        "who_has": who_has,
        "nbytes": dict.fromkeys(who_has, 1),
        "priority": [0],
        "stimulus_id": "s",
        "resource_restrictions": {},
        "actor": False,
        "annotations": {},
        "span_id": None,
        **changed,
    }


@pytest.fixture(scope="module")
def thief(cluster, tmp_path_factory):
    return Thief(cluster, tmp_path_factory.mktemp("markers"))


def test_the_impostor_s_worker_runs_what_alice_signed(thief):
    """The control: all that is changed below is what each attack is about."""
    node = thief.task("honest")
    thief.impostor.say(element("honest", Eager(thief.row(node.call))))
    assert thief.impostor.outcome("honest") == "task-finished"
    assert (thief.markers / "honest").exists()


def unsealed(thief, name):
    data = cloudpickle.dumps(Task(name, Path.touch, thief.markers / name))
    return Eager(PayloadRow({"serializer": "cloudpickle", "writeable": []}, (data,)))


def test_under_code_the_same_frames_run(cluster, thief):
    impostor = cluster.impostors["code"]
    impostor.say(element("under-code", unsealed(thief, "under-code")))
    assert impostor.outcome("under-code") == "task-finished"
    assert (thief.markers / "under-code").exists()


def signed_by_the_scheduler(thief, name):
    return thief.row(thief.task(name, thief.scheduler).call), "author.relayed"


def signed_in_alice_s_name(thief, name):
    node = thief.task(name)
    call = thief.restated(node, thief.scheduler, signer=thief.scheduler.verifying)
    return thief.row(call), "sealed.author"


def altered_tree(thief, name):
    call = thief.task(name).call
    tree = msgpack.packb([2, name, False, [1, 0], [str(thief.markers / name)], []])
    return thief.row(replace(call, leaf=call.leaf._replace(tree=tree))), "sealed.inclusion"


def expired(thief, name):
    issued = int(time.time()) - LIFETIME - 10
    call = thief.restated(thief.task(name), thief.alice, issued=issued, expires=issued + LIFETIME)
    return thief.row(call), "sealed.expired"


#: One of each kind; test_verification.py has every forgery, without sockets.
FORGED = [signed_by_the_scheduler, signed_in_alice_s_name, altered_tree, expired]


def does_not_run(thief, name, rule, elements):
    """Say *elements*, and check that the worker refuses them, records it and goes on."""
    thief.log.new()
    thief.impostor.say(*elements)
    after = f"after-{name}"
    thief.impostor.say(element(after, Eager(thief.row(thief.task(after).call))))
    assert thief.impostor.outcome(after) == "task-finished"
    assert not (thief.markers / name).exists()
    record = thief.log.wait(lambda each: each["rule"] == rule and each["sender"] == "scheduler")
    assert record is not None


@pytest.mark.parametrize("attack", FORGED)
def test_no_forged_task_runs(thief, attack):
    name = attack.__name__
    row, rule = attack(thief, name)
    does_not_run(thief, name, rule, [element(name, Eager(row))])


def test_no_task_runs_under_another_key_or_with_other_inputs(thief):
    node = thief.task("moved")
    does_not_run(
        thief, "moved", "sealed.moved", [element("elsewhere", Eager(thief.row(node.call)))]
    )
    marker = thief.markers / "inputs"
    node = thief.task("w", more={"inputs": Task("inputs", Path.touch, marker, TaskRef("mode"))})
    other = nodes(node.graph)["inputs"]
    told = element("inputs", Eager(thief.row(other.call)))
    does_not_run(thief, "inputs", "sealed.moved", [told])


def test_no_unsealed_task_runs(thief):
    does_not_run(
        thief, "unsealed", "sealed.required", [element("unsealed", unsealed(thief, "unsealed"))]
    )


def test_a_renewal_that_was_forged_counts_nothing_and_ends_nothing(thief):
    """The worker has a task of the graph, which runs as before."""
    node = thief.task("renewed", more={"blocked": Task("blocked", time.sleep, 0)})
    signed = node.call.signed
    issued = int(time.time()) + 10
    anew = replace(signed.statement, issued=issued, expires=issued + LIFETIME)
    own = replace(anew, signer=thief.scheduler.verifying)
    for statement, rule in (
        (own.signed_by(thief.scheduler), "sealed.author"),
        (anew.signed_by(thief.scheduler), "sealed.signature"),
        (anew.signed_by(thief.bob), "sealed.signature"),
    ):
        thief.log.new()
        thief.impostor.say({"op": "statement-renewed", "statement": statement.packed})
        record = thief.log.wait(lambda each, rule=rule: each["rule"] == rule)
        assert record["operation"] == "statement-renewed"
    thief.impostor.say(
        {"op": "statement-renewed", "statement": anew.signed_by(thief.alice).packed},
        element("renewed", Eager(thief.row(node.call))),
    )
    assert thief.impostor.outcome("renewed") == "task-finished"
    assert (thief.markers / "renewed").exists()


def test_a_retired_author_s_tasks_do_not_run(cluster, thief):
    """The last test: alice is retired for good, and the worker reads the roster meanwhile."""
    path = cluster.keys / "roster"
    lines = path.read_text().splitlines()
    gone = [line.replace(" active ", " retired ") if " alice " in line else line for line in lines]
    assert gone != lines
    path.write_text("\n".join(gone) + "\n")
    thief.log.new()
    names = (f"retired-{number}" for number in itertools.count())

    def is_refused():
        name = next(names)
        thief.impostor.say(element(name, Eager(thief.row(thief.task(name).call))))
        refused = thief.impostor.outcome(name) == "task-erred"
        assert refused != (thief.markers / name).exists()
        return refused

    until("alice's task is refused", is_refused)
    assert thief.log.wait(lambda each: each["rule"] == "sealed.author")
