"""What there is to cover, by the names of the measured inventory of Dask's protocol.

The one rule: these lists are written out, so that an attack which is lost from the tables is
missed. :data:`SINKS` are all paths from the network to an unpickler, an import or a ``getattr`` in
distributed 2026.8.0, each with the attacks that take it.
"""

from __future__ import annotations

__all__ = ["CLIENTS", "OTHERS", "REGISTRATIONS", "SERVERS", "SINKS"]

_EVERY = ("__Pickled__", "Serialized-pickle", "Serialized-dask-type", "numpy-object-array")

#: Towards schedulers, workers and nannies: 50.
SERVERS = (
    *(
        f"{who}.handshake.{form}"
        for who in ("scheduler", "worker", "nanny")
        for form in ("__Pickled__", "Serialized-dask-type")
    ),
    *(f"{who}.any-op.{form}" for who in ("scheduler", "worker", "nanny") for form in _EVERY),
    "scheduler.run_function",
    "scheduler.feed.setup",
    "scheduler.register_scheduler_plugin",
    "scheduler.workers_to_close.key",
    "scheduler.update-graph.expr_ser(client stream)",
    "scheduler.client-stream.__Pickled__",
    "scheduler.connection_stream->update-graph(no client registration)",
    "scheduler.register_worker_plugin->worker",
    "scheduler.broadcast>run->worker",
    "scheduler.broadcast>run->nanny",
    "scheduler.proxy>run->worker",
    "scheduler.proxy>nested Serialized->worker",
    "scheduler.scatter->worker update_data",
    "scheduler.broadcast>upload_file->worker (msgpack only)",
    "scheduler.Enum->echo leaks os.environ",
    "scheduler.Enum->echo leaks dask.config.config",
    "scheduler.Enum imports arbitrary dask/distributed submodule (distributed.bokeh)",
    "worker.Enum->echo leaks os.environ",
    "worker.Enum->echo leaks dask.config.config",
    "worker.Enum imports arbitrary dask/distributed submodule (distributed.bokeh)",
    "worker.run",
    "worker.run_coroutine",
    "worker.plugin-add",
    "worker.update_data.Serialized-pickle",
    "worker.actor_execute.args",
    "worker.upload_file(msgpack only)",
    "worker.connection_stream->compute-task.run_spec",
    "worker.gather(who_has=attacker tcp) SSRF pull",
    "scheduler.fake-worker reply to broadcast -> scheduler",
    "scheduler.worker-stream.__Pickled__",
    "nanny.run",
    "nanny.plugin_add",
)

#: Towards clients: 33.
CLIENTS = (
    "client.Queue.get.__Pickled__",
    "client.gather(direct).worker-get_data",
    "client.gather.numpy-object-array",
    "client.get_dataset.object-array",
    "client.get_events.__Pickled__",
    "client.handshake.Serialized-dask-type",
    "client.handshake.Serialized-pickle(no deserializers kw at handshake)",
    "client.handshake.__Pickled__",
    "client.progressbar.feed.__Pickled__",
    "client.recreate_task.get_runspec",
    "client.reply.Serialized-pickle(control)",
    "client.reply.__Pickled__",
    "client.reply.collection-nested-pickle(control)",
    "client.reply.cuda-family(control)",
    "client.reply.dask-type-serialized",
    "client.reply.numpy-custom-dtype",
    "client.reply.numpy-masked-fill-value",
    "client.reply.numpy-object-array",
    "client.reply.register_generic-dict-type",
    "client.reply.register_generic-nested-Serialized-pickle",
    "client.reply.uncaught-error-raw-exception-bytes",
    "client.reply.uncaught-error-raw-traceback-bytes",
    "client.run.broadcast-raw-bytes",
    "client.run_on_scheduler.error-exception-bytes",
    "client.stream.Serialized-dask-type",
    "client.stream.Serialized-pickle(no deserializers kw on stream)",
    "client.stream.__Pickled__ in event",
    "client.stream.key-in-memory.type",
    "client.stream.status-error",
    "client.stream.task-erred.exception-bytes",
    "client.stream.task-erred.traceback-bytes",
    "client.stream.warn-event.category",
    "client.stream.warn-event.message",
)

