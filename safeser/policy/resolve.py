"""Make the decision table of a policy, and check its contexts and principals against each other.

The one rule: a policy that loads says what it does. A context that can never match or is never
reached, a grant that could never be used and an attempt to widen a floor are errors at their place
in the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, NoReturn

from safeser.errors import ConfigError
from safeser.gate.decision import COMPUTE, SUBMIT
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import ANY_AUTHOR, SEALED, UNKNOWN
from safeser.operations import GROUPS
from safeser.operations.groups import PARTS
from safeser.policy import floors
from safeser.policy.compiled import Compiled
from safeser.policy.confined import read_confined
from safeser.policy.rules import CODE_OPERATIONS, WEAKEST, Principal
from safeser.policy.source.context import Rule
from safeser.policy.source.entry import Entry
from safeser.policy.source.faults import fault, together
from safeser.policy.source.loader import Document
from safeser.policy.source.model import PolicyModel
from safeser.policy.source.scope import Scope
from safeser.policy.source.shape import MOST
from safeser.policy.taken_tasks import check_one_group

__all__ = ["resolve"]

_RESERVED = (UNKNOWN, ANY_AUTHOR)


def resolve(
    model: PolicyModel, document: Document, scope: Scope
) -> tuple[Mapping[str, Principal], Compiled]:
    """Return the principals and the compiled contexts of a policy.

    :raises ConfigError: at the first place where the policy does not mean something definite.
    """
    principals = _principals(model, document)
    rules = model.contexts
    _check_rules(rules, document, scope)
    compiled = Compiled(rules, principals, own=scope.own)
    try:
        unreached = compiled.shadowed()
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
        raise fault(
            f"context {rules[foreign.place].name!r}: {foreign.author} is a worker that submits"
            f" sealed work, and {foreign.worker}, with which it has no group in common, would run"
            " what it signs: a stolen key of one would run code on the other",
            source=document.source,
            place=document.place(("contexts", foreign.place, "authors")),
            rule="config.worker-author",
            fix=f"Give {foreign.worker} a context of its own without {foreign.author} among the"
            " 'authors', or put both into one group.",
        )
    check_one_group(compiled, rules, principals, document)
    check_confined(rules, principals, document)
    if model.mode == "observe":
        _check_observed(principals, document)
    return principals, compiled


def _check_observed(principals: Mapping[str, Principal], document: Document) -> None:
    """Refuse what ``mode: observe`` would make meaningless."""
    for name, each in principals.items():
        if each.confined is not None:
            raise fault(
                f"{name!r} is confined, and 'mode: observe' lets code pass to all principals that"
                " take any, out of its sandbox as well",
                source=document.source,
                place=document.key_place(("principals", name, "confined")),
                rule="config.observe",
                fix="Take 'confined' out until the mode is enforce.",
            )


def _check_rules(rules: Sequence[Rule], document: Document, scope: Scope) -> None:
    """Refuse all contexts whose name is taken or whose fields do not fit together."""
    places: dict[str, str] = {}
    faults: list[ConfigError] = []
    for index, rule in enumerate(rules):
        try:
            _check_rule(Entry(rule, index, document, scope), places)
        except ConfigError as error:
            faults.append(error)
    if faults:
        raise together(faults[:MOST])


def _check_rule(entry: Entry, places: dict[str, str]) -> None:
    rule = entry.rule
    place = entry.document.place(("contexts", entry.index))
    rule.stand_at(place.of_line if place else "")
    if rule.name in places:
        entry.refuse(
            f"another context of that name stands at {places[rule.name]}",
            "name",
            rule="config.duplicate-name",
        )
    places[rule.name] = rule.place
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


# --- code that leaves a sandbox -------------------------------------------------------------------
# The one rule: what a confined process sends is data for every other principal. Code in the sandbox
# has the key of the process and can send whatever that key may send; a context that lets another
# process run it as code would run it unconfined.

_REGISTER = "register-worker"
_CLOUDPICKLE = "cloudpickle"


def check_confined(
    rules: Sequence[Rule], principals: Mapping[str, Principal], document: Document
) -> None:
    """Refuse confinement that nothing enforces, and contexts that let code out of it."""
    for name, each in principals.items():
        if each.confined is not None and not any(
            name in rule.senders and _REGISTER in rule.operations for rule in rules
        ):
            raise fault(
                f"no context lets {name!r} register a worker, so nothing confines it",
                source=document.source,
                place=document.key_place(("principals", name, "confined")),
                rule="config.no-effect",
                fix="Take 'confined' out, or grant register-worker from it to the scheduler.",
            )
    escape = _find_escape(rules, principals)
    if escape is not None:
        raise fault(
            f"context {rules[escape.place].name!r} lets code out of the sandbox of"
            f" {escape.confined}: {escape.why}",
            source=document.source,
            place=document.place(("contexts", escape.place, escape.field)),
            rule="config.confined-code",
            fix=f"Give {escape.confined} a context of its own there that takes data alone.",
        )


class _Escape(NamedTuple):
    """A context by which a confined principal can have code run in another process."""

    #: Which of the policy's contexts it is.
    place: int
    confined: str
    field: str
    why: str


def _find_escape(rules: Sequence[Rule], principals: Mapping[str, Principal]) -> _Escape | None:
    """Return the first context that lets code of a confined principal out, if there is one."""
    confined = {name for name, each in principals.items() if each.confined is not None}
    for place, rule in enumerate(rules):
        for name in sorted(confined & (rule.senders | rule.authors)):
            if not rule.recipients - {name}:
                continue  # its own kind, which is as confined
            found = _code(rule, speaks=name in rule.senders, is_author=name in rule.authors)
            if found is not None:
                return _Escape(place, name, *found)
    return None


def _code(rule: Rule, *, speaks: bool, is_author: bool) -> tuple[str, str] | None:
    """Return the field by which *rule* takes code from a sender or an author, and how."""
    if _CLOUDPICKLE in rule.deserializers:
        return "deserializers", "cloudpickle is any code"
    if speaks and rule.submission == "code":
        return "submission", "it could submit code to a process that opens it"
    if is_author and rule.submission == SEALED:
        return "authors", "what it signs would run there"
    granted = sorted(CODE_OPERATIONS & rule.operations)
    if speaks and granted:
        return "operations", f"{granted[0]} runs what it is sent"
    return None


# --- one worker's key and other groups ------------------------------------------------------------
# The one rule: a worker signs tasks and functions only for workers of its own principal or group.
# A worker signs what its tasks submit (``worker_client``); if contexts to other workers listed it
# as an author, one stolen worker's key would run code on all of them.

#: What carries signed code to a scheduler, and from there to workers.
_CODE = PARTS["worker-run"] | PARTS["worker-plugins"]
_SUBMITTED, _HANDED = _CODE | {SUBMIT}, _CODE | {COMPUTE}


class ForeignAuthor(NamedTuple):
    """A worker that may sign what runs on another principal's worker."""

    #: Which of the policy's contexts lists it.
    place: int
    author: str
    worker: str


def find_foreign_author(
    rules: Sequence[Rule], principals: Mapping[str, Principal]
) -> ForeignAuthor | None:
    """Return the first worker that signs for one with which it has no group in common."""
    workers = frozenset().union(*(rule.recipients for rule in rules if _passes(rule, {COMPUTE})))
    members: dict[str, set[str]] = {}
    for name, principal in principals.items():
        for group in principal.groups:
            members.setdefault(group, set()).add(name)
    for index, rule in enumerate(rules):
        if not _passes(rule, _HANDED):
            continue
        signing = {
            author
            for submitting in rules
            if _passes(submitting, _SUBMITTED) and submitting.recipients & rule.senders
            for author in submitting.senders & rule.authors & workers
        }
        for author in sorted(signing):
            related = {author}.union(*(members[each] for each in principals[author].groups))
            others = (rule.recipients & workers) - related
            if others:
                return ForeignAuthor(index, author, min(others))
    return None


def _passes(rule: Rule, operations: Collection[str]) -> bool:
    """Tell whether one of *operations*, sealed, passes by *rule*."""
    passing = rule.operations.intersection(operations) if rule.submission == SEALED else ()
    return any(WEAKEST[each] in rule.kinds for each in passing)
