"""Sparse matrices and search trees in pickles: what points outside, by the rule that refuses.

The one rule: a row differs from an honest value in what its name says.
"""

from __future__ import annotations

import pickle

import numpy as np
from scipy import sparse as sp
from scipy import spatial, stats

from tests.samples.opcodes import build, new

DENSE = np.array([[1, 0, 2.5], [0, 0, 3]])
CSR, COO, LIL, DOK = (getattr(sp, f"{kind}_array")(DENSE) for kind in ("csr", "coo", "lil", "dok"))
CSC, DIA = sp.csc_array(DENSE), sp.dia_array(np.eye(3))
BSR = sp.bsr_array(np.ones((4, 6)), blocksize=(2, 3))


def inner(value):
    """Return the opcodes that leave *value* on the stack, without frames."""
    return pickle.dumps(value, 3)[2:-1]


def forged(kind, state):
    return build(new(f"{kind.__module__}:{kind.__qualname__}"), inner(state))


def fields(value, **changes):
    made = {**value.__dict__, **changes}
    return {name: part for name, part in made.items() if part is not None}


def changed(value, **changes):
    """Return *value* with other fields; None leaves one out."""
    return forged(type(value), fields(value, **changes))


def reconstructed(kind, base, content, state):
    """Return the opcodes of protocol 0's constructor; *content* is an empty dict or list."""
    parts = [f"c{part.__module__}\n{part.__qualname__}\n".encode() for part in (kind, base)]
    begun = b"(" + b"".join(parts) + (b"}" if content == {} else b"]") + b"tR"
    return b"ccopyreg\n_reconstructor\n" + begun + inner(state) + b"b"


def dok(**changes):
    return reconstructed(sp.dok_array, dict, {}, fields(DOK, **changes))


def ints(*values, dtype="i4"):
    return np.array(values, dtype)


def lists(*parts):
    made = np.empty(len(parts), object)
    made[:] = parts
    return made


def tree(at, part, points=4):
    """Return a search tree of *points* with another *part* of its state."""
    boxed = {} if points == 4 else {"leafsize": 2, "boxsize": 50.0}
    made = spatial.cKDTree(np.arange(2.0 * points).reshape(points, 2), **boxed)
    state = list(made.__getstate__())
    state[at] = part(state[at]) if callable(part) else part
    return forged(spatial.cKDTree, tuple(state))


def last_is_32(part):
    part = part.copy()
    part[-1:] = 32
    return part


#: Where a number or an index is believed, it points outside of the tree.
BROKEN = (last_is_32, lambda part: part[1:], lambda part: part.reshape(1, -1), None)
BROKEN += (lambda part: part.tobytes(),)

