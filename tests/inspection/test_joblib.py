"""joblib's files: arrays' bytes are skipped by what the pickle says of them; nothing is hidden."""

from __future__ import annotations

import lzma
import os
import pickle
import zlib

import numpy as np
import pytest

from safeser.gate.values import Limits
from safeser.pickles.budget import Budget
from safeser.pickles.streams import read_passage
from tests.inspection.forging import Attack, joblib_file, looked_at
from tests.pickles.forging import refused

OBJECT = {
    "numbers": np.arange(5), "fortran": np.zeros((3, 4), order="F"),
    "record": np.array([(1, 2.0, (3,))], dtype=[("x", "i4"), ("y", "f8", (2,)), ("z", [("w",
        "u1")])]),
    "text": np.array(["ab", "c"]), "time": np.zeros(3, dtype="M8[ns]"), "one": np.array(7),
    "none": np.zeros((0, 3)), "matrix": np.arange(4).reshape(2, 2).view(np.matrix),
}  # fmt: skip


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_arrays_between_the_opcodes(protocol):
    report = looked_at(joblib_file(OBJECT, protocol=protocol))
    assert (report.kind, report.verdict.code) == ("joblib", 0)
    sizes = [part.size for part in report.parts if part.name == "pickle: array"]
    assert sizes == [value.nbytes for value in OBJECT.values()]


@pytest.mark.parametrize("name", ["zlib", "gzip", "bz2", "lzma", "xz"])
def test_compressed_files(name):
    whole = joblib_file(OBJECT, compress=(name, 3))
    report = looked_at(whole)
    assert (report.kind, report.verdict.code) == ("joblib", 0)
    assert name in report.title
    assert {looked_at(whole[:size]).verdict.code for size in range(6, len(whole), 7)} == {2}
    # Some readers go on behind the end.
    for more in (b"\x00", whole):
        assert looked_at(whole + more).rule == "inspect.trailing"
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    assert looked_at(bytes(damaged)).verdict.code != 0
    attack = looked_at(joblib_file([OBJECT, Attack()], compress=(name, 3)))
    assert "posix:system is called" in attack.reason


def test_code_beside_arrays():
    report = looked_at(joblib_file([np.arange(3), Attack()]))
    assert (report.verdict.code, report.rule) == (1, "pickle.global")
    assert report.reason.startswith("posix:system is called at byte 290 of pickle")


def test_code_among_the_objects_of_an_array():
    # GHSA-m62q-453p-gv66: the inner pickle went to an unpickler without restrictions.
    report = looked_at(joblib_file({"a": np.array([1, Attack()], dtype=object), "b": np.arange(2)}))
    assert report.verdict.code == 1
    assert "posix:system is called" in report.reason
    assert "objects of an array" in report.reason


def test_opcodes_of_the_objects_of_an_array_are_charged():
    data = joblib_file(np.array([{"a": 1}, "text"], dtype=object))
    inner, whole = Budget(Limits()), Budget(Limits())
    most = whole.opcodes
    passage = read_passage(data, 0, whole, arrays=True)
    read_passage(data, passage.inner[0].start, inner)
    assert whole.opcodes < inner.opcodes < most
    tight = Budget(Limits())
    tight.opcodes = most - whole.opcodes
    read_passage(data, 0, tight, arrays=True)
    tight.opcodes = most - whole.opcodes - 1
    refused("pickle.opcodes", read_passage, data, 0, tight, arrays=True)


def test_objects_that_are_plain():
    report = looked_at(
        joblib_file({"a": np.array([1, "x", None], dtype=object), "b": np.arange(2)})
    )
    assert report.verdict.code == 0
    mixed = np.array([(1, "x")], dtype=[("n", "i8"), ("o", "O")])
    assert "objects" in looked_at(joblib_file(mixed)).parts[2].name


def test_opcodes_in_the_bytes_of_an_array_are_no_opcodes():
    # Read by pickle.load they would be; that is why the report names its loader.
    raw = np.frombuffer(b"\x80\x02cposix\nsystem\n)R." + bytes(6), dtype="u1")
    report = looked_at(joblib_file([raw]))
    assert (report.verdict.code, report.loader) == (0, "joblib.load")


def test_every_cut_is_noticed():
    whole = joblib_file([np.arange(3), np.array([None], dtype=object), "end"])
    assert {looked_at(whole[:size]).verdict.code for size in range(2, len(whole))} == {2}


WHOLE = joblib_file([np.arange(3)])


