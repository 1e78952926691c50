"""Escape log records of distributed, so that they cannot control a terminal, and shorten refusals.

The one rule: a record of the loggers of distributed, the event loop and safeser holds no control
character when a handler prints it. Schedulers and workers log keys, names and errors as their peers
wrote them, with ``%s``, on an operator's terminal; no list of those lines would stay complete.
A refusal that Dask's handlers pass on is in the log once, without a traceback.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from safeser.dask.roles import is_command
from safeser.errors import SafeserError
from safeser.families.errors.failures import shown

__all__ = ["escape_logs", "shorten_refusals", "show_logs"]

_LOGGERS = frozenset({"asyncio", "distributed", "safeser", "tornado"})
_AS_TEXT = logging.Formatter()


class _Escaping:
    """Makes records as the factory before it does, those of such loggers escaped."""

    def __init__(self, make: Callable[..., logging.LogRecord]) -> None:
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record = self._make(*args, **kwargs)
        if isinstance(record.name, str) and record.name.partition(".")[0] in _LOGGERS:
            _escape(record)
        return record


def _escape(record: logging.LogRecord) -> None:
    try:
        said = record.getMessage()
        told = _AS_TEXT.formatException(record.exc_info) if record.exc_info else ""
    except Exception:  # arguments that don't fit, or their own code: the handler reports it
        return
    if shown(said) != said:
        record.msg, record.args = shown(said), None
    if shown(told) != told:
        record.exc_text = shown(told)  # which formatters take before they make their own


def show_logs() -> None:
    """Have safeser's lines printed as distributed's are, where nothing else was configured.

    Without it Python prints its warnings alone, without the time. Servers tell as much as Dask's
    do; a client's lines would stand between a user's own.
    """
    own, theirs = logging.getLogger("safeser"), logging.getLogger("distributed")
    if own.level or own.hasHandlers():
        return
    for handler in theirs.handlers:
        own.addHandler(handler)
    own.setLevel(logging.INFO if is_command() else logging.WARNING)


def escape_logs() -> None:
    """Have this process escape what distributed logs; calling it again changes nothing."""
    make = logging.getLogRecordFactory()
    if not isinstance(make, _Escaping):
        logging.setLogRecordFactory(_Escaping(make))


class _OneText(logging.Filter):
    """Leaves one text of each refusal: no traceback, and nothing where a log has it already."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True  # a user's function that failed: its lines are in the traceback
        error = record.exc_info[1] if record.exc_info else sys.exc_info()[1]
        if not isinstance(error, SafeserError) or _own_logger.isEnabledFor(logging.DEBUG):
            return True
        said = record.getMessage()
        if not record.exc_info and str(error) not in said:
            return True  # it is about something else
        if error.logged:
            return False
        error.logged = True
        record.msg, record.args = said if str(error) in said else f"{said}: {error}", None
        record.exc_info = record.exc_text = None
        return True


_own_logger = logging.getLogger("safeser")
_one_text = _OneText()

#: Loggers of Dask's servers on which the failure of a handler is reported.
_OF_HANDLERS = ("core", "scheduler", "worker", "nanny")


def shorten_refusals() -> None:
    """Have Dask's servers log a refusal once and without its traceback, as :class:`_OneText` says.

    With the logger ``safeser`` at level DEBUG the records stay as they are.
    """
    for name in _OF_HANDLERS:
        logging.getLogger(f"distributed.{name}").addFilter(_one_text)
