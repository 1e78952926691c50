"""Who reads whose values as a client, in real processes.

The one rule: each attempt has its positive control, by whom the policy lets read the same value.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dask.live.rig import Log

pytestmark = pytest.mark.cluster

REFUSED = "values.author"
DIRECT = "values.direct"


@pytest.fixture(scope="module")
def done(visit):
    alice = visit("sealed")
    cluster, log = alice.cluster, Log(alice.cluster.audit)
    log.refusals()
    program = Path(__file__).with_name("readers.py")
    ended = alice.run("alice", program, str(cluster.path), timeout=240)
    assert ended.code == 0, f"{ended.out}\n{ended.err}\n{cluster.logs()}"
    found = dict(ended.answer)
    found["shown"] = ended.err
    found["recorded"] = sorted(
        (each["sender"], each["operation"]) for each in log.refusals() if each["rule"] == DIRECT
    )
    return found


DONE = {
    "by key": REFUSED,
    "by key, own": [0, 1],
    "by key, listed": [0, 1, 2],
    "direct": REFUSED,
    "direct, own": [0, 1],
    "direct, listed": [0, 1, 2],
    "from a worker": DIRECT,
    "from a worker, listed": ["own", "theirs"],
    "meant": ["theirs"],
    "input": REFUSED,
    "input, listed": [1, 2, 3],
    "same task": REFUSED,
    "variable": REFUSED,
    "published": [0],
    "copy": REFUSED,
    "actor": DIRECT,
    "actor, listed": 5,
}


def test_values_stay_with_those_who_may_read_them(done):
    assert {step: done[step] for step in DONE} == DONE


def test_a_refusal_names_key_author_and_field(done):
    for word in ("'alice'", "'theirs'", "'carol'", "'values'", "'engineers-submit-sealed'"):
        assert word in done["why"]


def test_who_may_not_read_all_asks_the_scheduler_without_a_word(done):
    """A client asks no worker for what it would be refused: direct=True changes nothing."""
    assert "Unexpected error" not in done["shown"]
    # What the program sent by its key alone.
    assert done["recorded"] == [("alice", "actor_attribute"), ("alice", "get_data")]
