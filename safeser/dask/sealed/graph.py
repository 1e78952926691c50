"""A sealed graph on its way from its author to the scheduler.

Six frames: the signed statement, the heads of all leaves, their trees, the definitions, canonical
digests of those, and the annotations. All but the first are lists in msgpack; those that grow with
the number of tasks are compressed where that pays. Definitions are not: they are a user's values,
and Dask's client warns of a large graph by what its frames hold. The scheduler reads heads, digests
and annotations; of trees and definitions it knows that they are what was signed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from types import MappingProxyType
from typing import Any

import numpy as np
from dask._task_spec import Alias, GraphNode, convert_legacy_graph
from distributed.protocol.serialize import Serialized
from distributed.shuffle._core import ShuffleSpec

from safeser.dask.contents.annotations import check_annotation
from safeser.dask.contents.shuffle_plans import read_plan
from safeser.dask.sealed.definitions import DIGEST_SIZE, NO_DIGEST, Definitions, digest
from safeser.dask.sealed.form import is_key
from safeser.dask.sealed.merkle import MerkleTree, leaf_hash
from safeser.dask.sealed.opening import open_task
from safeser.dask.sealed.renewal import Current
from safeser.dask.sealed.statement import GRAPH_ID_SIZE, LIFETIME, SignedStatement, Statement
from safeser.dask.sealed.writing import (
    FLAGS,
    Leaf,
    TaskWriter,
    leaf_data,
    unwritable,
)
from safeser.dask.wire.reader import Reader, check_hashes
from safeser.errors import PayloadError
from safeser.families import compression
from safeser.families.keys import check_labels
from safeser.families.plain import DEFAULTS
from safeser.identity import Identity, PublicKey
from safeser.pickles.stock import load_code
from safeser.values import SEALED, Limits

__all__ = [
    "Head",
    "SealedGraph",
    "is_sealed",
    "parse",
    "read_head",
    "read_statement",
    "reopened",
    "without_functions",
    "write_out",
]

_COMPRESSION = "zlib"

#: What a byte may become: heads of a large array are 90 times smaller, and a thousand times would
#: let a megabyte fill a scheduler's memory.
_MOST_EXPANDED = 256

#: Elements of all heads of one graph, in ``max_refs``: that is some 100,000 tasks for each. What a
#: scheduler keeps of a task beside them takes more memory, so that they are not what fills it.
_HEADS = 8

#: Bytes of the first frame that are checked: more than a statement may have.
_MOST_STATEMENT = 1 << 12

#: Frames after the statement: heads, trees, definitions, canonical digests, annotations.
_LISTS = 5

#: The place of the definitions among all frames.
_DEFINITIONS = 3

Sent = tuple[dict[str, Any], list[bytes]]

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Head:
    """What the scheduler reads of one task."""

    key: Any
    dependencies: tuple[Any, ...]
    flags: int
    digests: tuple[bytes, ...]
    plan: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class SealedGraph:
    """A graph whose statement covers all of its tasks; that it is signed is verified elsewhere.

    :param current: that statement, which may be renewed.
    :param heads: of the tasks, in the order of the leaves.
    :param definitions: each under its digest.
    :param canonical: canonical digests of definitions that have one, under their digests. Nothing
        vouches for them, and they count against their author alone.
    :param annotations: Dask's, by name and key; plain values. Nothing vouches for them.
    :param plans: of the shuffles whose barriers are among the tasks, by the barrier's place.
    """

    current: Current
    heads: tuple[Head, ...]
    leaves: tuple[Leaf, ...]
    definitions: Mapping[bytes, bytes]
    canonical: Mapping[bytes, bytes]
    annotations: dict[str, dict[Any, Any]]
    tree: MerkleTree
    plans: Mapping[int, ShuffleSpec]

    @property
    def signed(self) -> SignedStatement:
        return self.current.signed


# -- where it is written --------------------------------------------------------------------------


def write_out(
    expr: Any,
    identity: Identity,
    audience: PublicKey,
    limits: Limits,
    *,
    annotations: Mapping[str, Any] = _NONE,
    actors: bool | Collection[Any] | None = None,
    keys: set[Any] | None = None,
    definitions: Definitions | None = None,
) -> Sent:
    """Return *expr* written out into tasks and signed, as a header and frames.

    :param audience: key of the scheduler that it is submitted to.
    :param limits: those of the scheduler.
    :param annotations: of all tasks; those that are functions of keys are called here.
    :param actors: keys of tasks that return actors; True for all.
    :param keys: gets the keys of all tasks and of what they need.
    :param definitions: gets functions and values; those that pickle them where nothing is said.
    :raises PayloadError: that names the first task which cannot be written.
    :raises ConfigError: if *identity* has no signing key.
    """
    signer = identity.require_verifying()
    definitions, graph = definitions or Definitions(), secrets.token_bytes(GRAPH_ID_SIZE)
    writer = TaskWriter(definitions, limits)
    leaves = _leaves(expr, writer, actors, keys)
    tree = MerkleTree(leaf_hash(leaf_data(graph, leaf)) for leaf in leaves.values())
    now = int(time.time())
    statement = Statement(
        identity.principal, signer, audience, graph, tree.size, tree.root, now, now + LIFETIME
    )
    lists = [
        [leaf.head for leaf in leaves.values()],
        [leaf.tree for leaf in leaves.values()],
        list(definitions.by_digest.values()),
        definitions.canonical(),
        _grouped(_annotated(expr, leaves, annotations), leaves),
    ]
    sizes, frames = [], [statement.signed_by(identity).packed]
    for packed in map(writer.pack, lists):
        smaller = None if len(frames) == _DEFINITIONS else _smaller(packed)
        sizes.append(0 if smaller is None else len(packed))
        frames.append(packed if smaller is None else smaller)
    return {"serializer": SEALED, "sizes": sizes}, frames


def _smaller(packed: bytes) -> bytes | None:
    smaller = compression.compressed(packed, _COMPRESSION)
    expands = smaller is not None and len(packed) > _MOST_EXPANDED * len(smaller)
    return None if expands else smaller


def _leaves(
    expr: Any, writer: TaskWriter, actors: bool | Collection[Any] | None, keys: set[Any] | None
) -> dict[Any, Leaf]:
    leaves: dict[Any, Leaf] = {}
    named: Collection[Any] = () if isinstance(actors, bool | None) else set(actors)
    for key, node in convert_legacy_graph(dict(expr.__dask_graph__())).items():
        actor = actors is True or key in named
        try:
            leaves[key] = writer.write(key, _named_node(key, node), actor=actor)
        except PayloadError as error:
            raise unwritable(key, error) from error.__cause__
        if keys is not None and node.dependencies:
            keys.update(node.dependencies)
    if keys is not None:
        keys.update(leaves)
    return leaves


def _named_node(key: Any, node: GraphNode) -> GraphNode:
    """Return *node* by the name that its graph has for it; aliases may have another one."""
    if node.key == key:
        return node
    return Alias(key, node.target) if type(node) is Alias else node.substitute({}, key=key)


def is_sealed(graph: Any) -> bool:
    """Tell whether the payload that Dask's client sends is one of :func:`write_out`."""
    return isinstance(graph, Serialized) and graph.header.get("serializer") == SEALED


