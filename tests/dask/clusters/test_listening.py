"""Where a running cluster listens and what it connects to: every socket of every process."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from tests.processes import DASK, Folder, address_in, until

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parents[1] / "programs" / "listening.py"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A cluster by commands that say nothing about hosts and dashboards, seen by alice."""
    made = Folder(tmp_path_factory.mktemp("listening"))
    made.fresh = False
    try:
        where = made.path / "scheduler.json"
        file = ("--port", "0", "--scheduler-file")
        scheduler = made.start(
            "scheduler",
            *(DASK, "scheduler", "--protocol", "safeser", *file, str(where)),
            environment=made.environment("scheduler"),
        )
        address = until("the scheduler's file", lambda: address_in(where))
        worker = (DASK, "worker", address, "--nthreads", "1", "--local-directory")
        started = [
            made.start(name, *worker, str(made.path), *more, environment=made.environment("worker"))
            for name, more in [("nannied", ()), ("alone", ("--no-nanny",))]
        ]
        numbers = [process.pid for process in (scheduler, *started)]
        ended = made.run("alice", PROGRAM, address, *map(str, numbers), timeout=170)
        assert ended.code == 0, f"{ended.err}\n{made.logs()}"
        yield ended.answer
    finally:
        made.stop()


def port(address: str) -> int:
    scheme, _, location = address.partition("://")
    assert scheme == "safeser"
    return int(location.rpartition(":")[2])


def test_every_listening_socket_is_known_and_on_loopback(seen):
    listening = [ends[0] for one in seen["processes"] for ends in one["LISTEN"]]
    assert all(ipaddress.ip_address(host).is_loopback for host, _ in listening)
    comms = [seen["scheduler"], *seen["workers"], *seen["nannies"]]
    assert len(seen["workers"]) == 2
    assert len(seen["nannies"]) == 1
    known = {*map(port, comms), *seen["web"]}
    assert sorted(number for _, number in listening) == sorted(known)


def test_every_connection_ends_at_a_comm_of_safeser(seen):
    comms = {port(one) for one in (seen["scheduler"], *seen["workers"], *seen["nannies"])}
    connections = [ends for one in seen["processes"] for ends in one["ESTABLISHED"]]
    assert len(connections) >= 6
    for near, far in connections:
        assert comms & {near[1], far[1]}
        assert {ipaddress.ip_address(end[0]).is_loopback for end in (near, far)} == {True}
    # Whoever listens nowhere, such as the client, connects to comms alone.
    client = seen["processes"][-1]
    assert client["LISTEN"] == []
    assert {far[1] for _, far in client["ESTABLISHED"]} <= comms


def test_folders_for_spilled_data_are_private(seen):
    assert seen["folders"] == ["0o700", "0o700"]


def test_a_command_that_would_open_more_ends_with_one_line(folder):
    """What else it refuses to open is in tests/dask/worker/test_process_surface.py."""
    shared = folder.path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    command = ("worker", "safeser://127.0.0.1:1", "--local-directory", str(shared), "--no-nanny")
    ended = folder.call(DASK, *command, environment=folder.environment("worker"))
    assert ended.code == 2, ended.err
    assert "config.local-directory" in ended.err.splitlines()[-1]
    assert "Traceback" not in ended.err
