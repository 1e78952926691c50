"""The decision: pure, total, default deny.

The one rule: the first context whose sender, recipient, kind, transport and host match decides,
and nothing falls through to a later one. What is not known (a principal, kind, operation or family)
is never permitted, and no function here raises for it. The steps of :meth:`Table.decide`, in order:

1. match a context, or deny;
2. its date must not have passed;
3. the operation must be granted, and submitting a graph needs a submission;
4. the floors: admin is msgpack, and ``unknown`` never gets pickle or a program's own family,
   whatever a rule says;
5. the family must be listed for this side;
6. a payload of an author that the context does not list passes only in families that cannot reach
   code. A program's own family passes as well from whom this context takes it without a relay.
   Where authors are listed, or tasks handed out, sealed calls of the sender pass only if it is
   listed, too.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from safeser.errors import ConfigError, PolicyDenied
from safeser.gate.values import (
    FAMILIES,
    SEALED,
    UNKNOWN,
    Context,
    Decision,
    Grant,
    KeyConflicts,
    Kind,
)
from safeser.operations import NAMES
from safeser.policy import advice
from safeser.policy.rules import (
    ANY_TRANSPORT,
    ANYWHERE,
    COMPUTE,
    HARMLESS,
    REFUSED,
    SEALED_IN,
    SUBMIT,
    SUBMITTING,
    UNLISTED,
    Hop,
    Query,
)
from safeser.policy.source.context import Rule

__all__ = ["Table"]

# Principals x principals x kinds x operations x families of a cluster of tens is a few thousand.
_CACHE_MAX = 1 << 16

#: As many questions as all connections of one process ask again and again.
_ASKED_MAX = 1 << 12

#: Pairs of classes of principals that loading compares at most: a fifth of a second.
_MOST_PAIRS = 1_000_000

_FAMILIES = frozenset({*FAMILIES, SEALED})

#: Each returns the denial of a query by a context, without context and advice, or None.
_Steps = tuple[Callable[[Query, Rule], Decision | None], ...]


class Table:
    """The contexts of one policy, indexed so that a match costs five lookups and four ANDs.

    Bit *i* of a mask stands for context *i*; the lowest bit that all parts of a hop share is
    the first context that matches.

    :param rules: in the order of the file.
    :param principals: names that the policy lists; every other name counts as ``unknown``.
    :param own: families that the policy declares beyond those built in.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        principals: Collection[str],
        *,
        own: frozenset[str] = frozenset(),
    ) -> None:
        self.own = own
        self._families = _FAMILIES | own
        self.rules = tuple(rules)
        self.lets_keys_be_taken = any(rule.key_conflicts.definition == "warn" for rule in rules)
        self.principals = frozenset(principals)
        self._senders = _masks([rule.senders for rule in rules])
        self._recipients = _masks([rule.recipients for rule in rules])
        self._kinds = _masks([rule.kinds for rule in rules])
        self._transports = _masks([rule.transports for rule in rules])
        self._hosts = _masks([rule.same_host for rule in rules])
        self._decisions: dict[Query, Decision] = {}
        self._asked: dict[tuple[Context, str | None, bool, str | None], Decision] = {}
        self._grants: dict[tuple[Hop, bool], Grant | None] = {}
        self._may_sign: dict[tuple[str, str, Kind], bool] = {}
        self._granted: dict[tuple[Context, bool], Grant] = {}
        self._ended = sum(1 << at for at, rule in enumerate(self.rules) if rule.ended)
        #: What :class:`safeser.policy.Policy` and other modules derived, by the question.
        self.remembered: dict[tuple[object, ...], Any] = {}

    def at(self, moment: float) -> Table:
        """Return the table in which the contexts have ended whose dates have passed at *moment*."""
        rules = [rule.after_end() if rule.end <= moment else rule for rule in self.rules]
        return Table(rules, self.principals, own=self.own)

    # --- matching ------------------------------------------------------------------------------

    def known(self, principal: str) -> str:
        """Return *principal* if the policy lists it, else ``unknown``."""
        return principal if principal in self.principals else UNKNOWN

    def hop(self, context: Context) -> Hop:
        """Return the part of *context* that is matched, in names that the policy knows."""
        return Hop(
            self.known(context.sender),
            self.known(context.recipient),
            context.kind,
            context.transport,
            context.same_host,
        )

    def match(self, hop: Hop) -> Rule | None:
        """Return the first context for a hop between resolved names, or None."""
        found = (
            self._senders.get(hop.sender, 0)
            & self._recipients.get(hop.recipient, 0)
            & self._kinds.get(hop.kind, 0)
            & self._transports.get(hop.transport, 0)
            & self._hosts.get(hop.same_host, 0)
        )
        return self.rules[(found & -found).bit_length() - 1] if found else None

    def meets(self, one: str, other: str) -> bool:
        """Tell whether some context lets *one* hand *other* anything, or the reverse."""
        # One that has ended matches, and lets nothing pass, whatever a context below it says.
        there = self._senders.get(one, 0) & self._recipients.get(other, 0)
        back = self._senders.get(other, 0) & self._recipients.get(one, 0)
        found = there | back
        if not found & self._ended:
            return bool(found)
        ways = itertools.product(((one, other), (other, one)), Kind, ANY_TRANSPORT, ANYWHERE)
        hops = (Hop(*pair, kind, transport, same_host) for pair, kind, transport, same_host in ways)
        return any(rule is not None and not rule.ended for rule in map(self.match, hops))

    def shadowed(self) -> Rule | None:
        """Return the first context that earlier ones leave nothing to match, or None.

        :raises ConfigError: if contexts overlap in too many ways to find out.
        """
        # Principals that the same contexts list are one class: groups of thousands cost one.
        senders = _classes(self._senders, (rule.senders for rule in self.rules))
        recipients = _classes(self._recipients, (rule.recipients for rule in self.rules))
        budget = itertools.count()
        for index, rule in enumerate(self.rules):
            ways = itertools.product(
                {self._kinds[kind] for kind in rule.kinds},
                {self._transports[name] for name in rule.transports},
                {self._hosts[same] for same in rule.same_host},
            )
            # Of those that come one way, the contexts above this one that match that way.
            above = {functools.reduce(operator.and_, masks) & (1 << index) - 1 for masks in ways}
            found = (senders[rule.senders], recipients[rule.recipients])
            if not any(_is_left(*found, mask, budget) for mask in above):
                return rule
        return None

    # --- deciding ------------------------------------------------------------------------------

    def query(
        self,
        context: Context,
        family: str | None,
        *,
        sealing: bool = False,
        author: str | None = None,
    ) -> Query:
        """Return the question that *context* and *family* pose, in names that the policy knows."""
        operation = context.operation
        if operation is not None and operation not in NAMES:
            operation = UNLISTED
        return Query(
            self.hop(context),
            operation,
            family if family is not None and family in self._families else UNLISTED,
            sealing,
            "" if author is None or author == context.sender else self.known(author),
        )

    def decide(
        self,
        context: Context,
        family: str | None,
        *,
        sealing: bool = False,
        author: str | None = None,
    ) -> Decision:
        """Answer whether *family* may pass in *context*; for every input, without raising.

        A family or author that is no text is an unknown one: it may not even have a hash. What is
        no :class:`Context`, and a *sealing* that is no bool, match no context of the policy.
        """
        if type(context) is not Context or type(sealing) is not bool:
            return _DENY_MALFORMED
        if type(family) is not str:
            family = None
        if author is not None and type(author) is not str:
            author = UNKNOWN
        asked = (context, family, sealing, author)
        try:
            decision = self._asked.get(asked)
        except TypeError:  # a field without a hash, set past the constructor
            return _DENY_MALFORMED
        if decision is None:
            query = self.query(context, family, sealing=sealing, author=author)
            decision = self._decisions.get(query)
            if decision is None:
                if len(self._decisions) >= _CACHE_MAX:
                    self._decisions.clear()
                decision = self._judge(query, _STEPS, f"family {query.family} passes")
                self._decisions[query] = decision
            # Keyed by the names in the question, which need not be known to the policy: a peer that
            # invents names only empties this cache.
            if len(self._asked) >= _ASKED_MAX:
                self._asked.clear()
            self._asked[asked] = decision
        return decision

    def permits_operation(self, context: Context) -> Decision:
        """Answer whether the operation alone may pass, whatever the message carries."""
        if type(context) is not Context:
            return _DENY_MALFORMED
        steps = (_judge_date, _judge_operation)
        return self._judge(self.query(context, "msgpack"), steps, "the operation is granted")

    def _judge(self, query: Query, steps: _Steps, granted: str) -> Decision:
        """Answer *query* by *steps*; *granted* says what passes where none of them denies."""
        rule = self.match(query.hop)  # step 1
        if rule is None:
            return _deny_unmatched(query)
        if query.family in self.own and query.author in self._direct(rule, query.hop):
            query = query._replace(author="")
        denial = _first_denial(query, rule, steps)
        if denial is not None:
            return _deny(query, rule, denial, steps)
        reason = f"{granted} in context {rule.name!r}"
        return Decision(True, "permit", reason, context=rule.name)

    def _direct(self, rule: Rule, hop: Hop) -> frozenset[str]:
        """Return the senders of *rule* for whom it decides what they hand the recipient of *hop*.

        Not all that it lists: an earlier context may take less of one of them, at either place.
        """
        asked = ("direct", rule.name, hop.recipient, hop.kind, hop.transport)
        found: frozenset[str] | None = self.remembered.get(asked)
        if found is None:
            hops = {
                name: [hop._replace(sender=name, same_host=near) for near in ANYWHERE]
                for name in rule.senders - {UNKNOWN}
            }
            found = self.remembered[asked] = frozenset(
                name for name, each in hops.items() if all(self.match(one) is rule for one in each)
            )
        return found

    # --- grants --------------------------------------------------------------------------------

    def grant(self, context: Context, *, sealing: bool = False) -> Grant:
        """Return the most that may pass in *context*, after the floors.

        :raises PolicyDenied: if no context matches, or the one that matches has ended.
        """
        known = self._granted.get((context, sealing))
        if known is not None:
            return known
        key = (self.hop(context), sealing)
        try:
            grant = self._grants[key]
        except KeyError:
            rule = self.match(key[0])
            if rule is not None and not rule.ended:
                grant = _bound(rule, *key, self._direct(rule, key[0]))
            else:
                grant = None
            if len(self._grants) >= _CACHE_MAX:
                self._grants.clear()
            self._grants[key] = grant
        if grant is None:
            decision = self.decide(context, "msgpack", sealing=sealing)
            raise PolicyDenied(
                f"{context}: {decision.reason}", rule=decision.rule, fix=decision.fix
            )
        if len(self._granted) >= _ASKED_MAX:
            self._granted.clear()
        self._granted[context, sealing] = grant
        return grant

    def may_sign(self, author: str, scheduler: str, kind: Kind) -> bool:
        """Tell whether *author* may sign code in messages of *kind* that *scheduler* hands on."""
        asked = (self.known(author), self.known(scheduler), kind)
        found = self._may_sign.get(asked)
        if found is None:
            # How the author reached the scheduler is not known to the workers.
            hops = (Hop(*asked, "safeser", same_host) for same_host in (True, False))
            found = self._may_sign[asked] = any(
                rule is not None
                and rule.submission == SEALED
                # Tasks come from graphs, which are granted by name.
                and (kind is not Kind.TASK or SUBMIT in rule.operations)
                for rule in map(self.match, hops)
            )
        return found

    def key_conflicts(self, context: Context) -> KeyConflicts:
        """Return the outcome of submissions under taken keys; without a context, refused."""
        rule = self.match(self.hop(context))
        return REFUSED if rule is None or rule.ended else rule.key_conflicts


