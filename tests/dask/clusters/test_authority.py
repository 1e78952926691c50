"""Who ends a worker of a live cluster: its nanny and an operator, and no code in another worker."""

from __future__ import annotations

import pytest

from safeser.policy import Policy
from tests.dask.live.wires import Sealing, channel_of, value_of
from tests.dask.team import Team
from tests.processes import until

pytestmark = pytest.mark.cluster

#: Ends the process of the worker that is named, and waits until its nanny has started another one.
CRASHES = """
import os, sys, time
import safeser

client = safeser.Client(sys.argv[1])
def found():
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return {at for at, worker in workers.items() if worker["name"] == sys.argv[2]}
first = found()
client.run(lambda: os._exit(1), workers=[*first], on_error="ignore")
while not found() - first:
    time.sleep(0.1)
print("again", client.submit(sum, [1, 2], workers=[*found()]).result())
"""


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    """Three workers with nannies; each of their keys, and the operator's, is granted unregister."""
    made = Team(tmp_path_factory.mktemp("authority"))
    text = made.text.replace("worker-reports", "cluster").replace("nanny-reports", "cluster")
    made.write_policy(
        text.replace("plugins, control, actors]", "plugins, control, actors, unregister]")
    )
    try:
        made.begin(workers=0)
        made.add_workers("one", "two", "three")
        yield made
    finally:
        made.stop()


class Thief:
    """Code that has the private key of one process."""

    def __init__(self, team, key, audit):
        self.team = team
        self.channel = channel_of(team.keys, key, Policy.load(str(team.policy_path)), audit)

    def asks(self, **message):
        with Sealing.to(self.team.address, self.channel) as wire:
            return wire.ask({"reply": True, **message})

    def ends(self, name):
        """Return what the scheduler says to the request that the worker *name* is removed."""
        said = self.asks(op="unregister", address=name, stimulus_id="s")
        return said if said == "OK" else value_of(said["exception"])


@pytest.fixture
def thief(team, doors):
    return lambda key: Thief(team, key, doors.channel("alice", "demo").audit)


def named(thief):
    workers = thief("alice").asks(op="identity", n_workers=-1)["workers"]
    return {each["name"]: (address, each["nanny"]) for address, each in workers.items()}


def refused(error):
    return getattr(error, "rule", "") == "worker.another"


@pytest.mark.parametrize("key", ["worker-one", "nanny-one"])
@pytest.mark.parametrize("by", ["name", "address"])
def test_code_in_one_worker_or_nanny_ends_no_other_worker(thief, key, by):
    address, _ = named(thief)["two"]
    assert refused(thief(key).ends("two" if by == "name" else address))
    assert "two" in named(thief)


def test_a_nanny_that_registers_at_the_address_of_another_ends_none(team, thief):
    _, nanny = named(thief)["two"]
    one = thief("nanny-one")
    with Sealing.to(team.address, one.channel) as wire:
        assert wire.ask({"op": "register_nanny", "address": nanny, "reply": True})["status"] == "OK"
        assert refused(one.ends("two"))
    assert "two" in named(thief)


def test_its_nanny_starts_a_worker_again_that_crashed(team):
    name, process = team.client("alice", CRASHES, "three")
    until("another worker", lambda: process.poll() is not None)
    assert "again 3" in team.log(name), team.logs()


def test_its_nanny_and_an_operator_end_a_worker(thief):
    assert thief("nanny-two").ends("two") == "OK"
    assert "two" not in named(thief)
    assert thief("alice").ends("one") == "OK"
    assert "one" not in named(thief)
