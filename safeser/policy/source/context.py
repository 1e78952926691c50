"""Declare each field of a policy's contexts, and the :class:`Rule` that a context becomes.

The one rule: a field is declared here and nowhere else. Decisions need no further check of a
:class:`Rule`: the floors hold in :mod:`safeser.gate.decision` whatever it lists.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from math import inf
from typing import Any, ClassVar

from safeser.allowed import ALLOWED_ROLES, Allowed
from safeser.errors import ConfigError
from safeser.gate.decision import ANY_TRANSPORT, ANYWHERE, SUBMIT
from safeser.gate.values import (
    ANY_AUTHOR,
    AUDIT_FAILURES,
    FAMILIES,
    FAMILY,
    SEALED,
    SUBMISSIONS,
    TRANSPORTS,
    UNKNOWN,
    AuditFailure,
    Kind,
    check_global,
)
from safeser.operations import GROUPS, NAMES
from safeser.operations.groups import PARTS
from safeser.policy.moved import require_submission
from safeser.policy.rules import (
    AUDIT_LEVELS,
    CLASSES,
    CONFLICT_WORDS,
    PROFILES,
    RETIRED_PROFILES,
    KeyConflicts,
)
from safeser.policy.source.faults import shown
from safeser.policy.source.fields import Shown, Strict, stated
from safeser.policy.source.forms import (
    FLAG,
    NAMED,
    TEXT,
    Anything,
    Listed,
    Mapped,
    PartError,
    Reading,
    Section,
    one_of,
    pattern,
)
from safeser.policy.source.scope import Scope
from safeser.policy.source.words import granted, phrase

# --- meanings of single texts ---------------------------------------------------------------------


def _principal(name: str, scope: Scope) -> str:
    return scope.check_principal(name)


def _author(name: str, scope: Scope) -> str:
    if name in (UNKNOWN, ANY_AUTHOR):
        raise ConfigError(
            "no policy can let pickles or code of an unknown author pass",
            rule="floor.author",
            fix=f"Leave {name} out; dask and msgpack pass from any author.",
        )
    return scope.check_principal(name)


def _value_author(name: str, scope: Scope) -> str:
    if name in (UNKNOWN, ANY_AUTHOR):
        raise ConfigError(
            "a value of an unknown author is read by the principal that holds it alone",
            rule="floor.author",
            fix=f"Leave {name} out, and name principals or groups.",
        )
    return scope.check_principal(name)


def _family(name: str, scope: Scope) -> str:
    if name == "error":
        raise ConfigError(
            "'error' needs no listing: failures pass as plain data wherever msgpack does",
            rule="config.family",
            fix="Leave it out.",
        )
    return one_of(scope.listable, "family").meaning(name, scope)


def _families_of(field: str) -> Reading[tuple[str, ...]]:
    """Return how the list of families called *field* is read."""

    def meaning(names: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
        if "msgpack" not in names:
            raise ConfigError(
                "every list of families holds msgpack, which messages themselves are written in",
                rule="config.family",
                fix=f"Add msgpack to '{field}'.",
            )
        if "cloudpickle" in names and "pickle" not in names:
            error = ConfigError(
                "a sender of any code may send pickles without code as well",
                rule="config.family",
                fix=f"Add pickle to '{field}'.",
            )
            raise PartError(error, names.index("cloudpickle"))
        return names

    return Reading(Listed(Reading(TEXT, _family, _family_schema), filled=True), meaning)


def _family_schema(made: dict[str, Any]) -> dict[str, Any]:
    # Editors offer the first form.
    listable = [family for family in FAMILIES if family != "error"]
    declared = {"type": "string", "pattern": pattern(FAMILY), "not": {"const": "error"}}
    return {"anyOf": [{"enum": listable}, declared]}


def _audit_failure(text: str, scope: Scope) -> AuditFailure:
    found = _FAILURE.match(text)
    word, _, number = text.partition(" ")
    most = int(number) if found is not None and number else 0
    if found is None or most > _MOST_QUEUED:
        raise ConfigError(
            f"{shown(text)} is no answer to a log that cannot be written",
            rule="config.audit-failure",
            fix=f"Write refuse, go-on, or queue and the number of records that may wait, at most"
            f" {_MOST_QUEUED}: 'queue 1000'.",
        )
    return AuditFailure(AUDIT_FAILURES.index(word), most)


_FAILURE = re.compile(r"(refuse|go-on|queue [1-9][0-9]{0,5})\Z")

#: A record that waits takes some 2 KB of memory.
_MOST_QUEUED = 100_000


def _global(name: str, scope: Scope) -> str:
    check_global(name, rule="config.types")
    return name


def _profile(name: str, scope: Scope) -> str:
    # A retired profile is refused in floors.py, whose error needs the other fields.
    return name if name in RETIRED_PROFILES else _PROFILE.meaning(name, scope)


_PROFILE = one_of(PROFILES, "profile")


def _submission_word(word: str, scope: Scope) -> str:
    require_submission(word)
    return _SUBMISSION.meaning(word, scope)


_SUBMISSION = one_of(SUBMISSIONS, "submission")


def _allow(listed: dict[str, Any], scope: Scope) -> tuple[Allowed, ...]:
    allowed: list[Allowed] = []
    for name, spec in listed.items():
        try:
            allowed.extend(Allowed.each(name, spec))
        except ConfigError as error:
            raise PartError(error, name) from None
    return tuple(allowed)


def _allow_schema(made: dict[str, Any]) -> dict[str, Any]:
    role = {"enum": list(ALLOWED_ROLES)}
    one = {"anyOf": [role, {"type": "object", "properties": {"role": role}, "required": ["role"]}]}
    each = {"anyOf": [*one["anyOf"], {"type": "array", "items": one, "minItems": 1}]}
    return {**made, "additionalProperties": each}


def _operations(names: tuple[str, ...], scope: Scope) -> frozenset[str]:
    return frozenset().union(*map(operations_of, names))


def operations_of(name: str) -> frozenset[str]:
    """Return the operations that *name* grants: a group, a part of one, or an operation."""
    return GROUPS.get(name) or PARTS.get(name) or frozenset({name})


def _principals(reading: Reading[str]) -> Reading[frozenset[str]]:
    """Return how one or more names of principals and groups are read, each by *reading*."""
    return Reading(
        Listed(reading, filled=True, alone=True), lambda names, scope: scope.principals(names)
    )


def read_date(text: str, scope: Scope) -> datetime.date:
    """Return the date that *text* spells."""
    if _DATE.match(text):
        try:
            return datetime.date.fromisoformat(text)
        except ValueError:
            pass  # as 2026-02-30
    raise ConfigError(
        f"{shown(text)} is no date",
        rule="config.date",
        fix="Write the last day, UTC, in quotes: '2026-12-31'.",
    )


def date_schema(made: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a date."""
    return {**made, "pattern": pattern(_DATE), "format": "date"}


