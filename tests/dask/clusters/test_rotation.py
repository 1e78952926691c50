"""Keys that are replaced, and policies that change again and again, while a cluster works."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from safeser.identity import Identity
from tests.dask.team import Team, work
from tests.processes import DASK, until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def team(tmp_path_factory):
    made = Team(tmp_path_factory.mktemp("rotated"))
    try:
        made.begin(workers=0)
        made.add_workers("one", "two")
        yield made
    finally:
        made.stop()


def test_every_key_of_a_running_cluster_is_replaced_while_it_works(team):
    """In the order of docs/how-to/keys.md: list everywhere, then use, then retire the old one."""
    roles = {"scheduler": "scheduler", "worker": "worker-one", "nanny": "nanny-one"}
    observer, process = team.client("alice", OBSERVER)
    with work(team, count=50) as working:
        for principal, name in {**roles, "alice": "alice"}.items():
            path = team.keys / f"{name}.key"
            old = Identity.load(path)
            new = team.add_key(principal, team.keys / f"{name}.new")
            until("the roster everywhere", lambda: _agree(team, observer), 120, every=0.1)
            count = _adopted(team, principal, "identity")
            os.replace(team.keys / f"{name}.new", path)
            until(
                f"the new key of {name}",
                # Alice has a second client, who works.
                lambda who=principal, n=count: (
                    _adopted(team, who, "identity") > n + (who == "alice")
                ),
                120,
                every=0.1,
            )
            # What was asked by the old key has its answer, as docs/how-to/keys.md has it.
            working.go_on(2)
            team.retire(old)
            assert new.public != old.public
        until("the roster everywhere", lambda: _agree(team, observer), 120, every=0.1)
        process.kill()
        # And as an operator asks.
        command = (str(Path(DASK).with_name("safeser")), "policy", "drift", team.address)
        said = team.call(*command, environment=team.environment("alice"))
        rows = [line for line in said.out.splitlines() if team.roster.sha256[:12] in line]
        assert (said.code, len(rows)) == (0, 5), said
        # Those whose keys are retired by now are at work all the same.
        name, process = team.client(
            "alice",
            "import sys, safeser\n"
            "c = safeser.Client(sys.argv[1])\n"
            "w = c.scheduler_info(n_workers=-1)['workers'].values()\n"
            "print(sorted(each['name'] for each in w), c.submit(sum, [1, 2]).result())\n",
        )
        until("its end", lambda: process.poll() is not None)
        assert "['one', 'two'] 3" in team.log(name)
    assert "Restarting worker" not in team.log("worker-one")
    assert "Remove worker" not in team.log("scheduler")


#: Says again and again which roster each process decides by; its own key is replaced meanwhile.
OBSERVER = """
import json, sys, time
import safeser
from safeser.dask import drift

client = safeser.Client(sys.argv[1])
while True:
    time.sleep(0.1)
    try:
        said = client.sync(drift.ask, client.scheduler)
    except OSError:  # the key behind the connection was retired while the question was under way
        continue
    print(json.dumps([each.roster for each in said if "client" not in each.process]), flush=True)
"""


def _agree(team, observer):
    """Tell whether the roster that is written is that of scheduler, workers and nannies."""
    said = [each for each in team.log(observer).split("\n")[:-1] if each.startswith('["')]
    return said and json.loads(said[-1]) == [team.roster.sha256] * 5


def _adopted(team, principal, what):
    """Return how often processes of *principal* took a new *what*."""
    return team.rules(principal).count(f"{what}.adopted")


def test_twenty_reloads_under_load_lose_no_task(team):
    text = team.policy_path.read_text()
    assert "revision: 1" in text
    with work(team):
        for number in range(2, 22):
            team.write_policy(text.replace("revision: 1", f"revision: {number}", 1))
            os.kill(team.scheduler, signal.SIGHUP)  # which makes it look at once
            until(f"revision {number}", lambda n=number: team.in_force(n)["scheduler"])
    for principal in ("scheduler", "worker", "nanny", "alice"):
        assert not [r for r in team.records(principal) if r.get("event") == "end"][50:]
    assert "Remove worker" not in team.log("scheduler")


def test_a_rollback_is_the_old_text_under_a_higher_revision(team):
    """What was granted, is withdrawn from the next submission on and granted again."""
    text = team.policy_path.read_text()
    number = int(text.split("revision: ")[1].split()[0])
    program = (
        "import sys, safeser\n"
        "c = safeser.Client(sys.argv[1], timeout=20)\n"
        "print(c.submit(sum, [1, 2]).result())\n"
    )

    def submits():
        name, process = team.client("alice", program)
        until("its end", lambda: process.poll() is not None)
        return "3" in team.log(name).splitlines()

    assert submits()
    without = text.replace("alice: {groups: [engineers]}", "alice: {groups: [guests]}")
    assert without != text
    team.write_policy(without.replace(f"revision: {number}", f"revision: {number + 1}", 1))
    until("the refusal", lambda: not submits(), 120)
    team.write_policy(text)  # older than the one in force: nothing changes
    until("its report", lambda: "policy.older" in team.rules("scheduler"))
    assert not submits()
    team.write_policy(text.replace(f"revision: {number}", f"revision: {number + 2}", 1))
    until("work", submits, 120)
