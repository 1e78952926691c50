"""Shapes take what honest peers send, refuse what handlers misbehave on, and never raise."""

from __future__ import annotations

import datetime
import ntpath
import posixpath
from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
import pytest
from distributed import versions
from hypothesis import given
from hypothesis import strategies as st

from safeser.operations import ENVELOPE, OPERATIONS
from safeser.operations.shapes import ANYTHING, fields, shape


def nested(levels):
    value = "x"
    for _ in range(levels):
        value = (value,)
    return value


FITS = [
    ("text", ["", "x" * 10_000]),
    ("word", ["x" * 1000, "Größe 1"]),
    ("flag", [True, False]),
    ("integer", [0, -1, 1 << 53]),
    ("number", [0, -1.5, 1e15]),
    ("amount", [0, 0.0, 3]),
    ("positive", [1, 0.001]),
    ("interval", [0.01, 1, 86_400]),
    ("count", [0, 7]),
    ("size", [1]),
    ("key", ["x", b"x", 1, 1.5, ("x", 0), ("x", ("y", 1)), ()]),
    ("address", ["safeser://127.0.0.1:1", "127.0.0.1:1"]),
    ("worker", ["safeser://127.0.0.1:1", "alice", 3, ("a", 1)]),
    ("file", ["x.py", "of glass.egg", "..x", "é" * 127]),
    ("bytes", [b""]),
    ("table", [{}, {"a": object}]),
    ("mapping", [{}, {1: 2}]),
    (
        "extensions",
        [{}, {"spans": {}, "shuffle": {"x": 1}}, {"spans": {("execute", "id", 1): 0.5}}],
    ),
    ("spans", [(), ({"action": "compute", "start": 1.0, "stop": 2.0, "source": "x"},)]),
    ("key?", [None, "x"]),
    ("key*", [(), ["x"], {"x"}, frozenset({1}), (("x", 1),)]),
    ("key*?", [None, ()]),
    ("flag|count", [True, 3]),
    ("key->address*", [{}, {("x", 1): ["127.0.0.1:1"]}]),
    ("number|key->number", [1, {"x": 1}]),
    ("nothing", [None]),
    ("path", [["x"], ("x", 1, ("y", 2)), ["x"] * 50]),
    ("packages?", [None, (), ["dask"], ["x"] * 100, ["x" * 200]]),
    ("topics", ["warn", ["warn"], ("a", "b"), [str(index) for index in range(64)], ()]),
    ("event", ["x", None, {"a": [1, {2}]}, nested(32), [np.zeros(3)] * 9, object()]),
    ("collector", ["task-metadata-", f"task-metadata-{'0' * 32}"]),
    ("label", ["lock", ("lock", 1), b"x" * 1000, 5, ("x" * 400, ("y" * 400, 2.5)), ()]),
    ("leases", [(), ["a"], {"a", ("b", 1)}, list(range(1000))]),
    ("workers?", [None, ["safeser://127.0.0.1:1", "alice", 3], set(map(str, range(10_000)))]),
    ("unique", [(), ["x"], ("x", ("x", 1)), {"x"}]),
    ("names", [(), ["run_spec"], set(map(str, range(100)))]),
    ("small", [{}, {"a": {"b": [1, 2]}}, {"a": list(range(10_000))}, {"a": nested(13)}]),
    ("resources?", [None, {}, {"GPU": 2}, {str(each): 1 for each in range(1000)}]),
    ("any", [object(), None]),
]

