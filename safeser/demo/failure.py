"""What ends the demo early.

The one rule: a step that did not come out as said is told apart from a demo that could not run.
"""

from __future__ import annotations

from collections.abc import Sequence

from safeser.errors import SafeserError

__all__ = ["StepFailed"]


class StepFailed(SafeserError):
    """A step did not come out as said.

    :param lines: what to show below the reason, such as the end of a process's log.
    """

    default_rule = "demo"

    def __init__(self, message: str, *, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = tuple(lines)
