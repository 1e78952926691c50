"""From a policy's shape to what it means: names resolved, floors kept, nothing left that misleads.

The one rule: a policy that loads says what it does. A name that nothing defines, a context that
can never match or is never reached, a grant that could never be used and an attempt to widen a
floor are errors at their place in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NoReturn

from safeser.allowed import Allowed, check_allowed, check_global
from safeser.errors import ConfigError
from safeser.identity import PublicKey
from safeser.operations import GROUPS, NAMES
from safeser.operations.groups import PARTS
from safeser.policy import floors
from safeser.policy.confined import read_confined
from safeser.policy.decide import Table
from safeser.policy.escapes import check_confined
from safeser.policy.moved import RETIRED_PROFILES, check_authors, retired
from safeser.policy.rules import (
    ANY_TRANSPORT,
    ANYWHERE,
    APPROVED,
    COMPUTE,
    PROFILES,
    SESSION_TRANSPORTS,
    UNSAID,
    WEAKEST,
    Principal,
    Rule,
)
from safeser.policy.source.entry import Entry
from safeser.policy.source.faults import did_you_mean, fault, shown
from safeser.policy.source.loader import Document
from safeser.policy.source.model import ContextModel, PolicyModel
from safeser.policy.worker_authors import ForeignAuthor, find_foreign_author
from safeser.values import (
    ANY_AUTHOR,
    CONFLICT_WORDS,
    FAMILIES,
    SEALED,
    SUBMISSIONS,
    TRANSPORTS,
    UNKNOWN,
    KeyConflicts,
    Kind,
    Suite,
    check_family,
)

__all__ = ["resolve"]

#: ``error`` is not for listing: failures pass as plain data wherever msgpack does.
_LISTABLE = tuple(family for family in FAMILIES if family != "error")

_RESERVED = (UNKNOWN, ANY_AUTHOR)
_GROUP = "group:"
_KINDS = tuple(kind.value for kind in Kind)
_SUITES = tuple(suite.word for suite in Suite)


def resolve(model: PolicyModel, document: Document) -> tuple[Mapping[str, Principal], Table]:
    """Return the principals and the decision table of a policy.

    :raises ConfigError: at the first place where the policy does not mean something definite.
    """
    principals = _principals(model, document)
    members = _selectors(principals)
    own = _own_families(model, document)
    suite = _suite(model, document)
    rules = []
    seen: dict[str, int] = {}
    for index, context in enumerate(model.contexts):
        reader = _Reader(context, index, document, members, own, suite=suite)
        reader.check_name(seen)
        rules.append(reader.rule())
    table = Table(rules, principals, own=own, suite=suite)
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
    check_authors(rules, document)
    foreign = find_foreign_author(rules, principals)
    if foreign is not None:
        _refuse_foreign_author(rules, foreign, document)
    check_confined(rules, principals, document)
    return principals, table


def _check_actors(rules: Sequence[Rule], document: Document) -> None:
    """Refuse calls of actors from who hands sealed tasks on: a call is signed by no author."""
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


def _suite(model: PolicyModel, document: Document) -> Suite:
    """Return what sessions do at the least, where a context does not say it."""
    if model.suite not in _SUITES:
        raise fault(
            f"there is no suite {shown(model.suite)}",
            source=document.source,
            place=document.place(("suite",)),
            rule="config.suite",
            fix=did_you_mean(model.suite, _SUITES),
        )
    return Suite.named(model.suite)


def _own_families(model: PolicyModel, document: Document) -> frozenset[str]:
    """Return the families that the policy declares beyond those built in.

    Declared, so that a misspelt one is found, and a policy means the same in every process, whether
    or not the family is registered there.
    """
    for index, name in enumerate(model.families):
        problem = ""
        try:
            check_family(name)
        except ConfigError as error:
            problem = error.message
        if name in FAMILIES or name in _RESERVED:
            problem = f"'families' declares those beyond the built-in ones, and {name} is none"
        if problem:
            raise fault(
                problem,
                source=document.source,
                place=document.place(("families", index)),
                rule="config.family",
                fix="Take it out, or give it a name of lowercase letters, digits, '-' and '_'.",
            )
    return frozenset(model.families)


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


def _selectors(principals: Mapping[str, Principal]) -> dict[str, frozenset[str]]:
    """Return all that can stand under ``sender`` or ``recipient``, and whom each means."""
    groups: dict[str, set[str]] = {}
    for name, principal in principals.items():
        for group in principal.groups:
            groups.setdefault(_GROUP + group, set()).add(name)
    single = {name: frozenset({name}) for name in (*principals, UNKNOWN)}
    return single | {group: frozenset(names) for group, names in groups.items()}


class _Reader(Entry):
    """Resolves one context; holds what every check of it needs, the place above all."""

    def __init__(
        self,
        context: ContextModel,
        index: int,
        document: Document,
        members: Mapping[str, frozenset[str]],
        own: frozenset[str],
        *,
        suite: Suite,
    ) -> None:
        super().__init__(context, index, document)
        self.members = members
        self.own = own
        self.default_suite = suite
        self.listable = (*_LISTABLE, *sorted(own))

    def check_name(self, seen: dict[str, int]) -> None:
        place = self.document.place(self.path)
        line = place.line if place else 0
        if self.context.name in seen:
            self.refuse(
                f"another context of that name stands at line {seen[self.context.name]}",
                "name",
                rule="config.duplicate-name",
            )
        seen[self.context.name] = line

    def rule(self) -> Rule:
        place = self.document.place(self.path)
        rule = Rule(
            name=self.context.name,
            line=place.line if place else 0,
            senders=self._members("sender", self.context.sender),
            recipients=self._members("recipient", self.context.recipient),
            kinds=self._kinds(),
            serializers=self._families("serializers", self.context.serializers),
            deserializers=self._families("deserializers", self.context.deserializers),
            profiles=self._profiles(),
            allow=self._allow(),
            submission=self._submission(),
            operations=self._operations(),
            types=self._types(),
            authors=self._authors(),
            values=self._values(),
            transports=self._transports(),
            same_host=self._same_host(),
            key_conflicts=self._key_conflicts(),
            suite=self._suite(),
        )
        floors.check(self, rule, listable=self.listable, own=self.own)
        return rule

    # --- names ---------------------------------------------------------------------------------

    def _members(self, field: str, names: tuple[str, ...]) -> frozenset[str]:
        for index, name in enumerate(names):
            if name not in self.members:
                self._refuse_undefined(field, index, name)
        if len(names) == 1:
            return self.members[names[0]]  # one set for all contexts that name the same group
        return frozenset().union(*(self.members[name] for name in names))

    def _refuse_undefined(self, field: str, index: int, name: str) -> NoReturn:
        group = name.startswith(_GROUP)
        alike = [each for each in self.members if each.startswith(_GROUP) == group]
        self.refuse(
            f"no principal is in {shown(name)}, so this never matches"
            if group
            else f"no principal is called {shown(name)}",
            field,
            index,
            rule="config.undefined",
            fix=did_you_mean(name, alike),
        )

    def _known(self, names: Iterable[str], known: Collection[str], what: str, *path: str) -> None:
        for index, name in enumerate(names):
            if name not in known:
                self.refuse(
                    f"there is no {what} {shown(name)}",
                    *path,
                    index,
                    rule=f"config.{what.replace(' ', '-')}",
                    fix=did_you_mean(name, known),
                )

    def _kinds(self) -> frozenset[Kind]:
        if self.context.kinds is None:
            return frozenset(Kind)
        self._known(self.context.kinds, _KINDS, "kind", "kinds")
        return frozenset(Kind(name) for name in self.context.kinds)

    def _families(self, field: str, names: tuple[str, ...]) -> tuple[str, ...]:
        if "error" in names:
            self.refuse(
                "'error' needs no listing: failures pass as plain data wherever msgpack does",
                field,
                names.index("error"),
                rule="config.family",
                fix="Leave it out.",
            )
        self._known(names, self.listable, "family", field)
        if "msgpack" not in names:
            self.refuse(
                "every list of families holds msgpack, which messages themselves are written in",
                field,
                rule="config.family",
                fix=f"Add msgpack to '{field}'.",
            )
        if "cloudpickle" in names and "pickle" not in names:
            self.refuse(
                "who may send any code may send pickles without code as well",
                field,
                names.index("cloudpickle"),
                rule="config.family",
                fix=f"Add pickle to '{field}'.",
            )
        return names

    def _profiles(self) -> tuple[str, ...]:
        lists = {*self.context.serializers, *self.context.deserializers}
        if self.context.pickle is None:
            return ("data",)
        for index, name in enumerate(self.context.pickle.profile):
            if name in RETIRED_PROFILES:
                self.refuse(
                    f"profile {name} held parts of Dask's graphs, which no policy lists any more",
                    "pickle",
                    "profile",
                    index,
                    rule="config.moved",
                    fix=retired(self.context.name, self.context.submission),
                )
        if "pickle" not in lists:
            if self.context.submission == APPROVED and self.context.pickle.profile == ("data",):
                return ("data",)  # what is allowed are the functions of signed tasks
            self.refuse(
                "a pickle profile has no effect where no list of families holds pickle",
                "pickle",
                rule="config.no-effect",
                fix="Take it out, or list pickle.",
            )
        self._known(self.context.pickle.profile, PROFILES, "profile", "pickle", "profile")
        return self.context.pickle.profile

    def _allow(self) -> tuple[Allowed, ...]:
        listed = self.context.pickle.allow if self.context.pickle else {}
        allowed: list[Allowed] = []
        approved = self.context.submission == APPROVED
        for name, spec in listed.items():
            try:
                each = Allowed.each(name, spec)
                for one in each if approved else ():
                    check_allowed(one.name, one.role, approved=True)
            except ConfigError as error:
                self.refuse(error.message, "pickle", "allow", name, rule=error.rule, fix=error.fix)
            allowed.extend(each)
        return tuple(allowed)

    def _types(self) -> frozenset[str]:
        if self.context.dask is None:
            return frozenset()
        if "dask" not in self.context.deserializers:
            self.refuse(
                "types have no effect where 'deserializers' does not hold dask",
                "dask",
                rule="config.no-effect",
                fix="Take them out, or list dask.",
            )
        for index, name in enumerate(self.context.dask.types):
            try:
                check_global(name, rule="config.types")
            except ConfigError as error:
                self.refuse(error.message, "dask", "types", index, rule=error.rule, fix=error.fix)
        return frozenset(self.context.dask.types)

    def _submission(self) -> str:
        self._known((self.context.submission,), SUBMISSIONS, "submission", "submission")
        return self.context.submission

    def _authors(self) -> frozenset[str]:
        names = self.context.authors or ()
        for index, name in enumerate(names):
            if name in _RESERVED:
                self.refuse(
                    "no policy can let pickles or code pass of which nobody known is the author",
                    "authors",
                    index,
                    rule="floor.author",
                    fix=f"Leave {name} out; dask and msgpack pass whoever wrote them.",
                )
        why = "what it wrote itself needs no listing"
        return self._of_others("authors", names, why, grows=lambda _: False)

    def _values(self) -> frozenset[str]:
        names = self.context.values or ()
        for index, name in enumerate(names):
            if name in _RESERVED:
                self.refuse(
                    "a value of which nobody known is the author stays with its own principal",
                    "values",
                    index,
                    rule="floor.author",
                    fix=f"Leave {name} out, and name principals or groups.",
                )
        # A group of one today lists colleagues tomorrow.
        why = "it may read its own values anyway"
        return self._of_others("values", names, why, grows=lambda name: name.startswith(_GROUP))

    def _of_others(
        self, field: str, names: tuple[str, ...], why: str, *, grows: Callable[[str], bool]
    ) -> frozenset[str]:
        """Return whom *names* mean; the only sender among them is refused, and said *why*.

        :param grows: tells whether a name may mean more than its members of today.
        """
        authors = self._members(field, names)
        senders = self._members("sender", self.context.sender)
        for index, name in enumerate(names):
            if len(senders) == 1 and senders == self.members[name] and not grows(name):
                self.refuse(
                    f"{name} is the sender, and {why}",
                    field,
                    index,
                    rule="config.no-effect",
                    fix="Take it out.",
                )
        return authors

    def _transports(self) -> frozenset[str | None]:
        if self.context.transport is None:
            return ANY_TRANSPORT
        self._known(self.context.transport, TRANSPORTS, "transport", "transport")
        return frozenset(self.context.transport)

    def _same_host(self) -> frozenset[bool | None]:
        return ANYWHERE if self.context.same_host is None else frozenset({self.context.same_host})

    def _suite(self) -> Suite:
        word = self.context.suite
        if word is None:
            return self.default_suite
        self._known((word,), _SUITES, "suite", "suite")
        if not self._transports() & {*SESSION_TRANSPORTS, None}:
            self._refuse_suite("a connection over tcp or tls is no session of safeser")
        if (UNKNOWN,) in (self.context.sender, self.context.recipient):
            self._refuse_suite("an unknown principal has no session")
        return Suite.named(word)

    def _refuse_suite(self, why: str) -> NoReturn:
        self.refuse(
            f"a suite has no effect here: {why}",
            "suite",
            rule="config.no-effect",
            fix="Take it out.",
        )

    def _key_conflicts(self) -> KeyConflicts:
        if self.context.key_conflicts is None:
            return UNSAID
        words = KeyConflicts(**self.context.key_conflicts.model_dump())
        for field, word in words._asdict().items():
            self._known((word,), CONFLICT_WORDS, "key conflict", "key_conflicts", field)
        return words

    def _operations(self) -> frozenset[str]:
        if self.context.operations is None:
            return frozenset()
        names = self.context.operations.grant
        groups = {**GROUPS, **PARTS}
        self._known(names, {*groups, *NAMES}, "operation", "operations", "grant")
        granted = [groups.get(name, frozenset({name})) for name in names]
        strongest = Kind.strongest([*self._kinds()]).strength
        for index, operations in enumerate(granted):
            weakest = min((WEAKEST[name] for name in operations), key=lambda kind: kind.strength)
            if weakest.strength > strongest:
                self.refuse(
                    f"{names[index]} is of kind {weakest.value}, which this context does not match",
                    "operations",
                    "grant",
                    index,
                    rule="config.no-effect",
                    fix=f"Add {weakest.value} to 'kinds', or take it out.",
                )
        return frozenset().union(*granted)


def _refuse_foreign_author(
    rules: list[Rule], foreign: ForeignAuthor, document: Document
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


def _refuse_unreached(rules: list[Rule], unreached: Rule, document: Document) -> NoReturn:
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
