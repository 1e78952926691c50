"""NumPy's arrays, scalars and dtypes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.polynomial import Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial


def examples() -> dict[str, object]:
    gaps = {"names": ["b", "a"], "formats": ["i2", "i4"], "offsets": [8, 0], "itemsize": 16}
    objects = np.empty((2, 2), object)
    objects[0] = [1, 2], np.arange(3)
    return {
        "ints": np.arange(6).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "flags": np.array([True, False]),
        "text": np.array(["a", "\U0001f600\0b", ""]),
        "bytes": np.array([b"a", b"bc"]),
        "raw": np.zeros(2, "V3"),
        "dates": np.array(["2020", "NaT"], "M8[25us]"),
        "durations": np.array([1, 2], ">m8"),
        "nested": np.zeros(3, NESTED),
        "gaps": np.zeros(2, gaps),
        "no-fields": np.zeros(2, []),
        "zero-d": np.array(5),
        "empty": np.zeros((0, 3)),
        "broadcast": np.broadcast_to(np.arange(3.0), (4, 3)),
        "objects": objects,
        "plain-objects": np.array([1, "a", None, 2.5], object),
        "masked": np.ma.array([1, 2], mask=[0, 1], fill_value=7),
        "masked-fields": np.ma.array([("a", 1)], [("x", "U2"), ("y", "i4")], mask=[(True, False)]),
        "scalar": np.float32(1),
        "date": np.datetime64("2020-01-01"),
        "void": np.void(b"abc"),
        "record": np.zeros(1, NESTED)[0],
        "string": np.str_("a"),
        "byte-string": np.bytes_(b"a\0"),
        "dtype": NESTED,
        "list": [np.arange(3), {"a": np.ones(2)}, (1, 2j)],
        "axes": np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
        "repeated-axes": np.broadcast_to(np.arange(6).reshape(2, 3).T, (4, 3, 2)),
        "masked-objects": np.ma.array([1, "a"], dtype=object, mask=[0, 1]),
        "texts": np.array(["a", "b" * 40]).view(np.char.chararray),
        "dtype-with-metadata": np.dtype("f8", metadata={"unit": "m", "of": (1, [2])}),
        "masked-broadcast": np.ma.array(np.broadcast_to(1.0, (2, 3)), mask=np.eye(2, 3)),
        "masked-constant": np.ma.masked,
        "matrix": np.eye(2).view(np.matrix),
        "recarray": np.rec.array([(1, "a"), (2, "b")], dtype=[("n", "i4"), ("t", "U1")]),
        "complex-long-double": np.ones((1, 2), "G"),
        "poly1d": np.poly1d([1, 2, 3]),
        "singular values": np.linalg.svd(np.ones((2, 2))),
        "chebyshev": np.polynomial.Chebyshev([1, 2], domain=[0, 5]),
        "generator": np.random.default_rng(1),
        "philox": np.random.Philox(5),
        "twister": np.random.MT19937(1),
        "random-state": np.random.RandomState(1),
        "seeds": np.random.SeedSequence([1, 2], spawn_key=(3,)),
        "dict": {"x": np.arange(2), 1: np.arange(2)},
    }


def frozen_array(array):
    array.flags.writeable = False
    return array


NESTED = np.dtype(
    [("a", ">i4"), ("b", [("c", "U3"), ("d", "M8[s]", (2, 1))]), (("title", "e"), "?")], align=True
)
ARRAYS = {
    "strided": np.arange(10)[::-3], "big-endian": np.arange(3, dtype=">f8"),
    "swapped text": np.array(["a", "b"]).astype(">U2"), "no width": np.zeros(3, "V0"),
    "repeated, writeable": np.lib.stride_tricks.as_strided(np.arange(3), (2, 3), (0, 8)),
    "fixed": frozen_array(np.arange(3)),
}  # fmt: skip
SCALARS = [
    np.float64("nan"), np.longlong(5), np.True_, np.complex64(1j), np.datetime64("NaT"),
    np.timedelta64(5, "h"), np.str_("a\0"), np.str_(""), np.longdouble(1) / 3,
]  # fmt: skip


def asked(masked):
    """Return *masked* after somebody asked for its fill value, which sets it."""
    assert masked.fill_value is not None
    return masked


def matrix(x):
    return np.asarray(x).view(np.matrix)


MASKED = {
    "hard": np.ma.array([[1.0, 2], [3, 4]], hard_mask=True),
    "sub-array": asked(np.ma.array([("a", [1, 2])], [("x", "U2"), ("y", "i4", 2)])),
    "zero-d": np.ma.array(5, mask=True), "no mask": np.ma.array([1, 2]),
    "mask of nothing": np.ma.array([1, 2], mask=False),
    "default fill value": np.ma.array([1, 2], mask=[0, 1]),
    "long fill value": asked(np.ma.array(["ab"], mask=[1])),
    "dates": asked(np.ma.array(np.array(["2020", "NaT"], "M8[s]"), mask=[0, 1])),
    "Fortran": np.ma.array(np.asfortranarray(np.arange(6.0).reshape(2, 3)), mask=np.eye(2, 3)),
    "broadcast mask": np.ma.MaskedArray(np.ones((2, 3)), mask=np.broadcast_to(True, (2, 3))),
    "a view": np.ma.array([1, 2, 3], mask=[0, 1, 0])[1:], "empty": np.ma.zeros((0, 3)),
    "objects": np.ma.array([1, "a", None], dtype=object, mask=[0, 1, 0]),
    "objects and their fill value": asked(np.ma.array([[1, [2]]], dtype=object, mask=[[0, 1]])),
}  # fmt: skip
SEEN = {
    "Fortran matrix": matrix([[1, 2], [3, 4]]).T,
    "matrix of objects": matrix(np.array([[1, "a"]], object)),
    "a view of records": np.rec.array([(1,), (2,), (3,)], dtype=[("n", "i4")])[::2],
    "records of records": np.rec.array(
        [((1,),)], dtype=[("n", np.dtype((np.record, [("m", "i4")])))]
    ),
    "plain recarray": np.arange(3).view(np.recarray),
    "array of texts": np.array(["a", "bc"]).view(np.char.chararray),
    "array of records": np.zeros(2, np.dtype((np.record, [("n", "i4")]))),
    "aligned records": np.zeros(2, np.dtype((np.record, NESTED))).view(np.recarray),
}  # fmt: skip
KINDS = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64]


def _objects() -> list[np.ndarray]:
    array = np.empty((2, 2), object)
    array[0, 0], array[0, 1], array[1, 0] = [1, 2], np.arange(3), (2j, None)
    array[1, 1] = np.array(5)
    return [array, array.T, array[:, 1], array[:0], frozen_array(array.copy())]


def _sources() -> Iterator[object]:
    for kind in KINDS:
        generator = np.random.Generator(kind(np.random.SeedSequence([1, 1 << 100], spawn_key=(2,))))
        generator.integers(5, dtype=np.uint32)  # leaves half a word behind
        state = np.random.RandomState(kind(1))
        state.normal()  # leaves a second number behind
        yield from (generator, generator.bit_generator, state)
    for entropy in [0, 5, 1 << 200, [1, 2], (1, 1 << 64), np.uint64((1 << 64) - 1)]:
        seeds = np.random.SeedSequence(entropy, spawn_key=(1, 1 << 40), pool_size=8)
        seeds.spawn(3)
        yield seeds


def _polynomials() -> Iterator[object]:
    for kind in (Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial):
        yield kind([1, 2, 3])
        yield kind([1j], domain=[0, 5], window=[1, 2], symbol="t")
    yield np.poly1d([1, 2, 3], variable="z")
    square = np.array([[2.0, 1.0], [1.0, 3.0]])
    yield from (make(square) for make in (np.linalg.eig, np.linalg.eigh, np.linalg.qr))
    yield from (np.linalg.slogdet(square), np.unique_all([1, 1]), np.unique_counts([1, 1]))
    yield np.unique_inverse([3, 1])
    pickled = Polynomial([1.0, 2.0], symbol="t")
    pickled.__setstate__(pickled.__getstate__())
    yield pickled
    fixed = Polynomial([1.0, 2.0, 3.0])
    fixed.coef.flags.writeable = False
    yield fixed


def others() -> dict[str, object]:
    """Return more honest values."""
    listed = [*SCALARS, *_objects(), *_sources(), *_polynomials()]
    for letter, order in itertools.product("?bBhHiIlLqQefdgFDGMmSUV", "<>"):
        # Arrays of Zarr and HDF5 say "<" where NumPy's own say "=".
        size = {"M": "8[s]", "m": "8[s]", "S": "3", "U": "3", "V": "3"}.get(letter, "")
        listed.append(np.zeros(3, np.dtype(f"{letter}{size}").newbyteorder(order)))
    return {**ARRAYS, **MASKED, **SEEN, **dict(enumerate(listed))}
