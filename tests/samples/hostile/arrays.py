"""NumPy's values that no honest sender writes, and those that no sender sends."""

from __future__ import annotations

import numpy as np
from numpy.polynomial import Polynomial

from tests.pickles.forging import Called
from tests.samples.typed import hostile, payload, replaced, ruled, sent, sent_as, typed
from tests.samples.typed import lying as of
from tests.samples.values.arrays import matrix


class Float(np.float64):
    pass


Text = np.dtypes.StringDType


def with_info():
    masked = np.ma.array([1])
    masked._optinfo["unit"] = "m"
    return masked


def named(array):
    array.name = "mine"
    return array


class Mine(np.ndarray):
    pass


class Own(np.random.SeedSequence):
    pass


def with_more(x):
    x.more = 1
    return x


def turned(x):
    x.coef = np.array([1, 2])  # numbers that its constructor makes floats of
    return x


ARRAYS = [
    (np.zeros(1, [("a", int), ("b", object)]), "'b'"),
    (np.zeros(1, {"names": ["a", "b"], "formats": ["i4", "i4"], "offsets": [0, 2]}), "overlap"),
    (np.zeros(1, np.dtype("f8", metadata={"a": object()})), "metadata"),
    (np.array(["a"], np.dtypes.StringDType()), "byteswap"),
    (np.dtypes.StringDType(na_object=None), "byteswap"),
    (np.zeros(1, np.dtype((np.int32, [("a", "i2"), ("b", "i2")]))), "scalar type"),
    (np.array([1, 2, 3, object()], object), "[3]"), (np.frompyfunc(abs, 1, 1), "ufunc"),
    (np.ndarray, "code"),
    (np.dtypes.Float64DType, "code"), (np.load, "code"), (np.dtype([((5, "a"), int)]), "title"),
    (np.zeros(1, [("a", int)])[0].astype(object) and Float(1), "subclass"),
    (type("Text", (np.str_,), {})("x"), "subclass"),
]  # fmt: skip
KINDS = [
    (np.ma.array(["a"], dtype=Text()), "byteswap"), (with_info(), "attributes"),
    (np.ma.array(matrix([[1]])), "a class of its own"), (named(matrix([[1]])), "attributes"),
    (named(np.zeros(1).view(np.recarray)), "attributes"), (np.zeros(1).view(Mine), "Mine"),
    (np.zeros(1).view(np.memmap), "stands for a file"),
    (np.ma.array([("a", 1)], dtype=[("x", "U2"), ("y", "i4")])[0], "mvoid"),
]  # fmt: skip
SOURCES = [
    (np.random.PCG64(Own(1)), "Own"),
    (np.random.SeedSequence([1.5] and np.array([1, 2])), "plain integers"),
    (Own(1), "Own"),
]

UNSENT = [
    *(*ARRAYS, *KINDS, *SOURCES),
    (np.zeros(2, [("a", "i4", (0,))]), "sub-array of it has no bytes"),
    (with_more(Polynomial([1])), "polynomial"),
    (with_more(np.poly1d([1])), "does not have the"),
    (turned(Polynomial([1.0])), "polynomial"),
    (np.lib.stride_tricks.as_strided(np.ones(2), (1 << 40, 1 << 10), (0, 8)), "max_array"),
]


def lying(**changes):
    meta = {"shape": [2], "order": "C", "writeable": True, "dtype": "<l8", **changes}
    return {"serializer": "dask", "type": "numpy:ndarray", "sub-header": meta}


def record(*fields, size=8):
    return {"fields": list(fields), "size": size, "align": False}


