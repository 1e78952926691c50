"""Keys and principals that come and go in a cluster of real processes, while others work on it."""

from __future__ import annotations

import json

import pytest

from safeser.errors import EnvelopeError
from safeser.identity import Identity
from tests.dask.live.rig import Silent
from tests.dask.live.wires import Sealing, channel_of
from tests.dask.team import Team, work
from tests.processes import until

pytestmark = pytest.mark.cluster

#: What a user sees whose key is retired in the middle of work, and afterwards.
ENGINEER = """
import json, sys, time
import distributed
import safeser

client = safeser.Client(sys.argv[1], timeout=5)
queued = client.map(lambda x: (time.sleep(1), x), range(400))
def mark(x, path):
    with open(path, "a") as file:
        file.write("x")
    time.sleep(1)
left = client.map(mark, range(400), path=sys.argv[2])
distributed.fire_and_forget(left)
client.submit(int, 1, priority=9).result()  # the scheduler has read all that was said before
print("working", flush=True)
said = {}
for name, ask in {
    "result": lambda: client.gather(queued),
    "submit": lambda: client.submit(sum, [1, 2]).result(),
    "again": lambda: safeser.Client(sys.argv[1], timeout=5),
}.items():
    try:
        ask()
    except BaseException as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps(said), flush=True)
"""

#: Data that one worker holds and nobody can compute again, and what becomes of it.
HOLDER = """
import json, sys, time
import safeser

client = safeser.Client(sys.argv[1])
name = sys.argv[2]
def named():
    return {w["name"]: a for a, w in client.scheduler_info(n_workers=-1)["workers"].items()}
while name not in named() or len(named()) < 2:
    time.sleep(0.1)
held = client.scatter(41, workers=[named()[name]], hash=False)
safe = client.scatter(1, workers=[a for n, a in named().items() if n != name][:1], hash=False)
computed = client.map(lambda x: x * 2, range(50), workers=None)
client.gather(computed)
print("holding", flush=True)
sys.stdin = open(sys.argv[3])
while not sys.stdin.read():
    time.sleep(0.1)
while name in named():
    time.sleep(0.1)
said = {"safe": client.gather(safe), "computed": sum(client.gather(computed))}
try:
    client.submit(lambda x: x, held).result(timeout=60)
except BaseException as error:
    said["lost"] = type(error).__name__ + ": " + str(error)
said["workers"] = sorted(named())
print(json.dumps(said), flush=True)
"""

NAMES = """
import sys, safeser
client = safeser.Client(sys.argv[1])
print([w["name"] for w in client.scheduler_info(n_workers=-1)["workers"].values()])
"""


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    made = Team(tmp_path_factory.mktemp("team"))
    try:
        made.begin(workers=0)
        made.add_workers("one", "two", "three")
        yield made
    finally:
        made.stop()


def ends(team, name, process, within=120):
    """Return what a program printed last, once it has ended."""
    until(f"the end of {name}", lambda: process.poll() is not None, within)
    lines = team.log(name).splitlines()
    answers = [line for line in lines if line.startswith(("{", "["))]
    assert answers, team.log(name)
    return json.loads(answers[-1])


def says(team, name, text, within=120):
    until(text, lambda: text in team.log(name), within)


def test_a_revoked_engineer_is_out_and_the_work_of_others_goes_on(team):
    with work(team):
        left = team.path / "left"
        name, process = team.client("carol", ENGINEER, str(left))
        says(team, name, "working")
        team.retire(Identity.load(team.keys / "carol.key"))
        said = ends(team, name, process)
        for each in ("result", "submit"):
            assert "the key of carol is retired in the roster" in said[each], said
        assert "carol" in said["again"]
    # Each side ended it, or heard that the other one did: both recorded why.
    for principal in ("scheduler", "carol"):
        assert "key.retired" in team.rules(principal)
    assert "the key of carol is retired" in team.log("scheduler")
    # Nobody wants what is queued of it any more, not even what it left to the scheduler.
    until("the release", lambda: "without an active key" in team.log("scheduler"))
    assert not left.exists() or len(left.read_text()) < 400


def test_nothing_of_a_revoked_principal_is_accepted_whatever_it_ignores(team):
    """It reads no notice, goes on sending on its old connections, and comes again."""
    channel = channel_of(team.keys, "mallory", _policy(team), Silent())
    with work(team):
        wires = [Sealing.to(team.address, channel) for _ in range(3)]
        assert wires[0].ask({"op": "identity"})["type"] == "Scheduler"
        team.retire(Identity.load(team.keys / "mallory.key"))

        until("its end", lambda: _ends(team) and not _let_in(team, channel), every=0.1)
        admitted = [r for r in team.records("scheduler") if r.get("event") == "admit"]
        count = len([r for r in admitted if r["sender"] == "mallory"])
        for wire in wires:
            with wire, pytest.raises(OSError):
                _go_on(wire)
        assert not any(_let_in(team, channel) for _ in range(3))
    admitted = [r for r in team.records("scheduler") if r.get("event") == "admit"]
    assert len([r for r in admitted if r["sender"] == "mallory"]) == count


def _let_in(team, channel):
    try:
        wire = Sealing.to(team.address, channel)
    except (OSError, EnvelopeError, AssertionError):
        return False
    with wire:
        return True


def _go_on(wire):
    for _ in range(1000):
        wire.send({"op": "run_function", "function": b"", "reply": True})
    while True:
        wire.take(1)


def _ends(team):
    return [
        r for r in team.records("scheduler") if r.get("event") == "end" and r["sender"] == "mallory"
    ]


def _policy(team):
    from safeser.policy import Policy

    return Policy.load(team.policy)


def test_a_revoked_worker_is_out_its_results_are_computed_again_and_its_data_is_lost(team):
    go = team.path / "go"
    go.write_text("")
    with work(team):
        name, process = team.client("alice", HOLDER, "two", str(go))
        says(team, name, "holding")
        team.retire(
            Identity.load(team.keys / "worker-two.key"), Identity.load(team.keys / "nanny-two.key")
        )
        go.write_text("go")
        said = ends(team, name, process)
    assert (said["safe"], said["computed"]) == (1, 2450)
    assert "lost" in said, said
    assert "two" not in said["workers"]
    assert "the key of worker is retired" in team.log("worker-two")
    assert "the key of worker is retired" in team.log("scheduler")


def test_a_revoked_nanny_is_out_and_its_worker_goes_on(team):
    with work(team):
        channel = channel_of(team.keys, "nanny-three", _policy(team), Silent())
        assert _let_in(team, channel)
        team.retire(Identity.load(team.keys / "nanny-three.key"))
        until("its end", lambda: not _let_in(team, channel), every=0.1)
        name, process = team.client("alice", NAMES)
        until("the workers", lambda: process.poll() is not None)
        assert "three" in team.log(name)


def test_a_new_principal_and_a_new_key_are_let_in_without_a_restart(team):
    with work(team):
        team.add_key("dave", team.keys / "dave.key")
        text = team.policy_path.read_text()
        revision = int(text.split("revision: ")[1].split()[0])
        more = text.replace("  bob:", "  dave: {groups: [engineers]}\n  bob:", 1)
        team.write_policy(more.replace(f"revision: {revision}", f"revision: {revision + 1}", 1))
        program = (
            "import sys, safeser\n"
            "c = safeser.Client(sys.argv[1])\n"
            "print([c.submit(sum, [1, 2]).result()])"
        )

        def let_in():
            name, process = team.client("dave", program)
            until("its end", lambda: process.poll() is not None)
            return "[3]" in team.log(name)

        until("dave's work", let_in, 120)
