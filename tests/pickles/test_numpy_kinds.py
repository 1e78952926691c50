"""Profile numpy: subclasses of arrays, records, polynomials, ``masked``."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from safeser.errors import SafeserError
from safeser.pickles import loads

PROFILE = ("data", "numpy")
RECORDS = np.rec.array([(1, "a")], dtype=[("i", "i4"), ("s", "U3")])
ALIGNED = np.dtype([("a", "i1"), ("b", "f8")], align=True)
PAIRS = [("a", "i4"), ("b", "f4")]
MATRIX = np.array([[1, 2], [3, 4]]).view(np.matrix)
SERIES = ("Polynomial", "Chebyshev", "Legendre", "Laguerre", "Hermite", "HermiteE")

VALUES = [
    MATRIX,
    MATRIX.T,
    RECORDS,
    RECORDS[0],
    RECORDS.dtype,
    np.zeros(2, ALIGNED).view(np.recarray),
    np.zeros(2, "i4").view(np.recarray),
    np.array(["ab", "c"]).view(np.char.chararray),
    np.array([b"ab", b"c"]).view(np.char.chararray),
    np.arange(3).view(np.memmap),
    np.dtype("i4", metadata={"a": 1}),
    np.dtype("M8[s]", metadata={"a": [1]}),
    np.dtype([("a", np.dtype("i4", metadata={"x": "y"}))], metadata={"q": 1}),
    np.zeros(2, np.dtype("f4", metadata={"z": 1})),
    np.poly1d([1, 2, 3]),
    np.poly1d([1.5, 2], variable="t"),
    *[getattr(np.polynomial, kind)([1, 2, 3], [0, 4], symbol="z") for kind in SERIES],
    np.ma.array([(1, 2), (3, 4)], dtype=PAIRS, mask=[(0, 1), (1, 0)]),
    np.ma.array([1, "a"], dtype=object, mask=[0, 1]),
    np.ma.array([1.0, 2], mask=[0, 1], fill_value=7),
    np.ma.array(["2026-01-01"], dtype="M8[D]", mask=[1]),
    np.longdouble("1e4000"),
    np.array([1, 0, np.inf, np.nan, -1e-4940], "g"),
    np.array([1 + 2j], "G").astype(">G"),
]


def facts(value):
    if not isinstance(value, np.ndarray):
        return ()
    flags = (value.flags.writeable, value.flags.c_contiguous, value.flags.f_contiguous)
    return (*flags, value.dtype.flags, value.dtype.metadata, value.dtype.type)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_comes_back_as_pickle_gives_it(value, protocol):
    data = pickle.dumps(value, protocol)
    got, expected = loads(data, profile=PROFILE), pickle.loads(data)
    assert type(got) is type(expected)
    assert repr(got) == repr(expected)
    assert facts(got) == facts(expected)
    if isinstance(value, np.dtype):
        assert got.__reduce__() == expected.__reduce__()
        assert got.metadata == expected.metadata


def test_masked_stays_the_one_that_it_is():
    assert loads(pickle.dumps(np.ma.masked), profile=PROFILE) is np.ma.masked


def test_every_listed_class_of_elements_is_there():
    for name in ("float64", "int8", "str_", "datetime64", "longdouble"):
        kind = getattr(np, name)
        assert loads(pickle.dumps(kind), profile="numpy") is kind


def test_accepted_arrays_can_be_used():
    for value in VALUES:
        got = loads(pickle.dumps(value), profile=PROFILE)
        assert repr(got)
        assert pickle.dumps(got)
        if isinstance(got, np.ndarray) and got.dtype.kind not in "OV":
            assert np.sort(got, axis=None).size == got.size
            assert got.copy().shape == got.shape


RECONSTRUCT = "numpy._core.multiarray:_reconstruct"


def dtype_of(asm, code, state):
    made = asm.call("numpy:dtype", code, b"\x89", b"\x88")
    return asm.build(made, asm.value(state))


def array_of(asm, kind, shape, dtype, content, fortran=b"\x89"):
    made = asm.call(RECONSTRUCT, asm.name(kind), asm.tuple(b"K\x00"), asm.raw(b"b"))
    state = asm.tuple(b"K\x01", asm.value(shape), dtype, fortran, content)
    return asm.build(made, state)


def i8(asm):
    return dtype_of(asm, asm.text("i8"), np.dtype("i8").__reduce__()[2])


def texts(asm):
    return asm.call("numpy._core._internal:_convert_to_stringdtype_kwargs", b"K\x01")


def record_state(asm, **changed):
    parts = {"names": b"N", "fields": b"N", "size": b"K\x00", **changed}
    order = [b"K\x03", asm.text("|"), b"N", parts["names"], parts["fields"], parts["size"]]
    return asm.tuple(*order, b"K\x01", b"K\x10")


def record_dtype(asm, **changed):
    made = asm.call("numpy:dtype", asm.name("numpy:record"), b"\x89", b"\x88")
    return asm.build(made, record_state(asm, **changed))


def with_metadata(asm, metadata, version=4):
    state = asm.tuple(
        asm.number(version),
        asm.text("<"),
        b"N",
        b"N",
        b"N",
        *[asm.number(-1)] * 2,
        b"K\x00",
        metadata,
    )
    return asm.build(asm.call("numpy:dtype", asm.text("i4"), b"\x89", b"\x88"), state)


def polynomial(asm, kind="numpy.polynomial.polynomial:Polynomial", **changed):
    row = asm.value(np.array([1.0, 2.0]))
    fields = {"coef": row, "domain": row, "window": row, "_symbol": asm.text("x"), **changed}
    items = [part for name, value in fields.items() for part in (asm.text(name), value)]
    return asm.build(asm.new(kind), asm.dict(*items))


def without_symbol(asm, **fields):
    row = asm.value(np.array([1.0, 2.0]))
    items = [part for name in ("coef", "domain", "window") for part in (asm.text(name), row)]
    items += [part for name, value in fields.items() for part in (asm.text(name), value)]
    return asm.build(asm.new("numpy.polynomial.polynomial:Polynomial"), asm.dict(*items))


def poly1d(asm, coefficients, variable="x"):
    fields = [asm.text("coeffs"), asm.value(coefficients), asm.text("_variable")]
    return asm.build(asm.new("numpy:poly1d"), asm.dict(*fields, asm.text(variable)))


def long_double(*, mantissa, exponent):
    raw = mantissa.to_bytes(8, "little") + exponent.to_bytes(2, "little") + bytes(6)
    return np.frombuffer(raw, "g")


BYPASSES = {
    "a subclass of one's own": lambda a: array_of(
        a, "safeser_trap:Armed", (1,), i8(a), a.raw(bytes(8))
    ),
    "a matrix of one dimension": lambda a: array_of(
        a, "numpy:matrix", (1,), i8(a), a.raw(bytes(8))
    ),
    "a matrix of three": lambda a: array_of(a, "numpy:matrix", (1, 1, 1), i8(a), a.raw(bytes(8))),
    "a chararray of numbers": lambda a: array_of(
        a, "numpy.char:chararray", (1,), i8(a), a.raw(bytes(8))
    ),
    "a memmap too short": lambda a: array_of(a, "numpy:memmap", (2,), i8(a), a.raw(bytes(8))),
    "a memmap's file": lambda a: a.call("numpy:memmap", a.text("/etc/passwd")),
    "texts of any length, which crash when they are swapped": lambda a: array_of(
        a, "numpy:ndarray", (1,), texts(a), a.list(a.text("x"))
    ),
    "a record without fields": record_dtype,
    "a record larger than it is": lambda a: record_dtype(
        a,
        names=a.tuple(a.text("a")),
        fields=a.dict(a.text("a"), a.tuple(i8(a), b"K\x04")),
        size=b"K\x08",
    ),
    "a record that overlaps": lambda a: record_dtype(
        a,
        names=a.tuple(a.text("a"), a.text("b")),
        fields=a.dict(a.text("a"), a.tuple(i8(a), b"K\x00"), a.text("b"), a.tuple(i8(a), b"K\x04")),
        size=b"K\x0c",
    ),
    "a record of another class": lambda a: a.call(
        "numpy:dtype", a.name("numpy:ndarray"), b"\x89", b"\x88"
    ),
    "a record by its mark": lambda a: a.call("numpy:dtype", a.text("V record"), b"\x89", b"\x88"),
    "metadata that is none": lambda a: with_metadata(a, a.list(b"N")),
    "metadata by number": lambda a: with_metadata(a, a.dict(b"K\x01", b"N")),
    "metadata in another version": lambda a: with_metadata(a, a.dict(a.text("a"), b"N"), 3),
    "a state for masked": lambda a: a.build(a.call("numpy.ma.core:MaskedConstant"), a.dict()),
    "masked with arguments": lambda a: a.call("numpy.ma.core:MaskedConstant", b"N"),
    "coefficients of objects": lambda a: polynomial(a, coef=b"]"),
    "coefficients in a square": lambda a: polynomial(a, coef=a.value(np.zeros((2, 2)))),
    "coefficients of texts": lambda a: poly1d(a, np.array(["a"])),
    "coefficients of integers": lambda a: polynomial(a, coef=a.value(np.array([1, 2]))),
    "a window of integers": lambda a: polynomial(a, window=a.value(np.array([-1, 1]))),
    "leading zeros": lambda a: poly1d(a, np.array([0, 1])),
    "a domain of three": lambda a: polynomial(a, domain=a.value(np.zeros(3))),
    "a symbol that is none": lambda a: polynomial(a, _symbol=a.text("x y")),
    "a long symbol": lambda a: poly1d(a, np.zeros(2), "x" * 65),
    "two symbols": lambda a: polynomial(a, symbol=a.text("y")),
    "a symbol of another name": lambda a: polynomial(a, _symbols=a.text("x")),
    "no symbol": lambda a: without_symbol(a),
    "a symbol for the property alone": lambda a: without_symbol(a, symbol=a.text("x")),
    "a method": lambda a: polynomial(a, roots=a.text("x")),
    "no coefficients": lambda a: a.build(a.new("numpy:poly1d"), a.dict()),
    "a polynomial built twice": lambda a: a.build(polynomial(a), a.dict()),
}
# What Intel keeps in 80 bits writes its leading one out.
if np.finfo("g").nmant == 63:
    BYPASSES |= {
        "a long double without its leading one": lambda a: a.value(
            long_double(mantissa=1, exponent=100)
        ),
        "a long double with one too many": lambda a: a.value(
            long_double(mantissa=1 << 63, exponent=0)
        ),
        "an infinity without": lambda a: a.value(long_double(mantissa=0, exponent=0x7FFF)),
        "a complex one": lambda a: a.value(
            np.concatenate([long_double(mantissa=1, exponent=1)] * 2).view("G")
        ),
    }


@pytest.mark.parametrize("recipe", BYPASSES.values(), ids=BYPASSES.keys())
def test_bypass_forged_kinds_are_refused(asm, trap, recipe):
    with pytest.raises(SafeserError):
        loads(asm.pickle(recipe(asm)), profile=PROFILE)


def test_the_recipes_are_right_but_for_what_they_forge(asm):
    def load(body):
        return loads(asm.pickle(body), profile=PROFILE)

    assert load(array_of(asm, "numpy:matrix", (1, 1), i8(asm), asm.raw(bytes(8)))).shape == (1, 1)
    assert load(polynomial(asm)).symbol == "x"
    assert load(poly1d(asm, np.array([1, 2])))(1) == 3
    assert load(with_metadata(asm, asm.dict(asm.text("a"), b"N"))).metadata == {"a": None}
    fields = asm.dict(asm.text("a"), asm.tuple(i8(asm), b"K\x00"))
    names = asm.tuple(asm.text("a"))
    assert load(record_dtype(asm, names=names, fields=fields, size=b"K\x08")).type is np.record
    assert load(asm.value(long_double(mantissa=1 << 63, exponent=0x3FFF))) == [1]


def test_bypass_metadata_that_changes_later_is_kept_as_it_was():
    held = {"a": 1}
    got, again = loads(pickle.dumps([np.dtype("i4", metadata=held), held]), profile=PROFILE)
    again["b"] = 2
    assert got.metadata == {"a": 1}


def test_bypass_numpys_own_dtypes_stay_without_metadata(asm):
    loads(asm.pickle(with_metadata(asm, asm.dict(asm.text("a"), b"N"))), profile=PROFILE)
    assert np.dtype("i4").metadata is None


def test_bypass_masks_of_structures_hold_flags_only(asm):
    array = np.ma.array([(1, 2)], dtype=PAIRS, mask=[(0, 1)])
    data = pickle.dumps(array, 4)
    flags = b"C\x02\x00\x01"
    assert flags in data
    got = loads(data.replace(flags, b"C\x02\x00\x05"), profile=PROFILE)
    assert np.ma.getmaskarray(got).tobytes() == b"\0\1"
