"""Family ``error``: exceptions to bounded data and to one frame of msgpack, and back to data.

The one rule: of a failure only text and plain values cross, each part within its own bound, and
reading them builds nothing; :mod:`.raising` makes exceptions of them.
"""

from __future__ import annotations

import traceback
from typing import Any, NoReturn, TypeGuard

from safeser.errors import PayloadError, SafeserError
from safeser.families import plain, records
from safeser.families.errors.failures import MAX_MESSAGE, STATE, ExceptionData, RemoteError, shown
from safeser.families.errors.paths import relative_frames
from safeser.families.errors.raising import (
    from_data,
    is_listed,
    makes_own,
    name_of,
    register_exception,
)
from safeser.families.plain import DEFAULTS, Unencodable
from safeser.families.registered.program import speaks
from safeser.gate.values import Limits

__all__ = [
    "ExceptionData",
    "RemoteError",
    "decode",
    "decode_counted",
    "encode",
    "from_data",
    "makes_own",
    "register_exception",
    "to_data",
    "traceback_text",
]

#: A traceback keeps its end, where the failure is.
_MAX_NAME = 200
_MAX_TRACEBACK = 100_000
_MAX_NOTES = 20
_MAX_ARGS_BYTES = 64 * 1024
#: Failures in one: causes, contexts and members of groups together, and how deep they nest.
_MAX_LINKS = 64
_MAX_CAUSES = 20
_MAX_MEMBERS = 32
#: Deeper or longer arguments are not readable as a message.
_SMALL = Limits(max_depth=10, max_memory=1 << 17)


def traceback_text(exc: BaseException) -> str:
    """Return the formatted traceback of *exc* alone, cut to its last characters.

    Files of libraries are named from the library's root on.
    """
    lines = traceback.format_exception(type(exc), exc, exc.__traceback__, chain=False)
    return _end(shown(relative_frames("".join(lines))))


def _end(text: str) -> str:
    return text if len(text) <= _MAX_TRACEBACK else "[...]" + text[5 - _MAX_TRACEBACK :]


def _said(exc: BaseException) -> str:
    try:
        return shown(str(exc))[:MAX_MESSAGE]
    except Exception as error:  # a class's own __str__ may do anything
        return f"<its text could not be made: {type(error).__name__}>"


# -- exceptions to data ------------------------------------------------------------------------


def to_data(exc: BaseException) -> ExceptionData:
    """Return *exc*, its notes, causes and members as bounded data; never fails for its contents."""
    data = _Reading().read(exc, 0)
    assert data is not None  # there is room for the first
    return data


class _Reading:
    """One run over one exception: each is read once, and cycles of causes end."""

    def __init__(self) -> None:
        self.room = _MAX_LINKS
        self.seen: dict[int, ExceptionData | None] = {}
        self.members: set[int] = set()

    def read(self, exc: BaseException | None, depth: int) -> ExceptionData | None:
        if exc is None or id(exc) in self.seen:
            return self.seen.get(id(exc))  # None as well while it is being read: a cycle
        if self.room == 0 or depth > _MAX_CAUSES:
            return None
        self.room -= 1
        self.seen[id(exc)] = None
        cause = self.read(exc.__cause__, depth + 1)
        context = None
        if not exc.__suppress_context__ or exc.__context__ is exc.__cause__:
            context = self.read(exc.__context__, depth + 1)
        held = exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()
        read = [self.member(member, depth + 1) for member in held[:_MAX_MEMBERS]]
        members = tuple(member for member in read if member is not None)
        data = _alone(exc, cause, context, members, len(held) - len(members))
        self.seen[id(exc)] = data
        return data

    def member(self, exc: BaseException, depth: int) -> ExceptionData | None:
        """Read each member of a group once: a traceback repeats a group at every occurrence.

        Five groups of eight, each the same one, are 283 bytes and a traceback of three megabytes.
        """
        if id(exc) in self.members:
            return None
        self.members.add(id(exc))
        return self.read(exc, depth)


