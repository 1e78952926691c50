"""SciPy's sparse matrices of every format."""

from __future__ import annotations


def examples() -> dict[str, object]:
    import numpy as np
    from scipy import sparse

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
