"""safeser.pickles.guard: each row of its page, and what a guarded process does with streams.

A process is guarded until it ends, so each of these runs in one of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from safeser import pickles
from tests.pages import Page, matches
from tests.pickles import spellings
from tests.processes import PATIENCE, measured

PAGE = Page("how-to/guard.md")
ROWS = {
    row: words
    for row, *words in re.findall(
        r"^\| (.+?) \| ([a-z ]+) \| ([a-z ]+) \|$",
        PAGE.text,
        re.MULTILINE,
    )
}
NO_START = [row for row, (before, _) in ROWS.items() if before == "no start"]


def in_process(folder, *arguments, python=sys.executable):
    return subprocess.run(
        [python, *arguments],
        cwd=folder,
        env=measured({**os.environ}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def spelled(folder, when, rows):
    ended = in_process(folder, spellings.__file__, when, *rows)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spellings")
    return {
        "before": spelled(folder, "before", [row for row in ROWS if row not in NO_START]),
        "after": spelled(folder, "after", ROWS),
    }


def test_the_page_has_each_spelling():
    assert [*ROWS] == [*spellings.SPELLINGS]
    assert len(ROWS) >= 10


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("row", spellings.SPELLINGS)
def test_a_spelling_is_caught_as_the_page_says(found, row, when):
    word = ROWS[row][when == "after"]
    assert found[when].get(row, "no start") == word


@pytest.mark.parametrize("row", NO_START)
def test_a_process_with_what_the_guard_cannot_reach_is_not_guarded(tmp_path, row):
    assert spelled(tmp_path, "before", [row]) == {row: "no start"}


def test_the_same_pickles_do_what_they_say_without_a_guard(tmp_path, monkeypatch):
    # Or the table would be of bytes that nothing loads.
    monkeypatch.chdir(tmp_path)
    for row in ("`import pickle`, `pickle.loads`", "`joblib.load`", "`pandas.read_pickle`"):
        assert spellings.outcome(spellings.SPELLINGS[row]()) == "not caught"


BEGINNING = """
import datetime, io, pickle, sys
from safeser import pickles
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError

def refused(call, kind=SafeserError):
    try:
        made = call()
    except kind as error:
        return error.rule
    raise AssertionError(made)

class Evil:
    def __reduce__(self):
        return print, ("RAN",)

EVIL = pickle.dumps(Evil())
DAY = datetime.date(2026, 11, 29)
"""

#: What a guarded process does, and by which rule it refuses.
GUARDED = {
    "several pickles in a file": """
pickles.guard()
file = io.BytesIO(pickle.dumps(1) + EVIL + pickle.dumps(DAY) + b"the rest")
assert pickle.load(file) == 1
assert refused(lambda: pickle.load(file)) == "pickle.global"
assert pickle.Unpickler(file).load() == DAY
assert file.read() == b"the rest"
try:
    pickle.load(file)
    raise AssertionError
except EOFError:
    pass
assert pickle.loads(pickle.dumps(DAY) + b"the rest") == DAY
""",
    "one unpickler for several pickles": """
pickles.guard()
def loaded(protocol, *objects, one=True):
    file = io.BytesIO()
    pickler = pickle.Pickler(file, protocol)
    for each in objects:
        (pickler if one else pickle.Pickler(file, protocol)).dump(each)
    unpickler = pickle.Unpickler(io.BytesIO(file.getvalue()))
    for each in objects:
        assert unpickler.load() == each
    return True
shared = ["x" * 50]
for protocol in range(6):
    assert refused(lambda: loaded(protocol, shared, [shared, shared])) == "pickle.memo"
    assert loaded(protocol, 1, [shared, shared])
    assert loaded(protocol, [shared, shared], 1, [[], 2], one=False)
    if protocol < 4:  # CPython itself loads others wrong
        assert loaded(protocol, [shared, shared], [shared, shared], one=False)
unpickler = pickle.Unpickler(io.BytesIO(pickle.dumps([shared, shared]) * 2))
assert unpickler.load() == [shared, shared]
assert refused(unpickler.load, PayloadError) == "pickle.memo"
""",
    "a file that ends too early": """
pickles.guard()
for end in range(1, len(EVIL)):
    assert refused(lambda: pickle.loads(EVIL[:end]), PayloadError).startswith("pickle.")
assert refused(lambda: pickle.loads(b"\\xff"), PayloadError) == "pickle.opcode"
""",
    "an own find_class refuses, and redirects nothing": """
pickles.guard()
class Narrow(pickle.Unpickler):
    def find_class(self, module, name):
        raise KeyError(module)
class Redirecting(pickle.Unpickler):
    def find_class(self, module, name):
        return print
class Mapping(pickle.Unpickler):
    def find_class(self, module, name):
        return super().find_class({}.get(module, module), name)
data = pickle.dumps(DAY)
try:
    Narrow(io.BytesIO(data)).load()
    raise AssertionError
