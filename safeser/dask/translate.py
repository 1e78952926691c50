"""Fields that Dask pickles or unpickles by itself, carried as data instead.

The one rule: outgoing, a pickle that this very process made becomes plain data; incoming, Dask's
own unpicklers get objects, text, or bytes that safeser emitted here and now, never a peer's.

Where Dask does it (distributed 2026.8.0): ``type`` of a finished task, exceptions and tracebacks
of errors, ``warn`` events, results of ``Client.run`` that failed.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from dask.typing import no_default
from distributed.protocol.serialize import Serialize, Serialized

from safeser import pickles
from safeser.dask import substitutes
from safeser.dask.events import plain_event
from safeser.dask.fields import transform
from safeser.errors import PayloadError, SafeserError
from safeser.families.errors.failures import shown
from safeser.families.errors.wire import (
    ExceptionData,
    RemoteError,
    encode,
    from_data,
    to_data,
)
from safeser.operations import Encoding, Server

__all__ = [
    "PICKLE_HEADER",
    "WARN",
    "Failure",
    "Relayed",
    "failure_of",
    "from_dask_pickle",
    "from_pickled_error",
    "incoming_element",
    "incoming_reply",
    "outgoing",
    "serialize_failure",
    "to_dask_pickle",
]

Note = Callable[[PayloadError], object]

logger = logging.getLogger("safeser.dask")

#: The topic of events that Dask opens as warnings.
WARN = "warn"

#: Longer than any real class's name.
_TYPE_NAME = 200

#: As much of a traceback as family ``error`` carries.
_TRACEBACK = 100_000


#: The class of an error that cannot be read: any other name would be that of another class.
_UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception on its way out, as data."""

    data: ExceptionData


class Relayed(Serialized):  # type: ignore[misc]  # distributed ships no types
    """A payload that this process passes on unopened, with the principal who wrote it."""

    def __init__(self, header: Any, frames: Any, *, author: str, failed: bool = False) -> None:
        # Under a family that Dask doesn't know, none of its code can open this.
        super().__init__({"serializer": "safeser"}, frames)
        self.sealed_header = header
        self.author = author
        self.failed = failed

    def as_failed(self) -> Relayed:
        """Return this failure as what stands in place of a value that could not be sent."""
        return Relayed(self.sealed_header, self.frames, author=self.author, failed=True)

    def __repr__(self) -> str:
        return f"<Relayed: {self.sealed_header.get('serializer')} by {self.author}>"


# --- outgoing ----------------------------------------------------------------------------------


def outgoing(message: Any, *, takes_code: Callable[[], bool] = lambda: False) -> Any:
    """Return *message* with the pickles that Dask put into its fields turned into data.

    :param takes_code: tells whether its recipient may be sent code.
    """
    if not isinstance(message, dict):
        return message
    changed: dict[str, Any] = {}
    if message.get("exception") is not None:
        failure = _failure(message["exception"], message)
        changed["exception"] = failure
        changed["traceback"] = _whole(failure, message) if takes_code() else None
    if message.get("op") == "task-finished":
        # The name travels beside the pickle anyway.
        changed["type"] = message.get("typename")
    elif message.get("op") == "log-event" and message.get("topic") == WARN:
        changed["msg"] = _plain_warning(message.get("msg"))
    elif message.get("op") == "get_metadata" and message.get("default") is no_default:
        # Dask's word for "none was given", an enum; left out it means the same to the handler.
        return {key: value for key, value in message.items() if key != "default"}
    return {**message, **changed} if changed else message


def _failure(value: Any, message: Mapping[str, Any]) -> Any:
    """Return the exception that *value* holds as data; what a peer wrote passes unchanged."""
    if isinstance(value, Relayed | Failure):
        return value
    traceback = message.get("traceback_text")
    traceback = traceback if isinstance(traceback, str) else ""
    if isinstance(value, Serialize):
        value = value.data
    if isinstance(value, Serialized):
        value = bytes(value.frames[0]) if len(value.frames) == 1 else b""
    if isinstance(value, BaseException):
        return Failure(_with_traceback(to_data(value), traceback))
    if isinstance(value, bytes | bytearray):
        # Pickled by this process; read as data all the same, so that it never matters who did.
        return Failure(from_pickled_error(bytes(value), message, traceback))
    return Failure(to_data(Exception(str(message.get("exception_text", value)))))


