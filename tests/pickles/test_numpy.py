"""Profile numpy: arrays come back as they were, and no bytes become objects."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import loads
from safeser.values import Limits

PROFILE = ("data", "numpy")
NESTED = np.dtype([("a", "<i4"), ("b", [("c", ">f8"), ("d", "U3")], (2,))])

ARRAYS = [
    np.arange(6).reshape(2, 3),
    np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
    np.arange(24.0, dtype=">f4").reshape(2, 3, 4).T,
    np.array(5.0),
    np.zeros((0, 3)),
    np.array([True, False]),
    np.array([1 + 2j]),
    np.array([1.5], "f2"),
    np.array([1.5], "g"),
    np.array(["a", "bcd", "\U0001f600"]),
    np.array([b"a", b"bcd"]),
    np.array(["2026-01-01", "NaT"], "M8[ns]"),
    np.array([1, 2], "m8[D]"),
    np.array([3], "m8"),
    np.array([3], "M8[25s]"),
    np.array([("x", 1)], [("s", "S3"), ("n", "i8")]),
    np.zeros(2, NESTED),
    np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    np.zeros(2, {"names": ["a"], "formats": ["i4"], "titles": ["t"]}),
    np.zeros(3, "V5"),
    np.array([1, "two", None, [3]], object),
    np.array([[1, 2], [3, 4]], object).T,
    np.array([], object),
    np.arange(10)[::2],
    np.broadcast_to(np.float64(2), (2, 2)),
]


def same(got, expected):
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    assert got.dtype.flags == expected.dtype.flags
    assert got.shape == expected.shape
    # An empty array's strides reach nothing; older pickles leave them at 0.
    assert got.strides == expected.strides or not got.size
    assert got.flags.writeable == expected.flags.writeable
    if got.dtype.hasobject:
        assert got.tolist() == expected.tolist()
    else:
        assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}-{a.shape}"[:40])
def test_arrays_in_band(array, protocol):
    data = pickle.dumps(array, protocol)
    same(loads(data, profile=PROFILE), pickle.loads(data))


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}-{a.shape}"[:40])
def test_arrays_out_of_band(array):
    buffers = []
    data = pickle.dumps(array, 5, buffer_callback=buffers.append)
    raws = [buffer.raw() for buffer in buffers]
    got = loads(data, buffers=raws, profile=PROFILE)
    same(got, pickle.loads(data, buffers=raws))
    writeable = [bytearray(raw) for raw in raws]
    assert (
        loads(data, buffers=writeable, profile=PROFILE).flags.writeable or not array.flags.writeable
    )


def test_an_out_of_band_array_is_not_copied():
    data, buffers = b"", []
    data = pickle.dumps(np.zeros(10), 5, buffer_callback=buffers.append)
    memory = bytearray(80)
    got = loads(data, buffers=[memory], profile=PROFILE)
    memory[0:8] = np.float64(3).tobytes()
    assert got[0] == 3


def test_plain_buffers_of_all_kinds():
    buffers = []
    data = pickle.dumps(pickle.PickleBuffer(bytearray(b"ab")), 5, buffer_callback=buffers.append)
    for buffer in (b"ab", bytearray(b"ab"), memoryview(b"ab"), np.frombuffer(b"ab", "u1")):
        assert bytes(loads(data, buffers=[buffer])) == b"ab"
    readonly = pickle.dumps(pickle.PickleBuffer(b"ab"), 5, buffer_callback=buffers.append)
    assert loads(readonly, buffers=[bytearray(b"ab")]).readonly
    assert loads(readonly, buffers=[b"ab"]) == b"ab"
    with pytest.raises(PayloadError):
        loads(data, buffers=[])


SCALARS = [
    np.float64(1.5),
    np.int8(-1),
    np.bool_(True),
    np.complex64(1j),
    np.longdouble(2),
    np.str_("abc"),
    np.str_(""),
    np.bytes_(b"x"),
    np.datetime64("2026-01-01", "ns"),
    np.timedelta64(5, "D"),
    np.zeros(1, [("a", "i4")])[0],
]


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_scalars(value):
    got = loads(pickle.dumps(value), profile=PROFILE)
    assert got == value
    assert type(got) is type(value)
    assert got.dtype == value.dtype


def test_scalars_are_keys():
    assert loads(pickle.dumps({np.int64(1): 2}), profile=PROFILE) == {1: 2}


@pytest.mark.parametrize("dtype", [a.dtype for a in ARRAYS], ids=str)
def test_dtypes(dtype):
    got = loads(pickle.dumps(dtype), profile=PROFILE)
    assert got == dtype
    assert got.__reduce__() == dtype.__reduce__()
    assert repr(got) == repr(dtype)


def test_names_of_numpy_1():
    data = pickle.dumps(np.arange(3), 4).replace(
        b"numpy._core.multiarray", b"numpy.core.multiarray"
    )
    data = data.replace(b"\x8c\x16numpy.core", b"\x8c\x15numpy.core")
    size = int.from_bytes(data[3:11], "little") - 1
    data = data[:3] + size.to_bytes(8, "little") + data[11:]
    assert loads(data, profile=PROFILE).tolist() == [0, 1, 2]


def test_arrays_need_the_profile():
    with pytest.raises(PolicyDenied, match="numpy"):
        loads(pickle.dumps(np.arange(3)))


def test_looking_at_the_same_bytes_again_is_charged(asm):
    hostile = Hostile(asm)
    flags = hostile.dtype("b1", hostile.state(order="|")) + b"q\x000"
    raw = asm.raw(bytes(1 << 19)) + b"q\x010"
    again = hostile.frombuffer([b"h\x01"], b"h\x00", (1 << 19,))
    body = flags + raw + b"](" + again * 20 + b"e"
    with pytest.raises(PayloadError) as refused:
        loads(asm.pickle(body), profile=PROFILE, limits=Limits(max_refs=600, max_sharing=99))
    assert refused.value.rule == "pickle.max-refs"


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.ma.array([1, 2, 3], mask=[0, 1, 0]),
        np.ma.array([[1.5, 2], [3, 4]], mask=[[0, 1], [1, 0]], fill_value=-1, order="F"),
        np.ma.array(["a", "b"], mask=True),
        np.ma.array([1, 2]),
    ],
    ids=str,
)
def test_masked_arrays(array, protocol):
    data = pickle.dumps(array, protocol)
    got, expected = loads(data, profile=PROFILE), pickle.loads(data)
    assert type(got) is np.ma.MaskedArray
    assert repr(got) == repr(expected)
    assert got.data.tolist() == expected.data.tolist()
    assert got.fill_value == expected.fill_value


@pytest.mark.parametrize(
    "change",
    [
        {"kind": b"N"},
        {"shape": b"K\x05"},
        {"mask": b"\x01\x01"},
        {"fill": b"]"},
        {"objects": True},
        {"twice": True},
    ],
    ids=str,
)
def test_forged_masked_arrays_are_refused(asm, change):
    hostile = Hostile(asm)
    begun = asm.call(
        "numpy.ma.core:_mareconstruct",
        change.get("kind", asm.name("numpy.ma:MaskedArray")),
        asm.name("numpy:ndarray"),
        asm.tuple(change.get("shape", b"K\x00")),
        asm.text("b"),
    )
    state = asm.tuple(
        b"K\x01",
        asm.tuple(b"K\x01"),
        hostile.objects() if "objects" in change else hostile.dtype(),
        b"\x89",
        asm.raw(bytes(8)),
        asm.raw(change.get("mask", b"\x01")),
        change.get("fill", b"N"),
    )
    body = asm.build(begun, state)
    if "twice" in change:
        body += b"N" + b"b"
    with pytest.raises(PayloadError):
        loads(asm.pickle(body), profile=PROFILE)
    if change == {"twice": True}:
        assert loads(asm.pickle(body[:-2]), profile=PROFILE).mask.all()


def test_arrays_are_bounded():
    data = pickle.dumps(np.zeros(1000), 5)
    with pytest.raises(PayloadError):
        loads(data, profile=PROFILE, limits=Limits(max_array=7999))


class Hostile:
    """Pickles of arrays with one part exchanged."""

    def __init__(self, asm):
        self.a = asm

    def number(self, value):
        return value if isinstance(value, bytes) else self.a.number(value)

    def dtype(self, code="f8", state=None, *, align=b"\x89", copy=b"\x88", order="<"):
        a = self.a
        made = a.call("numpy:dtype", a.text(code), align, copy)
        if state is None:
            state = self.state(order=order)
        return a.build(made, state)

    def state(self, *, version=3, order="<", sub=b"N", names=b"N", fields=b"N", size=-1, flags=0):
        a, n = self.a, self.number
        return a.tuple(n(version), a.text(order), sub, names, fields, n(size), n(-1), n(flags))

    def objects(self):
        return self.dtype("O8", self.state(order="|", flags=63))

    def frombuffer(self, raw=b"\0" * 8, dtype=None, shape=(1,), order="C", extra=()):
        a = self.a
        sizes = a.tuple(*map(self.number, shape))
        raw = a.raw(raw) if isinstance(raw, bytes) else raw[0]
        parts = (raw, dtype or self.dtype(), sizes, a.text(order), *extra)
        return a.call("numpy._core.numeric:_frombuffer", *parts)

    def array(self, content, dtype=None, shape=(1,), *, version=1, fortran=b"\x89", kind=None):
        a = self.a
        begun = a.call(
            "numpy._core.multiarray:_reconstruct",
            kind or a.name("numpy:ndarray"),
            a.tuple(b"K\x00"),
            a.raw(b"b"),
        )
        sizes = a.tuple(*map(self.number, shape))
        state = a.tuple(self.number(version), sizes, dtype or self.dtype(), fortran, content)
        return a.build(begun, state)

    def structured(self, *fields, size, flags=16):
        a = self.a
        names = a.tuple(*(a.text(name) for name, _, _ in fields))
        pairs = [
            part
            for name, base, at in fields
            for part in (a.text(name), a.tuple(base, self.number(at)))
        ]
        state = a.tuple(
            b"K\x03",
            a.text("|"),
            b"N",
            names,
            a.dict(*pairs),
            self.number(size),
            b"K\x01",
            self.number(flags),
        )
        return self.dtype(f"V{size}", state)


HOSTILE = {
    "object flags left out": lambda h: h.frombuffer(
        b"A" * 8, h.dtype("O8", h.state(order="|", flags=0))
    ),
    "object flags on a number": lambda h: h.dtype("f8", h.state(flags=63)),
    "object field": lambda h: h.array(
        h.a.list(b"N"), h.structured(("a", h.objects(), 0), size=8, flags=63)
    ),
    "object field over bytes": lambda h: h.frombuffer(
        b"A" * 8, h.structured(("a", h.objects(), 0), size=8, flags=16)
    ),
    "object subarray": lambda h: h.frombuffer(
        b"A" * 8,
        h.dtype("V8", h.state(order="|", sub=h.a.tuple(h.objects(), h.a.tuple(b"K\x01")), size=8)),
    ),
    "objects fewer than the shape": lambda h: h.array(h.a.list(b"N"), h.objects(), (1 << 27,)),
    "fields past the end": lambda h: h.structured(("a", h.dtype(), 4), size=8),
    "fields at negative offsets": lambda h: h.structured(("a", h.dtype(), -8), size=8),
    "fields that double": lambda h: h.structured(
        *[
            (f"f{i}", h.structured(*[(f"g{j}", h.dtype(), 0) for j in range(150)], size=8), 0)
            for i in range(100)
        ],
        size=8,
    ),
    "fields that overlap": lambda h: h.structured(
        ("a", h.dtype(), 0), ("b", h.dtype(), 4), size=12
    ),
    "the shared dtype": lambda h: h.dtype(copy=b"\x89"),
    "another alignment": lambda h: h.dtype(align=b"\x88"),
    "unknown code": lambda h: h.dtype("f8,f8"),
    "a name as code": lambda h: h.dtype("object"),
    "byte order": lambda h: h.dtype(order="?"),
    "short state": lambda h: h.dtype(state=h.a.tuple(b"K\x03")),
    "no state": lambda h: h.a.call("numpy:dtype", h.a.text("f8"), b"\x89", b"\x88"),
    "dtype built twice": lambda h: h.a.build(
        h.a.list(h.dtype()) + b"0" + h.dtype() + b"q\x50", h.state()
    ),
    "huge element": lambda h: h.dtype("S999999999", h.state(order="|", size=999_999_999)),
    "unit": lambda h: h.dtype(
        "M8",
        h.a.tuple(
            b"K\x04",
            h.a.text("<"),
            *[b"N"] * 3,
            *map(h.number, (-1, -1, 0)),
            h.a.tuple(b"N", h.a.tuple(h.a.raw(b"xx"), b"K\x01", b"K\x01", b"K\x01")),
        ),
    ),
    "subarray of nothing": lambda h: h.dtype("V8", h.state(sub=h.a.tuple(b"N", b")"))),
    "subarray bomb": lambda h: h.dtype(
        "V8", h.state(sub=h.a.tuple(h.dtype(), h.a.tuple(*[h.number(1 << 40)] * 3)))
    ),
    "too few bytes": lambda h: h.frombuffer(b"\0" * 7),
    "too many bytes": lambda h: h.frombuffer(b"\0" * 16),
    "a shape that overflows": lambda h: h.frombuffer(b"", shape=(0, 1 << 40, 1 << 40)),
    "a negative shape": lambda h: h.frombuffer(shape=(-1,)),
    "a number as shape": lambda h: h.a.call(
        "numpy._core.numeric:_frombuffer", h.a.raw(b""), h.dtype(), b"K\x00", h.a.text("C")
    ),
    "too many dimensions": lambda h: h.frombuffer(shape=(1,) * 65),
    "unknown order": lambda h: h.frombuffer(order="A"),
    "order K without axes": lambda h: h.frombuffer(order="K"),
    "axes": lambda h: h.frombuffer(order="K", extra=[h.a.tuple(b"K\x01")]),
    "axes for C": lambda h: h.frombuffer(extra=[h.a.tuple(b"K\x00")]),
    "text as buffer": lambda h: h.frombuffer(raw=[h.a.text("abcdefgh")]),
    "array as buffer": lambda h: h.frombuffer(raw=[h.frombuffer()]),
    "elements without bytes": lambda h: h.frombuffer(
        b"", h.dtype("S0", h.state(order="|", size=0)), (1 << 20,)
    ),
    "characters that are none": lambda h: h.a.call(
        "numpy._core.multiarray:scalar",
        h.dtype(
            "U1", h.a.tuple(b"K\x03", h.a.text("<"), *[b"N"] * 3, b"K\x04", b"K\x04", b"K\x08")
        ),
        h.a.raw(b"\xff" * 4),
    ),
    "a subclass": lambda h: h.array(h.a.raw(b"\0" * 8), kind=h.a.name("numpy:matrix")),
    "no class": lambda h: h.array(h.a.raw(b"\0" * 8), kind=b"N"),
    "another version": lambda h: h.array(h.a.raw(b"\0" * 8), version=0),
    # CPython's own reader wants a whole number there; found by the differential test.
    "a version that is only equal": lambda h: h.array(
        h.a.raw(b"\0" * 8), version=b"G\x3f\xf0" + bytes(6)
    ),
    "neither C nor F": lambda h: h.array(h.a.raw(b"\0" * 8), fortran=b"K\x07"),
    "text as content": lambda h: h.array(h.a.text("abcdefgh")),
    "state of five none": lambda h: h.a.build(
        h.a.call(
            "numpy._core.multiarray:_reconstruct",
            h.a.name("numpy:ndarray"),
            h.a.tuple(b"K\x00"),
            h.a.raw(b"b"),
        ),
        b"N",
    ),
    "begun with False": lambda h: h.a.call(
        "numpy._core.multiarray:_reconstruct",
        h.a.name("numpy:ndarray"),
        h.a.tuple(b"\x89"),
        h.a.raw(b"b"),
    ),
    "begun large": lambda h: h.a.call(
        "numpy._core.multiarray:_reconstruct",
        h.a.name("numpy:ndarray"),
        h.a.tuple(h.number(1 << 40)),
        h.a.raw(b"b"),
    ),
    "long scalar": lambda h: h.a.call(
        "numpy._core.multiarray:scalar", h.dtype(), h.a.raw(b"\0" * 80)
    ),
    "scalar of no dtype": lambda h: h.a.call(
        "numpy._core.multiarray:scalar", b"N", h.a.raw(b"\0" * 8)
    ),
    "state for a scalar": lambda h: h.a.build(
        h.a.call("numpy._core.multiarray:scalar", h.dtype(), h.a.raw(b"\0" * 8)), b"N"
    ),
}


#: Fifteen thousand fields, each of which is read as the few of others are.
LONG = ("fields that double",)


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(recipe, id=name, marks=[pytest.mark.unmeasured] * (name in LONG))
        for name, recipe in HOSTILE.items()
    ],
)
def test_forged_arrays_are_refused(asm, recipe):
    with pytest.raises((PayloadError, PolicyDenied)):
        loads(asm.pickle(recipe(Hostile(asm))), profile=PROFILE)


def test_the_recipes_are_right_but_for_what_they_forge(asm):
    hostile = Hostile(asm)
    assert loads(asm.pickle(hostile.frombuffer()), profile=PROFILE).tolist() == [0.0]
    assert loads(asm.pickle(hostile.array(asm.raw(bytes(8)))), profile=PROFILE).tolist() == [0.0]
    got = loads(asm.pickle(hostile.array(asm.list(b"N"), hostile.objects())), profile=PROFILE)
    assert got.tolist() == [None]
    fields = hostile.structured(("a", hostile.dtype(), 0), size=8)
    assert loads(asm.pickle(fields), profile=PROFILE) == np.dtype([("a", "f8")])


@pytest.mark.unmeasured
def test_numpys_own_dtypes_stay_as_they_are(asm):
    before = np.dtype("f8").__reduce__()
    for recipe in HOSTILE.values():
        with pytest.raises((PayloadError, PolicyDenied)):
            loads(asm.pickle(recipe(Hostile(asm))), profile=PROFILE)
    assert np.dtype("f8").__reduce__() == before


FLAGS = {
    "array": np.array([True, False, True]),
    "record": np.array([(True, 1), (False, 2), (True, 3)], [("f", "?"), ("n", "i1")]),
    "sub-array": np.array([([True, False],), ([False, True],)], [("f", "?", (2,))]),
    "scalar": np.array([(True, 1)], [("f", "?"), ("n", "i1")])[0],
    "mask": np.ma.array([1, 2, 3], mask=[1, 0, 1]),
}


@pytest.mark.parametrize("name", FLAGS)
def test_flags_that_are_neither_0_nor_1_are_true(name):
    # NumPy counts true flags by adding their bytes, and then writes as many results.
    value, said = FLAGS[name], b"\xff"
    data = pickle.dumps(value, 4)
    raw = np.ma.getmaskarray(value).tobytes() if name == "mask" else value.tobytes()
    before, body, after = data.rpartition(raw)
    assert body
    step = 2 if name in ("record", "scalar") else 1
    forged = b"".join(
        said if at % step == 0 and byte else bytes([byte]) for at, byte in enumerate(raw)
    )
    assert forged != raw
    got = loads(before + forged + after, profile=PROFILE)
    assert repr(got) == repr(value)
    held = np.ma.getmaskarray(got) if name == "mask" else got
    assert held.tobytes() == raw


class Shared:
    """Pickles as a NumPy array over a buffer that other objects of the pickle may have too."""

    def __init__(self, raw, dtype, count):
        self.parts = raw, np.dtype(dtype), (count,), "C"

    def __reduce__(self):
        return np._core.numeric._frombuffer, self.parts


@pytest.mark.parametrize("dtype", ["?", [("f", "?")]])
def test_what_was_checked_does_not_change_through_another_array(dtype):
    # A flag of 255 makes NumPy write past the end of what it allocates.
    raw = bytearray(b"\0\1" * 50)
    data = pickle.dumps([Shared(raw, "u1", 100), Shared(raw, dtype, 100)])
    numbers, flags = loads(data, profile=PROFILE)
    numbers[:] = 255
    assert flags.tobytes() == b"\0\1" * 50
    assert flags.flags.writeable


def test_a_buffer_that_is_read_only_here_may_be_writable_there():
    raw = np.zeros(8, "u1")
    both = [raw, np.zeros(8, "?")]
    buffers = []
    data = pickle.dumps(both, 5, buffer_callback=buffers.append)
    assert len(buffers) == 2
    store = bytearray(8)
    numbers, flags = loads(data, buffers=[store, memoryview(store).toreadonly()], profile=PROFILE)
    numbers[:] = 255
    assert not flags.any()
    assert not flags.flags.writeable


def test_a_subarray_without_bytes_is_refused():
    data = pickle.dumps(np.dtype([("a", "i1", (1 << 30, 0)), ("b", "i1")]))
    with pytest.raises(PayloadError, match="sub-array"):
        loads(data, profile=PROFILE)


def test_keys_that_raise_at_each_other_are_one_clear_refusal(asm):
    # Of one hash, and Decimal's comparison raises at a NumPy integer.
    decimal = asm.call("decimal:Decimal", asm.text("1"))
    number = asm.call(
        "numpy._core.multiarray:scalar",
        pickle.dumps(np.dtype("i8"), 2)[2:-1],
        asm.raw((1).to_bytes(8, "little")),
    )
    for body in (
        asm.set(decimal, number),
        b"(" + decimal + number + b"\x91",
        asm.dict(decimal, b"N", number, b"N"),
    ):
        with pytest.raises(PayloadError, match="cannot be put together"):
            loads(asm.pickle(body), profile=PROFILE)


def test_a_number_that_also_has_fields_is_refused():
    # NumPy would make another dtype of it than we did.
    with pytest.raises(PayloadError, match="number too"):
        loads(pickle.dumps(np.dtype((np.int32, [("a", "<i4")]))), profile=PROFILE)
