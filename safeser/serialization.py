"""Dask's serialization functions, with policy or without, and with or without Dask.

The one rule: ``None`` means dask and msgpack, never a pickle; a caller's list takes away from what
a policy grants, and where there is no policy, nothing that runs code is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from safeser import families
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SerializationError
from safeser.families import framing, plain
from safeser.families.compression import resolve
from safeser.families.errors import wire as errors
from safeser.families.pickled import as_code
from safeser.families.plain import DEFAULTS, Unencodable
from safeser.families.registered.own import own_families
from safeser.gate.values import FAMILIES, Context, Decision, Grant, Limits
from safeser.pickles.names import shown
from safeser.refused_loads import Reported
from safeser.tracebacks import for_callers

if TYPE_CHECKING:
    from safeser.policy import Policy

__all__ = ["DEFAULT_FAMILIES", "deserialize", "deserialize_bytes", "serialize", "serialize_bytes"]

#: What ``None`` stands for.
DEFAULT_FAMILIES = ("dask", "msgpack")

#: Length of the header in front of what :func:`serialize_bytes` makes.
_PREFIX = 8

AnyContext = Context | Mapping[str, Any]


@for_callers
def serialize(
    x: object,
    serializers: Sequence[str] | None = None,
    on_error: str = "message",
    context: AnyContext | None = None,
    iterate_collection: bool | None = None,
    *,
    policy: Policy | None = None,
    compression: str | bool | None = None,
    limits: Limits | None = None,
) -> tuple[dict[str, Any], list[Any]]:
    """Return *x* as a header of plain values and a list of buffers, large ones uncopied.

    :param serializers: families to try, in order; None means dask and msgpack.
    :param on_error: ``"message"`` returns what cannot be serialized as a header and frame that
        raise when they are deserialized; ``"raise"`` raises here.
    :param context: handed to registered functions that take it. With *policy*, the
        :class:`Context` that it decides.
    :param iterate_collection: whether the elements of a list, tuple, set or dictionary are
        serialized one by one (True), together (False), or as their types need it (None).
    :param policy: what lets *x* leave in *context*; it narrows *serializers*.
    :param compression: ``"lz4"``, ``"zstd"``, ``"zlib"``, or ``"auto"`` for the first of the two
        fast ones that is installed; frames are compressed where that pays. None for none.
    :param limits: bounds on the whole; those of *policy* where there is one.
    :raises SerializationError: naming the object inside *x* that no family carries; it is a
        TypeError too.
    :raises PolicyDenied: if policy lets nothing, or not this, leave in *context*.
    :raises ConfigError: if an argument means nothing.
    """
    if on_error not in ("message", "raise"):
        raise ConfigError("on_error is 'message' or 'raise'", rule="families.on-error")
    codec = resolve(compression)
    asked = _asked(serializers, "serializers")
    limits = _limits(limits, policy)
    context = _placed(context)
    grant = _grant(policy, context, asked, sealing=True)
    # In the caller's order, of what the policy grants.
    tried = [name for name in asked if families.covers(grant.families, name)]
    try:
        header, frames = families.serialize(
            x,
            tried,
            limits=limits,
            iterate_collection=iterate_collection,
            context=context,
            types=None if policy is None else grant.types,
        )
    except SerializationError as error:
        if on_error == "raise":
            raise
        failure = errors.encode(errors.to_data(error), limits=limits)
        header, frames = {"serializer": "error", "failed": True}, [failure]
    if policy is not None:
        _decide(policy, context, header, frames, grant, sealing=True)
    return framing.prepared(header, frames, codec=codec)


@for_callers
def deserialize(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    deserializers: Sequence[str] | None = None,
    *,
    context: AnyContext | None = None,
    policy: Policy | None = None,
    limits: Limits | None = None,
) -> Any:
    """Return the object of *header* and *frames*, all of it checked before any of it is built.

    Nothing of *header* and *frames* is trusted. Without a policy, family pickle has to be named in
    *deserializers* and is read by restricted pickle with profile ``data``; cloudpickle is never
    read.

    :param frames: buffers, as :func:`serialize` made them or as a transport split them.
    :param deserializers: families that may come; None means dask and msgpack.
    :param context: handed to registered functions that take it. With *policy*, the
        :class:`Context` that it decides: sender and recipient of these frames.
    :param policy: what may come in *context*; it narrows *deserializers*.
    :param limits: bounds on the whole; those of *policy* where there is one.
    :raises PolicyDenied: for a family, type or global that is not granted.
    :raises PayloadError: for whatever is malformed, unknown, too large or not exactly buildable.
    :raises ConfigError: if an argument means nothing.
    """
    asked = _asked(deserializers, "deserializers")
    limits = _limits(limits, policy)
    with Reported("safeser.deserialize"):
        return _deserialize(
            header, frames, asked, context=_placed(context), policy=policy, limits=limits
        )


def _deserialize(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    asked: tuple[str, ...],
    *,
    context: AnyContext | None,
    policy: Policy | None,
    limits: Limits,
) -> Any:
    grant = _grant(policy, context, asked, sealing=False)
    if type(frames) is not list and not isinstance(frames, Sequence):
        raise ConfigError("frames is a list of buffers", rule="families.frames")
    if isinstance(header, dict | Mapping) and "compression" in header:
        # Frames of a family that is not granted are not decompressed.
        claimed = families.claimed(framing.bare(header), limits=limits)
        if not families.covers(grant.families, claimed):
            raise _family_refusal(claimed, grant)
    header, frames = framing.opened(header, frames, limits=limits)
    if policy is not None:
        _decide(policy, context, header, frames, grant, sealing=False)
    try:
        return families.deserialize(header, frames, grant, limits=limits, context=context)
    except PolicyDenied as error:
        if policy is not None and isinstance(context, Context):
            error.decided_by(policy.title, context.recipient)
        raise


@for_callers
def serialize_bytes(x: object, serializers: Sequence[str] | None = None, **options: Any) -> bytes:
    """Return *x* as one run of bytes, for a file or a queue: header and frames in a row.

    Nothing in it says who wrote it; :class:`safeser.Channel` seals messages that do.

    :param options: those of :func:`serialize`; ``on_error`` is ``"raise"`` unless it says else.
    """
    header, frames = serialize(x, serializers, **{"on_error": "raise", **options})
    limits = _limits(options.get("limits"), options.get("policy"))
    try:
        head = plain.encode(header, limits=limits)
    except Unencodable:
        raise SerializationError(
            "the object's header holds more than limits allow", rule="families.cannot-serialize"
        ) from None
    views = [memoryview(frame).cast("B") for frame in frames]
    return b"".join([len(head).to_bytes(_PREFIX, "little"), head, *views])


@for_callers
def deserialize_bytes(
    data: bytes | bytearray | memoryview, deserializers: Sequence[str] | None = None, **options: Any
) -> Any:
    """Return the object that :func:`serialize_bytes` wrote; arrays share the memory of *data*.

    :param options: those of :func:`deserialize`.
    """
    limits = _limits(options.get("limits"), options.get("policy"))
    try:
        view = memoryview(data).cast("B")
    except TypeError:
        raise PayloadError(
            "that is not one run of bytes",
            rule="families.frame",
            fix="Pass the bytes that serialize_bytes returned.",
        ) from None
    size = int.from_bytes(view[:_PREFIX], "little")
    end = _PREFIX + size
    if view.nbytes < _PREFIX or view.nbytes < end:
        raise PayloadError(
            "the header is cut off",
            rule="families.truncated",
            fix="Either the end is missing, or serialize_bytes did not write this.",
        )
    if size > limits.max_array:
        raise PayloadError("the header is larger than max_array", rule="families.too-large")
    header = plain.decode(view[_PREFIX:end], limits=limits)
    if not isinstance(header, dict) or "lengths" not in header:
        raise PayloadError("the header does not say how long frames are", rule="families.framing")
    return deserialize(header, [view[end:]], deserializers, **options)


def _asked(asked: Sequence[str] | None, argument: str) -> tuple[str, ...]:
    """Return the families that a caller named; a misspelt one would take away without a word."""
    if asked is None:
        return DEFAULT_FAMILIES
    listed = isinstance(asked, Iterable) and not isinstance(asked, str | bytes)
    names = tuple(asked) if listed else ()
    if not listed or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"{argument} is a list of families",
            rule="families.serializer",
            fix=f'Write {argument}=["dask", "msgpack"].',
        )
    for name in names:
        if name not in FAMILIES and own_families.find(name) is None:
            raise ConfigError(
                f"{argument} names '{shown(name)}', a family that is not registered here",
                rule="families.serializer",
                fix=f"Built in are {', '.join(FAMILIES)}; register others with"
                " register_serialization_family, or install what declares them.",
            )
    return names


def _limits(limits: Limits | None, policy: Policy | None) -> Limits:
    """Return the limits that hold, of two arguments that have the types they should."""
    if limits is not None and not isinstance(limits, Limits):
        raise ConfigError(
            f"limits is a safeser.Limits, not a {type(limits).__name__}",
            rule="families.limits",
            fix="Pass limits=safeser.Limits(max_depth=...).",
        )
    if policy is None:
        return limits or DEFAULTS
    if not isinstance(getattr(policy, "limits", None), Limits):
        raise ConfigError(
            f"policy is a safeser.Policy, not a {type(policy).__name__}",
            rule="families.policy",
            fix='Pass policy=safeser.Policy.load("default").',
        )
    if limits is not None:
        raise ConfigError(
            "a policy has limits of its own", rule="families.limits", fix="Pass one of the two."
        )
    return policy.limits


def _placed(context: AnyContext | None) -> AnyContext | None:
    """Return *context* as one of a program's own calls, where it says nothing else."""
    if isinstance(context, Context) and context.transport is None:
        return replace(context, transport="library")
    return context


