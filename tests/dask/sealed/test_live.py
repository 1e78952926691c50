"""Sealed submissions between real processes: an engineer's day, and a stolen key of the scheduler.

The one rule: whether something ran is read from files, and whether it was refused from the log of
the process that refused it. Every forgery is a row of ``test_verification.py``, without sockets.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import time
from collections import Counter
from pathlib import Path

import cloudpickle
import msgpack
import pytest
from dask._task_spec import Task

from safeser.channel import Channel
from safeser.dask.sealed.call import Sent
from safeser.dask.sealed.graph import parse, write_out
from safeser.dask.sealed.node import nodes
from safeser.dask.wire.codec import PayloadRow
from safeser.identity import Identity, Roster
from safeser.policy import Policy
from safeser.values import Limits
from tests.conftest import DASK, Cluster, until
from tests.dask.live.rig import Log, Silent
from tests.dask.live.wires import Eager, Host
from tests.dask.sealed.conftest import POLICY
from tests.dask.sealed.graphs import Graph
from tests.dask.sealed.test_verification import element
from tests.dask.sealed.watched import Watched

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent

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


#: Workers submit as well, and sign for those that run their tasks.
SUBMITTING = """
  - name: workers-submit
    sender: worker
    recipient: scheduler
    submission: sealed
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data, numpy, pandas]}
    operations: {grant: [basic, cluster, diagnose]}
  - name: workers-report
    sender: nanny
