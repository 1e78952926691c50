"""Merkle trees over the tasks of a graph: one signature covers all, each is verified alone.

The construction is RFC 9162, section 2.1: leaves and nodes are hashed under different prefixes, and
a tree of *n* leaves is split at the largest power of two below *n*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

__all__ = ["HASH_SIZE", "MerkleTree", "leaf_hash", "longest_path", "root_from_path"]

#: Bytes of a hash: SHA-256.
HASH_SIZE = 32

_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of one leaf (RFC 9162, section 2.1.1)."""
    return hashlib.sha256(_LEAF + data).digest()


def _node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


class MerkleTree:
    """All levels of the tree over *leaves*, which are hashes; 64 bytes for each of them.

    A node without a sibling is carried up as it is, which gives RFC 9162's tree level by level.
    """

    __slots__ = ("_levels", "size")

    def __init__(self, leaves: Iterable[bytes]) -> None:
        level = list(leaves)
        self.size = len(level)
        self._levels = [level]
        while len(level) > 1:
            above = [_node_hash(level[at], level[at + 1]) for at in range(0, len(level) - 1, 2)]
            if len(level) % 2:
                above.append(level[-1])
            self._levels.append(above)
            level = above

    @property
    def root(self) -> bytes:
        return self._levels[-1][0] if self.size else hashlib.sha256().digest()

    def path(self, index: int) -> bytes:
        """Return the inclusion path of leaf *index*, its hashes one after the other."""
        if not 0 <= index < self.size:
            raise ValueError("no such leaf")
        found = []
        for level in self._levels[:-1]:
            sibling = index ^ 1
            if sibling < len(level):
                found.append(level[sibling])
            index >>= 1
        return b"".join(found)


def longest_path(size: int) -> int:
    """Return how many bytes an inclusion path in a tree of *size* leaves has at most."""
    return HASH_SIZE * (size - 1).bit_length()


def root_from_path(leaf: bytes, index: int, size: int, path: bytes) -> bytes | None:
    """Return the root to which *path* leads from *leaf*, or None if it has another length.

    RFC 9162, section 2.1.3.2: the caller compares the result with the root that was signed.

    :param leaf: the leaf's hash.
    """
    if not 0 <= index < size or len(path) % HASH_SIZE:
        return None
    hashes: Sequence[bytes] = [path[at : at + HASH_SIZE] for at in range(0, len(path), HASH_SIZE)]
    place, last, found = index, size - 1, leaf
    for each in hashes:
        if last == 0:
            return None
        if place & 1 or place == last:
            found = _node_hash(each, found)
            while not place & 1 and place:
                place >>= 1
                last >>= 1
        else:
            found = _node_hash(found, each)
        place >>= 1
        last >>= 1
    return found if last == 0 else None
