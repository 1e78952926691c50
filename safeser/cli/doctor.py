"""``safeser doctor``: what is wrong with the settings of a process, and how to correct it.

The one rule: it changes nothing but the audit log, where its connection is recorded like any other.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.cli.ending import DENIED, one_line
from safeser.cli.screen import line, mark, say, table
from safeser.errors import ConfigError
from safeser.policy.source.faults import did_you_mean

if TYPE_CHECKING:
    from safeser.dask.diagnosis import Finding

__all__ = ["doctor"]

_ROLES = ("client", "worker", "nanny", "scheduler")
_SETTINGS = ("identity", "policy", "audit", "roster", "audit_key", "expected_scheduler", "shadow")


def _setting(meaning: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="VALUE", help=meaning)
    return option


def _roles(incomplete: str) -> list[str]:
    return [role for role in _ROLES if role.startswith(incomplete)]


def doctor(
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]", help="Of the scheduler. [default: Dask's scheduler-address]"
        ),
    ] = None,
    *,
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE", help="client, worker, nanny or scheduler.", autocompletion=_roles
        ),
    ] = "client",
    identity: Annotated[str | None, _setting("Private key of the process.")] = None,
    policy: Annotated[str | None, _setting("A file, or a ready policy.")] = None,
    audit: Annotated[str | None, _setting("Folder of the log.")] = None,
    roster: Annotated[str | None, _setting("The roster.")] = None,
    audit_key: Annotated[str | None, _setting("Key of the log.")] = None,
    expected_scheduler: Annotated[
        str | None, _setting("Principal that must answer at the address.")
    ] = None,
    shadow: Annotated[
        str | None, _setting("A policy, as above, whose refusals are only recorded.")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--timeout", min=0.1, max=600, help="Seconds to connect.")
    ] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line.")] = False,
) -> None:
    """Check the settings of a process and connect to its scheduler.

    Settings come from the options, then from Dask's configuration and environment.
    Code 1: something is wrong.
    """
    if role not in _ROLES:
        raise ConfigError(
            f"there is no role {one_line(role)}",
            rule="config.role",
            fix=did_you_mean(role, _ROLES) or f"Roles are {', '.join(_ROLES)}.",
        )
    from safeser.dask import require_distributed

    require_distributed()
    from safeser.dask.diagnosis import Diagnosis

    given = (identity, policy, audit, roster, audit_key, expected_scheduler, shadow)
    overrides = {
        name: value for name, value in zip(_SETTINGS, given, strict=True) if value is not None
    }
    findings = list(Diagnosis(role, overrides, address=address, seconds=seconds).findings())
    wrong = [each for each in findings if each.state == "wrong"]
    if as_json:
        line(json.dumps([asdict(each) for each in findings]))
    else:
        _show(findings, wrong)
    if wrong:
        raise typer.Exit(DENIED)


def _show(findings: list[Finding], wrong: list[Finding]) -> None:
    table(
        ("check", "is", "found"),
        [(each.check, each.state, one_line(each.what)) for each in findings],
    )
    line()
    if not wrong:
        mark(True, "Nothing is wrong.")
        return
    mark(False, f"{len(wrong)} wrong:" if len(wrong) > 1 else "One thing is wrong:")
    for each in wrong:
        say(f"  {each.check}: {one_line(each.fix or each.what)}")
