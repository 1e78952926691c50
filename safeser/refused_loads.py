"""Tell an observer when one of a program's own loads refuses its data.

The one rule: an observer sees the error and changes nothing: the call raises it as it would without
one.

A load of a program's own (:func:`safeser.deserialize`, :func:`safeser.pickles.loads`) has no
channel and no log. Inside of a task it has the log of the worker, which records what the task was
refused, even where the task catches the error.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from safeser.errors import SafeserError

__all__ = ["Reported", "observe"]

Observer = Callable[[str, SafeserError], None]

_observer: Observer | None = None


def observe(observer: Observer | None) -> None:
    """Have *observer* called with the name of the call and its error; None for no one."""
    global _observer  # noqa: PLW0603 - the one observer of this process
    _observer = observer


class Reported:
    """A context manager: what is refused inside is told to the observer, which may record it.

    :param call: the public name of the function that loads.
    """

    __slots__ = ("_call",)

    def __init__(self, call: str) -> None:
        self._call = call

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if _observer is None or not isinstance(error, SafeserError) or error.recorded:
            return
        _observer(self._call, error)
