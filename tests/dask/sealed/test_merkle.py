"""The Merkle tree of a sealed graph: Certificate Transparency's vectors, and every altered proof.

The eight leaves, roots and paths are those of the reference implementation of RFC 6962
(certificate-transparency, merkletree/merkle_tree_test.cc); RFC 9162 keeps the construction.
"""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.sealed.merkle import (
    HASH_SIZE,
    Inclusion,
    MerkleTree,
    leaf_hash,
    longest_path,
)

LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]

#: Of the first n leaves, for n from 1.
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]

#: (leaf counted from 0, size of the tree, its path).
PATHS = [
    (0, 1, []),
    (
        0,
        8,
        [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ],
    ),
    (
        5,
        8,
        [
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ],
    ),
    (2, 3, ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"]),
    (
        1,
        5,
        [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        ],
    ),
]


def tree_of(leaves: list[bytes]) -> MerkleTree:
    return MerkleTree(map(leaf_hash, leaves))


def root_of(leaves: list[bytes]) -> bytes:
    """Return the root as RFC 9162, section 2.1.1, defines it: by recursion."""
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    halves = root_of(leaves[:split]) + root_of(leaves[split:])
    return hashlib.sha256(b"\x01" + halves).digest()


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_are_those_of_certificate_transparency(size):
    assert tree_of(LEAVES[:size]).root.hex() == ROOTS[size - 1]


@pytest.mark.parametrize(("index", "size", "path"), PATHS)
def test_paths_are_those_of_certificate_transparency(index, size, path):
    found = tree_of(LEAVES[:size]).path(index)
    assert found.hex() == "".join(path)
    root = bytes.fromhex(ROOTS[size - 1])
    assert Inclusion(root, size).covers(leaf_hash(LEAVES[index]), index, found)


@pytest.mark.parametrize("size", [*range(1, 70), 300])
def test_every_path_leads_to_the_root_that_recursion_gives(size):
    leaves = [number.to_bytes(2, "big") for number in range(size)]
    tree = tree_of(leaves)
    assert tree.root == root_of(leaves)
    for index, leaf in enumerate(leaves):
        path = tree.path(index)
        assert len(path) <= longest_path(size)
        assert Inclusion(tree.root, size).covers(leaf_hash(leaf), index, path)
    for index in reversed(range(0, size, 7)):
        assert tree.path(index) == tree_of(leaves).path(index)


def test_an_empty_tree_has_the_root_of_the_rfc_and_no_other_leaf_has_a_path():
    assert MerkleTree([]).root == hashlib.sha256().digest()
    tree = tree_of(LEAVES[:3])
    for index in (-1, 3, 1 << 70):
        with pytest.raises(ValueError, match="no such"):
            tree.path(index)


@given(data=st.data())
def test_no_altered_proof_verifies(data):
    """Whether nothing was climbed before, or the leaf itself, or its neighbours."""
    size = data.draw(st.integers(1, 300))
    index = data.draw(st.integers(0, size - 1))
    leaves = [number.to_bytes(2, "big") for number in range(size)]
    tree = tree_of(leaves)
    path, leaf, root = tree.path(index), leaf_hash(leaves[index]), tree.root
    tried = Inclusion(root, size)
    for before in data.draw(st.lists(st.integers(0, size - 1), max_size=3)):
        assert tried.covers(leaf_hash(leaves[before]), before, tree.path(before))
    other = data.draw(st.integers(-3, size + 3).filter(lambda each: each != index))
    assert not tried.covers(leaf, other, path)
    assert not tried.covers(leaf_hash(b"other"), index, path)
    if path:
        place = data.draw(st.integers(0, len(path) * 8 - 1))
        flipped = bytearray(path)
        flipped[place // 8] ^= 1 << place % 8
        assert not tried.covers(leaf, index, bytes(flipped))
        assert not tried.covers(leaf, index, path[:-HASH_SIZE])
        assert not tried.covers(leaf, index, path[:-1])
    assert not tried.covers(leaf, index, path + root)
    assert not tried.covers(leaf, index, path + b"\x00")
    # Another size that takes a path of another length, or leads elsewhere. (A path alone does not
    # tell all sizes apart; the statement signs the size beside the root.)
    assert not Inclusion(root, 2 * size).covers(leaf, index, path) or size == index + 1
    assert tried.covers(leaf, index, path)


def test_a_node_is_no_leaf():
    tree = tree_of(LEAVES[:2])
    joined = leaf_hash(LEAVES[0]) + leaf_hash(LEAVES[1])
    assert leaf_hash(joined) != tree.root
