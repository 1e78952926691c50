"""What inspect says of a file is what ``loads`` does with it, and what it advises works."""

from __future__ import annotations

import base64
import io
import json
import lzma
import pickle
import re
import struct
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from safeser.errors import SafeserError
from safeser.gate.values import Limits
from safeser.inspection import Verdict, trial
from safeser.pickles import DATA_PROFILES, loads
from tests.equality import difference
from tests.inspection.forging import looked_at
from tests.pickles.forging import refused
from tests.pickles.test_samples import HONEST, HOSTILE, spelt
from tests.samples.opcodes import call, pickled, raw

pytestmark = pytest.mark.filterwarnings("ignore")


def loaded(data, **options):
    """Return whether ``loads`` takes *data*, by all profiles."""
    try:
        loads(data, profile=DATA_PROFILES, **options)
    except SafeserError:
        return False
    return True


@pytest.fixture
def here(monkeypatch):
    """Try to load in this process: thousands of others would take an hour."""
    monkeypatch.setattr(trial, "load_apart", trial.load_all)


# -- what loads does -------------------------------------------------------------------------------


@pytest.mark.usefixtures("here", "without_tblib")
def test_inspect_says_what_loads_does(trap):
    hostile = [data for row in HOSTILE for _, data in [*spelt(row.values[1])][-1:]]
    honest = [data for row in HONEST for _, data in spelt(row.values[0])]
    for data in hostile + honest:
        report = looked_at(data)
        assert (report.verdict is Verdict.ALLOWED) is loaded(data), (report, data)
        if report.verdict is Verdict.ALLOWED:
            loads(data, profile=report.needs or ("data",))


def test_a_process_of_its_own_tries_it(tmp_path, monkeypatch):
    # A file from somewhere else may lie beside a module that has a library's name.
    (tmp_path / "pandas.py").write_text("raise SystemExit(f'ran {__file__}')")
    monkeypatch.chdir(tmp_path)
    frame = pickle.dumps(pd.DataFrame({"a": [1]}))
    assert looked_at(frame + frame).verdict is Verdict.ALLOWED
    wrong = pickled(call("datetime:date", raw(b"\0" * 4)))
    report = looked_at(pickle.dumps(1) + wrong)
    assert (report.verdict, report.rule[:7]) == (Verdict.REFUSED, "pickle.")
    assert "of pickle 2" in report.reason
    monkeypatch.setattr(trial, "_PROGRAM", "import os; os.abort()")
    report = looked_at(frame)
    assert (report.verdict, report.rule) == (Verdict.UNREADABLE, "inspect.loading")
    assert "code -6" in report.reason
    monkeypatch.setattr(trial, "_MOST_SECONDS", 0.05)
    monkeypatch.setattr(trial, "_PROGRAM", "import time; time.sleep(600)")
    report = looked_at(frame)
    assert (report.verdict, report.rule) == (Verdict.UNREADABLE, "inspect.loading")


# -- limits ----------------------------------------------------------------------------------------

OVER = {
    "max_memory": ([1] * 90, {"max_memory": 2560}),
    "max_calls": ([np.arange(2)] * 3, {"max_calls": 1}),
    "max_depth": ([[[[[1]]]]], {"max_depth": 1}), "max_string": ("x" * 90, {"max_string": 5}),
    "max_int": (1 << 900, {"max_int": 4}), "max_array": (np.zeros(90), {"max_array": 8}),
    "max_sharing": ([["x" * 5000] * 50] * 50, {"max_sharing": 1, "max_memory": 300 << 7}),
    "max_key_cost": ({(1,) * 90: 1}, {"max_key_cost": 2}),
    "max_collisions": (dict.fromkeys(n * sys.hash_info.modulus for n in range(1, 40)),
        {"max_collisions": 8}),
    "max_copies": (io.StringIO("x" * (1 << 20)), {"max_copies": 1}),
    "max_bytes": (b"\xff" * (3 << 20), {"max_bytes": 1 << 20}),
}  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", OVER)
def test_the_limit_that_is_advised_is_enough_in_the_end(name):
    value, tight = OVER[name]
    data, limits, seen = pickle.dumps(value, 2), Limits(**tight), []
    while (report := looked_at(data, limits=limits)).verdict is Verdict.OVER_LIMIT:
        assert not loaded(data, limits=limits)
        setting = re.match(r"Add --limit (\w+)=(\d+); .*Limits\(\1=\2\)\. .", report.fix)
        limits = replace(limits, **{setting[1]: int(setting[2])})
        seen.append(setting[1])
    assert (report.verdict, report.reason) == (Verdict.ALLOWED, "")
    assert seen[0] == name
    assert loaded(data, limits=limits)


