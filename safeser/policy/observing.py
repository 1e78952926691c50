"""The decision table of a policy with ``mode: observe``: record everything, refuse only the floors.

The one rule: it is a table like any other, and :class:`safeser.gate.decision.Table` alone decides
by it. Each context of the file matches what it matches, and grants listed principals all but what
the file does not want to rehearse: code in a process to which none of its contexts sends any, such
as a user's. There the file decides about pickles, families of its own and operations that run code.
``unknown`` is no listed principal, and has what the file says.

Submissions stay what they are: where the file says ``sealed``, clients sign while it only observes,
so that what the log has is what they will send.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from safeser.gate.decision import COMPUTE
from safeser.gate.values import FAMILIES, SEALED, UNKNOWN, AuditFailure
from safeser.operations import NAMES
from safeser.policy.compiled import Compiled
from safeser.policy.rules import CODE_OPERATIONS, PROFILES, SIGNED_OPERATIONS, KeyConflicts
from safeser.policy.source.context import PickleModel, Rule

__all__ = ["observing", "taking_code"]


def taking_code(rules: Sequence[Rule], own: Collection[str] = ()) -> frozenset[str]:
    """Return the principals to which some of *rules* sends code: what runs there, signed or not.

    A scheduler opens nothing of the sealed calls that it hands on.

    :param own: families of the program's own, which may do anything with bytes.
    """
    handing = [rule for rule in rules if COMPUTE in rule.operations and rule.submission != "none"]
    workers = frozenset().union(*(rule.recipients for rule in handing))
    relays = frozenset().union(*(rule.senders for rule in handing)) - workers
    owned = (rule.recipients for rule in rules if rule.listed.intersection(own))
    signed = _sent(rules, SEALED) - relays
    return _sent(rules, "code").union(signed, *owned)


def _sent(rules: Sequence[Rule], submission: str) -> frozenset[str]:
    """Return the recipients of the contexts that say *submission*."""
    return frozenset().union(*(r.recipients for r in rules if r.submission == submission))


def observing(written: Compiled, principals: Collection[str]) -> Compiled:
    """Return contexts that permit what *written* permits, and of what it refuses all but code."""
    rules, listed = written.rules, frozenset(principals)
    taking = taking_code(rules, written.own)
    families = (*(family for family in FAMILIES if family != "error"), *sorted(written.own))
    allow = {(each.name, each.role): each for rule in rules for each in rule.allow}
    same = {
        "until": None,
        "authors": listed,
        "values": listed,
        "classes": "own" if any(rule.classes == "own" for rule in rules) else "registered",
        "key_conflicts": KeyConflicts(definition="warn", principal="warn"),
        "audit": "all",
        "audit_failure": AuditFailure(),
    }
    code = {
        "serializers": families,
        "deserializers": families,
        "pickle": PickleModel(profile=PROFILES, allow=tuple(allow.values())),
        "types": frozenset().union(*(rule.types for rule in rules)),
        "operations": NAMES,
    }
    found: list[Rule] = []
    rest = Rule(name="*", senders=listed, recipients=listed)
    for rule in (*rules, rest):
        senders, recipients = rule.senders & listed, rule.recipients & listed
        for some, more in ((recipients & taking, code), (recipients - taking, {})):
            if senders and some:
                submission = _submission(rule, rules, some)
                place = {"senders": senders, "recipients": some, "submission": submission}
                # No context of a file has such a name.
                name = f"observe:{rule.name}{'' if more else ':data'}"
                grants = more or _data(rule, submission)
                found.append(rule.replaced(**{"name": name, **same, **place, **grants}))
        if UNKNOWN in rule.senders | rule.recipients:
            found.append(rule)
    return Compiled(found, listed, own=written.own)


def _submission(rule: Rule, rules: Sequence[Rule], recipients: frozenset[str]) -> str:
    """Return what *rule* lets through, or else what others submit to *recipients*."""
    if rule.submission == "none":
        sent = (word for word in ("code", SEALED) if recipients & _sent(rules, word))
        return next(sent, "none")
    return rule.submission


def _data(rule: Rule, submission: str) -> dict[str, Any]:
    """Return what passes by *rule* to principals to which no code is sent."""
    signed = SIGNED_OPERATIONS if submission == SEALED else frozenset()
    return {
        "serializers": tuple(dict.fromkeys((*rule.serializers, "dask"))),
        "deserializers": tuple(dict.fromkeys((*rule.deserializers, "dask"))),
        "operations": rule.operations | signed | (NAMES - CODE_OPERATIONS),
    }
