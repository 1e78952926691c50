"""SciPy's sparse matrices: exact round trips, and forged indexes that never reach compiled code."""

import copyreg
import tracemalloc

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, LIMITS, mutate_all, sent_as, through
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.families.plain import label
from safeser.values import Limits
from tests.draws import draws
from tests.pickles.forging import Called, New

sparse = pytest.importorskip("scipy.sparse")

from safeser.families.science import sparse as form  # noqa: E402 - needs SciPy

FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
DENSE = np.array([[0, 1, 2.5, 0], [3, 0, 0, 0], [0, 0, 0, 0]])


def same(a, b):
    """Assert that two sparse objects are the same to the letter."""
    assert type(a) is type(b)
    assert vars(a).keys() == vars(b).keys()
    for name, one in vars(a).items():
        two = vars(b)[name]
        assert type(one) is type(two), name
        if name == "coords":
            assert all(_same_array(x, y) for x, y in zip(one, two, strict=True))
        elif isinstance(one, np.ndarray):
            assert _same_array(one, two), name
        else:
            assert one == two, name
            assert repr(one) == repr(two), name
    if a.format == "dok":
        assert [type(k) for key in a._dict for k in _parts(key)] == [
            type(k) for key in b._dict for k in _parts(key)
        ]


def _parts(key):
    return key if type(key) is tuple else (key,)


def _same_array(a, b):
    if a.dtype == object:
        return [repr(x) for x in a] == [repr(x) for x in b]
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.flags.writeable == b.flags.writeable
        and a.tobytes() == b.tobytes()
    )


def use(x):
    """Do what would read out of bounds if an index were wrong."""
    repr(x)
    if not hasattr(x, "toarray") or np.prod(x.shape, dtype=float) > 1 << 20:
        return
    try:
        x.toarray()
        copy = x.copy()
        copy.sum()
        (copy * 2).nonzero()
        if x.ndim == 2:
            x @ np.ones(x.shape[1])
            x.tocsr().T.tocoo()
            copy.tocsc().sort_indices()
        copy.tocoo().sum_duplicates()
    except (TypeError, ValueError, NotImplementedError, RuntimeError):
        pass  # half precision, read-only parts: SciPy says so


@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_format(name, kind):
    cls = getattr(sparse, f"{name}_{kind}")
    for dtype in ("f8", "f4", "i8", "u1", "?", "c16", "g"):
        x = cls(DENSE.astype(dtype))
        x.maxprint = 7
        same(x, through(x, frozen=False))
    for shape in ((0, 3), (3, 0), (1, 1)):
        same(cls(shape), through(cls(shape), frozen=False))


@pytest.mark.parametrize("name", ["coo", "csr", "dok"])
def test_one_dimension(name):
    x = getattr(sparse, f"{name}_array")(np.array([0, 3, 0, 5]))
    same(x, through(x, frozen=False))


def test_more_dimensions():
    x = sparse.coo_array(np.arange(24.0).reshape(2, 3, 4))
    same(x, through(x, frozen=False))


def test_flags_duplicates_and_wide_indexes():
    x = sparse.csr_array((np.ones(3), np.array([2, 0, 0]), np.array([0, 2, 3])), shape=(2, 3))
    assert not x.has_sorted_indices
    y = through(x, frozen=False)
    same(x, y)
    assert not y.has_sorted_indices
    x.sum_duplicates()
    same(x, through(x, frozen=False))
    wide = sparse.csr_array((np.ones(1), np.array([1 << 40]), np.array([0, 1])), shape=(1, 1 << 41))
    same(wide, through(wide, frozen=False))
    twice = sparse.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(2, 2))
    same(twice, through(twice, frozen=False))


def test_keys_and_values_of_other_types():
    d = sparse.dok_array(DENSE)
    d[2, 3] = 4
    assert {type(part) for key in d._dict for part in key} == {int, np.int32}
    same(d, through(d, frozen=False))
    rows = sparse.lil_array((3, 3), dtype="f4")
    rows[0, 1] = 2
    rows.data[1].append(3.0)
    rows.rows[1].append(0)
    same(rows, through(rows, frozen=False))


def test_nothing_is_copied():
    x = sparse.random_array((200, 300), density=0.2, format="csr", rng=1)
    header, frames = families.serialize(x, FAMILIES)
    for part in (x.data, x.indices, x.indptr):
        assert any(np.shares_memory(part.view("u1"), frame) for frame in frames)
    buffers = [bytearray(frame) for frame in frames]
    y = families.deserialize(header, buffers, GRANT)
    for part in (y.data, y.indices, y.indptr):
        assert any(np.shares_memory(part.view("u1"), buffer) for buffer in buffers)
    same(x, y)


