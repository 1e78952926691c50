"""Command line of the demo: ``python -m examples.demo`` in a checkout, or ``make demo``.

Exit codes: 0 if every step succeeded, 1 if one failed, 2 if the demo cannot run.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from examples.demo import steps
from safeser.cli.ending import run

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Run a Dask cluster under policy, attack it and a stock one, show the results.",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="empty or new folder for keys and logs (default: a new temporary one)",
    )
    parser.add_argument("--policy", help="a policy to use instead of the ready policy demo")
    options = parser.parse_args(arguments)

    def demo() -> None:
        code = steps.run(directory=options.directory, policy=options.policy, environment=os.environ)
        raise SystemExit(code)

    return run(demo)


if __name__ == "__main__":
    raise SystemExit(main())
