"""SciPy's sparse matrices of every format."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy import sparse


def examples() -> dict[str, object]:
    dense = np.array([[0, 1, 2.5, 0], [3, 0, 0, 0], [0, 0, 0, 4], [0, 0, 0, 0]])
    made: dict[str, object] = {
        name: getattr(sparse, f"{name}_array")(dense)
        for name in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    }
    sorted_ = sparse.csr_matrix(dense.astype("f4"))
    sorted_.sum_duplicates()
    made["csr-matrix-canonical"] = sorted_
    made["bsr-blocks"] = sparse.bsr_matrix(dense, blocksize=(2, 2))
    made |= {
        f"{name}-matrix": getattr(sparse, f"{name}_matrix")(dense)
        for name in ("coo", "csc", "dia", "dok", "lil")
    }
    made["coo-3d"] = sparse.coo_array(np.arange(8.0).reshape(2, 2, 2))
    made["csr-1d"] = sparse.csr_array(np.array([0, 1, 0, 2]))
    return made


DENSE = np.array([[0, 1, 2.5, 0], [3, 0, 0, 0], [0, 0, 0, 0]])
FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def others() -> Iterator[object]:
    """Yield more honest values."""
    for name, kind in itertools.product(FORMATS, ("array", "matrix")):
        cls = getattr(sparse, f"{name}_{kind}")
        for dtype in ("f8", "f4", "i8", "u1", "?", "c16", "g"):
            made = cls(DENSE.astype(dtype))
            made.maxprint = 7
            yield made
        yield from (cls(shape) for shape in ((0, 3), (3, 0), (1, 1)))
    for name in ("coo", "csr", "dok"):
        yield getattr(sparse, f"{name}_array")(np.array([0, 3, 0, 5]))
    yield sparse.coo_array(np.arange(24.0).reshape(2, 3, 4))
    for summed in (False, True):
        parts = (np.ones(3), np.array([2, 0, 0]), np.array([0, 2, 3]))
        unsorted = sparse.csr_array(parts, shape=(2, 3))
        assert not unsorted.has_sorted_indices
        if summed:
            unsorted.sum_duplicates()
        yield unsorted
    far = (np.ones(1), np.array([1 << 40]), np.array([0, 1]))
    yield sparse.csr_array(far, shape=(1, 1 << 41))
    yield sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(2, 2))
    keyed = sparse.dok_array(DENSE)
    keyed[2, 3] = 4
    assert {type(part) for key in keyed._dict for part in key} == {int, np.int32}
    yield keyed
    rows = sparse.lil_array((3, 3), dtype="f4")
    rows[0, 1] = 2
    rows.data[1].append(3.0)
    rows.rows[1].append(0)
    yield rows