def test_numbers_seen_many_times_arrive_whole():
    data = np.broadcast_to(np.float64(2), (4,))
    x = sparse.csr_array((data, np.arange(4), np.array([0, 2, 4])), shape=(2, 4), copy=False)
    x.data = data
    y = through(x)
    assert y.toarray().tolist() == x.toarray().tolist()
    assert y.data.strides == (8,)


def test_unaligned_frames():
    x = sparse.csr_array(DENSE)
    header, frames = families.serialize(x, FAMILIES)
    shifted = [memoryview(bytearray(b"x" + bytes(frame)))[1:] for frame in frames]
    y = families.deserialize(header, shifted, GRANT)
    same(x, y)
    assert y.data.flags.aligned
    assert y.indices.flags.aligned


def test_what_is_not_kept_is_refused_by_name():
    swapped = sparse.csr_array(DENSE)
    swapped.data = swapped.data.astype(">f8")
    marked = sparse.coo_array(DENSE)
    marked.note = "mine"
    printed = sparse.csr_array(DENSE)
    printed.maxprint = 5.5
    odd = sparse.dok_array(DENSE)
    odd._dict["x", 1] = 1.0
    short = sparse.lil_array(DENSE)
    short.rows[0].append(3)
    for x, said in (
        (swapped, "native byte order"),
        (marked, "note"),
        (printed, "maxprint"),
        (odd, "keys"),
        (short, "one integer for each value"),
    ):
        with pytest.raises(PayloadError, match=said) as caught:
            families.serialize({"a": x}, FAMILIES)
        assert caught.value.rule == "families.cannot-serialize"
        assert caught.value.where == f"[{label('a')}]"


#: What a tree has of each format, as the cases below number it.
FIELDS = {
    "csr": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "coords", "coords"),
    "dia": ("data", "offsets"),
    "lil": ("lengths", "columns", "values"),
    "dok": ("keys", "kinds", "values"),
}


def state_of(x):
    """Return what pickle is told of *x*: what makes it, and its state."""
    return form.reducers()[type(x)](x)


def forged(x, **parts):
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


@pytest.mark.parametrize(
    ("x", "parts"),
    [
        (CSR, {"p1": ints(1, 2, 4)}),
        (CSR, {"p1": ints(1, -1, 0)}),
        (CSR, {"p1": ints(1, 1 << 30, 0)}),
        (CSR, {"p1": ints(1, 2, 0, dtype="i8")}),
        (CSR, {"p1": ints(1, 2, 0, dtype="u4")}),
        (CSR, {"p1": np.array([1.0, 2, 0])}),
        (CSR, {"p1": ints(1, 2)}),
        (CSR, {"p2": ints(0, 2, 3, 4)}),
        (CSR, {"p2": ints(0, 3, 2, 3)}),
        (CSR, {"p2": ints(1, 2, 3, 3)}),
        (CSR, {"p2": ints(0, 2, 3)}),
        (CSR, {"p2": ints(0, -2, 3, 3)}),
        (CSR, {"p0": np.ones((3, 1))}),
        (CSR, {"p0": np.ones(3, ">f8")}),
        (CSR, {"p0": np.ones(3, "M8[s]")}),
        (CSR, {"p0": np.array(["a", "b", "c"])}),
        (CSR, {"p0": np.array([1, 2, 3], object)}),
        (CSR, {"p0": "abc"}),
        (COO, {"p1": ints(0, 0, 3)}),
        (COO, {"p2": ints(-1, 0, 3)}),
        (COO, {"p2": ints(0, 1)}),
        (COO, {"p1": ints(0, 0, 0), "p2": ints(1, 1, 1)}),  # and says that nothing is there twice
        (BSR, {"p1": ints(0, 2, 0, 1)}),
        (BSR, {"p0": np.ones((4, 0, 2))}),
        (BSR, {"p0": np.ones((4, 3, 2))}),
        (DIA, {"p1": ints(-1, 1, 1 << 30)}),
        (DIA, {"p1": ints(1, 1, 2)}),
        (DIA, {"p0": np.ones((2, 4))}),
        (LIL, {"p0": ints(2, 1, 1, dtype="i8")}),
        (LIL, {"p0": ints(2, 2, -1, dtype="i8")}),
        (LIL, {"p0": ints(1 << 62, 1 << 62, 0, dtype="i8")}),
        (LIL, {"p0": ints(2, 1, dtype="i8")}),
        (LIL, {"p1": ints(1, 4, 0, dtype="i8")}),
        (LIL, {"p1": ints(2, 1, 0, dtype="i8")}),
        (LIL, {"p2": ["a", "b", "c"]}),
        (LIL, {"p2": [1.0, 2.0]}),
        (DOK, {"p0": np.array([[0, 1], [0, 4], [1, 0]])}),
        (DOK, {"p0": np.array([[0, 1], [0, 1], [1, 0]])}),
        (DOK, {"p0": np.array([[0, 1], [0, 2], [-1, 0]])}),
        (DOK, {"p0": np.array([[0, 1 << 40], [0, 2], [1, 0]])}),
        (DOK, {"p0": np.ones((3, 3), int), "p1": np.ones((3, 3), "u1")}),
        (DOK, {"p1": np.full((3, 2), 3, "u1")}),
        (DOK, {"p2": ["a", 1, 2]}),
        (DOK, {"p2": ints(*range(100))}),
    ],
)
def test_forged_indexes(x, parts):
    header, frames = forged(x, **parts)
    with pytest.raises(SafeserError) as caught:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    assert caught.value.rule.startswith(("families.", "value."))


