"""Check the form of replies, and make the replies that replace refused ones.

The one rule: the request decides how its reply is read; a peer's claim never narrows what is
checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
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
from safeser.operations.shapes import shape

__all__ = [
    "answers_call",
    "error_reply",
    "failed_call",
    "failed_values",
    "is_uncaught",
    "refused",
    "require_bounded_repr",
    "require_form",
    "require_values",
    "unless_refused",
    "why_no_values",
    "with_withheld",
]


def error_reply(error: SafeserError) -> dict[str, Any]:
    """Return the reply that makes Dask raise *error* in the process that sent the request."""
    return {
        "status": "uncaught-error",
        "exception": error,
        "traceback": None,
        "exception_text": str(error),
        "traceback_text": "",
    }


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


def with_withheld(reply: Any, withheld: Mapping[Any, Any]) -> Any:
    """Return the *reply* to a request for values with the replacements of withheld values."""
    data = reply.get("data") if isinstance(reply, dict) else None
    return {**reply, "data": {**data, **withheld}} if isinstance(data, dict) else reply


def require_values(reply: Any) -> None:
    """Refuse a reply to ``get_data`` in a form that Dask does not read.

    For any other form, Dask's scheduler sends its client neither values nor a reason, and the
    client asks again a hundred times a second, for ever; or all values requested together fail.

    :raises PayloadError: if it holds no values, and is neither "busy" nor an error.
    """
    status = reply.get("status") if isinstance(reply, dict) else None
    if type(status) is str:
        if status in ("busy", "uncaught-error"):
            return
        if status == "OK" and isinstance(reply.get("data"), dict):
            return
    raise PayloadError(
        "a worker's reply to a request for values holds neither values nor an error",
        rule="reply.values",
    )


def require_form(asked: Mapping[str, Any], reply: Any) -> None:
    """Refuse a reply that is not of the form that its operation has in ``_FORMS``.

    :raises PayloadError: if no honest peer sends such a reply.
    """
    name = asked.get("op")
    fits = _FORMS.get(name) if isinstance(name, str) else None
    status = reply.get("status") if isinstance(reply, dict) else None
    failed = type(status) is str and status == "uncaught-error"
    if fits is not None and not failed and not fits(asked, reply):
        raise PayloadError(f"that is no answer to {name}", rule="reply.form")


def require_bounded_repr(asked: Pending, reply: Any) -> None:
    """Refuse an opened reply whose repr() may be far larger than the reply; user data is exempt.

    Notebooks show such replies, and Dask's templates show the client, whose filters turn parts into
    text unchecked: one byte in the reply to ``identity`` stalled each process that showed its
    client for minutes. Dask also compares the status with a string, which an array does element by
    element.

    :param reply: as :func:`~safeser.dask.messages.translate.incoming_reply` returns it, with errors
        as exceptions.
    :raises PayloadError: if the repr() of a part may be far larger than the data received.
    """
    if asked.name in _USERS:
        return
    for path in asked.fields.unshown:
        reply = transform(reply, path, _blank)
    if isinstance(reply, dict):
        reply = {**reply, **asked.fields.blanks}
    if not has_bounded_repr(reply):
        raise PayloadError(f"that is no answer to {asked.name}", rule="reply.form")


def _blank(_: Any) -> None:
    """Replace a value that is user data or is checked elsewhere by None."""


def _is_state(_: Mapping[str, Any], state: Any) -> bool:
    """Tell whether the id in a worker's state is a file name and not a path.

    Dask's ``DumpArtefact.to_yamls`` makes a folder of that name and writes the configuration that
    the worker reports into it: with a path, into ``~/.config/dask``, which names modules to import.
    """
    named = not isinstance(state, dict) or "id" not in state or _NAME_OF_FILE(state["id"])
    return named and has_bounded_repr(state)


def _is_dump(_: Mapping[str, Any], dump: Any) -> bool:
    """Tell whether *dump* is a cluster dump whose text, which Dask writes, has bounded size."""
    workers = dump.get("workers") if isinstance(dump, dict) else None
    named = isinstance(workers, dict) and all(
        not isinstance(each, dict) or "id" not in each or _NAME_OF_FILE(each["id"])
        for each in workers.values()
    )
    return named and has_bounded_repr(dump)


def _is_samples(_: Mapping[str, Any], samples: Any) -> bool:
    """Tell whether memory samples have plausible times; ``plot`` makes a row for each second."""
    now = time.time()
    return isinstance(samples, list | tuple) and all(
        isinstance(sample, list | tuple)
        and len(sample) == 2
        and all(map(_AMOUNT, sample))
        and now - _LONGEST <= sample[0] <= now + _AHEAD
        for sample in samples
    )


def _is_kept(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether a worker reports sizes only of values that it was sent.

    The client or scheduler that scatters adds each reported size to the memory of the worker; after
    infinity that sum stays useless.
    """
    if "data" not in asked:
        return True  # a scheduler, which is told where data are, reports no sizes
    status = reply.get("status") if isinstance(reply, dict) else None
    if type(status) is not str or status != "OK":
        return False
    given, sizes = asked["data"], reply.get("nbytes")
    if not (isinstance(given, dict) and isinstance(sizes, dict) and _SIZES(sizes)):
        return False
    return sizes.keys() <= given.keys()


