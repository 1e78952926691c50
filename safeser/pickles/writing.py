"""Write pickles, and check before sending whether the receiver's profile admits them.

The one rule: the reader and the builder that the receiver runs give the answer, for exactly the
bytes that would be sent. A second implementation that judged objects would differ somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from safeser.errors import ConfigError, PayloadError, PolicyDenied
from safeser.gate.refusals import shortened
from safeser.gate.values import Limits
from safeser.pickles import stock
from safeser.pickles.advice import deny
from safeser.pickles.building.build import Builder
from safeser.pickles.judge import judge
from safeser.pickles.names import shown
from safeser.pickles.nodes import ABSENT, Call, DictOf, GlobalRef, Node, Persistent, Program
from safeser.pickles.profiles import Profile
from safeser.pickles.reading.machine import read
from safeser.pickles.shape import Shape, check_shape
from safeser.pickles.trees.writing import write
from safeser.trace.probe import Done, is_traced, watch
from safeser.tracebacks import for_callers

__all__ = ["Reduction", "dumps", "place_of", "reduce"]

_DEFAULTS = Limits()
_MAX_KEY = 40
_MAX_PLACE = 200
#: A buffer of its own costs more than to copy fewer bytes.
_SMALL = 1024
_WORD = 8


@for_callers
def dumps(
    obj: Any,
    *,
    buffer_callback: Callable[[Any], object] | None = None,
    code: bool = False,
    profile: str | Sequence[str] | Profile | None = None,
    limits: Limits = _DEFAULTS,
    persistent_id: Callable[[Any], Any] | None = None,
    reductions: stock.Reductions | None = None,
) -> bytes:
    """Return *obj* as a pickle of protocol 5, or raise :class:`PayloadError`.

    :param buffer_callback: called with each out-of-band ``pickle.PickleBuffer``, in order, once
        the pickle is complete and known to be accepted.
    :param code: fall back to cloudpickle, which writes functions and classes by value, for what
        plain pickle can't write and what it could only name inside ``__main__`` or a module that
        is registered for pickling by value. Only a receiver who grants this sender code loads it.
    :param profile: what the receiver loads by, with *limits*: what it would refuse is refused here.
        The pickle is loaded once to find out, and the result dropped.
    :param persistent_id: as for ``pickle.Pickler``; the receiver needs the ``persistent_load``.
    :param reductions: where there is no *profile*, gets what reducers return.
    :raises PolicyDenied: *profile* would refuse the pickle; says which part of *obj* it is.
    """
    if profile is None:
        options: dict[str, Any] = {
            "buffer_callback": buffer_callback,
            "code": code,
            "persistent_id": persistent_id,
            "reductions": reductions,
        }
        if not is_traced():
            return stock.dumps(obj, **options)
        write = partial(stock.dumps, obj, **options)
        family = "cloudpickle" if code else "pickle"
        return watch("serialize", write, lambda written: Done(obj, family, len(written)))
    if code:
        raise ConfigError(
            "code is for receivers that grant it, and those load by no profile",
            rule="config.profile",
            fix="Pass either code=True or a profile.",
        )
    buffers: list[Any] = []
    keep = None if buffer_callback is None else buffers.append
    written = stock.dumps(obj, buffer_callback=keep, persistent_id=persistent_id)
    listed, persistent = Profile.of(profile), persistent_id is not None
    program = read(written, buffers=len(buffers), limits=limits, persistent=persistent)
    if persistent:  # only the receiver can resolve its persistent ids
        _check(program, listed, limits)
    else:
        _build(program, buffers, listed, limits)
    if buffer_callback is not None:
        for buffer in buffers:
            buffer_callback(buffer)
    return written


def _check(program: Program, profile: Profile, limits: Limits) -> Shape:
    """Refuse what the receiver would refuse before it builds anything."""
    for use in judge(program, profile, persistent=True, only_denied=True):
        denial = deny(use, profile=profile)
        raise _refused(program, use.node, denial, kind=shown(use.name))
    return check_shape(program, limits)


def _build(
    program: Program,
    buffers: Sequence[Any],
    profile: Profile,
    limits: Limits,
    *,
    apart: Sequence[Any] = (),
) -> Any:
    """Return what the receiver would make, or refuse what it would refuse.

    :param apart: what stands beside the program, by its numbers.
    """
    builder = Builder(
        program,
        profile,
        buffers=buffers,
        limits=limits,
        shape=_check(program, profile, limits),
        apart=apart,
        persistent_load=apart.__getitem__,
    )
    try:
        return builder.build()
    except (PayloadError, PolicyDenied) as refusal:
        raise _refused(program, builder.failed, refusal, kind=_kind(builder.failed)) from None


class Reduction(NamedTuple):
    """The result of :func:`reduce`.

    :param tree: the reduced tree.
    :param buffers: its buffers, in order, uncopied.
    :param apart: what travels beside it, in order.
    :param made: what the receiver makes of all of them.
    """

    tree: bytes
    buffers: list[memoryview]
    apart: list[Any]
    made: Any


def reduce(
    obj: Any,
    *,
    profile: Profile,
    limits: Limits = _DEFAULTS,
    reducers: Mapping[type, Callable[[Any], Any]] = MappingProxyType({}),
    is_apart: Callable[[Any], bool] | None = None,
    rehearsed: bool = True,
) -> Reduction:
    """Return *obj* as a reduced tree, which reads as its pickle does.

    It is built once, as the receiver does, so that what that would refuse is refused here.

    :param reducers: by exact class, what returns what ``__reduce_ex__`` would.
    :param rehearsed: whether it is; what is not is judged alone, and *made* is *obj*.
    :param is_apart: tells what in *obj* travels beside the tree, in a spelling of its own.
    :raises PayloadError: *obj* cannot be taken apart, or is over *limits*.
    :raises PolicyDenied: the receiver would refuse it; says which part of *obj* it is.
    """
    buffers: list[memoryview] = []

    def keep(buffer: Any) -> bool:
        raw = buffer.raw()
        if raw.nbytes > _SMALL:
            buffers.append(raw)
        # True lets pickle write it inside.
        return bool(raw.nbytes <= _SMALL)

    written, apart = stock.take_apart(obj, keep=keep, reducers=reducers, is_apart=is_apart)
    order = _aligned_order(buffers)
    program = read(written, buffers=len(buffers), limits=limits, persistent=True)
    tree = write(program, order)
    made = obj
    if rehearsed:
        made = _build(program, buffers, profile, limits, apart=apart)
    else:
        _check(program, profile, limits)
    buffers = [buffers[at] for at in sorted(range(len(order)), key=order.__getitem__)]
    return Reduction(tree, buffers, apart, made)


def _aligned_order(buffers: Sequence[memoryview]) -> list[int]:
    """Return of each buffer the place at which it travels.

    Those whose size is a multiple of eight come first, then of four, of two and the odd ones, so
    that numbers stand where processors want them where frames are written one behind the other.
    """
    ranks = [min(_WORD, buffer.nbytes & -buffer.nbytes) for buffer in buffers]
    order = [0] * len(buffers)
    for place, number in enumerate(sorted(range(len(ranks)), key=lambda at: -ranks[at])):
        order[number] = place
    return order


def _refused(
    program: Program, node: Node | None, refusal: PayloadError | PolicyDenied, *, kind: str
) -> PolicyDenied:
    place = place_of(program, node)
    return PolicyDenied(
        f"the receiver would refuse {place}, of type {kind}: {refusal.message}",
        rule=refusal.rule,
        where=place,
        fix=refusal.fix,
    )


def _kind(node: Node | None) -> str:
    if isinstance(node, Call) and isinstance(node.callee, GlobalRef):
        return shown(node.callee.name)
    return type(node).__name__.removesuffix("Of").lower()


def place_of(program: Program, wanted: Node | None) -> str:
    """Return where in the object *wanted* is, as a Python expression over ``obj`` as far as can be.

    The shortest way from the root, whichever of several it is.
    """
    ways: dict[int, tuple[int, str]] = {}
    level = [program.root] if isinstance(program.root, Node) else []
    if level:
        ways[level[0].index] = -1, ""
    while level and (wanted is None or wanted.index not in ways):
        below: list[Node] = []
        for node in level:
            for label, child in _parts(node):
                if isinstance(child, Node) and child.index not in ways:
                    ways[child.index] = node.index, label
                    below.append(child)
        level = below
    if wanted is None or wanted.index not in ways:
        return "obj"
    labels, index = [], wanted.index
    while index >= 0:
        index, label = ways[index]
        labels.append(label)
    place = "obj" + "".join(reversed(labels))
    return shortened(place, _MAX_PLACE)


def _parts(node: Node) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Persistent):
        yield ".<persistent id>", node.pid
    elif isinstance(node, DictOf):
        yield from _pairs(node.items)
    elif isinstance(node, Call):
        yield from ((f".<argument {at}>", item) for at, item in enumerate(node.args.items))
        if node.kwargs is not None:
            yield from _fields(node.kwargs)
        yield from ((f"[{at}]", item) for at, item in enumerate(node.items))
        yield from _pairs(node.pairs)
        if isinstance(node.state, DictOf):
            yield from _fields(node.state)
        elif node.state is not ABSENT:
            yield ".<state>", node.state
        yield "", node.callee
    else:
        yield from ((f"[{at}]", item) for at, item in enumerate(getattr(node, "items", [])))


def _pairs(items: list[Any]) -> Iterator[tuple[str, Any]]:
    for at in range(0, len(items), 2):
        key = items[at]
        name = f"key {at // 2}" if isinstance(key, Node) else shown(repr(key)[:_MAX_KEY])
        yield f".<key {at // 2}>", key
        yield f"[{name}]", items[at + 1]


def _fields(fields: DictOf) -> Iterator[tuple[str, Any]]:
    for at in range(0, len(fields.items), 2):
        yield f".{shown(str(fields.items[at])[:_MAX_KEY])}", fields.items[at + 1]
