"""Declare the fields of a policy outside its contexts (:mod:`safeser.policy.source.context`).

The one rule: a field is declared here, with its form, its description and what its names mean, and
nowhere else.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

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
from safeser.policy.source.fields import (
    Distinct,
    Listed,
    Name,
    Names,
    Reading,
    Strict,
    one_of,
    sized,
    stated,
)
from safeser.policy.source.scope import Scope, Step

#: Whether the contexts decide, or are only compared with what passes.
MODES = ("enforce", "observe")
LOGS = ("required", "none")

_MAX_CONTEXTS = 256  # looking for unreachable ones is quadratic
_MAX_REVISION = 2**63 - 1  # what a handshake can carry


class PrincipalModel(Strict):
    """``alice: {keys: [x25519:...], groups: [engineers]}``; each may be left out."""

    keys: Distinct[str] = ()
    """Public keys that speak for it, as `x25519:...`; a roster file can list them instead."""
    groups: Distinct[Name] = ()
    """Groups that it is in; contexts name one as `group:NAME`."""
    confined: ConfinedModel | None = None
    """What its workers must be unable to do; each proves it when it starts."""


def _address(value: object) -> object:
    try:
        return str(ip_address(value)) if isinstance(value, str) else value
    except ValueError:
        raise PydanticCustomError("name", "this is no address such as 192.0.2.1") from None


class DashboardModel(Strict):
    """``dashboard: {address: "192.0.2.1"}``: where web pages may be served besides loopback."""

    # An address, not a name: the DNS says what a name stands for.
    address: Annotated[str, BeforeValidator(_address)]
    """An IP address at which web pages may be served, beside loopback."""


class LimitsModel(Strict):
    """``limits``: each has a ceiling that this process survives; see :class:`values.Limits`."""

    # One message is held in memory whole.
    max_bytes: Annotated[int, BeforeValidator(sized), Field(ge=1 << 16, le=1 << 40)] | None = None
    """Bytes of one message."""
    # Deeper values would meet CPython's recursion limit when they are compared, printed or freed.
    max_depth: Annotated[int, Field(ge=8, le=200)] | None = None
    """How deep values and messages nest."""
    # Opcodes and visits follow it: hundreds of elements, and what takes minutes to read.
    max_memory: Annotated[int, BeforeValidator(sized), Field(ge=1 << 16, le=1 << 34)] | None = None
    """Bytes that the plain values and pickles of one message become in memory."""
    max_array: Annotated[int, BeforeValidator(sized), Field(ge=1 << 10, le=1 << 40)] | None = None
    """Bytes of one array or buffer."""
    # A frame costs a length before its bytes.
    max_frames: Annotated[int, Field(ge=16, le=10_000_000)] | None = None
    """Frames of one message."""
    max_string: Annotated[int, BeforeValidator(sized), Field(ge=1 << 10, le=1 << 40)] | None = None
    """Bytes of one text or bytes value in a pickle."""
    # Printing an integer of 1 MiB takes a minute.
    max_int: Annotated[int, BeforeValidator(sized), Field(ge=16, le=1 << 20)] | None = None
    """Bytes of one integer in a pickle."""
    max_calls: Annotated[int, Field(ge=100, le=100_000_000)] | None = None
    """Calls of constructors in the pickles of one message."""
    # A few bytes may then stand for as many times the elements.
    max_sharing: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """Elements of a value once sharing is undone, in multiples of those that `max_memory` holds."""
    # The memory that a sender makes this process allocate for each byte sent.
    max_copies: Annotated[int, Field(ge=1, le=64)] | None = None
    """Bytes that building values copies, in multiples of the bytes that came."""
    # Each insertion of a key walks all of it again.
    max_key_cost: Annotated[int, Field(ge=16, le=1_000_000)] | None = None
    """Parts of one key that hashing it walks."""
    # Each is compared with all others: the time grows with the square.
    max_collisions: Annotated[int, Field(ge=LEAST_COLLISIONS, le=10_000)] | None = None
    """Keys of one dictionary or set that share a hash."""
    max_walk: Annotated[int, Field(ge=LEAST_WALK, le=10_000)] | None = None
    """Other keys that one key is compared with, on average."""
    # A connection costs some 40 kB.
    max_connections: Annotated[int, Field(ge=16, le=1_000_000)] | None = None
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
    principals: dict[str, PrincipalModel], info: ValidationInfo[Scope]
) -> dict[str, PrincipalModel]:
    info.context.define_principals({name: each.groups for name, each in principals.items()})
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

    path: Annotated[
        tuple[Annotated[Step, Reading(str, _step)], ...], Listed, Field(min_length=2, max_length=8)
    ]
    """Principals and groups: a holder of the key of one can run code as the next."""
    reason: Annotated[str, Reading(str, _reason)]
    """Why it is meant."""


class AmendedPickleModel(Strict):
    """``pickle: {allow: {"my.lib:Point": class}}``, as a context spells it."""

    allow: Annotated[dict[str, Any], Field(min_length=1, max_length=1_000)]
    """Single globals that are added to those of the context, each with its role."""


class AmendedOperationsModel(Strict):
    """``operations: {grant: [set_metadata]}``, as a context spells it."""

    grant: Names[str]
    """Operations, by group or name, that are added to those of the context."""


class AmendModel(Strict):
    """``viewers-look: {operations: {grant: [set_metadata]}}``: what a context of the base gains."""

    pickle: AmendedPickleModel | None = None
    """What family `pickle` may use there as well."""
    operations: AmendedOperationsModel | None = None
    """What the sender may ask for there as well."""


class ExtendsModel(Strict):
    """The fields that only a policy that extends another has."""

    extends: str
    """A ready policy by name, or a file by its path from this one's folder."""
    amend: Annotated[dict[Name, AmendModel], Field(default_factory=dict)]
    """Contexts of what is extended, by name, with what is added to them."""