def without_functions(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of all tasks but for functions, which were called already."""
    return {name: value for name, value in annotations.items() if not callable(value)}


def _annotated(
    expr: Any, keys: Iterable[Any], annotations: Mapping[str, Any]
) -> dict[str, dict[Any, Any]]:
    """Return the annotations of each task; those of a layer go before those of all."""
    found = {
        name: {key: value(key) for key in keys}
        for name, value in annotations.items()
        if callable(value)
    }
    for name, of in expr.__dask_annotations__().items():
        found.setdefault(name, {}).update(of)
    return found


def _grouped(annotations: Mapping[str, Mapping[Any, Any]], leaves: Mapping[Any, Leaf]) -> list[Any]:
    """Return annotations as ``[name, value, [index of leaf, ...]]``: most tasks share theirs.

    :raises PolicyDenied: for a value that the scheduler would refuse.
    """
    if not annotations:
        return []
    places = {key: place for place, key in enumerate(leaves)}
    groups: dict[tuple[str, int], tuple[Any, list[int]]] = {}
    for name, of in annotations.items():
        for key, value in of.items():
            if key in places:
                if (name, id(value)) not in groups:
                    check_annotation(name, value)
                    groups[name, id(value)] = as_sent(value), []
                groups[name, id(value)][1].append(places[key])
    return [[name, value, indexes] for (name, _), (value, indexes) in groups.items()]


def as_sent(value: Any) -> Any:
    """Return a plain annotation as msgpack can say it: sets as lists."""
    if isinstance(value, list | tuple | set | frozenset):
        return [as_sent(each) for each in value]
    if isinstance(value, dict):
        return {key: as_sent(each) for key, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


# -- where it arrives -----------------------------------------------------------------------------


def parse(header: Mapping[str, Any], frames: Sequence[Any], limits: Limits) -> SealedGraph:
    """Return the graph that *frames* spell, if its statement is about exactly these tasks.

    :raises PayloadError: for anything else.
    """
    sizes = header.get("sizes")
    if type(sizes) is not tuple or len(sizes) != _LISTS or len(frames) != 1 + _LISTS:
        raise _malformed("its frames")
    signed = read_statement(frames)
    read = Reader(limits)
    heads, trees, definitions, canonical, annotations = (
        _as_list(read.read(each)) for each in _decompressed(sizes, frames[1:], limits)
    )
    if len(heads) != len(trees):
        raise _malformed("its leaves")
    leaves = tuple(starmap(Leaf, zip(_all_bytes(heads), _all_bytes(trees), strict=True)))
    parts = {digest(each): each for each in _all_bytes(definitions)}
    words = _canonical(parts, canonical)
    return _checked(signed, leaves, parts, annotations, limits, canonical=words)


def reopened(header: Mapping[str, Any], frames: Sequence[Any]) -> dict[Any, GraphNode]:
    """Return the tasks of a graph that this process wrote out, without verification."""
    read = Reader(DEFAULTS)
    lists = _decompressed(header["sizes"], frames[1:], DEFAULTS)
    heads, trees, definitions = (read.read(each) for each in lists[:3])
    parts = {digest(each): each for each in definitions}
    tasks = {}
    for head_data, tree in zip(heads, trees, strict=True):
        head = read_head(head_data, read)
        of = [parts[each] for each in head.digests]
        spelled = read.read(tree)
        tasks[head.key] = open_task(head.key, head.dependencies, spelled, of, load_code)
    return tasks


def _decompressed(sizes: Sequence[Any], frames: Sequence[Any], limits: Limits) -> list[Any]:
    """Return *frames* as they were before compression; all together are one message at most."""
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise _malformed("the sizes of its frames")
    views = [memoryview(frame).cast("B") for frame in frames]
    if any(size > _MOST_EXPANDED * view.nbytes for size, view in zip(sizes, views, strict=True)):
        raise _malformed("the sizes of its frames")
    total = sum(size or view.nbytes for size, view in zip(sizes, views, strict=True))
    if total > limits.max_bytes:
        raise PayloadError(
            f"the sealed graph takes {total} bytes, and messages here at most {limits.max_bytes}",
            rule="limit.max_bytes",
            fix="Raise limits.max_bytes in the policy, or scatter large values first.",
        )
    return [
        compression.decompressed(view, _COMPRESSION, size, where="expr_ser") if size else view
        for size, view in zip(sizes, views, strict=True)
    ]


def _as_list(value: Any) -> tuple[Any, ...]:
    if type(value) is not tuple:
        raise _malformed("its lists")
    return value


def _all_bytes(values: Sequence[Any]) -> Sequence[bytes]:
    if any(type(each) is not bytes for each in values):
        raise _malformed("its lists")
    return values


def _canonical(digests: Collection[bytes], words: Sequence[Any]) -> dict[bytes, bytes]:
    """Return the canonical digests that the author states, by definition."""
    if len(words) != len(digests) or any(
        each != NO_DIGEST and len(each) != DIGEST_SIZE for each in _all_bytes(words)
    ):
        raise _malformed("its canonical digests")
    return {each: word for each, word in zip(digests, words, strict=True) if word}


def _checked(
    signed: SignedStatement,
    leaves: tuple[Leaf, ...],
    definitions: Mapping[bytes, bytes],
    annotations: Sequence[Any],
    limits: Limits,
    *,
    canonical: Mapping[bytes, bytes],
) -> SealedGraph:
    statement = signed.statement
    if len(leaves) != statement.size:
        raise _malformed("its number of tasks")
    tree = MerkleTree(leaf_hash(leaf_data(statement.graph, leaf)) for leaf in leaves)
    if tree.root != statement.root:
        raise PayloadError(
            "the tasks of the sealed graph are not those that its author signed",
            rule="sealed.inclusion",
        )
    read = Reader(limits, left=_HEADS * limits.max_refs)
    heads = tuple(read_head(leaf.head, read) for leaf in leaves)
    check_hashes("a task's key", [head.key for head in heads])
    known = {head.key for head in heads}
    if len(known) != len(heads):
        raise _malformed("two tasks have one key")
    foreign = [each for head in heads for each in head.dependencies if each not in known]
    check_labels(foreign)
    if {each for head in heads for each in head.digests} != definitions.keys():
        raise _malformed("a definition is missing, or no task has it")
    named = _annotations(annotations, heads)
    plans = {
        place: read_plan(head.plan, limits)
        for place, head in enumerate(heads)
        if head.plan is not None
    }
    return SealedGraph(Current(signed), heads, leaves, definitions, canonical, named, tree, plans)


def read_statement(frames: Sequence[Any]) -> SignedStatement:
    """Return the statement of the graph that *frames* spell, before anything else of it is read.

    :raises PayloadError: if there is none.
    """
    if not frames:
        raise _malformed("its frames")
    return SignedStatement.parse(bytes(memoryview(frames[0])[:_MOST_STATEMENT]))


def read_head(data: bytes, read: Reader) -> Head:
    """Return the fields of *data*, the head of a leaf.

    :raises PayloadError: if it is none.
    """
    match read.read(data):
        case (key, tuple() as dependencies, int() as flags, bytes() as digests, *plan) if (
            len(plan) <= 1
            and None not in plan
            and is_key(key)
            and all(map(is_key, dependencies))
            and 0 <= flags <= FLAGS
            and type(flags) is int
            and not len(digests) % DIGEST_SIZE
        ):
            starts = range(0, len(digests), DIGEST_SIZE)
            read.charge(max(0, len(starts) - 1))  # most tasks have one
            parts = tuple(digests[at : at + DIGEST_SIZE] for at in starts)
            return Head(key, dependencies, flags, parts, *plan)
    raise _malformed("the head of a task")


def _annotations(groups: Sequence[Any], heads: Sequence[Head]) -> dict[str, dict[Any, Any]]:
    found: dict[str, dict[Any, Any]] = {}
    for group in groups:
        match group:
            case (str() as name, value, tuple() as places):
                pass
            case _:
                raise _malformed("its annotations")
        value = _with_lists(value)
        for place in places:
            if type(place) is not int or not 0 <= place < len(heads):
                raise _malformed("its annotations")
            found.setdefault(name, {})[heads[place].key] = value
    return found


def _with_lists(value: Any) -> Any:
    """Return what was read from msgpack with lists as lists, as most annotations have them."""
    if type(value) is tuple:
        return [_with_lists(each) for each in value]
    if type(value) is dict:
        return {key: _with_lists(each) for key, each in value.items()}
    return value


def _malformed(what: str) -> PayloadError:
    return PayloadError(f"a sealed graph is malformed: {what}", rule="sealed.graph")
