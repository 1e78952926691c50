"""Shapes take what honest peers send, refuse what handlers misbehave on, and never raise."""

from __future__ import annotations

import ntpath
import posixpath
from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.operations import ENVELOPE, OPERATIONS
from safeser.operations.shapes import ANYTHING, fields, shape

FITS = [
    ("text", ["", "x" * 10_000]),
    ("word", ["x" * 1000, "Größe 1"]),
    ("flag", [True, False]),
    ("number", [0, -1.5, 1e15, -1, 1 << 53]),
    ("count", [0, 7]),
    ("key", ["x", b"x", 1, 1.5, ("x", 0), ("x", ("y", 1)), ()]),
    ("address", ["safeser://127.0.0.1:1", "127.0.0.1:1"]),
    ("worker", ["safeser://127.0.0.1:1", "alice", 3, ("a", 1)]),
    ("file", ["x.py", "of glass.egg", "..x", "é" * 127]),
    ("bytes", [b""]),
    ("key?", [None, "x"]),
    ("key*", [(), ["x"], {"x"}, frozenset({1}), (("x", 1),), ["x", "x"]]),
    ("key*?", [None, ()]),
    ("word|word*", ["warn", ["warn"], ("a", "b"), ()]),
    ("flag|count", [True, 3]),
    ("text->any", [{}, {"a": object}]),
    ("key->address*", [{}, {("x", 1): ["127.0.0.1:1"]}]),
    ("number|key->number", [1, {"x": 1}]),
    ("any", [object(), None]),
    ("event", [object(), None]),
]

#: Each of these made a handler raise, loop or count nonsense, or would have in time.
MISFITS = [
    ("text", [None, b"x", 1, ["x"]]),
    ("word", ["x" * 1001, "\x1b[2J", "a\nb", "\u202e"]),
    ("flag", [0, 1, None, "true", []]),
    ("number", [float("nan"), float("inf"), -float("inf"), 1e300, True, "1", 1 << 60, None]),
    ("count", [-1, 0.5, True, (1 << 53) + 1]),
    ("key", [None, [], {}, {"x"}, ("x", None), ("x", []), object()]),
    (
        "address",
        ["tcp://127.0.0.1:1", "inproc://x", "x" * 1001, "a\nb", 1, None, "SAFESER://127.0.0.1:1"],
    ),
    ("worker", ["tcp://127.0.0.1:1", None, ["x"], {}]),
    (
        "file",
        [
            *("", ".", "..", "../x.py", "/tmp/x.py", "a/../x.py", "a/x.py", "x.py/", "~/x.py"),
            *("..\\x.py", "C:x.py", "C:\\x.py", "x.py:stream", "x\0.py", "x\n.py", "\ud800"),
            *("x" * 256, "é" * 128, None, b"x.py", 5, ["x.py"]),
        ],
    ),
    ("bytes", ["", None, bytearray()]),
    ("key*", ["xyz", {"x": 1}, 5, None, b"xyz", (None,), range(3), np.zeros(3)]),
    ("worker*", [["tcp://a:1"], "x", None]),
    ("text->any", [[], {1: 2}, {b"x": 1}, None]),
    ("key->address*", [{"x": "127.0.0.1:1"}, {"x": ["tcp://a:1"]}, [], {None: []}]),
    ("flag|count", [-1, "x"]),
]


@pytest.mark.parametrize(("spelt", "values"), FITS, ids=lambda x: x if isinstance(x, str) else "")
def test_what_honest_peers_send_fits(spelt, values):
    for value in values:
        assert shape(spelt)(value)


@pytest.mark.parametrize(
    ("spelt", "values"), MISFITS, ids=lambda x: x if isinstance(x, str) else ""
)
def test_what_handlers_misbehave_on_does_not(spelt, values):
    for value in values:
        assert not shape(spelt)(value), value


@given(st.text())
def test_no_name_of_a_file_leaves_the_folder_that_it_is_joined_to(name):
    for join in (posixpath.join, ntpath.join):
        folder = "/folder"
        if shape("file")(name):
            assert join(folder, name)[len(folder) + 1 :] == name
            assert len(PureWindowsPath(name).parts) == len(PurePosixPath(name).parts) == 1


def test_no_shape_is_spelt_that_nothing_stands_for():
    with pytest.raises(KeyError):
        shape("keys")
    with pytest.raises(KeyError):
        fields(["x:"])


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)
EVERY = sorted(
    {fits for row in OPERATIONS for fits in row.takes.values()} | set(ENVELOPE.values()), key=id
)


@given(PLAIN)
def test_a_shape_only_ever_says_yes_or_no(value):
    for fits in EVERY:
        assert fits(value) in (True, False)


def test_a_field_of_a_payload_is_decided_as_one():
    for row in OPERATIONS:
        for path in row.fields:
            name = path.partition(".")[0].removesuffix("[]")
            assert name in row.takes, (row.name, path)
            if "." not in path and "[" not in path:
                at_most_a_container = row.takes[name]({}) or row.takes[name](())
                assert row.takes[name] is ANYTHING or at_most_a_container, (row.name, path)
