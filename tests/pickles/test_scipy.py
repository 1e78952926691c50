"""Profile scipy: sparse matrices come back as they were, and no index points outside of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import loads

sp = pytest.importorskip("scipy.sparse")
spatial = pytest.importorskip("scipy.spatial")

PROFILE = ("data", "numpy", "scipy")
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")
DENSE = np.array([[1, 0, 2.5], [0, 0, 3]])


def rebuilt(value, *, protocol=5):
    return loads(pickle.dumps(value, protocol), profile=PROFILE)


def inner(value):
    """Return the opcodes that leave *value* on the stack, without frames."""
    return pickle.dumps(value, 3)[2:-1]


def forged(kind, state):
    """Return a pickle of an instance of *kind* with *state*."""
    name = f"c{kind.__module__}\n{kind.__qualname__}\n".encode()
    return b"\x80\x04" + name + b")\x81" + inner(state) + b"b."


def fields(value, **changes):
    made = {**value.__dict__, **changes}
    return {name: part for name, part in made.items() if part is not None}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", [f"{f}_{k}" for f in FORMATS for k in ("matrix", "array")])
def test_every_format(kind, protocol):
    for dense in (DENSE, np.zeros((2, 3)), np.eye(4, dtype="i2"), np.zeros((0, 3))):
        sent = getattr(sp, kind)(dense)
        got = rebuilt(sent, protocol=protocol)
        assert type(got) is type(sent)
        assert got.dtype == sent.dtype
        assert got.__dict__.keys() == sent.__dict__.keys()
        assert np.array_equal(got.toarray(), dense)
        assert np.array_equal((got + got).toarray(), dense + dense)
        assert repr(got) == repr(sent)


@pytest.mark.parametrize(
    "sent",
    [
        sp.coo_array(np.arange(4)),
        sp.csr_array(np.arange(4)),
        sp.dok_array(np.arange(4)),
        sp.coo_array(np.ones((2, 3, 4))),
        sp.bsr_array(np.ones((4, 6)), blocksize=(2, 3)),
        sp.csr_array(([1 + 2j], ([1], [2])), shape=(3, 3)),
        sp.csr_array(([1.0], ([1], [2])), shape=(3, 1 << 40)),
        sp.coo_array(([1.0], ([1], [2])), shape=(3, 1 << 40)),
        sp.random_array((30, 20), density=0.2, format="csc", rng=0),
    ],
    ids=lambda value: f"{value.format}-{value.shape}",
)
def test_other_shapes(sent):
    got = rebuilt(sent)
    assert got.shape == sent.shape
    assert (got.tocoo().data == sent.tocoo().data).all()


def test_flags_of_order_are_kept_where_they_are_true():
    sent = sp.csr_array(DENSE)
    assert sent.has_canonical_format
    assert rebuilt(sent).__dict__["_has_canonical_format"] is True
    unordered = sp.csr_array(([1.0, 2.0], [2, 0], [0, 2]), shape=(1, 3))
    assert not unordered.has_sorted_indices
    assert rebuilt(unordered).__dict__["_has_sorted_indices"] is False


def test_the_form_before_scipy_1_13():
    sent = sp.coo_matrix(DENSE)
    row, col = sent.coords
    old = forged(sp.coo_matrix, fields(sent, coords=None, row=row, col=col))
    assert np.array_equal(loads(old, profile=PROFILE).toarray(), DENSE)


def ints(*values, dtype="i4"):
    return np.array(values, dtype)


CSR = sp.csr_array(DENSE)
BAD_COMPRESSED = {
    "index beyond": {"indices": ints(0, 2, 3)},
    "index below": {"indices": ints(0, -1, 2)},
    "indptr falls": {"indptr": ints(0, 3, 2)},
    "indptr beyond": {"indptr": ints(0, 2, 9)},
    "indptr below": {"indptr": ints(0, -1, 3)},
    "indptr starts late": {"indptr": ints(1, 2, 3)},
    "indptr short": {"indptr": ints(0, 3)},
    "indptr empty": {"indptr": ints()},
    "data short": {"data": np.ones(2)},
    "data of objects": {"data": np.array([1, 2, 3], object)},
    "data of two dimensions": {"data": np.ones((3, 1))},
    "data of times": {"data": np.zeros(3, "M8[s]")},
    "data of text": {"data": np.array(["a", "b", "c"])},
    "indices of floats": {"indices": np.array([0.0, 2.0, 2.0])},
    "indices unsigned": {"indices": ints(0, 2, 2, dtype="u4")},
    "indices short ints": {"indices": ints(0, 2, 2, dtype="i2")},
    "indices of two widths": {"indices": ints(0, 2, 2, dtype="i8")},
    "no array": {"indices": [0, 2, 2]},
    "shape too small": {"_shape": (2, 2)},
    "shape negative": {"_shape": (2, -3)},
    "shape of truth": {"_shape": (2, True)},
    "shape of one": {"_shape": (3,)},
    "shape huge": {"_shape": (2, 1 << 64)},
    "shape empty": {"_shape": ()},
    "a list for a shape": {"_shape": [2, 3]},
    "field missing": {"data": None},
    "field unknown": {"extra": 1},
    "dunder": {"__class__": 1},
    "method": {"toarray": 1},
    "maxprint": {"maxprint": -1},
    "flag lies": {"indices": ints(2, 0, 2), "_has_sorted_indices": True},
    "canonical lies": {"indices": ints(2, 2, 2), "_has_canonical_format": True},
    "flag of numbers": {"_has_sorted_indices": 1},
}


@pytest.mark.parametrize("change", BAD_COMPRESSED.values(), ids=BAD_COMPRESSED)
def test_forged_compressed_matrices_are_refused(change):
    with pytest.raises(PayloadError):
        loads(forged(sp.csr_array, fields(CSR, **change)), profile=PROFILE)


def test_three_dimensions_are_none_of_a_compressed_array():
    with pytest.raises(PayloadError):
        loads(forged(sp.csr_array, fields(CSR, _shape=(2, 3, 1))), profile=PROFILE)


def test_columns_count_for_csc():
    sent = sp.csc_array(DENSE)
    with pytest.raises(PayloadError, match="index"):
        loads(forged(sp.csc_array, fields(sent, indices=ints(0, 0, 2))), profile=PROFILE)


@pytest.mark.parametrize("shape", [(4, 7), (5, 6), (2, 6)])
def test_blocks_fill_the_matrix(shape):
    sent = sp.bsr_array(np.ones((4, 6)), blocksize=(2, 3))
    with pytest.raises(PayloadError):
        loads(forged(sp.bsr_array, fields(sent, _shape=shape)), profile=PROFILE)


COO = sp.coo_array(DENSE)
BAD_COORDINATES = {
    "index beyond": {"coords": (ints(0, 0, 2), ints(0, 2, 2))},
    "index below": {"coords": (ints(0, 0, 1), ints(0, 2, -1))},
    "too few axes": {"coords": (ints(0, 0, 1),)},
    "too few indexes": {"coords": (ints(0, 0), ints(0, 2))},
    "two widths": {"coords": (ints(0, 0, 1), ints(0, 2, 2, dtype="i8"))},
    "a list": {"coords": [ints(0, 0, 1), ints(0, 2, 2)]},
    "twice": {"coords": (ints(0, 0, 0), ints(0, 2, 2)), "has_canonical_format": True},
    "dimensions": {"_shape": (1,) * 65, "coords": (ints(0),) * 65, "data": np.ones(1)},
}


@pytest.mark.parametrize("change", BAD_COORDINATES.values(), ids=BAD_COORDINATES)
def test_forged_coordinates_are_refused(change):
    with pytest.raises(PayloadError):
        loads(forged(sp.coo_array, fields(COO, **change)), profile=PROFILE)


DIA = sp.dia_array(np.eye(3))
BAD_DIAGONALS = {
    "far": {"offsets": ints(2**31 - 1)},
    "twice": {"offsets": ints(0, 0), "data": np.ones((2, 3))},
    "too few": {"offsets": ints()},
    "flat": {"data": np.ones(3)},
    "wide": {"_shape": (3, 1 << 40)},
}


@pytest.mark.parametrize("change", BAD_DIAGONALS.values(), ids=BAD_DIAGONALS)
def test_forged_diagonals_are_refused(change):
    with pytest.raises(PayloadError):
        loads(forged(sp.dia_array, fields(DIA, **change)), profile=PROFILE)


def lists(*parts):
    made = np.empty(len(parts), object)
    made[:] = parts
    return made


LIL = sp.lil_array(DENSE)
BAD_LISTS = {
    "beyond": {"rows": lists([0, 3], [2])},
    "below": {"rows": lists([-1, 2], [2])},
    "falls": {"rows": lists([2, 0], [2])},
    "uneven": {"rows": lists([0, 1, 2], [2])},
    "of floats": {"rows": lists([0.0, 2.0], [2])},
    "of objects": {"data": lists([[], []], [3.0])},
    "of times": {"data": lists([np.datetime64("2026"), 1.0], [3.0])},
    "of tuples": {"data": lists((1.0, 2.5), (3.0,))},
    "short": {"rows": lists([0, 2])},
    "object dtype": {"dtype": np.dtype(object)},
    "no dtype": {"dtype": "f8"},
}


@pytest.mark.parametrize("change", BAD_LISTS.values(), ids=BAD_LISTS)
def test_forged_lists_are_refused(change):
    with pytest.raises(PayloadError):
        loads(forged(sp.lil_array, fields(LIL, **change)), profile=PROFILE)


def test_a_list_that_grows_after_it_was_checked_changes_nothing(asm):
    sent = pickle.dumps(LIL, 4)
    assert sent.endswith(b"b.")
    # The rows' lists are in the memo; whichever it is, it gets an index that is far outside.
    for entry in range(40):
        late = sent[:-1] + b"h" + bytes([entry]) + asm.number(1 << 40) + b"a0."
        try:
            got = loads(late, profile=PROFILE)
        except PayloadError:
            continue
        assert np.array_equal(got.toarray(), DENSE)


def reconstructed(kind, base, content, state):
    """Return the opcodes of protocol 0's constructor; *content* is an empty dict or list."""
    parts = [f"c{part.__module__}\n{part.__qualname__}\n".encode() for part in (kind, base)]
    begun = b"(" + b"".join(parts) + (b"}" if content == {} else b"]") + b"tR"
    return b"\x80\x04ccopyreg\n_reconstructor\n" + begun + inner(state) + b"b."