# fmt: off
HOSTILE = {
    "pickle.arguments": {
        "a search tree of no state": build(new("scipy.spatial._ckdtree:cKDTree"), None),
        "a matrix of no state": build(new("scipy.sparse._csr:csr_array"), None),
        "keys: no dict": dok(_dict=[]),
        "keys: of one": dok(_dict={0: 1.0}),
        "lists: of tuples": changed(LIL, data=lists((1.0, 2.5), (3.0,))),
        "coordinates: a list": changed(COO, coords=[ints(0, 0, 1), ints(0, 2, 2)]),
        "flag of numbers": changed(CSR, _has_sorted_indices=1),
        "a list for a shape": changed(CSR, _shape=[2, 3]),
        "no array": changed(CSR, indices=[0, 2, 2]),
        "shape of truth": changed(CSR, _shape=(2, True)),
        "lists: of floats": changed(LIL, rows=lists([0.0, 2.0], [2])),
        "lists: of times": changed(LIL, data=lists([np.datetime64("2026"), 1.0], [3.0])),
        "keys: of three": dok(_dict={(0, 0, 0): 1.0}),
        "keys: objects": dok(_dict={(0, 0): "text"}),
        "set by protocol 0's constructor": reconstructed(set, dict, {}, {}),
        "keys in a list": reconstructed(sp.dok_array, dict, [], fields(DOK)),
        "a matrix with an argument": new("scipy.sparse._csr:csr_array", 1),
        "a search tree with an argument": new("scipy.spatial._ckdtree:cKDTree", 1),
    },
    "pickle.global": {
        "a distribution, whose state is source that SciPy runs": stats.norm(1, 2),
        "a compressed array by protocol 0's constructor": reconstructed(sp.csr_array, dict, {}, {}),
    },
    "pickle.state": {
        "method": changed(CSR, toarray=1),
    },
    "pickle.unfinished": {
        "a matrix without its state": new("scipy.sparse._csr:csr_array"),
        "a search tree without its state": new("scipy.spatial._ckdtree:cKDTree"),
    },
    "value.scipy": {
        "lists: object dtype": changed(LIL, dtype=np.dtype(object)),
        "diagonals: flat": changed(DIA, data=np.ones(3)),
        "a large tree that may be a thousand levels deep": spatial.cKDTree(np.random.default_rng(
            0).random((5000, 2)), balanced_tree=False),
        "index beyond": changed(CSR, indices=ints(0, 2, 3)),
        "index below": changed(CSR, indices=ints(0, -1, 2)),
        "indptr falls": changed(CSR, indptr=ints(0, 3, 2)),
        "indptr beyond": changed(CSR, indptr=ints(0, 2, 9)),
        "indptr starts late": changed(CSR, indptr=ints(1, 2, 3)),
        "indptr empty": changed(CSR, indptr=ints()),
        "data short": changed(CSR, data=np.ones(2)),
        "data of objects": changed(CSR, data=np.array([1, 2, 3], object)),
        "data of two dimensions": changed(CSR, data=np.ones((3, 1))),
        "indices of floats": changed(CSR, indices=np.array([0.0, 2.0, 2.0])),
        "indices short ints": changed(CSR, indices=ints(0, 2, 2, dtype="i2")),
        "indices of two widths": changed(CSR, indices=ints(0, 2, 2, dtype="i8")),
        "shape too small": changed(CSR, _shape=(2, 2)),
        "shape negative": changed(CSR, _shape=(2, -3)),
        "shape huge": changed(CSR, _shape=(2, 1 << 64)),
        "shape empty": changed(CSR, _shape=()),
        "field missing": changed(CSR, data=None),
        "flag lies": changed(CSR, indices=ints(2, 0, 2), _has_sorted_indices=True),
        "canonical lies": changed(CSR, indices=ints(2, 2, 2), _has_canonical_format=True),
        "coordinates: index beyond": changed(COO, coords=(ints(0, 0, 2), ints(0, 2, 2))),
        "coordinates: too few axes": changed(COO, coords=(ints(0, 0, 1),)),
        "coordinates: too few indexes": changed(COO, coords=(ints(0, 0), ints(0, 2))),
        "coordinates: two widths": changed(COO, coords=(ints(0, 0, 1), ints(0, 2, 2, dtype="i8"))),
        "coordinates: twice": changed(COO, coords=(ints(0, 0, 0), ints(0, 2, 2)),
            has_canonical_format=True),
        "coordinates: dimensions": changed(COO, _shape=(1,) * 65, coords=(ints(0),) * 65,
            data=np.ones(1)),
        "diagonals: far": changed(DIA, offsets=ints(2**31 - 1)),
        "diagonals: twice": changed(DIA, offsets=ints(0, 0), data=np.ones((2, 3))),
        "diagonals: too few": changed(DIA, offsets=ints()),
        "diagonals: wide": changed(DIA, _shape=(3, 1 << 40)),
        "lists: beyond": changed(LIL, rows=lists([0, 3], [2])),
        "lists: below": changed(LIL, rows=lists([-1, 2], [2])),
        "lists: falls": changed(LIL, rows=lists([2, 0], [2])),
        "lists: uneven": changed(LIL, rows=lists([0, 1, 2], [2])),
        "lists: short": changed(LIL, rows=lists([0, 2])),
        "lists: no dtype": changed(LIL, dtype="f8"),
        "keys: beyond": dok(_dict={(0, 3): 1.0}),
        "keys: below": dok(_dict={(0, -1): 1.0}),
        "keys: three dimensions": dok(_shape=(1, 1, 1), _dict={}),
        "keys: object dtype": dok(dtype=np.dtype(object)),
        "three dimensions of a compressed array": changed(CSR, _shape=(2, 3, 1)),
        "columns count for csc": changed(CSC, indices=ints(0, 0, 2)),
        "blocks do not fill (4, 7)": changed(BSR, _shape=(4, 7)),
        "blocks do not fill (5, 6)": changed(BSR, _shape=(5, 6)),
    },
}

#: Of these, the arguments say what is wrong.
UNNAMED = {
    "pickle.arguments": [
        tree(1, np.full((4, 2), np.nan)), tree(4, "16"), tree(8, np.array([-1.0, 1.0])),
        tree(8, np.ones(3)), tree(8, 1.0),
    ],
    "value.scipy": [
        tree(1, np.zeros(4)), tree(1, np.zeros((4, 2), "i8")), tree(1, np.zeros((4, 0))),
        tree(4, 0), *(tree(at, part, 20) for at in (0, 5, 6, 7, 9) for part in BROKEN),
        *(tree(at, part, 20) for at in (2, 3) for part in (lambda part: part + 1, float, None)),
    ],
}

#: What the helpers make by default, and older forms.
ACCEPTED = [
    changed(CSR), changed(COO), changed(CSC), changed(DIA), changed(BSR), changed(LIL), dok(),
    # The form before SciPy 1.13.
    changed(sp.coo_matrix(DENSE), coords=None, row=COO.row, col=COO.col),
]
# fmt: on
