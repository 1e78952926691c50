"""``safeser policy``: check a policy, show it, and explain one decision.

The one rule: every answer comes from the loaded policy itself; nothing is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.ending import DENIED, complain
from safeser.cli.screen import line, mark, say, table
from safeser.errors import ConfigError
from safeser.policy.source.faults import did_you_mean, shown

if TYPE_CHECKING:
    from safeser.policy import Policy, Rule
    from safeser.policy.taken_tasks import Takes

__all__ = ["app"]

app = typer.Typer(help="Check, show and explain policies.", no_args_is_help=True)


def _ready(incomplete: str) -> list[str]:
    """Return the ready policies that a shell may complete *incomplete* to."""
    from safeser.policy import ready_policies

    return [name for name in ready_policies() if name.startswith(incomplete)]


PolicyName = Annotated[
    str,
    typer.Argument(
        metavar="POLICY", help="A file, or the name of a ready policy.", autocompletion=_ready
    ),
]

#: A file that is not there is no policy that failed its check.
_NOT_FOUND = frozenset({"config.file", "config.policy-name"})


@app.command(short_help="Check that policies load.")
def check(
    policies: Annotated[list[str], typer.Argument(metavar="POLICY...", autocompletion=_ready)],
    *,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Write the last line '...': you state that the files are whole."
        ),
    ] = False,
) -> None:
    """Check that policies load; code 1 names the faults of each that does not.

    A file ends with the line '...'; without it, it may be cut off, and no process uses it. Warnings
    name contexts that leave what they refuse to a later one.
    """
    from safeser.policy import Policy
    from safeser.policy.questions.lint_grants import find_narrowed
    from safeser.policy.ready import locate, write_mark

    failed = False
    for name in policies:
        try:
            if fix and write_mark(locate(name), Policy.parse):
                mark(True, f"{name}: its last line is '...' now")
            policy = Policy.load(name)
        except ConfigError as error:
            if error.rule in _NOT_FOUND:
                raise
            complain(error)
            failed = True
        else:
            mark(True, f"{name}: fine, {_title(policy)}, SHA-256 {policy.sha256}")
            for each in find_narrowed((policy.written or policy).as_of(None)):
                if not each.is_note:
                    say(f"{name}: warning: {each.message} [{each.rule}] {each.fix}")
    if failed:
        raise typer.Exit(DENIED)


@app.command(short_help="Find what a policy permits against its own statements.")
def lint(
    policies: Annotated[list[str], typer.Argument(metavar="POLICY...", autocompletion=_ready)],
    roster: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Look at the dates of its keys as well.")
    ] = None,
) -> None:
    """Find what a policy permits against its own statements, grants in vain, or forgets.

    Names under 'allow' and 'types' are imported where their package is installed. Notes do not
    fail; code 1 if anything else was found.
    """
    from safeser.identity import Roster, today
    from safeser.policy import Policy
    from safeser.policy.questions.lint import lint as findings
    from safeser.policy.questions.lint_grants import find_dates

    listed = None if roster is None else Roster.load(roster)
    failed = False
    for name in policies:
        policy = Policy.load(name)
        found = findings(policy, today=today())
        if listed is not None:
            found += find_dates(policy, policy.roster.merged(listed), today=today())
        failed |= not all(each.is_note for each in found)
        for each in found:
            text = f"{name}: {each.message} [{each.rule}] {each.fix}"
            if each.is_note:
                say(f"{text} (a note)")
            else:
                mark(False, text)
        if not found:
            mark(True, f"{name}: nothing found, {_title(policy)}")
    if failed:
        raise typer.Exit(DENIED)


def _title(policy: Policy) -> str:
    return f"{policy.name} revision {policy.revision}"


@app.command(short_help="Show a policy, or list the ready ones.")
def show(
    policy: Annotated[
        str | None,
        typer.Argument(
            metavar="[POLICY]",
            help="A file or a ready policy. [default: list those]",
            autocompletion=_ready,
        ),
    ] = None,
    *,
    operations: Annotated[
        bool, typer.Option("--operations", help="Name each operation, not only their groups.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--yaml", help="Print its file, with what it extends in its place.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one page of HTML instead.")
    ] = None,
) -> None:
    """Show what a policy says, groups of principals spelled out; without one, the ready ones."""
    from safeser.policy import Policy, ready_policies
    from safeser.policy.ready import locate, read_policy

    if policy is None:
        table(
            ("ready policy", "principals"),
            [(name, ", ".join(Policy.load(name).principals)) for name in ready_policies()],
        )
        return
    loaded = Policy.load(policy)
    if source:
        line(read_policy(locate(policy)).expanded.decode().removesuffix("\n"))
        return
    if page is not None:
        _write_page(loaded, page)
        return
    line(_title(loaded), style="bold")
    line(f"SHA-256 {loaded.sha256}")
    if loaded.observes:
        what = "it refuses the floors, and code where no context sends any"
        mark(False, f"mode observe: {what}, and records what its contexts refuse")
    line()
    table(
        ("principal", "groups", "keys in this file"),
        [
            (name, ", ".join(sorted(each.groups)), str(len(each.keys)))
            for name, each in loaded.principals.items()
        ],
    )
    _show_matrix(loaded)
    _show_code(loaded)
    _show_workers(loaded)
    _show_readers(loaded)
    _show_confined(loaded)
    line()
    say("The first context that matches decides; none matches: deny.")
    for rule in loaded.contexts:
        line()
        _show_context(rule, every=operations)


def _write_page(policy: Policy, path: Path) -> None:
    from safeser.policy.questions.matrix import page

    try:
        path.write_text(page(policy), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            rule="config.page",
            fix="Name a file in a folder that is there.",
        ) from None
    mark(True, f"{path}: written, {_title(policy)}")


def _show_matrix(policy: Policy) -> None:
    """Show the most that passes between principals, in each kind."""
    from safeser.policy.questions.matrix import LEGEND, matrix, text_of

    line()
    say("The most that passes, in the kinds admin, data, task and control:")
    line()
    for each in text_of(matrix(policy)):
        line(each)
    line()
    for letter, meaning in LEGEND.items():
        line(f"  {letter}  {meaning}")


def _show_code(policy: Policy) -> None:
    """Show in whose processes a holder of each principal's key can run code, and how."""
    from safeser.policy.questions.code_paths import code_paths
    from safeser.policy.questions.difference_text import people

    reached: dict[str, list[str]] = {}
    for path in code_paths(policy):
        start, *between, end = (people(policy, step) for step in path.steps)
        through = f" (through {', '.join(between)})" if between else ""
        reached.setdefault(start, []).append(f"{end}{through}")
    if reached:
        line()
        rows = [(name, ", ".join(ends)) for name, ends in reached.items()]
        table(("a holder of the key of", "can run code as"), rows)