#: Each of these made a handler raise, loop or count nonsense, or would have in time.
MISFITS = [
    ("text", [None, b"x", 1, ["x"]]),
    ("word", ["x" * 1001, "\x1b[2J", "a\nb", "\u202e"]),
    ("flag", [0, 1, None, "true", []]),
    ("integer", [True, 1.0, (1 << 53) + 1, -(1 << 60), "1"]),
    ("number", [float("nan"), float("inf"), -float("inf"), 1e300, True, "1", 1 << 60, None]),
    ("amount", [-1, -0.5, float("nan")]),
    ("positive", [0, 0.0, -1, float("nan")]),
    ("interval", [0, 5e-324, 1e-9, 0.0099, 86_401, -1, float("nan"), "1s", None]),
    ("count", [-1, 0.5]),
    ("size", [0, -3, True]),
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
    ("table", [[], {1: 2}, {b"x": 1}]),
    ("mapping", [[], "x", None]),
    (
        "extensions",
        [
            None,
            {5: {}},
            {"spans": 5},
            {"shuffle": ()},
            {"spans": {"execute": 1}},
            {"spans": {("execute",): 1}},
            {"spans": {("execute", None): 1}},
            {"spans": {("execute", "id"): "1"}},
            {"spans": {("execute", "id"): float("nan")}},
        ],
    ),
    (
        "spans",
        [
            *(None, {}, ({},), (1,), ({"action": "compute", "start": float("nan"), "stop": 1},)),
            # Of one such task no report and no task stream is drawn any more.
            ({"action": "zap", "start": 1, "stop": 2},),
            ({"action": ["compute"], "start": 1, "stop": 2},),
        ],
    ),
    ("key*", ["xyz", {"x": 1}, 5, None, b"xyz", (None,)]),
    ("key->address*", [{"x": "127.0.0.1:1"}, {"x": ["tcp://a:1"]}, [], {None: []}]),
    ("flag|count", [-1, "x"]),
    # Whatever stands there is everybody's on that host.
    ("nothing", [{}, {"addresses": 5}, 0, ""]),
    # Each step is one more dictionary in the last, which is copied, packed and freed by recursion.
    ("path", [[], ["x"] * 51, "xyz", None, {"x": 1}, [None]]),
    # Each name is one more copy of the message, for each who hears of it.
    ("topics", [["warn", "warn"], [str(index) for index in range(65)], [1], None, {"warn": 1}]),
    # One event that the answer to "events" cannot hold fails it for everybody.
    ("event", [nested(33), {"a": nested(32)}, {nested(32): 1}, [1, nested(32)], {nested(32)}]),
    # Dask's scheduler adds it in place of any plugin of that name.
    ("collector", ["shuffle", "task-stream", "", "task-metadata", None, 5, "task-metadata-\n"]),
    # The scheduler logs it for each lease that it does not know.
    ("label", ["x" * 1001, ("x" * 500, ("y" * 500,)), b"x" * 1001, None, [], ("x", None)]),
    ("leases", [list(range(1001)), "abc", None, {"a": 1}, [None], 5]),
    ("workers", [["x", "x"], [1, 1.0], set(map(str, range(10_001))), ["tcp://a:1"], "x", None]),
    # Each name is looked for in all folders, and was remembered for good.
    # All keys of a dataset are told again for each time that it is named.
    ("unique", [["x", "x"], "x", None, [None], {"x": 1}, [1, 1.0]]),
    # Each attribute of each task is compared with all of them.
    ("names", [list(map(str, range(101))), ["x", "x"], "x", None, [5], ["x" * 1001]]),
    # What everybody is told of a worker could not be told any more.
    ("small", [[], {1: 2}, {"a": nested(20)}, {"a": {nested(20): 1}}, {"a": [0] * 20_001}, None]),
    ("resources", [None, {"GPU": -1}, {5: 1}, [], {str(each): 1 for each in range(1001)}]),
    ("packages", [["x"] * 101, ["x" * 201], "dask", [5], ["a\nb"], {"dask": 1}]),
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


METRICS = {
    "bandwidth": {"total": 1e8, "workers": {"127.0.0.1:1": (1e6, 2)}, "types": {"x": (1.0, 1)}},
    "memory": 5,
    "spilled_bytes": {"memory": 0, "disk": 0},
    "digests_total_since_heartbeat": {("tick", "x"): 0.5, "latency": 1},
    "cpu": 1.5,
    "of_the_user": [np.float32(1.5), np.bool_(True), "x", None, datetime.date(2026, 1, 1)],
}


def test_what_a_worker_reports_fits():
    assert shape("metrics")(METRICS)


@pytest.mark.parametrize(
    "missing", ["bandwidth", "memory", "spilled_bytes", "digests_total_since_heartbeat"]
)
def test_a_report_without_what_the_scheduler_computes_with_does_not(missing):
    # It ends the registration half way, and later whatever looks at all workers.
    assert not shape("metrics")({name: told for name, told in METRICS.items() if name != missing})
    assert not shape("metrics")({})


@pytest.mark.parametrize(
    "more",
    [
        *(nested(90), [0] * 20_001, {nested(90): 1}),
        # One byte, whose text is a gigabyte to whoever looks at the workers; alone or in others.
        *(np.broadcast_to(np.int8(1), (6,) * 11), [np.zeros(3)], range(9), slice(np.zeros(3))),
    ],
    ids=lambda more: type(more).__name__,
)
def test_a_report_that_could_not_be_told_to_everybody_does_not(more):
    assert not shape("metrics")({**METRICS, "more": more})


def test_no_bandwidth_becomes_nothing_by_being_halved():
    for total in (5e-324, 0.5):
        bandwidth = {**METRICS["bandwidth"], "total": total}
        assert not shape("metrics")({**METRICS, "bandwidth": bandwidth})


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth": {}},
        {"bandwidth": 5},
        {"bandwidth": {**METRICS["bandwidth"], "total": 0}},
        {"bandwidth": {**METRICS["bandwidth"], "total": float("nan")}},
        {"bandwidth": {**METRICS["bandwidth"], "workers": {"127.0.0.1:1": (1.0, 0)}}},
        {"bandwidth": {**METRICS["bandwidth"], "types": {"x": 1.0}}},
        {"bandwidth": {**METRICS["bandwidth"], "types": {5: (1.0, 1)}}},
        {"memory": -1},
        {"memory": "5"},
        {"spilled_bytes": {"memory": float("inf"), "disk": 0}},
        {"spilled_bytes": {"memory": 0}},
        {"spilled_bytes": {"disk": 0}},
        {"spilled_bytes": 0},
        {"digests_total_since_heartbeat": {"x": "y"}},
        {5: 5},
    ],
)
def test_a_report_that_would_end_in_everybodys_sums_does_not(change):
    assert not shape("metrics")({**METRICS, **change})
    assert not shape("metrics")([])


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


INSTALLED = {"host": {"python": "3.11", "python-bits": 64}, "packages": {"dask": "1", "zarr": None}}


def test_what_is_installed_fits():
    for value in ({}, INSTALLED, {"packages": {}}, versions.get_versions()):
        assert shape("versions")(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"packages": 5},
        {"packages": "dask"},
        {"packages": ["dask"]},
        {"packages": {5: "1"}},
        {"packages": {"dask": ["1"]}},
        {"packages": {"dask": "1" * 1001}},
        {"packages": {"d" * 201: "1"}},
        {"packages": {str(number): "1" for number in range(5001)}},
        {"host": {}},
        {"host": 5, "packages": {}},
        {**INSTALLED, "more": {}},
    ],
)
def test_what_would_end_the_registrations_of_others_does_not(value):
    assert not shape("versions")(value)


def test_one_workers_versions_end_everybodys_registration_on_stock_dask():
    with pytest.raises(TypeError):
        versions.error_message(INSTALLED, {"hostile": {"packages": 5}}, INSTALLED)
