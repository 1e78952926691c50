"""Write failures as data before they are sent: exceptions, and Dask's pickles of them.

The one rule: even a pickle that this process made is read as data. The report of a failure in a
server's own code names no folder of the server's file system; a failure in a user's code does.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from distributed.protocol.serialize import Serialize, Serialized, to_serialize

from safeser import pickles
from safeser.errors import PayloadError, SafeserError
from safeser.families.errors.paths import relative_frames, withheld, withheld_text
from safeser.families.errors.wire import ExceptionData, RemoteError, encode, from_data, to_data
from safeser.operations import Operation

#: As much of a traceback as family ``error`` carries.
TRACEBACK = 100_000


#: What Dask says in text of a failure, beside its pickles.
_TEXTS = ("exception_text", "traceback_text")

#: Groups of operations by which a server runs what its peer sends.
_RUNNING = frozenset({"run", "plugins", "actors"})

#: The class of an error that cannot be read: any other name would be that of another class.
_UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception on its way out, as data."""

    data: ExceptionData
    #: Whether it stands in place of a value.
    failed: bool = False


class Told(bytes):
    """Dask's pickle of an exception of this process, with what the exception itself says.

    The pickle lacks what ``__reduce__`` leaves out, and is a text of what cannot be pickled.
    """

    data: ExceptionData


def told(
    stock: Callable[..., dict[str, Any]], e: BaseException, status: str = "error"
) -> dict[str, Any]:
    """Return what Dask's ``error_message``, *stock*, does, with what the exception itself says."""
    message = stock(e, status)
    pickled = Told(message["exception"].data)
    pickled.data = to_data(e)
    return {**message, "exception": to_serialize(pickled)}


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


def is_of_user(message: Mapping[str, Any], answers: Operation | None) -> bool:
    """Tell whether *message* reports a failure of code that the recipient had run here.

    Where Dask's handler itself failed, the status says so whatever was asked for.
    """
    return answers is not None and answers.group in _RUNNING and message.get("status") == "error"


def described(
    message: Mapping[str, Any], *, of_user: bool, takes_code: Callable[[], bool]
) -> dict[str, Any]:
    """Return the fields of *message* that say why something failed, as its recipient may know it.

    :param of_user: the recipient's code failed: its files are named, and those of libraries from
        their own folders on. Else no folder is named.
    """
    failure = _failure(message["exception"], message)
    relayed = isinstance(failure, Relayed)
    whole = _whole(failure, message) if (of_user or relayed) and takes_code() else None
    if relayed:
        return {"exception": failure, "traceback": whole}
    texts = {name: message[name] for name in _TEXTS if isinstance(message.get(name), str)}
    if of_user:
        tell = relative_frames
    else:
        tell, data = withheld_text, withheld(failure.data)
        if message.get("status") == "uncaught-error" and data.state:
            # A handler of Dask's passed a refusal on: the frames are Dask's and safeser's.
            data = replace(data, traceback="")
        failure = Failure(data)
    said = {name: tell(text) for name, text in texts.items()}
    return {"exception": failure, "traceback": whole, **said}


def is_failure(event: Any) -> bool:
    """Tell whether a worker logs why it closes, as Dask's ``error_message`` puts it."""
    return isinstance(event, dict) and "exception" in event and "traceback_text" in event


def logged(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return such an event as text, for all clients that may read events."""
    private = described(event, of_user=False, takes_code=lambda: False)
    texts = {name: private[name] for name in _TEXTS if name in private}
    return {**event, **texts, "exception": None, "traceback": None}


def relayed_answer(answer: Any) -> Any:
    """Return one server's part of an answer that is relayed; an error instead is this process's."""
    if isinstance(answer, bytes):
        return pickles.dumps(from_data(withheld(from_pickled_error(answer, {}, ""))))
    if isinstance(answer, Exception):
        return Failure(withheld(to_data(answer)))
    return answer


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
    if isinstance(value, Told):
        return Failure(_with_traceback(value.data, traceback))
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
    if not is_partly_named(from_data(failure.data)):
        return None
    if isinstance(value, Exception):
        # Errors of actors alone are not pickled by Dask first.
        try:
            value = pickles.dumps(value, code=True)
        except SafeserError:
            return None
    if not isinstance(value, bytes):
        return None
    return Serialized({"serializer": "pickle", "writeable": ()}, [bytes(value)])


def is_partly_named(error: BaseException | None) -> bool:
    """Tell whether *error*, or what it was raised from, stands for a class that is only named."""
    while error is not None and not isinstance(error, RemoteError):
        error = error.__cause__ or error.__context__
    return error is not None


def from_pickled_error(data: bytes, message: Mapping[str, Any], traceback: str) -> ExceptionData:
    """Return the pickled exception *data* as data, or as the text beside it in *message*."""
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
        message=record_text(record),
        args=record.args if record.complete else None,
        notes=record.notes,
        cause=None if record.cause is None else _data(record.cause),
        context=None if record.context is None else _data(record.context),
        suppress=record.cause is not None or record.suppress_context,
        # Of another class it would say nothing.
        state=(record.rule, record.where, record.fix, record.policy, record.process)
        if (record.name.partition(":")[0] == PayloadError.__module__ and bool(record.rule))
        else (),
    )


def record_text(record: pickles.ExceptionRecord) -> str:
    """Return the text of ``str()``: KeyError quotes its argument, OSError shows its number."""
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
    return replace(data, traceback=relative_frames(text)[-TRACEBACK:]) if text else data


def failure_of(error: BaseException) -> Failure:
    """Return *error* as a leaf of an outgoing message; its traceback stays in this process."""
    return Failure(replace(to_data(error), traceback=""))


def serialize_failure(failure: Failure) -> tuple[dict[str, Any], list[Any]]:
    """Return the header and frames of family ``error`` for *failure*."""
    return {"serializer": "error"}, [encode(failure.data)]
