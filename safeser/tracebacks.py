"""Leave the frames of safeser out of the tracebacks that its callers see.

The one rule: a caller sees its own lines and the message. Nothing else of an error changes: its
type, its text and its cause are what they were. With the logger ``safeser`` at level DEBUG the
frames stay.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Awaitable, Callable
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

from safeser.errors import SafeserError

__all__ = [
    "awaited",
    "callers_level",
    "for_callers",
    "hide_own_frames",
    "methods_for_callers",
]

#: Packages whose frames stand between a caller's line and a refusal.
_BETWEEN = frozenset({"asyncio", "concurrent", "contextlib", "dask", "distributed", "tornado"})
_OWN = frozenset({"safeser"})

#: Links of a chain of causes that are looked at.
_MOST_LINKS = 32

_P = ParamSpec("_P")
_T = TypeVar("_T")

_logger = logging.getLogger("safeser")

#: The attributes of each exception, whatever its class has in their place.
_traceback_of: Callable[[BaseException], TracebackType | None]
_cause_of: Callable[[BaseException], BaseException | None]
_context_of: Callable[[BaseException], BaseException | None]
_traceback_of, _cause_of, _context_of = (
    BaseException.__dict__[name].__get__ for name in ("__traceback__", "__cause__", "__context__")
)


def for_callers(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return *function* with errors whose tracebacks begin at its caller."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise  # which adds no frame of this function, as "raise error" would

    return call


async def awaited(result: Awaitable[_T]) -> _T:
    """Return what *result* gives; its errors are shown as :func:`for_callers` shows them."""
    try:
        return await result
    except Exception as error:
        hide_own_frames(error)
        raise  # as above


def hide_own_frames(error: BaseException) -> None:
    """Take the frames of safeser from *error* and from what it was raised from.

    Of safeser's own errors the frames of Dask and its event loop go as well, and so do exceptions
    that were merely being handled inside of them.
    """
    if _logger.isEnabledFor(logging.DEBUG):
        return
    seen: set[int] = set()
    links: list[BaseException] = [error]
    while links and len(seen) < _MOST_LINKS:
        link = links.pop()
        if id(link) in seen:
            continue
        seen.add(id(link))
        hidden = _OWN | _BETWEEN if isinstance(link, SafeserError) else _OWN
        # By the base class: a class of the user's own may refuse to have attributes set.
        BaseException.with_traceback(link, _without(_traceback_of(link), hidden))
        if isinstance(link, SafeserError) and not _concerns_caller(link):
            link.__context__ = None
        links.extend(each for each in (_cause_of(link), _context_of(link)) if each is not None)


def _concerns_caller(error: SafeserError) -> bool:
    """Tell whether what was handled when *error* was raised is its cause, or the caller's own."""
    context = error.__context__
    if context is None or context is error.__cause__:
        return True
    return _without(context.__traceback__, _OWN | _BETWEEN) is not None


def _without(traceback: TracebackType | None, hidden: frozenset[str]) -> TracebackType | None:
    """Return *traceback* without the frames of the packages in *hidden*."""
    kept: list[TracebackType] = []
    complete = True
    here = traceback
    while here is not None:
        if _package(here.tb_frame) in hidden:
            complete = False
        else:
            kept.append(here)
        here = here.tb_next
    if complete:
        return traceback
    made: TracebackType | None = None
    for each in reversed(kept):
        made = TracebackType(made, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return made


def _package(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__")
    return name.partition(".")[0] if isinstance(name, str) else ""


def callers_level() -> int:
    """Return the ``stacklevel`` by which a warning of the calling function names a user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _package(frame) in _OWN | _BETWEEN:
        level, frame = level + 1, frame.f_back
    return level


def methods_for_callers(*names: str) -> Callable[[type[_T]], type[_T]]:
    """Return a class decorator that wraps these methods, inherited ones too, in that way."""

    def decorate(cls: type[_T]) -> type[_T]:
        for name in names:
            setattr(cls, name, for_callers(getattr(cls, name)))
        return cls

    return decorate
