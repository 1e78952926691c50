"""What differs between rows of the table and the handlers that live servers register."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from safeser.operations import ENVELOPE, Channel, Operation, Server

Place = tuple[Server, Channel, str]

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

#: Handlers that ignore the fields that they have no use for, or pass them to fsspec.
_IGNORING = {
    (Server.SCHEDULER, Channel.RPC, "feed"),
    (Server.SCHEDULER, Channel.RPC, "dump_cluster_state_to_url"),
    (Server.SCHEDULER, Channel.RPC, "get_error_cause"),
    (Server.SCHEDULER, Channel.RPC, "get_runspec"),
    (Server.SCHEDULER, Channel.STREAM, "keep-alive"),
}

#: Before 2026.6.0, with the ``client`` that each element of a client's stream gets.
_FLUSHING = (Server.SCHEDULER, Channel.STREAM, "publish_flush_batched_send")

#: Parameters that no peer fills in.
_NOT_FIELDS = frozenset({"comm", "args", "kwargs", "msg"})


def differences(operations: Iterable[Operation], live: dict[str, Any]) -> Iterator[str]:
    """Yield, as text, each difference between *operations* and what is *live*.

    :param live: what ``registered.py`` printed.
    """
    rows = tuple(operations)
    yield from _unlisted(rows, live)
    for row in rows:
        said = f"{row.server.value} {row.channel.value} {row.name}"
        if row.inline == (row.wire in _table(live, row.server, row.channel)):
            yield f"{said}: in the table, but not registered, or inline and registered"
        elif not row.inline:
            yield from (f"{said}: {problem}" for problem in _fields(row, live))
    if live["close"] != dict.fromkeys(("scheduler", "worker", "nanny"), "OK"):
        yield "a server does not answer close"
    if [element["op"] for element in live["first"]] != ["stream-start"]:
        yield "a client is not greeted first"


#: Fields that safeser adds to Dask's: whose the values are that a worker gets, has or asks for.
OWN = {
    (Server.SCHEDULER, Channel.STREAM, "add-keys"): {"author", "authors"},
    (Server.WORKER, Channel.RPC, "get_data"): {"author", "authors"},
    (Server.WORKER, Channel.RPC, "gather"): {"authors"},
    (Server.WORKER, Channel.RPC, "update_data"): {"author"},
    (Server.WORKER, Channel.STREAM, "acquire-replicas"): {"authors"},
    (Server.WORKER, Channel.STREAM, "compute-task"): {"author", "authors"},
}


def _unlisted(rows: tuple[Operation, ...], live: dict[str, Any]) -> Iterator[str]:
    known = {_place(row) for row in rows}
    for server in Server:
        for channel in Channel:
            for name, handler in _table(live, server, channel).items():
                place = (server, channel, name)
                if place not in known:
                    yield f"{server.value} {channel.value} {name}: not in the table"
                # Such a handler may pass a field on to one that unpickles it.
                if handler["any"] and place not in {*HANDED_ON, *SWALLOWED, *_IGNORING, _FLUSHING}:
                    yield f"{server.value} {channel.value} {name}: takes any field"


def _fields(row: Operation, live: dict[str, Any]) -> Iterator[str]:
    taken = _taken(row, live)
    listed = set(row.takes) - set(ENVELOPE)
    if listed != taken:
        yield f"it lacks {sorted(taken - listed)}, and no handler takes {sorted(listed - taken)}"
    if _place(row) in SWALLOWED:
        return
    reader = set(_handler(live, HANDED_ON.get(_place(row), _place(row)))["names"])
    for path in row.fields:
        if path.partition(".")[0].removesuffix("[]") not in reader:
            yield f"{path} is no field of its handler"


def _taken(row: Operation, live: dict[str, Any]) -> set[str]:
    """Return what the handler takes, or what honest peers send where it takes any field."""
    place = _place(row)
    if place in SWALLOWED:
        return set(live["sent"][row.name])
    handler = _handler(live, place)
    names = set(handler["names"])
    if handler["any"]:
        names -= _NOT_FIELDS | {"storage_options"}
    if place == _FLUSHING:
        names |= {"client"}
    if row.name == "publish_list":
        names -= {"args"}
    if place == (Server.SCHEDULER, Channel.RPC, "dump_cluster_state_to_url"):
        names |= {"*"}
    if place == (Server.SCHEDULER, Channel.STREAM, "keep-alive"):
        names |= {"worker"}  # that of the stream
    if place == (Server.SCHEDULER, Channel.STREAM, "report-key"):
        names -= {"ts"}  # for callers inside the scheduler
    names |= OWN.get(place, set())
    if place in HANDED_ON:
        names |= set(_handler(live, HANDED_ON[place])["names"])
    return names - {"comm"} - set(ENVELOPE)


def _place(row: Operation) -> Place:
    return row.server, row.channel, row.wire


def _table(live: dict[str, Any], server: Server, channel: Channel) -> dict[str, Any]:
    found: dict[str, Any] = live["handlers"][server.value][channel.value]
    return found


def _handler(live: dict[str, Any], place: Place) -> dict[str, Any]:
    server, channel, name = place
    found: dict[str, Any] = _table(live, server, channel)[name]
    return found
