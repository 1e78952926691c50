"""Profile scipy: search trees come back as they were, and no index points outside of a matrix."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse as sp
from scipy import spatial

from safeser.errors import PayloadError
from safeser.pickles import loads
from tests.samples import opcodes as op
from tests.samples.pickles_scipy import DENSE, LIL, forged, ints

PROFILE = ("data", "numpy", "scipy")


def rebuilt(value, *, protocol=5):
    return loads(pickle.dumps(value, protocol), profile=PROFILE)


def test_a_list_that_grows_after_it_was_checked_changes_nothing():
    sent = pickle.dumps(LIL, 4)
    # The rows' lists are in the memo; whichever it is, it gets an index that is far outside.
    for entry in range(40):
        late = sent[:-1] + b"h" + bytes([entry]) + op.value(1 << 40) + b"a0."
        try:
            got = loads(late, profile=PROFILE)
        except PayloadError:
            continue
        assert np.array_equal(got.toarray(), DENSE)


def test_an_index_shared_with_data_is_a_copy():
    shared = np.arange(3, dtype="i4")
    parts = {"_shape": (3, 3), "indptr": ints(0, 1, 2, 3), "indices": shared, "data": shared}
    got = loads(op.pickled(forged(sp.csr_array, parts)), profile=PROFILE)
    assert not np.shares_memory(got.indices, got.data)


@pytest.mark.parametrize("kind", [spatial.cKDTree, spatial.KDTree])
@pytest.mark.parametrize("points", [0, 1, 60])
def test_search_trees(kind, points):
    rng = np.random.default_rng(0)
    sent = kind(rng.random((points, 3)), leafsize=4, boxsize=1.0)
    got = rebuilt(sent)
    assert type(got) is kind
    query = rng.random((5, 3))
    assert all(map(np.array_equal, got.query(query), sent.query(query)))


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("points", [1, 2, 17, 400])
@pytest.mark.parametrize("leafsize", [1, 3, 16])
def test_each_way_to_build_a_search_tree_gives_the_nodes_sent(balanced, compact, points, leafsize):
    rng = np.random.default_rng(points)
    for data in (rng.random((points, 2)), np.zeros((points, 2)), rng.integers(3, size=(points, 2))):
        sent = spatial.cKDTree(data, leafsize, balanced_tree=balanced, compact_nodes=compact)
        ours, theirs = rebuilt(sent).__getstate__(), sent.__getstate__()
        assert all(map(np.array_equal, ours[1:8], theirs[1:8]))


@given(
    indices=st.lists(st.integers(-2, 5), max_size=6),
    indptr=st.lists(st.integers(-1, 7), max_size=6),
    shape=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    kind=st.sampled_from([sp.csr_array, sp.csc_array]),
)
def test_whatever_is_accepted_is_sound(indices, indptr, shape, kind):
    state = {"_shape": shape, "indptr": ints(*indptr), "indices": ints(*indices)}
    data = op.pickled(forged(kind, {**state, "data": np.ones(len(indices))}))
    try:
        got = loads(data, profile=PROFILE)
    except PayloadError:
        return
    got.check_format(full_check=True)
    assert got.toarray().sum() == got.indptr[-1]
