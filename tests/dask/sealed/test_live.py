"""Sealed submissions between real processes: what tasks submit, and a stolen key of the scheduler.

The one rule: whether something ran is read from files, and whether it was refused from the log of
the process that refused it. Every forgery is a row of ``test_verification.py``, without sockets.
"""

from __future__ import annotations

import itertools
import queue
import shutil
import time
from pathlib import Path

import cloudpickle
import msgpack
import pytest
from dask._task_spec import Task

from safeser.dask.sealed.call import Sent
from safeser.dask.sealed.graph import parse, write_out
from safeser.dask.sealed.node import nodes
from safeser.dask.wire.codec import PayloadRow
from safeser.gate.values import Limits
from safeser.identity import Identity
from safeser.policy import Policy
from tests.dask.live.rig import Log, Silent
from tests.dask.live.wires import Eager, Host, channel_of
from tests.dask.sealed.graphs import Graph
from tests.dask.sealed.test_verification import element
from tests.processes import DASK, until

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent


class Impostor:
    """Who has the scheduler's keys, and says to the worker that registers what it likes."""

    def __init__(self, cluster, roster):
        policy = Policy.load(cluster.policy)
        channel = channel_of(cluster.keys, "scheduler", policy, Silent())
        self.heard = queue.Queue()
        self.wires = queue.Queue()
        self.host = Host(self.answer, channel=channel)
        self.wire = None
        cluster.start(
            "victim",
            *(DASK, "worker", self.host.address, "--no-nanny", "--nthreads", "1"),
            *("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"),
            *("--local-directory", str(cluster.path / "scratch-of-victim")),
            environment=cluster.environment("worker", DASK_SAFESER__ROSTER=str(roster)),
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
def cluster(clusters):
    return clusters["sealed"]


@pytest.fixture(scope="module")
def ran(cluster, visit):
    """Return what runs a program: its answer, and what was refused meanwhile of what is signed."""
    alice = visit("sealed")

    def run(program, *words):
        log = Log(cluster.audit)
        log.refusals()
        answer = alice.answer("alice", HERE / program, *words, timeout=180)
        refused = log.refusals()
        return answer, [each for each in refused if each["rule"][:6] in ("sealed", "author")]

    return run


def test_what_a_task_submits_is_signed_by_its_worker(ran):
    answers, refused = ran("inside.py")
    submitted = {"gathered": 35, "submitted": 14, "computed": 45, "keyed": 2}
    assert answers == {**submitted, "cached": 34, "scattered": 81}
    assert refused == []


def test_no_other_task_runs_in_a_client_that_recreates_an_error(ran, tmp_path):
    answer, refused = ran("replayed.py", str(tmp_path / "ran"))
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
    # However far below it happened, an error is recreated: test_replay.py has each way.
    assert len(answer["truth"]) == 3
    assert {came[0] for came in answer["truth"].values()} == {"ZeroDivisionError"}


# -- a stolen key of the scheduler ----------------------------------------------------------------


class Thief:
    """All that a thief of the scheduler's key has, beside what alice signed and it was sent."""

    def __init__(self, cluster, markers):
        self.roster = markers / "roster"
        shutil.copy(cluster.keys / "roster", self.roster)
        self.impostor = Impostor(cluster, self.roster)
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
    made = Thief(cluster, tmp_path_factory.mktemp("markers"))
    yield made
    made.impostor.host.close()


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


def test_a_retired_author_s_tasks_do_not_run(thief):
    """The last test: alice is retired for good in the roster that this one worker reads."""
    lines = thief.roster.read_text().splitlines()
    gone = [line.replace(" active ", " retired ") if " alice " in line else line for line in lines]
    assert gone != lines
    thief.roster.write_text("\n".join(gone) + "\n")
    thief.log.new()
    names = (f"retired-{number}" for number in itertools.count())

    def is_refused():
        name = next(names)
        refused = thief.outcome(name, thief.sealed(name)) == "task-erred"
        assert refused != (thief.markers / name).exists()
        return refused

    until("alice's task is refused", is_refused)
    assert thief.log.wait(lambda each: each["rule"] == "sealed.author")