def _whole(failure: Any, message: Mapping[str, Any]) -> Serialized | None:
    """Return the failure's own pickle, where its class means something to this program alone.

    It travels in the field of the traceback, which has no other use here: each recipient decides it
    by itself, and who may not open it has the failure as data.
    """
    if isinstance(failure, Relayed):
        traceback = message.get("traceback")
        return traceback if isinstance(traceback, Relayed) else None
    value = message["exception"]
    value = value.data if isinstance(value, Serialize) else value
    if not _is_partly_named(from_data(failure.data)):
        return None
    if isinstance(value, Exception):
        # Errors of actors alone are not pickled by Dask first.
        try:
            value = pickles.dumps(value, code=True)
        except SafeserError:
            return None
    if not isinstance(value, bytes):
        return None
    return Serialized({"serializer": "pickle", "writeable": ()}, [value])


def _is_partly_named(error: BaseException | None) -> bool:
    """Tell whether *error*, or what it was raised from, stands for a class that is only named."""
    while error is not None and not isinstance(error, RemoteError):
        error = error.__cause__ or error.__context__
    return error is not None


def from_pickled_error(data: bytes, message: Mapping[str, Any], traceback: str) -> ExceptionData:
    """Return the pickled exception *data* as data, or what *message* says of it beside it."""
    try:
        record = pickles.exception_record(data)
    except SafeserError:
        text = message.get("exception_text")
        return ExceptionData(
            type=_UNKNOWN,
            message=text if isinstance(text, str) else "an error that could not be read",
            traceback=traceback,
        )
    return _with_traceback(_data(record), traceback)


def _data(record: pickles.ExceptionRecord) -> ExceptionData:
    """Return a pickled exception's record as family ``error`` has it, its chain included."""
    return ExceptionData(
        type=record.name or _UNKNOWN,
        message=_said(record),
        args=record.args if record.complete else None,
        notes=record.notes,
        cause=None if record.cause is None else _data(record.cause),
        context=None if record.context is None else _data(record.context),
        suppress=record.cause is not None or record.suppress_context,
        # Of another class it would say nothing.
        state=(record.rule, record.where, record.fix) if _is_ours(record) else (),
    )


def _is_ours(record: pickles.ExceptionRecord) -> bool:
    return record.name.partition(":")[0] == PayloadError.__module__ and bool(record.rule)


def _said(record: pickles.ExceptionRecord) -> str:
    """Return what ``str()`` says: KeyError quotes its argument, OSError shows its number."""
    module, _, name = (record.name or "").partition(":")
    cls = getattr(builtins, name, None) if module == "builtins" else None
    if record.complete and isinstance(cls, type) and issubclass(cls, Exception):
        try:
            return str(cls(*record.args))
        except (TypeError, ValueError, OverflowError):  # not arguments that this class takes
            pass
    return record.text


def _with_traceback(data: ExceptionData, text: str) -> ExceptionData:
    """Return *data* with the traceback that Dask formatted where the failure happened."""
    return replace(data, traceback=text[-_TRACEBACK:]) if text else data


def failure_of(error: BaseException) -> Failure:
    """Return *error* as a leaf of an outgoing message; its traceback stays in this process."""
    return Failure(replace(to_data(error), traceback=""))


def serialize_failure(failure: Failure) -> tuple[dict[str, Any], list[Any]]:
    """Return the header and frames of family ``error`` for *failure*."""
    return {"serializer": "error"}, [encode(failure.data)]


# --- pickles that Dask itself makes and opens ----------------------------------------------------

