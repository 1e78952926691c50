"""``safeser.preflight``: whether an object can be sent, how, and what keeps it from it.

The one rule: what it says is what :func:`safeser.serialize` and the recipient's policy would say of
the same object; nothing is sent, decided for another process, or recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Self

from safeser import families, pickles, serialization
from safeser.channel.link import ordered
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SerializationError
from safeser.families import framing, plain
from safeser.families.plain import DEFAULTS
from safeser.families.tree import parse
from safeser.gate.refusals import shortened
from safeser.gate.values import Context, Kind, Limits
from safeser.sendable.advice import defined
from safeser.sendable.culprits import Culprit, culprits, named_object
from safeser.tracebacks import for_callers

if TYPE_CHECKING:
    from safeser.policy import Policy

__all__ = ["Preflight", "preflight"]

#: Families to try where no policy names any; cloudpickle writes plain pickles where it can.
_TRIED = ("dask", "msgpack", "cloudpickle")
_PICKLES = frozenset({"pickle", "cloudpickle"})

#: The only family of what a task of a submitted graph holds: what a typed value could carry beside
#: it, a graph cannot.
_SUBMITTED = ("cloudpickle",)

#: Functions of cloudpickle; and of them, those that rebuild functions, classes and code.
_WRITER = "cloudpickle.cloudpickle:"
_OF_CODE = frozenset(
    f"{_WRITER}{name}"
    for name in (
        *("_make_function", "_make_skeleton_class", "_make_skeleton_enum"),
        *("_builtin_type", "dynamic_subimport"),
    )
)

#: What imports a module whose name is in the pickle's data.
_IMPORTS = f"{_WRITER}subimport"

#: Lines of names that the text has; the fields have all.
_MOST_NAMES = 12

#: Other culprits that an error names beside the first, and characters of each.
_MOST_OTHERS = 2
_LONGEST_PLACE = 120


@dataclass(frozen=True, slots=True)
class Preflight:
    """What became of an object before it is sent. True if it can be.

    :param name: its class, ``module:qualname``; of a function or class its own name.
    :param context: for which context it was asked; None for none.
    :param family: the family that carries it, or None if none does.
    :param size: bytes of header and frames; 0 if it cannot be serialized.
    :param imports: globals, ``module:qualname``, that the recipient imports to rebuild it. Typed
        values import none that a sender chose.
    :param calls: of them, those that rebuilding calls.
    :param culprits: the parts that keep it from being serialized.
    :param refusal: why the policy refuses it, or None.
    :param defined: where it was written, if it is a function or class; may be empty.
    """

    name: str
    context: Context | None = None
    family: str | None = None
    size: int = 0
    imports: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    refusal: PolicyDenied | None = None
    defined: str = ""

    @property
    def ok(self) -> bool:
        return self.family is not None and self.refusal is None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        towards = "" if self.context is None else f" in {self.context}"
        if self.family is None:
            yield f"{self._named()} cannot be sent{towards}:"
            reasons = [self.refusal] if self.refusal is not None else self.culprits
            yield from (f"- {each}" for each in reasons)
            return
        verdict = "can be sent" if self.refusal is None else "is refused"
        yield f"{self.name} {verdict}{towards}: family {self.family}, {self.size:,} bytes"
        if self.refusal is not None:
            yield f"- {self.refusal}"
        own = [name for name in self.imports if not name.startswith(_WRITER) or name == _IMPORTS]
        if not _OF_CODE.isdisjoint(self.imports):
            yield "- it contains code, which the recipient will run"
        else:
            own = list(self.imports)
        called = set(self.calls)
        for name in own[:_MOST_NAMES]:
            there = ", of the recipient's own __main__" if name.startswith("__main__:") else ""
            yield f"- rebuilding it {'calls' if name in called else 'imports'} {name}{there}"
        if len(own) > _MOST_NAMES:
            yield f"- and {len(own) - _MOST_NAMES} more"

    def _named(self) -> str:
        return f"{self.name} ({self.defined})" if self.defined else self.name

    @for_callers
    def require(self) -> Self:
        """Return this report if the object can be sent.

        :raises PolicyDenied: if policy refuses it.
        :raises SerializationError: with the path to each culprit.
        """
        if self.refusal is not None:
            raise self.refusal
        if self.family is None:
            raise cannot_send(self._named(), self.culprits)
        return self


def cannot_send(name: str, found: Sequence[Culprit]) -> SerializationError:
    """Return the error that names *found*, the parts that keep an object from being sent."""
    if not found:
        return SerializationError(f"{name} cannot be sent", rule="sendable.unwritable")
    first, *others = found
    more = f" and {len(others) - _MOST_OTHERS} more" if len(others) > _MOST_OTHERS else ""
    listed = "; ".join(shortened(each.place, _LONGEST_PLACE) for each in others[:_MOST_OTHERS])
    beside = (
        f" Beside it cannot be sent: {listed}{more}; safeser.preflight says what to do about each."
        if others
        else ""
    )
    return SerializationError(
        f"{name} cannot be sent: {first.place}: {first.reason}",
        rule="sendable.unwritable",
        fix=first.fix + beside,
    )


@for_callers
def preflight(
    obj: Any,
    context: Context | None = None,
    client: Any = None,
    *,
    policy: Policy | None = None,
    limits: Limits | None = None,
) -> Preflight:
    """Return whether *obj* can be sent, by which family, and if not, the path to each culprit.

    It is serialized once, and its size counted; where that fails, its parts are. Reducers of the
    object run, as they do when it is sent. Nothing leaves this process.

    :param context: sender, recipient and kind of the message; needs *policy*, or *client*.
    :param client: a :class:`safeser.Client`: its policy decides, by default about a submission to
        its scheduler.
    :param policy: the policy of the recipient; without it any family may carry the object.
    :param limits: bounds on the whole; those of *policy* where there is one.
    :raises ConfigError: for a context without a policy.
    """
    if client is not None:
        policy = policy or client.safeser.policy
        context = context or client.submission_context()
    if context is not None and policy is None:
        raise ConfigError(
            "a context is decided by a policy", rule="sendable.policy", fix="Pass policy= too."
        )
    name = named_object(obj)
    if context is not None and policy is not None and context.kind is Kind.TASK:
        found = _submitted(obj, name, context, policy)
    else:
        found = _sent(obj, name, context, policy, limits)
    is_code = issubclass(type(obj), type | FunctionType | MethodType)
    return replace(found, defined=defined(obj)) if is_code else found


def _submitted(obj: Any, name: str, context: Context, policy: Policy) -> Preflight:
    """Look at a function, an argument or a collection that would be part of a submitted graph."""
    try:
        grant = policy.grant(context, sealing=True)
    except PolicyDenied as error:
        return _sent(obj, name, context, refusal=error)
    if grant.submission in ("sealed", "code"):
        return _sent(obj, name, context, tried=_SUBMITTED)
    found = _sent(obj, name, context)
    if found.family is None:
        return found
    refusal = PolicyDenied(
        f"{context}: {context.sender} may submit no code in context {grant.context!r}",
        rule="submission.none",
        fix="Ask the operator for 'submission: sealed' in that context.",
        policy=policy.title,
        process=context.sender,
    )
    return replace(found, refusal=refusal)


def _sent(
    obj: Any,
    name: str,
    context: Context | None,
    policy: Policy | None = None,
    limits: Limits | None = None,
    *,
    refusal: PolicyDenied | None = None,
    tried: Sequence[str] = _TRIED,
) -> Preflight:
    """Serialize *obj* as it would be sent in *context*, under *policy* where there is one."""
    try:
        if policy is None or context is None:
            bounds = limits or DEFAULTS
            header, frames = families.serialize(obj, tried, limits=bounds, context=context)
        else:
            bounds = policy.limits
            tried = ordered(policy.grant(context, sealing=True).families)
            asked = [each for each in tried if each != "error"]
            header, frames = serialization.serialize(
                obj, asked, "raise", context=context, policy=policy
            )
    except PolicyDenied as error:
        return Preflight(name, context, refusal=error)
    except SerializationError as error:
        return Preflight(name, context, culprits=_blamed(obj, error, tried))
    bare = framing.bare(header)
    uses: list[pickles.Use] = []
    try:
        family = families.derive(bare, frames, limits=bounds)
        for node in parse(bare, frames, limits=bounds):
            if node.serializer in _PICKLES:
                uses += pickles.inspect(node.frames[0], limits=bounds).globals
    except PayloadError as error:
        if "cloudpickle" not in tried:
            return Preflight(name, context, culprits=_blamed(obj, error, ()))
        family = "cloudpickle"  # who takes code does not count it
    if policy is not None and context is not None:
        refusal = _refused(bare, frames, family, context, policy)
    uses = [use for use in uses if ":" in use.name]  # what a call returns is called, too
    called = {use.name for use in uses if use.role != "referenced"}
    imports, calls = tuple(sorted({use.name for use in uses})), tuple(sorted(called))
    size = len(plain.encode(bare, limits=bounds)) + sum(
        memoryview(frame).nbytes for frame in frames
    )
    return Preflight(name, context, family, size, imports, calls, refusal=refusal)


def _blamed(obj: Any, error: PayloadError, tried: Sequence[str]) -> tuple[Culprit, ...]:
    """Return the parts that no family of *tried* carries."""
    found = culprits(obj) if not _PICKLES.isdisjoint(tried) else ()
    if found:
        return found
    path = (error.where,) if error.where else ()
    return (Culprit(path, named_object(obj), defined(obj), f"{error.message}.", error.fix),)


def _refused(
    header: Mapping[str, Any], frames: Sequence[Any], family: str, context: Context, policy: Policy
) -> PolicyDenied | None:
    """Return why the recipient's *policy* refuses what was serialized, or None."""
    decision = policy.decide(context, family, sealing=False)
    if not decision.permitted:
        return policy.refusal(context, decision)
    try:
        families.judge(header, frames, policy.grant(context), limits=policy.limits)
    except PolicyDenied as error:
        return error.decided_by(policy.title, context.recipient)
    return None
