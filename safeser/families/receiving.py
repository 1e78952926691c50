"""Decode headers and frames: derive the family, check every node, and only then build objects.

The one rule: every node of a payload is judged and checked before the first is built, and one grant
bounds what may be built at every depth.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from safeser import pickles
from safeser.allowed import Allowed
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families import pickled, plain
from safeser.families.building import built
from safeser.families.errors import wire as errors
from safeser.families.instead import Sent
from safeser.families.plain import DEFAULTS
from safeser.families.registered import hosted
from safeser.families.registered.dispatch import functions
from safeser.families.registered.own import own_families
from safeser.families.registry import Typed, registry
from safeser.families.tree import PICKLES, PLAIN, Node, check_header, parse, strongest
from safeser.gate.values import ELEMENT, Context, Grant, Limits
from safeser.pickles import Budget

#: Typed values contain plain ones, and failures are weaker than either: a grant of family dask, or
#: of a family that the host registered, covers these families.
_COVERED_BY_DASK = ("msgpack", "error")


def covers(granted: Sequence[str], family: str) -> bool:
    """Whether a grant of *granted* lets *family* pass."""
    if family in granted:
        return True
    return family in _COVERED_BY_DASK and any(name not in _NO_TYPED for name in granted)


#: What a byte of a pickle, or of plain values, counts at most.
_MOST = 2 * ELEMENT

#: Families that contain no plain values of other families; all others do.
_NO_TYPED = ("msgpack", "error", "pickle", "cloudpickle")


def claimed(
    header: Mapping[str, Any], *, limits: Limits = DEFAULTS, declared: Collection[str] = ()
) -> str:
    """Return the strongest family that *header* claims, at any depth, without reading frames.

    :param declared: families that policy names but this process may only relay.
    """
    if header == PLAIN:  # as of most values of most messages
        return "msgpack"
    nodes = parse(header, None, limits=limits, declared=declared)
    return strongest([node.serializer for node in nodes if node.serializer != "collection"])


class Reading(NamedTuple):
    """The shape of one payload, with its pickles read as symbols; nothing of it is decoded.

    :param family: the strongest family that its content needs, whatever a pickle claims.
    :param denial: why a pickle in it counts as code, where it was read.
    """

    nodes: Sequence[Node]
    family: str
    denial: PolicyDenied | None = None


class Checked(NamedTuple):
    """One checked payload, which describes exactly one object and is built once.

    :param typed: the types of its values of family dask, by name; None where the package of one is
        imported only when the payload is built, which then checks it.
    """

    nodes: Sequence[Node]
    grant: Grant
    limits: Limits
    typed: Mapping[str, Typed] | None


def read(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    *,
    limits: Limits = DEFAULTS,
    unread: str | None = None,
    allow: tuple[Allowed, ...] = (),
    budget: Budget | None = None,
    declared: Collection[str] = (),
) -> Reading:
    """Return the shape of a payload, and the family that its content needs.

    Nothing is decoded, checked or imported: only pickles are read, as symbols.

    :param unread: the family that each pickle counts as without being read; None to read pickles.
    :param allow: globals that policy lets family ``pickle`` use beyond all profiles.
    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :param declared: families that policy names but this process may only relay.
    """
    nodes = parse(header, frames, limits=limits, declared=declared)
    if unread is None:
        budget = budget or Budget(limits)
    denials: list[PolicyDenied] = []
    if len(nodes) == 1:  # most payloads are one value
        family = _family(nodes[0], limits, unread, allow, budget, denials=denials)
    else:
        family = strongest(
            [_family(node, limits, unread, allow, budget, denials=denials) for node in nodes]
        )
    return Reading(nodes, family, denials[0] if denials else None)


def derive(header: Mapping[str, Any], frames: Sequence[Any], *, limits: Limits = DEFAULTS) -> str:
    """Return the strongest family that the content needs, whatever a pickle claims."""
    return read(header, frames, limits=limits).family


def bytes_in(
    header: Mapping[str, Any], frames: Sequence[Any], *, limits: Limits = DEFAULTS
) -> bytes | None:
    """Return the content of a payload that is a single bytes object; None for any other.

    At most one length is decoded, so that the bytes can be decided before their handler interprets
    them.
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


#: The first byte of msgpack's three forms of bytes.
_BIN = (b"\xc4", b"\xc5", b"\xc6")


def check(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    *,
    limits: Limits = DEFAULTS,
    grant: Grant | None = None,
) -> None:
    """Refuse a payload that is not exactly one object of listed types; build nothing.

    Pickles are left to :func:`judge`. Nothing is imported: a type whose package is not imported yet
    is only looked up here, and checked when it is loaded.

    :param grant: the grant by which the payload will be loaded, which may list further types.
    """
    nodes = parse(header, frames, limits=limits)
    _check(nodes, limits, Budget(limits), _Listed(grant), grant)


