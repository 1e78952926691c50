"""``safeser policy diff``, ``test``, ``replay`` and ``learn``: rehearse a change of policy.

The one rule: every answer comes from the loaded policies; nothing is decided here.
"""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from safeser.cli.ending import DENIED
from safeser.cli.policy import PolicyName, app
from safeser.cli.screen import line, mark, say

__all__ = ["app"]


class Format(enum.StrEnum):
    """How a command prints its answer."""

    TEXT = "text"
    JSON = "json"


class FailOn(enum.StrEnum):
    """What ends ``policy diff`` with code 1."""

    LOOSENING = "loosening"
    ANY = "any"


FormatOption = Annotated[Format, typer.Option("--format", help="text, or json for programs.")]

_SIGNS = {"loosens": ("+", "red"), "tightens": ("-", "green"), "renames": ("~", "")}


@app.command(short_help="Say what a changed policy newly permits and refuses.")
def diff(
    old: PolicyName,
    new: PolicyName,
    *,
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="End with code 1 on a loosening, or on any difference."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Compare two policies by asking both about every message: exact, and without their files.

    + lets through what the old policy refuses, - refuses what it lets through, ~ does both. Names
    of contexts and groups do not count.
    """
    from safeser.policy import Policy
    from safeser.policy.questions.difference import compare
    from safeser.policy.questions.difference_text import as_json, lines

    found = compare(Policy.load(old), Policy.load(new))
    if output is Format.JSON:
        line(json.dumps(as_json(found), indent=2))
    else:
        for effect, text in lines(found):
            sign, style = _SIGNS[effect]
            say(f"{sign} {text}", style=style, hang=4)
        mark(not found.loosens, _verdict(loosens=found.loosens, differs=bool(found)))
    if fail_on is not None and (found.loosens or (fail_on is FailOn.ANY and bool(found))):
        raise typer.Exit(DENIED)


def _verdict(*, loosens: bool, differs: bool) -> str:
    if loosens:
        return "This loosens the policy."
    return "This loosens nothing." if differs else "Both permit the same."


@app.command("test", short_help="Run the tests of policies.")
def run_tests(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of cases.")],
    *,
    fail_under: Annotated[
        float,
        typer.Option(
            metavar="PERCENT", min=0, max=100, help="Least part of the contexts to be tested."
        ),
    ] = 0,
) -> None:
    """Run files of cases, each a message with the outcome that its policy should give.

    Code 1: a case has another outcome, or fewer contexts than --fail-under decided one.
    """
    from safeser.policy.questions.cases import run_cases

    failed = False
    for path in files:
        tested = run_cases(path)
        for each in tested.failed:
            mark(False, f"{path}, line {each.line}: {each.case}: {each.problem}")
        under = tested.coverage < fail_under
        failed |= under or bool(tested.failed)
        good = len(tested.outcomes) - len(tested.failed)
        mark(
            not (tested.failed or under),
            f"{path}: {good} of {len(tested.outcomes)} cases as expected;"
            f" {tested.coverage:.0f} % of the contexts of {tested.policy.name} are tested",
        )
        if tested.untested:
            say(f"  untested: {', '.join(tested.untested)}")
    if failed:
        raise typer.Exit(DENIED)