def _masks(values: Sequence[frozenset[Any]]) -> Mapping[Any, int]:
    """Return, for each value that some context matches, the bits of all contexts that do."""
    # One group is the sender of many contexts: its members are gone through once.
    contexts: dict[frozenset[Any], int] = {}
    for index, matched in enumerate(values):
        contexts[matched] = contexts.get(matched, 0) | 1 << index
    masks: dict[Any, int] = {}
    for matched, bits in contexts.items():
        for value in matched:
            masks[value] = masks.get(value, 0) | bits
    return masks


def _classes(
    masks: Mapping[str, int], sets: Iterable[frozenset[str]]
) -> Mapping[frozenset[str], frozenset[int]]:
    """Return, for each of *sets*, the different masks that its members have."""
    return {names: frozenset(masks[name] for name in names) for names in dict.fromkeys(sets)}


def _is_left(
    senders: Iterable[int], recipients: Iterable[int], above: int, budget: Iterator[int]
) -> bool:
    """Tell whether some sender and recipient share none of the contexts in *above*."""
    ones = sorted({mask & above for mask in senders}, key=int.bit_count)
    others = sorted({mask & above for mask in recipients}, key=int.bit_count)
    for one in ones:
        for other in others:
            if not one & other:
                return True
            if next(budget) > _MOST_PAIRS:
                raise ConfigError(
                    "contexts overlap in too many ways to tell whether each can be reached",
                    rule="config.size",
                    fix="Use fewer groups in contexts, or list principals in fewer of them.",
                )
    return False


