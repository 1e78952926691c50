"""Failures as data: what an exception said, never the exception itself.

The one rule: of a peer's failure only text and plain values are used. A listed class is called with
plain arguments; every other class is only a name inside :class:`RemoteError`. Nothing is imported,
executed or looked up by a name that a peer wrote.
"""

from __future__ import annotations

import builtins
import traceback
from dataclasses import dataclass, field
from typing import Any, NoReturn

from safeser import errors as safeser_errors
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.families.plain import DEFAULTS, Unencodable
from safeser.pickles.shims.exceptions import check_arguments
from safeser.values import Limits

__all__ = [
    "ExceptionData",
    "RemoteError",
    "decode",
    "encode",
    "from_data",
    "to_data",
    "traceback_text",
]

#: A screen or two each; a traceback keeps its end, where the failure is.
_MAX_NAME = 200
_MAX_MESSAGE = 10_000
_MAX_TRACEBACK = 100_000
_MAX_NOTES = 20
_MAX_ARGS_BYTES = 64 * 1024
_MAX_CAUSES = 20


class RemoteError(Exception):
    """A failure on another process, of a class that is not rebuilt here.

    :ivar remote_type: the class's ``module:qualname``, as the other process wrote it.
    """

    def __init__(self, text: str = "", *, remote_type: str = "") -> None:
        super().__init__(text)
        self.remote_type = remote_type

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else ""
        return f"{self.remote_type}: {text}" if self.remote_type else text

    def __reduce__(self) -> tuple[object, ...]:
        # remote_type is keyword-only: copies need it as state.
        return (type(self), self.args, {**self.__dict__, "remote_type": self.remote_type})


@dataclass(frozen=True, slots=True)
class ExceptionData:
    """What crosses instead of an exception.

    :param type: ``module:qualname`` of its class.
    :param message: what ``str()`` said, cut.
    :param args: its arguments if all of them are plain and small; else None.
    :param traceback: the formatted traceback, cut at its beginning.
    :param notes: what was added with ``add_note``.
    :param cause: what it was raised from, or while handling; None if nothing or suppressed.
    :param explicit: whether the cause was given with ``raise ... from``.
    :param state: fields of a safeser error: rule, where and fix.
    """

    type: str
    message: str
    args: tuple[Any, ...] | None = None
    traceback: str = ""
    notes: tuple[str, ...] = ()
    cause: ExceptionData | None = None
    explicit: bool = False
    state: tuple[str, ...] = field(default=())


_BUILTIN_NAMES = (
    "ArithmeticError",
    "AssertionError",
    "AttributeError",
    "BlockingIOError",
    "BrokenPipeError",
    "BufferError",
    "BytesWarning",
    "ChildProcessError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "DeprecationWarning",
    "EOFError",
    "EncodingWarning",
    "Exception",
    "FileExistsError",
    "FileNotFoundError",
    "FloatingPointError",
    "FutureWarning",
    "ImportError",
    "ImportWarning",
    "IndentationError",
    "IndexError",
    "InterruptedError",
    "IsADirectoryError",
    "KeyError",
    "LookupError",
    "MemoryError",
    "ModuleNotFoundError",
    "NameError",
    "NotADirectoryError",
    "NotImplementedError",
    "OSError",
    "OverflowError",
    "PendingDeprecationWarning",
    "PermissionError",
    "ProcessLookupError",
    "RecursionError",
    "ReferenceError",
    "ResourceWarning",
    "RuntimeError",
    "RuntimeWarning",
    "StopAsyncIteration",
    "StopIteration",
    "SyntaxError",
    "SyntaxWarning",
    "SystemError",
    "TabError",
    "TimeoutError",
    "TypeError",
    "UnboundLocalError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "UnicodeError",
    "UnicodeTranslateError",
    "UnicodeWarning",
    "UserWarning",
    "ValueError",
    "Warning",
    "ZeroDivisionError",
)


def _allowed() -> dict[str, type[BaseException]]:
    """Return classes that are raised as themselves, by name; their constructors only store.

    What some of them store unchecked, and trust when they are printed, is checked before.

    SystemExit, KeyboardInterrupt and GeneratorExit are not among them: leaving a process or a
    generator is the receiver's own decision.
    """
    return {f"builtins:{name}": getattr(builtins, name) for name in _BUILTIN_NAMES}