def readable(x: object, sent: Sent, limits: Limits, *, room: int, pending: int) -> Sent:
    """Return *x* as its writer is about to send it, if its reader will not find it too large.

    :param room: bytes of memory that are left, and *pending*, bytes of what was not counted yet.
    """
    header, frames = sent
    try:
        if "sub-headers" in header:
            check_header(header, limits)
        if pending * _MOST > room:
            nodes, budget = parse(header, frames, limits=limits), Budget(limits)
            _check(nodes, limits, budget, _Listed(None, relayed=True), None)
            for node in nodes:
                if node.serializer == "pickle":
                    pickles.parse(node.frames[0], limits=limits, budget=budget)
    except PayloadError as error:
        if error.rule == "families.too-large":  # its sender says so by the name of the limit
            return sent
        fix = plain.LESS if "memory" in error.rule else error.fix
        raise plain.Unencodable(x, error.message, final=True, fix=fix) from None
    return sent


def check_reading(
    reading: Reading, grant: Grant, *, limits: Limits, budget: Budget, relayed: bool = False
) -> Checked:
    """Check a reading as :func:`check` does, and its pickles as :func:`judge` does.

    A reading is checked once: its nodes then hold results that building uses up.

    :param grant: the grant by which the payload will be built.
    :param budget: shared by all payloads of one message.
    :param relayed: whether it is relayed unopened. Types unknown to this process then pass, since
        the process that opens it looks them up; their frames are bounded like all others.
    """
    nodes, look = reading.nodes, _Listed(grant, relayed=relayed)
    typed: Mapping[str, Typed] = {}
    if nodes[0].serializer not in PICKLES:  # the shape of those was read
        typed = _check(nodes, limits, budget, look, grant)
        _forget_copies(nodes)
    if reading.family == "pickle":
        for node in nodes:
            if node.serializer in PICKLES:
                pickled.judge(node, grant, limits, budget)
    return Checked(nodes, grant, limits, None if look.waits else typed)


def _forget_copies(nodes: Sequence[Node]) -> None:
    """Drop the decoded values of long frames, which are decoded again when built.

    All payloads of a message are checked before the first is built, so that copies of all of them
    would be in memory at once.
    """
    for node in nodes:
        if node.serializer in _DECODED and len(node.frames[0]) > _KEPT:
            node.value = None


#: Families whose check is their decoding, and bytes of a frame up to which that is kept.
_DECODED, _KEPT = ("msgpack", "error"), 1 << 16


class _Listed:
    """Finds the listed serializer of a node's type without importing anything.

    :ivar waits: whether the package of a type that was looked up is not imported yet.
    """

    __slots__ = ("_grant", "_relayed", "waits")

    def __init__(self, grant: Grant | None, *, relayed: bool = False) -> None:
        self._grant = grant
        self._relayed = relayed
        self.waits = False

    def __call__(self, node: Node) -> Typed | None:
        name = node.type
        found = registry.ready.get(name)
        if found is not None:
            return found
        granted = self._grant is not None and name in self._grant.types
        if self._relayed or registry.knows(name) or functions.waits_for(name) or granted:
            self.waits = True
            return None
        return _own(name, node.where, self._grant)


def deserialize(
    header: Mapping[str, Any],
    frames: Sequence[Any],
    grant: Grant,
    *,
    limits: Limits = DEFAULTS,
    budget: Budget | None = None,
    context: Context | Mapping[str, Any] | None = None,
) -> Any:
    """Check a payload and build its object, if *grant* covers each family in it.

    :param budget: shared by all payloads of one message; without it this one has all of *limits*.
    :param context: handed to registered functions that take it.
    :raises PolicyDenied: for a family, anywhere inside, that *grant* does not list.
    :raises PayloadError: for anything malformed or unknown, or that cannot be built exactly.
    """
    own_families.look_for(grant.families)
    nodes = parse(header, frames, limits=limits)
    budget = budget or Budget(limits)
    _require_granted(nodes, grant, limits)

    def look(node: Node) -> Typed:
        return _named(node.type, node.where, grant, beside=nodes)

    typed = _check(nodes, limits, budget, look, grant)
    return built(nodes, grant, limits, typed=typed, budget=budget, context=context)


def build(
    checked: Checked,
    *,
    budget: Budget,
    context: Context | Mapping[str, Any] | None = None,
) -> Any:
    """Build the object of a checked payload under the grant of its check. Call it once.

    :param budget: shared by all payloads of one message.
    :param context: passed to registered functions that take it.
    :raises PolicyDenied: for a family, at any depth, that the grant does not cover.
    :raises PayloadError: for a value that cannot be built.
    """
    assert checked.typed is not None, "a type in it was not checked"
    grant = checked.grant
    for node in checked.nodes:
        family = node.value if node.serializer in PICKLES else node.serializer
        # A collection is only how its elements stand together; each of those is judged.
        if not (covers(grant.families, family) or (family == "collection" and grant.families)):
            raise _not_granted(node, family, grant, ())
    return built(
        checked.nodes, grant, checked.limits, typed=checked.typed, budget=budget, context=context
    )


