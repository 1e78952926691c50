"""Containers that change their parts in place may write to all of them, whatever their sender says.

Of a sparse matrix whose ``indptr`` was read-only, ``resize`` cut the indexes, failed, and the next
``toarray`` read beyond them and ended the process.
"""

from __future__ import annotations

import pickle
import pickletools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from safeser import families, pickles
from safeser.errors import PayloadError
from safeser.gate.values import Grant
from tests.types.both import FAMILIES, PROFILE

FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def grid(form):
    made = sp.csr_array(np.ones((6, 6)))
    return made.tobsr((3, 3)) if form == "bsr" else made.asformat(form)


CONTAINERS = {
    **{form: lambda form=form: grid(form) for form in FORMATS},
    "vector": lambda: sp.csr_array(np.arange(4.0)),
    "cube": lambda: sp.coo_array(np.arange(8.0).reshape(2, 2, 2)),
    "masked": lambda: np.ma.array(np.arange(4.0), mask=[True, False, False, False]),
    "masked objects": lambda: np.ma.array(np.array([1, None], object), mask=[True, False]),
    "nullable": lambda: pd.array([1, None, 3], dtype="Int64"),
    "sparse column": lambda: pd.arrays.SparseArray(np.arange(4.0)),
    "generator": lambda: np.random.Generator(np.random.MT19937(1)),
    "random state": lambda: np.random.RandomState(1),
}


def parts_of(value):
    """Return the arrays that *value* is made of."""
    if isinstance(value, np.ma.MaskedArray):
        return [value.data, np.ma.getmaskarray(value)]
    if isinstance(value, pd.arrays.SparseArray):
        return [value.sp_values]
    held = getattr(value, "__dict__", {}).values()
    found = [part for one in held for part in (one if type(one) is tuple else (one,))]
    return [part for part in found if isinstance(part, np.ndarray)]


def closed(header):
    """Set every flag of *header* that says whether memory may be written to."""
    if isinstance(header, dict):
        return {name: name != "writeable" and closed(part) for name, part in header.items()}
    if isinstance(header, list | tuple):
        if header[:1] == ["masked"]:
            return [*header[:2], 0, 0]
        return [closed(part) for part in header]
    return header


def by_typed(value):
    header, frames = families.serialize(value, FAMILIES)
    frames = [bytes(frame) for frame in frames]
    return families.deserialize(closed(header), frames, Grant("changed", FAMILIES))


def by_pickle(value):
    buffers = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    buffers = [buffer.raw().tobytes() for buffer in buffers]
    return pickles.loads(data, buffers=buffers, profile=PROFILE)


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("send", [by_typed, by_pickle])
def test_parts_can_be_written_to(name, send):
    value = CONTAINERS[name]()
    made = send(value)
    assert type(made) is type(value)
    assert all(part.flags.writeable for part in parts_of(made))
    assert len(parts_of(made)) == len(parts_of(value))
    if hasattr(made, "random_sample" if name == "random state" else "random"):
        assert made.random() == value.random()


def test_what_is_seen_many_times_is_not_written_out():
    value = np.ma.array(np.broadcast_to(np.float64(1), (1 << 20,)), copy=False)
    assert by_typed(value).data.strides == (0,)


def test_entropy_does_not_grow_after_its_check():
    """NumPy keeps the list of entropy itself, and draws from all of it for each child."""
    written = pickle.dumps(np.random.SeedSequence([5, 6]), 2)
    names = [(op.name, argument) for op, argument, _ in pickletools.genops(written)]
    memo = names[names.index(("EMPTY_LIST", None)) + 1][1]
    grown = written[:-1] + b"h" + bytes([memo]) + b"(" + b"K\x07" * 300 + b"e0."
    with pytest.raises(PayloadError) as caught:
        pickles.loads(grown, profile=("data", "numpy"))
    assert caught.value.rule == "pickle.late-growth"
