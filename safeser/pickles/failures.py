"""Read a pickled exception as data, its traceback included, without importing or calling anything.

The one rule: everything in a peer's exception is text and nothing more. tblib rebuilds frames by
``exec`` on unpickled values and calls a function of the peer's choice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from safeser.gate.values import ELEMENT, Limits
from safeser.pickles.names import shown
from safeser.pickles.nodes import ABSENT, KINDS, Call, DictOf, GlobalRef, ListOf, TupleOf
from safeser.pickles.reading.machine import read

# What a reader can use; dask cuts error text at 10,000 characters of its own accord.
_MAX_TEXT = 10_000
_MAX_ARGS = 100
_MAX_NOTES = 100
_MAX_CHAIN = 16
_MAX_FRAMES = 200
_MAX_NEST = 4
_MAX_BITS = 1024
# What reading may take: chained errors with hundreds of frames each, some 75 elements to a frame,
# and text enough to fill a record. Far less than what a message of data may take.
_LIMITS = Limits(max_bytes=4 << 20, max_memory=100_000 * ELEMENT, max_calls=10_000)

# What one record may say and take, beside as much for each byte of its pickle: honest ones repeat
# the names of files and functions, and little else. One text can stand everywhere in a record that
# has room for four million, and a tuple of a hundred times itself, four levels deep, is 400 bytes.
_ROOM = 1000
_ROOM_PER_BYTE = 4

_WITH_ATTRS = "tblib.pickling_support:unpickle_exception_with_attrs"
_PLAIN = "tblib.pickling_support:unpickle_exception"
_TRACEBACK = "tblib.pickling_support:unpickle_traceback"


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """One line of a traceback, as the sender states it."""

    filename: str
    function: str
    line: int


@dataclass(frozen=True, slots=True)
class ExceptionRecord:
    """An exception as data, every part of it bounded.

    :param name: ``module:qualname`` of the class, or ``""`` where the pickle doesn't say.
    :param args: arguments, where they are plain: texts, bytes, numbers, None, tuples of them.
        Others are replaced by a short description in angle brackets.
    :param notes: what ``add_note`` added.
    :param cause: what ``raise ... from`` named.
    :param context: what was being handled; None where that is the cause.
    :param complete: False where something could not be read or was cut.
    :param rule: of one of safeser's own errors, by which rule something was refused,
    :param where: in which place,
    :param fix: what to change,
    :param policy: by which policy,
    :param process: and on which process.
    """

    name: str = ""
    args: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    cause: ExceptionRecord | None = None
    context: ExceptionRecord | None = None
    suppress_context: bool = False
    frames: tuple[FrameRecord, ...] = ()
    complete: bool = True
    rule: str = ""
    where: str = ""
    fix: str = ""
    policy: str = ""
    process: str = ""

    @property
    def text(self) -> str:
        """The text that ``str()`` of such an exception normally returns."""
        if not self.args:
            return ""
        if len(self.args) > 1:
            return str(self.args)
        return self.args[0] if isinstance(self.args[0], str) else repr(self.args[0])


def exception_record(data: bytes, *, limits: Limits | None = None) -> ExceptionRecord:
    """Return the pickled exception *data* as data.

    An exception that is made in an unknown way gives a record with ``complete=False`` and what is
    known. Bytes that are no pickle at all, or larger than errors are, raise
    :class:`~safeser.errors.PayloadError`.

    :param limits: default: what errors take, not what data may.
    """
    root = read(data, buffers=None, limits=limits or _LIMITS).root
    telling = _Telling(len(data))
    if isinstance(root, Call):
        return telling.chain(root)
    return ExceptionRecord(args=(telling.plain(root, 0),), complete=False)


def traceback_record(data: bytes, *, limits: Limits | None = None) -> tuple[FrameRecord, ...]:
    """Return the lines of the pickled traceback *data*, outermost first; none if it is not one."""
    root = read(data, buffers=None, limits=limits or _LIMITS).root
    return _Telling(len(data)).frames(root)


@dataclass(frozen=True, slots=True)
class _Parts:
    name: str
    args: Any
    cause: Any = None
    context: Any = None
    suppress: Any = False
    notes: Any = None
    traceback: Any = None
    state: Any = None


@dataclass(frozen=True, slots=True)
class _Link:
    """One exception, and which of the exceptions it names are told as part of it."""

    index: int
    record: ExceptionRecord
    cause: int | None
    context: int | None


class _Telling:
    """One run over one pickle, whose work and words are bounded by how long it is.

    A pickle names its parts as often as it likes: what is told is charged each time.
    """

    def __init__(self, size: int) -> None:
        self._room = _ROOM + _ROOM_PER_BYTE * size

    def _takes(self, cost: int) -> bool:
        self._room -= cost
        return self._room >= 0

    def chain(self, root: Call) -> ExceptionRecord:
        """Return the record of *root* with its causes and contexts, each told once.

        Exceptions may share causes, and one is usually the cause and the context of another; told
        as often as they are named, sixteen of them would fill the memory of the process that prints
        them.
        """
        seen = {root.index}
        links: list[_Link] = []
        pending = [root]
        while pending:
            call = pending.pop()
            parts = self._parts(call)
            told: list[int | None] = []
            for named in (parts.cause, parts.context):
                fresh = (
                    isinstance(named, Call) and named.index not in seen and len(seen) < _MAX_CHAIN
                )
                told.append(named.index if fresh else None)
                if fresh:
                    seen.add(named.index)
                    pending.append(named)
            links.append(_Link(call.index, self._alone(parts, *told), *told))
        made: dict[int | None, ExceptionRecord] = {}
        for link in reversed(links):
            cause, context = made.get(link.cause), made.get(link.context)
            made[link.index] = replace(link.record, cause=cause, context=context)
        return made[root.index]

    def _alone(self, parts: _Parts, cause: int | None, context: int | None) -> ExceptionRecord:
        items = parts.args.items if isinstance(parts.args, TupleOf | ListOf) else []
        lost = (parts.cause is not None and cause is None) or (
            parts.context not in (None, parts.cause) and context is None
        )
        args = tuple(self.plain(item, 0) for item in items[:_MAX_ARGS])
        told = self._told(parts.state)
        whole = not lost and bool(parts.name) and len(items) <= _MAX_ARGS and self._room >= 0
        return ExceptionRecord(
            name=parts.name,
            args=args,
            notes=self._notes(parts.notes),
            suppress_context=parts.suppress is True,
            frames=self.frames(parts.traceback),
            complete=whole,
            **told,  # type: ignore[arg-type]  # the texts of _OF_REFUSAL, and nothing else
        )

    def _told(self, state: Any) -> dict[str, str]:
        """Return what one of safeser's errors says beside its message."""
        fields = self._fields(state)
        told = {name: fields.get(name) for name in _OF_REFUSAL}
        return {
            name: text[:_MAX_TEXT]
            for name, text in told.items()
            if isinstance(text, str) and self._takes(min(len(text), _MAX_TEXT))
        }

    def _parts(self, call: Call) -> _Parts:
        args = [*call.args.items[:_MAX_MADE_OF], *([None] * _MAX_MADE_OF)]
        maker = _maker(call)
        if maker == _WITH_ATTRS:
            attributes = self._fields(args[1])
            given = attributes.get("args", args[7])
            return _Parts(class_name(args[0]), given, args[2], args[4], args[5], args[6], args[3])
        if maker == _PLAIN:
            made = class_name(args[0])
            return _Parts(
                made, args[1], args[2], args[4], args[5], args[6], args[3], state=call.state
            )
        # BaseException.__reduce__: the class itself, its arguments, and perhaps __dict__ as state.
        state = {} if call.state is ABSENT else self._fields(call.state)
        return _Parts(_name(call), call.args, notes=state.get("__notes__"), state=call.state)

    def _fields(self, node: Any) -> dict[str, Any]:
        if not isinstance(node, DictOf) or not self._takes(len(node.items)):
            return {}
        return _named(node)

    def plain(self, value: Any, depth: int) -> Any:
        if isinstance(value, str | bytes):
            return value[:_MAX_TEXT] if self._takes(1 + min(len(value), _MAX_TEXT)) else _TOO_MUCH
        if value is None or isinstance(value, int | float):
            large = isinstance(value, int) and value.bit_length() > _MAX_BITS
            return "<a large integer>" if large else value
        if not self._takes(1):
            return _TOO_MUCH
        if isinstance(value, TupleOf) and depth < _MAX_NEST and len(value.items) <= _MAX_ARGS:
            if not self._takes(len(value.items)):
                return _TOO_MUCH
            return tuple(self.plain(item, depth + 1) for item in value.items)
        return f"<{_described(value)}>" if self._takes(_cost(value)) else _TOO_MUCH

    def _notes(self, node: Any) -> tuple[str, ...]:
        if not isinstance(node, ListOf):
            return ()
        kept = [note[:_MAX_TEXT] for note in node.items[:_MAX_NOTES] if isinstance(note, str)]
        return tuple(note for note in kept if self._takes(len(note)))

    def frames(self, node: Any) -> tuple[FrameRecord, ...]:
        """Read tblib's traceback: (frame, line, rest); rest is an object with such fields."""
        frames: list[FrameRecord] = []
        # Its rest may be the very same again.
        while isinstance(node, Call) and len(frames) < _MAX_FRAMES and self._takes(1):
            if isinstance(node.callee, GlobalRef) and node.callee.name == _TRACEBACK:
                frame, line, node = [*node.args.items[:3], None, None, None][:3]
            else:
                fields = self._fields(_dict_state(node))
                frame, line, node = (fields.get(f"tb_{part}") for part in _OF_TRACEBACK)
            code = self._fields(_dict_state(self._fields(_dict_state(frame)).get("f_code")))
            filename, function = code.get("co_filename"), code.get("co_name")
            if type(filename) is str and type(function) is str and type(line) is int:
                shown_as = _line(filename), _line(function)
                if self._takes(len(shown_as[0]) + len(shown_as[1])):
                    frames.append(FrameRecord(*shown_as, line))
        return tuple(frames)