@pytest.mark.parametrize(
    ("x", "parts"),
    [
        # A million rows of nothing were a list each, and 145 MB, before they were counted.
        (LIL, {"p0": np.zeros(100_000, "i1"), "p1": ints(), "p2": np.zeros(0)}),
        (DOK, {"p2": np.zeros(100_000, "i1")}),
        (DOK, {"p0": np.zeros((1, 100_000), "i1"), "p1": np.ones((1, 100_000), "u1")}),
    ],
)
def test_nothing_is_made_of_parts_that_do_not_fit(x, parts):
    header, frames = forged(x, **parts)
    tracemalloc.start()
    with pytest.raises(PayloadError):
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def test_numbers_that_are_seen_many_times_are_refused():
    header, frames = families.serialize(CSR, FAMILIES)
    inner, (frame,) = families.serialize(np.broadcast_to(np.float64(1), (3,)), FAMILIES)
    header["sub-headers"][-1] = inner
    with pytest.raises(PayloadError, match="shape"):
        families.check(header, [*frames[:-1], frame])


def test_flags_that_are_not_true():
    x = sparse.csr_array((np.ones(2), ints(1, 0), ints(0, 2)), shape=(1, 2))
    make, args, state = state_of(x)
    state["_has_sorted_indices"] = True
    header, frames = sent_as("scipy.sparse:csr_array", made_of(x, make, args, state))
    with pytest.raises(PayloadError, match="declared sorted"):
        families.deserialize(header, frames, GRANT)


def test_small_indexes_in_a_large_shape():
    make, args, state = state_of(CSR)
    state["_shape"] = (3, 1 << 31)
    header, frames = sent_as("scipy.sparse:csr_array", made_of(CSR, make, args, state))
    with pytest.raises(PayloadError, match="beyond what its indexes reach"):
        families.deserialize(header, frames, GRANT)


def test_what_is_of_another_class_is_refused():
    header, frames = families.serialize(CSR, FAMILIES)
    header["type"] = "scipy.sparse:csc_array"
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule == "families.class"


def test_many_elements_take_no_call_each():
    x = sparse.random_array((60, 60), density=0.5, format="lil", rng=1)
    few = Limits(max_calls=20)
    for each in (x, x.todok()):
        header, frames = families.serialize(each, FAMILIES, limits=few)
        same(each, families.deserialize(header, [*map(bytes, frames)], GRANT, limits=few))


@pytest.mark.parametrize("x", [CSR, LIL], ids=lambda x: x.format)
def test_mutated(x):
    # The others are mutated by verification.malformed.
    refused, _ = mutate_all(x, use, every=3)
    assert refused > 50


@draws(30)
@given(
    shape=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    name=st.sampled_from(FORMATS),
    numbers=st.randoms(use_true_random=False),
)
def test_any_matrix(shape, name, numbers):
    dense = np.array([numbers.choice((0, 0, 1, 2)) for _ in range(shape[0] * shape[1])], "f4")
    x = sparse.csr_array(dense.reshape(shape)).asformat(name)
    same(x, through(x, frozen=False))
    use(through(x))
