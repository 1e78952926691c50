"""Merkle trees over the tasks of a graph: one signature covers all, each is verified alone.

The construction is RFC 9162, section 2.1: leaves and nodes are hashed under different prefixes, and
a tree of *n* leaves is split at the largest power of two below *n*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from safeser.gate.format import Buffer

__all__ = ["HASH_SIZE", "Inclusion", "MerkleTree", "leaf_hash", "longest_path"]

#: Bytes of a hash: SHA-256.
HASH_SIZE = 32

_LEAF, _NODE = b"\x00", b"\x01"

#: A node on a path: its place from the left, that of the last node of its level, and its hash.
_Node = tuple[int, int, bytes]


def leaf_hash(*parts: Buffer) -> bytes:
    """Return the hash of one leaf, whose *parts* are not copied (RFC 9162, section 2.1.1)."""
    made = hashlib.sha256(_LEAF)
    for part in parts:
        made.update(part)
    return made.digest()


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


class Inclusion:
    """Tells which leaves are in the tree of *size* leaves under *root*, by their inclusion paths.

    It remembers the last path that led to the root, and climbs another one only until it joins it:
    neighbours share most of theirs. Threads may share it.
    """

    __slots__ = ("_climbed", "_root", "_size")

    def __init__(self, root: bytes, size: int) -> None:
        self._root = root
        self._size = size
        # The nodes below the root on the last path, and the path.
        self._climbed: tuple[tuple[_Node, ...], bytes] = (), b""

    def covers(self, leaf: bytes, index: int, path: bytes) -> bool:
        """Tell whether *path* leads from *leaf*, a leaf's hash, at place *index*, to the root.

        RFC 9162, section 2.1.3.2.
        """
        if not 0 <= index < self._size or len(path) % HASH_SIZE:
            return False
        known, known_path = self._climbed
        climbed: list[_Node] = []
        place, last, found = index, self._size - 1, leaf
        for at in range(0, len(path), HASH_SIZE):
            if last == 0:
                return False
            node, left = (place, last, found), (len(path) - at) // HASH_SIZE
            if left <= len(known) and node == known[-left] and known_path.endswith(path[at:]):
                self._climbed = (*climbed, *known[-left:]), path
                return True
            climbed.append(node)
            sibling = path[at : at + HASH_SIZE]
            if place & 1 or place == last:
                found = _node_hash(sibling, found)
                while not place & 1 and place:
                    place >>= 1
                    last >>= 1
            else:
                found = _node_hash(found, sibling)
            place >>= 1
            last >>= 1
        if last or found != self._root:
            return False
        self._climbed = tuple(climbed), path
        return True