def _judge_date(query: Query, rule: Rule) -> Decision | None:
    if not rule.ended:
        return None
    return Decision(False, "context.ended", f"what was granted ended with {rule.until} (UTC)")


def _judge_operation(query: Query, rule: Rule) -> Decision | None:
    if query.operation is None:
        return None
    if query.operation not in rule.operations:
        known = query.operation != UNLISTED
        what = f"operation {query.operation}" if known else "an operation unknown to safeser"
        return Decision(False, "operation.not-granted", f"{what} is not granted")
    if query.operation in SUBMITTING and rule.submission == "none":
        return Decision(False, "submission.none", "submitting work is not granted")
    return None


def _judge_floors(query: Query, rule: Rule) -> Decision | None:
    if query.hop.kind is Kind.ADMIN and query.family != "msgpack":
        return Decision(False, "floor.admin", "admin messages are plain msgpack")
    powerful = query.family not in HARMLESS and query.family != UNLISTED
    if powerful and UNKNOWN in query.hop[:2]:
        reason = f"{query.family} never passes from or to unknown"
        return Decision(False, "floor.unknown", reason)
    return None


def _judge_family(query: Query, rule: Rule) -> Decision | None:
    if query.family == SEALED:
        if rule.submission == SEALED and query.operation in SEALED_IN:
            return None
        return Decision(False, "context.family", "sealed calls are not granted")
    # Failures as data hold nothing that msgpack does not.
    wanted = "msgpack" if query.family == "error" else query.family
    if wanted in rule.families(sealing=query.sealing):
        return None
    known = query.family != UNLISTED
    what = f"family {query.family}" if known else "a family unknown to safeser"
    side = "serializers" if query.sealing else "deserializers"
    return Decision(False, "context.family", f"{what} is not among the {side}")


