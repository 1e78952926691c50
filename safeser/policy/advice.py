"""Advise which edit of a policy permits a denied message, with its risk.

The one rule: an edit proposed here loads, permits what was denied, and is the smallest that does.
Where a floor denies, the advice says so and proposes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from safeser.gate.decision import SUBMITTING, UNLISTED, Query
from safeser.gate.values import FAMILIES, HARMLESS, SEALED, UNKNOWN, Kind
from safeser.operations import GROUPS, NAMES
from safeser.policy.rules import CODE_OPERATIONS, HANDING, SIGNED_OPERATIONS, UNKNOWN_OPERATIONS
from safeser.policy.source.context import Rule, operations_of

__all__ = ["Edit", "Judge", "complete", "edits", "fix"]

_NAMES_SHOWN = 4

_NEVER = "No policy can permit it."

#: Characters of each principal in the name of a context.
_NAME = 20

#: Words that YAML, in one version or another, reads as something other than text.
_WORDS = frozenset({"yes", "no", "on", "off", "true", "false", "null", "y", "n"})


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one context: add *value* to a list, or set ``submission`` to it.

    :param field: ``serializers``, ``deserializers``, ``operations``, ``authors``, ``kinds`` or
        ``submission``.
    """

    context: str
    field: str
    value: str

    def __str__(self) -> str:
        if self.field == "submission":
            return f"set 'submission: {self.value}'"
        where = "operations: grant" if self.field == "operations" else self.field
        return f"add {self.value} to '{where}'"


def edits(name: str, query: Query, rule: Rule) -> tuple[Edit, ...]:  # noqa: PLR0911 - a table
    """Return the smallest change to *rule* that lifts the denial *name*; none if none can."""
    if name == "operation.not-granted" and query.operation is not None:
        return _granting(query, query.operation, rule)
    if name == "submission.none" and not _has_unknown(rule):
        return _submitting(query, rule)
    if _is_misplaced(query):
        return ()
    if name == "author.relayed" and query.author != UNKNOWN and "safeser" in rule.transports:
        return (Edit(rule.name, "authors", query.author),)
    if name == "context.family" and query.family != UNLISTED:
        powerful = query.family not in HARMLESS
        if powerful and (query.author == UNKNOWN or _has_unknown(rule)):
            return ()
        changes = _listing(query, rule)
        if powerful and query.relayed and query.author not in rule.authors:
            changes += (Edit(rule.name, "authors", query.author),)
        return changes
    return ()


#: Edits after which nothing more is tried: each lifts one denial, and there are five steps.
_MOST_STEPS = 8

#: Returns the name of the first denial of a query by a context, or None if it is permitted.
Judge = Callable[[Query, Rule], str | None]


def complete(name: str, query: Query, rule: Rule, judge: Judge) -> tuple[Edit, ...] | str:
    """Return the changes to *rule* after which *judge* permits *query*.

    Lifting one denial may show the next one: all of them are lifted together.

    :param name: of the first denial.
    :returns: the changes, or the name of the denial that no change lifts.
    """
    made: dict[tuple[str, str], Edit] = {}
    denied: str | None = name
    for _ in range(_MOST_STEPS):
        if denied is None:
            return tuple(made.values())
        more = edits(denied, query, rule)
        if not more:
            return denied
        for each in more:
            # One submission replaces the other.
            field_only = each.field == "submission"
            made[each.field, "" if field_only else each.value] = each
        rule = _applied(rule, more)
        denied = judge(query, rule)
    return name


def _applied(rule: Rule, changes: Iterable[Edit]) -> Rule:
    """Return *rule* with *changes*, as a policy with them would have it."""
    for change in changes:
        field, value = change.field, change.value
        if field == "operations":
            update: object = rule.operations | operations_of(value)
        elif field == "authors":
            update = rule.authors | {value}
        elif field == "submission":
            update = value
        elif field == "kinds":
            update = rule.kinds | {Kind(value)}
        else:
            update = (*getattr(rule, field), value)
        rule = rule.replaced(**{field: update})
    return rule


def _is_misplaced(query: Query) -> bool:
    """Tell whether *query* is about a sealed call where no policy lets one through.

    Those are graphs, and tasks that another principal than the sender signed: no context can list
    its sender as an author.
    """
    if query.family != SEALED or query.operation in SUBMITTING:
        return False
    return query.operation not in HANDING or not query.relayed


def _granting(query: Query, operation: str, rule: Rule) -> tuple[Edit, ...]:
    if operation == UNLISTED:
        return ()
    grant = Edit(rule.name, "operations", operation)
    beyond = operation not in UNKNOWN_OPERATIONS or operation in SUBMITTING
    if _has_unknown(rule) and (beyond or operation in CODE_OPERATIONS):
        return ()
    if operation in SUBMITTING and rule.submission == "none":
        return (grant, *_submitting(query, rule))
    if operation in _unsigned(rule) and rule.submission != "code":
        return (grant, Edit(rule.name, "submission", "code"))
    return (grant,)


