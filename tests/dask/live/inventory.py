"""What there is to cover, by the names of the measured inventory of Dask's protocol.

The one rule: these lists are written out, so that an attack which is lost from the tables is
missed. :data:`ROLES` are all paths from the network to an unpickler, an import or a ``getattr`` in
distributed 2026.8.0, and whose process each is in; for each of both, :data:`SINKS` has the attacks,
or :data:`NOT_LIVE` the reason why there is none.
"""

from __future__ import annotations

__all__ = [
    "CLIENTS",
    "NOT_LIVE",
    "NOT_ON_STOCK",
    "OTHERS",
    "REGISTRATIONS",
    "ROLES",
    "SERVERS",
    "SINKS",
]

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

_ALL = "client scheduler worker nanny"

#: Section 1 of the inventory: each sink by its place, and whose process it is in.
ROLES: dict[str, str] = {
    # 1a, in the codec, before any operation is looked at
    "G1 __Pickled__": _ALL,
    "G2 type-serialized": _ALL,
    "G3 family pickle": _ALL,
    "G4 object arrays": _ALL,
    "G5 void dtypes": _ALL,
    "G6 fill values": _ALL,
    "G7 registered generic": _ALL,
    "G8 nested headers": _ALL,
    "G8b object without init": _ALL,
    "G9 nested in optional libraries": _ALL,
    "G10 cuda": _ALL,
    "G11 files that headers name": _ALL,
    "G12 __Enum__": _ALL,
    "G13 families by name": _ALL,
    "G14 objects out of bytes": _ALL,
    "G15 claimed sizes": _ALL,
    # 1b, in handlers
    "core.clean_exception": _ALL,
    "client stream, status error": "client",
    "client set_error": "client",
    "client key-in-memory": "client",
    "client warn event": "client",
    "client run_function": "client",
    "client broadcast, bytes": "client",
    "client broadcast, exception": "client",
    "client plugin replies": "client",
    "progressbar feed": "client",
    "progressbar feed, exception": "client",
    "shuffle_receive replies": "worker",
    "shuffle_get replies": "worker",
    "scheduler update-graph": "scheduler",
    "scheduler register_scheduler_plugin": "scheduler",
    "scheduler workers_to_close": "scheduler",
    "scheduler feed": "scheduler",
    "scheduler run_function": "scheduler",
    "scheduler, replies to install plugins": "scheduler",
    "worker plugin-add": "worker",
    "run": "worker nanny",
    "nanny plugin_add": "nanny",
    "worker shuffle_receive": "worker",
    "import_file": "worker",
    "actors": "worker",
    "dump_cluster_state_to_url": "scheduler",
    "addresses: gather": "worker",
    "addresses: acquire-replicas": "worker",
    "addresses: refresh-who-has": "worker",
    "addresses: compute-task.who_has": "worker",
    "addresses: register-worker": "scheduler",
    "addresses: Actor._address": "client worker",
}


def _typed(how: str, in_tables: str = "") -> dict[str, tuple[str, ...]]:
    """Return the rows of a trick with a typed header, by role; a scheduler opens one in graphs."""
    return {
        "client": (in_tables,),
        "scheduler": (f"more.scheduler.update-graph.{how}",),
        "worker": (f"more.worker.{how}",),
        "nanny": (f"more.nanny.{how}",),
    }


def _any_op(form: str, client: str, scheduler: str) -> dict[str, tuple[str, ...]]:
    return {
        "client": (client,),
        "scheduler": (scheduler,),
        "worker": (f"worker.any-op.{form}",),
        "nanny": (f"nanny.any-op.{form}",),
    }


#: One decoder in all roles: sent to a worker, with a control in a process of Dask's own.
_EXTREMES = "test_codec_extremes.py::"
_WORST = {"worker": (f"{_EXTREMES}test_no_value_ends_or_fills_a_worker",)}
_GRAPH = "more.scheduler.update-graph."
_SHUFFLES = "test_shuffles_and_plugins.py::test_"
_ASKED = f"{_SHUFFLES}no_server_opens_why_another_failed"
_ELSEWHERE = ("test_registrations.py::test_no_element_has_a_worker_connect_elsewhere",)

_BY_ROLE: dict[str, dict[str, tuple[str, ...]]] = {
    "G1 __Pickled__": _any_op(
        "__Pickled__", "client.reply.__Pickled__", "scheduler.any-op.__Pickled__"
    ),
    "G2 type-serialized": _any_op(
        "Serialized-dask-type", "client.reply.dask-type-serialized", f"{_GRAPH}dask-type"
    ),
    "G3 family pickle": _any_op(
        "Serialized-pickle",
        "client.handshake.Serialized-pickle(no deserializers kw at handshake)",
        "scheduler.update-graph.expr_ser(client stream)",
    ),
    "G4 object arrays": _any_op(
        "numpy-object-array", "client.reply.numpy-object-array", f"{_GRAPH}object-array"
    ),
    "G5 void dtypes": _typed("custom-dtype", "client.reply.numpy-custom-dtype"),
    "G6 fill values": _typed("fill-value", "client.reply.numpy-masked-fill-value"),
    "G7 registered generic": _typed("generic-type", "client.reply.register_generic-dict-type"),
    "G8 nested headers": _typed(
        "generic-nested", "client.reply.register_generic-nested-Serialized-pickle"
    ),
    "G8b object without init": _typed("without-init", "more.reply.without-init"),
    "G10 cuda": _typed("cuda", "more.stream.cuda"),
    "G11 files that headers name": _WORST,
    "G12 __Enum__": {
        "client": ("more.reply.Enum imports", "more.reply.Enum reads"),
        "scheduler": ("scheduler.Enum->echo leaks os.environ", OTHERS[5]),
        "worker": ("worker.Enum->echo leaks os.environ", OTHERS[7]),
        "nanny": ("more.nanny.Enum->echo leaks os.environ", "more.nanny.Enum imports a submodule"),
    },
    "G13 families by name": _WORST,
    "G14 objects out of bytes": _WORST,
    "G15 claimed sizes": {
        **_WORST,
        **dict.fromkeys(
            ("scheduler", "nanny"),
            ("test_strangers.py::test_claims_of_sizes_take_nothing_from_a_server",),
        ),
    },
    "core.clean_exception": {
        "client": ("client.reply.uncaught-error-raw-exception-bytes",),
        **dict.fromkeys(("scheduler", "worker", "nanny"), (_ASKED,)),
    },
    "run": {"worker": ("worker.run", "worker.run_coroutine"), "nanny": ("nanny.run",)},
    "addresses: Actor._address": {
        "client": ("test_clients.py::test_no_actor_has_a_client_connect_elsewhere",),
        "worker": (f"{_SHUFFLES}no_actor_has_a_worker_connect_elsewhere",),
    },
}