_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")


def start_of_day(day: datetime.date) -> float:
    """Return when *day* begins, UTC, in seconds since 1970."""
    return datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp()


# --- sections -------------------------------------------------------------------------------------


class PickleModel(Strict):
    """``pickle: {profile: [data, numpy]}``: what bounds the family ``pickle`` in a context.

    ``allow: {"my.lib:Point": class}`` adds single globals, each with a role, or with a mapping that
    says more; see :class:`safeser.allowed.Allowed`.
    """

    profile: tuple[str, ...] = stated(
        Reading(
            Listed(Reading(TEXT, _profile, _PROFILE.schema), filled=True, alone=True),
            lambda names, scope: names,
        ),
        default=("data",),
        spelled=["data"],
    )
    """Lists of globals that a pickle may use."""
    # Bounded, since each is compared and resolved; no operator reviews more by hand.
    allow: tuple[Allowed, ...] = stated(
        Reading(Mapped(TEXT, Anything(), most=1_000), _allow, _allow_schema),
        default=(),
    )
    """Single globals beside those, as `module:name`, each with its role."""


class DaskModel(Strict):
    """``dask: {types: ["my.lib:Thing"]}``: what else family ``dask`` may read in a context.

    A listed type is read by what its library registered with distributed's own decorators.
    """

    types: frozenset[str] = stated(
        Reading(
            Listed(Reading(TEXT, _global), filled=True, most=1_000),
            lambda names, scope: frozenset(names),
        )
    )
    """Types, as `module:name`, that are read by what their library registered with distributed."""


class OperationsModel(Strict):
    """``operations: {grant: [basic, run]}``: groups or exact names; there are no deny lists."""

    grant: frozenset[str] = stated(
        Reading(
            Listed(one_of((*GROUPS, *PARTS, *sorted(NAMES)), "operation"), filled=True, alone=True),
            _operations,
        )
    )
    """Groups of operations, or operations by their exact names, that the sender may ask for."""


class KeyConflictsModel(Strict):
    """``key_conflicts: {definition: warn}``: how submissions under taken keys are answered."""

    definition: str = stated(
        one_of(CONFLICT_WORDS, "key conflict"), default="refuse", spelled="refuse"
    )
    """The answer to a task whose key has another definition already."""
    principal: str = stated(one_of(CONFLICT_WORDS, "key conflict"), default="warn", spelled="warn")
    """The answer to a task whose key another principal submitted first."""


# --- text for operators ---------------------------------------------------------------------------


def _same_families(rule: Rule) -> str:
    return ", ".join(rule.serializers) if rule.serializers == rule.deserializers else ""


def _sealed_families(rule: Rule) -> str:
    return "" if _same_families(rule) else ", ".join(rule.serializers)


