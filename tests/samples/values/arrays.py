"""NumPy's arrays, scalars and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np


def examples() -> dict[str, object]:
    nested = np.dtype(
        [("a", ">i4"), ("b", [("c", "U3"), ("d", "M8[s]", (2, 1))]), (("title", "e"), "?")],
        align=True,
    )
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
        "long-double": np.ones(2, "g"),
        "half": np.ones(2, "e"),
        "nested": np.zeros(3, nested),
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
        "record": np.zeros(1, nested)[0],
        "string": np.str_("a"),
        "byte-string": np.bytes_(b"a\0"),
        "dtype": nested,
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
        "chebyshev": np.polynomial.Chebyshev([1, 2], domain=[0, 5]),
        "generator": np.random.default_rng(1),
        "philox": np.random.Philox(5),
        "twister": np.random.MT19937(1),
        "random-state": np.random.RandomState(1),
        "seeds": np.random.SeedSequence([1, 2], spawn_key=(3,)),
        "dict": {"x": np.arange(2), 1: np.arange(2)},
    }


def uses(value: object) -> Iterator[Callable[[], object]]:
    if isinstance(value, np.random.BitGenerator):
        yield lambda: value.random_raw(10)
        value = np.random.Generator(value)
    if isinstance(value, (np.random.Generator, np.random.RandomState)):
        yield lambda: value.integers(0, 10, 5)
        yield lambda: value.integers(0, 200, 5, dtype=np.uint8)
        yield lambda: value.randint(0, 10, 5)
        yield lambda: value.random(5)
        yield lambda: value.normal(size=5)
        yield lambda: value.permutation(5)
        yield lambda: value.choice([1, 2, 3], 2)
        yield lambda: value.spawn(2)
    if isinstance(value, np.random.SeedSequence):
        yield lambda: value.generate_state(5)
        yield lambda: value.spawn(2)
    if isinstance(value, np.ma.MaskedArray):
        yield lambda: value.filled()
        yield lambda: value.compressed()
        yield lambda: value.fill_value
        yield lambda: value.astype("f8").fill_value
        yield lambda: value.__setitem__(0, np.ma.masked)
        yield lambda: value.soften_mask().mean()
    if isinstance(value, (np.poly1d, np.polynomial.Chebyshev)):
        yield lambda: value(0.5)
        yield lambda: value.deriv() + value
    if isinstance(value, np.recarray):
        yield lambda: [getattr(value, name) for name in value.dtype.names or ()]
        yield lambda: value[0].pprint()
