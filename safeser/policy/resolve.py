"""Make the decision table of a policy, and check its contexts and principals against each other.

The one rule: a policy that loads says what it does. A context that can never match or is never
reached, a grant that could never be used and an attempt to widen a floor are errors at their place
in the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from safeser.errors import ConfigError
from safeser.identity import PublicKey
from safeser.operations import GROUPS
from safeser.policy import floors
from safeser.policy.confined import read_confined
from safeser.policy.decide import Table
from safeser.policy.escapes import check_confined
from safeser.policy.observing import CONTEXT
from safeser.policy.rules import COMPUTE, Principal
from safeser.policy.source.context import Rule
from safeser.policy.source.entry import Entry
from safeser.policy.source.faults import fault, together
from safeser.policy.source.loader import Document
from safeser.policy.source.model import PolicyModel
from safeser.policy.source.scope import Scope
from safeser.policy.source.shape import MOST
from safeser.policy.taken_tasks import check_one_group
from safeser.policy.worker_authors import ForeignAuthor, find_foreign_author
from safeser.values import ANY_AUTHOR, SEALED, UNKNOWN

__all__ = ["resolve"]

_RESERVED = (UNKNOWN, ANY_AUTHOR)


def resolve(
    model: PolicyModel, document: Document, scope: Scope
) -> tuple[Mapping[str, Principal], Table]:
    """Return the principals and the decision table of a policy.

    :raises ConfigError: at the first place where the policy does not mean something definite.
    """
    principals = _principals(model, document)
    rules = model.contexts
    _check_rules(rules, document, scope)
    table = Table(rules, principals, own=scope.own, suite=scope.suite)
    try:
        unreached = table.shadowed()
    except ConfigError as error:
        place = document.key_place(("contexts",))
        raise fault(
            error.message, source=document.source, place=place, rule=error.rule, fix=error.fix
        ) from None
    if unreached is not None:
        _refuse_unreached(rules, unreached, document)
    _check_actors(rules, document)
    foreign = find_foreign_author(rules, principals)
    if foreign is not None:
        _refuse_foreign_author(rules, foreign, document)
    check_one_group(table, rules, principals, document)
    check_confined(rules, principals, document)
    if model.mode == "observe":
        _check_observed(rules, principals, document)
    return principals, table


def _check_observed(
    rules: Sequence[Rule], principals: Mapping[str, Principal], document: Document
) -> None:
    """Refuse what ``mode: observe`` would make meaningless."""
    for name, each in principals.items():
        if each.confined is not None:
            raise fault(
                f"{name!r} is confined, and 'mode: observe' lets code pass between all principals,"
                " out of its sandbox as well",
                source=document.source,
                place=document.key_place(("principals", name, "confined")),
                rule="config.observe",
                fix="Take 'confined' out until the mode is enforce.",
            )
    for index, rule in enumerate(rules):
        if rule.name == CONTEXT:
            raise fault(
                f"{CONTEXT!r} names the context that 'mode: observe' decides by",
                source=document.source,
                place=document.place(("contexts", index, "name")),
                rule="config.duplicate-name",
                fix="Give it another name.",
            )


def _check_rules(rules: Sequence[Rule], document: Document, scope: Scope) -> None:
    """Refuse all contexts whose name is taken or whose fields do not fit together."""
    lines: dict[str, int] = {}
    faults: list[ConfigError] = []
    for index, rule in enumerate(rules):
        try:
            _check_rule(Entry(rule, index, document, scope), lines)
        except ConfigError as error:
            faults.append(error)
    if faults:
        raise together(faults[:MOST])


def _check_rule(entry: Entry, lines: dict[str, int]) -> None:
    rule = entry.rule
    place = entry.document.place(("contexts", entry.index))
    rule.stand_at(place.line if place else 0)
    if rule.name in lines:
        entry.refuse(
            f"another context of that name stands at line {lines[rule.name]}",
            "name",
            rule="config.duplicate-name",
        )
    lines[rule.name] = rule.line
    floors.check(entry)


def _check_actors(rules: Sequence[Rule], document: Document) -> None:
    """Refuse calls of actors by a principal that relays sealed tasks: no author signs a call."""
    sealed = [rule for rule in rules if rule.submission == SEALED]
    relays = [rule for rule in sealed if COMPUTE in rule.operations]
    for rule in sealed:
        if not GROUPS["actors"] & rule.operations:
            continue
        for relay in relays:
            senders = rule.senders & relay.senders
            if senders and rule.recipients & relay.recipients:
                raise fault(
                    f"context {rule.name!r}: {min(senders)} hands sealed tasks on, and calls of"
                    " actors are signed by no author: it could call any method of any actor",
                    source=document.source,
                    place=document.place(("contexts", rules.index(rule), "operations")),
                    rule="config.relayed-actors",
                    fix="Grant 'actors' from users to workers; clients call actors directly.",
                )


def _principals(model: PolicyModel, document: Document) -> dict[str, Principal]:
    owners: dict[PublicKey, str] = {}
    principals = {}
    for name, listed in model.principals.items():
        if name in _RESERVED:
            raise fault(
                f"{name!r} is a word of the policy language and cannot name a principal",
                source=document.source,
                place=document.key_place(("principals", name)),
                rule="config.principal",
            )
        keys = []
        for index, text in enumerate(listed.keys):
            place = document.place(("principals", name, "keys", index))
            try:
                key = PublicKey.parse(text)
            except ConfigError as error:
                raise fault(
                    error.message,
                    source=document.source,
                    place=place,
                    rule=error.rule,
                    fix=error.fix,
                ) from None
            if key in owners:
                raise fault(
                    f"this key is already listed for {owners[key]!r}; a key speaks for one"
                    " principal",
                    source=document.source,
                    place=place,
                    rule="config.duplicate-key-owner",
                )
            owners[key] = name
            keys.append(key)
        demand = listed.confined
        confined = None if demand is None else read_confined(demand, name, document)
        principals[name] = Principal(tuple(keys), frozenset(listed.groups), confined)
    return principals


def _refuse_foreign_author(
    rules: Sequence[Rule], foreign: ForeignAuthor, document: Document
) -> NoReturn:
    raise fault(
        f"context {rules[foreign.place].name!r}: {foreign.author} is a worker that submits sealed"
        f" work, and {foreign.worker}, with which it has no group in common, would run what it"
        " signs: a stolen key of one would run code on the other",
        source=document.source,
        place=document.place(("contexts", foreign.place, "authors")),
        rule="config.worker-author",
        fix=f"Give {foreign.worker} a context of its own without {foreign.author} among the"
        " 'authors', or put both into one group.",
    )


def _refuse_unreached(rules: Sequence[Rule], unreached: Rule, document: Document) -> NoReturn:
    index = rules.index(unreached)
    before = [
        rule.name
        for rule in rules[:index]
        if rule.senders & unreached.senders
        and rule.recipients & unreached.recipients
        and rule.kinds & unreached.kinds
        and rule.transports & unreached.transports
        and rule.same_host & unreached.same_host
    ]
    raise fault(
        f"context {unreached.name!r} is never reached: all it covers is decided by"
        f" {', '.join(before[:4])}",
        source=document.source,
        place=document.place(("contexts", index)),
        rule="config.unreachable",
        fix="Move it up, narrow the others, or take it out.",
    )
