"""Arrays, dtypes and sources of random numbers in pickles: forged ones, by the rule that refuses.

The one rule: a row differs from what its helper makes by default in what its name says.
"""

from __future__ import annotations

import numpy as np

from tests.samples.opcodes import build, call, name, new, pairs, raw, value

RECONSTRUCT = "numpy._core.multiarray:_reconstruct"
CTOR = "numpy.random._pickle:__bit_generator_ctor"
KINDS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


def dtype_state(*, version=3, order="<", sub=None, names=None, fields=None, size=-1, flags=0):
    return version, order, sub, names, fields, size, -1, flags


def dtype(code="f8", state=None, *, align=False, copy=True, order="<"):
    return build(call("numpy:dtype", code, align, copy), state or dtype_state(order=order))


def objects():
    return dtype("O8", dtype_state(order="|", flags=63))


def frombuffer(content=bytes(8), of=None, shape=(1,), order="C", extra=()):
    content = content[0] if isinstance(content, list) else raw(content)
    return call("numpy._core.numeric:_frombuffer", content, of or dtype(), shape, order, *extra)


def begun(kind=None, shape=(0,)):
    return call(RECONSTRUCT, name("numpy:ndarray") if kind is None else kind, shape, raw(b"b"))


def array(content, of=None, shape=(1,), *, version=1, fortran=False, kind=None):
    return build(begun(kind), (version, shape, of or dtype(), fortran, content))


def structured(*fields, size, flags=16):
    names = tuple(named for named, _, _ in fields)
    held = {named: (base, at) for named, base, at in fields}
    return dtype(f"V{size}", (3, "|", None, names, held, size, 1, flags))


def masked(kind=None, shape=0, mask=b"\x01", fill=None, of=None):
    kind = name("numpy.ma:MaskedArray") if kind is None else kind
    parts = kind, name("numpy:ndarray"), (shape,), "b"
    content = 1, (1,), of or dtype(), False, raw(bytes(8)), raw(mask), fill
    return build(call("numpy.ma.core:_mareconstruct", *parts), content)


def array_of(kind, shape, of, content, fortran=False):
    return array(content, of, shape, fortran=fortran, kind=name(kind))


def i8():
    return dtype("i8")


def texts():
    return call("numpy._core._internal:_convert_to_stringdtype_kwargs", 1)


def record_dtype(*, names=None, fields=None, size=0):
    made = call("numpy:dtype", name("numpy:record"), False, True)
    return build(made, (3, "|", None, names, fields, size, 1, 16))


def with_metadata(metadata, version=4):
    made = call("numpy:dtype", "i4", False, True)
    return build(made, (version, "<", None, None, None, -1, -1, 0, metadata))


ROW = np.array([1.0, 2.0])


def polynomial(kind="numpy.polynomial.polynomial:Polynomial", **changed):
    fields = {"coef": ROW, "domain": ROW, "window": ROW, "_symbol": "x", **changed}
    return build(new(kind), fields)


def without_symbol(**fields):
    made = new("numpy.polynomial.polynomial:Polynomial")
    return build(made, {"coef": ROW, "domain": ROW, "window": ROW, **fields})


def poly1d(coefficients, variable="x"):
    return build(new("numpy:poly1d"), {"coeffs": coefficients, "_variable": variable})


def long_double(*, mantissa, exponent):
    content = mantissa.to_bytes(8, "little") + exponent.to_bytes(2, "little") + bytes(6)
    return np.frombuffer(content, "g")


def source(kind):
    generator = np.random.Generator(kind(5))
    generator.integers(0, 9, dtype="u4")
    return generator


def bits(kind, content, seed=None, *, named=None):
    module = {"MT19937": "_mt19937", "Philox": "_philox", "SFC64": "_sfc64"}.get(kind, "_pcg64")
    named = named or name(f"numpy.random.{module}:{kind}")
    return build(call(CTOR, named), (content, seed))


def going(kind, inner=(), **outer):
    """Return the state of a generator of *kind*, with parts of it changed."""
    whole = dict(source(getattr(np.random, kind)).bit_generator.state)
    return {**whole, "state": {**whole["state"], **dict(inner)}, **outer}


def seed_of(entropy=3, spawned=0, pool=None, size=4, key=()):
    pool = np.random.SeedSequence(3).pool if pool is None else pool
    kind = name("numpy.random.bit_generator:SeedSequence")
    made = call("numpy.random.bit_generator:__pyx_unpickle_SeedSequence", kind, 65708578, None)
    return build(made, (entropy, spawned, pool, size, key))


