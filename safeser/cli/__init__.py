"""The command ``safeser``: one file per noun, and one place where errors become exit codes.

The one rule: no bad input ends in a traceback. What safeser refuses is one line on standard error
and code 1 (denied, or a check failed) or 2 (it could not run).
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    from safeser.cli.ending import run

    def command() -> None:
        from safeser.cli.app import app

        app()

    raise SystemExit(run(command))
