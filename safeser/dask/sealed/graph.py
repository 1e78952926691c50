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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np
from dask._task_spec import Alias, DataNode, GraphNode, convert_legacy_graph
from distributed.protocol.serialize import Serialized
from distributed.shuffle._core import ShuffleSpec

from safeser.dask.contents.opened_graph import check_plain
from safeser.dask.contents.shuffle_plans import read_plan
from safeser.dask.sealed.definitions import DIGEST_SIZE, NO_DIGEST, Definitions, digest
from safeser.dask.sealed.form import is_key, key_elements
from safeser.dask.sealed.merkle import MerkleTree, leaf_hash
from safeser.dask.sealed.opening import open_task, under
from safeser.dask.sealed.statement import (
    GRAPH_ID_SIZE,
    LIFETIME,
    MOST_PACKED,
    SignedStatement,
    Statement,
)
from safeser.dask.sealed.writing import (
    FLAGS,
    Leaf,
    TaskWriter,
    leaf_parts,
    require_own_plan,
    unwritable,
)
from safeser.dask.wire.reader import Reader, check_hashes
from safeser.dask.wire.structure import (
    DEFINITIONS,
    byte_strings,
    malformed_graph,
    most_elements,
    most_structure,
    structure_of,
    too_much,
)
from safeser.errors import PayloadError
from safeser.families import compression
from safeser.families.keys import check_labels
from safeser.families.plain import DEFAULTS
from safeser.gate.format import Buffer
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import SEALED, Limits
from safeser.identity import Identity
from safeser.pickles.stock import load_code

