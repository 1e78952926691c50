"""Declare the fields of a policy outside its contexts (:mod:`safeser.policy.source.context`).

The one rule: a field is declared here, with its form, its description and what its names mean, and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any

from safeser.errors import ConfigError
from safeser.gate.values import (
    ANY_AUTHOR,
    FAMILIES,
    LEAST_COLLISIONS,
    LEAST_WALK,
    UNKNOWN,
    check_family,
)
from safeser.policy.confined import ConfinedModel
from safeser.policy.source.context import Rule
from safeser.policy.source.fields import Strict, stated
from safeser.policy.source.forms import (
    NAMED,
    TEXT,
    Anything,
    Listed,
    Mapped,
    Number,
    Reader,
    Reading,
    Section,
    Text,
    one_of,
)
from safeser.policy.source.loader import Path
from safeser.policy.source.scope import Scope, Step

#: Whether the contexts decide, or are only compared with what passes.
MODES = ("enforce", "observe")
LOGS = ("required", "none")

_MAX_CONTEXTS = 256  # looking for unreachable ones is quadratic
_MAX_REVISION = 2**63 - 1  # what a handshake can carry


class PrincipalModel(Strict):
    """``alice: {keys: [x25519:...], groups: [engineers]}``; each may be left out."""

    keys: tuple[str, ...] = stated(Listed(TEXT, once=True), default=(), spelled=[])
    """Public keys that speak for it, as `x25519:...`; a roster file can list them instead."""
    groups: tuple[str, ...] = stated(Listed(NAMED, once=True), default=(), spelled=[])
    """Groups that it is in; contexts name one as `group:NAME`."""
    confined: ConfinedModel | None = stated(Section(ConfinedModel), default=None)
    """What its workers must be unable to do; each proves it when it starts."""


class _Address(Text):
    """An address, not a name: the DNS says what a name stands for."""

    def read(self, value: Any, path: Path, reader: Reader) -> str:
        if not isinstance(value, str):
            return super().read(value, path, reader)
        try:
            return str(ip_address(value))
        except ValueError:
            return reader.refuse("name", path, value, "this is no address such as 192.0.2.1")


class DashboardModel(Strict):
    """``dashboard: {address: "192.0.2.1"}``: where web pages may be served besides loopback."""

    address: str = stated(_Address())
    """An IP address at which web pages may be served, beside loopback."""


def _limit(least: int, most: int, *, sized: bool = False) -> int | None:
    return stated(Number(least=least, most=most, sized=sized), default=None)


class LimitsModel(Strict):
    """``limits``: each has a ceiling that this process survives; see :class:`values.Limits`."""

    # One message is held in memory whole.
    max_bytes: int | None = _limit(1 << 16, 1 << 40, sized=True)
    """Bytes of one message."""
    # Deeper values would meet CPython's recursion limit when they are compared, printed or freed.
    max_depth: int | None = _limit(8, 200)
    """How deep values and messages nest."""
    # Opcodes and visits follow it: hundreds of elements, and what takes minutes to read.
    max_memory: int | None = _limit(1 << 16, 1 << 34, sized=True)
    """Bytes that the plain values and pickles of one message become in memory."""
    max_array: int | None = _limit(1 << 10, 1 << 40, sized=True)
    """Bytes of one array or buffer."""
    # A frame costs a length before its bytes.
    max_frames: int | None = _limit(16, 10_000_000)
    """Frames of one message."""
    max_string: int | None = _limit(1 << 10, 1 << 40, sized=True)
    """Bytes of one text or bytes value in a pickle."""
    # Printing an integer of 1 MiB takes a minute.
    max_int: int | None = _limit(16, 1 << 20, sized=True)
    """Bytes of one integer in a pickle."""
    max_calls: int | None = _limit(100, 100_000_000)
    """Calls of constructors in the pickles of one message."""
    # A few bytes may then stand for as many times the elements.
    max_sharing: int | None = _limit(1, 1_000)
    """Elements of a value once sharing is undone, in multiples of those that `max_memory` holds."""
    # The memory that a sender makes this process allocate for each byte sent.
    max_copies: int | None = _limit(1, 64)
    """Bytes that building values copies, in multiples of the bytes that came."""
    # Each insertion of a key walks all of it again.
    max_key_cost: int | None = _limit(16, 1_000_000)
    """Parts of one key that hashing it walks."""
    # Each is compared with all others: the time grows with the square.
    max_collisions: int | None = _limit(LEAST_COLLISIONS, 10_000)
    """Keys of one dictionary or set that share a hash."""
    max_walk: int | None = _limit(LEAST_WALK, 10_000)
    """Other keys that one key is compared with, on average."""
    # A connection costs some 40 kB.
    max_connections: int | None = _limit(16, 1_000_000)
    """Connections of one principal to one process."""


def _declared(name: str, scope: Scope) -> str:
    """Check and return the name of a family that the policy declares.

    Families are declared so that a misspelt name is an error, and so that a policy means the same
    in every process, whether or not the family is registered there.
    """
    problem = ""
    try:
        check_family(name)
    except ConfigError as error:
        problem = error.message
    if name in FAMILIES or name in (UNKNOWN, ANY_AUTHOR):
        problem = f"'families' declares those beyond the built-in ones, and {name} is none"
    if problem:
        raise ConfigError(
            problem,
            rule="config.family",
            fix="Take it out, or give it a name of lowercase letters, digits, '-' and '_'.",
        )
    return name


def _define_families(names: tuple[str, ...], scope: Scope) -> frozenset[str]:
    scope.own = frozenset(names)
    return scope.own


def _define_principals(
    principals: Mapping[str, PrincipalModel], scope: Scope
) -> Mapping[str, PrincipalModel]:
    scope.define_principals({name: each.groups for name, each in principals.items()})
    return principals


def _step(name: str, scope: Scope) -> Step:
    return Step(scope.check_principal(name), scope.members[name])


def _reason(text: str, scope: Scope) -> str:
    if not text.strip():
        raise ConfigError(
            "a path of code is acknowledged with the reason why it is meant",
            rule="config.reason",
            fix="Write who relies on it, and for what.",
        )
    return text


class AcknowledgedModel(Strict):
    """``{path: [client, scheduler], reason: "..."}``: a path of code that is meant."""

    path: tuple[Step, ...] = stated(Listed(Reading(TEXT, _step), least=2, most=8))
    """Principals and groups: a holder of the key of one can run code as the next."""
    reason: str = stated(Reading(TEXT, _reason))
    """Why it is meant."""


class AmendedPickleModel(Strict):
    """``pickle: {allow: {"my.lib:Point": class}}``, as a context spells it."""

    allow: Mapping[str, Any] = stated(Mapped(TEXT, Anything(), least=1, most=1_000))
    """Single globals that are added to those of the context, each with its role."""


class AmendedOperationsModel(Strict):
    """``operations: {grant: [set_metadata]}``, as a context spells it."""

    grant: tuple[str, ...] = stated(Listed(TEXT, filled=True))
    """Operations, by group or name, that are added to those of the context."""


class AmendModel(Strict):
    """``viewers-look: {operations: {grant: [set_metadata]}}``: what a context of the base gains."""

    pickle: AmendedPickleModel | None = stated(Section(AmendedPickleModel), default=None)
    """What family `pickle` may use there as well."""
    operations: AmendedOperationsModel | None = stated(
        Section(AmendedOperationsModel), default=None
    )
    """What the sender may ask for there as well."""


class ExtendsModel(Strict):
    """The fields that only a policy that extends another has."""

    extends: str = stated(TEXT)
    """A ready policy by name, or a file by its path from this one's folder."""
    amend: Mapping[str, AmendModel] = stated(
        Mapped(NAMED, Section(AmendModel)), default=MappingProxyType({})
    )
    """Contexts of what is extended, by name, with what is added to them."""


