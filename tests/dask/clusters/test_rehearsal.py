"""What a learned policy permits in replay, it permits when enforced; what it refuses is refused.

Random programs of an engineer and a viewer. ``REHEARSALS=20`` asks for more of them.
"""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from safeser.audit import read
from safeser.policy import Policy
from safeser.policy.recorded.learn import learn
from safeser.policy.recorded.replay import replay
from safeser.policy.recorded.traffic import Traffic, gather
from tests.processes import Cluster, until

pytestmark = pytest.mark.cluster

OBSERVED = """safeser: 1
name: rehearsal
revision: 1
mode: observe
extends: dask-cluster
principals: {carol: {groups: [engineers]}, alice: {groups: [viewers]}}
...
"""

#: What passes now and then, and not in each run, is left out.
STEADY = {
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START": "False",
}

BEGIN = """
import json, sys, safeser
from distributed import Variable
client = safeser.Client(sys.argv[1], timeout=30)
def said(call):
    try:
        return repr(call())
    except Exception as error:
        return type(error).__name__
"""

#: What carol does first: one worker fetches from the other, and a value stays that alice reads.
CAROL = """
import dask.dataframe, joblib, numpy, pandas
from distributed import WorkerPlugin
client.wait_for_workers(2, timeout=60)
one, two = sorted(client.nthreads())
class Own:
    def call(self):
        return 1
class Plugin(WorkerPlugin):
    name = "rehearsed"
def spread():
    with joblib.parallel_config("dask", client=client):
        return joblib.Parallel()(joblib.delayed(abs)(n) for n in (-1, 2))
first = client.submit(numpy.arange, 9, workers=[one], key="moved")
Variable("kept", client=client).set(first)
answers = [said(lambda: client.submit(sum, first, workers=[two], key="sum").result())]
"""
ALICE = "answers = [said(lambda: Variable('kept', client=client).get(timeout=20).result())]\n"

#: By name, what else carol may ask for, as an expression.
STEPS = {
    "run": "(*client.run(lambda: 1).values(), *client.run(lambda: 2, nanny=True).values())",
    "broadcast": "len(client.sync(client.scheduler.broadcast, msg={'op': 'ping'}))",
    "proxy": "client.sync(client.scheduler.proxy, msg={'op': 'ping'}, worker=one)",
    "actor": "client.submit(Own, actor=True, workers=[one]).result().call().result()",
    "plugin": "len(client.register_plugin(Plugin())), client.unregister_worker_plugin(Plugin.name)",
    "shuffle": "len(dask.dataframe.from_pandas(pandas.DataFrame({'a': range(9)}), npartitions=3)"
    ".shuffle('a', shuffle_method='p2p').compute())",
    "dataset": "client.publish_dataset(kept=first, override=True), client.list_datasets()",
    "joblib": "spread()",
    "own": "type(client.submit(Own, pure=False).result()).__name__",
    "metadata": "client.set_metadata('seen', 1), client.get_metadata('seen')",
}

#: By what each of some steps asks for it.
ASKED = {
    "run": "run",
    "broadcast": "broadcast",
    "proxy": "proxy",
    "plugin": "register_worker_plugin",
    "dataset": "publish_put",
    "metadata": "set_metadata",
}


def work(cluster: Cluster, chosen: list[str]) -> list[Any]:
    """Return what carol hears of the *chosen* steps, and then alice of a value."""
    steps = "".join(f"answers.append(said(lambda: ({STEPS[name]})))\n" for name in chosen)
    end = "client.close()\nprint(json.dumps(answers))\n"
    programs = {"carol": BEGIN + CAROL + steps + end, "alice": BEGIN + ALICE + end}
    found = [cluster.run(who, each, cluster.address).answer for who, each in programs.items()]
    ended = time.time_ns() // 1000
    logs = [log for who in ("scheduler", "worker") for log in cluster.audit.glob(f"{who}-*.log")]
    # What was counted before is written once counts are that began later, as heartbeats do.
    until("later counts", lambda: all(_counted_since(log, ended) for log in logs), every=0.2)
    return found


def _counted_since(log: Path, moment: int) -> bool:
    return any(each.type == "counts" and each.number("since") > moment for each in read(log))


def enforce(cluster: Cluster, text: str) -> Policy:
    """Hand out the policy *text*, and return it once all five processes have it."""
    policy = Policy.parse(text)
    waiting = cluster.path / "next.yaml"
    waiting.write_text(text, "utf-8")
    waiting.chmod(0o600)
    waiting.replace(cluster.policy)
    said = f"policy is in force: {policy.title}"
    until(said, lambda: cluster.logs().count(said) == 5, every=0.2)
    return policy


def seen(cluster: Cluster) -> Traffic:
    return gather(read(cluster.audit))


def refused(cluster: Cluster, revision: int) -> set[tuple[str, ...]]:
    """Return whom *revision* refused what."""
    names = ("sender", "recipient", "operation", "family", "rule")
    return {
        tuple(each.text(name) for name in names)
        for each in read(cluster.audit)
        if each.fields.get("permitted") is False and f"/{revision}/" in each.text("policy")
    }


def without(text: str, name: str) -> str:
    """Return the next revision of *text*, which no more grants the operation *name*."""
    less = re.sub(rf"\n        - (worker-)?{name}    #[^\n]*", "", text)
    less = re.sub(r"\n    operations:\n      grant:(?!\n        - )", "", less)
    return less.replace("revision: 2", "revision: 3", 1)


@pytest.mark.parametrize("seed", range(int(os.environ.get("REHEARSALS", "1"))))
def test_replay_says_what_enforcing_does(tmp_path, seed):
    chance = random.Random(seed)
    chosen = ["broadcast", *chance.sample(sorted(STEPS.keys() - {"broadcast"}), 4)]
    path = tmp_path / "policy.yaml"
    path.write_text(OBSERVED, "utf-8")
    path.chmod(0o600)
    people = ("scheduler", "worker", "nanny", "carol", "alice")
    cluster = Cluster(tmp_path, str(path), people, **STEADY)
    try:
        cluster.begin()
        answers = work(cluster, chosen)
        assert ["36" in answers[0][0], "array" in answers[1][0]] == [True, True]
        # A published value is for all who may ask for its dataset.
        read_of = [] if "dataset" in chosen else ["carol"]
        assert [each.author for each in seen(cluster).messages if each.reads] == read_of
        text = learn(seen(cluster), like=Policy.load(path))
        assert "not permitted above" not in text, text
        learned = enforce(cluster, text)
        assert work(cluster, chosen) == answers, (chosen, text)
        assert refused(cluster, 2) <= refused(cluster, 1), (chosen, text)
        assert replay(learned, seen(cluster)) == []
        name = ASKED[chance.choice(sorted(ASKED.keys() & {*chosen}))]
        foreseen = replay(enforce(cluster, without(text, name)), seen(cluster))
        assert name in {each.message.operation for each in foreseen}
        work(cluster, chosen)
        assert name in {each[2] for each in refused(cluster, 3)}, (chosen, name)
    finally:
        cluster.stop()
