"""Somebody with a worker's key at the scheduler's address, and who is let down by it."""

from __future__ import annotations

import contextlib
import json
import os
import time

import pytest

from tests.conftest import until

pytestmark = pytest.mark.cluster

DASK = os.path.join(os.path.dirname(os.sys.executable), "dask")
OPTIONS = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard")

CLIENT = """
import sys
import safeser

try:
    with safeser.Client(sys.argv[1], timeout=20, name="c") as client:
        print("reached", client.scheduler.address)
except safeser.SafeserError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def impostor(folder):
    """The address of a scheduler that has taken a worker's key; policy alone lets it begin."""
    where = folder.path / "scheduler.json"
    command = [DASK, "scheduler", "--protocol", "safeser", "--port", "0", *OPTIONS]
    command += ["--scheduler-file", str(where)]
    folder.start("impostor", *command, environment=folder.environment("worker"))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            return json.loads(where.read_text())["address"]
        time.sleep(0.05)
    raise AssertionError(folder.logs())


@pytest.mark.parametrize("nanny", ["--nanny", "--no-nanny"])
def test_no_worker_works_for_whom_it_does_not_expect(folder, impostor, nanny):
    environment = folder.environment("worker", DASK_SAFESER__EXPECTED_SCHEDULER="scheduler")
    command = ("worker", impostor, "--nthreads", "1", *OPTIONS, nanny, "--death-timeout", "30")
    ended = folder.call(DASK, *command, environment=environment)
    assert ended.code == 2, ended.err
    assert "did not accept each other" in ended.err
    assert "that it is scheduler, which is expected there" in ended.err
    assert "Traceback" not in ended.err
    assert "Registered to" not in ended.err


def test_no_client_talks_to_whom_it_does_not_expect(folder, impostor):
    """The settings say whom, since users do not write it into every program."""
    ended = folder.run("alice", CLIENT, impostor, DASK_SAFESER__EXPECTED_SCHEDULER="scheduler")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("AuthenticationError"), ended.out


def test_who_is_expected_is_reached(cluster):
    ended = cluster.run(
        "alice", CLIENT, cluster.address, DASK_SAFESER__EXPECTED_SCHEDULER="scheduler"
    )
    assert ended.out == f"reached {cluster.address}\n", ended.err


def test_a_worker_that_meets_whom_it_expects_works(cluster, folder):
    """Started beside the others, and gone when the test is."""
    environment = cluster.environment("worker", DASK_SAFESER__EXPECTED_SCHEDULER="scheduler")
    command = (DASK, "worker", cluster.address, "--nthreads", "1", *OPTIONS)
    folder.start("expecting", *command, environment=environment)
    deadline = time.monotonic() + 60
    while "Registered to" not in folder.log("expecting"):
        assert time.monotonic() < deadline, folder.log("expecting")
        time.sleep(0.05)
    removed = cluster.log("scheduler").count("Remove worker")
    folder.stop()
    until("its removal", lambda: cluster.log("scheduler").count("Remove worker") > removed)
