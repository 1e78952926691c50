"""``safeser preflight``: whether an object of a module can be sent, and what keeps it from it.

The one rule: it imports the module that its user names, and nothing else runs or is sent.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safeser.cli.screen import line
from safeser.errors import ConfigError
from safeser.gate.values import Context

if TYPE_CHECKING:
    from safeser.sendable.preflight import Preflight

__all__ = ["preflight"]


def preflight(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:OBJECT", help="As in jobs:clean; MODULE is imported.")
    ],
    policy: Annotated[
        str | None, typer.Option(help="A file, or a ready policy. [default: any family may carry]")
    ] = None,
    sender: Annotated[str, typer.Option(help="Who sends it, under --policy.")] = "client",
    recipient: Annotated[str, typer.Option(help="Who receives it, under --policy.")] = "scheduler",
    kind: Annotated[
        str, typer.Option(help="task: as part of a submission; data: as a value.")
    ] = "task",
) -> None:
    """Check whether an object can be sent, by which family, and what keeps it from it.

    Code 0: it can be. 1: it cannot, or the policy refuses it. 2: there is no such object.
    """
    from safeser.policy import Policy
    from safeser.sendable.preflight import preflight as look

    judge = None if policy is None else Policy.load(policy)
    operation = "update-graph" if kind == "task" else None
    context = None
    if judge is not None:
        context = Context(sender, recipient, kind, operation, transport="safeser", same_host=True)
    found: Preflight = look(_imported(target), context, policy=judge)
    line(str(found))
    if not found:
        raise typer.Exit(1)


def _imported(target: str) -> Any:
    module, _, path = target.partition(":")
    sys.path.insert(0, "")  # as for python -m
    try:
        found: Any = import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"there is no {target}: {error}",
            rule="sendable.target",
            fix="Name a module that Python can import from here, and an object in it:"
            " package.module:object.",
        ) from None
    return found