def _require_granted(nodes: Sequence[Node], grant: Grant, limits: Limits) -> None:
    """Refuse a family, at any depth, that *grant* does not cover."""
    unread = "cloudpickle" if "cloudpickle" in grant.families else None
    denials: list[PolicyDenied] = []
    budget = Budget(limits)  # of its own: each pickle is read again to load it
    for node in nodes:
        # A collection is only how its elements stand together; each of those is judged.
        if node.serializer == "collection" and grant.families:
            continue
        family = _family(node, limits, unread, grant.allow, budget, denials=denials)
        if not covers(grant.families, family):
            raise _not_granted(node, family, grant, denials)


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
    """Return the deserializer of type *name*: listed, or registered elsewhere and granted."""
    if registry.knows(name):
        return registry.named(name, where=where, beside=(node.type for node in beside))
    found = functions.named(name, grant.types)
    if found is not None:
        return found
    return _own(name, where, grant)


def _own(name: str, where: str, grant: Grant | None) -> Typed:
    """Return the deserializer of a class of the program's own, if *grant* takes those."""
    found = registry.derived(name)
    if found is None and grant is not None and grant.own:
        found = registry.own(name, where)
    return found or _refused(name, where, grant)


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
    declared: Collection[str] = (),
) -> None:
    """Refuse each pickle in a payload that the profiles of *grant* would refuse; builds nothing.

    :param budget: what reading the pickles may take; without it, all of *limits*.
    :param declared: families that policy names but this process may only relay.
    :raises PolicyDenied: naming the global, its offset and what would allow it.
    """
    if "cloudpickle" in grant.families:
        return
    budget = budget or Budget(limits)
    for node in parse(header, frames, limits=limits, declared=declared):
        if node.serializer in PICKLES:
            pickled.judge(node, grant, limits, budget)


def _family(
    node: Node,
    limits: Limits,
    unread: str | None,
    allow: tuple[Allowed, ...],
    budget: Budget | None,
    *,
    denials: list[PolicyDenied] | None = None,
) -> str:
    """Return the family of *node* alone.

    :param unread: the family of a pickle where reading it could not change the decision: a sender
        that may send code gains nothing from a pickle without code, and reading it takes longer
        than loading it.
    """
    if node.serializer in PICKLES:
        if unread is None:
            assert budget is not None
            return pickled.family_of(node, limits, budget, allow=allow, denials=denials)
        node.value = unread
        return unread
    return "msgpack" if node.serializer == "collection" else node.serializer


def _check(
    nodes: Sequence[Node],
    limits: Limits,
    budget: Budget,
    look: Callable[[Node], Typed | None],
    grant: Grant | None,
) -> dict[str, Typed]:
    """Check *nodes*, children first, so that a parent may rely on what they yield.

    :param look: returns the listed type of a node, or None if that cannot be checked yet.
    :return: the types that it returned, by name.
    """
    budget.spend(refs=len(nodes), calls=0)
    known: dict[str, Typed] = {}
    owned = False
    for node in reversed(nodes):
        if node.serializer == "msgpack":
            frame = node.frames[0]
            node.value, budget.memory = plain.decode_counted(
                frame, limits=limits, room=budget.memory, depth=node.depth
            )
            node.yields = f"builtins:{type(node.value).__name__}"
        elif node.serializer == "error":
            node.value, budget.memory = errors.decode_counted(
                node.frames[0], limits=limits, room=budget.memory
            )
            node.own = grant is not None and bool(grant.own) and errors.makes_own(node.value)
            owned = owned or node.own
        elif node.serializer == "collection":
            _check_collection(node)
        elif node.serializer == "dask":
            typed = known.get(node.type) or look(node)
            if typed is not None:
                known[node.type] = typed
                node.budget = budget
                _checked(node, typed, limits, budget)
                node.own = typed.own
                owned = owned or typed.own
        elif node.serializer not in PICKLES:
            hosted.check_header(node, limits)
        if owned and any(child.own for child in node.children):
            _check_kept(node, known.get(node.type))
    return known


def _check_kept(node: Node, typed: Typed | None) -> None:
    """Refuse *node* if building it could run code of an own class of which it holds an instance."""
    keys = node.children[0] if node.serializer == "collection" and node.type == "dict" else None
    keyed = node.type in ("set", "frozenset") if keys is None else keys.own
    if keyed or not (typed is None or typed.keeps):
        what = "a key or a member of a set" if keyed else f"a part of a {node.type}"
        raise PayloadError(
            f"an instance of a class of this program that is not registered is {what}",
            rule="families.own",
            where=node.where,
            fix="Register its class with safeser.register_class, or send its attributes.",
        )
    node.own = True


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