def _judge_author(query: Query, rule: Rule) -> Decision | None:
    # A scheduler has a signing key of its own: that it signs a task is no reason to run it.
    listed_only = (
        query.family == SEALED
        and query.operation not in SUBMITTING
        and (COMPUTE in rule.operations or bool(rule.authors))
    )
    if query.family in HARMLESS or not (query.relayed or listed_only):
        return None
    author = query.author or query.hop.sender
    if author != UNKNOWN and author in rule.authors:
        return None
    written = "an unknown author" if author == UNKNOWN else author
    expected = "a listed author" if listed_only else "its sender or a listed author"
    reason = f"{query.family} passes only from {expected}, not from {written},"
    return Decision(False, "author.relayed", reason)


#: Steps 2 to 6 of the module's list, in that order.
_STEPS = (_judge_date, _judge_operation, _judge_floors, _judge_family, _judge_author)


def _first_denial(query: Query, rule: Rule, steps: _Steps) -> Decision | None:
    """Return the denial of the first of *steps* that denies *query*, or None."""
    for judge in steps:
        denial = judge(query, rule)
        if denial is not None:
            return denial
    return None


def _judge_by(steps: _Steps) -> advice.Judge:
    def judge(query: Query, rule: Rule) -> str | None:
        denial = _first_denial(query, rule, steps)
        return None if denial is None else denial.rule

    return judge


def _bound(rule: Rule, hop: Hop, sealing: bool, direct: frozenset[str]) -> Grant:
    families = rule.families(sealing=sealing)
    stranger = UNKNOWN in hop[:2]
    if hop.kind is Kind.ADMIN:
        families = ("msgpack",)
    elif stranger:
        families = tuple(family for family in families if family in HARMLESS)
    # What libraries registered with distributed may do anything with bytes, unpickling included.
    # The side that seals must know what the other reads: it has other families to choose from.
    typed = "dask" in families and not stranger
    if hop.kind is not Kind.ADMIN and "msgpack" in families:
        families = (*families, "error")
    return Grant(
        context=rule.name,
        families=families,
        profiles=rule.profiles if "pickle" in families else (),
        allow=rule.allow if "pickle" in families else (),
        submission=rule.submission,
        operations=rule.operations,
        types=rule.types if typed else frozenset(),
        authors=rule.authors,
        direct=direct,
        own=direct | {hop.sender} if typed and rule.classes == "own" else frozenset(),
    )


def _deny(query: Query, rule: Rule, denial: Decision, steps: _Steps) -> Decision:
    return replace(
        denial,
        reason=f"{denial.reason} in context {rule.name!r}",
        context=rule.name,
        fix=advice.fix(denial.rule, query, rule, _judge_by(steps)),
    )


def _deny_unmatched(query: Query) -> Decision:
    reason = f"no rule for messages of this kind from {query.hop.sender} to {query.hop.recipient}"
    fix = advice.fix("context.none", query, None, _judge_by(_STEPS))
    return Decision(False, "context.none", reason, fix=fix)


_DENY_MALFORMED = Decision(
    False,
    "context.none",
    "no context matches: the argument is no Context, or sealing is neither True nor False",
    fix="Ask with Context(sender, recipient, ...) and sealing=True or sealing=False.",
)