def _opened_families(rule: Rule) -> str:
    return "" if _same_families(rule) else ", ".join(rule.deserializers)


def _transports(rule: Rule) -> str:
    return phrase(
        "{}", [name for name in rule.transports if name] if None not in rule.transports else ()
    )


def _same_host(rule: Rule) -> str:
    if None in rule.same_host:
        return ""
    return "yes" if True in rule.same_host else "no, another"


def _submission(rule: Rule) -> str:
    if rule.submission == "code":
        return "code: the sender can run any code there"
    if rule.submission == SEALED:
        # Contexts to workers list authors; in contexts to schedulers the sender signs.
        whose = "authors" if rule.authors else "the sender"
        where = "there" if rule.authors else "on workers; no scheduler opens it"
        return f"sealed: what {whose} signed runs {where}"
    return rule.submission


def _conflicts(rule: Rule) -> str:
    if rule.submission == "none" or SUBMIT not in rule.operations:
        return ""
    return ", ".join(f"{name}: {word}" for name, word in rule.key_conflicts._asdict().items())


def _end(rule: Rule) -> str:
    return f"{rule.until or ''}{_OVER if rule.ended else ''}"


_OVER = ", which is over: it refuses all that it matches"


def _classes(rule: Rule) -> str:
    return "own: instances of the recipient's own classes are rebuilt" * (rule.classes == "own")


# --- the context ----------------------------------------------------------------------------------

#: Seconds of a day, and the fields of a context that say what it matches.
_DAY = 86_400
_PLACE = (*("name", "senders", "recipients", "kinds", "until", "transports", "same_host"),)


