"""SciPy's sparse matrices whose indexes would lead compiled code astray."""

from __future__ import annotations

import copyreg

import numpy as np
from scipy import sparse

from safeser.families.science import sparse as form
from tests.pickles.forging import Called, New
from tests.samples.typed import hostile, payload, replaced, sent, sent_as
from tests.samples.values.sparse import DENSE

#: What a tree has of each format, as the cases below number it.
FIELDS = {
    "csr": ("data", "indices", "indptr"), "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "coords", "coords"), "dia": ("data", "offsets"),
    "lil": ("lengths", "columns", "values"), "dok": ("keys", "kinds", "values"),
}  # fmt: skip


def state_of(x):
    """Return what pickle is told of *x*: what makes it, and its state."""
    return form.reducers()[type(x)](x)


def forged(x, parts):
    """Return the payload of *x* with other arrays at the positions named."""
    make, args, state = state_of(x)
    for position, part in parts.items():
        field = FIELDS[x.format][int(position[1:])]
        if field == "coords":
            coords = list(state[field])
            coords[int(position[1:]) - 1] = part
            part = tuple(coords)
        state[field] = part
    return sent_as(f"scipy.sparse:{type(x).__name__}", made_of(x, make, args, state))


def made_of(x, make, args, state):
    new = make is copyreg.__newobj__
    return New(type(x), state) if new else Called(make, *args, state=state)


def ints(*numbers, dtype="i4"):
    return np.array(numbers, dtype)


CSR = sparse.csr_array(DENSE)
COO = sparse.coo_array(DENSE)
BSR = sparse.bsr_array(np.ones((4, 4)), blocksize=(2, 2))
DIA = sparse.dia_array(DENSE)
LIL = sparse.lil_array(DENSE)
DOK = sparse.dok_array(DENSE)

INDEXES = {
    "value.scipy": [
        (CSR, {"p1": ints(1, 2, 4)}), (CSR, {"p1": ints(1, -1, 0)}),
        (CSR, {"p1": ints(1, 1 << 30, 0)}), (CSR, {"p1": ints(1, 2, 0, dtype="i8")}),
        (CSR, {"p1": ints(1, 2, 0, dtype="u4")}), (CSR, {"p1": np.array([1.0, 2, 0])}),
        (CSR, {"p1": ints(1, 2)}), (CSR, {"p2": ints(0, 2, 3, 4)}), (CSR, {"p2": ints(0, 3, 2, 3)}),
        (CSR, {"p2": ints(1, 2, 3, 3)}), (CSR, {"p2": ints(0, 2, 3)}),
        (CSR, {"p2": ints(0, -2, 3, 3)}), (CSR, {"p0": np.ones((3, 1))}),
        (CSR, {"p0": np.ones(3, ">f8")}), (CSR, {"p0": np.ones(3, "M8[s]")}),
        (CSR, {"p0": np.array(["a", "b", "c"])}), (CSR, {"p0": np.array([1, 2, 3], object)}),
        (COO, {"p1": ints(0, 0, 3)}), (COO, {"p2": ints(-1, 0, 3)}), (COO, {"p2": ints(0, 1)}),
        (COO, {"p1": ints(0, 0, 0), "p2": ints(1, 1, 1)}), (BSR, {"p1": ints(0, 2, 0, 1)}),
        (BSR, {"p0": np.ones((4, 0, 2))}), (BSR, {"p0": np.ones((4, 3, 2))}),
        (DIA, {"p1": ints(-1, 1, 1 << 30)}), (DIA, {"p1": ints(1, 1, 2)}),
        (DIA, {"p0": np.ones((2, 4))}), (LIL, {"p0": ints(2, 1, 1, dtype="i8")}),
        (LIL, {"p0": ints(2, 2, -1, dtype="i8")}),
        (LIL, {"p0": ints(1 << 62, 1 << 62, 0, dtype="i8")}), (LIL, {"p0": ints(2, 1, dtype="i8")}),
        (LIL, {"p1": ints(1, 4, 0, dtype="i8")}), (LIL, {"p1": ints(2, 1, 0, dtype="i8")}),
        (LIL, {"p2": [1.0, 2.0]}), (DOK, {"p0": np.array([[0, 1], [0, 4], [1, 0]])}),
        (DOK, {"p0": np.array([[0, 1], [0, 1], [1, 0]])}),
        (DOK, {"p0": np.array([[0, 1], [0, 2], [-1, 0]])}),
        (DOK, {"p0": np.ones((3, 3), int), "p1": np.ones((3, 3), "u1")}),
        (DOK, {"p1": np.full((3, 2), 3, "u1")}), (DOK, {"p2": ints(*range(100))}),
    ],
    "families.arguments": [
        (CSR, {"p0": "abc"}), (LIL, {"p2": ["a", "b", "c"]}),
        (DOK, {"p0": np.array([[0, 1 << 40], [0, 2], [1, 0]])}), (DOK, {"p2": ["a", 1, 2]}),
    ],
}  # fmt: skip


LARGE = {
    "value.scipy": [
        # A million rows of nothing were a list each, and 145 MB, before they were counted.
        (LIL, {"p0": np.zeros(100_000, "i1"), "p1": ints(), "p2": np.zeros(0)}),
        (DOK, {"p2": np.zeros(100_000, "i1")}),
        (DOK, {"p0": np.zeros((1, 100_000), "i1"), "p1": np.ones((1, 100_000), "u1")}),
    ],
}


def state(x, **changed):
    """Return the payload of *x* whose state says something else."""
    make, args, state = state_of(x)
    return sent_as(f"scipy.sparse:{type(x).__name__}", made_of(x, make, args, state | changed))


def refused():
    """Yield what no sender sends, with the word that its refusal says."""
    made = {name: getattr(sparse, f"{name}_array")(DENSE) for name in ("csr", "coo", "dok", "lil")}
    made["csr"].data = made["csr"].data.astype(">f8")
    yield made["csr"], "native byte order"
    made["coo"].note = "mine"
    yield made["coo"], "note"
    made["dok"]._dict["x", 1] = 1.0
    yield made["dok"], "keys"
    made["lil"].rows[0].append(3)
    yield made["lil"], "one integer for each value"
    printed = sparse.csr_array(DENSE)
    printed.maxprint = 5.5
    yield printed, "maxprint"


UNSORTED = sparse.csr_array((np.ones(2), ints(1, 0), ints(0, 2)), shape=(1, 2))
REPEATED = np.broadcast_to(np.float64(1), (3,))

MISPLACED = {
    "value.scipy": [state(UNSORTED, _has_sorted_indices=True), state(CSR, _shape=(3, 1 << 31))],
    # Numbers that are seen many times.
    "families.child-type": [replaced(CSR, len(sent(CSR)[0]["sub-headers"]) - 1, REPEATED)],
    "families.class": [({**sent(CSR)[0], "type": "scipy.sparse:csc_array"}, sent(CSR)[1])],
}

UNSENT = [*refused()]
HOSTILE = [
    *hostile(forged, INDEXES), *hostile(forged, LARGE), *hostile(payload, MISPLACED),
]  # fmt: skip
