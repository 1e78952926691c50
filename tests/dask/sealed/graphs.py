"""The least that a graph must be for its author to write it out, and graphs as liars write them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgpack

from safeser.dask.sealed.graph import write_out
from safeser.dask.sealed.merkle import MerkleTree, leaf_hash
from safeser.dask.sealed.statement import LIFETIME, Statement
from safeser.dask.sealed.writing import leaf_parts
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import Limits
from safeser.identity import Identity


class Graph:
    """Tasks and annotations, as an expression of Dask's has them."""

    def __init__(
        self, tasks: Mapping[Any, Any], annotations: Mapping[str, Mapping[Any, Any]] | None = None
    ) -> None:
        self._tasks = tasks
        self._annotations = annotations or {}

    def __dask_graph__(self) -> Mapping[Any, Any]:
        return self._tasks

    def __dask_annotations__(self) -> Mapping[str, Mapping[Any, Any]]:
        return self._annotations


def written(
    tasks: Mapping[Any, Any], author: Identity, audience: PublicKey, **options: Any
) -> tuple[dict[str, Any], list[bytes]]:
    """Return *tasks* as a client of *author* writes them out: a header and frames."""
    return write_out(Graph(tasks), author, audience, Limits(), **options)


def statement_of(author: Identity, audience: PublicKey, tree: MerkleTree, **changed: Any) -> bytes:
    """Return a signed statement about *tree*, as its author may say it."""
    assert author.verifying is not None
    now = int(time.time())
    whole = Statement(
        author.principal,
        author.verifying,
        audience,
        GRAPH,
        tree.size,
        tree.root,
        now,
        now + LIFETIME,
    )
    return replace(whole, **changed).signed_by(author).packed


GRAPH = bytes(range(16))

_PRIME = (1 << 61) - 1
#: Keys of one hash.
COLLIDING = [
    [a * _PRIME, b * _PRIME, c * _PRIME] for a in range(8) for b in range(8) for c in range(8)
]


def forged(
    author: Identity,
    audience: PublicKey,
    leaves: Sequence[tuple[Any, Any]],
    definitions: Any = (),
    annotations: Any = (),
    canonical: Any = None,
    **changed: Any,
) -> tuple[dict[str, Any], list[bytes]]:
    """Return a graph as a hostile author writes it: all of it signed, none of it honest.

    :param leaves: heads and trees, as values that are packed or as bytes that are packed already.
    :param canonical: digests of definitions; none of any by default.
    """
    packed = [tuple(map(in_bytes, leaf)) for leaf in leaves]
    tree = MerkleTree(leaf_hash(*leaf_parts(GRAPH, *leaf)) for leaf in packed)
    words = [b""] * len(definitions) if canonical is None else canonical
    bodies = [body for _, body in packed]
    lists = [[head for head, _ in packed], bodies, definitions, words, annotations]
    frames = [statement_of(author, audience, tree, **changed), *map(in_bytes, lists)]
    return {"serializer": "sealed", "sizes": (0,) * len(lists)}, frames


def head(
    key: Any = "x", dependencies: Any = (), flags: Any = 0, digests: Any = b"", *plan: Any
) -> list[Any]:
    """Return a head as :func:`forged` takes it."""
    return [key, list(dependencies), flags, digests, *plan]


def in_bytes(value: Any) -> bytes:
    packed: bytes = value if type(value) is bytes else msgpack.packb(value, use_bin_type=True)
    return packed