def _alone(
    exc: BaseException,
    cause: ExceptionData | None,
    context: ExceptionData | None,
    members: tuple[ExceptionData, ...],
    missing: int,
) -> ExceptionData:
    if isinstance(exc, RemoteError):  # keep the first process's text when the failure is forwarded
        name, message = exc.remote_type, str(exc.args[0]) if exc.args else ""
    else:
        name, message = name_of(type(exc)), exc.message if _is_own(exc) else _said(exc)
    try:
        text = traceback_text(exc) if exc.__traceback__ is not None else ""
    except Exception as error:  # formatting calls the class's own __str__ and __repr__
        text = f"<its traceback could not be formatted: {type(error).__name__}>"
    notes = _notes(exc)
    if missing:
        notes = (*notes[: _MAX_NOTES - 1], f"{missing} more exceptions of this group are left out.")
    args, fields = _parts(exc)
    said = [getattr(exc, name) for name in STATE] if _is_own(exc) else []
    return ExceptionData(
        shown(name)[:_MAX_NAME],
        shown(message)[:MAX_MESSAGE],
        args,
        text,
        notes,
        cause,
        context,
        exc.__suppress_context__,
        members,
        fields,
        tuple(shown(text)[:MAX_MESSAGE] for text in said),
    )


def _notes(exc: BaseException) -> tuple[str, ...]:
    notes = getattr(exc, "__notes__", ())
    kept = (notes if isinstance(notes, (list, tuple)) else ())[:_MAX_NOTES]
    return tuple(shown(note)[:MAX_MESSAGE] for note in kept if type(note) is str)


def _is_own(exc: BaseException) -> TypeGuard[SafeserError]:
    """Tell whether a receiver rebuilds *exc* as an error of safeser, from its fields."""
    if not isinstance(exc, SafeserError) or type(exc).__module__ != SafeserError.__module__:
        return False
    # Code that a user runs may set anything.
    return all(type(getattr(exc, name, None)) is str for name in ("message", *STATE))


def _parts(exc: BaseException) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
    """Return the constructor's arguments and the fields of *exc*, where they are plain."""
    args: Any = exc.args
    fields: Any = {}
    if isinstance(exc, BaseExceptionGroup):
        return (exc.message,) if _is_small(exc.message) else None, {}
    try:
        # An OSError hides its file names from args, a JSONDecodeError its document.
        reduced: Any = exc.__reduce_ex__(4)
        if type(reduced) is tuple and reduced[0] is type(exc) is not RemoteError:
            args, fields = reduced[1], reduced[2] if len(reduced) > 2 else {}
    except Exception:  # the class's own code; the message alone is sent then
        args = exc.args
    if type(args) is not tuple or not _is_small(args):
        args = None
    if type(fields) is not dict:
        fields = {}
    if isinstance(exc, AttributeError | NameError):
        fields = {**fields, "name": exc.name}  # which Python 3.11 leaves out of its state
    kept = {
        name: value
        for name, value in fields.items()
        if records.is_attribute(name) and type(value) in _FIELD_TYPES and _is_small(value)
    }
    if speaks(type(exc)) and not is_listed(type(exc)):
        # A reader that has this class as its own does not call it, and cannot see what is missing.
        whole = fields.keys() - {"__notes__"} <= kept.keys() and len(kept) <= _MAX_MEMBERS
        args = args if whole else None
    return args, kept


_FIELD_TYPES = frozenset({type(None), bool, int, float, str, bytes, tuple, list, dict})


def _is_small(value: object) -> bool:
    try:
        size = len(plain.encode(value, limits=_SMALL))
    except Unencodable:
        return False
    return size <= _MAX_ARGS_BYTES


# -- data to a frame ---------------------------------------------------------------------------


def encode(data: ExceptionData, *, limits: Limits = DEFAULTS) -> bytes:
    """Return *data* as one frame of strict msgpack: a list of failures that name each other.

    The frame is within the bounds that receivers enforce, regardless of the origin of *data*.
    """
    links = _ordered(data)
    places = {id(link): place for place, link in enumerate(links)}
    free = set(range(1, len(links)))  # each is a member of one group, and the first of none
    return plain.encode([_described(link, places, free) for link in links], limits=limits)


def _ordered(data: ExceptionData) -> list[ExceptionData]:
    """Return *data* and the failures it refers to, up to the limit, referrers first."""
    kept: dict[int, ExceptionData] = {}
    todo = [data]
    for link in todo:  # breadth first, so that the nearest are kept
        if id(link) not in kept and len(kept) < _MAX_LINKS:
            kept[id(link)] = link
            todo.extend(_sent(link))
    ordered: list[ExceptionData] = []
    done: set[int] = set()
    stack = [data]
    while stack:
        waiting = [link for link in _sent(stack[-1]) if id(link) in kept and id(link) not in done]
        if waiting:
            stack.append(waiting[0])
            continue
        link = stack.pop()
        done.add(id(link))
        ordered.append(link)
    return ordered[::-1]