# -- formats that are not read ---------------------------------------------------------------------

SHORT = struct.pack("<Q", 11854) + b'{"__metadata__":{}}'
NAMED = {
    "HDF5": b"\x89HDF\r\n\x1a\n", "ONNX": b"\x08\x08\x12\x07pytorch", "GGUF": b"GGUF\3\0\0\0",
    "SavedModel": b"\x08\x01\x12\xff", "Parquet": b"PAR1", "MATLAB": b"MATLAB 5.0 MAT-file",
    "Arrow": b"ARROW1\0\0", "Arrow's": b"\xff\xff\xff\xff\x10\1\0\0\x10\0",
    "lz4": b"\x04\x22\x4d\x18", "Zstandard": b"\x28\xb5\x2f\xfd",
    "Databases": b"SQLite format 3\0",
    "safetensors": SHORT,  # whose length reads as the pickle of None
    "Python 2": b"S'\\xe9'\n.", "has no end": b"cposix\n", "ends before STOP": b"(lp0\n",
    "a line of text": b"(dp0\nS'x", "not this": lzma.compress(b"PK\3\4"),
}  # fmt: skip


@pytest.mark.parametrize("word", NAMED)
def test_formats_that_are_recognised(word):
    report = looked_at(NAMED[word])
    assert report.verdict is Verdict.UNREADABLE
    assert word in report.reason
    assert report.title != "a file of an unknown kind"
    # Recognising one hides no pickle: what begins so is never allowed.
    assert looked_at(NAMED[word] + pickle.dumps(1)).verdict is not Verdict.ALLOWED


def test_no_reader_is_sent_elsewhere_with_an_attack():
    old, code = b"cpandas.tslib\nTimestamp\n", b"cos\nsystem\n"
    assert "pandas.read_pickle" in looked_at(b"\x80\x02" + old + b".").fix
    for both in (old + code, code + old):
        data = b"\x80\x02" + both + b"\x86."
        for fix in (looked_at(data).fix, refused("pickle.global", loads, data).fix):
            assert "pandas.read_pickle" not in fix
            assert "cannot be allowed" in fix


# -- files of older releases -----------------------------------------------------------------------

OLDER = json.loads((Path(__file__).parents[1] / "vectors" / "older.json").read_text("utf-8"))
FRAME = pd.DataFrame({"a": [1, 2], "b": [1.5, None]})
FRAME["c"] = pd.Series(["x", None], dtype=object)
FRAME.columns = FRAME.columns.astype(object)
SAME = {
    "array": np.array([1.5, 2.5]), "array F": np.arange(4).reshape(2, 2, order="C").copy("F"),
    "objects": np.array(["x", 1, None], object), "dtype": np.dtype("f4"), "scalar": np.float64(1.5),
    "record": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]), "text": ["plain", "é"],
    "moments": np.array(["2020"], "M8[ns]"), "series": pd.Series([1, 2], name="s"), "frame": FRAME,
    "range index": pd.RangeIndex(3), "index": pd.Index([1, 2], name="i"),
    "interval": pd.Interval(0, 1), "timedelta": pd.Timedelta(5),
    "period": pd.Period("2020-01", "M"),
}  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("release", OLDER["releases"], ids=lambda release: release["python"])
def test_files_of_older_releases(release):
    for name, (verdict, rule, encoded) in release["files"].items():
        data, kept = base64.b64decode(encoded), name.partition(",")[0]
        report = looked_at(data)
        assert (report.verdict.value, report.rule) == (verdict, rule), name
        # To list a name that only another release has would not help.
        assert verdict == "allowed" or (report.fix and "allow: {" not in report.fix)
        if report.rule == "pickle.global" and report.kind == "pickle":
            assert refused("pickle.global", loads, data).fix.startswith(report.fix), name
        if report.kind == "pickle" and verdict == "allowed":
            got = loads(data, profile=report.needs or ["data"])
            assert kept not in SAME or not difference(got, SAME[kept]), name