def _show_confined(policy: Policy) -> None:
    """Show what each confined principal's processes may do beyond computing."""
    for name, each in policy.principals.items():
        if each.confined is not None:
            line()
            line(f"{name} is confined, or does not start", style="bold")
            for what, said in each.confined.sentences():
                _row(what, said)


def _show_workers(policy: Policy) -> None:
    """Show whose tasks run in the workers of which principals, for each scheduler."""
    from safeser.policy.questions.task_workers import schedulers, task_workers

    found = [
        (scheduler, worker, takes)
        for scheduler in sorted(schedulers(policy))
        for worker, takes in task_workers(policy, scheduler).takes.items()
    ]
    # What lets workers report lets them hand out tasks, too; who hands out sealed ones takes none.
    handing = {scheduler for scheduler, _, takes in found if takes.authors}
    rows = [
        (scheduler, worker, "; ".join(_taken(policy, takes, scheduler)))
        for scheduler, worker, takes in found
        if takes.authors or worker not in handing
    ]
    if rows:
        line()
        table(("scheduler", "workers of", "take tasks of"), rows)


def _show_readers(policy: Policy) -> None:
    """Show which authors' values each principal reads; those with equal answers on one line."""
    from safeser.policy.questions.readable import read_by
    from safeser.policy.rules import READING
    from safeser.policy.source.words import joined

    readers: dict[frozenset[str], list[str]] = {}
    asking = [rule.senders for rule in policy.contexts if READING & rule.operations]
    for name in policy.principals:
        if any(name in senders for senders in asking):
            readers.setdefault(read_by(policy, name) - {name}, []).append(name)
    if readers:
        line()
        rows = [(", ".join(names), joined(found)) for found, names in readers.items()]
        table(("read values of their own, and", "of these authors"), rows)


def _taken(policy: Policy, takes: Takes, scheduler: str) -> list[str]:
    from safeser.gate.values import Kind
    from safeser.policy.source.words import joined

    sealed = frozenset(
        name for name in takes.authors if policy.may_sign(name, scheduler, Kind.TASK)
    )
    said = [f"{joined(sealed)} (sealed)"] if sealed else []
    if takes.unsealed:
        said.append(f"graphs that {scheduler} opens (code)")
    return said or ["none"]


