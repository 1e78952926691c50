"""The decision: pure, total, default deny.

The one rule: the first row whose sender, recipient, kind, transport and host match decides, and
nothing falls through to a later one. What is not known (a principal, kind, operation or family) is
never permitted, whatever a row lists, and no function here raises for it. A table is made from a
policy elsewhere, and cannot go below the floors. The steps of :meth:`Table.decide`, in order:

1. match a row, or deny;
2. its date must not have passed;
3. the operation must be granted, and submitting a graph needs a submission;
4. the floors: admin is msgpack, and ``unknown`` never submits work, nor gets pickle or a program's
   own family;
5. the family must be listed for this side;
6. a payload that the sender relays of an author that the row does not list passes only in families
   that cannot reach code, or in a program's own family if the author could send the same to the
   recipient without a relay, by the same row. Where authors are listed, or tasks handed out, sealed
   calls of the sender pass only if it is listed, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from safeser.gate.values import (
    ANY_AUTHOR,
    FAMILIES,
    FAMILY,
    HARMLESS,
    SEALED,
    TRANSPORTS,
    UNKNOWN,
    Context,
    Decision,
    Grant,
    Kind,
)

#: The operation that hands a graph to the scheduler, which unpickles it: ``submission`` gates it.
SUBMIT = "update-graph"

#: What a client may say that may submit work.
SUBMITTING = frozenset({SUBMIT})

#: The operation by which a scheduler hands a task to a worker.
COMPUTE = "compute-task"

#: How a message may have come, and where from; None where that is not known.
ANY_TRANSPORT: frozenset[str | None] = frozenset((*TRANSPORTS, None))
ANYWHERE: frozenset[bool | None] = frozenset((True, False, None))

#: Stands for every name that safeser does not know, so that a peer's inventions share one entry
#: of the cache and none of them is printed.
UNLISTED = "?"

# Principals x principals x kinds x operations x families of a cluster of tens is a few thousand.
_CACHE_MAX = 1 << 16

#: As many questions as all connections of one process ask again and again.
_ASKED_MAX = 1 << 12

_FAMILIES = frozenset({*FAMILIES, SEALED})


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One context of a policy, frozen: what it matches, and the most that it lets through.

    Fields that are not here are those of :class:`safeser.gate.values.Grant`. Rows are told apart by
    identity, since two that say the same stand at different places.

    :param serializers: families that the sender may write; the recipient opens *deserializers*.
    :param own_classes: instances of the recipient program's own classes are rebuilt.
    :param sealed: the operations in which sealed calls pass; None is a message without one.
    :param ended: the date that has passed, as text; empty while the row is in force.
    """

    name: str
    senders: frozenset[str]
    recipients: frozenset[str]
    kinds: frozenset[Kind] = frozenset(Kind)
    transports: frozenset[str | None] = ANY_TRANSPORT
    same_host: frozenset[bool | None] = ANYWHERE
    serializers: tuple[str, ...] = ()
    deserializers: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    allow: tuple[Any, ...] = ()
    types: frozenset[str] = frozenset()
    own_classes: bool = False
    submission: str = "none"
    sealed: frozenset[str | None] = frozenset()
    operations: frozenset[str] = frozenset()
    authors: frozenset[str] = frozenset()
    ended: str = ""

    def __post_init__(self) -> None:
        # Refuses what is no family, type or submission; no grant that is made of this does, then.
        families = (*self.serializers, *self.deserializers)
        Grant(self.name, families, types=self.types, submission=self.submission)

    def families(self, *, sealing: bool) -> tuple[str, ...]:
        """Return the serializers if *sealing*, else the deserializers."""
        return self.serializers if sealing else self.deserializers


class Hop(NamedTuple):
    """All that rows match of a message; names that the policy does not list are ``unknown``."""

    sender: str
    recipient: str
    kind: Kind
    transport: str | None = None
    same_host: bool | None = None


