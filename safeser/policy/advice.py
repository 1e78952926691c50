"""What to change so that a denied message passes, in the policy's own words, with its risk.

The one rule: an edit proposed here loads, permits what was denied, and is the smallest that does.
Where a floor denies, the advice says so and proposes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from safeser.operations import GROUPS
from safeser.policy.rules import (
    CODE_OPERATIONS,
    HARMLESS,
    SUBMIT,
    UNKNOWN_OPERATIONS,
    UNLISTED,
    Query,
    Rule,
)
from safeser.values import FAMILIES, UNKNOWN

__all__ = ["Edit", "edits", "fix"]

_NAMES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one context: add *value* to a list, or set ``submission`` to it.

    :param field: ``serializers``, ``deserializers``, ``operations`` or ``submission``.
    """

    context: str
    field: str
    value: str

    def __str__(self) -> str:
        if self.field == "submission":
            return f"set 'submission: {self.value}'"
        where = "operations: grant" if self.field == "operations" else self.field
        return f"add {self.value} to '{where}'"


def edits(name: str, query: Query, rule: Rule) -> tuple[Edit, ...]:
    """Return the smallest change to *rule* that lifts the denial *name*; none if none can."""
    if name == "operation.not-granted" and query.operation is not None:
        return _granting(query.operation, rule)
    if name == "submission.none" and not _has_unknown(rule):
        return (Edit(rule.name, "submission", "code"),)
    if name == "context.family" and query.family != UNLISTED:
        hopeless = query.family not in HARMLESS and (query.relayed or _has_unknown(rule))
        return () if hopeless else _listing(query, rule)
    return ()


def _granting(operation: str, rule: Rule) -> tuple[Edit, ...]:
    if operation == UNLISTED:
        return ()
    grant = Edit(rule.name, "operations", operation)
    needs_code = operation in CODE_OPERATIONS or operation == SUBMIT
    if _has_unknown(rule) and (needs_code or operation not in UNKNOWN_OPERATIONS):
        return ()
    if needs_code and rule.submission == "none":
        return (grant, Edit(rule.name, "submission", "code"))
    return (grant,)


def _listing(query: Query, rule: Rule) -> tuple[Edit, ...]:
    side = "serializers" if query.sealing else "deserializers"
    changes = [Edit(rule.name, side, query.family)]
    if query.family == "cloudpickle":
        if "pickle" not in rule.families(sealing=query.sealing):
            changes.append(Edit(rule.name, side, "pickle"))
        if rule.submission == "none":
            changes.append(Edit(rule.name, "submission", "code"))
    return tuple(changes)


def _has_unknown(rule: Rule) -> bool:
    return UNKNOWN in rule.senders | rule.recipients


def fix(name: str, query: Query, rule: Rule | None) -> str:
    """Return the advice for a denial as one or two sentences."""
    if rule is None:
        return _new_context(query)
    changes = edits(name, query, rule)
    if not changes:
        return _impossible(name, query, rule)
    words = ", ".join(str(change) for change in changes)
    advice = f"In context {rule.name!r} (line {rule.line}), {words}. Risk: {_risk(changes, rule)}."
    if query.family == "cloudpickle" and "pickle" in rule.families(sealing=query.sealing):
        # What a pickle names beyond the profile makes it code, and listing that name is far less.
        advice += " If it only lacks a class of your own, list that under 'pickle: allow' instead."
    return advice


def _new_context(query: Query) -> str:
    if UNKNOWN in (query.sender, query.recipient):
        return (
            "List the principal under 'principals', its key in the roster, and a context for it."
            " Risk: that key's owner then takes part in the cluster."
        )
    return (
        f"Add a context with 'sender: {query.sender}', 'recipient: {query.recipient}' and"
        f" 'kinds: [{query.kind.value}]'. Risk: it opens a way from {query.sender} to"
        f" {query.recipient} that this policy keeps shut."
    )


def _impossible(name: str, query: Query, rule: Rule) -> str:
    if name == "author.relayed" or (query.relayed and query.family not in HARMLESS):
        return (
            "No policy of this version can permit it. Fetch the value from its author directly, or"
            " return it as numbers, text, arrays or frames, which travel as dask or msgpack."
        )
    if name in ("floor.admin", "floor.unknown"):
        return "No policy can permit it."
    if UNLISTED in (query.operation, query.family) and name in (
        "operation.not-granted",
        "context.family",
    ):
        return "No policy can permit what safeser does not know."
    if UNKNOWN in (query.sender, query.recipient):
        return "No policy can permit it from or to unknown; list the principal and its key."
    return (
        f"Context {rule.name!r} (line {rule.line}) also covers unknown: give {query.sender} ->"
        f" {query.recipient} a context of its own above it."
    )


def _risk(changes: Iterable[Edit], rule: Rule) -> str:
    senders, recipients = _few(rule.senders), _few(rule.recipients)
    values = {change.value for change in changes}
    if values & (CODE_OPERATIONS | {"code", "cloudpickle"}):
        return f"{senders} can then run any code in {recipients}, read the keys there and use them"
    if "pickle" in values:
        profiles = ", ".join(rule.profiles)
        return f"pickles of {senders} are then rebuilt in {recipients}, within profile {profiles}"
    if values & (GROUPS["debug"] | GROUPS["benchmark"] | GROUPS["control"]):
        return f"{senders} can then steer, load or stop {recipients}"
    if values - {*FAMILIES} and any(change.field.endswith("serializers") for change in changes):
        return f"what {senders} send then goes to that family's own code in {recipients}"
    if "dask" in values:
        return f"typed data of {senders}, such as arrays, is then decoded in {recipients}"
    return f"{senders} can then ask this of {recipients}"


def _few(names: frozenset[str]) -> str:
    listed = sorted(names)
    if len(listed) <= _NAMES_SHOWN:
        return ", ".join(listed)
    return f"{', '.join(listed[:_NAMES_SHOWN])} and {len(listed) - _NAMES_SHOWN} more"
