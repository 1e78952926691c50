"""Enumerate what a policy permits at one hop, as a finite set of permissions.

The one rule: each permission is an answer of :class:`Policy` itself; nothing is decided here. Two
policies permit the same messages if and only if these sets are equal at every hop.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from safeser.allowed import Allowed
from safeser.gate.decision import SUBMIT
from safeser.gate.values import FAMILIES, HARMLESS, SEALED, Context, Kind
from safeser.operations import NAMES
from safeser.policy.policy import Policy
from safeser.policy.questions.readable import readable
from safeser.policy.rules import READING, SEALED_IN, WEAKEST

__all__ = ["REPLIES", "Permission", "contents", "derived", "weakest_kind"]

#: Stands for the operation of messages that name none: replies, and what a program seals itself.
REPLIES = "replies"

_SIDES = (("write", True), ("open", False))


class Permission(NamedTuple):
    """One thing that may pass at a hop.

    :param what: ``ask`` (an operation), ``carry`` (a family), ``sealed`` (sealed calls in an
        operation), ``profile``, ``name`` and ``type`` (what pickles and family dask may use),
        ``classes`` (of the recipient's own program that need no registration), ``submit`` (a
        submission), ``call`` (a listed function), ``read`` (values of the author), ``conflict`` (of
        keys, which passes with a warning), or ``until`` (the date on which all of it ends).
    :param value: which one.
    :param side: ``write`` or ``open`` where the two ends have lists of their own, else empty.
    :param author: who wrote it, if not the sender.
    """

    what: str
    value: str = ""
    side: str = ""
    author: str = ""


def weakest_kind(permission: Permission) -> Kind:
    """Return the weakest kind of message in which *permission* can matter."""
    if permission.what == "ask":
        return WEAKEST[permission.value]
    if permission.what == "until" or permission[:2] == ("carry", "msgpack"):
        return Kind.ADMIN
    return Kind.DATA


def contents(
    policy: Policy, context: Context, authors: Collection[str] = ()
) -> frozenset[Permission]:
    """Return what the context that matches says by itself."""
    if policy.match(context) is None:
        return frozenset()
    asked = (
        _operations(policy, context),
        _families(policy, context, authors),
        _sealed(policy, context, authors),
        _within(policy, context),
        _submission(policy, context),
    )
    return frozenset(itertools.chain(*asked))


def derived(
    policy: Policy, context: Context, authors: Collection[str] = ()
) -> frozenset[Permission]:
    """Return what follows from several contexts: values to read."""
    rule = policy.match(context)
    if rule is None or context.kind is Kind.ADMIN or not READING & rule.operations:
        return frozenset()
    listed = readable(policy, context)
    return frozenset(Permission("read", author=name) for name in authors if name in listed)


def _operations(policy: Policy, context: Context) -> frozenset[Permission]:
    rule = policy.match(context)
    asked = ("operations", "" if rule is None else rule.name, context.kind.value)
    found: frozenset[Permission] | None = policy.remembered.get(asked)
    if found is None:
        found = policy.remembered[asked] = frozenset(
            Permission("ask", name)
            for name in NAMES
            if WEAKEST[name].strength <= context.kind.strength
            and policy.permits_operation(replace(context, operation=name)).permitted
        )
    return found


def _families(policy: Policy, context: Context, authors: Collection[str]) -> Iterator[Permission]:
    # Failures pass where msgpack does; sealed calls depend on the operation as well.
    for family in {*FAMILIES, *policy.families} - {"error"}:
        relayed = () if family in HARMLESS else authors
        for (side, sealing), author in itertools.product(_SIDES, ("", *relayed)):
            decision = policy.decide(context, family, sealing=sealing, author=author or None)
            if decision.permitted:
                yield Permission("carry", family, side, author)


def _sealed(policy: Policy, context: Context, authors: Collection[str]) -> Iterator[Permission]:
    for operation in SEALED_IN:
        weakest = Kind.DATA if operation is None else WEAKEST[operation]
        if weakest.strength > context.kind.strength:
            continue
        placed = replace(context, operation=operation)
        for author in ("", *authors):
            if policy.decide(placed, SEALED, author=author or None).permitted:
                yield Permission("sealed", operation or REPLIES, "", author)


def _within(policy: Policy, context: Context) -> Iterator[Permission]:
    for side, sealing in _SIDES:
        grant = policy.bound(context, sealing=sealing)
        for what, names in (
            ("profile", grant.profiles),
            ("name", map(spelled, grant.allow)),
            ("type", grant.types),
            ("classes", ["own"] if context.sender in grant.own and not sealing else ()),
        ):
            yield from (Permission(what, name, side) for name in names)


def spelled(allowed: Allowed) -> str:
    """Return an allowed name with its role, and with what else its entry says."""
    more = {
        "fields": allowed.fields,
        "kwargs": allowed.kwargs,
        "grows": allowed.grows,
        "returns": allowed.returns,
        "trust": (*["__hash__"] * allowed.hashable, *["__setstate__"] * allowed.setstate),
    }
    said = [
        f"{key} {value if isinstance(value, str) else ' '.join(value)}".rstrip()
        for key, value in more.items()
        if value or (key == "fields" and value is not None)
    ]
    return f"{allowed.name} as {allowed.role}" + (f" ({', '.join(said)})" if said else "")


def _submission(policy: Policy, context: Context) -> Iterator[Permission]:
    grant = policy.bound(context)
    if grant.submission == "none" or context.kind is Kind.ADMIN:
        return
    yield Permission("submit", grant.submission)
    if SUBMIT in grant.operations:
        for conflict, word in policy.key_conflicts(context)._asdict().items():
            if word == "warn":
                yield Permission("conflict", conflict)