DOK = sp.dok_array(DENSE)
BAD_KEYS = {
    "beyond": {"_dict": {(0, 3): 1.0}},
    "below": {"_dict": {(0, -1): 1.0}},
    "of one": {"_dict": {0: 1.0}},
    "of three": {"_dict": {(0, 0, 0): 1.0}},
    "objects": {"_dict": {(0, 0): "text"}},
    "three dimensions": {"_shape": (1, 1, 1), "_dict": {}},
    "object dtype": {"dtype": np.dtype(object)},
    "no dict": {"_dict": []},
}


@pytest.mark.parametrize("change", BAD_KEYS.values(), ids=BAD_KEYS)
def test_forged_keys_are_refused(change):
    assert np.array_equal(
        loads(reconstructed(sp.dok_array, dict, {}, fields(DOK)), profile=PROFILE).toarray(), DENSE
    )
    with pytest.raises(PayloadError):
        loads(reconstructed(sp.dok_array, dict, {}, fields(DOK, **change)), profile=PROFILE)


def test_the_constructor_of_protocol_0_serves_these_matrices_alone():
    with pytest.raises(PolicyDenied, match="set"):
        loads(reconstructed(set, dict, {}, {}), profile=PROFILE)
    with pytest.raises(PolicyDenied):
        loads(reconstructed(sp.csr_array, dict, {}, {}), profile=PROFILE)
    with pytest.raises(PayloadError):
        loads(reconstructed(sp.dok_array, dict, [], fields(DOK)), profile=PROFILE)