def _grant(
    policy: Policy | None, context: AnyContext | None, asked: tuple[str, ...], *, sealing: bool
) -> Grant:
    """Return what may pass: what was asked for, and no more than policy grants."""
    if policy is None:
        return _unjudged(asked, sealing)
    if not isinstance(context, Context):
        raise ConfigError(
            "a policy decides a safeser.Context: who sends, and who receives",
            rule="families.context",
            fix="Pass context=safeser.Context(sender=..., recipient=...).",
        )
    _permit(policy, policy.permits_operation(context), context, sealing=sealing)
    grant = policy.grant(context, sealing=sealing)
    kept = tuple(name for name in asked if families.covers(grant.families, name))
    narrowed = grant.narrowed(kept)
    if not narrowed.families:
        argument = "serializers" if sealing else "deserializers"
        raise PolicyDenied(
            f"{context}: none of the {argument} asked for is granted"
            f" in context {grant.context!r}, which has {', '.join(grant.families) or 'none'}",
            rule=f"caller.{argument}",
            fix=f"Ask for one of these, or add one to its {argument}.",
        )
    return narrowed


@lru_cache(maxsize=256)
def _unjudged(asked: tuple[str, ...], sealing: bool) -> Grant:
    """Return what may pass where no policy decides."""
    # Reading code needs a policy's grant; written code is decided by its recipient.
    kept = asked if sealing else tuple(name for name in asked if name != "cloudpickle")
    return Grant(context="", families=kept)


