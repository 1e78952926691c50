"""Find grants that do nothing, and roles that lack what they need.

The one rule: a finding names what the policy says and what follows. Names that a policy allows are
looked up only in packages that are installed here; others are reported as not checked.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

from safeser.allowed.names import own_object
from safeser.errors import SafeserError
from safeser.identity import KeyState, Roster
from safeser.policy.policy import Policy
from safeser.policy.questions.roles import Need, Roles
from safeser.policy.rules import COMPUTE, SUBMIT
from safeser.values import Context, Kind

__all__ = ["Finding", "find_dates", "find_ends", "find_grants", "find_names"]

#: Days before the end of a key or context from which on it is reported.
SOON = 30


@dataclass(frozen=True, slots=True)
class Finding:
    """One contradiction within a policy.

    :param rule: the dotted name of the check.
    :param message: who can do what, in one sentence.
    :param fix: what to change.
    :param is_note: whether it is worth knowing and not wrong.
    """

    rule: str
    message: str
    fix: str
    is_note: bool = False


def find_grants(policy: Policy) -> Iterator[Finding]:
    """Yield principals without a context, roles that lack operations, and open dashboards.

    - ``lint.principal``: a principal that no context names.
    - ``lint.role``: a worker, scheduler or user that lacks an operation which its role needs.
    - ``lint.dashboard``: web pages for visitors that nothing authenticates, of a process that
      opens code.
    """
    for name in policy.principals:
        if not any(name in rule.senders | rule.recipients for rule in policy.contexts):
            yield Finding(
                "lint.principal",
                f"no context names {name}, which can neither send nor receive anything",
                f"Take {name} out, or give it a context.",
            )
    for scheduler in sorted(_handing(policy)):
        yield from _lacking(policy, scheduler)
    yield from _dashboard(policy)


def _handing(policy: Policy) -> dict[str, set[str]]:
    """Return the schedulers, each with the principals to which it hands tasks that run.

    Policies often grant the group of operations that compute-task is in to workers as well, which
    hand out nothing.
    """
    found: dict[str, set[str]] = {}
    for rule in policy.contexts:
        if rule.submission != "none" and COMPUTE in rule.operations:
            for name in rule.senders & policy.principals.keys():
                found.setdefault(name, set()).update(rule.recipients)
    return found


def _lacking(policy: Policy, scheduler: str) -> Iterator[Finding]:
    handed = _handing(policy)[scheduler]
    submitting = [
        rule
        for rule in policy.contexts
        if rule.submission != "none" and SUBMIT in rule.operations and scheduler in rule.recipients
    ]
    users = {name for rule in submitting for name in rule.senders & policy.principals.keys()}
    users -= handed | {scheduler}
    # Nannies are handed tasks as well, as policies are written; values are taken from workers.
    fetched = {
        name
        for rule in policy.contexts
        if rule.senders & (users | handed) and "get_data" in rule.operations
        for name in rule.recipients
    }
    workers = (handed & fetched or handed) - {scheduler}
    missing: dict[tuple[str, str], list[str]] = {}
    for need in Roles(scheduler, workers=workers, clients=users).needs():
        if not _is_granted(policy, need):
            missing.setdefault((need.sender, need.recipient), []).append(need.operation)
    for (sender, recipient), names in missing.items():
        yield Finding(
            "lint.role",
            f"{sender} lacks {', '.join(names)} towards {recipient}, which its role needs",
            "Grant them in the context that decides, with the kinds that they are of.",
        )


def _is_granted(policy: Policy, need: Need) -> bool:
    """Tell whether what is needed passes in any kind that it can have."""
    asked = (
        Context(
            need.sender, need.recipient, kind, need.operation, transport="safeser", same_host=near
        )
        for kind in Kind
        if kind.strength >= need.kind.strength
        for near in (True, False)
    )
    return any(policy.permits_operation(each).permitted for each in asked)


def _dashboard(policy: Policy) -> Iterator[Finding]:
    opening = sorted(
        name
        for rule in policy.contexts
        if rule.submission == "code" and SUBMIT in rule.operations
        for name in rule.recipients
    )
    if policy.dashboard is not None and opening:
        yield Finding(
            "lint.dashboard",
            f"web pages are served at {policy.dashboard} to visitors that nothing authenticates,"
            f" by {opening[0]}, which opens code",
            "Take 'dashboard' out, and reach the pages through a tunnel to loopback.",
        )


# --- allowed names --------------------------------------------------------------------------------


def find_names(policy: Policy) -> Iterator[Finding]:
    """Yield allowed names that stand for nothing here: ``lint.name``. This imports their modules.

    Names of packages that are not installed here are noted as not checked.
    """
    allowed = {
        (name, role)
        for rule in policy.contexts
        for name, role in (
            *((each.name, each.role) for each in rule.allow),
            *((name, "class") for name in rule.types),
        )
    }
    for name, role in sorted(allowed):
        package = name.partition(":")[0].partition(".")[0]
        try:
            is_installed = importlib.util.find_spec(package) is not None
        except (ImportError, ValueError):
            is_installed = False
        if not is_installed:
            what = f"{name} was not checked: {package} is not installed here"
            yield Finding("lint.name", what, "Run this where workers run.", is_note=True)
            continue
        problem = _problem(name, role)
        if problem:
            yield Finding("lint.name", f"{name}, allowed as {role}, {problem}", "Correct the name.")


def _problem(name: str, role: str) -> str:
    try:
        module = importlib.import_module(name.partition(":")[0])
        found = own_object(name, role, module)
    except SafeserError as error:
        return f"is refused by each load: {error.message}"
    except Exception as error:  # a module may raise anything while it is imported
        return f"cannot be imported: {type(error).__name__}"
    if role == "class" and not isinstance(found, type):
        return "is no class"
    if role in ("callable", "reference") and not callable(found):
        return "cannot be called"
    return ""


# --- dates ----------------------------------------------------------------------------------------


def find_ends(policy: Policy, *, today: datetime.date) -> Iterator[Finding]:
    """Yield contexts that have ended, and those that end soon: ``lint.until``."""
    for rule in policy.contexts:
        if rule.until is None or (rule.until - today).days > SOON:
            continue
        over = rule.until < today
        yield Finding(
            "lint.until",
            f"context {rule.name!r} (line {rule.line}) {'ended' if over else 'ends'} with"
            f" {rule.until}; {'it' if over else 'then it'} refuses all that it matches",
            "Take it out, so that a context below it decides, or set a later 'until'.",
            is_note=not over,
        )


def find_dates(policy: Policy, roster: Roster, *, today: datetime.date) -> Iterator[Finding]:
    """Yield principals without a key that opens sessions, and keys that end soon: ``lint.date``."""
    for name in policy.principals:
        keys = [
            entry
            for entry in roster.entries
            if entry.principal == name and entry.state is KeyState.ACTIVE
        ]
        if not any(entry.speaks(today) for entry in keys):
            yield Finding(
                "lint.date",
                f"{name} has no key that opens sessions today",
                "List one, or take the principal out.",
                is_note=not keys,
            )
            continue
        ends = [entry.not_after for entry in keys if entry.speaks(today)]
        last = max((end for end in ends if end is not None), default=None)
        if None not in ends and last is not None and (last - today).days <= SOON:
            yield Finding(
                "lint.date",
                f"the last key of {name} ends on {last}",
                "Rotate it: safeser keys rotate.",
                is_note=True,
            )
