"""The shape of a policy: which fields exist, and of which type each is.

The one rule: a field that this version does not enforce is refused by name, never ignored. What
the fields mean together is the business of :mod:`safeser.policy.resolve`.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from safeser.policy.source.faults import did_you_mean, fault, shown
from safeser.policy.source.loader import Document, Path
from safeser.values import LEAST_COLLISIONS, LEAST_WALK, Suite

__all__ = [
    "ConfinedModel",
    "ContextModel",
    "DashboardModel",
    "DaskModel",
    "KeyConflictsModel",
    "LimitsModel",
    "OperationsModel",
    "PickleModel",
    "PolicyModel",
    "PrincipalModel",
    "shape",
]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")
SIZE = re.compile(r"([1-9][0-9]{0,9})(KiB|MiB|GiB)\Z")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_MAX_CONTEXTS = 256  # looking for unreachable ones is quadratic
_MAX_REVISION = 2**63 - 1  # what a handshake can carry

# Words of the policy language that later versions enforce. Until then, a file that uses one must
# not load: its author would believe in a protection that is not there.
_LATER = frozenset(
    {
        "acknowledge",
        "audit",
        "deny",
        "detached",
        "enforce",
        "learn",
        "min_peer_revision",
        "shadow",
        "until",
        "warn",
    }
)


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def one_or_listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _listed(value)


def named(value: str) -> str:
    if not NAME.match(value):
        raise PydanticCustomError(
            "name",
            "a name must be 1 to 64 letters, digits, '_', '-', '.' or '@',"
            " and start with a letter or digit",
        )
    return value


def sized(value: Any) -> Any:
    match = SIZE.match(value) if isinstance(value, str) else None
    if match:
        return int(match[1]) * _UNITS[match[2]]
    if isinstance(value, str):
        raise PydanticCustomError("size", "a size must be bytes or a number of KiB, MiB or GiB")
    return value


def filled(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise PydanticCustomError("empty", "an empty list has no meaning here")
    return distinct(value)


def distinct(value: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for name in value:
        if name in seen:
            raise PydanticCustomError("twice", "{name} is listed twice", {"name": shown(name)})
        seen.add(name)
    return value


_Name = Annotated[str, AfterValidator(named)]
_Names = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(filled)]
_OneOrMore = Annotated[tuple[str, ...], BeforeValidator(one_or_listed), AfterValidator(filled)]
_MaybeNone = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(distinct)]


class _Strict(BaseModel):
    # What stands below a field says what it means, in editors and in the reference.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


class ConfinedModel(_Strict):
    """``confined: {read: [/data], write: [/scratch]}``: what a process must be unable to exceed.

    A worker probes itself at its start; see :class:`safeser.policy.confined.Confined`.
    """

    # Each is a rule of the kernel's, which compares every path that is opened with all of them.
    read: Annotated[_MaybeNone, Field(max_length=64)] = ()
    """Folders and files that it may read, as absolute paths."""
    write: Annotated[_MaybeNone, Field(max_length=64)] = ()
    """Folders that it may write to, as absolute paths."""
    execute: bool = False
    """Whether it may start programs."""
    connect: str = "cluster"
    """`cluster`: TCP to `ports`, and no other socket; or `any`."""
    ports: (
        Annotated[
            tuple[str | int, ...],
            BeforeValidator(_listed),
            Field(min_length=1, max_length=64),
        ]
        | None
    ) = None
    """Ports of its cluster, which it may listen at and connect to: 8786, or `9000-9099`."""


class PrincipalModel(_Strict):
    """``alice: {keys: [x25519:...], groups: [engineers]}``; each may be left out."""

    keys: _MaybeNone = ()
    """Public keys that speak for it, as `x25519:...`; a roster file can list them instead."""
    groups: Annotated[tuple[_Name, ...], BeforeValidator(_listed), AfterValidator(distinct)] = ()
    """Groups that it is in; contexts name one as `group:NAME`."""
    confined: ConfinedModel | None = None
    """What its workers must be unable to do; each proves it when it starts."""


class PickleModel(_Strict):
    """``pickle: {profile: [data, numpy]}``: what bounds the family ``pickle`` in a context.

    ``allow: {"my.lib:Point": class}`` adds single globals, each with a role, or with a mapping that
    says more; see :class:`values.Allowed`.
    """

    profile: _OneOrMore = ("data",)
    """Lists of globals that a pickle may use."""
    # Each is compared, and resolved, by itself; nobody reviews more by hand.
    allow: Annotated[dict[str, Any], Field(max_length=1_000)] = {}
    """Single globals beside those, as `module:name`, each with its role."""


class DaskModel(_Strict):
    """``dask: {types: ["my.lib:Thing"]}``: what else family ``dask`` may read in a context.

    A listed type is read by what its library registered with distributed's own decorators.
    """

    types: Annotated[_Names, Field(max_length=1_000)]
    """Types, as `module:name`, that are read by what their library registered with distributed."""


class OperationsModel(_Strict):
    """``operations: {grant: [basic, run]}``: groups or exact names; there are no deny lists."""

    grant: _OneOrMore
    """Groups of operations, or operations by their exact names, that the sender may ask for."""


class KeyConflictsModel(_Strict):
    """``key_conflicts: {definition: warn}``: what becomes of a submission whose keys are taken."""

    definition: str = "refuse"
    """What becomes of a task whose key stands for another definition."""
    principal: str = "warn"
    """What becomes of a task whose key another principal submitted first."""


class ContextModel(_Strict):
    """One entry of ``contexts``: who hands whom what kinds, and what may pass then."""

    name: _Name
    """Named in errors, in the audit log and by `safeser policy explain`."""
    sender: _OneOrMore
    """Who hands the message over: principals, `group:NAME`, or `unknown`."""
    recipient: _OneOrMore
    """Who is handed it: principals, `group:NAME`, or `unknown`."""
    kinds: _Names | None = None
    """Kinds of messages that it decides; absent: all of them."""
    transport: _OneOrMore | None = None
    """How the message travels; absent: by any way."""
    same_host: bool | None = None
    """Whether both ends are on this machine; absent: either."""
    suite: str | None = None
    """What sessions do with what is sent here; absent: what the policy says."""
    authors: _OneOrMore | None = None
    """Whose work the sender may hand on in their name."""
    values: _OneOrMore | None = None
    """Whose values the sender may read from the recipient, beside its own."""
    key_conflicts: KeyConflictsModel | None = None
    """What becomes of a submission whose keys are taken."""
    submission: str = "none"
    """What may be submitted: nothing, listed functions, code that workers alone open, or code."""
    serializers: _Names = ("msgpack",)
    """Serialization families that the sender may write."""
    deserializers: _Names = ("msgpack",)
    """Serialization families that the recipient may open."""
    dask: DaskModel | None = None
    """What else family `dask` may read."""
    pickle: PickleModel | None = None
    """What family `pickle` may use; absent: the profile `data`."""
    operations: OperationsModel | None = None
    """Which operations of Dask the sender may ask for; absent: those that need no grant."""


def _address(value: object) -> object:
    try:
        return str(ip_address(value)) if isinstance(value, str) else value
    except ValueError:
        raise PydanticCustomError("name", "this is no address such as 192.0.2.1") from None


class DashboardModel(_Strict):
    """``dashboard: {address: "192.0.2.1"}``: where web pages may be served besides loopback."""

    # An address, not a name: what a name stands for is somebody else's word.
    address: Annotated[str, BeforeValidator(_address)]
    """An IP address at which web pages may be served, beside loopback."""


class LimitsModel(_Strict):
    """``limits``: each has a ceiling that this process survives; see :class:`values.Limits`."""

    # One message is held in memory whole.
    max_bytes: Annotated[int, BeforeValidator(sized), Field(ge=1 << 16, le=1 << 40)] | None = None
    """Bytes of one message."""
    # Deeper values would meet CPython's recursion limit when they are compared, printed or freed.
    max_depth: Annotated[int, Field(ge=8, le=200)] | None = None
    """How deep values and messages nest."""
    # An element costs some 100 bytes: this is 10 GB.
    max_refs: Annotated[int, Field(ge=1_000, le=100_000_000)] | None = None
    """Elements of one message: keys, items and values."""
    max_array: Annotated[int, BeforeValidator(sized), Field(ge=1 << 10, le=1 << 40)] | None = None
    """Bytes of one array or buffer."""
    # A frame costs a length and a GMAC before its bytes.
    max_frames: Annotated[int, Field(ge=16, le=10_000_000)] | None = None
    """Frames of one message."""
    max_string: Annotated[int, BeforeValidator(sized), Field(ge=1 << 10, le=1 << 40)] | None = None
    """Bytes of one text or bytes value in a pickle."""
    # Printing an integer of 1 MiB takes a minute.
    max_int: Annotated[int, BeforeValidator(sized), Field(ge=16, le=1 << 20)] | None = None
    """Bytes of one integer in a pickle."""
    max_calls: Annotated[int, Field(ge=100, le=100_000_000)] | None = None
    """Calls of constructors in the pickles of one message."""
    # A few bytes may then stand for as many times max_refs.
    max_sharing: Annotated[int, Field(ge=1, le=1_000)] | None = None
    """Elements of a value once sharing is undone, in multiples of `max_refs`."""
    # Memory that a sender has us take for each byte that it sends.
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


class PolicyModel(_Strict):
    """One policy as its file spells it."""

    safeser: Literal[1]
    """Version of the policy language."""
    name: _Name
    """Named in errors, in the audit log and in sessions."""
    revision: Annotated[int, Field(ge=1, le=_MAX_REVISION)]
    """Raised with every change; running processes take none that is lower."""
    suite: str = Suite.AUTHENTICATE.word
    """What sessions do at the least, where a context does not say it."""
    # Families that programs register; each is compared with every list by itself.
    families: Annotated[_MaybeNone, Field(max_length=100)] = ()
    """Serialization families that programs register, beside those built in."""
    principals: Annotated[dict[_Name, PrincipalModel], Field(min_length=1)]
    """Who takes part, by name."""
    contexts: Annotated[
        tuple[ContextModel, ...],
        BeforeValidator(_listed),
        Field(min_length=1, max_length=_MAX_CONTEXTS),
    ]
    """Who may hand whom what, from top to bottom: the first that matches decides; none: denied."""
    limits: LimitsModel = LimitsModel()
    """The most that one message or principal may make a process take."""
    # Dask's dashboard asks nobody who he is.
    dashboard: DashboardModel | None = None
    """Where Dask's web pages may be served, beside loopback."""


