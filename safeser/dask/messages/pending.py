"""The pending request of a connection, and what the reply to it may hold.

The one rule: the request decides how its reply is read; a peer's claim never narrows what is
checked. The decision is made once, when the request is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from safeser.dask.wire.fields import DECLARED, WHOLE, Plan, plan, steps_of
from safeser.operations import Channel, Encoding, Operation, Server, lookup

__all__ = ["NO_REQUEST", "Pending", "ReplyFields", "is_actor_call", "pending", "rows_of"]

_SERVERS = (Server.SCHEDULER, Server.WORKER, Server.NANNY)


class ReplyFields(NamedTuple):
    """The fields of a reply that may hold payloads, or bytes that Dask would unpickle.

    :param encodings: the encoding of each such field, by path.
    :param plan: finds the payloads.
    :param raw: paths of fields that hold bare pickles.
    :param blanks: None for each top-level field that holds user data or is checked elsewhere, such
        as errors; replaces them when the size of the repr is checked.
    :param unshown: paths of such fields at deeper levels.
    """

    encodings: Mapping[str, Encoding]
    plan: Plan
    raw: tuple[str, ...]
    blanks: Mapping[str, None]
    unshown: tuple[str, ...]


class Pending(NamedTuple):
    """A request that this side wrote; made by :func:`pending`.

    :param name: the operation that it names; empty where no request is pending.
    :param rows: of the table, for each server that knows the operation.
    :param known: all fields that the reply may have, or None where they are not fixed.
    """

    message: Mapping[str, Any]
    name: str
    rows: tuple[Operation, ...]
    fields: ReplyFields
    known: frozenset[str] | None
    is_actor_call: bool


def pending(asked: Mapping[str, Any]) -> Pending:
    """Return the request *asked* with what the reply to it may hold.

    A name that several servers know has the fields of all of them: the role that the peer claims
    must not narrow what is checked.
    """
    rows, inner, answered = rows_of(asked), rows_of(asked.get("msg")), _answered(asked)
    known = _KNOWN.get(answered) if isinstance(answered, str) else None
    fields = _fields(rows, inner)
    return Pending(asked, asked["op"], rows, fields, known, answered in _ACTOR_CALLS)


def rows_of(asked: Any) -> tuple[Operation, ...]:
    """Return the rows of the request *asked*, on each server that knows it."""
    name = asked.get("op") if isinstance(asked, dict) else None
    if not isinstance(name, str):
        return ()
    found = [lookup(server, Channel.RPC, name, asked) for server in _SERVERS]
    return tuple([row for row in found if row is not None])


@lru_cache(maxsize=1024)  # rows of this side's own requests; the table has fewer
def _fields(rows: tuple[Operation, ...], inner: tuple[Operation, ...]) -> ReplyFields:
    """Return what replies to *rows* may hold, and within them replies to *inner*, if relayed."""
    fields: dict[str, Encoding] = {}
    for row in rows:
        fields |= row.reply
        for prefix in [path for path, encoding in row.reply.items() if encoding is Encoding.NESTED]:
            for each in inner:
                fields |= {f"{prefix}.{path}".strip("."): e for path, e in each.reply.items()}
    nested = [path for path, encoding in fields.items() if encoding is Encoding.NESTED]
    errors = [path for path, encoding in fields.items() if encoding is Encoding.ERROR]
    # Any reply may report a failure, and so may any part of a relayed one.
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


#: Fields by which any answer reports success or failure.
_OUTCOME = frozenset(
    ["status", "message", "exception", "traceback", "exception_text", "traceback_text"]
)

#: Fields of answers that Dask's own code makes and reads by name. Other operations answer with
#: mappings of addresses, keys or user data.
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


def is_actor_call(asked: Mapping[str, Any]) -> bool:
    """Tell whether an actor's method or attribute was asked for, directly or by a relay."""
    return _answered(asked) in _ACTOR_CALLS


def _answered(asked: Mapping[str, Any]) -> Any:
    """Return the operation that the reply to *asked* answers: of a proxy, the relayed one."""
    inner = asked.get("msg") if asked.get("op") == "proxy" else asked
    return inner.get("op") if isinstance(inner, dict) else None


#: Stands for the pending request before the first one is written.
NO_REQUEST = Pending({}, "", (), _fields((), ()), None, is_actor_call=False)