_COMPRESSION = "zlib"

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

    :param signed: that statement.
    :param heads: of the tasks, in the order of the leaves.
    :param definitions: each under its digest.
    :param canonical: canonical digests of definitions that have one, under their digests. Nothing
        vouches for them, and they count against their author alone.
    :param annotations: Dask's, by name and key; plain values. Nothing vouches for them.
    :param plans: of the shuffles whose barriers are among the tasks, by the barrier's place.
    """

    signed: SignedStatement
    heads: tuple[Head, ...]
    leaves: tuple[Leaf, ...]
    definitions: Mapping[bytes, bytes]
    canonical: Mapping[bytes, bytes]
    annotations: dict[str, dict[Any, Any]]
    tree: MerkleTree
    plans: Mapping[int, ShuffleSpec]


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
    values: Mapping[Any, DataNode] = _NONE,
) -> Sent:
    """Return *expr* written out into tasks and signed, as a header and frames.

    :param audience: key of the scheduler that it is submitted to.
    :param limits: those of the scheduler.
    :param annotations: of all tasks; those that are functions of keys are called here.
    :param actors: keys of tasks that return actors; True for all.
    :param keys: gets the keys of all tasks and of what they need.
    :param definitions: gets functions and values; those that pickle them where nothing is said.
    :param values: what stands in tasks in place of results of these keys.
    :raises PayloadError: that names the first task which cannot be written.
    :raises ConfigError: if *identity* has no signing key.
    """
    signer = identity.require_verifying()
    definitions, graph = definitions or Definitions(), secrets.token_bytes(GRAPH_ID_SIZE)
    tasks = convert_legacy_graph(dict(expr.__dask_graph__()))
    if values := {key: node for key, node in values.items() if key not in tasks}:
        tasks = {
            key: node if isinstance(node, Alias) else node.substitute(values)
            for key, node in tasks.items()
        }
    if keys is not None:
        keys.update(tasks, *(node.dependencies for node in tasks.values() if node.dependencies))
    most = most_structure(len(tasks))
    names = {key: key for key in tasks}
    leaves = _leaves(tasks, TaskWriter(definitions, limits, names), actors)
    if sum(len(leaf.head) + len(leaf.tree) for leaf in leaves.values()) > most:
        definitions.by_digest.clear()
        leaves = _leaves(tasks, TaskWriter(definitions, limits, names, compact=True), actors)
    tree = MerkleTree(leaf_hash(*leaf_parts(graph, *leaf)) for leaf in leaves.values())
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
    sizes: list[int] = []
    frames = [statement.signed_by(identity).packed]
    for place, packed in enumerate(map(msgpack.Packer(use_bin_type=True).pack, lists)):
        smaller = None if place == DEFINITIONS else compression.compressed(packed, _COMPRESSION)
        sizes.append(0 if smaller is None else len(packed))
        frames.append(packed if smaller is None else smaller)
    header = {"serializer": SEALED, "sizes": tuple(sizes)}
    if structure_of(header, frames) > most:
        raise too_much("the graph has", most)
    return header, frames


def _leaves(
    tasks: Mapping[Any, GraphNode], writer: TaskWriter, actors: bool | Collection[Any] | None
) -> dict[Any, Leaf]:
    leaves: dict[Any, Leaf] = {}
    named: Collection[Any] = () if isinstance(actors, bool | None) else set(actors)
    for key, node in tasks.items():
        actor = actors is True or key in named
        try:
            leaves[key] = writer.write(key, under(key, node), actor=actor)
        except PayloadError as error:
            raise unwritable(key, error) from error.__cause__
    return leaves


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
                    check_plain(value)
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
    structure = structure_of(header, frames)
    signed = read_statement(frames)
    statement = signed.statement
    if structure > (most := most_structure(statement.size)):
        raise too_much(f"a sealed graph of {statement.size} tasks has", most)
    Reader(limits).charge(2 * statement.size)  # each has a head and a tree
    lists = _Lists(header["sizes"], frames[1:], limits)
    # 1. The root, over views of what was decompressed.
    both = lists[0], lists[1]
    pairs = zip(*(_leaf_parts(each, statement.size) for each in both), strict=True)
    tree = MerkleTree(leaf_hash(*leaf_parts(statement.graph, *pair)) for pair in pairs)
    if tree.root != statement.root:
        raise PayloadError(
            "the tasks of the sealed graph are not those that its author signed",
            rule="sealed.inclusion",
        )
    # 2. What the author signed: what the heads of all leaves say, and the leaves.
    parsed = _heads(_leaf_parts(both[0], tree.size), tree.size, limits)
    parts = (map(bytes, _leaf_parts(each, tree.size)) for each in both)
    leaves = tuple(starmap(Leaf, zip(*parts, strict=True)))
    # 3. Definitions, by the digests that heads name; copied once all are known to be such.
    named = {each for head in parsed for each in head.digests}
    wrong = "a definition is missing, or no task has it"
    found = {digest(each): each for each in byte_strings(lists[2], len(named), wrong)}
    if found.keys() != named:
        raise malformed_graph(wrong)
    definitions = {name: bytes(each) for name, each in found.items()}
    # 4. What nothing vouches for.
    wrong = "its canonical digests"
    words = map(bytes, byte_strings(lists[3], len(definitions), wrong))
    canonical = dict(zip(definitions, words, strict=True))
    if any(word != NO_DIGEST and len(word) != DIGEST_SIZE for word in canonical.values()):
        raise malformed_graph(wrong)
    annotations = Reader(limits).read(lists[4])
    if type(annotations) is not tuple:
        raise malformed_graph("its lists")
    return SealedGraph(
        signed,
        parsed,
        leaves,
        definitions,
        {each: word for each, word in canonical.items() if word},
        _annotations(annotations, parsed, limits),
        tree,
        {place: plan for place, head in enumerate(parsed) if (plan := barrier_plan(head, limits))},
    )


def reopened(header: Mapping[str, Any], frames: Sequence[Any]) -> dict[Any, GraphNode]:
    """Return the tasks of a graph that this process wrote out, without verification."""
    lists, read = _Lists(header["sizes"], frames[1:], DEFAULTS), Reader(DEFAULTS)
    heads, trees, definitions = (read.read(lists[place]) for place in range(3))
    parts = {digest(each): each for each in definitions}
    tasks = {}
    for head_data, tree in zip(heads, trees, strict=True):
        head = read_head(head_data, read)
        of = [parts[each] for each in head.digests]
        spelled = read.read(tree)
        tasks[head.key] = open_task(head.key, head.dependencies, spelled, of, load_code)
    return tasks


class _Lists:
    """The lists of a graph, each decompressed when it is asked for; together one message at most.

    :param sizes: that they had before compression; 0 for those that have none.
    """

    def __init__(self, sizes: Sequence[int], frames: Sequence[Any], limits: Limits) -> None:
        self._sizes = sizes
        self._views = [memoryview(frame).cast("B") for frame in frames]
        total = sum(size or each.nbytes for size, each in zip(sizes, self._views, strict=True))
        if total > limits.max_bytes:
            raise PayloadError(
                f"the sealed graph takes {total} bytes, and messages here at most"
                f" {limits.max_bytes}",
                rule="limit.max_bytes",
                fix="Raise limits.max_bytes in the policy, or scatter large values first.",
            )

    def __getitem__(self, place: int) -> memoryview:
        size, view = self._sizes[place], self._views[place]
        if not size:
            return view
        whole = compression.decompressed(view, _COMPRESSION, size, where="expr_ser")
        return memoryview(whole)


def _leaf_parts(data: memoryview, count: int) -> Iterator[memoryview]:
    return byte_strings(data, count, "its leaves are another number of tasks than was signed")


def _heads(packed: Iterable[Buffer], count: int, limits: Limits) -> tuple[Head, ...]:
    """Return what the heads of all leaves of one graph, of which there are *count*, say."""
    read = Reader(limits, left=most_elements(count, limits.elements))
    heads = tuple([read_head(each, read) for each in packed])
    # The hashes of text are this process's own secret.
    check_hashes("a task's key", [each.key for each in heads if type(each.key) is not str])
    known = {head.key for head in heads}
    if len(known) != len(heads):
        raise malformed_graph("two tasks have one key")
    check_labels([each for head in heads for each in head.dependencies if each not in known])
    return heads


def barrier_plan(head: Head, limits: Limits) -> ShuffleSpec | None:
    """Return the plan of the shuffle whose barrier *head* is of, if it is one's.

    :raises PayloadError: if its plan is none, or that of another shuffle.
    """
    if head.plan is None:
        return None
    plan = read_plan(head.plan, limits)
    require_own_plan(head.key, plan)
    return plan


def read_statement(frames: Sequence[Any]) -> SignedStatement:
    """Return the statement of the graph that *frames* spell, before anything else of it is read.

    :raises PayloadError: if there is none.
    """
    if not frames:
        raise malformed_graph("its frames")
    return SignedStatement.parse(bytes(memoryview(frames[0])[: MOST_PACKED + 1]))


def read_head(data: Buffer, read: Reader) -> Head:
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
    raise malformed_graph("the head of a task")


def _annotations(
    groups: Sequence[Any], heads: Sequence[Head], limits: Limits
) -> dict[str, dict[Any, Any]]:
    found: dict[str, dict[Any, Any]] = {}
    # A place stands for a key, and a tuple is hashed anew each time.
    read = Reader(limits, left=most_elements(len(heads), limits.elements))
    elements = [key_elements(head.key) for head in heads]
    for group in groups:
        match group:
            case (str() as name, value, tuple() as places):
                pass
            case _:
                raise malformed_graph("its annotations")
        value = _with_lists(value)
        for place in places:
            if type(place) is not int or not 0 <= place < len(heads):
                raise malformed_graph("its annotations")
            read.charge(elements[place])
            found.setdefault(name, {})[heads[place].key] = value
    return found


def _with_lists(value: Any) -> Any:
    """Return what was read from msgpack with lists as lists, as most annotations have them."""
    if type(value) is tuple:
        return [_with_lists(each) for each in value]
    if type(value) is dict:
        return {key: _with_lists(each) for key, each in value.items()}
    return value
