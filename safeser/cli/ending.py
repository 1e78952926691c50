"""How a command ends: its exit code, and the one line that says what went wrong.

The one rule: 0 fine, 1 denied or a check failed, 2 could not run. Text that came from files or
peers reaches the terminal printable and on one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from safeser.errors import ConfigError, SafeserError
from safeser.gate.refusals import shortened

__all__ = ["CUT_OFF", "DENIED", "FINE", "INTERRUPTED", "UNABLE", "complain", "one_line", "run"]

FINE = 0
DENIED = 1
UNABLE = 2
# As shells report what a signal ended: 128 and the number of SIGINT, and of SIGPIPE.
INTERRUPTED = 130
CUT_OFF = 141

_MAX_LINE = 1200  # two long paths and two sentences


def printable(text: str) -> str:
    """Return *text* as one printable line; whatever could move a cursor becomes ``?``."""
    return "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))


def one_line(text: str) -> str:
    """Return *text* as one printable line of bounded length."""
    return shortened(printable(text), _MAX_LINE)


def complain(error: SafeserError) -> int:
    """Say on standard error what *error* refused, and return the exit code for it.

    A fault of a file is one line, a refusal the lines of its text.
    """
    if isinstance(error, ConfigError):
        texts = [printable(each.line) for each in error.faults]
    else:
        texts = ["\n  ".join(map(printable, str(error).splitlines()))]
    for text in texts:
        print(f"safeser: {text}", file=sys.stderr)
    return UNABLE if isinstance(error, ConfigError) else DENIED


def run(command: Callable[[], object]) -> int:
    """Run *command* and return its exit code; only errors of safeser's own making are caught."""
    try:
        command()
    except SafeserError as error:
        return complain(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        # The reader went away, as `head` does, maybe before the verdict: neither fine nor denied.
        if isinstance(end.__context__, BrokenPipeError):
            return CUT_OFF
        return end.code if isinstance(end.code, int) else FINE
    return FINE
