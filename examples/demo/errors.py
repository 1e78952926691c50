"""The error that ends the demo early."""

from __future__ import annotations

from collections.abc import Sequence

from safeser.errors import SafeserError

__all__ = ["StepFailed"]


class StepFailed(SafeserError):
    """A step had another result than the expected one. A demo that cannot run is a ConfigError.

    :param lines: text to print below the reason, such as the end of a process's log.
    """

    default_rule = "demo"

    def __init__(self, message: str, *, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = tuple(lines)
