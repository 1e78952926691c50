"""What a worker handles.

The one rule: one row for each handler that a running worker registers, its plugin for shuffles
included, and one for each operation of safeser's own.
"""

from __future__ import annotations

from functools import partial

from safeser.operations.operation import Channel, Encoding, Operation, Server, payload, plain
from safeser.values import Kind

__all__ = ["WORKER"]

_RPC = partial(Operation, Server.WORKER, Channel.RPC)
_plain_rpc = partial(plain, Server.WORKER, Channel.RPC)

#: The one stream that a worker reads is the one that it opened to its scheduler.
_FROM_SCHEDULER = frozenset({"worker-stream"})
_STREAM = partial(Operation, Server.WORKER, Channel.STREAM, streams=_FROM_SCHEDULER)

_CODE = payload(Encoding.RAW, "function args kwargs")
_RESULT = payload(Encoding.MARKED, "result")

_REQUESTS = (
    *_plain_rpc("basic", "identity versions ping keys"),
    _RPC("close", Kind.ADMIN, "basic", inline=True, note="ends this connection only"),
    _RPC(
        "get_data",
        Kind.DATA,
        "basic",
        reply=payload(Encoding.MARKED, "data"),
        bulk=True,
        note="the asker answers the reply with OK",
    ),
    _RPC("update_data", Kind.DATA, "basic", fields=payload(Encoding.MARKED, "data")),
    # --- between the parts of a cluster ---------------------------------------------------------
    *_plain_rpc("cluster", "free_keys shuffle_inputs_done"),
    _RPC(
        "gather",
        Kind.DATA,
        "cluster",
        note="who_has names addresses, schemes included, that the worker fetches from",
    ),
    _RPC(
        "shuffle_receive",
        Kind.DATA,
        "cluster",
        fields=payload(Encoding.WRAPPED, "data"),
        bulk=True,
        note="small shards are one pickle in bytes, which the handler opens with plain pickle",
    ),
    # --- looking inside -------------------------------------------------------------------------
    *_plain_rpc("diagnose", "get_logs get_story get_monitor_info call_stack dump_state"),
    *_plain_rpc("diagnose", "profile profile_metadata"),
    _RPC(
        "serialization_counts",
        Kind.ADMIN,
        "diagnose",
        inline=True,
        note="safeser's own: how much this process serialized, for safeser.trace_serialization",
    ),
    # --- code and authority ---------------------------------------------------------------------
    _RPC("run", Kind.CONTROL, "run", fields=_CODE, reply=_RESULT),
    _RPC("run_coroutine", Kind.CONTROL, "run", fields=_CODE, reply=_RESULT),
    _RPC("plugin-add", Kind.CONTROL, "plugins", fields=payload(Encoding.RAW, "plugin")),
    _RPC("plugin-remove", Kind.CONTROL, "plugins"),
    _RPC(
        "upload_file",
        Kind.CONTROL,
        "files",
        note="writes to a path of the sender's choice and imports it, in plain msgpack",
    ),
    _RPC(
        "actor_execute",
        Kind.CONTROL,
        "actors",
        fields=payload(Encoding.MARKED, "args kwargs"),
        reply=payload(Encoding.MARKED, "result exception"),
        note="calls any attribute of an actor, with the sender's arguments",
    ),
    _RPC(
        "actor_attribute",
        Kind.CONTROL,
        "actors",
        reply=payload(Encoding.MARKED, "result exception"),
        note="reads any attribute of an actor",
    ),
    *_plain_rpc("control", "terminate", kind=Kind.CONTROL),
    _RPC("benchmark_disk", Kind.CONTROL, "benchmark", note="writes files"),
    _RPC("benchmark_memory", Kind.CONTROL, "benchmark", note="copies large buffers"),
    _RPC("benchmark_network", Kind.CONTROL, "benchmark", note="connects to the address it is told"),
    _RPC("echo", Kind.CONTROL, "debug", note="replies with its decoded argument"),
    _RPC(
        "connection_stream",
        Kind.CONTROL,
        "debug",
        becomes="raw-stream",
        note="every stream operation, compute-task included, for any peer that connects",
    ),
)

_ELEMENTS = (
    *plain(
        Server.WORKER,
        Channel.STREAM,
        "cluster",
        "free-keys remove-replicas steal-request cancel-compute worker-status-change"
        " remove-worker shuffle-fail",
        streams=_FROM_SCHEDULER,
    ),
    _STREAM("acquire-replicas", Kind.ADMIN, "cluster", note="who_has names addresses"),
    _STREAM("refresh-who-has", Kind.ADMIN, "cluster", note="who_has names addresses"),
    _STREAM(
        "compute-task",
        Kind.TASK,
        "cluster",
        fields=payload(Encoding.MARKED, "run_spec"),
        note="pickled anew by the scheduler; who_has names addresses",
    ),
    _STREAM(
        "statement-renewed",
        Kind.TASK,
        "cluster",
        inline=True,
        note="safeser's own: a renewed statement of a graph, whose tasks the worker may have",
    ),
    _STREAM("close", Kind.CONTROL, "cluster", note="shuts the worker down"),
    _STREAM("close-stream", Kind.ADMIN, "basic", inline=True, note="ends this stream only"),
)

WORKER = (*_REQUESTS, *_ELEMENTS)