class PolicyModel(Strict):
    """One policy as its file spells it."""

    safeser: int = stated(Number(least=1, most=1))
    """Version of the policy language."""
    name: str = stated(NAMED)
    """Named in errors, in the audit log and in sessions."""
    revision: int = stated(Number(least=1, most=_MAX_REVISION))
    """Raised with every change; running processes take none that is lower."""
    mode: str = stated(one_of(MODES, "mode"), default=MODES[0], spelled=MODES[0])
    """`observe`: what the contexts refuse passes and is recorded, but code where none sends any."""
    audit: str = stated(one_of(LOGS, "audit"), default=LOGS[0], spelled=LOGS[0])
    """`none`: a box may work without a log; whatever has connections always needs one."""
    # Families that programs register; each is compared with every list by itself.
    families: frozenset[str] = stated(
        Reading(Listed(Reading(TEXT, _declared), once=True, most=100), _define_families),
        default=frozenset(),
        spelled=[],
    )
    """Serialization families that programs register, beside those built in."""
    principals: Mapping[str, PrincipalModel] = stated(
        Reading(Mapped(NAMED, Section(PrincipalModel), least=1), _define_principals)
    )
    """The principals of the cluster, by name."""
    contexts: tuple[Rule, ...] = stated(Listed(Section(Rule), least=1, most=_MAX_CONTEXTS))
    """What may pass between principals: the first context that matches decides; none: deny."""
    acknowledge: tuple[AcknowledgedModel, ...] = stated(
        Listed(Section(AcknowledgedModel), most=1_000), default=(), spelled=[]
    )
    """Paths by which a holder of one key can run code as another principal, each with a reason."""
    limits: LimitsModel = stated(Section(LimitsModel), default=LimitsModel())
    """The most that one message or principal may make a process take."""
    # Dask's dashboard authenticates no visitor.
    dashboard: DashboardModel | None = stated(Section(DashboardModel), default=None)
    """Where Dask's web pages may be served, beside loopback."""
