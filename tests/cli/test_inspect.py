"""``safeser inspect``: hostile files are shown, judged, and never run."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import re
import subprocess
import sys
import zipfile
import zlib

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safeser.pickles
from safeser.cli.app import app
from safeser.cli.ending import run
from tests.draws import draws
from tests.inspection.forging import archive, torch_records


class Attack:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def joblib_of(*values, **options):
    file = io.BytesIO()
    joblib.dump(*values, file, **options)
    return file.getvalue()


LONG = "package_of_somebody.a_module_inside_it:ClassWithALongName"
GLOBAL = f"c{LONG}\n".replace(":", "\n").encode()
MANY = b"".join(b"cmod%d\nname\n0" % n for n in range(80))
FILES = {
    "plain": pickle.dumps({"a": [1, 2.5, None], "b": b"x"}),
    "list": pickle.dumps([*range(60)]),
    "cut": pickle.dumps([*range(60)]) + b"\x80",
    "error": pickle.dumps(ValueError("x")),
    "frame": pickle.dumps(pd.DataFrame({"a": [1.0]})),
    "text": pickle.dumps("\x1b[2J[red]x[/red] :boom:\n"),
    "many": b"\x80\x02" + MANY + pickle.dumps(list(range(95)), 2)[2:],
    "joblib": joblib_of([np.arange(3)]),
    "torch": archive(torch_records()),
    "model": pickle.dumps([*range(60)], 2)[:-1] + GLOBAL + b"\x86.",
    "fine": b"N.",
}


@pytest.fixture
def inspect(safeser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "attack").write_bytes(pickle.dumps(Attack(tmp_path / "ran")))
    yield lambda words: safeser("inspect", *words.split(" "))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("attack", 1, ["Refused: posix:mkdir is called at byte ", "REFUSED: it is not listed"]),
        ("plain", 0, ["Allowed: it names nothing that would be imported"]),
        # The profile decides.
        ("error", 0, []),
        ("error --profile data", 1, ["add --profile exceptions"]),
        ("error --profile exceptions", 0, []),
        ("frame --profile pandas", 0, ["pandas (with data, numpy, on which they build)"]),
        # The worst of several files does.
        ("fine fine", 0, []),
        ("fine attack", 1, []),
        ("cut attack fine", 2, ["Refused: ", "Not read: "]),
        # Nothing styles or moves the terminal, and what is long is cut.
        ("text", 0, [r"'\x1b[2J[red]x[/red] :boom:\n'"]),
        ("many", 1, ["... and 20 more globals", "the rest is left out; --tree shows it"]),
        ("model --no-tree", 1, [f"\n{LONG}   referenced"]),  # whole in a pipe
        # What loads it, and who checks then.
        ("joblib", 0, ["Load it by joblib.load.", "Never by pickle.load", "does not check"]),
        ("torch", 0, ["safeser itself loads no such file", "torch.load(weights_only=True)."]),
        # What could not run.
        ("attack --profile everything", 2, ["everything"]),
        ("nothing", 2, ["cannot be read: No such file"]),
        ("a\0b", 2, []),
    ],
)
def test_what_is_said_of_a_file(inspect, words, code, says):
    ended = inspect(words)
    printed = ended.out + ended.err
    assert ended.code == code
    assert "\x1b" not in printed
    for each in says:
        assert (each[1:] not in printed) if each[0] == "!" else (each in printed)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("model.joblib", lambda path, x: joblib.dump({"x": x, "a": np.arange(3)}, path)),
        ("packed.joblib", lambda path, x: joblib.dump([x], path, compress=3)),
        ("array.npy", lambda path, x: np.save(path, np.array([x, None], dtype=object))),
        ("arrays.npz", lambda path, x: np.savez(path, a=np.array([x, None], dtype=object))),
        ("plain.txt", lambda path, x: path.write_bytes(pickle.dumps(x, 0))),
        ("list.jpg", lambda path, x: path.write_bytes(pickle.dumps(1) + pickle.dumps([x]))),
    ],
)
def test_every_container(inspect, tmp_path, name, write):
    # CVE-2025-1889 and CVE-2025-10155: the name of a file says nothing about what loads it.
    write(tmp_path / name, 5)
    assert inspect(name).code == 0
    write(tmp_path / name, Attack(tmp_path / "ran"))
    ended = inspect(name)
    assert (ended.code, ended.err, "posix:mkdir is called" in ended.out) == (1, "", True)


def test_json_is_json(inspect):
    ended = inspect("attack list --json")
    refused, allowed = map(json.loads, ended.out.splitlines())
    assert ended.code == 1
    assert (refused["schema"], refused["permitted"], refused["exit_code"]) == (1, False, 1)
    assert refused["globals"][0]["name"] == "posix:mkdir"
    assert (allowed["verdict"], allowed["kind"], allowed["exit_code"]) == ("allowed", "pickle", 0)
    assert allowed["parts"][0]["tree"]["kind"] == "list"
    assert "tree" not in json.loads(inspect("list --json --no-tree").out)["parts"][0]


@pytest.mark.parametrize(("module", "pack"), [
    (gzip, gzip.compress), (bz2, bz2.compress), (zlib, zlib.compress), (lzma, lzma.compress),
    (lzma, lambda data: lzma.compress(data, lzma.FORMAT_ALONE)),
])  # fmt: skip
@pytest.mark.parametrize("values", [[[1]], [[1], b"x"]])
def test_a_compressed_pickle_is_loaded_as_it_is_said(inspect, tmp_path, module, pack, values):
    data = pack(b"".join(map(pickle.dumps, values)))
    (tmp_path / "packed").write_bytes(data)
    said = re.search(r"Load it by (?:(data = .*?), and .*?: )?(.*\))\. ", inspect("packed").out)
    names = {"data": data, module.__name__: module, "safeser": safeser}
    exec(said[1] or "", names)
    parts = json.loads(inspect("packed --json").out)["parts"]
    for part, value in zip(parts, values, strict=True):
        assert eval(said[2], names, {"begin": part["offset"], "size": part["bytes"]}) == value


def test_what_is_over_a_limit_takes_the_limit_that_is_advised(inspect):
    ended = inspect("list --limit max_memory=3840")
    assert (ended.code, "Over a limit: the pickle holds more" in ended.out) == (3, True)
    setting = re.search("Add (--limit max_memory=15360);", ended.out)[1]
    ended = inspect(f"list {setting} --limit max_depth=2")
    said = re.search(r"Load it by (safeser\.pickles\.loads\(data, .*\))\. ", ended.out)[1]
    assert "max_memory=15360" in said
    assert eval(said, {"safeser": safeser, "data": FILES["list"]}) == [*range(60)]
    for wrong in ("refs=3", "max_refs=9", "max_memory=", "max_memory=-1", "max_memory=0"):
        assert inspect(f"list --limit {wrong}").code == 2


def test_names_in_an_archive_cannot_move_the_terminal(safeser, tmp_path):
    with zipfile.ZipFile(tmp_path / "\x1b[2Jzip", "w") as made:
        made.writestr("\x9b2J\u202e[red]a.txt", b"x")
    ended = safeser("inspect", tmp_path / "\x1b[2Jzip")
    assert ended.code == 2
    assert not {"\x1b", "\x9b", "\u202e"} & set(ended.out)


def test_standard_input_is_read(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", "from safeser.cli import main; main()", "inspect", "-"],
        input=pickle.dumps([1]),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"standard input: a pickle, ")


def test_nothing_that_a_file_names_is_imported_here(tmp_path):
    joblib.dump([np.arange(3)], tmp_path / "model")
    (tmp_path / "frame").write_bytes(pickle.dumps(pd.DataFrame({"a": [1.0]})))
    code = (
        "import sys\n"
        "from safeser.cli.app import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
        "assert not {'joblib', 'pandas', 'pyarrow'} & set(sys.modules)\n"
    )
    command = [sys.executable, "-c", code, "inspect", tmp_path / "model", tmp_path / "frame"]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


@draws(100)
@given(data=st.binary(max_size=80))
def test_any_bytes_give_a_code(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    assert run(lambda: app(["inspect", str(path)])) in (0, 1, 2, 3)