def _show_context(rule: Rule, *, every: bool) -> None:
    from safeser.policy.source.words import joined

    line(f"{rule.place}, {rule.name}", style="bold")
    kinds = [kind.value for kind in sorted(rule.kinds, key=lambda kind: kind.strength)]
    say(f"  {joined(rule.senders)} -> {joined(rule.recipients)}: {', '.join(kinds)}")
    for label, text, strong in rule.rows():
        _row(label, text, style="yellow" if strong else "")
    if every:
        for name in sorted(rule.operations):
            line(f"    {name}")


def _row(name: str, value: str, *, style: str = "") -> None:
    say(f"  {name:<12}{value}", style=style, hang=14)


@app.command(short_help="Print the JSON Schema of policy files, for editors.")
def schema() -> None:
    """Print the JSON Schema of policy files; editors complete and underline by it."""
    from safeser.policy.schema import json_schema

    line(json.dumps(json_schema(), indent=2))


@app.command(short_help="Explain one decision, and what would change it.")
def explain(
    policy: PolicyName,
    *,
    sender: Annotated[str, typer.Option(metavar="NAME", help="The sending principal.")],
    recipient: Annotated[str, typer.Option(metavar="NAME", help="The receiving principal.")],
    family: Annotated[
        str, typer.Option(metavar="FAMILY", help="Such as msgpack, dask, pickle, sealed.")
    ],
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="admin, data, task or control.")
    ] = "data",
    operation: Annotated[str | None, typer.Option(metavar="NAME", help="Dask's operation.")] = None,
    author: Annotated[
        str | None, typer.Option(metavar="NAME", help="Its author, if not the sender.")
    ] = None,
    transport: Annotated[
        str | None, typer.Option(metavar="NAME", help="safeser, tcp, tls or library.")
    ] = None,
    same_host: Annotated[
        bool | None, typer.Option("--same-host/--other-host", help="Where the other end is.")
    ] = None,
    sealing: Annotated[bool, typer.Option("--sealing", help="Ask for the sending side.")] = False,
) -> None:
    """Say which rule decides in one context, why, and what would change it; code 1 if denied."""
    from safeser.gate.values import FAMILIES, SEALED, Context
    from safeser.operations import NAMES
    from safeser.policy import Policy
    from safeser.policy.questions.explain import explain as explained

    loaded = Policy.load(policy)
    _require_known("family", family, {*FAMILIES, SEALED, *loaded.families})
    if operation is not None:
        _require_known("operation", operation, NAMES)
    explanation = explained(
        loaded,
        Context(sender, recipient, kind, operation, transport=transport, same_host=same_host),
        family,
        sealing=sealing,
        author=author,
    )
    question, *steps = explanation.text.splitlines()
    say(question)
    for step in steps:
        decided = step.startswith(("permitted", "denied"))
        if decided:
            mark(explanation.decision.permitted, step)
        else:
            say(step)
    if not explanation.decision.permitted:
        raise typer.Exit(DENIED)


def _require_known(what: str, name: str, known: Collection[str]) -> None:
    """Refuse a misspelt name: an answer about it would be one about nothing."""
    if name not in known:
        raise ConfigError(
            f"safeser knows no {what} {shown(name)}",
            rule=f"config.{what}",
            fix=did_you_mean(name, known),
        )


@app.command(short_help="List which process of a cluster runs which revision.")
def drift(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="The scheduler's: safeser://host:port.")
    ],
) -> None:
    """List which policy and roster each process of a cluster decides by; code 1 if they differ.

    Asks with the identity that DASK_SAFESER__IDENTITY names, which needs the operations identity
    and broadcast.
    """
    from safeser.dask import require_distributed

    require_distributed()
    from safeser.dask.diagnosis import ask_drift

    found = ask_drift(address)
    table(
        ("process", "policy", "revision", "SHA-256", "roster"),
        [
            (each.process, each.policy, str(each.revision), each.sha256[:12], each.roster[:12])
            if each.sha256
            else (f"{each.process} says nothing", "", "", "", "")
            for each in found
        ],
        names=("process", "SHA-256", "roster"),
    )
    others = [each for each in found if not each.agrees(found[0])]
    mark(not others, "all decide alike" if not others else f"{len(others)} rows differ")
    if others:
        raise typer.Exit(DENIED)