_BY_SINK: dict[str, tuple[str, ...]] = {
    "client stream, status error": ("client.stream.status-error",),
    "client set_error": ("client.stream.task-erred.exception-bytes",),
    "client key-in-memory": ("client.stream.key-in-memory.type",),
    "client warn event": ("client.stream.warn-event.message", "client.stream.warn-event.category"),
    "client run_function": ("client.run_on_scheduler.error-exception-bytes",),
    "client broadcast, bytes": ("client.run.broadcast-raw-bytes",),
    "client broadcast, exception": ("more.run.broadcast-error",),
    "client plugin replies": (
        "more.register_worker_plugin",
        "more.register_nanny_plugin",
        "more.unregister_plugin",
    ),
    "progressbar feed": ("client.progressbar.feed.__Pickled__",),
    "shuffle_receive replies": (_ASKED,),
    "shuffle_get replies": (_ASKED,),
    "scheduler update-graph": ("scheduler.update-graph.expr_ser(client stream)",),
    "scheduler register_scheduler_plugin": ("scheduler.register_scheduler_plugin",),
    "scheduler workers_to_close": ("scheduler.workers_to_close.key",),
    "scheduler feed": ("scheduler.feed.setup",),
    "scheduler run_function": ("scheduler.run_function",),
    "scheduler, replies to install plugins": (_ASKED,),
    "worker plugin-add": ("worker.plugin-add", REGISTRATIONS[0]),
    "nanny plugin_add": ("nanny.plugin_add", REGISTRATIONS[1]),
    "worker shuffle_receive": (f"{_SHUFFLES}shards_are_opened_by_nobody_but_safeser",),
    "import_file": ("worker.upload_file(msgpack only)",),
    "actors": ("worker.actor_execute.args", "more.worker.actor_attribute"),
    "dump_cluster_state_to_url": (OTHERS[8],),
    "addresses: gather": ("worker.gather(who_has=attacker tcp) SSRF pull",),
    "addresses: acquire-replicas": _ELSEWHERE,
    "addresses: refresh-who-has": _ELSEWHERE,
    "addresses: compute-task.who_has": _ELSEWHERE,
    "addresses: register-worker": ("test_streams.py::test_no_address_of_a_worker_leads_elsewhere",),
}

#: Attacks that take a sink, by it and by whose process it is in: rows, or a test of a file.
SINKS: dict[tuple[str, str], tuple[str, ...]] = {
    **{(sink, role): rows for sink, by in _BY_ROLE.items() for role, rows in by.items()},
    **{(sink, ROLES[sink]): rows for sink, rows in _BY_SINK.items()},
}

_LIBRARIES = "netCDF4, keras, torch and sparse are not installed: Dask registers none of it"
_SAME = "the decoder is the worker's, which is sent it; by itself it runs in a process of its own"

#: What is attacked in no process of that role, and why.
NOT_LIVE: dict[tuple[str, str], str] = {
    **{("G9 nested in optional libraries", role): _LIBRARIES for role in _ALL.split()},
    **{
        (sink, role): _SAME
        for sink in (
            "G11 files that headers name",
            "G13 families by name",
            "G14 objects out of bytes",
        )
        for role in ("client", "scheduler", "nanny")
    },
    ("G15 claimed sizes", "client"): _SAME,
    ("progressbar feed, exception", "client"): "ipywidgets is not installed, which alone opens it",
}

_OPAQUE = "a scheduler passes on what it is not told to open"
_FAMILIES = "the client asked for other families, and a reply heeds that"

#: Which controls are there to show that stock Dask runs nothing either, and why.
NOT_ON_STOCK: dict[str, str] = {
    "scheduler.handshake.Serialized-dask-type": _OPAQUE,
    "scheduler.any-op.Serialized-pickle": _OPAQUE,
    "scheduler.any-op.Serialized-dask-type": _OPAQUE,
    "scheduler.any-op.numpy-object-array": _OPAQUE,
    "scheduler.Enum imports arbitrary dask/distributed submodule (distributed.bokeh)": "no module",
    "worker.Enum imports arbitrary dask/distributed submodule (distributed.bokeh)": "no module",
    OTHERS[0]: "the scheduler's own configuration refuses it",
    "client.reply.Serialized-pickle(control)": _FAMILIES,
    "client.reply.collection-nested-pickle(control)": _FAMILIES,
    "client.reply.cuda-family(control)": _FAMILIES,
    "reply to a scheduler": "it raises the text that the reply has beside the exception",
}