#: The header of a field that holds nothing but the bytes of one pickle.
PICKLE_HEADER: dict[str, Any] = {"serializer": "pickle", "writeable": []}


def from_dask_pickle(header: Any, frames: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return our header for a payload that this process serialized with Dask's own functions.

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
    """Return what a pickled text or warning says, and the category that a warning has itself."""
    try:
        named = pickles.global_of(data)
        if named is not None:
            return named, None
        value = pickles.loads(data, profile="data")
    except SafeserError:
        return _text_of_warning(data)
    return value if isinstance(value, str) else str(value), None


def _text_of_warning(data: bytes) -> tuple[str, str | None]:
    try:
        record = pickles.exception_record(data)
    except SafeserError:
        record = None
    if record is None or record.name is None or not record.args:
        return "a message that could not be read", None
    return _said(record), record.name


# --- incoming ----------------------------------------------------------------------------------


def incoming_element(
    server: Server,
    name: str,
    element: dict[str, Any],
    *,
    takes_code: Callable[[], bool] = lambda: False,
    note: Note = logger.warning,
) -> dict[str, Any]:
    """Return a decided stream element as the handler of *name* on *server* may have it.

    :param takes_code: tells whether its sender may hand code to this process.
    :param note: is told of each field that was refused and replaced.
    :raises PayloadError: if a field that Dask would unpickle still holds a peer's bytes.
    """
    element = _without_raw_errors(element, note)
    if server is Server.CLIENT:
        # A status that says error makes Dask's client raise inside its report loop, which ends
        # the loop and hangs every future.
        element.pop("status", None)
        element |= {k: _plain_text(element[k], note=note) for k in _SHOWN if k in element}
        if name == "key-in-memory":
            element["type"] = _type_pickle(element.get("type"), takes_code, note)
        elif name == "event":
            element["event"] = _plain_event(element)
        elif name == "task-erred" and element.get("exception") is None:
            element["exception"] = _unsaid(note)
    elif name == "task-erred" and element.get("traceback") is None:
        # The scheduler keeps the text only where it has a traceback, for which Dask itself takes
        # text. It goes no further: a client has it from the failure.
        text = element.get("traceback_text")
        element["traceback"] = text if isinstance(text, str) else None
    elif name == "task-finished" and not isinstance(element.get("type"), str | None):
        raise PayloadError("the type of a result must be a name", rule="raw.type", where="type")
    return element


def incoming_reply(
    fields: Mapping[str, Encoding], reply: Any, *, note: Note = logger.warning
) -> Any:
    """Return a decided reply as the code that asked for it may have it.

    :param fields: where the operation's replies hold what Dask would unpickle.
    :param note: is told of each field that was refused and replaced.
    """
    if isinstance(reply, dict):
        reply = _without_raw_errors(reply, note)
        status = reply.get("status")
        if type(status) is str and status == "uncaught-error" and reply.get("exception") is None:
            reply["exception"] = _unsaid(note)
    for path, encoding in fields.items():
        if encoding is Encoding.ERROR:
            safe = _SAFE[path.rpartition(".")[2]]
            reply = transform(reply, path, partial(safe, note=note))
        elif encoding is Encoding.NESTED:
            reply = transform(reply, path, partial(_nested_reply, note=note))
    return reply


def _nested_reply(answer: Any, *, note: Note) -> Any:
    """Return one worker's part of a broadcast's reply; Client.run unpickles bytes as an error."""
    if isinstance(answer, bytes):
        return pickles.dumps(from_data(from_pickled_error(answer, {}, "")))
    return _without_raw_errors(answer, note) if isinstance(answer, dict) else answer


def _without_raw_errors(message: dict[str, Any], note: Note) -> dict[str, Any]:
    """Refuse bytes where Dask's ``clean_exception`` would unpickle them."""
    message = dict(message)
    said = message.get("exception")
    if isinstance(said, Exception) and _is_partly_named(said):
        message["exception"] = _as_it_was(said, message.get("traceback"))
    for name, safe in _SAFE.items():
        if name in message:
            message[name] = safe(message[name], note=note)
    return message


def _as_it_was(said: Exception, whole: Any) -> Exception:
    """Return *whole*, the same failure as code, if policy let it in; with what was said of it."""
    if not isinstance(whole, Exception):
        return said
    for note in getattr(said, "__notes__", ()):
        BaseException.add_note(whole, note)
    if whole.__cause__ is None and whole.__context__ is None:
        whole.__cause__, whole.__context__ = said.__cause__, said.__context__
        whole.__suppress_context__ = said.__suppress_context__
    return whole


def _safe_exception(value: Any, *, note: Note) -> Any:
    if value is None or isinstance(value, BaseException | Relayed):
        return value
    if isinstance(value, str):
        return _plain_text(value, note=note)  # Dask makes an Exception of it
    refusal = PayloadError(
        "an error arrived as raw bytes, which are never unpickled",
        rule="raw.exception",
        where="exception",
        fix="Its text is in the log of the process that raised it.",
    )
    note(refusal)
    return refusal


def _unsaid(note: Note) -> PayloadError:
    """Return what is raised for a failure that does not say what failed; Dask would raise None."""
    refusal = PayloadError(
        "a failure arrived without any error",
        rule="raw.exception",
        where="exception",
        fix="No honest peer sends that.",
    )
    note(refusal)
    return refusal


def _no_traceback(value: Any, *, note: Note) -> Relayed | None:
    """Drop a traceback: its text is a note of the exception, and no object is made of a peer's.

    What is only passed on is no traceback but the failure itself, see :func:`_whole`.
    """
    if isinstance(value, bytes):
        note(_raw("a traceback", "traceback"))
    return value if isinstance(value, Relayed) else None


def _plain_text(value: Any, *, note: Note) -> Any:
    """Return text of a peer's, which ends up in logs and on terminals, so that it steers none."""
    del note
    return shown(value[-_TRACEBACK:]) if isinstance(value, str) else value


_SAFE: dict[str, Callable[..., Any]] = {
    "exception": _safe_exception,
    "traceback": _no_traceback,
    "exception_text": _plain_text,
    "traceback_text": _plain_text,
}

#: What Dask's client shows to its user of elements that hold no error.
_SHOWN = ("msg", "reason", "warning", "error")


def _raw(what: str, where: str) -> PayloadError:
    """Return why bytes of a peer's that Dask would unpickle are left out."""
    return PayloadError(
        f"{what} arrived as raw bytes, which are never unpickled", rule=f"raw.{where}", where=where
    )


def _type_pickle(name: Any, takes_code: Callable[[], bool], note: Note) -> bytes | None:
    """Return bytes, made here, that Dask's client unpickles to a class of that name."""
    if not isinstance(name, str):
        if name is not None:
            note(_raw("the type of a result", "type"))
        return None
    if takes_code() and substitutes.known_type(name) is not None:
        return _named_type(name, known=True)
    return _named_type(name[:_TYPE_NAME], known=False)


@lru_cache(maxsize=256)
def _named_type(name: str, *, known: bool) -> bytes:
    if not known:
        name = "".join(char for char in name if char.isprintable())
    return pickles.dumps(substitutes.NamedType(name, known=known))


def _plain_event(element: Mapping[str, Any]) -> Any:
    """Return the event that Dask's client handles by its topic; decided on an exact name.

    An array in place of the topic would be compared element by element, and the error that follows
    would end the client's report loop.
    """
    topic, event = element.get("topic"), element.get("event")
    if not isinstance(topic, str):
        raise PayloadError("the topic of an event must be a name", rule="raw.topic", where="topic")
    return _warning_event(event) if topic == WARN else plain_event(topic, event)


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
    if not isinstance(name, str):  # text of another object is made by its own code, and may fail
        return UserWarning
    module, _, cls = name.partition(":")
    found = getattr(builtins, cls, None) if module == "builtins" and cls.isidentifier() else None
    if isinstance(found, type) and issubclass(found, Warning):
        return found
    return UserWarning
