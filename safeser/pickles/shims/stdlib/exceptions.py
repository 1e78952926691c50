"""Reviewed functions for built-in exceptions, as pickle writes them and as tblib does.

The one rule: an exception is made by its class from its arguments. Frames and tracebacks are
dropped: tblib rebuilds them by ``exec``, and sets attributes of the peer's choice.
``safeser.pickles.exception_record`` reads them as text.
"""

from __future__ import annotations

import builtins
import importlib
import math
from collections.abc import Callable
from functools import cache
from operator import is_
from typing import Any

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.site import Site, bad, begin, plain
from safeser.types.stdlib import is_attribute

__all__ = ["SHIMS", "check_arguments", "without_file"]

_NOTHING = object()
_MAX_NOTES = 100
# A traceback draws one caret for each column between the two that a SyntaxError names.
_MAX_COLUMN = 1 << 20


def _exception(site: Site, name: str, *args: Any) -> Any:
    kind = getattr(builtins, name.partition(":")[2])
    check_arguments(kind, args)
    made = kind(*without_file(kind, args))
    # OSError picks its subclass by the number.
    if type(made) is not kind and kind is not OSError:
        raise bad("class", f"{name} made something of another type")
    return made


def check_arguments(kind: type[BaseException], args: tuple[Any, ...]) -> None:
    """Refuse arguments that a built-in exception keeps unchecked and trusts when it is printed."""
    if issubclass(kind, UnicodeError) and kind is not UnicodeError:
        _check_span(*args)
    elif issubclass(kind, SyntaxError) and len(args) > 1:
        _check_place(*plain(args[1], tuple))