#: Arguments by which any way to make an exception is told from another.
_MAX_MADE_OF = 8

_OF_TRACEBACK = ("frame", "lineno", "next")
_OF_REFUSAL = ("rule", "where", "fix", "policy", "process")

_TOO_MUCH = "<too much to be told>"

_NOT_EXCEPTIONS = frozenset({_TRACEBACK, "builtins:type", "builtins:getattr"})


def _maker(call: Call) -> str:
    return call.callee.name if isinstance(call.callee, GlobalRef) else ""


def _name(call: Call) -> str:
    """Return the name of the exception's class that *call* makes, or ``""``."""
    maker = _maker(call)
    if maker in (_WITH_ATTRS, _PLAIN):
        return class_name(call.args.items[0]) if call.args.items else ""
    named = isinstance(call.callee, GlobalRef) and maker not in _NOT_EXCEPTIONS
    return class_name(call.callee) if named or not maker else ""


def class_name(node: Any) -> str:
    """Return the name of the class that *node* stands for, or ``""``."""
    if isinstance(node, GlobalRef):
        return shown(node.name)
    # cloudpickle makes classes of scripts and notebooks: metaclass, name, bases, attributes, ...
    if isinstance(node, Call) and isinstance(node.callee, GlobalRef):
        args = node.args.items
        if node.callee.qualname == "_make_skeleton_class" and len(args) > 3:
            fields = _named(args[3])
            name, module = fields.get("__qualname__", args[1]), fields.get("__module__")
            if isinstance(name, str):
                return shown(f"{module if isinstance(module, str) else '__main__'}:{name}")
    return ""


def _named(node: Any) -> dict[str, Any]:
    # Longer ones are no object's attributes.
    if not isinstance(node, DictOf) or len(node.items) > _MAX_NAMED:
        return {}
    items = node.items
    return {items[at]: items[at + 1] for at in range(0, len(items), 2) if type(items[at]) is str}


_MAX_NAMED = 2000


def _cost(value: Any) -> int:
    """Return the cost of describing *value*: of its name, or of searching its attributes."""
    if not isinstance(value, GlobalRef | Call):
        return 0
    pending = [value.callee, *value.args.items[:1]] if isinstance(value, Call) else [value]
    cost = 0
    for named in pending:
        if isinstance(named, Call):
            cost += sum(len(part.items) for part in named.args.items[3:4] if type(part) is DictOf)
        elif isinstance(named, GlobalRef):
            cost += len(named.name)
    return cost


def _described(value: Any) -> str:
    if isinstance(value, GlobalRef):
        return shown(value.name)
    if isinstance(value, Call):
        return f"{_name(value) or 'some'} object"
    return KINDS.get(type(value), "some object")


def _dict_state(node: Any) -> Any:
    return node.state if isinstance(node, Call) else None


def _line(text: str) -> str:
    text = text[:512]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
