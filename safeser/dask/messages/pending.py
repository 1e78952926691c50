"""The pending request of a connection, and what the reply to it may hold.

The one rule: the request decides how its reply is read; a peer's claim never narrows what is
checked. The decision is made once, when the request is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from distributed.shuffle._core import ShuffleRunSpec

from safeser.dask.wire.bounded_repr import has_bounded_repr
from safeser.dask.wire.fields import DECLARED, WHOLE, Plan, plan, steps_of, transform
from safeser.errors import PayloadError
from safeser.gate.values import Kind
from safeser.operations import Channel, Encoding, Operation, Server, lookup
from safeser.operations.shapes import shape

_SERVERS = (Server.SCHEDULER, Server.WORKER, Server.NANNY)


class ReplyFields(NamedTuple):
    """The fields of a reply that may hold payloads, or bytes that Dask would unpickle.

    :param encodings: the encoding of each such field, by path.
    :param plan: finds the payloads.
    :param raw: paths of fields that hold bare pickles.
    :param blanks: None for each top-level field that holds user data or is checked elsewhere, such
        as errors; replaces them when the size of the repr is checked.
    :param unshown: paths of such fields at deeper levels.
    :param values: whether the reply may hold values of users.
    """

    encodings: Mapping[str, Encoding]
    plan: Plan
    raw: tuple[str, ...]
    blanks: Mapping[str, None]
    unshown: tuple[str, ...]
    values: bool


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
        values=any(row.reply or row.kind is not Kind.ADMIN for row in rows),
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


# --- the reply -----------------------------------------------------------------------------------


def is_uncaught(reply: Any) -> bool:
    """Tell whether *reply* reports a failure of its server; a payload as status does not."""
    status = reply.get("status") if isinstance(reply, dict) else None
    return type(status) is str and status == "uncaught-error"


def require_form(asked: Mapping[str, Any], reply: Any) -> None:
    """Refuse a state that names a folder to write to, and an answer that lacks values unsaid.

    :raises PayloadError: if no honest peer sends such a reply.
    """
    name = asked.get("op")
    fits = _FORMS.get(name) if isinstance(name, str) else None
    if fits is not None and not fits(asked, reply) and not is_uncaught(reply):
        raise PayloadError(f"that is no answer to {name}", rule="reply.form")


def require_bounded_repr(asked: Pending, reply: Any) -> None:
    """Refuse an opened reply with objects that are not as large as the reply; user data is exempt.

    Notebooks show such replies and go through them: one byte in the reply to ``identity`` stalled
    each process that showed its client for minutes, and a range has no end. Dask also compares the
    status with a string, which an array does element by element.

    :param reply: as :func:`~safeser.dask.messages.translate.incoming_reply` returns it, with errors
        as exceptions.
    :raises PayloadError: if the repr() of a part may be far larger than the data received.
    """
    if asked.name in _USERS:
        return
    for path in asked.fields.unshown:
        reply = transform(reply, path, lambda _: None)
    if isinstance(reply, dict):
        reply = {**reply, **asked.fields.blanks}
    if not has_bounded_repr(reply, ranges=False):
        raise PayloadError(f"that is no answer to {asked.name}", rule="reply.form")


def _is_state(_: Mapping[str, Any], state: Any) -> bool:
    """Tell whether the id in a worker's state is a file name and not a path.

    Dask's ``DumpArtefact.to_yamls`` makes a folder of that name and writes the configuration that
    the worker reports into it: with a path, into ``~/.config/dask``, which names modules to import.
    """
    return _is_named(state) and has_bounded_repr(state, ranges=False)


def _is_named(state: Any) -> bool:
    return not isinstance(state, dict) or "id" not in state or _NAME_OF_FILE(state["id"])


def _is_dump(_: Mapping[str, Any], dump: Any) -> bool:
    """Tell whether *dump* is a cluster dump whose text, which Dask writes, has bounded size."""
    workers = dump.get("workers") if isinstance(dump, dict) else None
    named = isinstance(workers, dict) and all(map(_is_named, workers.values()))
    return named and has_bounded_repr(dump, ranges=False)


def _is_gathered(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* holds the requested values, or says that some are missing.

    For a value of which it says neither, Dask's client returns the key itself.
    """
    status = reply.get("status") if isinstance(reply, dict) else None
    if type(status) is not str or status != "OK":
        return True
    # A worker that gathers by who_has keeps the values and returns none.
    data, keys = reply.get("data"), asked.get("keys")
    return keys is None or (isinstance(data, dict) and data.keys() >= set(keys))


def _is_plan(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* has no plan but that of the shuffle that was asked for.

    A worker keeps the plan under the id that it asked for, and acts upon the one in the plan.
    """
    plan = reply.get("run_spec") if isinstance(reply, dict) else None
    wanted = asked.get("shuffle_id", asked.get("id"))
    return plan is None or (type(plan) is ShuffleRunSpec and bool(plan.spec.id == wanted))


_NAME_OF_FILE = shape("file")

_FORMS: Mapping[str, Callable[[Mapping[str, Any], Any], bool]] = {
    "dump_state": _is_state,
    "gather": _is_gathered,
    "get_cluster_state": _is_dump,
    "shuffle_get": _is_plan,
    "shuffle_get_or_create": _is_plan,
}

#: Requests that are answered with user data in plain fields.
_USERS = frozenset({"get_metadata", "events", "queue_get", "variable_get"})


# --- requests of safeser's own -------------------------------------------------------------------

#: The request that is safeser's own, which no handler of Dask's sees.
COUNTS = "serialization_counts"


def answered(row: Operation, asker: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer to *request* of *asker*, which was decided, or None if Dask answers it.

    :raises PayloadError: if a field is missing, at which a handler of Dask's would raise.
    """
    if row.name != COUNTS:
        return None
    missing = row.takes.keys() - request.keys()
    if missing:
        raise PayloadError(
            f"{row.name} lacks the field {min(missing)}", rule="operation.field-missing"
        )
    # Few processes are asked for it.
    from safeser.trace.counting import counting  # noqa: PLC0415 - as above

    counts = counting.ask(asker, request["trace"], request["seconds"])
    return {"status": "OK", "process": counting.process, "counts": counts}
