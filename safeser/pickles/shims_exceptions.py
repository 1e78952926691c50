"""Reviewed functions for built-in exceptions, as pickle writes them and as tblib does.

The one rule: an exception is made by its class from its arguments. Frames and tracebacks are
dropped: tblib rebuilds them by ``exec``, and sets attributes of the peer's choice.
``safeser.pickles.exception_record`` reads them as text.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims import Draft, Site, bad, plain

__all__ = ["SHIMS", "check_arguments"]

_MAX_NOTES = 100
# A traceback draws one caret for each column between the two that a SyntaxError names.
_MAX_COLUMN = 1 << 20


def _exception(site: Site, name: str, *args: Any) -> Any:
    site.charge(len(args))
    kind = getattr(builtins, name.partition(":")[2])
    check_arguments(kind, args)
    made = kind(*args)
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


def _state(_: Site, made: Any, state: Any) -> Any:
    _set_fields(made, plain(state, dict))
    return made


def _set_fields(made: Any, fields: dict[Any, Any]) -> None:
    """Set what an exception's ``__dict__`` or state may hold: notes, and an import's name."""
    for field, value in fields.items():
        if field == "__notes__":
            _set_notes(made, value)
        elif field in ("name", "path") and isinstance(made, ImportError):
            setattr(made, field, plain(value, str, type(None)))
        else:
            raise bad("state", "an exception has no such field")


def _set_notes(made: Any, notes: Any) -> None:
    if notes is None:
        return
    if len(plain(notes, list)) > _MAX_NOTES:
        raise bad("state", "an exception has too many notes")
    made.__notes__ = [plain(note, str) for note in notes]


def _chained(made: Any, cause: Any, context: Any, suppress: Any = False, notes: Any = None) -> Any:
    for linked in (cause, context):
        if linked is not None and not isinstance(linked, BaseException):
            raise bad("arguments", "the cause of an exception is none")
    made.__cause__, made.__context__ = cause, context
    made.__suppress_context__ = plain(suppress, bool)
    _set_notes(made, notes)
    return made


def _tblib(site: Site, _: str, kind: Any, args: Any, cause: Any, __: Any, *rest: Any) -> Any:
    made = _exception(site, plain(kind, GlobalRef).name, *plain(args, tuple))
    return _chained(made, cause, *(rest or (None,)))


def _tblib_attrs(site: Site, _: str, kind: Any, attributes: Any, cause: Any, *rest: Any) -> Any:
    _, context, suppress, notes, given = rest
    fields = dict(plain(attributes, dict))
    args = plain(fields.pop("args"), tuple)
    # Only groups are given their arguments twice, as a tuple and as the list they were made from.
    if plain(given, tuple) and plain(kind, GlobalRef).qualname != "ExceptionGroup":
        raise bad("arguments", "an exception has two sorts of arguments")
    number, text, name, other = (
        fields.pop(part, None) for part in ("errno", "strerror", "filename", "filename2")
    )
    if name is not None:
        # OSError keeps names of files apart from its arguments.
        args = (number, text, name) if other is None else (number, text, name, None, other)
    made = _exception(site, plain(kind, GlobalRef).name, *args)
    _set_fields(made, plain(fields.pop("__dict__", {}), dict))
    if fields:
        raise bad("state", "an exception has no such field")
    return _chained(made, cause, context, suppress, notes)


def _dropped(_: Site, __: str) -> Draft:
    return Draft("traceback")


def _dropped_state(_: Site, __: Any, ___: Any) -> None:
    return None


def _traceback(_: Site, __: str, *___: Any) -> None:
    return None


SHIMS: dict[str, Callable[..., Any]] = {
    "dropped": _dropped,
    "dropped_state": _dropped_state,
    "exception": _exception,
    "state": _state,
    "tblib": _tblib,
    "tblib_attrs": _tblib_attrs,
    "traceback": _traceback,
}
