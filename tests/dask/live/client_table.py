"""The attacks on a client, one row for each class and each place that it unpickles in.

The one rule: a row is what a client does, and the one answer or stream element that it gets. The
stock client of the controls was given ``deserializers=['dask', 'msgpack']``.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from tests.dask.live.payloads import Evil, Here

__all__ = ["CLIENT_ROWS", "Told"]


@dataclass(frozen=True, slots=True)
class Told:
    """One attack on a client.

    :param does: what the client is about to do, by its name in ``victim.py``.
    :param op: the request that is answered so; ``stream`` for an element of the client's stream,
        ``greet`` for Dask's handshake.
    :param say: the answer.
    :param effect: what shows that: ``ran`` and ``wrote`` (a marker), ``imported``, or ``read`` (the
        answer is what one of the client's modules holds).
    """

    name: str
    does: str
    op: str
    say: Any
    effect: str = "ran"


def _reply(name: str, how: str) -> Told:
    return Told(f"client.reply.{name}", "metadata", "get_metadata", Evil(how))


def _element(name: str, say: dict[str, Any], kind: str = "client.stream") -> Told:
    return Told(f"{kind}.{name}", "element", "stream", say)


def _enum(name: str, module: Any, effect: str) -> Told:
    read = {"__Enum__": True, "__module__": module, "__name__": "os", "name": "environ"}
    return Told(f"more.reply.Enum {name}", "metadata", "get_metadata", read, effect=effect)


def _event(payload: Any) -> dict[str, Any]:
    return {"op": "event", "topic": "t", "event": (0, payload)}


def _warning(**hostile: Any) -> dict[str, Any]:
    plain = {"message": pickle.dumps("careful"), "category": pickle.dumps(UserWarning)}
    return {"op": "event", "topic": "warn", "event": (0, {**plain, **hostile})}


_FINE = pickle.dumps(ValueError("fine"))
_BYTES = Evil("bytes", "ValueError('careful')")
_BOXED = Evil("dask-bytes", "ValueError('careful')")
_ERROR = {"status": "error", "exception": _BYTES, "traceback": None}
_UNCAUGHT = {**_ERROR, "status": "uncaught-error"}
_ERRED = {"op": "task-erred", "key": "k", "exception": _BOXED, "traceback": None}
_ELSEWHERE = {"w": _ERROR}


CLIENT_ROWS = (
    Told("client.Queue.get.__Pickled__", "queue", "queue_get", Evil("pickled")),
    Told(
        "client.gather(direct).worker-get_data",
        "direct",
        "get_data",
        {"status": "OK", "data": {"k": Evil("dask-type")}},
    ),
    Told(
        "client.get_dataset.object-array",
        "dataset",
        "publish_get",
        [{"data": Evil("object-array"), "keys": ["k"]}],
    ),
    Told("client.handshake.__Pickled__", "nothing", "greet", Evil("pickled")),
    Told("client.progressbar.feed.__Pickled__", "feed", "feed", Evil("pickled")),
    Told("client.recreate_task.get_runspec", "runspec", "get_runspec", Evil("pickled")),
    _reply("__Pickled__", "pickled"),
    _reply("register_generic-nested-Serialized-pickle", "generic-nested"),
    Told(
        "client.reply.uncaught-error-raw-exception-bytes",
        "metadata",
        "get_metadata",
        _UNCAUGHT,
    ),
    Told(
        "client.reply.uncaught-error-raw-traceback-bytes",
        "metadata",
        "get_metadata",
        {**_UNCAUGHT, "exception": _FINE, "traceback": Evil("bytes")},
    ),
    Told("client.run.broadcast-raw-bytes", "run", "broadcast", {"w": _BYTES}),
    Told("client.run_on_scheduler.error-exception-bytes", "scheduler", "run_function", _ERROR),
    _element("Serialized-pickle(no deserializers kw on stream)", _event(Evil("opaque"))),
    _element("__Pickled__ in event", _event(Evil("pickled"))),
    _element("key-in-memory.type", {"op": "key-in-memory", "key": "k", "type": Evil("bytes")}),
    _element("status-error", {"op": "lost-data", "key": "none", **_ERROR}),
    _element("task-erred.exception-bytes", _ERRED),
    _element(
        "task-erred.traceback-bytes",
        {**_ERRED, "exception": _FINE, "traceback": Evil("dask-bytes")},
    ),
    _element("warn-event.category", _warning(category=Evil("bytes", "UserWarning"))),
    _element("warn-event.message", _warning(message=Evil("bytes", "'careful'"))),
    # Beside the tables: what a list of families stops in a reply, and not in an element.
    _element("cuda", _event(Evil("cuda")), "more.stream"),
    Told(
        "more.reply.without-init",
        "metadata",
        "get_metadata",
        Evil("without-init"),
        effect="wrote",
    ),
    _enum("imports", Here("new-module"), "imported"),
    _enum("reads", "distributed.utils", "read"),
    # And each other place of section 1b in which a client unpickles.
    Told("more.run.broadcast-error", "run", "broadcast", _ELSEWHERE),
    Told("more.register_worker_plugin", "worker-plugin", "register_worker_plugin", _ELSEWHERE),
    Told("more.register_nanny_plugin", "nanny-plugin", "register_nanny_plugin", _ELSEWHERE),
    Told("more.unregister_plugin", "no-plugin", "unregister_worker_plugin", _ELSEWHERE),
)