except KeyError:
    pass
assert refused(Redirecting(io.BytesIO(data)).load) == "pickle.guarded"
assert Mapping(io.BytesIO(data)).load() == DAY
assert refused(Mapping(io.BytesIO(EVIL)).load) == "pickle.global"
for each in (Narrow, Redirecting, Mapping):
    assert each(io.BytesIO(pickle.dumps([1]))).load() == [1]
stock = pickle.Unpickler(io.BytesIO(data))
assert refused(lambda: stock.find_class("os", "system")) == "pickle.guarded"
assert stock.find_class("datetime", "date") is datetime.date
""",
    "persistent ids": """
pickles.guard()
class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        return "day" if obj is DAY else None
class Unpickler(pickle.Unpickler):
    def persistent_load(self, pid):
        return {"day": DAY}[pid]
file = io.BytesIO()
Pickler(file).dump([DAY, DAY])
data = file.getvalue()
assert Unpickler(io.BytesIO(data)).load() == [DAY, DAY]
bound = pickle.Unpickler(io.BytesIO(data))
bound.persistent_load = {"day": DAY}.get
assert bound.load() == [DAY, DAY]
assert refused(lambda: pickle.loads(data)) == "pickle.persistent-id"
""",
    "buffers out of band": """
pickles.guard()
buffers = []
data = pickle.dumps([pickle.PickleBuffer(b"one"), 2], protocol=5, buffer_callback=buffers.append)
assert pickle.loads(data, buffers=buffers) == [b"one", 2]
assert pickle.loads(data, buffers=iter([*buffers, b"more"])) == [b"one", 2]
assert refused(lambda: pickle.loads(data)) == "pickle.buffers"
""",
    "options for Python 2": """
pickles.guard()
assert pickle.loads(pickle.dumps(DAY), encoding="latin1", fix_imports=True) == DAY
for options in ({"encoding": "bytes"}, {"encoding": "utf-16"}, {"fix_imports": False}):
    assert refused(lambda: pickle.loads(pickle.dumps(1), **options)) == "pickle.guarded"
""",
    "a program that rebuilds what it cannot load": """
import copy
from safeser.refused_loads import observe
kept, seen = [pickle.loads], []
pickles.guard()
observe(lambda call, error: seen.append(error))
class Wide(pickle.Unpickler):
    dispatch = {}
for call, kind in (
    (lambda: pickle.loads(b"garbage"), PayloadError),
    (lambda: pickle.loads(EVIL[:-1]), PayloadError),
    (lambda: pickle.loads(EVIL), PolicyDenied),
    (lambda: pickle.Unpickler(io.BytesIO()).find_class("os", "system"), PolicyDenied),
    (lambda: Wide(io.BytesIO(EVIL)).load(), PolicyDenied),
    (lambda: kept[0](EVIL), PolicyDenied),
):
    try:
        raise AssertionError(call())
    except pickle.UnpicklingError as error:
        assert isinstance(error, kind) and error.rule
        plain = copy.copy(error)
        assert type(plain) is kind and str(plain) == str(error)
assert len(seen) == 4
""",
    "a function of pickle in a pickle": """
pickles.guard()
assert b"loads" in pickle.dumps([pickle.load, pickle.loads])
assert refused(lambda: pickle.loads(pickle.dumps(pickle.loads))) == "pickle.global"
for name in ("load", "loads"):
    for protocol in range(6):
        assert name.encode() in pickle._dumps(getattr(pickle, name), protocol)
assert pickle.loads.__module__ == "pickle" and pickle.loads.__doc__ == pickle._loads.__doc__
""",
    "a class that has loads as its own": """
pickles.guard()
class Serializer:
    loads = pickle.loads
assert Serializer().loads(pickle.dumps(DAY)) == DAY
""",
    "a profile and limits of one's own": """
from safeser import Limits
pickles.guard(profile=("data", "numpy"), limits=Limits(max_bytes=1000))
import numpy
assert pickle.loads(pickle.dumps(numpy.arange(3))).tolist() == [0, 1, 2]
assert refused(lambda: pickle.loads(pickle.dumps(b"x" * 1000)), PayloadError) == "pickle.max-bytes"
""",
    "a second call": """
pickles.guard(profile=("data", "numpy"))
pickles.guard(profile=("data", "numpy"))
assert refused(pickles.guard, ConfigError) == "pickle.guarded"
assert refused(lambda: pickles.guard(profile="code"), ConfigError) == "config.profile"
""",
    "a second call with classes of one's own": """
def own(fields):
    made = pickles.Profile.named("data")
    return made.allowing({"__main__:Order": {"role": "class", "fields": fields}})
pickles.guard(profile=own(["a"]))
pickles.guard(profile=own(["a"]))
for other in (own(["a", "b"]), "data"):
    assert refused(lambda: pickles.guard(profile=other), ConfigError) == "pickle.guarded"