class PolicyModel(Strict):
    """One policy as its file spells it."""

    safeser: Literal[1]
    """Version of the policy language."""
    name: Name
    """Named in errors, in the audit log and in sessions."""
    revision: Annotated[int, Field(ge=1, le=_MAX_REVISION)]
    """Raised with every change; running processes take none that is lower."""
    mode: Annotated[str, one_of(MODES, "mode")] = MODES[0]
    """`observe`: what the contexts refuse passes and is recorded, but code where none sends any."""
    audit: Annotated[str, one_of(LOGS, "audit")] = LOGS[0]
    """`none`: a box may work without a log; whatever has connections always needs one."""
    # Families that programs register; each is compared with every list by itself.
    families: frozenset[str] = stated(
        Reading(
            Annotated[Distinct[Annotated[str, Reading(str, _declared)]], Field(max_length=100)],
            _define_families,
        ),
        default=frozenset(),
        spelled=[],
    )
    """Serialization families that programs register, beside those built in."""
    principals: Annotated[
        dict[Name, PrincipalModel], Field(min_length=1), AfterValidator(_define_principals)
    ]
    """The principals of the cluster, by name."""
    contexts: Annotated[tuple[Rule, ...], Listed, Field(min_length=1, max_length=_MAX_CONTEXTS)]
    """What may pass between principals: the first context that matches decides; none: deny."""
    acknowledge: Annotated[tuple[AcknowledgedModel, ...], Listed, Field(max_length=1_000)] = ()
    """Paths by which a holder of one key can run code as another principal, each with a reason."""
    limits: LimitsModel = LimitsModel.model_construct()  # as for Rule.pickle
    """The most that one message or principal may make a process take."""
    # Dask's dashboard authenticates no visitor.
    dashboard: DashboardModel | None = None
    """Where Dask's web pages may be served, beside loopback."""
