"""The request that a connection waits for the reply to, and what that reply may hold.

The one rule: what was asked for decides how a reply is read; the peer's word takes nothing away.
It is found out once, when the request is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from safeser.dask.wire.fields import steps_of
from safeser.dask.wire.slots import DECLARED, WHOLE, Plan, plan
from safeser.operations import Channel, Encoding, Operation, Server, lookup

__all__ = ["NO_REQUEST", "Pending", "ReplyFields", "is_actor_call", "pending", "rows_of"]

_SERVERS = (Server.SCHEDULER, Server.WORKER, Server.NANNY)


class ReplyFields(NamedTuple):
    """Where the reply to a request may hold payloads, and what Dask would unpickle.

    :param encodings: its fields, by their paths.
    :param plan: finds its payloads.
    :param raw: the fields that hold bare pickles.
    :param blanks: None for each field that holds what its user put in, or what is looked at
        elsewhere, as errors are.
    :param unshown: the paths of such fields further down.
    """

    encodings: Mapping[str, Encoding]
    plan: Plan
    raw: tuple[str, ...]
    blanks: Mapping[str, None]
    unshown: tuple[str, ...]


class Pending(NamedTuple):
    """A request that this side wrote; made by :func:`pending`.

    :param name: the operation that it names; empty where nothing was asked.
    :param rows: of the table, for each server that knows the operation.
    :param known: every field that the reply may have, or None where that is not fixed.
    """

    message: Mapping[str, Any]
    name: str
    rows: tuple[Operation, ...]
    fields: ReplyFields
    known: frozenset[str] | None
    is_actor_call: bool


def pending(asked: Mapping[str, Any]) -> Pending:
    """Return the request *asked* with what the reply to it may hold.

    A name that several servers know has the fields of all: the peer's own word on which of
    them it is must not take away from what is looked at.
    """
    rows, inner = rows_of(asked), rows_of(asked.get("msg"))
    return Pending(
        asked, asked["op"], rows, _fields(rows, inner), _known(asked), is_actor_call(asked)
    )


def rows_of(asked: Any) -> tuple[Operation, ...]:
    """Return the rows of the request *asked*, on each server that knows it."""
    name = asked.get("op") if isinstance(asked, dict) else None
    if not isinstance(name, str):
        return ()
    found = [lookup(server, Channel.RPC, name, asked) for server in _SERVERS]
    return tuple([row for row in found if row is not None])


@lru_cache(maxsize=1024)  # of this side's own requests; the table has fewer
def _fields(rows: tuple[Operation, ...], inner: tuple[Operation, ...]) -> ReplyFields:
    """Return what the replies of *rows* may hold, with what those of *inner*, which are relayed."""
    fields: dict[str, Encoding] = {}
    for row in rows:
        fields |= row.reply
        for prefix in [path for path, encoding in row.reply.items() if encoding is Encoding.NESTED]:
            for each in inner:
                fields |= {f"{prefix}.{path}".strip("."): e for path, e in each.reply.items()}
    nested = [path for path, encoding in fields.items() if encoding is Encoding.NESTED]
    errors = [path for path, encoding in fields.items() if encoding is Encoding.ERROR]
    # Any reply may say why it failed, and so may any part of one that was relayed.
    marked = [path for path, encoding in fields.items() if encoding is Encoding.MARKED]
    wholes = {
        *("traceback", *(f"{path}.traceback".strip(".") for path in nested)),
        *(path for path in errors if path.endswith("traceback")),
    }
    paths = [(path, DECLARED) for path in (*marked, *errors, "exception", "traceback")]
    unshown = [path for path in fields if path not in nested]
    for at in ("", *nested):
        unshown += [f"{at}.{name}".strip(".") for name in ("exception", "traceback")]
    blanks = [path for path in unshown if steps_of(path) == (path,) and path not in ("*", "[]")]
    return ReplyFields(
        encodings=MappingProxyType(fields),
        plan=plan([*paths, *((path, WHOLE) for path in sorted(wholes))]),
        raw=tuple(path for path, encoding in fields.items() if encoding is Encoding.RAW),
        blanks=MappingProxyType(dict.fromkeys(blanks)),
        unshown=tuple(path for path in unshown if path not in blanks),
    )


#: Fields of any answer that says how it went.
_OUTCOME = frozenset(
    ["status", "message", "exception", "traceback", "exception_text", "traceback_text"]
)

#: Fields of answers that Dask's own code makes and reads by name; others answer with whatever they
#: were asked about: addresses, keys, what users put in.
_KNOWN: Mapping[str, frozenset[str]] = {
    name: _OUTCOME | frozenset(fields.split())
    for names, fields in (
        ("get_data gather", "data keys workers"),
        ("update_data", "nbytes"),
        ("run run_coroutine run_function actor_execute actor_attribute", "result"),
        ("shuffle_get shuffle_get_or_create", "run_spec"),
        ("shuffle_receive shuffle_restrict_task plugin-add plugin-remove", ""),
        ("plugin_add plugin_remove upload_file", "nbytes"),
        ("heartbeat_worker", "time heartbeat-interval"),
        ("register-worker", "time heartbeat-interval worker-plugins warning error"),
        ("register_nanny", "nanny-plugins"),
        ("queue_get", "type value state"),
        ("variable_get", "type value state token"),
    )
    for name in names.split()
}

_ACTOR_CALLS = ("actor_execute", "actor_attribute")


def _known(asked: Mapping[str, Any]) -> frozenset[str] | None:
    """Return every field that the answer to *asked* may have, or None where that is not fixed."""
    name = _answered(asked)
    return _KNOWN.get(name) if isinstance(name, str) else None


def is_actor_call(asked: Mapping[str, Any]) -> bool:
    """Tell whether an actor's method or attribute was asked for, directly or by a relay."""
    return _answered(asked) in _ACTOR_CALLS


def _answered(asked: Mapping[str, Any]) -> Any:
    """Return the operation whose answer the reply to *asked* is; a proxy hands on its server's."""
    inner = asked.get("msg") if asked.get("op") == "proxy" else asked
    return inner.get("op") if isinstance(inner, dict) else None


#: Nothing was asked yet.
NO_REQUEST = Pending({}, "", (), _fields((), ()), None, is_actor_call=False)
