"""NumPy's files: the header is a literal by a grammar, and objects are a pickle that is judged."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from tests.inspection.forging import Attack, looked_at


def saved(array, version=None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def headed(header: str, data: bytes = b"", *, version: int = 1) -> bytes:
    raw = header.encode() + b"\n"
    form = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(form, len(raw)) + raw + data


ARRAYS = [
    np.arange(6).reshape(2, 3), np.zeros((2, 2), order="F"), np.array(5.0), np.zeros((0, 4)),
    np.array(["é", "bc"]), np.array([b"abc"]), np.array([1, 2], dtype=">c16"),
    np.array(["2020"], dtype="M8[25s]"),
    np.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8", (2, 2))]),
    np.array([(1,)], dtype=[(("title", "it's"), "u1")]),
    np.zeros(2, dtype={"names": ["a"], "formats": ["u2"], "offsets": [4], "itemsize": 16}),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: array.dtype.str)
def test_arrays(array):
    for version in ((1, 0), (2, 0), (3, 0)):
        report = looked_at(saved(array, version))
        assert (report.kind, report.verdict.code) == ("npy", 0)
        assert report.parts[0].size == array.nbytes


def test_objects_are_a_pickle():
    assert looked_at(saved(np.array([1, "x", None], dtype=object))).verdict.code == 0
    fields = np.array([(1, "x")], dtype=[("n", "i8"), ("o", "O")])
    assert looked_at(saved(fields)).verdict.code == 0
    report = looked_at(saved(np.array([Attack()], dtype=object)))
    assert (report.verdict.code, report.rule) == (1, "pickle.global")
    assert report.loader == "numpy.load(allow_pickle=True)"


def test_objects_in_an_archive():
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, a=np.arange(2), b=np.array([Attack()], dtype=object))
        report = looked_at(file.getvalue())
        assert (report.verdict.code, report.rule) == (1, "pickle.global")
        assert "of b.npy: objects" in report.reason


def test_what_stands_behind():
    for array in (np.arange(3), np.array([None], dtype=object)):
        assert looked_at(saved(array) + b"x").rule == "inspect.trailing"
    for array in (np.arange(3), np.array([None], dtype=object)):
        whole = saved(array)
        assert {looked_at(whole[:size]).verdict.code for size in range(6, len(whole))} == {2}


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"


def test_the_header_that_is_forged_below_is_fine_by_itself():
    assert looked_at(headed(GOOD, bytes(8))).verdict.code == 0


@pytest.mark.parametrize(("old", "new"), [
    ("(1,)", "(__import__('os').getpid(),)"), ("(1,)", "(1+0,)"), ("(1,)", "(1)"),
    ("(1,)", "(1 1)"), ("(1,)", "(1L,)"), ("(1,)", "(0x1,)"), ("(1,)", "(01,)"),
    ("(1,)", "(True,)"), ("(1,)", "(-1,)"), ("(1,)", "(1.0,)"), ("(1,)", "[1]"),
    ("(1,)", "(" + "9" * 40000 + ",)"), ("(1,)", "(" + "1," * 65 + ")"),
    ("(1,)", "(9223372036854775808,)"), ("(1,)", "(9999999999999999999, 0)"), ("(1,)", "(" * 20000),
    ("(1,)", "()" * 2), ("(1,)", "{'a': 1}"), ("(1,)", "{1: 1}"), ("(1,)", "{'a' 1}"),
    ("(1,)", "{'a': 1 'b': 2}"), ("'<f8'", "'<f9'"), ("'<f8'", "'|V" + "9" * 30 + "'"),
    ("'<f8'", "'<f8"), ("'<f8'", "b'<f8'"), ("'<f8'", "'<f' '8'"), ("'<f8'", "'\\x3cf8'"),
    ("'<f8'", "8"), ("'<f8'", "[('x',)]"), ("'<f8'", "[(1, '<f8')]"),
    ("'<f8'", "[(('a', 1), '<f8')]"), ("'<f8'", "[('a', '<f8', 1)]"),
    ("'<f8'", "(" * 18 + "'<f8'" + ", ())" * 18), ("False", "0"), ("'shape'", "'shope'"),
    ("'shape'", "'descr'"), ("'descr'", "'more': 1, 'descr'"), ("{", "  {{"), ("}", "} #"),
    ("}", ""),
], ids=lambda text: text[:20])  # fmt: skip
def test_headers_that_numpy_does_not_write(old, new):
    report = looked_at(headed(GOOD.replace(old, new, 1), bytes(8)))
    assert (report.verdict.code, report.rule) == (1, "inspect.npy")


def test_headers_of_other_forms():
    assert looked_at(headed(GOOD, bytes(8), version=4)).rule == "inspect.npy"
    assert looked_at(headed(GOOD + " " * 70000, bytes(8), version=2)).rule == "inspect.npy"
    assert looked_at(headed(GOOD, bytes(8)).replace(b"\n", b" ")).rule == "inspect.npy"
    bad = headed(GOOD, bytes(8), version=3).replace(b"descr", b"desc\xff")
    assert looked_at(bad).rule == "inspect.npy"
    nested = GOOD.replace("'<f8'", "('<f4', (2,))")
    assert looked_at(headed(nested, bytes(8))).verdict.code == 0


def test_sizes_that_wrap_around():
    for shape in (
        "(4294967296, 4294967296)",
        "(9223372036854775807, 9)",
        "(9000000000, 9000000000, 0)",
    ):
        assert looked_at(headed(GOOD.replace("(1,)", shape))).rule == "inspect.npy"
