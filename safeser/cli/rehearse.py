"""``safeser policy diff``, ``test``, ``replay`` and ``learn``: rehearse a change of policy.

The one rule: every answer comes from the loaded policies; nothing is decided here.
"""

from __future__ import annotations

import enum
import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.audit import must_exist
from safeser.cli.ending import DENIED
from safeser.cli.policy import PolicyName, app
from safeser.cli.screen import line, mark, say

if TYPE_CHECKING:
    from safeser.policy import Policy
    from safeser.policy.recorded.replay import Refusal
    from safeser.policy.recorded.traffic import Message, Seen, Traffic

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
        for effect, text, below in lines(found):
            sign, style = _SIGNS[effect]
            say(f"{sign} {text}", style=style, hang=4)
            for each in below:
                say(f"    {each}", style=style, hang=6)
        rest = "This loosens nothing." if found else "Both permit the same."
        mark(not found.loosens, "This loosens the policy." if found.loosens else rest)
    if fail_on is not None and (found.loosens or (fail_on is FailOn.ANY and bool(found))):
        raise typer.Exit(DENIED)


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


LogPaths = Annotated[
    list[Path], typer.Argument(metavar="LOG...", help="Folders of logs, or files.")
]


def _traffic(logs: list[Path]) -> Traffic:
    """Return the permitted messages of unverified *logs*."""
    from safeser.audit import read
    from safeser.policy.recorded.traffic import gather

    must_exist(logs)
    return gather(record for log in logs for record in read(log))


@app.command(short_help="Say what a policy would have refused of what logs hold.")
def replay(policy: PolicyName, logs: LogPaths, *, output: FormatOption = Format.TEXT) -> None:
    """Ask a policy about every message that audit logs record as permitted.

    Logs are read and not verified: run safeser audit verify first. Code 1: it refuses some.
    """
    from safeser.policy import Policy
    from safeser.policy.recorded.replay import as_json
    from safeser.policy.recorded.replay import replay as replayed

    loaded = Policy.load(policy)
    traffic = _traffic(logs)
    refused = replayed(loaded, traffic)
    if output is Format.JSON:
        line(json.dumps(as_json(loaded, traffic, refused), indent=2))
    else:
        _show_replay(loaded, traffic, refused)
    if refused:
        raise typer.Exit(DENIED)


def _show_replay(policy: Policy, traffic: Traffic, refused: list[Refusal]) -> None:
    from safeser.policy.recorded.replay import NOT_REPLAYED

    _show_groups(refused)
    fixes = dict.fromkeys(each.decision.fix for each in refused)
    for fix in fixes:
        say(f"- {fix}", hang=2)
    times = sum(each.seen.times for each in refused)
    mark(
        not refused,
        f"{policy.name} revision {policy.revision} refuses {times:,} of {traffic.times:,} messages"
        " that were permitted",
    )
    if traffic.skipped:
        say(f"{traffic.skipped:,} messages are left out: no policy decides about them.")
    say(f"Not replayed: {', '.join(NOT_REPLAYED)}.")


def _show_groups(refused: list[Refusal]) -> None:
    """Print below each rule who sent what to whom, how often, and where the log has one of them."""
    ends = {
        each.message[:2]: f"{each.message.sender} -> {each.message.recipient}" for each in refused
    }
    numbers = max((len(f"{each.seen.times:,}") for each in refused), default=0)
    wide = max(map(len, ends.values()), default=0)
    indent = 2 + numbers + 2
    for rule, group in groupby(refused, key=lambda each: each.decision.rule):
        line(rule, style="bold")
        for each in group:
            times = f"{each.seen.times:,}".rjust(numbers)
            who = ends[each.message[:2]].ljust(wide)
            say(f"  {times}  {who}  {_what(each.message)}{_hosts[each.same_host]}", hang=indent + 2)
            say(" " * indent + _example(each.seen), hang=indent + 2)
    if refused:
        line()


_hosts = {None: "", True: ", on one machine only", False: ", between machines only"}


def _what(message: Message) -> str:
    operation = message.operation or "no operation"
    author = f" of {message.author}" if message.author else ""
    what = "values" if message.reads else message.family
    return f"{message.kind.value}, {operation}, {what}{author}"


def _example(seen: Seen) -> str:
    """Return the time of one of the messages, whose log has it, and what to look for there."""
    from safeser.audit.reading.show import escaped, when

    example = seen.example
    if example is None:
        return ""
    found = example.task or f"in {example.where}"
    if not (example.task or example.where):
        found = "one record" if example.single else "counted"
    log = f" {escaped(example.log)}" if example.log else ""
    return f"e.g. {when(example.time, short=True)}{log}: {escaped(found, 160)}"


@app.command(short_help="Propose a policy from what logs hold.")
def learn(
    logs: LogPaths,
    *,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Take groups, profiles, values and where code may go from it.",
        ),
    ] = None,
) -> None:
    """Print a policy that permits what audit logs record as permitted, and what roles need to end.

    Logs are read and not verified. Give it the logs of every process, clients' included: each
    records what it received.
    """
    from safeser.policy import Policy
    from safeser.policy.recorded.learn import learn as learned

    base = None if like is None else Policy.load(like)
    line(learned(_traffic(logs), like=base).removesuffix("\n"))
