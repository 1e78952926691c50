"""Build exceptions from failure data: listed classes as themselves, others as RemoteError.

The one rule: safeser lists a class, or its author registers it, and the class receives plain
arguments only; every other class is a name inside :class:`RemoteError`. No name that a peer wrote
is imported, executed or looked up outside these lists.
"""

from __future__ import annotations

import builtins
import functools
import re
import sys
from functools import partial
from typing import Any

from safeser import errors as safeser_errors
from safeser.errors import SafeserError
from safeser.families.errors.failures import (
    MAX_MESSAGE,
    STATE,
    ExceptionData,
    RemoteError,
    shown,
)
from safeser.families.plain import DEFAULTS
from safeser.families.registered import program
from safeser.families.registered.naming import refuse_class
from safeser.families.registry import is_remade
from safeser.pickles.profiles import Profile
from safeser.pickles.shims.site import Site
from safeser.pickles.shims.stdlib.exceptions import SHIMS, check_arguments, without_file

__all__ = [
    "called",
    "frames_of_users",
    "from_data",
    "is_listed",
    "makes_own",
    "name_of",
    "register_exception",
]

_SAFESER: dict[str, type[SafeserError]] = {
    f"safeser.errors:{name}": getattr(safeser_errors, name) for name in safeser_errors.__all__
}

#: A group of failures of which some would leave the process comes as a group of what they said.
_GROUPS = ("builtins:ExceptionGroup", "builtins:BaseExceptionGroup")

#: Of Python itself, by name, what is raised as itself. Its constructors only store; what some of
#: them store unchecked, and trust when they are printed, is checked before. SystemExit,
#: KeyboardInterrupt and GeneratorExit are not listed: leaving a process or a generator is the
#: receiver's own decision. Read at import: later, a process may have no file left to open.
_BUILTIN: dict[str, type[BaseException]] = {
    name: getattr(builtins, name.removeprefix("builtins:"))
    for name, entry in Profile.named("exceptions").entries.items()
    if entry.make == "exceptions.exception" and name not in _GROUPS
}

_REGISTERED: dict[str, type[Exception]] = {}
_NAMES: dict[type, str] = {}

#: What the reviewed constructors of pickles may take for one failure.
_ROOM = 1 << 20

_REMOTE = "The traceback on the process where it was raised:"

#: Added to a peer's error, so that its text cannot pass for safeser's advice to grant more.
_NOT_OURS = "Another process says so, about its own policy: nothing was refused here."


def register_exception(cls: type[BaseException], name: str) -> None:
    """Let *cls* be raised as itself where a failure has *name*; see ``register_class``."""
    if not issubclass(cls, Exception) or issubclass(cls, BaseExceptionGroup):
        refuse_class(
            cls,
            "would leave the process or is a group",
            fix="Register classes that derive from Exception; groups come as ExceptionGroup.",
        )
    before = _REGISTERED.get(name)
    if before is not None and is_remade(before, cls):  # the same code was run again
        del _NAMES[before]
    elif before is not None or cls in _NAMES:
        refuse_class(cls, "or its name is registered already")
    _REGISTERED[name] = cls
    _NAMES[cls] = name


def name_of(cls: type[BaseException]) -> str:
    """Return the name of *cls* in failures that leave this process."""
    return _NAMES.get(cls) or f"{cls.__module__}:{cls.__qualname__}"


def is_listed(cls: type[BaseException]) -> bool:
    """Whether the receiver may raise *cls* as itself, so that its arguments are worth sending."""
    name = name_of(cls)
    return (
        cls in _NAMES
        or _BUILTIN.get(name) is cls
        or (name in _foreign_names() and _imported(name) is cls)
    )


@functools.cache
def _foreign_names() -> frozenset[str]:
    """Return the classes of profile ``exceptions`` that are data and no more, beside builtins."""
    listed = Profile.named("exceptions").entries
    return frozenset(
        name
        for name, entry in listed.items()
        if entry.role == "class" and entry.make == "exceptions.foreign"
    )


def _imported(name: str) -> Any:
    """Return the object *name* of an already imported module; import nothing.

    Who would catch an exception by its class has imported it.
    """
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found


def from_data(data: ExceptionData, *, own: bool = False) -> BaseException:
    """Return the exception that *data* describes, to be raised or kept by the caller.

    Listed classes come as themselves, all others as :class:`RemoteError`. The remote traceback is
    a note, so that a printed exception shows it.

    :param own: whether classes of the program's own count as listed.
    """
    # By identity: a peer may let one failure be the cause and the context of each of a long chain.
    built: dict[int, BaseException] = {}
    todo = [data]
    while todo:
        link = todo[-1]
        waiting = [inner for inner in link.linked() if id(inner) not in built]
        if waiting:
            todo.extend(waiting)
            continue
        todo.pop()
        if id(link) not in built:
            built[id(link)] = _rebuild(link, built, own=own)
    return built[id(data)]


def makes_own(data: ExceptionData) -> bool:
    """Tell whether an exception of the program's own may be made of *data*, or of a part of it."""
    links = {id(data): data}
    todo = [data]
    for link in todo:  # which grows, by each failure once: a peer may refer to one from many
        inner = {id(each): each for each in link.linked() if id(each) not in links}
        links |= inner
        todo += inner.values()
    names = {link.type for link in todo} - _REGISTERED.keys()
    return any(map(program.find_exception, names))