LONG = "<l8"
MALFORMED = [
    (lying(dtype=["O", 8, "|"]), bytes(16), "families.dtype"),
    (lying(dtype="|O"), bytes(16), "families.dtype"),
    (lying(dtype=record(["a", ["O", 8, "|"], 0])), bytes(16), "families.dtype"),
    (lying(dtype=record(["a", {"base": ["O", 8, "|"], "shape": [1]}, 0])), bytes(16),
     "families.dtype"),
    (lying(dtype=record(["a", LONG, 0], ["b", LONG, 4], size=16)), bytes(32), "value.dtype"),
    (lying(dtype=record(["a", LONG, 0], ["a", LONG, 8], size=16)), bytes(32), "value.dtype"),
    (lying(dtype=record(["a", LONG, -8])), bytes(16), "value.dtype"),
    (lying(dtype=record(["a", LONG, 1])), bytes(16), "value.dtype"),
    (lying(dtype=record(["a", LONG, 0, 5])), bytes(16), "families.dtype"),
    (lying(dtype=record(["a", LONG])), bytes(16), "families.dtype"),
    (lying(dtype={"fields": 5, "size": 8, "align": False}), bytes(16), "families.dtype"),
    (lying(dtype={"fields": [["a", "<i4", 2]], "size": 8, "align": True}), bytes(16),
     "value.dtype"),
    (lying(dtype=record(*[[str(n), "|b1", n] for n in range(10001)], size=10001)),
     bytes(20002), "families.dtype"),
    (lying(dtype={"base": LONG, "shape": [1]}), bytes(16), "value.dtype"),
    (lying(dtype={"base": LONG, "shape": []}), bytes(16), "value.dtype"),
    (lying(dtype=record(["a", {"base": LONG, "shape": [1 << 31]}, 0])), b"", "value.dtype"),
    (lying(dtype=record(["a", {"base": ["V", 0, "|"], "shape": [1 << 40, 0]}, 0])), b"",
     "value.dtype"),
    (lying(dtype=["l", 3, "<"]), bytes(6), "families.dtype"),
    (lying(dtype=["M", 8, "<", "parsec", 1]), bytes(16), "families.dtype"),
    (lying(dtype=["M", 8, "<", "s", 0]), bytes(16), "families.dtype"),
    (lying(dtype=["M", 4, "<", "s", 1]), bytes(8), "families.dtype"),
    (lying(dtype=["l", 8, "<", "s", 1]), bytes(16), "families.dtype"),
    (lying(dtype=["U", 3, "<"]), bytes(6), "families.dtype"),
    (lying(dtype=["V", -1, "|"]), bytes(16), "families.dtype"),
    (lying(dtype=[8, 8, "|"]), bytes(16), "families.dtype"),
    (lying(dtype=["G", 24, "<"]), bytes(48), "families.dtype"),
    (lying(), bytes(15), "families.shape"), (lying(), bytes(17), "families.shape"),
    (lying(shape=[-1, -2]), bytes(16), "value.shape"),
    (lying(shape=[True, 2]), bytes(16), "value.shape"),
    (lying(shape=[0, 1 << 61]), b"", "value.array-size"),
    (lying(shape=[1 << 40], dtype=["V", 0, "|"]), b"", "value.array-size"),
    (lying(shape=[1] * 65), bytes(8), "value.shape"),
    (lying(shape=[1 << 40], base=[1], writeable=False), bytes(8), "value.array-size"),
    (lying(shape=[3], base=[2], writeable=False), bytes(16), "families.shape"),
    (lying(shape=[3, 2], base=[2], writeable=False), bytes(16), "families.shape"),
    (lying(shape=[3], base=[1]), bytes(8), "families.shape"),
    (lying(base=None, writeable=False), bytes(16), "value.shape"),
    (lying(order="A"), bytes(16), "families.header"),
    (lying(order=["C"]), bytes(16), "families.header"),
    (lying(order=[True]), bytes(16), "families.header"),
    (lying(order=[0, 0], shape=[2, 1]), bytes(16), "families.header"),
    (lying(order=[0, 1, 2], shape=[2, 1]), bytes(16), "families.header"),
    (lying(order=[2, 0], shape=[2, 1]), bytes(16), "families.header"),
    (lying(writeable=1), bytes(16), "families.header"),
    (lying(dtype=["l", 8.0, "<"]), bytes(16), "families.dtype"),
    (lying(dtype=["?", True, "|"]), bytes(2), "families.dtype"),
    (lying(dtype={"missing": [], "coerce": True}), bytes(32), "families.dtype"),
    (lying(dtype=record(["a", {"missing": [], "coerce": True}, 0])), bytes(32), "families.dtype"),
    (lying(dtype={**record(["a", LONG, 0]), "record": 1}), bytes(16), "families.dtype"),
    (lying(strides=[8]), bytes(16), "families.header"),
    (lying(dtype=["U", 4, "<"]), b"\0\0\x11\0" * 2, "value.elements"),
    # A flag that is put right spares no text beside it.
    (lying(dtype=record(["a", "|?1", 0], ["b", ["U", 4, "<"], 4])), b"\2" + b"\xff" * 15,
     "value.elements"),
    # NumPy adds the dimensions of a field to those of its array.
    (lying(shape=[1] * 60, dtype=record(["a", {"base": LONG, "shape": [1] * 5}, 0])), bytes(8),
     "value.shape"),
    (lying(dtype=record(["a", LONG, (1 << 31) - 8])), bytes(16), "value.dtype"),
    (lying(dtype=["U", 4, ">"]), b"\0\x11\0\0" * 2, "value.elements"),
    (lying(dtype=record(["a", {"base": ["U", 4, "<"], "shape": [2]}, 0])), b"\xff" * 16,
     "value.elements"),
]  # fmt: skip

SUBCLASSES = {
    "value.shape": [("numpy:matrix", np.zeros(3)), ("numpy:matrix", np.zeros((1, 1, 1)))],
    "families.child-type": [
        ("numpy:matrix", [1, 2]), ("numpy:recarray", {"a": 1}), ("numpy:recarray", np.float64(1)),
    ],
    "families.header": [("numpy:matrix", np.zeros((2, 2)), {"name": "x"})],
}  # fmt: skip


def source(source, changes):
    """Return how *source* travels with other fields in its state."""
    make, arguments, (state, seeds) = source.__reduce__()
    state["state"].update({k: v for k, v in changes.items() if k in state["state"]})
    state.update({k: v for k, v in changes.items() if k not in state["state"]})
    return sent_as("numpy.random:BitGenerator", Called(make, *arguments, state=(state, seeds)))