def random_state(**changed):
    whole = np.random.RandomState(3).get_state(legacy=False)
    made = call("numpy.random._pickle:__randomstate_ctor", bits("MT19937", going("MT19937")))
    return build(made, {**whole, **changed})


def short(count, code="u8"):
    return np.zeros(count, code)


def nothing():
    return build(call("numpy:dtype", "S0", False, True), np.dtype("S0").__reduce__()[2])


def doubled(levels):
    made = np.dtype("i1")
    for _ in range(levels):
        made = np.dtype([("a", made), ("b", made)])
    return made


#: Of one hash, and Decimal's comparison raises at a NumPy integer.
ONE_DECIMAL = call("decimal:Decimal", "1")
ONE = call("numpy._core.multiarray:scalar", i8(), raw((1).to_bytes(8, "little")))


# fmt: off
HOSTILE = {
    "pickle.arguments": {
        "masked: filled with a list": masked(fill=[]),
        "a result of one part": new("numpy.linalg._linalg:SVDResult", 1),
        "a seed that is none": bits("PCG64", going("PCG64"), 5),
        "metadata that is none": with_metadata([None]),
        "a number as shape": call("numpy._core.numeric:_frombuffer", raw(b""), dtype(), 0, "C"),
        "text as buffer": frombuffer(content=["abcdefgh"]),
        "array as buffer": frombuffer(content=[frombuffer()]),
        "a flag that is a float": dtype(align=0.0), "text beyond ASCII": array("\xe9" * 8),
        # CPython's own reader wants a whole number there; found by the differential test.
        "a version that is only equal": array(raw(b"\0" * 8), version=b"G\x3f\xf0" + bytes(6)),
        "state of five none": build(call("numpy._core.multiarray:_reconstruct",
            name("numpy:ndarray"), (0,), raw(b"b")), None),
        "masked with arguments": call("numpy.ma.core:MaskedConstant", None),
        "coefficients of objects": polynomial(coef=[]),
        "a key that is none": bits("MT19937", going("MT19937", {"key": None})),
        "a source that is none": bits("PCG64", going("PCG64"), named=name("uuid:UUID")),
        "a source by another name": bits("PCG64", going("PCG64"), named="BitGenerator"),
        "a generator of nothing": call("numpy.random._pickle:__generator_ctor", None),
        "a generator's state": build(call("numpy.random._pickle:__generator_ctor", bits("PCG64",
            going("PCG64"))), {}),
        "a spare normal that is none": random_state(gauss=None),
        "a pool too small": seed_of(size=3, pool=short(3, "u4")),
        "masked: objects": masked(of=objects()),
    },
    "pickle.build-twice": {
        "a source built twice": build(bits("PCG64", going("PCG64")), (going("PCG64"), None)),
    },
    "pickle.dtype": {
        "another alignment": dtype(align=True),
        "subarray of nothing": dtype("V8", dtype_state(sub=(None, ()))),
        "object flags left out": frombuffer(b"A" * 8, dtype("O8", dtype_state(order="|", flags=0))),
        "object flags on a number": dtype("f8", dtype_state(flags=63)),
        "the shared dtype": dtype(copy=False), "the shared dtype by a number": dtype(copy=0),
        "a flag that is neither": dtype(align=0, copy=2), "aligned by a number": dtype(align=1),
        "unknown code": dtype("f8,f8"),
        "byte order": dtype(order="?"),
        "short state": dtype(state=(3,)),
        "huge element": dtype("S999999999", dtype_state(order="|", size=999_999_999)),
        "unit": dtype("M8", (4, "<", *[None] * 3, -1, -1, 0, (None, (raw(b"xx"), 1, 1, 1)))),
        "elements without bytes": frombuffer(b"", dtype("S0", dtype_state(order="|", size=0)),
            (1 << 20,)),
        "scalar of no dtype": call("numpy._core.multiarray:scalar", None, raw(b"\0" * 8)),
        "a record without fields": record_dtype(),
        "metadata in another version": with_metadata({"a": None}, 3),
        "fields without names": build(call("numpy:dtype", "O8", False, True), (3, "|", None, None,
            {}, -1, -1, 63)),
        "a number that has fields too": np.dtype((np.int32, [("a", "<i4")])),
    },
    "pickle.global": {
        "a result that is called": call("numpy.linalg._linalg:SVDResult", 1, 2, 3),
        "state for a result": build(new("numpy.linalg._linalg:SVDResult", 1, 2, 3), {"U": 1}),
        "state for a scalar": build(call("numpy._core.multiarray:scalar", dtype(), raw(b"\0" * 8)),
            None),
        "a subclass of one's own": array_of("safeser_trap:Armed", (1,), i8(), raw(bytes(8))),
        "a memmap's file": call("numpy:memmap", "/etc/passwd"),
        "texts of any length, which crash when they are swapped": array_of("numpy:ndarray", (1,),
            texts(), ["x"]),
        "a record of another class": call("numpy:dtype", name("numpy:ndarray"), False, True),
        "a state for masked": build(call("numpy.ma.core:MaskedConstant"), {}),
    },
    "pickle.max-memory": {
        "fields that double fourteen times": doubled(14),
    },
    "pickle.memo": {
        "dtype built twice": build(value([dtype()]) + b"0" + dtype() + b"q\x50", dtype_state()),
    },
    "pickle.shape": {
        "another version": array(raw(b"\0" * 8), version=0),
        "no class": array(raw(b"\0" * 8), kind=b"N"),
        "masked: begun large": masked(shape=5),
        "axes for C": frombuffer(extra=[(0,)]),
        "a memmap too short": array_of("numpy:memmap", (2,), i8(), raw(bytes(8))),
        "objects fewer than the shape": array([None], objects(), (1 << 27,)),
        "too few bytes": frombuffer(b"\0" * 7),
        "too many bytes": frombuffer(b"\0" * 16),
        "order K without axes": frombuffer(order="K"),
        "axes": frombuffer(order="K", extra=[(1,)]),
        "neither C nor F": array(raw(b"\0" * 8), fortran=7),
        "begun with False": call("numpy._core.multiarray:_reconstruct", name("numpy:ndarray"),
            (False,), raw(b"b")),
        "begun large": call("numpy._core.multiarray:_reconstruct", name("numpy:ndarray"), (1 << 40,
            ), raw(b"b")),
        "long scalar": call("numpy._core.multiarray:scalar", dtype(), raw(b"\0" * 80)),
        "masked: no class": masked(kind=b"N"),
        "masked: two flags": masked(mask=b"\x01\x01"),
    },
    "pickle.state": {
        "two symbols": polynomial(symbol="y"),
        "a random state of another kind": random_state(bit_generator="PCG64"),
        "no symbol": without_symbol(),
        "a symbol for the property alone": without_symbol(symbol="x"),
        "a method": polynomial(roots="x"),
        "no coefficients": build(new("numpy:poly1d"), {}),
        "another field": bits("MT19937", going("MT19937", {"x": 1})),
        "another field outside": bits("PCG64", going("PCG64", x=1)),
        "a state of another kind": bits("PCG64DXSM", going("PCG64")),
    },
    "pickle.unfinished": {
        "no state": call("numpy:dtype", "f8", False, True),
        "a source without its state": call(CTOR, "PCG64"),
        "a random state without its state": call("numpy.random._pickle:__randomstate_ctor",
            bits("MT19937", going("MT19937"))),
    },
    "pickle.values": {
        "a set of keys that raise at each other": b"\x8f(" + ONE_DECIMAL + ONE + b"\x90",
        "a frozenset of keys that raise at each other": b"(" + ONE_DECIMAL + ONE + b"\x91",
        "a dict of keys that raise at each other": pairs(ONE_DECIMAL, None, ONE, None),
    },
    "pickle.version": {
        "a seed of another class": call("numpy.random.bit_generator:__pyx_unpickle_SeedSequence",
            None, 1, None),
    },
    "value.array-size": {
        "two million elements without bytes": frombuffer(b"", nothing(), (1 << 21,)),
        "a shape that overflows": frombuffer(b"", shape=(0, 1 << 40, 1 << 40)),
    },
    "value.dtype": {
        "metadata by number": with_metadata({1: None}),
        "object field": array([None], structured(("a", objects(), 0), size=8, flags=63)),
        "object field over bytes": frombuffer(b"A" * 8, structured(("a", objects(), 0), size=8,
            flags=16)),
        "object subarray": frombuffer(b"A" * 8, dtype("V8", dtype_state(order="|", sub=(objects(),
            (1,)), size=8))),
        "fields past the end": structured(("a", dtype(), 4), size=8),
        "fields at negative offsets": structured(("a", dtype(), -8), size=8),
        "fields that double": structured(*[(f"f{i}", structured(*[(f"g{j}", dtype(), 0)
            for j in range(150)], size=8), 0) for i in range(100)], size=8),
        "fields that overlap": structured(("a", dtype(), 0), ("b", dtype(), 4), size=12),
        "subarray bomb": dtype("V8", dtype_state(sub=(dtype(), (1 << 40,) * 3))),
        "a record larger than it is": record_dtype(names=("a",), fields={"a": (i8(), 4)}, size=8),
        "a sub-array without bytes": np.dtype([("a", "i1", (1 << 30, 0)), ("b", "i1")]),
    },
    "value.elements": {
        "characters that are none": call("numpy._core.multiarray:scalar", dtype("U1", (3, "<",
            *[None] * 3, 4, 4, 8)), raw(b"\xff" * 4)),
        "a long double without its leading one": value(long_double(mantissa=1, exponent=100)),
        "an infinity without": value(long_double(mantissa=0, exponent=0x7FFF)),
    },
    "value.polynomial": {
        "coefficients of texts": poly1d(np.array(["a"])),
        "coefficients in a square": polynomial(coef=np.zeros((2, 2))),
        "coefficients of integers": polynomial(coef=np.array([1, 2])),
        "leading zeros": poly1d(np.array([0, 1])),
        "a symbol that is none": polynomial(_symbol="x y"),
    },
    "value.random-state": {
        "children before the first": seed_of(spawned=-1),
        "a key too large": seed_of(key=(1 << 70,)),
        "a pool of another size": seed_of(pool=short(3, "u4")),
        "a short state": bits("SFC64", going("SFC64", {"state": short(1)})),
        "a short buffer": bits("Philox", going("Philox", buffer=short(3))),
        "a left-over too large": bits("PCG64", going("PCG64", uinteger=1 << 32)),
        "a position behind the key": bits("MT19937", going("MT19937", {"pos": 625})),
        "a position before the key": bits("MT19937", going("MT19937", {"pos": -1})),
        "a key of other words": bits("MT19937", going("MT19937", {"key": short(624)})),
        "a state too large": bits("PCG64", going("PCG64", {"state": 1 << 128})),
        "a twister that stands still": bits("MT19937", going("MT19937", {"key": short(624, "u4")})),
        "an even increment": bits("PCG64DXSM", going("PCG64DXSM", {"inc": 2})),
        "a flag that is none": bits("PCG64", going("PCG64", has_uint32=2)),
        "a buffer's position": bits("Philox", going("Philox", buffer_pos=5)),
        "a short counter": bits("Philox", going("Philox", {"counter": short(2)})),
        "a spare normal's flag": random_state(has_gauss=2),
        "another pool": seed_of(pool=short(4, "u4")),
        "a pool too large": seed_of(size=65),
        "negative entropy": seed_of(entropy=-3),
        "no entropy": seed_of(entropy=None),
        "keys without end": seed_of(key=(1,) * 300),
    },
    "value.shape": {
        "a negative shape": frombuffer(shape=(-1,)),
        "too many dimensions": frombuffer(shape=(1,) * 65),
        "a subclass": array(raw(b"\0" * 8), kind=name("numpy:matrix")),
        "a matrix of one dimension": array_of("numpy:matrix", (1,), i8(), raw(bytes(8))),
    },
}