def without_file(kind: type[BaseException], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return *args* in which no text names a file that a display of the error would open.

    IPython shows the line of a SyntaxError from the file that it names, on the machine of the
    viewer: a pipe there blocks the notebook for ever, a device takes all memory. :mod:`linecache`
    opens no file for names in angle brackets.
    """
    if not issubclass(kind, SyntaxError) or len(args) <= 1 or type(args[1]) is not tuple:
        return args
    message, (file, *place), *rest = args
    if not file or (file.startswith("<") and file.endswith(">")):
        return args
    named = file.replace("\\", "/").rpartition("/")[2]
    return message, (f"<{named}>", *place), *rest


def _check_place(  # noqa: PLR0917 - the parts are those of the exception
    file: Any, line: Any, column: Any, text: Any, end_line: Any = None, end_column: Any = None
) -> None:
    for said in (file, text):
        plain(said, str, type(None))
    for number in (line, column, end_line, end_column):
        if number is not None and not -1 <= plain(number, int) <= _MAX_COLUMN:
            raise bad("arguments", "a SyntaxError points far outside of any text")


def _check_span(*args: Any) -> None:
    # str() of these reads the object at these positions; CPython 3.11 does so outside of it, too.
    start, end = (plain(position, int) for position in args[-3:-1])
    if not 0 <= start <= end <= len(plain(args[-4], str, bytes)):
        raise bad("arguments", "a UnicodeError points outside of its text")


@cache
def _class_of(name: str) -> Any:
    """Return the class *name*, which the profile lists as a class, if it is one of exceptions."""
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        raise bad("class", f"{name} is no exception")
    return found


def _foreign(site: Site, name: str, *args: Any) -> Any:
    made = _class_of(name)(*args)
    if type(made) is not _class_of(name):
        raise bad("class", f"{name} made something of another type")
    _check_printed(made)
    return made


def _state(site: Site, made: Any, state: Any) -> Any:
    _set_fields(site, made, plain(state, dict))
    _check_printed(made)
    return made


_NUMBER = (int, type(None))
_TEXT = (str, type(None))
_ANY = (object,)
# What __str__ and __repr__ of these read. Logging an error must not raise another one.
_PRINTED: dict[str, dict[str, tuple[type, ...]]] = {
    "configparser:Error": {"message": (str,)},
    "http.client:IncompleteRead": {"partial": (bytes, bytearray, str), "expected": _NUMBER},
    "numpy._core._exceptions:_ArrayMemoryError": {"shape": (tuple,), "dtype": _ANY},
    "numpy.exceptions:AxisError": {"_msg": _TEXT, "axis": _NUMBER, "ndim": _NUMBER},
    "subprocess:CalledProcessError": {"cmd": _ANY, "returncode": (int,)},
    "subprocess:TimeoutExpired": {"cmd": _ANY, "timeout": _ANY},
    "urllib.error:URLError": {"reason": _ANY},
}
_MAX_NUMBER = 1 << 64
_MAX_AXES = 64


def _check_printed(made: BaseException) -> None:
    """Refuse an exception whose ``str()`` would raise another exception."""
    for kind in type(made).__mro__:
        for field, types in _PRINTED.get(f"{kind.__module__}:{kind.__qualname__}", {}).items():
            value: Any = getattr(made, field, _NOTHING)
            sound = value is not _NOTHING and isinstance(value, types)
            if field == "reason":
                # "%s" % value takes a tuple for several values.
                sound = sound and not isinstance(value, tuple)
            elif field == "dtype":
                sound = sound and isinstance(value, importlib.import_module("numpy").dtype)
            elif field == "shape":
                sound = sound and _is_shape(value)
            elif types is not _ANY and isinstance(value, int):
                sound = sound and abs(value) <= _MAX_NUMBER
            if not sound:
                raise bad("arguments", f"{kind.__qualname__} could not be printed")


def _is_shape(value: tuple[Any, ...]) -> bool:
    """Whether NumPy could have tried to make an array of *value*: str() makes a float of it."""
    fits = all(type(size) is int and 0 <= size <= _MAX_NUMBER for size in value)
    return fits and len(value) <= _MAX_AXES and math.prod(value) <= _MAX_NUMBER


# What some keep outside of their ``__dict__``: CPython sets these as attributes.
_NAMED = {"name": (ImportError, AttributeError, NameError), "path": (ImportError,)}


def _set_fields(site: Site, made: Any, fields: dict[Any, Any]) -> None:
    """Set what an exception's ``__dict__`` or state may hold: notes, names, its user's fields."""
    for field, value in fields.items():
        if plain(field, str) == "__notes__":
            _set_notes(site, made, plain(value, list))
        elif field == "name_from" and isinstance(made, ImportError):
            # It is left out: since Python 3.12, printing such an error imports the module that
            # it names, to suggest another name from it.
            plain(value, str, type(None))
        elif isinstance(made, _NAMED.get(field, ())) and hasattr(type(made), field):
            setattr(made, field, plain(value, str, type(None)))
        elif field == "args" and isinstance(made, AttributeError):
            # Since Python 3.12 they are said twice.
            if len(plain(value, tuple)) != len(made.args) or not all(map(is_, value, made.args)):
                raise bad("state", "an exception has two sorts of arguments")
        elif not is_attribute(field) or hasattr(type(made), field):
            # A field must not hide a part of the class: with_traceback is looked up as well.
            raise bad("state", "an exception has no such field")
        else:
            made.__dict__[field] = value


def _set_notes(site: Site, made: Any, notes: Any) -> None:
    if notes is None:
        return
    if len(plain(notes, list)) > _MAX_NOTES:
        raise bad("state", "an exception has too many notes")
    site.copied(notes)
    made.__notes__ = [plain(note, str) for note in notes]


def _chained(  # noqa: PLR0917 - what tblib hands over
    site: Site, made: Any, cause: Any, context: Any, suppress: Any = False, notes: Any = None
) -> Any:
    for linked in (cause, context):
        if linked is not None and not isinstance(linked, BaseException):
            raise bad("arguments", "the cause of an exception is none")
    made.__cause__, made.__context__ = cause, context
    made.__suppress_context__ = plain(suppress, bool)
    _set_notes(site, made, notes)
    return made


def _named(site: Site, kind: Any, args: tuple[Any, ...], *, new: bool = False) -> Any:
    """Make what tblib names, built in or not; *new* where it leaves out ``__init__``."""
    name = plain(kind, GlobalRef).name
    if name.startswith("builtins:"):
        return _exception(site, name, *args)
    # What AxisError keeps in slots tblib leaves out.
    if not new or name == "numpy.exceptions:AxisError":
        return _foreign(site, name, *args)
    made = _class_of(name).__new__(_class_of(name), *args)
    if type(made) is not _class_of(name):
        raise bad("class", f"{name} made something of another type")
    made.args = args
    return made


def _tblib(site: Site, _: str, kind: Any, args: Any, cause: Any, trace: Any, *rest: Any) -> Any:
    plain(trace, type(None))  # what was rebuilt as a traceback is None by now
    made = _named(site, kind, plain(args, tuple))
    return _chained(site, made, cause, *(rest or (None,)))


def _tblib_attrs(site: Site, _: str, kind: Any, attributes: Any, cause: Any, *rest: Any) -> Any:
    trace, context, suppress, notes, given = rest
    plain(trace, type(None))
    fields = dict(plain(attributes, dict))
    args = plain(fields.pop("args"), tuple)
    # Only groups are given their arguments twice, as a tuple and as the list they were made from.
    if plain(given, tuple) and plain(kind, GlobalRef).qualname != "ExceptionGroup":
        raise bad("arguments", "an exception has two sorts of arguments")
    number, text, name, other = (
        fields.pop(part, None) for part in ("errno", "strerror", "filename", "filename2")
    )
    if name is not None:
        if args != (number, text):
            raise bad("state", "an exception has two sorts of arguments")
        # OSError keeps names of files apart from its arguments.
        args = (number, text, name) if other is None else (number, text, name, None, other)
    made = _named(site, kind, args, new=True)
    if isinstance(made, OSError) and type(made) is not _class_of(kind.name):
        # tblib makes it by __new__ without an errno; and under Python 2's names, which protocols
        # below 3 write, it was one of those classes when it was written.
        raise bad("class", "an OSError came under a name that is not that of its errno")
    _set_fields(site, made, plain(fields.pop("__dict__", {}), dict))
    for field, value in fields.items():
        if made.__dict__.get(field, _NOTHING) is not value:
            raise bad("state", "an exception has no such field")
    _check_printed(made)
    return _chained(site, made, cause, context, suppress, notes)


def _dropped_state(_: Site, __: Any, ___: Any) -> None:
    return None


def _traceback(_: Site, __: str, *___: Any) -> None:
    return None


SHIMS: dict[str, Callable[..., Any]] = {
    "dropped": begin,
    "dropped_state": _dropped_state,
    "exception": _exception,
    "foreign": _foreign,
    "state": _state,
    "tblib": _tblib,
    "tblib_attrs": _tblib_attrs,
    "traceback": _traceback,
}
