"""Headers and frames to objects: derive the family, check everything, only then build.

The one rule: every node of a payload is judged and checked before the first of them is built, and
what may be built is bounded by one grant at every depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families import errors, pickled, plain
from safeser.families.plain import DEFAULTS
from safeser.families.registry import Typed, registry
from safeser.families.tree import Node, parse, strongest
from safeser.pickles import Budget
from safeser.values import Allowed, Grant, Limits

__all__ = ["bytes_in", "check", "claimed", "covers", "derive", "deserialize", "judge"]

#: Typed values hold plain ones, and failures are weaker than either: whoever may receive dask may
#: receive these inside it. No other family brings another with it.
_COVERED_BY_DASK = ("msgpack", "error")


def covers(granted: Sequence[str], family: str) -> bool:
    """Whether a grant of *granted* lets *family* pass."""
    return family in granted or (family in _COVERED_BY_DASK and "dask" in granted)


def claimed(header: Mapping[str, Any], *, limits: Limits = DEFAULTS) -> str:
    """Return the strongest family that *header* claims, at any depth, without reading frames."""
    nodes = parse(header, None, limits=limits)
    return strongest(node.serializer for node in nodes if node.serializer != "collection")


def derive(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    *,
    limits: Limits = DEFAULTS,
    unread: str | None = None,
    allow: tuple[Allowed, ...] = (),
    budget: Budget | None = None,
) -> str:
    """Return the strongest family that the content needs; a pickle's claim is not believed.

    Nothing is decoded, checked or imported: only pickles are read, as symbols.

    :param unread: the family that each pickle counts as, without reading it.
    :param allow: globals that policy lets family ``pickle`` use beyond all profiles.
    :param budget: shared by all pickles of one message; without it each has all of *limits*.
    """
    nodes = parse(header, frames, limits=limits)
    return strongest(_family(node, limits, unread, allow, budget) for node in nodes)


def bytes_in(
    header: Mapping[str, Any], frames: Sequence[Any], *, limits: Limits = DEFAULTS
) -> bytes | None:
    """Return the bytes that the payload is, if it is plainly that and nothing else; else None.

    It reads one length at most, so that whoever would interpret those bytes can have them decided
    first.
    """
    (node, *inside) = parse(header, frames, limits=limits)
    if inside or len(node.frames) != 1:
        return None
    frame = node.frames[0]
    if node.serializer == "dask" and node.type == "builtins:bytes":
        return bytes(frame)
    if node.serializer == "msgpack" and frame[:1].tobytes() in _BIN:
        value = plain.decode(frame, limits=limits)
        return value if isinstance(value, bytes) else None
    return None


#: How bytes begin in msgpack.
_BIN = (b"\xc4", b"\xc5", b"\xc6")


def check(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    *,
    limits: Limits = DEFAULTS,
    budget: Budget | None = None,
) -> None:
    """Refuse what does not describe exactly one object of listed types; builds nothing.

    Pickles are left to :func:`judge`. Nothing is imported either: a type whose package waits to be
    imported is only looked up here, and checked as all others when it is loaded.

    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    """
    nodes = parse(header, frames, limits=limits)
    _check(nodes, limits, budget or Budget(limits), registry.listed)


def deserialize(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    grant: Grant,
    *,
    limits: Limits = DEFAULTS,
    budget: Budget | None = None,
) -> Any:
    """Return the object, if *grant* lets each family in it pass and all of it checks.

    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :raises PolicyDenied: for a family, anywhere inside, that *grant* does not list.
    :raises PayloadError: for whatever is malformed, unknown, or not exactly buildable.
    """
    nodes = parse(header, frames, limits=limits)
    unread = "cloudpickle" if "cloudpickle" in grant.families else None
    budget = budget or Budget(limits)
    for node in nodes:
        family = _family(node, limits, unread, grant.allow)
        if not covers(grant.families, family):
            raise PolicyDenied(
                f"a value of family {family} came where context {grant.context!r} grants"
                f" {', '.join(grant.families) or 'none'}",
                rule="context.family",
                where=node.where,
                fix=f"Add {family} to the deserializers of that context, if its sender is trusted"
                " with it.",
            )
    _check(nodes, limits, budget, registry.named)
    for node in reversed(nodes):
        node.value = _build(node, grant, limits, budget)
    return nodes[0].value


def judge(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    grant: Grant,
    *,
    limits: Limits = DEFAULTS,
    budget: Budget | None = None,
) -> None:
    """Refuse each pickle in a payload that the profiles of *grant* would refuse; builds nothing.

    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :raises PolicyDenied: naming the global, its offset and what would allow it.
    """
    if "cloudpickle" in grant.families:
        return
    budget = budget or Budget(limits)
    for node in parse(header, frames, limits=limits):
        if node.serializer in ("pickle", "cloudpickle"):
            pickled.judge(node, grant, limits, budget)


def _family(
    node: Node,
    limits: Limits,
    unread: str | None,
    allow: tuple[Allowed, ...],
    budget: Budget | None = None,
) -> str:
    """Return the family of *node* alone.

    :param unread: what a pickle counts as where reading it could not change the answer: who may
        send code gains nothing from a pickle that needs none, and reading it to find out would take
        longer than loading it.
    """
    if node.serializer in ("pickle", "cloudpickle"):
        if unread is None:
            return pickled.family_of(node, limits, allow, budget)
        node.value = unread
        return unread
    return "msgpack" if node.serializer == "collection" else node.serializer


def _check(
    nodes: Sequence[Node], limits: Limits, budget: Budget, look: Callable[..., Typed | None]
) -> None:
    """Check *nodes*, children first, so that a parent may rely on what they yield.

    :param look: finds what is listed under a name, or None for what cannot be checked yet.
    """
    budget.spend(refs=len(nodes), calls=0)
    room = budget.refs
    for node in reversed(nodes):
        if node.serializer == "msgpack":
            frame = node.frames[0]
            node.value, room = plain.decode_counted(frame, limits=limits, room=room)
            node.yields = f"builtins:{type(node.value).__name__}"
        elif node.serializer == "error":
            node.value, room = errors.decode_counted(node.frames[0], limits=limits, room=room)
        elif node.serializer == "collection":
            _check_collection(node)
        elif node.serializer == "dask":
            typed = look(node.type, where=node.where)
            if typed is not None:
                typed.check(node, limits)
    budget.refs = room


def _check_collection(node: Node) -> None:
    if node.type != "dict":
        return
    if not node.children:
        node.refuse("a dict without its keys", "families.child-count")
    keys = node.children[0]
    if keys.yields != "builtins:tuple":
        node.refuse("its keys are not a tuple", "families.header")
    count = len(keys.value) if keys.serializer == "msgpack" else len(keys.children)
    if count != len(node.children) - 1:
        node.refuse("it has another number of keys than of values", "families.child-count")


def _build(node: Node, grant: Grant, limits: Limits, budget: Budget) -> Any:
    if node.serializer == "msgpack":
        return node.value
    if node.serializer == "error":
        return errors.from_data(node.value)
    if node.serializer in ("pickle", "cloudpickle"):
        return pickled.decode(node, grant, limits, budget)
    values = [child.value for child in node.children]
    for child in node.children:
        child.value = None
    try:
        if node.serializer == "collection":
            return _collect(node, values)
        return registry.named(node.type, where=node.where).decode(node, values)
    except SafeserError:
        raise
    # Whatever a listed constructor, or the comparison of two keys, raises about a peer's values
    # means that they are no such object; its text may hold the values and stays out of the error.
    except Exception as error:
        raise PayloadError(
            f"a value of type {node.type} cannot be built ({type(error).__name__})",
            rule="families.build",
            where=node.where,
        ) from None


def _collect(node: Node, values: list[Any]) -> Any:
    if node.type == "list":
        return values
    if node.type == "tuple":
        return tuple(values)
    if node.type == "dict":
        keys = values[0]
        plain.check_keys(keys, where=node.where)
        return dict(zip(keys, values[1:], strict=True))
    plain.check_keys(values, where=node.where)
    return set(values) if node.type == "set" else frozenset(values)