@pytest.mark.parametrize(("old", "new"), [
    (b"K\x03\x85", b"K\x04\x85"),  # a longer shape reaches past the end
    (b"K\x03\x85", b"J\xff\xff\xff\xff\x85"), (b"K\x03\x85", b"N\x85"),
    (b"K\x03\x85", b"K\x03\x81"), (b"K\x03\x85", b"]"), (b"\x8c\x01C", b"\x8c\x01A"),
    (b"\x8c\x07ndarray", b"\x8c\x07ufuncXX"), (b"\x8c\x02i8", b"\x8c\x02i4"),
    (b"\x8c\x02i8", b"\x8c\x02V0"), (b"\x8c\x02i8", b"\x8c\x02O8"), (b"\x8c\x02i8", b"\x8c\x02zz"),
    (b"\x8c\nallow_mmap", b"\x8c\nallow_mmaq"), (b"\x8c\nallow_mmap", b"\x8c\x05dtype"),
    (b"\x8c\x1bnumpy_array_alignment_bytes\x94K\x10",
        b"\x8c\x1bnumpy_array_alignment_bytes\x94K\x20"),
    (b"\x01\xff", b"\x01\xfe"), (b"ub\x01\xff", b"ub\xf0\xff"),
    (b"K\x00t", b"K\x01t"),  # flags say that elements are objects
    (b"J\xff\xff\xff\xffJ", b"K\x04J"), (b")\x81", b"]\x85\x81"), (b")\x81", b")R"),
    (b"\x88\x8c", b"N\x8c"), (b"K\x03\x85", b"\x8a\x08" + bytes(7) + b"\x40\x85"),
    (b"NNNJ", b"]NNJ"), (b"NNNJ", b"NN]J"), (b"\x8c\x05dtype\x94\x93", b"\x8c\x05dtypf\x94\x93"),
], ids=str)  # fmt: skip
def test_wrappers_that_joblib_does_not_write(old, new):
    assert old in WHOLE
    forged = WHOLE.replace(old, new, 1)
    # Without frames, whose lengths would tell.
    unframed = forged[:2] + forged[11:] if forged[2] == 0x95 else forged
    assert looked_at(forged).verdict.code != 0
    assert looked_at(unframed).verdict.code != 0


@pytest.mark.parametrize("state", [b"]", b"N", b"}K\x01K\x02s", b"}"])
def test_wrappers_that_are_not_described(state):
    made = b"\x80\x02cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81" + state + b"b."
    assert looked_at(made).rule == "pickle.joblib-array"


def test_fields_that_are_none():
    whole = joblib_file([np.zeros(1, dtype="V8")], protocol=2)
    assert looked_at(whole).verdict.code == 0
    for fields in (b"]", b"}K\x01Ns", b"}K\x01)s"):
        forged = whole.replace(b"NNNK\x08", b"NN" + fields + b"K\x08")
        assert forged != whole
        assert looked_at(forged).rule == "pickle.joblib-array"


def test_arrays_inside_a_frame():
    # CPython's unpickler would go on inside the frame, behind what joblib took from the file.
    frame = int.from_bytes(WHOLE[3:11], "little") + 1
    assert looked_at(WHOLE[:3] + frame.to_bytes(8, "little") + WHOLE[11:]).rule == "pickle.frame"


#: The state of a dtype, memo entry 0x63 of which is the dtype itself.
RECURSIVE = {
    "fields": b"(K\x03X\x01\x00\x00\x00|NX\x01\x00\x00\x00x\x85"
    b"}X\x01\x00\x00\x00xh\x63K\x00\x86sK\x08K\x01K\x00t",
    "subarray": b"(K\x03X\x01\x00\x00\x00|h\x63)\x86NNK\x08K\x01K\x00t",
}


@pytest.mark.parametrize("state", RECURSIVE.values(), ids=RECURSIVE)
def test_a_dtype_that_holds_itself_ends(state):
    whole = joblib_file([np.zeros(1, dtype="V8")], protocol=2)
    begin = whole.index(b"cnumpy\ndtype\n")
    end = whole.index(b"b", whole.index(b"tq", begin)) + 1
    at = bytes([whole[:begin].count(b"q")])
    made = b"cnumpy\ndtype\nX\x02\x00\x00\x00V8\x89\x88\x87Rq" + at
    forged = whole[:begin] + made + state.replace(b"\x63", at) + b"b" + whole[end:]
    assert looked_at(forged).verdict.code != 0


def test_a_dtype_of_doubling_fields_ends():
    dtype = np.dtype("u1")
    for _ in range(14):
        dtype = np.dtype([("a", dtype), ("b", dtype)])
    assert looked_at(joblib_file(np.zeros(1, dtype))).verdict.code != 0


def test_bombs(monkeypatch):
    monkeypatch.setattr("safeser.inspection.compressed._FREE", 1 << 20)
    plain = pickle.dumps(bytes(8 << 20))
    made = {
        "zlib": zlib.compress(plain),
        "xz": lzma.compress(plain),
        "lzma": lzma.compress(plain, format=lzma.FORMAT_ALONE),
    }
    for whole in made.values():
        assert looked_at(whole).rule == "inspect.bomb"
    monkeypatch.setattr("safeser.inspection.compressed.MAX_HELD", 1000)
    assert looked_at(zlib.compress(os.urandom(2000))).rule == "inspect.too-large"


def test_a_decoder_that_would_set_aside_gigabytes():
    huge = bytearray(lzma.compress(b"N.", format=lzma.FORMAT_ALONE))
    huge[1:5] = (1 << 31).to_bytes(4, "little")
    assert looked_at(bytes(huge)).verdict.code != 0


def test_what_is_compressed_twice_is_not_unpacked_twice():
    assert looked_at(zlib.compress(zlib.compress(pickle.dumps(1)))).verdict.code == 2
    assert looked_at(zlib.compress(b"")).verdict.code == 2
    report = looked_at(b"\x04\x22\x4d\x18" + bytes(40))  # one that is not read
    assert (report.verdict.code, report.rule) == (2, "inspect.unknown")