def _unsigned(rule: Rule) -> frozenset[str]:
    """Return the operations that run code, but for those that are signed where *rule* applies."""
    return CODE_OPERATIONS - (SIGNED_OPERATIONS if rule.submission == SEALED else frozenset())


def _submitting(query: Query, rule: Rule) -> tuple[Edit, ...]:
    """The least that lets work through: signed, unless code is what was asked about."""
    submission = "code" if query.family == "cloudpickle" else SEALED
    more = _of_tasks(submission, rule)
    return (Edit(rule.name, "submission", submission), *more)


def _of_tasks(submission: str, rule: Rule) -> tuple[Edit, ...]:
    """Return the change by which a submission of signed work, which is of kind task, matches."""
    if submission != SEALED or Kind.TASK in rule.kinds:
        return ()
    return (Edit(rule.name, "kinds", Kind.TASK.value),)


def _listing(query: Query, rule: Rule) -> tuple[Edit, ...]:
    if query.family == SEALED:
        return (Edit(rule.name, "submission", SEALED), *_of_tasks(SEALED, rule))
    side = "serializers" if query.sealing else "deserializers"
    changes = [Edit(rule.name, side, query.family)]
    if query.family == "cloudpickle":
        if "pickle" not in rule.families(sealing=query.sealing):
            changes.append(Edit(rule.name, side, "pickle"))
        if rule.submission != "code":
            changes.append(Edit(rule.name, "submission", "code"))
    return tuple(changes)


def _has_unknown(rule: Rule) -> bool:
    return UNKNOWN in rule.senders | rule.recipients


def fix(name: str, query: Query, rule: Rule | None, judge: Judge) -> str:
    """Return the advice for a denial as one or two sentences.

    :param rule: the context that matches, if one does.
    :param judge: what decides, which the advice has to satisfy.
    """
    if rule is None:
        return _unmatched(query, judge)
    if name == "context.ended":
        return _later(query, rule, judge)
    changes = complete(name, query, rule, judge)
    if isinstance(changes, str):
        return _impossible(changes, query, rule, judge)
    words = ", ".join(str(change) for change in changes)
    advice = f"In context {rule.name!r} ({rule.place}), {words}. Risk: {_risk(changes, rule)}."
    if query.family == "cloudpickle" and "pickle" in rule.families(sealing=query.sealing):
        # What a pickle names beyond the profile makes it code, and listing that name is far less.
        advice += " If it only lacks a class of your own, list that under 'pickle: allow' instead."
    return advice + _group(changes)


def _later(query: Query, rule: Rule, judge: Judge) -> str:
    place = f"In context {rule.name!r} ({rule.place}), set a later 'until'"
    denied = judge(query, rule.before_end)
    if denied is None:
        return f"{place}. Risk: it then grants again what it granted."
    rest = fix(denied, query, rule.before_end, judge)
    return f"{place}, which alone does not permit this. {rest}"


def _group(changes: Iterable[Edit]) -> str:
    """Name the group of an operation: a client that needs one mostly needs the others too."""
    for change in changes:
        groups = [group for group, names in GROUPS.items() if change.value in names]
        if change.field == "operations" and groups and change.value not in GROUPS:
            return f" It is in the group '{groups[0]}'."
    return ""


def _unmatched(query: Query, judge: Judge) -> str:
    hop = query.hop
    if UNKNOWN in hop[:2]:
        return (
            "List the principal under 'principals', its key in the roster, and a context for it."
            " Risk: that key's owner then takes part in the cluster."
        )
    own = _own_context(query, judge)
    if own is None:
        return _NEVER
    spelled, risk = own
    risk = (
        risk or f"it opens a way from {hop.sender} to {hop.recipient} that this policy keeps shut"
    )
    return f"Add this context: '{spelled}'. Risk: {risk}."


@functools.cache
def _bare() -> Rule:
    """Return a context that says nothing: to copy it takes a tenth of what it takes to make one."""
    none: frozenset[str] = frozenset()
    return Rule(name="", senders=none, recipients=none)