def _decide(
    policy: Policy,
    context: AnyContext | None,
    header: dict[str, Any],
    frames: Sequence[Any],
    grant: Grant,
    *,
    sealing: bool,
) -> None:
    """Have *policy* decide the family that the content has, and judge the pickles in it."""
    assert isinstance(context, Context)  # or there would be no grant
    process = context.sender if sealing else context.recipient
    limits = policy.limits
    unread = "cloudpickle" if "cloudpickle" in grant.families else None
    if unread is None and "pickle" not in grant.families:
        unread = "pickle"  # refused either way: nothing is gained by reading it
    _, family, denial = families.read(
        header, frames, limits=limits, unread=unread, allow=grant.allow
    )
    decision = policy.decide(context, family, sealing=sealing)
    if denial is not None and "pickle" in grant.families and not decision.permitted:
        refused = as_code(denial, f"{context}: {decision.reason}", where="")
        raise refused.decided_by(policy.title, process)
    _permit(policy, decision, context, sealing=sealing)
    if not families.covers(grant.families, family):
        raise _family_refusal(family, grant)
    if family == "pickle":
        try:
            families.judge(header, frames, grant, limits=limits)
        except PolicyDenied as error:
            error.decided_by(policy.title, process)
            raise


def _permit(policy: Policy, decision: Decision, context: Context, *, sealing: bool) -> None:
    if not decision.permitted:
        raise policy.refusal(context, decision, sealing=sealing)


def _family_refusal(family: str, grant: Grant) -> PolicyDenied:
    return PolicyDenied(
        f"a value of family {family} came where {', '.join(grant.families) or 'none'} may",
        rule="caller.deserializers",
        fix=f"Ask for it by name, [..., {family!r}], or convert the value where it is sent.",
    )
