"""The table is whole and consistent in itself, and says the dangerous things that it must say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from safeser.gate.values import Kind
from safeser.operations import (
    GROUPS,
    NAMES,
    OPERATIONS,
    Channel,
    Encoding,
    Operation,
    Server,
    lookup,
)

INVENTORY = json.loads(Path(__file__).with_name("inventory.json").read_text())

#: Groups that let their holder run code in, write files of, or end another process.
AUTHORITY = frozenset({"run", "plugins", "files", "control", "actors", "benchmark", "debug"})

STATES = ("client-stream", "worker-stream")


def row(server: Server, channel: Channel, name: str) -> Operation:
    found = lookup(server, channel, name)
    assert found is not None
    return found


def test_each_row_is_found_by_what_it_is() -> None:
    for operation in OPERATIONS:
        if operation.wire == operation.name:
            assert lookup(operation.server, operation.channel, operation.name) is operation
        else:
            assert lookup(operation.server, operation.channel, operation.name) is None
    rows = Counter((o.server, o.channel, o.name) for o in OPERATIONS)
    assert [key for key, count in rows.items() if count > 1] == []
    assert len(set(OPERATIONS)) == len(OPERATIONS)


@pytest.mark.parametrize("server", Server)
def test_every_operation_of_the_inventory_is_in_the_table(server: Server) -> None:
    known = {operation.name for operation in OPERATIONS if operation.server is server}
    assert set(INVENTORY[server.value]) <= known


def test_names_are_exact_and_of_one_server_and_channel() -> None:
    for name in (
        "",
        "RUN",
        "run ",
        " run",
        "run\0",
        "\uff52un",
        "__init__",
        "handlers",
        "close-str",
    ):
        assert {lookup(server, channel, name) for server in Server for channel in Channel} == {None}
    assert lookup(Server.CLIENT, Channel.RPC, "restart") is None
    assert lookup(Server.SCHEDULER, Channel.RPC, "update-graph") is None
    assert lookup(Server.NANNY, Channel.RPC, "run_function") is None
    assert lookup(Server.WORKER, Channel.STREAM, "run") is None


def amm(said: Any, **more: Any) -> dict[Any, Any]:
    return {"op": "amm_handler", "method": said, **more}


def test_rows_that_share_a_name_differ_by_group_and_shape() -> None:
    several = Counter((o.server, o.channel, o.wire) for o in OPERATIONS)
    assert [key for key, count in several.items() if count > 1] == [
        (Server.SCHEDULER, Channel.RPC, "amm_handler")
    ]
    strong = row(Server.SCHEDULER, Channel.RPC, "amm_handler")
    weak = lookup(Server.SCHEDULER, Channel.RPC, "amm_handler", amm("running"))
    assert weak is not None
    assert (weak.name, weak.group, weak.kind) == ("amm_running", "basic", Kind.ADMIN)
    assert (strong.name, strong.group, strong.kind) == ("amm_handler", "control", Kind.CONTROL)
    assert not strong.fits(amm("running"))


@pytest.mark.parametrize(
    "message",
    [
        *map(amm, ["start", "stop", "run_once", "add_policy", "__init__", "Running", 5, None]),
        *map(amm, [b"running", ("running",), ["running"], {"running": 1}]),
        amm("running", more=1),
        {"op": "amm_handler"},
        {**amm("running"), 5: 1},
    ],
)
def test_a_message_that_does_not_fit_the_weaker_row_needs_the_stronger_group(
    message: dict[Any, Any],
) -> None:
    found = lookup(Server.SCHEDULER, Channel.RPC, "amm_handler", message)
    assert found is not None
    assert found.group == "control"


def test_the_groups_hold_every_name_and_are_not_operations_themselves() -> None:
    assert {"basic", "cluster", "diagnose"} | AUTHORITY == set(GROUPS)
    assert frozenset().union(*GROUPS.values()) == NAMES
    assert all(row.name in GROUPS[row.group] for row in OPERATIONS)
    # A policy's "grant: [run]" must not be a riddle, save that the group holds the name.
    assert {name for name in GROUPS if name in NAMES} == {"run"}
    assert "run" in GROUPS["run"]


def test_who_is_granted_a_group_gets_no_authority_by_a_name_in_two_groups() -> None:
    # Grants are by name. Were the client's notice of a restart in "basic", whoever holds "basic"
    # could restart the cluster.
    twice = {name for name in NAMES if sum(name in names for names in GROUPS.values()) > 1}
    assert twice == {"close", "gather", "task-erred"}
    for name in twice:
        assert {group for group, names in GROUPS.items() if name in names} == {"basic", "cluster"}
    for group in AUTHORITY:
        for other in set(GROUPS) - {group}:
            assert not GROUPS[group] & GROUPS[other]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.server.value}-{o.name}")
def test_kinds_follow_from_what_a_row_is(operation: Operation) -> None:
    pickled = [e for e in operation.fields.values() if e is not Encoding.NESTED]
    if operation.kind is Kind.ADMIN:
        assert pickled == []
    if pickled:
        assert operation.kind is not Kind.ADMIN
    notice = operation.server is Server.CLIENT and operation.name == "restart"
    if operation.group in AUTHORITY and not notice:
        assert operation.kind is Kind.CONTROL
    if operation.kind is Kind.CONTROL:
        assert operation.group in AUTHORITY | {"cluster"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.server.value}-{o.name}")
def test_streams_and_requests_are_told_apart(operation: Operation) -> None:
    if operation.channel is Channel.RPC:
        assert operation.server is not Server.CLIENT
        assert operation.streams == frozenset()
        assert operation.becomes in (*STATES, "feed", "raw-stream", None)
    else:
        assert operation.streams
        assert operation.streams <= set(STATES)
        assert operation.reply == {}
        assert operation.becomes is None


def test_clients_and_workers_share_no_element_but_the_end_of_the_stream() -> None:
    # Dask keeps one dict of handlers: a client could say task-finished for any worker.
    both = [o.name for o in OPERATIONS if len(o.streams) > 1]
    assert both == ["close-stream"]
    for name in ("task-finished", "task-erred", "add-keys", "steal-response", "log-event"):
        assert row(Server.SCHEDULER, Channel.STREAM, name).streams == {"worker-stream"}
    for name in ("update-graph", "cancel-keys", "client-releases-keys"):
        assert row(Server.SCHEDULER, Channel.STREAM, name).streams == {"client-stream"}


#: Where stock Dask unpickles a field by itself, whatever families it was given.
UNPICKLED_BY_HANDLERS = [
    (Server.SCHEDULER, Channel.RPC, "run_function", "function args kwargs"),
    (Server.SCHEDULER, Channel.RPC, "feed", "function setup teardown"),
    (Server.SCHEDULER, Channel.RPC, "register_scheduler_plugin", "plugin"),
    (Server.SCHEDULER, Channel.RPC, "register_worker_plugin", "plugin"),
    (Server.SCHEDULER, Channel.RPC, "register_nanny_plugin", "plugin"),
    (Server.SCHEDULER, Channel.RPC, "workers_to_close", "key"),
    (Server.SCHEDULER, Channel.RPC, "retire_workers", "key"),
    (Server.SCHEDULER, Channel.RPC, "log_event", "msg.message msg.category"),
    (Server.SCHEDULER, Channel.STREAM, "log-event", "msg.message msg.category"),
    (Server.SCHEDULER, Channel.STREAM, "task-finished", "type"),
    (Server.WORKER, Channel.RPC, "run", "function args kwargs"),
    (Server.WORKER, Channel.RPC, "run_coroutine", "function args kwargs"),
    (Server.WORKER, Channel.RPC, "plugin-add", "plugin"),
    (Server.NANNY, Channel.RPC, "run", "function args kwargs"),
    (Server.NANNY, Channel.RPC, "plugin_add", "plugin"),
    (Server.CLIENT, Channel.STREAM, "key-in-memory", "type"),
    (Server.CLIENT, Channel.STREAM, "event", "event[].message event[].category"),
]


@pytest.mark.parametrize(("server", "channel", "name", "fields"), UNPICKLED_BY_HANDLERS)
def test_fields_that_handlers_unpickle_are_raw(
    server: Server, channel: Channel, name: str, fields: str
) -> None:
    assert row(server, channel, name).fields == dict.fromkeys(fields.split(), Encoding.RAW)


def test_no_other_field_is_raw() -> None:
    raw = {(o.server, o.channel, o.name) for o in OPERATIONS if Encoding.RAW in o.fields.values()}
    assert raw == {key[:3] for key in UNPICKLED_BY_HANDLERS}


def test_what_brings_code_relays_and_opens_shards() -> None:
    replies = {
        (o.name, path) for o in OPERATIONS for path, e in o.reply.items() if e is Encoding.RAW
    }
    brought = {("register-worker", "worker-plugins"), ("register_nanny", "nanny-plugins")}
    assert replies == brought | {("get_task_stream", "[].type")}
    relays = [o.name for o in OPERATIONS if Encoding.NESTED in o.fields.values()]
    assert sorted(relays) == ["broadcast", "proxy"]
    shards = row(Server.WORKER, Channel.RPC, "shuffle_receive")
    assert shards.fields == {"data": Encoding.WRAPPED}


def test_what_a_connection_becomes() -> None:
    becomes = {o.name: o.becomes for o in OPERATIONS if o.server is Server.SCHEDULER and o.becomes}
    assert becomes == {
        "register-client": "client-stream",
        "register-worker": "worker-stream",
        "feed": "feed",
        "subscribe_worker_status": "feed",
        "connection_stream": "raw-stream",
    }


def test_a_client_hands_over_graphs() -> None:
    tasks = {(o.server.value, o.name) for o in OPERATIONS if o.kind is Kind.TASK}
    assert tasks == {
        ("scheduler", "update-graph"),
        ("scheduler", "get_runspec"),
        ("worker", "compute-task"),
    }


def test_rows_cannot_be_changed() -> None:
    fields: Any = row(Server.WORKER, Channel.RPC, "run").fields
    with pytest.raises(TypeError):
        fields["function"] = Encoding.MARKED
    groups: Any = GROUPS
    with pytest.raises(TypeError):
        groups["basic"] = NAMES