def _own_context(query: Query, judge: Judge) -> tuple[str, str] | None:
    """Return a context for *query* alone as a policy spells it, and its risk; None if none may.

    The risk is empty where it grants nothing beyond its existence.
    """
    hop = query.hop
    rule = _bare().replaced(
        name=f"{hop.sender[:_NAME]}-to-{hop.recipient[:_NAME]}-{hop.kind.value}",
        senders=frozenset({hop.sender}),
        recipients=frozenset({hop.recipient}),
        kinds=frozenset({hop.kind}),
    )
    denied = judge(query, rule)
    changes: tuple[Edit, ...] | str = ()
    if denied is not None:
        changes = complete(denied, query, rule, judge)
    if isinstance(changes, str):
        return None
    made = _applied(rule, changes)
    fields = [
        f"name: {_yaml(made.name)}",
        f"sender: {_yaml(hop.sender)}",
        f"recipient: {_yaml(hop.recipient)}",
        f"kinds: [{', '.join(kind.value for kind in Kind if kind in made.kinds)}]",
    ]
    fields += [
        f"{field}: [{', '.join(made.families(sealing=field == 'serializers'))}]"
        for field in ("serializers", "deserializers")
        if any(change.field == field for change in changes)
    ]
    granted = [change.value for change in changes if change.field == "operations"]
    authors = [change.value for change in changes if change.field == "authors"]
    fields += [f"submission: {made.submission}"] if made.submission != "none" else []
    fields += [f"authors: [{', '.join(map(_yaml, authors))}]"] if authors else []
    fields += [f"operations: {{grant: [{', '.join(granted)}]}}"] if granted else []
    return f"{{{', '.join(fields)}}}", _risk(changes, made) if changes else ""


def _yaml(name: str) -> str:
    """Return *name*, of a principal, as YAML reads it as text: in quotes if it is also a word."""
    return f'"{name}"' if name.lower() in _WORDS or not name[0].isalpha() else name


def _impossible(name: str, query: Query, rule: Rule, judge: Judge) -> str:  # noqa: PLR0911 - a table
    hop = query.hop
    if query.family not in HARMLESS and query.author == UNKNOWN:
        return (
            "No policy can permit it: its author is not known. Fetch the value from its author"
            " directly, or return it as numbers, text, arrays or frames, which travel as dask or"
            " msgpack."
        )
    if _is_misplaced(query):
        return (
            "No policy can permit it: sealed calls are graphs, and tasks that another principal"
            " than their sender signed."
        )
    if name == "floor.admin":
        return "No policy can permit it: admin messages carry no payloads. Send it as data."
    if UNLISTED in (query.operation, query.family) and name in (
        "operation.not-granted",
        "context.family",
    ):
        return "No policy can permit what safeser does not know."
    if UNKNOWN in hop[:2]:
        return "No policy can permit it from or to unknown; list the principal and its key."
    if name == "author.relayed":
        return "No policy can permit it: authors are named by what Dask relays on safeser:// alone."
    own = _own_context(query, judge)
    if own is None:
        return _NEVER
    spelled, risk = own
    return (
        f"Context {rule.name!r} ({rule.place}) also covers unknown: put this context above it:"
        f" '{spelled}'. Risk: {risk or 'it decides there in its place'}."
    )


def _risk(changes: Iterable[Edit], rule: Rule) -> str:
    senders, recipients = _few(rule.senders), _few(rule.recipients)
    authors = [change.value for change in changes if change.field == "authors"]
    if authors:
        # The senders could write it themselves; what is new is the author.
        senders = f"{authors[0]} (as {senders} relay it)"
    values = {change.value for change in changes if change.field not in ("authors", "kinds")}
    running = values & (_unsigned(rule) | {"code", "cloudpickle"})
    if running or (authors and rule.submission == "code"):
        return f"{senders} can then run any code in {recipients}, read the keys there and use them"
    signing = rule.submission == SEALED and (authors or values & SIGNED_OPERATIONS)
    if SEALED in values or signing:
        return f"any code that {senders} signed is then taken in {recipients}, and run by workers"
    return _lesser_risk(values, rule, senders, recipients, rebuilds=bool(authors))


def _lesser_risk(
    values: Collection[str], rule: Rule, senders: str, recipients: str, *, rebuilds: bool
) -> str:
    if "pickle" in values or rebuilds:
        profiles = ", ".join(rule.profiles)
        return f"pickles of {senders} are then rebuilt in {recipients}, within profile {profiles}"
    if (GROUPS["debug"] | GROUPS["benchmark"] | GROUPS["control"]).intersection(values):
        return f"{senders} can then steer, load or stop {recipients}"
    if not NAMES.issuperset(values) and not set(FAMILIES).issuperset(values):
        return f"what {senders} send then goes to that family's own code in {recipients}"
    if "dask" in values:
        return f"typed data of {senders}, such as arrays, is then decoded in {recipients}"
    return f"{senders} can then ask this of {recipients}"


def _few(names: frozenset[str]) -> str:
    listed = sorted(names)
    if len(listed) <= _NAMES_SHOWN:
        return ", ".join(listed)
    return f"{', '.join(listed[:_NAMES_SHOWN])} and {len(listed) - _NAMES_SHOWN} more"