#: Blocked handlers, ``__Enum__``, plain msgpack, poisoning, hostile schedulers: 13, of which two
#: are told to who registers, in ``test_registrations.py``, and poisoning is in
#: ``test_key_conflicts.py``.
REGISTRATIONS = (
    "worker.register-worker reply worker-plugins",
    "nanny.register_nanny reply nanny-plugins",
)
POISONING = "pure-key poisoning: other client pre-submits same key with different func"
OTHERS = (
    "blocked.run_function op itself",
    "blocked-handlers bypass: __Pickled__ in a blocked op's body",
    "blocked-handlers bypass: proxy>run (same code path as broadcast)",
    "blocked-handlers bypass: stream handler update-graph",
    "scheduler.Enum->echo raw reply contains target-only env secret",
    "scheduler.Enum imports not-yet-imported submodule distributed.cli.dask_ssh",
    "worker.Enum->echo raw reply contains target-only env secret",
    "worker.Enum imports not-yet-imported submodule distributed.cli.dask_ssh",
    "scheduler.dump_cluster_state_to_url writes attacker-chosen file (msgpack only)",
    "worker.upload_file path traversal (load=False)",
)

#: Downgrade: 2. The first is the row of ``gather`` on a cluster of safeser's, which every role
#: sends; the second is what a stranger says to its ports.
DOWNGRADE = {
    "downgrade.worker.gather pulled from plain-tcp attacker in safeser cluster": (
        "worker.gather(who_has=attacker tcp) SSRF pull",
    ),
    "hardened(HMAC) listener: unsigned handshake pickle": ("scheduler.handshake.__Pickled__",),
}

#: Section 1 of the inventory: each sink by its place, and attacks that take it. What no attack here
#: can take names the test that does.
SINKS: dict[str, tuple[str, ...]] = {
    # 1a, in the codec, before any operation is looked at
    "G1 __Pickled__": ("scheduler.any-op.__Pickled__", "client.reply.__Pickled__"),
    "G2 type-serialized": (
        "worker.any-op.Serialized-dask-type",
        "client.reply.dask-type-serialized",
    ),
    "G3 family pickle": ("worker.any-op.Serialized-pickle", CLIENTS[6]),
    "G4 object arrays": ("worker.any-op.numpy-object-array", "client.reply.numpy-object-array"),
    "G5 void dtypes": ("client.reply.numpy-custom-dtype",),
    "G6 fill values": ("client.reply.numpy-masked-fill-value",),
    "G7 registered generic": ("client.reply.register_generic-dict-type",),
    "G8 nested headers": ("client.reply.register_generic-nested-Serialized-pickle",),
    "G8b object without init": ("client.reply.register_generic-dict-type",),
    "G9 nested in optional libraries": ("client.reply.register_generic-nested-Serialized-pickle",),
    "G10 cuda": ("client.reply.cuda-family(control)",),
    "G11 files that headers name": ("test_codec_extremes",),
    "G12 __Enum__": ("scheduler.Enum->echo leaks os.environ", "worker.Enum->echo leaks os.environ"),
    "G13 families by name": ("test_codec_extremes",),
    "G14 objects out of bytes": ("test_codec_extremes",),
    "G15 claimed sizes": ("test_codec_extremes",),
    # 1b, in handlers
    "core.clean_exception": ("client.reply.uncaught-error-raw-exception-bytes",),
    "client stream, status error": ("client.stream.status-error",),
    "client set_error": ("client.stream.task-erred.exception-bytes",),
    "client key-in-memory": ("client.stream.key-in-memory.type",),
    "client warn event": ("client.stream.warn-event.message",),
    "client run_function": ("client.run_on_scheduler.error-exception-bytes",),
    "client broadcast, bytes": ("client.run.broadcast-raw-bytes",),
    "client broadcast, exception": ("more.run.broadcast-error",),
    "client plugin replies": (
        "more.register_worker_plugin",
        "more.register_nanny_plugin",
        "more.unregister_plugin",
    ),
    "progressbar feed": ("client.progressbar.feed.__Pickled__",),
    "shuffle replies": ("test_shuffles_and_plugins",),
    "scheduler update-graph": ("scheduler.update-graph.expr_ser(client stream)",),
    "scheduler register_scheduler_plugin": ("scheduler.register_scheduler_plugin",),
    "scheduler workers_to_close": ("scheduler.workers_to_close.key",),
    "scheduler feed": ("scheduler.feed.setup",),
    "scheduler run_function": ("scheduler.run_function",),
    "scheduler, replies to install plugins": ("test_shuffles_and_plugins",),
    "worker plugin-add": ("worker.plugin-add", REGISTRATIONS[0]),
    "worker run": ("worker.run", "worker.run_coroutine"),
    "nanny run": ("nanny.run",),
    "nanny plugin_add": ("nanny.plugin_add", REGISTRATIONS[1]),
    "worker shuffle_receive": ("test_shuffles_and_plugins",),
    "import_file": ("worker.upload_file(msgpack only)",),
    "actors": ("worker.actor_execute.args",),
    "dump_cluster_state_to_url": (OTHERS[8],),
    "addresses": ("worker.gather(who_has=attacker tcp) SSRF pull",),
}