def _sent(link: ExceptionData) -> list[ExceptionData]:
    """Return the failures that *link* refers to in its frame."""
    chained = len(link.linked()) - len(link.members)
    return link.linked()[: chained + _MAX_MEMBERS]


def _described(link: ExceptionData, places: dict[int, int], free: set[int]) -> list[Any]:
    held = link.members[:_MAX_MEMBERS]
    found = dict.fromkeys(places[id(inner)] for inner in held if id(inner) in places)
    members = [place for place in found if place in free]
    free.difference_update(members)
    fields = link.fields if len(link.fields) <= _MAX_MEMBERS and _is_small(link.fields) else {}
    return [
        link.type[:_MAX_NAME],
        link.message[:MAX_MESSAGE],
        link.args if link.args is not None and _is_small(link.args) else None,
        _end(link.traceback),
        [note[:MAX_MESSAGE] for note in link.notes[:_MAX_NOTES]],
        None if link.cause is None else places.get(id(link.cause)),
        None if link.context is None else places.get(id(link.context)),
        link.suppress,
        members,
        fields,
        [text[:MAX_MESSAGE] for text in link.state[: len(STATE)]],
    ]


# -- a frame to data ---------------------------------------------------------------------------


def decode(frame: bytes | memoryview, *, limits: Limits = DEFAULTS) -> ExceptionData:
    """Return the failure that *frame* describes, each part within its own bound."""
    return decode_counted(frame, limits=limits, room=limits.max_memory)[0]


def decode_counted(
    frame: bytes | memoryview, *, limits: Limits, room: int
) -> tuple[ExceptionData, int]:
    """Return the failure that *frame* describes and what is left of *room* values."""
    links, room = plain.decode_counted(frame, limits=limits, room=room)
    if type(links) is not list or not 1 <= len(links) <= _MAX_LINKS:
        _malformed()
    read: dict[int, ExceptionData] = {}
    referred: set[int] = set()
    held: set[int] = set()
    for place in range(len(links) - 1, -1, -1):
        # Each refers to later ones only, so none can be its own cause.
        read[place] = _link(links[place], read)
        referred.update(map(id, read[place].linked()))
        members = list(map(id, read[place].members))
        if len(set(members)) != len(members) or not held.isdisjoint(members):
            _malformed()  # a failure shared by groups takes exponential time to print
        held.update(members)
    if not all(id(read[place]) in referred for place in range(1, len(links))):
        _malformed()  # a failure that belongs to none would be dropped silently
    return read[0], room


def _link(link: Any, read: dict[int, ExceptionData]) -> ExceptionData:
    if type(link) is not list or len(link) != 11:
        _malformed()
    name, message, args, text, notes, cause, context, suppress, members, fields, state = link
    _check_text(name, _MAX_NAME)
    _check_text(message, MAX_MESSAGE)
    _check_text(text, _MAX_TRACEBACK)
    if args is not None and (type(args) is not tuple or not _is_small(args)):
        _malformed()
    for texts, most in ((notes, _MAX_NOTES), (state, len(STATE))):
        if type(texts) is not list or len(texts) > most:
            _malformed()
        for note in texts:
            _check_text(note, MAX_MESSAGE)
    if type(suppress) is not bool or type(members) is not list or len(members) > _MAX_MEMBERS:
        _malformed()
    if type(fields) is not dict or len(fields) > _MAX_MEMBERS or not _is_small(fields):
        _malformed()
    if not all(map(records.is_attribute, fields)):
        _malformed()
    return ExceptionData(
        name,
        message,
        args,
        text,
        tuple(notes),
        None if cause is None else _referred(cause, read),
        None if context is None else _referred(context, read),
        suppress,
        tuple(_referred(member, read) for member in members),
        fields,
        tuple(state),
    )


def _referred(place: object, read: dict[int, ExceptionData]) -> ExceptionData:
    if type(place) is not int or place not in read:
        _malformed()
    return read[place]


def _check_text(text: object, most: int) -> None:
    if type(text) is not str or len(text) > most:
        _malformed()


def _malformed() -> NoReturn:
    raise PayloadError("the description of a failure is invalid", rule="families.error")
