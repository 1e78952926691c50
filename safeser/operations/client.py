"""What a client handles: elements of the stream that the scheduler writes to it.

The one rule: one row for each handler of a client and for each element that its loop handles
itself. A client answers no requests.
"""

from __future__ import annotations

from functools import partial

from safeser.operations.operation import Channel, Encoding, Operation, Server, payload, plain
from safeser.values import Kind

__all__ = ["CLIENT"]

_FROM_SCHEDULER = frozenset({"client-stream"})
_STREAM = partial(Operation, Server.CLIENT, Channel.STREAM, streams=_FROM_SCHEDULER)

CLIENT = (
    *plain(
        Server.CLIENT,
        Channel.STREAM,
        "basic",
        "lost-data cancelled-keys task-retried adjust-heartbeat-interval",
        streams=_FROM_SCHEDULER,
    ),
    _STREAM(
        "key-in-memory",
        Kind.DATA,
        "basic",
        fields=payload(Encoding.RAW, "type"),
        note="type was written by the worker that ran the task",
    ),
    _STREAM(
        "task-erred",
        Kind.DATA,
        "basic",
        fields=payload(Encoding.ERROR, "exception traceback"),
        note="written by the worker that ran the task",
    ),
    _STREAM("error", Kind.DATA, "basic", fields=payload(Encoding.ERROR, "exception")),
    _STREAM(
        "event",
        Kind.DATA,
        "basic",
        fields=payload(Encoding.RAW, "event[].message event[].category"),
        note="opened for topic warn, which clients subscribe to by default; any client or worker"
        " may have written it",
    ),
    # The scheduler's request of the same name is authority, and grants are by name: a policy that
    # lets clients hear of a restart names it for messages to clients alone.
    _STREAM("restart", Kind.ADMIN, "control", note="futures are cancelled; carries nothing"),
    _STREAM(
        "stream-start",
        Kind.ADMIN,
        "basic",
        inline=True,
        note="the first element of the stream, in a batch of its own",
    ),
    _STREAM("close", Kind.ADMIN, "basic", inline=True, note="ends the client's report loop"),
    _STREAM("stream-closed", Kind.ADMIN, "basic", inline=True, note="the same as close"),
)
