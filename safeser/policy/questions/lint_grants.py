"""Find grants that do nothing, and roles that lack what they need.

The one rule: a finding names what the policy says and what follows. Names that a policy allows are
looked up only in packages that are installed here; others are reported as not checked.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from safeser.allowed.names import own_object
from safeser.errors import SafeserError
from safeser.gate.decision import ANY_TRANSPORT, ANYWHERE, COMPUTE, SUBMIT
from safeser.gate.values import SUBMISSIONS, Context, Kind
from safeser.identity import KeyState, Roster
from safeser.policy.policy import Policy
from safeser.policy.questions.domain import WAYS, Domain
from safeser.policy.questions.roles import Need, Roles
from safeser.policy.rules import WEAKEST
from safeser.policy.source.context import Rule

__all__ = ["Finding", "find_dates", "find_ends", "find_grants", "find_names", "find_narrowed"]

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


# --- narrowed contexts ----------------------------------------------------------------------------


def find_narrowed(policy: Policy) -> Iterator[Finding]:
    """Yield contexts that refuse what a later one permits where a fact is unknown.

    A context that asks for a transport or a host does not match where it is not known, so that a
    peer that it is meant to hold back is decided by the later context: ``lint.narrowed``. One that
    ends matches as before, and refuses; that the later one does not follow it is a note.
    """
    narrowed = [
        (at, rule)
        for at, rule in enumerate(policy.contexts)
        if rule.until or rule.transports != ANY_TRANSPORT or rule.same_host != ANYWHERE
    ]
    names = [each[0] for each in Domain.of(policy).classes] if narrowed else []
    for at, rule in narrowed:
        pairs = itertools.product(
            [name for name in names if name in rule.senders],
            [name for name in names if name in rule.recipients],
            sorted(rule.kinds, key=lambda kind: kind.strength),
        )
        found: dict[str, Finding] = {}
        for sender, recipient, kind in pairs:
            for later, lasting in _followers(policy, at, (sender, recipient, kind)):
                if _permits_more(later, rule, kind):
                    finding = (_not_followed if lasting else _left_to)(rule, later)
                    found.setdefault(finding.message, finding)
        yield from found.values()


def _followers(
    policy: Policy, at: int, place: tuple[str, str, Kind]
) -> Iterator[tuple[Rule, bool]]:
    """Yield the contexts below number *at* that a reader takes for its followers at *place*.

    With each, whether it never decides there: what the context matches is left to no other.
    """
    rule = policy.contexts[at]
    ways = {way: policy.match(Context(*place, transport=way[0], same_host=way[1])) for way in WAYS}
    own = [way for way, decides in ways.items() if decides is rule]
    for (transport, same_host), decides in ways.items():
        might = any(transport in (None, t) and same_host in (None, h) for t, h in own)
        if decides is not None and decides is not rule and might:
            yield decides, False
    if rule.until is not None:
        sender, recipient, kind = place
        for transport, same_host in own:
            below = (
                later
                for later in policy.contexts[at + 1 :]
                if sender in later.senders
                and recipient in later.recipients
                and kind in later.kinds
                and transport in later.transports
                and same_host in later.same_host
            )
            yield from ((later, True) for later in itertools.islice(below, 1))


def _permits_more(later: Rule, rule: Rule, kind: Kind) -> bool:
    """Tell whether *later* permits messages of *kind* that *rule* refuses."""
    operations = later.operations - rule.operations
    asked = any(WEAKEST[name].strength <= kind.strength for name in operations)
    unrecorded = later.audit_failure.level > rule.audit_failure.level
    if asked or unrecorded or _takes_more_keys(later, rule, kind):
        return True
    if kind is Kind.ADMIN:
        return False
    if later.classes == "own" != rule.classes:
        return True
    return SUBMISSIONS.index(later.submission) > SUBMISSIONS.index(rule.submission) or any(
        set(getattr(later, field)) - set(getattr(rule, field)) for field in _PERMITTING
    )


def _takes_more_keys(later: Rule, rule: Rule, kind: Kind) -> bool:
    """Tell whether *later* lets submissions take keys that *rule* refuses them."""
    submits = SUBMIT in later.operations and WEAKEST[SUBMIT].strength <= kind.strength
    words = zip(later.key_conflicts, rule.key_conflicts, strict=True)
    return submits and later.submission != "none" and ("warn", "refuse") in words


#: The fields of a context that permit what they list.
_PERMITTING = ("serializers", "deserializers", "authors", "values", "types", "profiles", "allow")


def _left_to(rule: Rule, later: Rule) -> Finding:
    transport = ["'transport'"] if rule.transports != ANY_TRANSPORT else []
    same_host = ["'same_host'"] if rule.same_host != ANYWHERE else []
    narrowing = " and ".join(transport + same_host)
    return Finding(
        "lint.narrowed",
        f"context {rule.name!r} ({rule.place}) grants less than {later.name!r}"
        f" ({later.place}) and asks for {narrowing}: a peer of which that is not known is decided"
        f" by {later.name!r}",
        f"Take {narrowing} out of {rule.name!r}, and put a context above it for the peers that may"
        f" do more; or let {later.name!r} ask for {narrowing} as well. What is not known matches"
        " no value.",
    )


def _not_followed(rule: Rule, later: Rule) -> Finding:
    return Finding(
        "lint.narrowed",
        f"context {rule.name!r} ({rule.place}) grants less than {later.name!r}"
        f" ({later.place}) until {rule.until}, and refuses all of it from then on:"
        f" {later.name!r} does not follow",
        f"Take {rule.name!r} out on the day from which {later.name!r} is to decide.",
        is_note=True,
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
            f"context {rule.name!r} ({rule.place}) {'ended' if over else 'ends'} with"
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
