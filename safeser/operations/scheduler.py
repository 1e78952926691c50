"""What the scheduler handles.

The one rule: one row for each handler that a running scheduler registers, extensions included, and
one for each operation of safeser's own.
"""

from __future__ import annotations

from functools import partial

from safeser.operations.operation import Channel, Encoding, Operation, Server, payload, plain
from safeser.values import Kind

__all__ = ["SCHEDULER"]

_RPC = partial(Operation, Server.SCHEDULER, Channel.RPC)
_STREAM = partial(Operation, Server.SCHEDULER, Channel.STREAM)
_plain_rpc = partial(plain, Server.SCHEDULER, Channel.RPC)
_plain_stream = partial(plain, Server.SCHEDULER, Channel.STREAM)

_FROM_CLIENTS = frozenset({"client-stream"})
_FROM_WORKERS = frozenset({"worker-stream"})

_CODE = payload(Encoding.RAW, "function args kwargs")
_WARNING = payload(Encoding.RAW, "msg.message msg.category")
_FAILED_FUTURE = payload(Encoding.ERROR, "exception traceback")
_EVERYBODYS_ERRORS = payload(Encoding.ERROR, "*.exception *.traceback")

#: Since this release a request about datasets names several and waits for the client's stream by
#: itself, and a part of the task stream is asked for by index.
_SEVERAL_DATASETS = "2026.6.0"