def _is_gathered(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* holds the requested values, or lists the missing ones among them.

    Dask iterates over the missing keys and logs each, which never ends for a large range. For a
    value that is in neither, Dask's client returns the key itself.
    """
    status = reply.get("status") if isinstance(reply, dict) else None
    if type(status) is not str:
        return False
    if status != "OK":
        return _are_some(asked.get("keys") or asked.get("who_has"), reply.get("keys"))
    # A worker that gathers by who_has keeps the values and returns none.
    data, keys = reply.get("data"), asked.get("keys")
    return keys is None or (isinstance(data, dict) and data.keys() >= set(keys))


def _is_retried(_: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* lists distinct keys; a stock scheduler adds dependencies to them."""
    return _KEYS(reply) and len(set(reply)) == len(reply)


def _are_some(asked: Any, told: Any) -> bool:
    """Tell whether *told* lists only keys in *asked*, and no more entries than that has."""
    if not (_KEYS(told) and isinstance(asked, Collection)):
        return False
    return len(told) <= len(asked) and set(told).issubset(asked)


def _is_told_by_all(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether each worker's story is a list, since Dask concatenates them."""
    inner = asked.get("msg")
    if not isinstance(inner, dict) or inner.get("op") != "get_story":
        return True
    return isinstance(reply, dict) and all(
        _STORY(each) or isinstance(each, bytes | BaseException) for each in reply.values()
    )


def _is_published(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* has a record for each name; before 2026.6.0 requests hold one name."""
    names = asked.get("names")
    if names is None:
        return reply is None or (isinstance(reply, dict) and "data" in reply)
    return (
        _MAPPINGS(reply)
        and isinstance(names, Collection)
        and len(reply) == len(names)
        and all(each is None or "data" in each for each in reply)
    )


def _is_taken(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* is an entry of a queue, or a list of entries for a batch."""
    if asked.get("batch", False) is False:
        return _is_held(asked, reply)
    return isinstance(reply, list | tuple) and all(_is_held(asked, each) for each in reply)


def _is_set(asked: Mapping[str, Any], record: Any) -> bool:
    """Tell whether *record* is the content of a variable; Dask's client sends its token back."""
    return _is_held(asked, record) and _TEXT(record.get("token", ""))


def _is_held(_: Mapping[str, Any], record: Any) -> bool:
    """Tell whether *record* is an entry of a queue or variable: a value, or a future's key."""
    if not (isinstance(record, dict) and "value" in record and _TEXT(record.get("type"))):
        return False
    return record["type"] != "Future" or (_KEY(record["value"]) and _TEXT(record.get("state")))


def _is_stream(_: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* lists when tasks ran; Dask draws each span of each task."""
    return _MAPPINGS(reply) and all(
        each is not None
        and _TABLES(each.get("startstops", ()))
        and all(has_bounded_repr(each.get(name)) for name in _DRAWN)
        for each in reply
    )


def _is_profile(asked: Mapping[str, Any], told: Any) -> bool:
    """Tell whether *told* is a profile, or a profile for each worker if so requested.

    Dask merges and draws the profiles of all workers: a malformed one fails them all.
    """
    several = not asked.get("merge_workers", True)
    if several and not isinstance(told, dict):
        return False
    ahead = [("root", each) for each in (told.values() if several else [told])]
    while ahead:
        name, node = ahead.pop()
        if not (isinstance(node, dict) and node.keys() == _NODE and node["identifier"] == name):
            return False
        described, below = node["description"], node["children"]
        if not (_TABLE(described) and _TABLE(below) and _AMOUNT(node["count"])):
            return False
        if not all(name in described and fits(described[name]) for name, fits in _CALL.items()):
            return False
        ahead += below.items()
    return True


def _fits(spelt: str) -> Callable[[Mapping[str, Any], Any], bool]:
    fits = shape(spelt)
    return lambda _, told: fits(told)


def _is_times(_: Mapping[str, Any], told: Any) -> bool:
    """Tell whether *told* is profile metadata: counts of samples by time, in all and by task name.

    Dask's scheduler makes a list for each name at each time (distributed 2026.8.0,
    ``Scheduler.get_profile_metadata``): a hundred kilobytes of metadata took two gigabytes.
    """
    if not isinstance(told, dict) or not _are_times(told):
        return False
    names = {name for _, counted in told["keys"] for name in counted}
    return len(names) * len(told["keys"]) <= _TIMES_OF_NAMES


def _is_plan(asked: Mapping[str, Any], reply: Any) -> bool:
    """Tell whether *reply* has no plan but that of the shuffle that was asked for.

    A worker keeps the plan under the id that it asked for, and acts upon the one in the plan.
    """
    plan = reply.get("run_spec") if isinstance(reply, dict) else None
    wanted = asked.get("shuffle_id", asked.get("id"))
    return plan is None or (type(plan) is ShuffleRunSpec and bool(plan.spec.id == wanted))


def _are_times(told: Mapping[str, Any]) -> bool:
    return all(
        isinstance(told.get(name), list | tuple)
        and all(
            isinstance(pair, list | tuple) and len(pair) == 2 and _AMOUNT(pair[0]) and fits(pair[1])
            for pair in told[name]
        )
        for name, fits in (("counts", _AMOUNT), ("keys", shape("text->amount")))
    )


_NAME_OF_FILE, _AMOUNT, _TABLE = shape("file"), shape("amount"), shape("table")
_TEXT, _KEY, _KEYS, _TABLES = shape("text"), shape("key"), shape("key*"), shape("table*")
_STORY, _MAPPINGS = shape("any**"), shape("mapping?*")
_SIZES = shape("key->number")

#: A call in a profile, and how it is described.
_NODE = frozenset({"identifier", "description", "children", "count"})
_CALL = {**dict.fromkeys(("filename", "name", "line"), shape("text")), "line_number": _AMOUNT}

#: Fields of a task stream's entries that Dask draws as text.
_DRAWN = ("key", "worker", "thread", "status", "startstops")

#: Lists that a scheduler makes of one worker's profile. A worker keeps a thousand times, and has
#: some hundred names of tasks.
_TIMES_OF_NAMES = 2_000_000

#: Bounds of sample times, in seconds: longer than any sampling, and more than clocks differ.
_LONGEST, _AHEAD = 100 * 86_400, 86_400

_FORMS: Mapping[str, Callable[[Mapping[str, Any], Any], bool]] = {
    "broadcast": _is_told_by_all,
    "dump_state": _is_state,
    "gather": _is_gathered,
    "get_cluster_state": _is_dump,
    "get_story": _fits("any**"),
    "get_task_stream": _is_stream,
    "memory_sampler_stop": _is_samples,
    "profile": _is_profile,
    "profile_metadata": _is_times,
    "publish_get": _is_published,
    "queue_get": _is_taken,
    "retry": _is_retried,
    "shuffle_get": _is_plan,
    "shuffle_get_or_create": _is_plan,
    "update_data": _is_kept,
    "variable_get": _is_set,
    # Dask's client iterates over all of these; a range, or an array that repeats one element, takes
    # a few bytes at any length. Addresses are plain text, as stock clusters use other schemes.
    "has_what": _fits("text->key*"),
    "publish_list": _fits("key*"),
    "who_has": _fits("key->text*"),
}

#: Requests that are answered with user data in plain fields.
_USERS = frozenset({"get_metadata", "events", "queue_get", "variable_get"})


def failed_call(error: object) -> dict[str, Any]:
    """Return an actor's answer that its method raised *error*.

    If the request fails with anything but OSError, Dask's actor only logs it, and its caller waits
    for ever (distributed 2026.8.0, ``actor.py``, ``wait_then_set_result``).
    """
    return {"status": "error", "exception": error}


def answers_call(reply: Any) -> bool:
    """Tell whether *reply* is an actor's answer in the form that Dask's actor reads."""
    status = reply.get("status") if isinstance(reply, dict) else None
    if type(status) is not str:
        return False
    failed = status == "error" and isinstance(reply.get("exception"), Exception)
    return failed or (status == "OK" and "result" in reply)


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