""",
    "what puts CPython's functions back": """
kept = pickle.load, pickle.loads, pickle.Unpickler
pickles.guard()
table = {"loads": kept[1]}
pickle.load, pickle.loads, pickle.Unpickler = kept
assert refused(lambda: pickle.loads(EVIL)) == "pickle.guarded"
assert refused(lambda: pickle.load(io.BytesIO(EVIL))) == "pickle.guarded"
assert refused(pickle.Unpickler(io.BytesIO(EVIL)).load) == "pickle.guarded"
assert table["loads"](pickle.dumps([1])) == [1]
""",
    "a hook that forbids further hooks": """
def hook(event, arguments):
    if event == "sys.addaudithook":
        raise RuntimeError
sys.addaudithook(hook)
assert refused(pickles.guard, ConfigError) == "pickle.guarded"
assert pickle.loads(EVIL) is None  # it said so, and changed nothing
sys.stdout.flush()
""",
    "granted code of a channel": """
from safeser.pickles.stock import load_code
pickles.guard()
assert refused(lambda: load_code(EVIL)) == "pickle.global"
""",
    "safeser's own reader": """
pickles.guard()
wide = pickles.loads(pickles.dumps({"a": 1j}), profile=("data", "numpy"))
assert wide == {"a": 1j}
""",
}


@pytest.mark.parametrize("case", GUARDED)
def test_a_guarded_process(tmp_path, case):
    ended = in_process(tmp_path, "-c", BEGINNING + GUARDED[case])
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("RAN" in ended.stdout) == ("forbids" in case)


PYTHONS = {"the tests' Python": sys.executable, "the system's Python": "/usr/bin/python3"}


@pytest.fixture(params=PYTHONS)
def environment(request, tmp_path):
    """A virtual environment of a Python with safeser, by its interpreter and purelib."""
    python = PYTHONS[request.param]
    asked = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    if not Path(python).exists():
        pytest.skip(f"{python} does not exist")
    told = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    if told.stdout.strip() != ".".join(map(str, sys.version_info[:2])):
        pytest.skip(f"safeser's dependencies are not installed for {python}")
    made = subprocess.run(
        [python, "-m", "venv", "--without-pip", "venv"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"{python} makes no virtual environment: {made.stderr}")
    [purelib] = tmp_path.glob("venv/lib/python*/site-packages")
    paths = [str(Path(pickles.__file__).parents[2]), sysconfig.get_path("purelib")]
    (purelib / "a_safeser.pth").write_text("\n".join(paths), "utf-8")
    (tmp_path / "program.py").write_text(
        "import pickle, sys\n"
        f"print(pickle.loads({spellings.LISTED!r}))\n"
        f"pickle.loads({spellings.HOSTILE!r})\n"
        "print('the program goes on')\n"
    )
    return tmp_path / "venv/bin/python", purelib


def test_the_recipe_guards_a_program(environment, tmp_path):
    python, purelib = environment
    for name in ("safeser_guard.pth", "safeser_guard.py"):
        (purelib / name).write_text(PAGE.files[name], "utf-8")
    for options in ((), ("-I",)):
        ended = in_process(tmp_path, *options, "program.py", python=python)
        assert ended.stdout == "2026-11-29\n"
        assert "PolicyDenied: posix:mkdir is called" in ended.stderr
        assert not (tmp_path / "ran").exists()
    *_, check = PAGE.commands
    ended = in_process(tmp_path, *shlex.split(check.text)[1:], python=python)
    assert matches(ended.stderr.splitlines(), check.printed)
    assert (ended.returncode, ended.stdout) == (1, "")
    (purelib / "safeser_guard.pth").unlink()
    ended = in_process(tmp_path, *shlex.split(check.text)[1:], python=python)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "NO GUARD\n", "")


#: What keeps the recipe's module from guarding, by how its text is changed.
NO_GUARD = {
    "a profile that is none": ('("data", "numpy")', '"mistyped"'),
    "safeser is not installed": ("from safeser import", "from safeser_elsewhere import"),
    "no standard error": ("pickles.guard(", "sys.stderr = None; pickles.no_guard("),
    "an import that ends the process": ("pickles.guard(", "raise SystemExit("),
}


@pytest.mark.parametrize("fault", NO_GUARD)
def test_a_program_whose_guard_fails_does_not_start(environment, tmp_path, fault):
    python, purelib = environment
    old, new = NO_GUARD[fault]
    text = PAGE.files["safeser_guard.py"]
    assert old in text
    (purelib / "safeser_guard.pth").write_text(PAGE.files["safeser_guard.pth"], "utf-8")
    (purelib / "safeser_guard.py").write_text(text.replace(old, new, 1), "utf-8")
    ended = in_process(tmp_path, "program.py", python=python)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("no guard: ") == (fault != "no standard error")
    assert not (tmp_path / "ran").exists()