STILL = np.zeros(624, np.uint32)

STATES = {
    "value.random-state": [
        # C read behind the end of the key.
        (np.random.MT19937(1), {"pos": 1 << 40}), (np.random.MT19937(1), {"pos": -1}),
        # A state from which nothing leads on: drawing a bounded number never ended.
        (np.random.MT19937(1), {"key": STILL}), (np.random.PCG64(1), {"inc": 0}),
        (np.random.PCG64(1), {"state": 1 << 128}), (np.random.MT19937(1), {"key": STILL[:-1]}),
        (np.random.MT19937(1), {"key": STILL.astype(np.uint64)}),
        (np.random.Philox(1), {"buffer_pos": 5}),
        (np.random.Philox(1), {"counter": np.zeros(3, np.uint64)}),
        (np.random.SFC64(1), {"has_uint32": 2}), (np.random.SFC64(1), {"uinteger": 1 << 32}),
    ],
    "families.arguments": [
        (np.random.MT19937(1), {"key": STILL.tobytes()}),
        (np.random.MT19937(1), {"key": [1] * 624}),
    ],
    "families.state": [
        (np.random.SFC64(1), {"bit_generator": "MT19937"}),
        (np.random.SFC64(1), {"more": b"\0" * 8}),
    ],
}  # fmt: skip


SPARE = {
    "value.random-state": [{"has_gauss": 2, "gauss": 0.0}],
    "families.arguments": [{"has_gauss": 1, "gauss": 1}, {"has_gauss": 0}],
    "families.state": [{"has_gauss": 0, "gauss": 0.0, "bit_generator": "PCG64"}],
}


def child(kind, inner, meta=None):
    """Return the payload of a type that is seen through an array."""
    header, frames = typed(kind, sent(inner))
    return {**header, "sub-header": meta or {}}, frames


def state(state):
    make, arguments, _ = np.random.RandomState(1).__reduce__()
    return sent_as("numpy.random:RandomState", Called(make, *arguments, state=state))


def framed(header, frame):
    return header, [frame]


def texts():
    """Yield the payloads of NumPy's texts of any length, of which byteswap() ends the process."""
    for described in ({"missing": [], "coerce": True}, {"missing": [None], "coerce": True}):
        yield lying(dtype=described), [bytes(16)]
        yield typed("numpy:dtype", dtype=described)
        yield typed("numpy:generic", dtype=described, data=bytes(16))


def keys():
    """Yield headers of arrays that have not exactly the keys of one."""
    rules = {
        "shape": ("value.shape", "value.shape", "families.header"),
        "order": ("value.shape", "families.header", "families.header"),
        "writeable": ("value.shape", "families.header", "families.header"),
        "dtype": ("families.dtype",) * 3,
    }
    for missing, refusals in rules.items():
        for instead, rule in zip(("base", "strides", None), refusals, strict=True):
            header = lying(writeable=False)
            value = header["sub-header"].pop(missing)
            header["sub-header"] |= {instead: value} if instead else {}
            yield (header, [bytes(16)]), rule


def nested():
    described = LONG
    for _ in range(100):
        described = record(["a", described, 0])
    return lying(dtype=described), [bytes(16)]


def nothing(inner):
    return lying(shape=[1], dtype=record(["a", inner, 0], ["b", "|b1", 0], size=1)), [b"x"]


#: Free to say, and printing one element of such a record walked over two billion nothings.
NOTHINGS = [
    {"base": "|b1", "shape": [(1 << 31) - 1, 0]},
    {"base": "|b1", "shape": [0, (1 << 31) - 1, (1 << 31) - 1]},
    {"base": ["S", 0, "|"], "shape": [(1 << 31) - 1]},
]
MASKED = np.ma.array([1, 2], mask=[0, 1], fill_value=3)
OBJECTS = np.array([1, 2], object)
MISPLACED = [
    *((made, "families.dtype") for made in (*texts(), nested())),
    *keys(),
    *((nothing(one), "value.dtype") for one in NOTHINGS),
    (of(OBJECTS, "shape", to=[3]), "families.shape"),
    (of(OBJECTS, "shape", to=[1 << 59, 0]), "value.array-size"),
    (of(OBJECTS, "shape", to=[2, 1 << 59]), "value.array-size"),
    (of(np.zeros(0, object), "shape", to=[0, 1 << 60]), "value.array-size"),
    *((replaced(MASKED, at, np.array([1.5])), "families.child-type") for at in range(3)),
    (replaced(MASKED, 0, np.broadcast_to(1, (3,))), "families.child-type"),
    (sent_as("numpy.polynomial:series", turned(Polynomial([1.0]))), "value.polynomial"),
    (typed("numpy:memmap"), "families.type"),
    (typed("numpy:memmap", filename="/etc/passwd", mode="r+", offset=0), "families.type"),
]

HOSTILE = [
    *ruled(framed, MALFORMED), *hostile(child, SUBCLASSES), *hostile(source, STATES),
    *hostile(state, SPARE), *ruled(payload, [(*made, rule) for made, rule in MISPLACED]),
]  # fmt: skip