def test_an_index_shared_with_data_is_a_copy():
    shared = np.arange(3, dtype="i4")
    parts = {"_shape": (3, 3), "indptr": ints(0, 1, 2, 3), "indices": shared, "data": shared}
    got = loads(forged(sp.csr_array, parts), profile=PROFILE)
    assert not np.shares_memory(got.indices, got.data)


@pytest.mark.parametrize("kind", [spatial.cKDTree, spatial.KDTree])
@pytest.mark.parametrize("points", [0, 1, 60])
def test_search_trees(kind, points):
    rng = np.random.default_rng(0)
    sent = kind(rng.random((points, 3)), leafsize=4, boxsize=1.0)
    got = rebuilt(sent)
    assert type(got) is kind
    query = rng.random((5, 3))
    for ours, theirs in zip(got.query(query), sent.query(query), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("points", [1, 2, 17, 400])
@pytest.mark.parametrize("leafsize", [1, 3, 16])
def test_each_way_to_build_a_search_tree_gives_the_nodes_sent(balanced, compact, points, leafsize):
    rng = np.random.default_rng(points)
    for data in (rng.random((points, 2)), np.zeros((points, 2)), rng.integers(3, size=(points, 2))):
        sent = spatial.cKDTree(data, leafsize, balanced_tree=balanced, compact_nodes=compact)
        assert all(
            np.array_equal(ours, theirs)
            for ours, theirs in zip(
                rebuilt(sent).__getstate__()[1:8], sent.__getstate__()[1:8], strict=True
            )
        )


def test_a_large_unbalanced_search_tree_is_not_built():
    """Such a tree may be a thousand levels deep for each dimension, all of them on the stack."""
    points = np.random.default_rng(0).random((5000, 2))
    assert rebuilt(spatial.cKDTree(points)).n == 5000
    with pytest.raises(PayloadError, match="large"):
        rebuilt(spatial.cKDTree(points, balanced_tree=False))


@pytest.mark.parametrize("part", [0, 2, 3, 5, 6, 7, 9])
def test_the_nodes_of_a_search_tree_are_not_believed(part):
    sent = spatial.cKDTree(np.arange(40.0).reshape(20, 2), leafsize=2, boxsize=50.0)
    state = list(sent.__getstate__())
    if isinstance(state[part], int):
        others = [state[part] + 1, float(state[part]), None]
    else:
        changed = state[part].copy()
        changed[-1:] = 1 << 5
        others = [changed, state[part][1:], state[part].reshape(1, -1), None, state[part].tobytes()]
    for other in others:
        state[part] = other
        with pytest.raises(PayloadError):
            loads(forged(spatial.cKDTree, tuple(state)), profile=PROFILE)


@pytest.mark.parametrize(
    ("at", "part"),
    [
        (1, np.zeros(4)),
        (1, np.zeros((4, 2), "i8")),
        (1, np.zeros((4, 0))),
        (1, np.full((4, 2), np.nan)),
        (4, 0),
        (4, "16"),
        (8, np.array([-1.0, 1.0])),
        (8, np.ones(3)),
        (8, 1.0),
    ],
)
def test_forged_search_trees_are_refused(at, part):
    state = list(spatial.cKDTree(np.arange(8.0).reshape(4, 2)).__getstate__())
    state[at] = part
    with pytest.raises(PayloadError):
        loads(forged(spatial.cKDTree, tuple(state)), profile=PROFILE)


@pytest.mark.parametrize("kind", [sp.csr_array, spatial.cKDTree])
def test_an_object_without_its_state_is_no_value(asm, kind):
    name = f"{kind.__module__}:{kind.__qualname__}"
    for body in (asm.new(name), asm.new(name, asm.number(1)), asm.build(asm.new(name), b"N")):
        with pytest.raises(PayloadError):
            loads(asm.pickle(body), profile=PROFILE)


def test_distributions_are_refused():
    stats = pytest.importorskip("scipy.stats")
    # Its state holds source code, which SciPy runs when it is set.
    with pytest.raises(PolicyDenied, match=r"norm_gen|frozen"):
        loads(pickle.dumps(stats.norm(1, 2)), profile=PROFILE)


@given(
    indices=st.lists(st.integers(-2, 5), max_size=6),
    indptr=st.lists(st.integers(-1, 7), max_size=6),
    shape=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    kind=st.sampled_from([sp.csr_array, sp.csc_array]),
)
def test_whatever_is_accepted_is_sound(indices, indptr, shape, kind):
    state = {
        "_shape": shape,
        "indptr": np.array(indptr, "i4"),
        "indices": np.array(indices, "i4"),
        "data": np.ones(len(indices)),
    }
    try:
        got = loads(forged(kind, state), profile=PROFILE)
    except PayloadError:
        return
    got.check_format(full_check=True)
    assert got.toarray().sum() == got.indptr[-1]