_BUILTIN = _allowed()

_SAFESER: dict[str, type[SafeserError]] = {
    f"safeser.errors:{name}": getattr(safeser_errors, name) for name in safeser_errors.__all__
}


def traceback_text(exc: BaseException) -> str:
    """Return the formatted traceback of *exc* alone, cut to its last characters."""
    lines = traceback.format_exception(type(exc), exc, exc.__traceback__, chain=False)
    text = _clean("".join(lines))
    return text if len(text) <= _MAX_TRACEBACK else "[...]" + text[5 - _MAX_TRACEBACK :]


def _clean(text: str) -> str:
    """Return *text* as UTF-8 can carry it: exceptions may quote lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _said(exc: BaseException) -> str:
    try:
        return _clean(str(exc))[:_MAX_MESSAGE]
    except Exception as error:  # a class's own __str__ may do anything
        return f"<its text could not be made: {type(error).__name__}>"


def to_data(exc: BaseException) -> ExceptionData:
    """Return *exc*, its notes and its causes as bounded data; never fails for its contents."""
    chain = [exc]
    while len(chain) <= _MAX_CAUSES:
        cause = _cause(chain[-1])
        if cause is None or any(cause is seen for seen in chain):
            break
        chain.append(cause)
    data: ExceptionData | None = None
    for link in reversed(chain):
        data = _link(link, data)
    assert data is not None
    return data


def _cause(exc: BaseException) -> BaseException | None:
    if exc.__cause__ is not None or exc.__suppress_context__:
        return exc.__cause__
    return exc.__context__


def _link(exc: BaseException, cause: ExceptionData | None) -> ExceptionData:
    if isinstance(exc, RemoteError):  # keep the first process's words when it is passed on
        name, message = exc.remote_type, _clean(str(exc.args[0]) if exc.args else "")
    else:
        name, message = f"{type(exc).__module__}:{type(exc).__qualname__}", _said(exc)
    try:
        text = traceback_text(exc) if exc.__traceback__ is not None else ""
    except Exception as error:  # formatting calls the class's own __str__ and __repr__
        text = f"<its traceback could not be formatted: {type(error).__name__}>"
    notes = getattr(exc, "__notes__", ())
    return ExceptionData(
        _clean(name)[:_MAX_NAME],
        message[:_MAX_MESSAGE],
        _plain_args(exc),
        text,
        tuple(
            _clean(note)[:_MAX_MESSAGE]
            for note in (notes if isinstance(notes, (list, tuple)) else ())[:_MAX_NOTES]
            if type(note) is str
        ),
        cause,
        exc.__cause__ is not None,
        _state(exc),
    )


def _state(exc: BaseException) -> tuple[str, ...]:
    """Return what a safeser error says beside its message."""
    if isinstance(exc, SafeserError) and type(exc) in _SAFESER.values():
        return tuple(_clean(text)[:_MAX_MESSAGE] for text in (exc.rule, exc.where, exc.fix))
    return ()


def _plain_args(exc: BaseException) -> tuple[Any, ...] | None:
    # An OSError hides its file names from args; the constructor takes them back as further ones.
    args: tuple[Any, ...] = exc.args
    if isinstance(exc, OSError) and exc.filename is not None and len(args) == 2:
        args = (*args, exc.filename)
        if exc.filename2 is not None:
            args = (*args, None, exc.filename2)
    return args if _is_small(args) else None


def _is_small(args: tuple[Any, ...]) -> bool:
    try:
        size = len(plain.encode(args, limits=Limits(max_depth=10, max_refs=1000)))
    except Unencodable:
        return False
    return size <= _MAX_ARGS_BYTES


def encode(data: ExceptionData, *, limits: Limits = DEFAULTS) -> bytes:
    """Return *data* as one frame of strict msgpack: its chain as a list, outermost first.

    Whoever made *data*, what goes out is within the bounds that every receiver holds it to.
    """
    links: list[list[Any]] = []
    link: ExceptionData | None = data
    while link is not None and len(links) <= _MAX_CAUSES:
        args = link.args if link.args is not None and _is_small(link.args) else None
        links.append(
            [
                link.type[:_MAX_NAME],
                link.message[:_MAX_MESSAGE],
                args,
                link.traceback[-_MAX_TRACEBACK:],
                [note[:_MAX_MESSAGE] for note in link.notes[:_MAX_NOTES]],
                link.explicit,
                [text[:_MAX_MESSAGE] for text in link.state],
            ]
        )
        link = link.cause
    return plain.encode(links, limits=limits)


def decode(frame: bytes | memoryview, *, limits: Limits = DEFAULTS) -> ExceptionData:
    """Return the failure that *frame* describes, each part within its own bound."""
    return decode_counted(frame, limits=limits, room=limits.max_refs)[0]


def decode_counted(
    frame: bytes | memoryview, *, limits: Limits, room: int
) -> tuple[ExceptionData, int]:
    """Return the failure that *frame* describes and what is left of *room* values."""
    links, room = plain.decode_counted(frame, limits=limits, room=room)
    return _chain(links), room


def _chain(links: Any) -> ExceptionData:
    if type(links) is not list or not 1 <= len(links) <= _MAX_CAUSES + 1:
        _malformed()
    data: ExceptionData | None = None
    for link in reversed(links):
        if type(link) is not list or len(link) != 7:
            _malformed()
        name, message, args, text, notes, explicit, state = link
        _check_text(name, _MAX_NAME)
        _check_text(message, _MAX_MESSAGE)
        _check_text(text, _MAX_TRACEBACK)
        if type(args) is not tuple and args is not None:
            _malformed()
        for texts, most in ((notes, _MAX_NOTES), (state, 3)):
            if type(texts) is not list or len(texts) > most:
                _malformed()
            for note in texts:
                _check_text(note, _MAX_MESSAGE)
        if type(explicit) is not bool:
            _malformed()
        data = ExceptionData(name, message, args, text, tuple(notes), data, explicit, tuple(state))
    assert data is not None
    return data


def _check_text(text: object, most: int) -> None:
    if type(text) is not str or len(text) > most:
        _malformed()


def _malformed() -> NoReturn:
    raise PayloadError("a failure is not described as safeser does", rule="families.error")


def from_data(data: ExceptionData) -> BaseException:
    """Return the exception that *data* describes, to be raised or kept by the caller.

    Listed classes come as themselves, all others as :class:`RemoteError`. The remote traceback is
    a note, so that whoever prints the exception sees it.
    """
    links: list[ExceptionData] = []
    link: ExceptionData | None = data
    while link is not None:
        links.append(link)
        link = link.cause
    built: BaseException | None = None
    for link in reversed(links):
        exc = _rebuild(link)
        if built is not None:
            exc.__context__ = built
            if link.explicit:
                exc.__cause__ = built
        built = exc
    assert built is not None
    return built


def _rebuild(data: ExceptionData) -> BaseException:
    exc = _as_itself(data)
    if exc is None:
        exc = RemoteError(data.message, remote_type=data.type)
    for note in data.notes:
        exc.add_note(note)
    if data.traceback and not any(note.startswith(_REMOTE) for note in data.notes):
        exc.add_note(f"{_REMOTE}\n{data.traceback.rstrip()}")
    return exc


_REMOTE = "The traceback on the process where it was raised:"


def _as_itself(data: ExceptionData) -> BaseException | None:
    """Call the listed class with plain arguments; None for whatever does not say the same then."""
    if data.type in _SAFESER and len(data.state) == 3:
        rule, where, fix = data.state
        return _SAFESER[data.type](_first_text(data), rule=rule, where=where, fix=fix)
    cls = _BUILTIN.get(data.type)
    if cls is None or data.args is None:
        return None
    try:
        check_arguments(cls, data.args)
        exc = cls(*data.args)
        same = _said(exc) == data.message
    except Exception:  # a listed constructor that dislikes the arguments: then it is only data
        return None
    return exc if type(exc) is cls and same else None


def _first_text(data: ExceptionData) -> str:
    if data.args and type(data.args[0]) is str:
        return data.args[0]
    return data.message
