"""The table against what servers of the installed Dask register, in both directions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safeser.operations import (
    ENVELOPE,
    OPERATIONS,
    SUPPORTED_DISTRIBUTED,
    Channel,
    Operation,
    Server,
    lookup,
)

pytestmark = pytest.mark.cluster

#: Handlers that take any field and hand it on, and the handler that reads it.
HANDED_ON = {
    (Server.NANNY, Channel.RPC, "run"): (Server.WORKER, Channel.RPC, "run"),
    (Server.SCHEDULER, Channel.RPC, "retire_workers"): (
        Server.SCHEDULER,
        Channel.RPC,
        "workers_to_close",
    ),
}

#: Stream handlers of the scheduler that take any field, straight into the state of a task.
SWALLOWED = {
    (Server.SCHEDULER, Channel.STREAM, "task-finished"),
    (Server.SCHEDULER, Channel.STREAM, "task-erred"),
}


@pytest.fixture(scope="module")
def live() -> dict[str, Any]:
    program = Path(__file__).with_name("registered.py")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def handlers(live: dict[str, Any], row: tuple[Server, Channel, str]) -> dict[str, Any]:
    server, channel, name = row
    nobody = {"names": [], "any": False}
    found: dict[str, Any] = live["handlers"][server.value][channel.value].get(name, nobody)
    return found


def key(operation: Operation) -> tuple[Server, Channel, str]:
    return operation.server, operation.channel, operation.wire


def test_the_installed_version_is_one_that_the_table_was_compared_with(
    live: dict[str, Any],
) -> None:
    assert live["version"] in SUPPORTED_DISTRIBUTED


def test_every_registered_operation_is_in_the_table(live: dict[str, Any]) -> None:
    unknown = [
        f"{server.value} {channel.value} {name}"
        for server in Server
        for channel in Channel
        for name in live["handlers"][server.value][channel.value]
        if lookup(server, channel, name) is None
    ]
    assert not unknown, f"registered, but not in the table: {unknown}"


def test_every_operation_in_the_table_is_registered_unless_loops_handle_it(
    live: dict[str, Any],
) -> None:
    wrong = [
        f"{operation.server.value} {operation.channel.value} {operation.name}"
        for operation in OPERATIONS
        if operation.inline
        == (operation.wire in live["handlers"][operation.server.value][operation.channel.value])
    ]
    assert not wrong, f"in the table, but not registered, or marked inline and registered: {wrong}"


def test_payload_fields_are_fields_of_the_handlers(live: dict[str, Any]) -> None:
    wrong = []
    for operation in OPERATIONS:
        if operation.inline or key(operation) in SWALLOWED:
            continue
        reader = handlers(live, HANDED_ON.get(key(operation), key(operation)))
        for path in operation.fields:
            field = path.partition(".")[0].removesuffix("[]")
            if field not in reader["names"]:
                wrong.append(f"{operation.server.value} {operation.name} {path}")
    assert not wrong, f"no fields of their handlers: {wrong}"


#: Parameters that no peer fills in.
NOT_FIELDS = {"comm", "args", "kwargs", "msg"}


def expected_fields(live: dict[str, Any], operation: Operation) -> set[str]:
    """Return what the handler takes, or what honest peers send where it takes whatever comes."""
    place = key(operation)
    if place in SWALLOWED:
        return set(live["sent"][operation.name])
    handler = handlers(live, place)
    names = set(handler["names"])
    if handler["any"]:
        names -= NOT_FIELDS | {"storage_options"}
    if place == (Server.SCHEDULER, Channel.RPC, "dump_cluster_state_to_url"):
        names |= {"*"}
    if place == (Server.SCHEDULER, Channel.STREAM, "keep-alive"):
        names |= {"worker"}  # that of the stream
    if place == (Server.SCHEDULER, Channel.STREAM, "report-key"):
        names -= {"ts"}  # for callers inside the scheduler
    if place in HANDED_ON:
        names |= set(handlers(live, HANDED_ON[place])["names"])
    return names - {"comm"} - set(ENVELOPE)


def test_the_fields_of_each_operation_are_those_of_its_handler(live: dict[str, Any]) -> None:
    wrong = {}
    for operation in OPERATIONS:
        listed = set(operation.takes) - set(ENVELOPE)
        taken = expected_fields(live, operation)
        if not operation.inline and listed != taken:
            missing, unknown = sorted(taken - listed), sorted(listed - taken)
            wrong[f"{operation.server.value} {operation.name}"] = (missing, unknown)
    assert not wrong, f"fields that the table lacks, and fields that no handler takes: {wrong}"


def test_handlers_that_take_any_field_are_the_ones_we_know(live: dict[str, Any]) -> None:
    # Such a handler may pass a field on to one that unpickles it: look before adding to this list.
    taking = {
        (server, channel, name)
        for server in Server
        for channel in Channel
        for name, handler in live["handlers"][server.value][channel.value].items()
        if handler["any"]
    }
    known = {
        (Server.SCHEDULER, Channel.RPC, "feed"),  # ignored
        (Server.SCHEDULER, Channel.RPC, "dump_cluster_state_to_url"),  # options for fsspec
        (Server.SCHEDULER, Channel.RPC, "get_error_cause"),  # ignored
        (Server.SCHEDULER, Channel.RPC, "get_runspec"),  # ignored
        (Server.SCHEDULER, Channel.STREAM, "keep-alive"),  # ignored
    }
    assert taking == known | set(HANDED_ON) | SWALLOWED


def test_servers_answer_close_and_clients_are_greeted_first(live: dict[str, Any]) -> None:
    assert live["close"] == dict.fromkeys(("scheduler", "worker", "nanny"), "OK")
    assert [element["op"] for element in live["first"]] == ["stream-start"]
