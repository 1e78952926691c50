"""Translate fields that Dask itself pickles and unpickles into plain data, and back.

The one rule: outgoing pickles that this process made become plain data; incoming, Dask's own
unpicklers get objects, text, or bytes that safeser pickled in this process, never a peer's bytes.

The fields (distributed 2026.8.0): ``type`` of a finished task, exceptions and tracebacks
of errors, ``warn`` events, results of ``Client.run`` that failed.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

from dask.typing import no_default

from safeser import pickles
from safeser.dask.contents import substitutes
from safeser.dask.contents.events import plain_event
from safeser.dask.contents.failures import (
    TRACEBACK,
    Relayed,
    described,
    from_pickled_error,
    is_failure,
    is_of_user,
    is_partly_named,
    logged,
    record_text,
    relayed_answer,
)
from safeser.dask.contents.shuffle_plans import make_plugins, name_plugins
from safeser.dask.messages.author_statements import StatedKeys
from safeser.dask.wire.fields import transform
from safeser.errors import PayloadError, SafeserError
from safeser.families.errors.failures import shown
from safeser.families.errors.wire import from_data
from safeser.operations import Encoding, Operation, Server

#: The topic of events that Dask opens as warnings.
WARN = "warn"

#: Characters of a class name that are kept; longer than any real one.
_TYPE_NAME = 200

# --- outgoing ----------------------------------------------------------------------------------


def outgoing(
    message: Any,
    *,
    takes_code: Callable[[], bool] = lambda: False,
    answers: Operation | None = None,
    of_tasks: Callable[[], bool] = lambda: False,
) -> Any:
    """Return *message* with the pickles that Dask put into its fields turned into data.

    Failures of this server itself are sent without paths of its file system.

    :param takes_code: tells whether code may be sent to its recipient.
    :param answers: the request that it replies to.
    :param of_tasks: tells whether it is a stream element that reports failed tasks or graphs, to a
        worker's scheduler or to a client that may run code here.
    """
    if not isinstance(message, dict):
        return message
    name = message.get("op")
    change = _CHANGES.get(name) if isinstance(name, str) else None
    if change is not None:
        message = change(message)
    if answers is None and message.get("exception") is None:
        return message  # as most stream elements
    failed = message.get("status") == "uncaught-error"
    if answers is not None and answers.reply.get("*") is Encoding.NESTED and not failed:
        return {name: relayed_answer(answer) for name, answer in message.items()}
    changed: dict[str, Any] = {}
    if message.get("exception") is not None:
        of_user = of_tasks() or is_of_user(message, answers)
        changed = described(message, of_user=of_user, takes_code=takes_code)
    if answers is not None and answers.name == "register-worker":
        changed["worker-plugins"] = name_plugins(message.get("worker-plugins"))
    return {**message, **changed} if changed else message


def _plain_report(message: dict[str, Any]) -> dict[str, Any]:
    # The name travels beside the pickle anyway. A reader looks for the operation first.
    return {"op": "task-finished", **message, "type": message.get("typename")}


def _plain_log(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("topic") == WARN:
        return {**message, "msg": _plain_warning(message.get("msg"))}
    return {**message, "msg": logged(message["msg"])} if is_failure(message.get("msg")) else message


def _without_default(message: dict[str, Any]) -> dict[str, Any]:
    # An enum by which Dask marks an absent default; without the field the handler uses it too.
    absent = message.get("default") is no_default
    return {k: v for k, v in message.items() if k != "default"} if absent else message


#: What is changed in an operation even if it reports no error.
_CHANGES: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "task-finished": _plain_report,
    "log-event": _plain_log,
    "get_metadata": _without_default,
}

# --- pickles that Dask itself makes and opens ----------------------------------------------------

#: The header of a field that holds nothing but the bytes of one pickle.
PICKLE_HEADER: dict[str, Any] = {"serializer": "pickle", "writeable": []}


def from_dask_pickle(header: Any, frames: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return safeser's header for a payload that Dask serialized in this process.

    :raises PayloadError: for any family but pickle; Dask's typed headers hold a pickled class.
    """
    match header:
        case {"serializer": "pickle", "writeable": writeable}:
            flags = [bool(flag) for flag in writeable]
            return {"serializer": "pickle", "writeable": flags}, list(frames)
    raise PayloadError(
        "a payload that Dask serialized by itself cannot be sent on safeser://",
        rule="payload.dask-serialized",
        fix="Send the object, or to_serialize(object).",
    )