def _rebuild(data: ExceptionData, built: dict[int, BaseException], *, own: bool) -> BaseException:
    exc = _as_itself(data, [built[id(member)] for member in data.members], own=own)
    if exc is None:
        exc = RemoteError(data.message, remote_type=data.type)
    for note in data.notes:
        exc.add_note(note)
    ours = data.type in _SAFESER
    frames = frames_of_users(data.traceback) if ours else data.traceback.rstrip()
    if frames and not any(note.startswith(_REMOTE) for note in data.notes):
        exc.add_note(f"{_REMOTE}\n{frames}")
    if ours and _NOT_OURS not in data.notes:
        exc.add_note(_NOT_OURS)
    if data.context is not None:
        exc.__context__ = built[id(data.context)]
    if data.cause is not None:
        exc.__cause__ = built[id(data.cause)]
    exc.__suppress_context__ = data.suppress
    return exc


def _as_itself(
    data: ExceptionData, members: list[BaseException], *, own: bool
) -> BaseException | None:
    """Call the listed class with plain arguments; None if its message differs from the sent one."""
    if data.type in _SAFESER and len(data.state) == len(STATE):
        return _SAFESER[data.type](_first_text(data), **dict(zip(STATE, data.state, strict=True)))
    if data.type in _GROUPS and members:
        # RemoteError stands for what would leave the process, so all members are Exceptions.
        return ExceptionGroup(_first_text(data), [_as_member(member) for member in members])
    if data.args is None:
        return None
    try:
        return _told(data, data.args, own=own)
    except Exception:  # a listed constructor that dislikes the arguments: then it is only data
        return None


def _told(data: ExceptionData, args: tuple[Any, ...], *, own: bool) -> BaseException | None:
    """Return the exception if its message is the sent one, with control characters escaped.

    A SyntaxError loses the folder of its file, because programs that display it may open the file.
    """
    call = partial(called, data.type, own=own)
    exc = call(args, data.fields)
    if exc is None:
        return None
    # The ``__str__`` of a class that is not registered runs where its user prints it, not here.
    silent = program.speaks(type(exc)) and not is_listed(type(exc))
    text = data.message if silent else str(exc)
    if shown(text)[:MAX_MESSAGE] != data.message:
        return None
    # A traceback shows the line of code that a SyntaxError is about, which str() does not.
    if not silent and shown(text) == text and not isinstance(exc, SyntaxError):
        return exc
    fields = {name: _shown_arg(value) for name, value in data.fields.items()}
    exc = call(_shown_args(type(exc), without_file(type(exc), args)), fields)
    return exc if exc is not None and (silent or shown(str(exc)) == str(exc)) else None


def _as_member(member: BaseException) -> Exception:
    assert isinstance(member, Exception)  # every class that is listed is one
    return member


def _first_text(data: ExceptionData) -> str:
    if data.args and type(data.args[0]) is str:
        return shown(data.args[0])
    return data.message


def called(
    name: str, args: tuple[Any, ...], fields: dict[str, Any], *, own: bool = False
) -> BaseException | None:
    """Call the class that is listed as *name* with *args*; return None if none is listed.

    :param fields: attributes that were set on it, none of which may hide a part of the class.
    :param own: whether to look among the classes of the program, too, of which nothing is called.
    """
    site = Site(DEFAULTS, given=_ROOM)
    cls: Any = _REGISTERED.get(name) or _BUILTIN.get(name)
    if cls is not None:
        check_arguments(cls, args)
        exc: BaseException = cls(*args)
    elif name in _foreign_names():
        cls = _imported(name)
        if not isinstance(cls, type) or not issubclass(cls, Exception):
            return None
        exc = SHIMS["foreign"](site, name, *args)
    else:
        cls = program.find_exception(name) if own else None
        return None if cls is None else program.made(cls, args, fields)
    if type(exc) is not cls:
        return None
    if fields:
        SHIMS["state"](site, exc, fields)
    return exc


def _shown_args(cls: type, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return *args* with their texts as a terminal may see them: ``str()`` prints most as they are.

    What a UnicodeError is about is printed escaped, and positions in it must keep their meaning.
    """
    kept = {len(args) - 4} if issubclass(cls, UnicodeError) else set()
    return tuple(arg if at in kept else _shown_arg(arg) for at, arg in enumerate(args))


def _shown_arg(arg: Any) -> Any:
    if type(arg) is str:
        return shown(arg)
    return tuple(map(_shown_arg, arg)) if type(arg) is tuple else arg


# --- frames of safeser and Dask -------------------------------------------------------------------
# The one rule: a refusal shows its user's own lines. How safeser came to it is in the audit log,
# and no frame of it says more than the message does.

#: A frame of a formatted traceback, with the lines of code below it. Files of libraries are named
#: from the library's root on, as :func:`safeser.families.errors.paths.relative_frames` does it.
_FRAME = re.compile(
    r'^ {2}File "(?P<file>[^"\n]*)", line [^\n]*\n?(?: {4}[^\n]*\n?)*', re.MULTILINE
)

#: Packages between a user's code and a refusal.
_BETWEEN = frozenset({"asyncio", "concurrent", "dask", "distributed", "safeser", "tornado"})


def frames_of_users(text: str) -> str:
    """Return the formatted traceback *text* without such frames; empty if none is left."""
    kept = [
        match[0].rstrip("\n")
        for match in _FRAME.finditer(text)
        if match["file"].partition("/")[0] not in _BETWEEN
    ]
    return "\n".join(kept)
