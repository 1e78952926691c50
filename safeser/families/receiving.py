"""Headers and frames to objects: derive the family, check everything, only then build.

The one rule: every node of a payload is judged and checked before the first of them is built, and
what may be built is bounded by one grant at every depth.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

from safeser.allowed import Allowed
from safeser.errors import PayloadError, PolicyDenied, SafeserError, SerializationError
from safeser.families import pickled, plain
from safeser.families.errors import wire as errors
from safeser.families.plain import DEFAULTS
from safeser.families.registered import hosted
from safeser.families.registered.dispatch import functions
from safeser.families.registered.own import own_families
from safeser.families.registry import Typed, registry
from safeser.families.tree import Node, parse, strongest
from safeser.pickles import Budget
from safeser.values import Context, Grant, Limits

__all__ = ["alone", "bytes_in", "check", "claimed", "covers", "derive", "deserialize", "judge"]

_PICKLES = ("pickle", "cloudpickle")

#: Typed values hold plain ones, and failures are weaker than either: whoever may receive dask may
#: receive these inside it, and so may who receives a family that the host registered.
_COVERED_BY_DASK = ("msgpack", "error")


def covers(granted: Sequence[str], family: str) -> bool:
    """Whether a grant of *granted* lets *family* pass."""
    if family in granted:
        return True
    return family in _COVERED_BY_DASK and any(name not in _NO_TYPED for name in granted)


#: Of the other families, dask and those that the host registered bring plain values with them.
_NO_TYPED = ("msgpack", "error", "pickle", "cloudpickle")


def claimed(
    header: Mapping[str, Any], *, limits: Limits = DEFAULTS, declared: Collection[str] = ()
) -> str:
    """Return the strongest family that *header* claims, at any depth, without reading frames.

    :param declared: families that policy names, which this process may only ever pass on.
    """
    nodes = parse(header, None, limits=limits, declared=declared)
    return strongest([node.serializer for node in nodes if node.serializer != "collection"])


def derive(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    *,
    limits: Limits = DEFAULTS,
    unread: str | None = None,
    allow: tuple[Allowed, ...] = (),
    budget: Budget | None = None,
    denials: list[PolicyDenied] | None = None,
    declared: Collection[str] = (),
    nodes: Sequence[Node] | None = None,
) -> str:
    """Return the strongest family that the content needs; a pickle's claim is not believed.

    Nothing is decoded, checked or imported: only pickles are read, as symbols.

    :param unread: the family that each pickle counts as, without reading it.
    :param allow: globals that policy lets family ``pickle`` use beyond all profiles.
    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :param denials: gets, of each pickle that needs more than family ``pickle``, what that is.
    :param declared: families that policy names, which this process may only ever pass on.
    :param nodes: what :func:`alone` made of the payload.
    """
    nodes = nodes or parse(header, frames, limits=limits, declared=declared)
    budget = budget or Budget(limits)
    return strongest(
        [_family(node, limits, unread, allow, budget, denials=denials) for node in nodes]
    )


def alone(
    header: Mapping[str, Any], frames: Sequence[Any], *, limits: Limits = DEFAULTS
) -> tuple[Node] | None:
    """Return the one value that a payload is, or None: for whoever asks for more than one thing.

    Most payloads are one value, of which to read the header again takes as long as all else.
    """
    serializer = header.get("serializer")
    if type(serializer) is not str or serializer not in _ALONE or "sub-headers" in header:
        return None
    (node,) = parse(header, frames, limits=limits)
    return (node,)


#: Families whose values mean the same to whoever passes them on and to whoever opens them.
_ALONE = frozenset({"msgpack", "error", "dask", *_PICKLES})


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
    grant: Grant | None = None,
    relayed: bool = False,
    declared: Collection[str] = (),
    nodes: Sequence[Node] | None = None,
) -> None:
    """Refuse what does not describe exactly one object of listed types; builds nothing.

    Pickles are left to :func:`judge`. Nothing is imported either: a type whose package waits to be
    imported is only looked up here, and checked as all others when it is loaded.

    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :param grant: what the payload will be loaded by; types that it alone lets be read pass here.
    :param relayed: it is passed on unopened, so that types unknown to this process are for whoever
        opens it to look up: their frames stay what they are, bounded like all others.
    :param declared: families that policy names, which this process may only ever pass on.
    :param nodes: what :func:`alone` made of the payload.
    """
    if nodes is None:
        nodes = parse(header, frames, limits=limits, declared=declared)
    else:
        nodes = [nodes[0].again()]

    def look(node: Node) -> Typed | None:
        name = node.type
        found = registry.ready(name)
        if found is not None or relayed or registry.knows(name):
            return found
        if functions.waits_for(name) or (grant is not None and name in grant.types):
            return None
        return _refused(name, node.where, grant)

    _check(nodes, limits, budget or Budget(limits), look)


def deserialize(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    grant: Grant,
    *,
    limits: Limits = DEFAULTS,
    budget: Budget | None = None,
    context: Context | Mapping[str, Any] | None = None,
    nodes: Sequence[Node] | None = None,
) -> Any:
    """Return the object, if *grant* lets each family in it pass and all of it checks.

    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :param context: handed to registered functions that take it.
    :param nodes: what :func:`alone` made of the payload.
    :raises PolicyDenied: for a family, anywhere inside, that *grant* does not list.
    :raises PayloadError: for whatever is malformed, unknown, or not exactly buildable.
    """
    if nodes is None:
        own_families.look_for(grant.families)
        nodes = parse(header, frames, limits=limits)
    else:
        nodes = [nodes[0].again()]
    unread = "cloudpickle" if "cloudpickle" in grant.families else None
    if len(nodes) == 1:
        (node,) = nodes
        if node.serializer == "dask":
            return _alone(node, grant, limits, budget, context)
        if node.serializer in _PICKLES and unread:
            # What it is called changes nothing, and nobody looks into it.
            node.value = unread
            budget = budget or Budget(limits)
            budget.spend(refs=1, calls=0)
            return pickled.decode(node, grant, limits, budget)
    budget = budget or Budget(limits)
    denials: list[PolicyDenied] = []
    reading = Budget(limits)  # of its own: each pickle is read again to load it
    for node in nodes:
        family = _family(node, limits, unread, grant.allow, reading, denials=denials)
        # A collection is only how its elements stand together; each of those is judged.
        if node.serializer == "collection" and grant.families:
            continue
        if not covers(grant.families, family):
            raise _not_granted(node, family, grant, denials)

    def look(node: Node) -> Typed:
        return _named(node.type, node.where, grant, beside=nodes)

    typed = _check(nodes, limits, budget, look)
    builder = _Builder(grant, limits, budget, typed, hosted.words_of(context))
    for node in reversed(nodes):
        node.value = builder.build(node)
    return nodes[0].value


def _alone(
    node: Node,
    grant: Grant,
    limits: Limits,
    budget: Budget | None,
    context: Context | Mapping[str, Any] | None,
) -> Any:
    """Read the only value of a payload, as most are, without what many would need."""
    if "dask" not in grant.families:
        raise _not_granted(node, "dask", grant, ())
    typed = registry.ready(node.type) or _named(node.type, node.where, grant)
    if typed.budgeted and budget is None:
        budget = Budget(limits)
    _checked(node, typed, limits, budget)
    if budget is not None:
        budget.spend(refs=1 + node.refs, calls=0)
    words = hosted.words_of(context) if typed.contextual else None
    return _decoded(node, typed, [], words, budget)


def _not_granted(
    node: Node, family: str, grant: Grant, denials: Sequence[PolicyDenied]
) -> PolicyDenied:
    families = ", ".join(grant.families) or "none"
    if grant.context:
        came = f"came where context {grant.context!r} grants {families}"
        fix = f"Add {family} to the deserializers of that context"
    else:
        came = f"came where deserializers are {families}"
        fix = f"Ask for it by name: deserializers=[..., {family!r}]"
    if family == "cloudpickle":
        fix = "Only a context of a policy that lists cloudpickle among its deserializers grants it"
    if denials and "pickle" in grant.families:
        return pickled.as_code(denials[-1], f"a value of family {family} {came}", where=node.where)
    return PolicyDenied(
        f"a value of family {family} {came}",
        rule="context.family",
        where=node.where,
        fix=f"{fix}, if its sender is trusted with it.",
    )


def _named(name: str, where: str, grant: Grant, *, beside: Sequence[Node] = ()) -> Typed:
    """Return what reads type *name*: listed here, or registered elsewhere and named by *grant*."""
    if registry.knows(name):
        return registry.named(name, where=where, beside=(node.type for node in beside))
    found = functions.named(name, grant.types)
    if found is not None:
        return found
    return _refused(name, where, grant)


def _refused(name: str, where: str, grant: Grant | None) -> NoReturn:
    granted = grant is not None and name in grant.types
    if granted or not functions.reads_elsewhere(name):
        registry.refuse(name, where=where)
    context = f" {grant.context!r}" if grant is not None and grant.context else ""
    raise PolicyDenied(
        f"type {name} is registered with distributed's own decorators, and nothing lets it be read"
        f" in context{context or ' of this call'}",
        rule="families.type-not-granted",
        where=where,
        fix=f"Write 'dask: {{types: [\"{name}\"]}}' in its context{context}, which holds for what"
        " its author sends directly, or register it with safeser.register_serialization on both"
        " sides.",
    )


def judge(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    grant: Grant,
    *,
    limits: Limits = DEFAULTS,
    budget: Budget | None = None,
    nodes: Sequence[Node] | None = None,
) -> None:
    """Refuse each pickle in a payload that the profiles of *grant* would refuse; builds nothing.

    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :param nodes: what :func:`alone` made of the payload.
    :raises PolicyDenied: naming the global, its offset and what would allow it.
    """
    if "cloudpickle" in grant.families:
        return
    budget = budget or Budget(limits)
    for node in nodes or parse(header, frames, limits=limits):
        if node.serializer in _PICKLES:
            pickled.judge(node, grant, limits, budget)


def _family(
    node: Node,
    limits: Limits,
    unread: str | None,
    allow: tuple[Allowed, ...],
    budget: Budget,
    *,
    denials: list[PolicyDenied] | None = None,
) -> str:
    """Return the family of *node* alone.

    :param unread: what a pickle counts as where reading it could not change the answer: who may
        send code gains nothing from a pickle that needs none, and reading it to find out would take
        longer than loading it.
    """
    if node.serializer in _PICKLES:
        if unread is None:
            return pickled.family_of(node, limits, budget, allow=allow, denials=denials)
        node.value = unread
        return unread
    return "msgpack" if node.serializer == "collection" else node.serializer


def _check(
    nodes: Sequence[Node], limits: Limits, budget: Budget, look: Callable[[Node], Typed | None]
) -> dict[str, Typed]:
    """Check *nodes*, children first, so that a parent may rely on what they yield.

    :param look: finds what is listed as a node's type, or None for what cannot be checked yet.
    :return: what it found, by name.
    """
    budget.spend(refs=len(nodes), calls=0)
    room = budget.refs
    known: dict[str, Typed | None] = {}
    for node in reversed(nodes):
        if node.serializer == "msgpack":
            frame = node.frames[0]
            node.value, room = plain.decode_counted(
                frame, limits=limits, room=room, depth=node.depth
            )
            node.yields = f"builtins:{type(node.value).__name__}"
        elif node.serializer == "error":
            node.value, room = errors.decode_counted(node.frames[0], limits=limits, room=room)
        elif node.serializer == "collection":
            _check_collection(node)
        elif node.serializer == "dask":
            if node.type not in known:
                known[node.type] = look(node)
            typed = known[node.type]
            if typed is not None:
                budget.refs = room
                _checked(node, typed, limits, budget)
                room = budget.refs - node.refs
                if room < 0:
                    node.refuse("a message holds more than max_refs values", "families.refs")
        elif node.serializer not in _PICKLES:
            hosted.check_header(node, limits)
    budget.refs = room
    return {name: typed for name, typed in known.items() if typed is not None}


def _checked(node: Node, typed: Typed, limits: Limits, budget: Budget | None) -> None:
    """Check *node*, and say where it is if a value in it is out of bounds."""
    try:
        if typed.budgeted:
            typed.check(node, limits, budget)
        else:
            typed.check(node, limits)
    except SafeserError as error:
        error.where = error.where or node.where
        raise


def _check_collection(node: Node) -> None:
    if node.type != "dict":
        return
    if not node.children:
        node.refuse("a dict without its keys", "families.child-count")
    keys = node.children[0]
    if keys.yields != "builtins:tuple":
        node.refuse("its keys are not a tuple", "families.header")
    count = len(keys.children if keys.serializer == "collection" else keys.value)
    if count != len(node.children) - 1:
        node.refuse("it has another number of keys than of values", "families.child-count")


class _Builder:
    """Builds checked nodes, children before their parents.

    :param typed: what checked the nodes of family dask, by their type's name.
    :param context: for registered functions that take it.
    """

    def __init__(
        self,
        grant: Grant,
        limits: Limits,
        budget: Budget,
        typed: Mapping[str, Typed],
        context: dict[str, Any] | None,
    ) -> None:
        self.grant = grant
        self.limits = limits
        self.budget = budget
        self.typed = typed
        self.context = context

    def build(self, node: Node) -> Any:
        if node.serializer == "msgpack":
            return node.value
        if node.serializer == "error":
            return _failure(node)
        if node.serializer in _PICKLES:
            return pickled.decode(node, self.grant, self.limits, self.budget)
        values = [child.value for child in node.children]
        for child in node.children:
            child.value = None
        if node.serializer == "dask":
            return _decoded(node, self.typed[node.type], values, self.context, self.budget)
        # What the host registered is for the host to repair, and keeps its cause.
        hosts = node.serializer != "collection"
        try:
            return self.own(node) if hosts else _collect(node, values)
        except SafeserError:
            raise
        # As for typed values.
        except Exception as error:
            raise _unbuildable(node, error, chained=hosts) from (error if hosts else None)

    def own(self, node: Node) -> Any:
        """Call the family that the host registered; its name is in the grant, which was checked."""
        family = own_families.find(node.serializer)
        if family is None or family.loads is None:
            node.refuse(f"family {node.serializer} can only be written here", "families.serializer")
        header = {**node.meta, "serializer": family.name}
        contextual = family.loads_context
        return hosted.load(
            family.loads, header, node.frames, context=self.context, contextual=contextual
        )


def _decoded(
    node: Node,
    typed: Typed,
    values: list[Any],
    context: dict[str, Any] | None,
    budget: Budget | None,
) -> Any:
    """Return what *typed* makes of a checked node and what its children became."""
    try:
        if typed.budgeted:
            return typed.decode(node, values, budget)
        if typed.contextual:
            return typed.decode(node, values, context)
        return typed.decode(node, values)
    except SafeserError as error:
        error.where = error.where or node.where
        raise
    # Whatever a listed constructor, or the comparison of two keys, raises about a peer's values
    # means that they are no such object; its text may hold the values and stays out of the error.
    # What the host registered is for the host to repair, and keeps its cause.
    except Exception as error:
        chained = typed.contextual
        raise _unbuildable(node, error, chained=chained) from (error if chained else None)


def _unbuildable(node: Node, error: Exception, *, chained: bool) -> PayloadError:
    return PayloadError(
        f"a value of type {node.type or node.serializer} cannot be built ({type(error).__name__})",
        rule="families.build",
        where=node.where,
        fix="The cause is chained to this error." if chained else "",
    )


def _failure(node: Node) -> Any:
    """Return an exception that was sent as a value; raise what was sent in place of one."""
    said = errors.from_data(node.value)
    if not node.meta["failed"]:
        return said
    shown = fix = ""
    if isinstance(said, SafeserError):
        place = f" at {said.where}" if said.where else ""
        shown, fix = f": {_printable(said.message + place)}", _printable(said.fix)
    raise SerializationError(
        f"the sender could not serialize the value{shown}",
        rule="families.sender-failed",
        where=node.where,
        fix=fix,
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:500])


def _collect(node: Node, values: list[Any]) -> Any:
    if node.type == "list":
        return values
    if node.type == "tuple":
        return tuple(values)
    if node.type == "dict":
        keys = values[0]
        plain.check_keys(keys, where=node.where)
        return dict(zip(keys, values[1:], strict=True))
    plain.check_keys(values, where=node.where, members=True)
    return set(values) if node.type == "set" else frozenset(values)