_REQUESTS = (
    # --- what any client or worker needs daily --------------------------------------------------
    *_plain_rpc("basic", "identity versions who_has has_what nbytes ncores ncores_running"),
    *_plain_rpc("basic", "processing retry rebalance replicate update_data"),
    *_plain_rpc("basic", "publish_list publish_delete queue_create queue_qsize"),
    *_plain_rpc("basic", "event_set event_wait event_clear event_is_set"),
    *_plain_rpc("basic", "multi_lock_acquire multi_lock_release"),
    *_plain_rpc("basic", "semaphore_register semaphore_acquire semaphore_release semaphore_close"),
    *_plain_rpc("basic", "semaphore_refresh_leases semaphore_value"),
    *_plain_rpc("basic", "memory_sampler_start memory_sampler_stop"),
    # Values of users in plain msgpack: data, though nothing in them needs a family.
    *_plain_rpc("basic", "set_metadata get_metadata events", kind=Kind.DATA),
    *_plain_rpc("basic", "queue_put variable_set", kind=Kind.DATA),
    _RPC(
        "amm_running",
        Kind.ADMIN,
        "basic",
        wire="amm_handler",
        note="tells whether the active memory manager runs; its handler looks up what it is told",
    ),
    _RPC(
        "close",
        Kind.ADMIN,
        "basic",
        inline=True,
        note="ends this connection only; the server loop answers OK and leaves",
    ),
    _RPC(
        "register-client",
        Kind.ADMIN,
        "basic",
        becomes="client-stream",
        note="first element back is stream-start; any process can be a client, workers too",
    ),
    _RPC(
        "queue_get",
        Kind.DATA,
        "basic",
        reply={**_FAILED_FUTURE, **payload(Encoding.ERROR, "[].exception [].traceback")},
        note="errors of failed futures; a list of records if a batch was asked for",
    ),
    _RPC("variable_get", Kind.DATA, "basic", reply=_FAILED_FUTURE),
    _RPC(
        "log_event",
        Kind.DATA,
        "basic",
        fields=_WARNING,
        note="every client that subscribes to topic warn unpickles message and category",
    ),
    _RPC("gather", Kind.DATA, "basic", reply=payload(Encoding.MARKED, "data")),
    _RPC("scatter", Kind.DATA, "basic", fields=payload(Encoding.MARKED, "data")),
    _RPC("publish_put", Kind.DATA, "basic", fields=payload(Encoding.MARKED, "data")),
    _RPC(
        "publish_get",
        Kind.DATA,
        "basic",
        reply=payload(Encoding.MARKED, "data"),
        until=_SEVERAL_DATASETS,
    ),
    _RPC(
        "publish_get",
        Kind.DATA,
        "basic",
        reply=payload(Encoding.MARKED, "[].data"),
        since=_SEVERAL_DATASETS,
    ),
    _RPC(
        "publish_wait_flush",
        Kind.ADMIN,
        "basic",
        until=_SEVERAL_DATASETS,
        note="waits until the client's stream has brought the same uid",
    ),
    _RPC(
        "broadcast",
        Kind.ADMIN,
        "basic",
        fields=payload(Encoding.NESTED, "msg"),
        reply=payload(Encoding.NESTED, "*"),
        note="relays msg to workers, or to nannies if the field nanny is true; an error of one of"
        " them may stand in place of its reply, as bare pickled bytes",
    ),
    _RPC(
        "proxy",
        Kind.ADMIN,
        "basic",
        fields=payload(Encoding.NESTED, "msg"),
        reply={"": Encoding.NESTED},
        note="relays msg to one worker",
    ),
    # --- between the parts of a cluster ---------------------------------------------------------
    *_plain_rpc("cluster", "shuffle_barrier shuffle_restrict_task"),
    *_plain_rpc("cluster", "heartbeat_worker add_keys", bulk=True),
    _RPC(
        "register-worker",
        Kind.ADMIN,
        "cluster",
        reply=payload(Encoding.RAW, "worker-plugins"),
        becomes="worker-stream",
        bulk=True,
        note="address and nanny name what the scheduler will connect to; always replies with one"
        " pickled plugin for shuffles",
    ),
    _RPC(
        "register_nanny",
        Kind.ADMIN,
        "cluster",
        reply=payload(Encoding.RAW, "nanny-plugins"),
        note="the nanny answers the reply with one more message",
    ),
    _RPC("unregister", Kind.CONTROL, "cluster", note="removes any worker by its address"),
    _RPC(
        "subscribe_worker_status",
        Kind.ADMIN,
        "cluster",
        becomes="feed",
        note="cluster managers; pairs such as ['add', {...}] follow the reply",
    ),
    _RPC("shuffle_get", Kind.DATA, "cluster", reply=payload(Encoding.MARKED, "run_spec")),
    _RPC("shuffle_get_or_create", Kind.DATA, "cluster", reply=payload(Encoding.MARKED, "run_spec")),
    # --- looking inside -------------------------------------------------------------------------
    *_plain_rpc("diagnose", "logs get_logs worker_logs get_story call_stack profile"),
    *_plain_rpc("diagnose", "dump_state get_cluster_state performance_report check_idle"),
    *_plain_rpc("diagnose", "get_task_status get_task_prefix_states"),
    _RPC("get_task_stream_index", Kind.ADMIN, "diagnose", since=_SEVERAL_DATASETS),
    *_plain_rpc("diagnose", "start_task_metadata stop_task_metadata get_error_cause"),
    _RPC(
        "serialization_counts",
        Kind.ADMIN,
        "diagnose",
        inline=True,
        note="safeser's own: how much this process serialized, for safeser.trace_serialization",
    ),
    _RPC(
        "get_task_stream",
        Kind.DATA,
        "diagnose",
        reply=payload(Encoding.RAW, "[].type"),
        note="passes on the type that workers reported",
    ),
    _RPC(
        "get_runspec",
        Kind.TASK,
        "diagnose",
        reply={"": Encoding.MARKED},
        note="replies with the task itself, which the client runs to replay it",
    ),
    # --- code and authority ---------------------------------------------------------------------
    _RPC(
        "run_function",
        Kind.CONTROL,
        "run",
        fields=_CODE,
        reply=payload(Encoding.MARKED, "result"),
    ),
    _RPC(
        "feed",
        Kind.CONTROL,
        "run",
        fields=payload(Encoding.RAW, "function setup teardown"),
        becomes="feed",
        note="runs function over and over; progress bars of stock clients use it",
    ),
    _RPC(
        "register_scheduler_plugin",
        Kind.CONTROL,
        "plugins",
        fields=payload(Encoding.RAW, "plugin"),
    ),
    *(
        _RPC(
            name,
            Kind.CONTROL,
            "plugins",
            fields=payload(Encoding.RAW, "plugin"),
            reply=_EVERYBODYS_ERRORS,
            note="kept, and sent to every worker or nanny that registers later",
        )
        for name in ("register_worker_plugin", "register_nanny_plugin")
    ),
    *(
        _RPC(name, Kind.CONTROL, "plugins", reply=_EVERYBODYS_ERRORS)
        for name in ("unregister_worker_plugin", "unregister_nanny_plugin")
    ),
    _RPC("unregister_scheduler_plugin", Kind.CONTROL, "plugins"),
    _RPC(
        "dump_cluster_state_to_url",
        Kind.CONTROL,
        "files",
        note="writes to whatever path or URL fsspec knows, in plain msgpack",
    ),
    *_plain_rpc("control", "restart restart_workers terminate", kind=Kind.CONTROL),
    *_plain_rpc("control", "adaptive_target set_resources set_restrictions", kind=Kind.CONTROL),
    _RPC(
        "amm_handler",
        Kind.CONTROL,
        "control",
        note="starts or stops the active memory manager, or has it move and drop copies once",
    ),
    _RPC("workers_to_close", Kind.CONTROL, "control", fields=payload(Encoding.RAW, "key")),
    _RPC(
        "retire_workers",
        Kind.CONTROL,
        "control",
        fields=payload(Encoding.RAW, "key"),
        note="without workers or names, hands its other fields to workers_to_close: key included",
    ),
    _RPC("benchmark_hardware", Kind.CONTROL, "benchmark", note="loads disk, memory and network"),
    _RPC("echo", Kind.CONTROL, "debug", note="replies with its decoded argument"),
    _RPC(
        "connection_stream",
        Kind.CONTROL,
        "debug",
        becomes="raw-stream",
        note="every stream operation without registration, past blocked handlers",
    ),
)

