"""Renewal between real processes, whose clock for statements is a file that the test sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.dask.live.rig import Log
from tests.processes import Cluster

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent


class Shifted(Cluster):
    """A cluster with one worker; all of its processes read the time of statements from a file."""

    def __init__(self, path):
        policy = path / "policy.yaml"
        policy.write_text((HERE / "sealed.yaml").read_text())
        super().__init__(path, str(policy))
        self.ahead = path / "ahead"
        self.ahead.write_text("0")

    def environment(self, principal, **more):
        preload = json.dumps([str(HERE / "shifted.py")])
        role = {"scheduler": "SCHEDULER", "worker": "WORKER"}.get(principal)
        own = {} if role is None else {f"DASK_DISTRIBUTED__{role}__PRELOAD": preload}
        return super().environment(principal, SHIFTED=str(self.ahead), **own, **more)


@pytest.fixture(scope="module")
def waited(tmp_path_factory):
    cluster = Shifted(tmp_path_factory.mktemp("renewal"))
    try:
        cluster.begin(1)
        ended = cluster.run(
            "alice",
            HERE / "waiting.py",
            cluster.address,
            str(cluster.audit),
            str(cluster.path / "opened"),
            timeout=180,
        )
        assert ended.code == 0, f"{ended.out}\n{ended.err}\n{cluster.logs()}"
        cluster.ended = ended
        yield cluster
    finally:
        cluster.stop()


def test_work_outlives_its_first_statement(waited):
    answers = waited.ended.answer
    assert (answers["running"], answers["queued"]) == ("waited", "ran")
    assert answers["held"] is True  # computed again after a worker was lost
    assert answers["again"] == "ran"  # after a lost connection
    # A result whose author's client is gone.
    assert answers["published"][:2] == ["PolicyDenied", "sealed.expired"]
    assert "Submit it again" in answers["published"][2]


def test_nothing_else_was_refused_and_nothing_is_loud(waited):
    refused = {each["rule"] for each in Log(waited.audit).refusals()}
    assert {rule for rule in refused if rule.startswith("sealed")} == {"sealed.expired"}
    assert "Traceback" not in waited.ended.err
    assert "renew" not in waited.ended.err
    assert "Refused" not in waited.log("scheduler")