def shape(document: Document) -> PolicyModel:
    """Return the policy that *document* spells.

    :raises ConfigError: at the first place in the file whose field is unknown, missing, of
        another type, or not enforced by this version.
    """
    try:
        return PolicyModel.model_validate(document.value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
    details.sort(key=lambda detail: _precedence(detail, document))
    raise _translated(details[0], document) from None


def _precedence(detail: ErrorDetails, document: Document) -> tuple[int, int, int]:
    """Order errors as a reader fixes them; only the first is reported."""
    place = document.key_place(_path(detail))
    position = (place.line, place.column) if place else (0, 0)
    if detail["loc"] == ("safeser",):
        # A file for another version has every right to fields that this one does not know.
        return (0, *position)
    # A misspelt key is also a missing one; its spelling is what helps.
    return (2 if detail["type"] == "missing" else 1, *position)


def _path(detail: ErrorDetails) -> Path:
    # Pydantic marks an error in a dictionary's key with a last "[key]".
    return tuple(part for part in detail["loc"] if part != "[key]")


_SECTIONS: dict[str | int, type[BaseModel]] = {
    "principals": PrincipalModel,
    "confined": ConfinedModel,
    "contexts": ContextModel,
    "dask": DaskModel,
    "key_conflicts": KeyConflictsModel,
    "pickle": PickleModel,
    "operations": OperationsModel,
    "limits": LimitsModel,
    "dashboard": DashboardModel,
}


def _fields_at(path: Path) -> tuple[str, list[str]]:
    """Return what to call the mapping at *path*, and the names of its fields."""
    section = next((part for part in reversed(path) if part in _SECTIONS), None)
    if section is None:
        return "a policy", list(PolicyModel.model_fields)
    word = {"principals": "a principal", "contexts": "a context"}.get(str(section), f"'{section}'")
    return word, list(_SECTIONS[section].model_fields)


def _translated(detail: ErrorDetails, document: Document) -> Exception:
    path = _path(detail)
    what, rule, fix = _sentence(detail, path)
    at_key = detail["type"] == "extra_forbidden" or detail["loc"][-1] == "[key]"
    place = document.key_place(path) if at_key else document.place(path)
    return fault(what, source=document.source, place=place, rule=rule, fix=fix)


def _sentence(detail: ErrorDetails, path: Path) -> tuple[str, str, str]:
    """Return message, rule and fix for one of pydantic's errors."""
    kind, field = detail["type"], str(path[-1])
    if path == ("safeser",):
        return (
            "this version of safeser reads policies of version 1",
            "config.version",
            ("Start the file with 'safeser: 1'."),
        )
    if kind == "extra_forbidden":
        return _extra(field, path[:-1])
    if kind == "missing":
        word, _ = _fields_at(path[:-1])
        return f"{word} needs {field!r}", "config.missing-key", ""
    if kind in ("name", "size", "empty", "twice"):
        return f"{_subject(path)}: {detail['msg']}", f"config.{kind}", ""
    context = detail.get("ctx", {})
    return (
        f"{_subject(path)} {_expectation(kind, context)}",
        "config.value",
        (
            "Write it in quotes."
            if kind == "string_type" and isinstance(detail["input"], int)
            else ""
        ),
    )


def _extra(field: str, parent: Path) -> tuple[str, str, str]:
    word, fields = _fields_at(parent)
    if field in _LATER:
        return (
            f"{shown(field)} is not supported by this version of safeser and would not be enforced",
            "config.not-supported",
            "Take it out; nothing is protected by it.",
        )
    return f"{word} has no key {shown(field)}", "config.unknown-key", did_you_mean(field, fields)


def _subject(path: Path) -> str:
    named = [part for part in path if isinstance(part, str)]
    return shown(named[-1]) if named else "a policy"


def _expectation(kind: str, context: dict[str, Any]) -> str:
    if kind in ("greater_than_equal", "less_than_equal"):
        word = "at least" if kind == "greater_than_equal" else "at most"
        return f"must be {word} {context.get('ge', context.get('le'))}"
    if kind in ("too_short", "too_long"):
        bound = context.get("min_length", context.get("max_length"))
        return f"must have at {'least' if kind == 'too_short' else 'most'} {bound} entries"
    return {
        "string_type": "must be text",
        "int_type": "must be a whole number",
        "bool_type": "must be true or false",
        "tuple_type": "must be a list, such as [a, b]",
        "dict_type": "must be a mapping, such as {a: b}",
        "model_type": "must be a mapping, such as {a: b}",
    }.get(kind, "is not what belongs here")