"""
_BEFORE, _NANNY, _AFTER = POLICY.replace(
    "\n  - name: workers-report\n    sender: [worker, nanny]\n", SUBMITTING
).partition("    sender: nanny\n")
LISTED = f"{_BEFORE}{_NANNY}{_AFTER.replace('cluster,', 'nanny-reports,', 1)}".replace(
    "authors: [group:engineers]", "authors: [group:engineers, worker]", 1
)


class Sealing(Cluster):
    """A cluster whose workers and clients can import a module that its scheduler cannot.

    Its scheduler lies about tasks of some keys.
    """

    def __init__(self, path):
        policy = path / "policy.yaml"
        policy.write_text(LISTED)
        super().__init__(path, str(policy))
        self.modules = path / "modules"
        self.modules.mkdir()
        (self.modules / "only_on_workers.py").write_text(MODULE)
        self.watched = Watched(path / "watched")

    def environment(self, principal, **more):
        made = super().environment(principal, **more)
        if principal == "scheduler":
            made |= self.watched.environment
            preloads = json.loads(made["DASK_DISTRIBUTED__SCHEDULER__PRELOAD"])
            preloads.append(str(HERE / "lying.py"))
            made["DASK_DISTRIBUTED__SCHEDULER__PRELOAD"] = json.dumps(preloads)
        else:
            inherited = os.environ.get("PYTHONPATH")
            made["PYTHONPATH"] = ":".join(filter(None, [str(self.modules), inherited]))
        return made


class Impostor:
    """Who has the scheduler's keys, and says to the worker that registers what it likes."""

    def __init__(self, cluster):
        channel = Channel(
            identity=Identity.load(cluster.keys / "scheduler.key"),
            policy=Policy.load(cluster.policy),
            audit=Silent(),
            roster=Roster.load(cluster.keys / "roster"),
        )
        self.heard = queue.Queue()
        self.wires = queue.Queue()
        self.host = Host(self.answer, channel=channel)
        self.wire = None
        cluster.start(
            "victim",
            *(DASK, "worker", self.host.address, "--no-nanny", "--nthreads", "1"),
            *("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"),
            *("--local-directory", str(cluster.path / "scratch-of-victim")),
            environment=cluster.environment("worker"),
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Sealing(tmp_path_factory.mktemp("sealed"))
    try:
        made.impostor = Impostor(made)
        made.begin(1, nannies=2)
        yield made
        made.impostor.host.close()
    finally:
        made.stop()


def ran(cluster, program, *words):
    """Return what *program* answers, and what was refused meanwhile for what was signed."""
    log = Log(cluster.audit)
    log.refusals()
    ended = cluster.run("alice", HERE / program, cluster.address, *words, timeout=180)
    assert ended.code == 0, f"{ended.out}\n{ended.err}\n{cluster.logs()}"
    refused = log.refusals()
    return ended.answer, [each for each in refused if each["rule"][:6] in ("sealed", "author")]


@pytest.fixture(scope="module")
def day(cluster):
    return ran(cluster, "everyday.py")


DAY = {
    "futures in nested containers": 3,
    "method": 8,
    "coroutine": 4,
    "module of the user's": 8,
    "class of the user's": 3,
    "error of a dependency": ["ZeroDivisionError", "division by zero"],
    "retries": "at last",
    "no resources": "pending",
    "equal arguments": 3.0,
    "a function with a cache": 34,
    "an own object scattered": 81,
    "scattered": 1,
    "array": 3200.0,
    "rechunk among peers": 79800,
    "rechunk of unknown sizes": 78030,
    "annotations": 3,
    "merged among peers": 1900,
    "legacy graph": [4],
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


def test_an_engineer_s_day_is_as_ever(cluster, day):
    """Nothing of it is refused, and the scheduler unpickles and imports nothing."""
    answers, refused = day
    assert {step: answers[step] for step in DAY} == DAY
    assert "of the user's" in answers["error of the user's"][1]
    assert refused == []
    assert cluster.watched.unpickled() == set()
    assert not [name for name in cluster.watched.imported() if "only_on_workers" in name]
    assert "only_on_workers" not in cluster.log("scheduler")


def test_how_often_an_argument_is_pickled(cluster, day):
    """Never on the scheduler; a worker unpickles it once for each task."""
    answers, _ = day
    for name, lines in answers["counted"].items():
        assert str(cluster.scheduler) not in {pid for _, pid in lines}, name
        counts = Counter((what, pid == answers["pid"]) for what, pid in lines)
        assert counts["unpickled", False] == (5 if name == "map" else 1), name
        assert counts["pickled", False] == 0, name


def test_what_a_task_submits_is_signed_by_its_worker(cluster):
    answers, refused = ran(cluster, "inside.py")
    assert answers == {"gathered": 35, "submitted": 14, "computed": 45, "keyed": 2}
    assert refused == []


def test_no_other_task_runs_in_a_client_that_recreates_an_error(cluster):
    answer, refused = ran(cluster, "replayed.py", str(cluster.path / "ran"))
    moved, required = ["PolicyDenied", "sealed.moved"], ["PolicyDenied", "sealed.required"]
    assert answer["lies"] == {
        "error of another task": moved,
        "another task": moved,
        "another cause": moved,
        "another cause of a chain": moved,
        "an earlier task of the key": moved,
        "data for a task": required,
        "data that leads to another": required,
    }
    assert len(answer["ran in"]) == 2  # the workers'
    assert answer["pid"] not in map(int, answer["ran in"])
    told = [(each["sender"], each["recipient"], each["rule"]) for each in refused]
    assert told == [("scheduler", "alice", rule) for _, rule in answer["lies"].values()]
    # However far below it happened, an error is recreated.
    assert len(answer["truth"]) == 7
    assert {came[0] for came in answer["truth"].values()} == {"ZeroDivisionError"}


# -- a stolen key of the scheduler ----------------------------------------------------------------


class Thief:
    """All that a thief of the scheduler's key has, beside what alice signed and it was sent."""

    def __init__(self, cluster, markers):
        self.impostor = cluster.impostor
        self.markers = markers
        self.scheduler = Identity.load(cluster.keys / "scheduler.key")
        self.alice = Identity.load(cluster.keys / "alice.key")
        self.log = Log(cluster.audit)

    def sealed(self, name, identity=None):
        """Return a sealed task that makes the marker *name*, as a scheduler sends it."""
        tasks = {name: Task(name, Path.touch, self.markers / name)}
        author = identity or self.alice
        header, frames = write_out(Graph(tasks), author, self.scheduler.public, Limits())
        graph = parse({**header, "sizes": tuple(header["sizes"])}, frames, Limits())
        first, *parts = Sent().frames(nodes(graph)[name].call)
        *told, _ = msgpack.unpackb(first, strict_map_key=False)
        packed = msgpack.packb([*told, True], use_bin_type=True)
        return Eager(PayloadRow({"serializer": "sealed"}, (packed, *parts)))

    def unsealed(self, name):
        data = cloudpickle.dumps(Task(name, Path.touch, self.markers / name))
        return Eager(PayloadRow({"serializer": "cloudpickle", "writeable": []}, (data,)))

    def outcome(self, name, spec):
        """Hand *spec* out as the task *name*, and return what the worker says of it."""
        self.impostor.say(element(name, run_spec=spec, span_id=None))
        return self.impostor.outcome(name)


@pytest.fixture(scope="module")
def thief(cluster, tmp_path_factory):
    return Thief(cluster, tmp_path_factory.mktemp("markers"))


def test_the_impostor_s_worker_runs_what_alice_signed(thief):
    """The control: all that is changed below is what each attack is about."""
    assert thief.outcome("honest", thief.sealed("honest")) == "task-finished"
    assert (thief.markers / "honest").exists()


@pytest.mark.parametrize("name", ["author.relayed", "sealed.required"])
def test_no_task_of_a_thief_s_runs(thief, name):
    """The worker refuses it, records that, and goes on."""
    thief.log.new()
    own = thief.sealed(name, thief.scheduler) if name[0] == "a" else thief.unsealed(name)
    thief.impostor.say(element(name, run_spec=own, span_id=None))
    after = f"after-{name}"
    assert thief.outcome(after, thief.sealed(after)) == "task-finished"
    assert not (thief.markers / name).exists()
    assert thief.log.wait(lambda each: each["rule"] == name and each["sender"] == "scheduler")


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
        refused = thief.outcome(name, thief.sealed(name)) == "task-erred"
        assert refused != (thief.markers / name).exists()
        return refused

    until("alice's task is refused", is_refused)
    assert thief.log.wait(lambda each: each["rule"] == "sealed.author")