#: What the helpers make by default, and older forms.
ACCEPTED = [
    *(np.random.RandomState(getattr(np.random, kind)(5)) for kind in KINDS),
    np.random.RandomState(3),
    frombuffer(), array(raw(bytes(8))), array([None], objects()), masked(), i8(), with_metadata({}),
    structured(("a", dtype(), 0), size=8), array_of("numpy:matrix", (1, 1), i8(), raw(bytes(8))),
    polynomial(), poly1d(np.array([1, 2])), with_metadata({"a": None}), random_state(),
    record_dtype(names=("a",), fields={"a": (i8(), 0)}, size=8),
    *(bits(kind, going(kind)) for kind in KINDS),
    value(long_double(mantissa=1 << 63, exponent=0x3FFF)),
    # NumPy before 1.20 wrote flags as numbers, and Python 2 bytes as text.
    array(raw(bytes(8)), dtype(align=0, copy=1), fortran=0), array("x" * 8),
]

#: What the installed library cannot read any more, or what cannot be compared.
OLDER = [
    frombuffer(b"", nothing(), (5,)),
    seed_of(),
    # NumPy 1 named the kind by a text, and gave the generator the state.
    build(call("numpy.random._pickle:__generator_ctor", "PCG64", name(CTOR)), going("PCG64")),
    build(call("numpy.random._pickle:__randomstate_ctor", "MT19937", name(CTOR)),
        np.random.RandomState(3).get_state(legacy=False)),
    build(call(CTOR, "PCG64"), going("PCG64")),
    call("numpy.random._pickle:__generator_ctor", bits("PCG64", going("PCG64"))),
]
# fmt: on
