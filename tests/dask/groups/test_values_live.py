"""Who reads whose values in real processes: workers that were taken over, and users.

The one rule: each attempt has its positive control, by whom the policy lets read the same value.
"""

from __future__ import annotations

import pytest

from tests.dask.groups.test_live import HERE, PATIENCE, Grouped
from tests.dask.live.rig import Log

pytestmark = pytest.mark.cluster

PRINCIPALS = (
    *("scheduler", "worker-analysts", "worker-engineers"),
    *("alice", "bob", "carol", "erin", "vera"),
)

REFUSED = "values.author"
#: A worker is sent the reason in the place of a value.
UNSENT = "peer.unsent"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    made = Grouped(tmp_path_factory.mktemp("values"), "values.yaml", PRINCIPALS)
    try:
        made.begin(0)
        made.add("a-0", "e-0")
        made.wait_for("a-0", "e-0")
        arguments = (made.address, str(made.path))
        ended = made.run("alice", HERE / "readers.py", *arguments, timeout=PATIENCE)
        assert ended.code == 0, f"{ended.out}\n{ended.err}\n{made.logs()}"
        found = dict(ended.answer)
        found["rules"] = sorted({each["rule"] for each in Log(made.audit).refusals()})
        yield found
    finally:
        made.stop()


DONE = {
    "worker, theirs": UNSENT,
    "worker, data": UNSENT,
    "worker, brought": UNSENT,
    "worker, both": ["both"],
    "own group, theirs": ["theirs"],
    "own group, data": ["data"],
    "own group, brought": ["brought"],
    "worker gathers": REFUSED,
    "own group gathers": ["theirs"],
    "relayed": "operation.relayed",
    "by key": REFUSED,
    "by key, data": REFUSED,
    "by key, own": [0, 1],
    "by key, listed": 7,
    "skipped": [[0, 1]],
    "direct": REFUSED,
    "direct, own": [0, 1],
    "from a worker": [],
    "from a worker, own": ["own"],
    "input": REFUSED,
    "input, both groups": REFUSED,
    "input, own": [1, 2],
    "same task": REFUSED,
    "variable": REFUSED,
    "queue": REFUSED,
    "publish": REFUSED,
    "still": REFUSED,
    "published": [0],
    "published, direct": [0],
    "published, worker": UNSENT,
    "copied": [1, 1, 1],
    "actor": REFUSED,
    "actor, alice": REFUSED,
    "actor, own": 5,
    "plan, worker-engineers": "OK",
    "plan, worker-analysts": REFUSED,
    "joins, worker-engineers": "OK",
    "joins, worker-analysts": REFUSED,
    "shards, worker-engineers": {"status": "OK"},
    "shards, worker-analysts": REFUSED,
    "pins, worker-analysts": REFUSED,
    "total": 79800,
    "moved": [1, 2, 3, 4],
    "replicated": ["both"],
    "replica": ["both"],
    "shuffle": 79800,
    "spread": 2,
}


@pytest.mark.parametrize("step", DONE)
def test_values_stay_with_those_who_may_read_them(done, step):
    assert done[step] == DONE[step]


def test_a_refusal_names_key_author_and_field(done):
    for word in ("'alice'", "'theirs'", "'carol'", "'values'", "'users-submit'"):
        assert word in done["why"]


def test_refusals_are_recorded(done):
    assert REFUSED in done["rules"]