def to_dask_pickle(header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the header under which Dask's scheduler opens a granted graph."""
    return {"serializer": "pickle", "writeable": tuple(header["writeable"])}


def _plain_warning(event: Any) -> Any:
    """Turn a worker's pickled warning into its text and the name of its category."""
    if not isinstance(event, dict):
        return event
    plain = dict(event)
    for name in ("message", "category"):
        value = event.get(name)
        if isinstance(value, bytes):
            plain[name], category = _text_of(value)
            if category is not None:
                plain["category"] = category
                break
    return plain


def _text_of(data: bytes) -> tuple[str, str | None]:
    """Return the text of a pickled str or warning, and the category of a warning, else None."""
    try:
        named = pickles.global_of(data)
        if named is not None:
            return named, None
        value = pickles.loads(data, profile="data")
    except SafeserError:
        try:
            record = pickles.exception_record(data)
        except SafeserError:
            record = None
        if record is None or record.name is None or not record.args:
            return "a message that could not be read", None
        return record_text(record), record.name
    return value if isinstance(value, str) else str(value), None


# --- incoming ----------------------------------------------------------------------------------


#: What the name of a class is, where there is one.
_NAME = (str, type(None))

#: Takes the errors of fields of a decided message that are replaced.
Refused = list[SafeserError]


def incoming_element(
    server: Server,
    name: str,
    element: dict[str, Any],
    refused: Refused,
    *,
    takes_code: Callable[[str], bool] = lambda _: False,
) -> dict[str, Any]:
    """Return a decided stream element in the form that the handler of *name* on *server* takes.

    :param takes_code: tells whether its sender may send code to this process in that operation.
    :raises PayloadError: if a field that Dask would unpickle still holds a peer's bytes.
    """
    if server is Server.SCHEDULER:
        return _for_scheduler(name, element, refused)
    element = _without_raw_errors(element, refused)
    if server is Server.CLIENT:
        _show_element(name, element, takes_code, refused)
    elif name in STATING:
        StatedKeys.taken_from(element)
    return element


def _for_scheduler(name: str, element: dict[str, Any], refused: Refused) -> dict[str, Any]:
    """Return *element* as the scheduler's handler takes it; most stay as they came."""
    if not _RAW.isdisjoint(element):
        element = _without_raw_errors(element, refused)
    if name == "task-finished":
        if not isinstance(element.get("type"), _NAME):
            raise PayloadError("the type of a result must be a name", rule="raw.type", where="type")
    elif name == "task-erred" and element.get("traceback") is None:
        # The scheduler keeps the text only where it has a traceback, for which Dask itself takes
        # text. It goes no further: a client has it from the failure.
        text = element.get("traceback_text")
        element = {**element, "traceback": text if isinstance(text, str) else None}
    elif name == "update-graph":
        # Dask's spans extend the list.
        said = element.get("span_metadata")
        if type(said) is dict and type(said.get("collections")) is tuple:
            element["span_metadata"] = {**said, "collections": list(said["collections"])}
    return element


def _show_element(
    name: str, element: dict[str, Any], takes_code: Callable[[str], bool], refused: Refused
) -> None:
    """Change *element* into the form that a client's handler takes."""
    # A status that says error makes Dask's client raise inside its report loop, which ends
    # the loop and hangs every future.
    element.pop("status", None)
    element |= {k: _plain_text(element[k]) for k in _SHOWN if k in element}
    if name == "key-in-memory":
        told = element.get("type")
        element["type"] = _type_pickle(told, partial(takes_code, name))
        if not isinstance(told, str | None):
            refused.append(_raw("the type of a result", "type"))
    elif name == "event":
        # An array would be compared element by element, which ends the client's report loop.
        topic, event = element.get("topic"), element.get("event")
        if not isinstance(topic, str):
            raise PayloadError(
                "the topic of an event must be a name", rule="raw.topic", where="topic"
            )
        element["event"] = _warning_event(event) if topic == WARN else plain_event(topic, event)
    elif name == "task-erred" and element.get("exception") is None:
        element["exception"] = _missing_error(refused)


def incoming_reply(fields: Mapping[str, Encoding], reply: Any, refused: Refused) -> Any:
    """Return a decided reply in the form that Dask's requesting code takes.

    :param fields: the encodings of the reply's fields that Dask would unpickle, by path.
    """
    if isinstance(reply, dict):
        reply = _without_raw_errors(reply, refused)
        status = reply.get("status")
        if type(status) is str and status == "uncaught-error" and reply.get("exception") is None:
            reply["exception"] = _missing_error(refused)
        if "worker-plugins" in fields:
            reply["worker-plugins"] = make_plugins(reply.get("worker-plugins"))
    for path, encoding in fields.items():
        if encoding is Encoding.ERROR:
            reply = transform(reply, path, _SAFE[path.rpartition(".")[2]], refused)
        elif encoding is Encoding.NESTED:
            reply = transform(reply, path, _nested_reply, refused)
    return reply


def _nested_reply(answer: Any, refused: Refused) -> Any:
    """Return one worker's part of a broadcast's reply; Client.run unpickles bytes as an error."""
    if isinstance(answer, bytes):
        return pickles.dumps(from_data(from_pickled_error(answer, {}, "")))
    return _without_raw_errors(answer, refused) if isinstance(answer, dict) else answer


def _without_raw_errors(message: dict[str, Any], refused: Refused) -> dict[str, Any]:
    """Return a copy of *message* without bytes that Dask's ``clean_exception`` would unpickle."""
    message = dict(message)
    if _RAW.isdisjoint(message):
        return message
    said = message.get("exception")
    if isinstance(said, Exception) and is_partly_named(said):
        message["exception"] = _restored(said, message.get("traceback"))
    for name, safe in _SAFE.items():
        if name in message:
            message[name] = safe(message[name], refused)
    return message


def _restored(said: Exception, whole: Any) -> Exception:
    """Return *whole*, *said* as its process pickled it, with its notes, if policy permitted it."""
    if not isinstance(whole, Exception):
        return said
    for note in getattr(said, "__notes__", ()):
        BaseException.add_note(whole, note)
    if whole.__cause__ is None and whole.__context__ is None:
        whole.__cause__, whole.__context__ = said.__cause__, said.__context__
        whole.__suppress_context__ = said.__suppress_context__
    return whole


def _safe_exception(value: Any, refused: Refused) -> Any:
    if value is None or isinstance(value, BaseException | Relayed):
        return value
    if isinstance(value, str):
        return _plain_text(value)  # Dask makes an Exception of it
    refusal = PayloadError(
        "an error arrived as raw bytes, which are never unpickled",
        rule="raw.exception",
        where="exception",
        fix="Its text is in the log of the process that raised it.",
    )
    refused.append(refusal)
    return refusal


def _missing_error(refused: Refused) -> PayloadError:
    """Return the error for a failure without an exception, for which Dask would raise None."""
    error = PayloadError(
        "a failure arrived without any error",
        rule="raw.exception",
        where="exception",
        fix="No honest peer sends that.",
    )
    refused.append(error)
    return error


def _no_traceback(value: Any, refused: Refused) -> Relayed | None:
    """Drop a traceback: its text is a note of the exception, and no traceback object is built.

    A relayed payload in this field is not a traceback but the pickled failure, and is kept.
    """
    if isinstance(value, bytes):
        refused.append(_raw("a traceback", "traceback"))
    return value if isinstance(value, Relayed) else None


def _plain_text(value: Any, _: Refused | None = None) -> Any:
    """Return a peer's text with control characters escaped, since logs and terminals show it."""
    return shown(value[-TRACEBACK:]) if isinstance(value, str) else value


_SAFE: dict[str, Callable[[Any, Refused], Any]] = {
    "exception": _safe_exception,
    "traceback": _no_traceback,
    "exception_text": _plain_text,
    "traceback_text": _plain_text,
}

_RAW = frozenset(_SAFE)

#: Elements in which a scheduler states the authors of values that a worker will hold.
STATING = frozenset({"compute-task", "acquire-replicas"})

#: Fields of elements without errors that Dask's client shows to its user.
_SHOWN = ("msg", "reason", "warning", "error")


def _raw(what: str, where: str) -> PayloadError:
    """Return the refusal of a peer's bytes that Dask would unpickle."""
    return PayloadError(
        f"{what} arrived as raw bytes, which are never unpickled", rule=f"raw.{where}", where=where
    )


def _type_pickle(name: Any, takes_code: Callable[[], bool]) -> bytes | None:
    """Return a pickle made here, which Dask's client loads as a class called *name*."""
    if not isinstance(name, str):
        return None
    if takes_code() and substitutes.known_type(name) is not None:
        return _named_type(name, known=True)
    return _named_type(name[:_TYPE_NAME], known=False)


@lru_cache(maxsize=256)
def _named_type(name: str, *, known: bool) -> bytes:
    if not known:
        name = "".join(char for char in name if char.isprintable())
    return pickles.dumps(substitutes.NamedType(name, known=known))


def _warning_event(event: Any) -> Any:
    match event:
        case (stamp, {"message": str() as text, **rest}):
            category = _category(rest.get("category"))
            plain = {"message": pickles.dumps(shown(text)), "category": pickles.dumps(category)}
            return (stamp, plain)
        case (stamp, str() as text):
            return (stamp, shown(text))
    raise PayloadError("a warning must be text", rule="raw.warn", where="event")


def _category(name: Any) -> type[Warning]:
    """Return the builtin warning class of that exact name, else UserWarning."""
    if not isinstance(name, str):  # str() of another object runs its own code
        return UserWarning
    module, _, cls = name.partition(":")
    found = getattr(builtins, cls, None) if module == "builtins" and cls.isidentifier() else None
    if isinstance(found, type) and issubclass(found, Warning):
        return found
    return UserWarning
