"""``safeser demo``: a real cluster under policy, at work and under attack.

The one rule: its exit code is the demo's own: 1 if a step did not come out as said.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    directory: Annotated[
        Path | None,
        typer.Option(help="Empty folder for keys and logs. [default: a new temporary one]"),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="POLICY", help="A policy to try instead of demo.")
    ] = None,
) -> None:
    """Run a real cluster under policy, attack it, and show what came of it."""
    from safeser.demo.story import run

    raise typer.Exit(run(directory=directory, policy=policy, environment=os.environ))
