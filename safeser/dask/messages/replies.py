"""Check the form of replies, and make the replies that replace refused ones.

The one rule: the request decides how its reply is read; a peer's claim never narrows what is
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distributed.shuffle._core import ShuffleRunSpec

from safeser.dask.contents import failures
from safeser.dask.contents.failures import Relayed
from safeser.dask.messages.pending import Pending
from safeser.dask.wire.bounded_repr import has_bounded_repr
from safeser.dask.wire.fields import transform
from safeser.errors import PayloadError, SafeserError
from safeser.families.errors import wire as errors
from safeser.families.errors.failures import ExceptionData
from safeser.operations import Operation
from safeser.operations.shapes import shape


def error_reply(error: SafeserError) -> dict[str, Any]:
    """Return the reply that makes Dask raise *error* in the process that sent the request."""
    return {
        "status": "uncaught-error",
        "exception": error,
        "traceback": None,
        "exception_text": str(error),
        "traceback_text": "",
    }


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


def is_uncaught(reply: Any) -> bool:
    """Tell whether *reply* reports a failure of its server; a payload as status does not."""
    status = reply.get("status") if isinstance(reply, dict) else None
    return type(status) is str and status == "uncaught-error"


def failed_values(asked: Mapping[str, Any], value: Relayed) -> dict[str, Any]:
    """Return a reply in which *value*, a failure, stands for each value that *asked* requests.

    It tells a waiting client the reason. Without it, Dask's client requests values that its
    scheduler could not gather again, for ever.
    """
    keys = asked.get("keys")
    keys = keys if isinstance(keys, list | tuple | set | frozenset) else ()
    return {"status": "OK", "data": dict.fromkeys(keys, value)}


def require_form(asked: Mapping[str, Any], reply: Any) -> None:
    """Refuse a state that names a folder to write to, and an answer that lacks values unsaid.

    :raises PayloadError: if no honest peer sends such a reply.
    """
    name = asked.get("op")
    fits = _FORMS.get(name) if isinstance(name, str) else None
    status = reply.get("status") if isinstance(reply, dict) else None
    failed = type(status) is str and status == "uncaught-error"
    if fits is not None and not failed and not fits(asked, reply):
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


def failed_call(error: object) -> dict[str, Any]:
    """Return an actor's answer that its method raised *error*.

    If the request fails with anything but OSError, Dask's actor only logs it, and its caller waits
    for ever (distributed 2026.8.0, ``actor.py``, ``wait_then_set_result``).
    """
    return {"status": "error", "exception": error}


def refused(error: SafeserError, local: str, *, failed: bool = True) -> Relayed:
    """Return *error* of this process, whose principal is *local*, as a relayed payload.

    :param failed: whether it replaces a value; otherwise it is reported as an error itself.
    """
    header, frames = failures.serialize_failure(failures.failure_of(error))
    return Relayed(header, frames, author=local, failed=failed)


def why_no_values(exception: Any, *, local: str) -> Relayed | None:
    """Return the failure that a relay forwards for values that failed with *exception*.

    None where a retry may help, as after an error of the network.
    """
    if isinstance(exception, Relayed) and exception.sealed_header.get("serializer") == "error":
        return exception.as_failed() if _own_error(exception) is not None else None
    if not isinstance(exception, SafeserError):
        exception = PayloadError("a peer failed without saying why", rule="raw.exception")
    return refused(exception, local)


def unless_refused(reply: dict[str, Any]) -> dict[str, Any]:
    """Return an unopened *reply* that reports a failure, or raise the error of safeser that it is.

    Otherwise Dask raises an ``Exception`` of its text where a relay asked. The process that refused
    has logged it.
    """
    exception = reply.get("exception")
    if not isinstance(exception, Relayed) or exception.sealed_header.get("serializer") != "error":
        return reply
    said = _own_error(exception)
    error = None if said is None else errors.from_data(said)
    if not isinstance(error, SafeserError):
        return reply
    # The next reader adds that another process says so.
    error.__notes__ = []
    error.logged = True
    raise error


def _own_error(value: Relayed) -> ExceptionData | None:
    """Return what a relayed failure says if it is an error of safeser, none of the network or Dask.

    This trusts the failure's own text: a peer that lies about it gains nothing.
    """
    said = errors.decode(value.frames[0])
    return said if said.type.startswith("safeser.errors:") else None