_ELEMENTS = (
    # --- from clients ---------------------------------------------------------------------------
    *_plain_stream(
        "basic",
        "heartbeat-client close-client cancel-keys report-key update-data subscribe-topic"
        " unsubscribe-topic publish_flush_batched_send queue-future-release queue_release"
        " variable-future-received-confirm variable_delete",
        streams=_FROM_CLIENTS,
    ),
    *_plain_stream(
        "basic",
        "client-desires-keys client-releases-keys",
        streams=_FROM_CLIENTS,
        splits="keys",
    ),
    _STREAM(
        "update-graph",
        Kind.TASK,
        "basic",
        fields=payload(Encoding.MARKED, "expr_ser code annotations span_metadata"),
        streams=_FROM_CLIENTS,
        bulk=True,  # also where it is refused: its keys have to be failed
        note="the scheduler's handler opens expr_ser by itself, whatever families it was given",
    ),
    _STREAM(
        "renew-statement",
        Kind.TASK,
        "basic",
        streams=_FROM_CLIENTS,
        inline=True,
        note="safeser's own: the statement of a sealed graph, signed anew by its author",
    ),
    # --- from workers ---------------------------------------------------------------------------
    *_plain_stream(
        "cluster",
        "keep-alive release-worker-data long-running reschedule steal-response"
        " worker-status-change",
        streams=_FROM_WORKERS,
    ),
    *_plain_stream("cluster", "add-keys request-refresh-who-has", streams=_FROM_WORKERS, bulk=True),
    _STREAM(
        "task-finished",
        Kind.DATA,
        "cluster",
        fields=payload(Encoding.RAW, "type"),
        streams=_FROM_WORKERS,
        note="type is passed on to clients, who unpickle it; typename says the same as text",
    ),
    _STREAM(
        "task-erred",
        Kind.DATA,
        "cluster",
        fields=_FAILED_FUTURE,
        streams=_FROM_WORKERS,
        note="passed on unopened to the clients that wait for the task",
    ),
    _STREAM(
        "log-event",
        Kind.DATA,
        "cluster",
        fields=_WARNING,
        streams=_FROM_WORKERS,
        note="every client that subscribes to topic warn unpickles message and category",
    ),
    # --- from both ------------------------------------------------------------------------------
    _STREAM(
        "close-stream",
        Kind.ADMIN,
        "basic",
        streams=_FROM_CLIENTS | _FROM_WORKERS,
        inline=True,
        note="ends this stream only",
    ),
)

SCHEDULER = (*_REQUESTS, *_ELEMENTS)
