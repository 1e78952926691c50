"""How a command ends: its exit code, and the one line that says what went wrong.

The one rule: 0 fine, 1 denied or a check failed, 2 could not run. Text that came from files or
peers reaches the terminal printable and on one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from safeser.errors import ConfigError, SafeserError

__all__ = ["DENIED", "FINE", "INTERRUPTED", "UNABLE", "complain", "one_line", "run"]

FINE = 0
DENIED = 1
UNABLE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it

_MAX_LINE = 1200  # two long paths and two sentences


def one_line(text: str) -> str:
    """Return *text* as one printable line; whatever could move a cursor becomes ``?``."""
    shown = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return shown if len(shown) <= _MAX_LINE else shown[:_MAX_LINE] + "..."


def complain(error: SafeserError) -> int:
    """Say on standard error what *error* refused, and return the exit code for it."""
    print(f"safeser: {one_line(str(error))}", file=sys.stderr)
    return UNABLE if isinstance(error, ConfigError) else DENIED


def run(command: Callable[[], object]) -> int:
    """Run *command* and return its exit code; only errors of safeser's own making are caught."""
    try:
        command()
        sys.stdout.flush()
    except SafeserError as error:
        return complain(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away, as `head` does. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FINE
    return FINE
