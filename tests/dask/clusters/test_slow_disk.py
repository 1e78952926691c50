"""A scheduler whose disk answers no flush goes on, through a rotation of its log."""

from __future__ import annotations

import pytest

from safeser.audit import verify
from tests.processes import Cluster, until

pytestmark = pytest.mark.cluster

PRELOAD = """
import os, threading, time

GO, WAITS = {go!r}, {waits!r}

def slow(flush):
    def flushed(handle):
        if threading.get_ident() == loop:
            open(WAITS, "a").write("a flush\\n")
        for _ in range(6_000):
            if os.path.exists(GO) or threading.get_ident() == loop:
                return flush(handle)
            time.sleep(0.02)
        raise OSError(5, "the test did not go on")
    return flushed

def dask_setup(scheduler):
    global loop
    loop = threading.get_ident()
    os.fsync, os.fdatasync = slow(os.fsync), slow(os.fdatasync)
"""

ENGINEER = """
import sys, safeser
client = safeser.Client(sys.argv[1], timeout=60)
print(sum(client.gather(client.map(lambda x: x, range(int(sys.argv[2]))))), flush=True)
"""


@pytest.fixture
def slow_cluster(tmp_path):
    """A cluster whose scheduler's disk answers no flush before the file ``go`` is there."""
    cluster = Cluster(tmp_path)
    preload = tmp_path / "slow_disk.py"
    preload.write_text(PRELOAD.format(go=str(tmp_path / "go"), waits=str(tmp_path / "waits")))
    environment = cluster.environment

    def slow(principal: str, **more: str) -> dict[str, str]:
        if principal == "scheduler":
            more |= {
                "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": f'["{preload}"]',
                "DASK_SAFESER__AUDIT_FILES__ROTATE_SIZE": "64KiB",
            }
        return environment(principal, **more)

    cluster.environment = slow
    try:
        cluster.begin()
        yield cluster
    finally:
        (tmp_path / "go").touch()
        cluster.stop()


def test_the_event_loop_waits_for_no_flush_of_a_rotation(slow_cluster, tmp_path):
    def logs() -> list:
        return sorted(slow_cluster.audit.glob("scheduler-*.log*"))

    def done(tasks: int) -> str:
        # With a folder of its own: a rotation that waits for the disk holds the lock of the index.
        own = {"DASK_SAFESER__AUDIT": str(tmp_path / "own")}
        ended = slow_cluster.run("alice", ENGINEER, slow_cluster.address, str(tasks), **own)
        assert ended.code == 0, ended
        return ended.out.strip()

    assert done(400) == str(sum(range(400)))
    (first,) = (each for each in logs() if each.stat().st_size >= 64 << 10)
    # The next file is there, and its flush goes on as long as the disk does not answer.
    until("the next file", lambda: len(logs()) == 2)
    size = first.stat().st_size
    assert done(10) == str(sum(range(10)))
    assert first.stat().st_size > size
    (tmp_path / "go").touch()
    until("the rotation", lambda: len(logs()) == 2 and not first.exists())  # compressed
    assert done(10) == str(sum(range(10)))
    assert not (tmp_path / "waits").exists()
    report = verify(slow_cluster.audit, key=slow_cluster.keys / "audit.key")
    assert report.ok, str(report)