class Rule(Strict):
    """One entry of ``contexts``: sender, recipient and kinds, and what may pass between them."""

    name: str = stated(NAMED)
    """Named in errors, in the audit log and by `safeser policy explain`."""
    senders: frozenset[str] = stated(_principals(Reading(TEXT, _principal)), key="sender")
    """The principals that send the message: names, `group:NAME`, or `unknown`."""
    recipients: frozenset[str] = stated(_principals(Reading(TEXT, _principal)), key="recipient")
    """The principals that receive it: names, `group:NAME`, or `unknown`."""
    kinds: frozenset[Kind] = stated(
        Reading(
            Listed(one_of(tuple(kind.value for kind in Kind), "kind"), filled=True),
            lambda names, scope: frozenset(map(Kind, names)),
        ),
        default=frozenset(Kind),
    )
    """Kinds of messages that it decides; absent: all of them."""
    until: datetime.date | None = stated(
        Reading(TEXT, read_date, date_schema),
        default=None,
        shown=Shown("until", _end, strong=lambda rule: rule.ended),
        explained=lambda rule: "" if rule.until is None else f"until the end of {_end(rule)}",
    )
    """The last day, UTC, on which it grants anything; it refuses from then on."""
    transports: frozenset[str | None] = stated(
        Reading(
            Listed(one_of(TRANSPORTS, "transport"), filled=True, alone=True),
            lambda names, scope: frozenset(names),
        ),
        key="transport",
        default=ANY_TRANSPORT,
        shown=Shown("transport", _transports),
    )
    """How the message travels; absent: by any transport, or by none that is known."""
    same_host: frozenset[bool | None] = stated(
        Reading(FLAG, lambda same, scope: frozenset({same})),
        default=ANYWHERE,
        shown=Shown("same host", _same_host),
    )
    """Whether both ends are on this machine; absent: either."""
    authors: frozenset[str] = stated(
        _principals(Reading(TEXT, _author)),
        default=frozenset(),
        shown=Shown("authors", lambda rule: phrase("{}, relayed", rule.authors)),
        explained=lambda rule: phrase(
            "payloads of these authors pass as if the sender wrote them: {}", rule.authors
        ),
    )
    """The authors whose payloads the sender may relay in their name."""
    values: frozenset[str] = stated(
        _principals(Reading(TEXT, _value_author)),
        default=frozenset(),
        shown=Shown("values", lambda rule: phrase("of {}, beside the sender's own", rule.values)),
        explained=lambda rule: phrase(
            "the sender may read values of these authors from the recipient: {}", rule.values
        ),
    )
    """The authors whose values the sender may read from the recipient, beside its own."""
    serializers: tuple[str, ...] = stated(
        _families_of("serializers"),
        default=("msgpack",),
        spelled=["msgpack"],
        shown=(Shown("families", _same_families), Shown("seals", _sealed_families)),
    )
    """Serialization families that the sender may write."""
    deserializers: tuple[str, ...] = stated(
        _families_of("deserializers"),
        default=("msgpack",),
        spelled=["msgpack"],
        shown=Shown("opens", _opened_families),
    )
    """Serialization families that the recipient may open."""
    pickle: PickleModel = stated(
        Section(PickleModel),
        default=PickleModel(),
        shown=(
            Shown("profiles", lambda rule: ", ".join(rule.profiles * ("pickle" in rule.listed))),
            Shown("allowed", lambda rule: ", ".join(f"{e.name} as {e.role}" for e in rule.allow)),
        ),
    )
    """What family `pickle` may use; absent: the profile `data`."""
    types: frozenset[str] = stated(
        Reading(Section(DaskModel), lambda section, scope: section.types),
        key="dask",
        default=frozenset(),
        shown=Shown("types", lambda rule: phrase("{}", rule.types)),
        explained=lambda rule: phrase(
            "these types are read by what their libraries registered with distributed: {}",
            rule.types,
        ),
    )
    """What else family `dask` may read."""
    classes: str = stated(
        one_of(CLASSES, "kind of classes"),
        default="registered",
        spelled="registered",
        shown=Shown("classes", _classes),
        explained=_classes,
    )
    """Which classes of the recipient are rebuilt: its program's own, or those it registered."""
    submission: str = stated(
        Reading(TEXT, _submission_word, _SUBMISSION.schema),
        default="none",
        spelled="none",
        shown=Shown(
            "submission", _submission, strong=lambda rule: rule.submission in ("code", SEALED)
        ),
    )
    """What may be submitted: nothing, code that workers alone open, or code."""
    key_conflicts: KeyConflicts = stated(
        Reading(
            Section(KeyConflictsModel),
            lambda section, scope: KeyConflicts(section.definition, section.principal),
        ),
        default=KeyConflicts(),
        shown=Shown("conflicts", _conflicts),
    )
    """How submissions under taken keys are answered."""
    operations: frozenset[str] = stated(
        Reading(Section(OperationsModel), lambda section, scope: section.grant),
        default=frozenset(),
        shown=Shown("operations", lambda rule: granted(rule.operations)),
    )
    """Which operations of Dask the sender may ask for; absent: those that need no grant."""
    audit: str = stated(
        one_of(AUDIT_LEVELS, "audit level"),
        default="all",
        spelled="all",
        shown=Shown("audit", lambda rule: "" if rule.audit == "all" else rule.audit),
    )
    """What the log has of it: a record of all, of refusals and code, or counts alone."""
    audit_failure: AuditFailure = stated(
        Reading(TEXT, _audit_failure, lambda made: {**made, "pattern": pattern(_FAILURE)}),
        default=AuditFailure(),
        spelled="refuse",
        shown=Shown(
            "log fails", lambda rule: f"{rule.audit_failure if rule.audit_failure.level else ''}"
        ),
    )
    """Where the log cannot be written: messages are refused, pass while records wait, or pass."""
    _place: ClassVar[str] = ""
    _before_end: ClassVar[Rule | None] = None

    @property
    def place(self) -> str:
        """The line on which it begins, with its file if that is another one than the policy's."""
        return self._place

    def stand_at(self, place: str) -> None:
        """Record where it begins."""
        vars(self)["_place"] = place

    @property
    def end(self) -> float:
        """The moment from which on it grants nothing, in seconds since 1970."""
        if self.until is None:
            return inf
        return start_of_day(self.until) + _DAY

    @property
    def ended(self) -> bool:
        """Whether its date has passed, so that it grants nothing."""
        return self._before_end is not None

    @property
    def before_end(self) -> Rule:
        """What it was before its date passed; itself where that did not."""
        return self._before_end or self

    def after_end(self) -> Rule:
        """Return what is left of it when its date has passed: it matches, and grants nothing."""
        bare = {name: getattr(self, name) for name in _PLACE}
        left = Rule(**bare, serializers=(), deserializers=())
        vars(left).update(_place=self._place, _before_end=self)
        return left

    @property
    def profiles(self) -> tuple[str, ...]:
        """Names of the pickle profiles that bound family ``pickle``."""
        return self.pickle.profile

    @property
    def allow(self) -> tuple[Allowed, ...]:
        """Further globals for family ``pickle``."""
        return self.pickle.allow

    @property
    def listed(self) -> frozenset[str]:
        """Families that may pass in either direction."""
        return frozenset((*self.serializers, *self.deserializers))

    def families(self, *, sealing: bool) -> tuple[str, ...]:
        """Return the serializers if *sealing*, else the deserializers."""
        return self.serializers if sealing else self.deserializers

    def rows(self) -> Iterator[tuple[str, str, bool]]:
        """Yield label, text and emphasis of each row of ``policy show``."""
        for each in self.fields.values():
            for row in each.shown:
                text = row.text(self)
                if text:
                    yield row.label, text, row.strong(self)

    def explanations(self) -> Iterator[str]:
        """Yield a line for each field that permits something, for ``policy explain``."""
        for each in self.fields.values():
            text = each.explained(self) if each.explained is not None else ""
            if text:
                yield text