class Query(NamedTuple):
    """A question in names that the policy lists, so that there are finitely many to remember.

    :param sealing: whether this side sends it, so that serializers are asked and not deserializers.
    :param author: who wrote it, if not the sender: a principal or ``unknown``; otherwise empty.
    """

    hop: Hop
    operation: str | None
    family: str
    sealing: bool
    author: str

    @property
    def relayed(self) -> bool:
        """Whether another principal than the sender wrote it."""
        return self.author != ""


#: Each returns the denial of a query by a row, without context and advice, or None.
Steps = tuple[Callable[[Query, Row], Decision | None], ...]

#: Returns the advice on a denial: its rule, the query, the row if one matches, and what was asked.
#: It is text for people and nothing else.
Advise = Callable[[str, Query, Row | None, Steps], str]


class Table:
    """The rows of one policy, indexed so that a match costs five lookups and four ANDs.

    Bit *i* of a mask stands for row *i*; the lowest bit that all parts of a hop share is the first
    row that matches.

    :param rows: in the order of the policy.
    :param principals: names that the policy lists; every other name counts as ``unknown``.
    :param own: families that the policy declares beyond those built in.
    :param operations: the names of all operations that there are.
    :param advise: makes the advice of denials; what it raises, :meth:`decide` raises.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        principals: Collection[str],
        *,
        own: Collection[str] = (),
        operations: frozenset[str] = frozenset(),
        advise: Advise = lambda *_: "",
    ) -> None:
        self.own = frozenset(filter(FAMILY.match, own)) - _FAMILIES
        self.principals = frozenset(principals) - {UNKNOWN, ANY_AUTHOR, None, ""}
        self.rows = tuple(rows)
        self._families = _FAMILIES | self.own
        self._operations = operations
        self._advise = advise
        self._senders = masks([row.senders for row in rows])
        self._recipients = masks([row.recipients for row in rows])
        self._kinds = masks([row.kinds & frozenset(Kind) for row in rows])
        self._transports = masks([row.transports for row in rows])
        self._hosts = masks([row.same_host for row in rows])
        self._ended = sum(1 << at for at, row in enumerate(self.rows) if row.ended)
        self._decisions: dict[Query, Decision] = {}
        self._asked: dict[tuple[Context, str | None, bool, str | None], Decision] = {}
        self._granted: dict[tuple[Context, bool], Grant | None] = {}
        self._directs: dict[tuple[Row, Hop], frozenset[str]] = {}

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

    def match(self, hop: Hop) -> Row | None:
        """Return the first row for a hop between resolved names, or None."""
        found = (
            self._senders.get(hop.sender, 0)
            & self._recipients.get(hop.recipient, 0)
            & self._kinds.get(hop.kind, 0)
            & self._transports.get(hop.transport, 0)
            & self._hosts.get(hop.same_host, 0)
        )
        return self.rows[(found & -found).bit_length() - 1] if found else None

    def meets(self, one: str, other: str) -> bool:
        """Tell whether some row lets *one* hand *other* anything, or the reverse."""
        # One that has ended matches, and lets nothing pass, whatever a row below it says.
        there = self._senders.get(one, 0) & self._recipients.get(other, 0)
        back = self._senders.get(other, 0) & self._recipients.get(one, 0)
        found = there | back
        if not found & self._ended:
            return bool(found)
        ways = itertools.product(((one, other), (other, one)), Kind, ANY_TRANSPORT, ANYWHERE)
        hops = (Hop(*pair, kind, transport, same_host) for pair, kind, transport, same_host in ways)
        return any(row is not None and not row.ended for row in map(self.match, hops))

    # --- deciding ------------------------------------------------------------------------------

    def _query(
        self, context: Context, family: str | None, sealing: bool, author: str | None
    ) -> Query:
        """Return the question that *context* and *family* pose, in names that the policy knows."""
        operation = context.operation
        if operation is not None and operation not in self._operations:
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
        no :class:`Context`, and a *sealing* that is no bool, match no row.
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
            query = self._query(context, family, sealing, author)
            decision = self._decisions.get(query)
            if decision is None:
                if len(self._decisions) >= _CACHE_MAX:
                    self._decisions.clear()
                decision = self._judge(query, STEPS, f"family {query.family} passes")
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
        steps = (_judge_date, _judge_operation, _judge_floors)
        return self._judge(
            self._query(context, "msgpack", False, None), steps, "the operation is granted"
        )

    def _judge(self, query: Query, steps: Steps, granted: str) -> Decision:
        """Answer *query* by *steps*; *granted* says what passes where none of them denies."""
        row = self.match(query.hop)  # step 1
        if row is None:
            ends = f"from {query.hop.sender} to {query.hop.recipient}"
            denial = Decision(False, "context.none", f"no rule for messages of this kind {ends}")
        else:
            # Step 6: the recipient's program takes the same from this author without a relay.
            if query.family in self.own and query.author in self._direct(row, query.hop):
                query = query._replace(author="")
            found = first_denial(query, row, steps)
            if found is None:
                reason = f"{granted} in context {row.name!r}"
                return Decision(True, "permit", reason, context=row.name)
            reason = f"{found.reason} in context {row.name!r}"
            denial = replace(found, reason=reason, context=row.name)
        return replace(denial, fix=self._advise(denial.rule, query, row, steps))

    def _direct(self, row: Row, hop: Hop) -> frozenset[str]:
        """Return the senders of *row* for whom it decides what they hand the recipient of *hop*.

        Not all that it lists: an earlier row may take less of one of them, at either place.
        """
        asked = (row, hop._replace(sender="", same_host=None))
        found = self._directs.get(asked)
        if found is None:
            hops = {
                name: [hop._replace(sender=name, same_host=near) for near in ANYWHERE]
                for name in row.senders & self.principals
            }
            found = self._directs[asked] = frozenset(
                name for name, each in hops.items() if all(self.match(one) is row for one in each)
            )
        return found

    # --- grants --------------------------------------------------------------------------------

    def grant(self, context: Context, *, sealing: bool = False) -> Grant | None:
        """Return the most that may pass in *context*, after the floors.

        None if no row matches, or the one that matches has ended.
        """
        asked = (context, sealing)
        try:
            return self._granted[asked]
        except KeyError:
            hop = self.hop(context)
        row = self.match(hop)
        grant = None if row is None or row.ended else self._bound(row, hop, sealing)
        if len(self._granted) >= _ASKED_MAX:
            self._granted.clear()
        self._granted[asked] = grant
        return grant

    def _bound(self, row: Row, hop: Hop, sealing: bool) -> Grant:
        families = row.families(sealing=sealing)
        stranger = UNKNOWN in hop[:2]
        if hop.kind is Kind.ADMIN:
            families = ("msgpack",)
        elif stranger:
            families = tuple(family for family in families if family in HARMLESS)
        # What libraries registered with distributed may do anything with bytes, unpickling
        # included, so that no stranger gets it. The side that seals is told these types, too: it
        # takes another family for what the other side does not read.
        typed = "dask" in families and not stranger
        if hop.kind is not Kind.ADMIN and "msgpack" in families:
            families = (*families, "error")
        direct = self._direct(row, hop)
        return Grant(
            context=row.name,
            families=families,
            profiles=row.profiles if "pickle" in families else (),
            allow=row.allow if "pickle" in families else (),
            submission="none" if stranger else row.submission,
            operations=row.operations,
            types=row.types if typed else frozenset(),
            authors=row.authors,
            direct=direct,
            own=direct | {hop.sender} if typed and row.own_classes else frozenset(),
        )

    def may_sign(self, author: str, scheduler: str, kind: Kind) -> bool:
        """Tell whether *author* may sign code in messages of *kind* that *scheduler* hands on."""
        ends = (self.known(author), self.known(scheduler))
        # How the author reached the scheduler is not known to the workers.
        rows = [self.match(Hop(*ends, kind, "safeser", near)) for near in (True, False)]
        return UNKNOWN not in ends and any(
            row is not None
            and not row.ended
            and row.submission == SEALED
            # Tasks come from graphs, which are granted by name.
            and (kind is not Kind.TASK or SUBMIT in row.operations)
            for row in rows
        )


def masks(values: Sequence[frozenset[Any]]) -> Mapping[Any, int]:
    """Return, for each value that some row matches, the bits of all rows that do."""
    # One group is the sender of many rows: its members are gone through once.
    rows: dict[frozenset[Any], int] = {}
    for index, matched in enumerate(values):
        rows[matched] = rows.get(matched, 0) | 1 << index
    found: dict[Any, int] = {}
    for matched, bits in rows.items():
        for value in matched:
            found[value] = found.get(value, 0) | bits
    return found


def _judge_date(query: Query, row: Row) -> Decision | None:
    if not row.ended:
        return None
    return Decision(False, "context.ended", f"what was granted ended with {row.ended} (UTC)")


def _judge_operation(query: Query, row: Row) -> Decision | None:
    if query.operation is None:
        return None
    if query.operation == UNLISTED or query.operation not in row.operations:
        known = query.operation != UNLISTED
        what = f"operation {query.operation}" if known else "an operation unknown to safeser"
        return Decision(False, "operation.not-granted", f"{what} is not granted")
    if query.operation in SUBMITTING and row.submission == "none":
        return Decision(False, "submission.none", "submitting work is not granted")
    return None


def _judge_floors(query: Query, row: Row) -> Decision | None:
    if query.hop.kind is Kind.ADMIN and query.family != "msgpack":
        return Decision(False, "floor.admin", "admin messages are plain msgpack")
    if UNKNOWN not in query.hop[:2]:
        return None
    if query.family not in HARMLESS and query.family != UNLISTED:
        reason = f"{query.family} never passes from or to unknown"
        return Decision(False, "floor.unknown", reason)
    if query.operation in SUBMITTING:
        return Decision(False, "floor.unknown", "unknown never submits work")
    return None


def _judge_family(query: Query, row: Row) -> Decision | None:
    if query.family == SEALED:
        if row.submission == SEALED and query.operation in row.sealed:
            return None
        return Decision(False, "context.family", "sealed calls are not granted")
    # Failures as data hold nothing that msgpack does not.
    wanted = "msgpack" if query.family == "error" else query.family
    if wanted in row.families(sealing=query.sealing):
        return None
    known = query.family != UNLISTED
    what = f"family {query.family}" if known else "a family unknown to safeser"
    side = "serializers" if query.sealing else "deserializers"
    return Decision(False, "context.family", f"{what} is not among the {side}")


def _judge_author(query: Query, row: Row) -> Decision | None:
    # A scheduler has a signing key of its own: a task that it signed itself runs only if the row
    # lists it as an author.
    listed_only = (
        query.family == SEALED
        and query.operation not in SUBMITTING
        and (COMPUTE in row.operations or bool(row.authors))
    )
    if query.family in HARMLESS or not (query.relayed or listed_only):
        return None
    author = query.author or query.hop.sender
    if author != UNKNOWN and author in row.authors:
        return None
    written = "an unknown author" if author == UNKNOWN else author
    expected = "a listed author" if listed_only else "its sender or a listed author"
    reason = f"{query.family} passes only from {expected}, not from {written},"
    return Decision(False, "author.relayed", reason)


#: Steps 2 to 6 of the module's list, in that order.
STEPS: Steps = (_judge_date, _judge_operation, _judge_floors, _judge_family, _judge_author)


def first_denial(query: Query, row: Row, steps: Steps) -> Decision | None:
    """Return the denial of the first of *steps* that denies *query*, or None."""
    for judge in steps:
        denial = judge(query, row)
        if denial is not None:
            return denial
    return None


_DENY_MALFORMED = Decision(
    False,
    "context.none",
    "no context matches: the argument is no Context, or sealing is neither True nor False",
    fix="Ask with Context(sender, recipient, ...) and sealing=True or sealing=False.",
)
