"""``safeser inspect``: hostile files are shown, judged, and never run."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.cli.app import app
from safeser.cli.ending import run
from tests.inspection.forging import archive, torch_records


class Attack:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


@pytest.fixture
def attack(tmp_path):
    path = tmp_path / "attack.pickle"
    path.write_bytes(pickle.dumps(Attack(tmp_path / "ran")))
    return path


def test_an_attack_is_shown_and_does_not_run(safeser, attack, tmp_path):
    ended = safeser("inspect", attack)
    assert (ended.code, ended.err) == (1, "")
    assert "Refused: posix:mkdir is called at byte " in ended.out
    assert "REFUSED: it is not listed" in ended.out
    assert not (tmp_path / "ran").exists()


def test_plain_data_is_fine(safeser, tmp_path):
    (tmp_path / "plain").write_bytes(pickle.dumps({"a": [1, 2.5, None], "b": b"x"}))
    ended = safeser("inspect", tmp_path / "plain")
    assert (ended.code, ended.err) == (0, "")
    assert "Allowed: it names nothing that would be imported" in ended.out
    assert 'safeser.pickles.loads(data, profile="data")' in ended.out


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
def test_every_container(safeser, tmp_path, name, write):
    # CVE-2025-1889 and CVE-2025-10155: the name of a file says nothing about what loads it.
    write(tmp_path / name, 5)
    assert safeser("inspect", tmp_path / name).code == 0
    write(tmp_path / name, Attack(tmp_path / "ran"))
    ended = safeser("inspect", tmp_path / name)
    assert (ended.code, ended.err) == (1, "")
    assert "posix:mkdir is called" in ended.out
    assert not (tmp_path / "ran").exists()


def test_the_profile_decides(safeser, tmp_path):
    (tmp_path / "error").write_bytes(pickle.dumps(ValueError("x")))
    ended = safeser("inspect", tmp_path / "error", "--profile", "data")
    assert ended.code == 1
    assert "add --profile exceptions" in ended.out
    assert safeser("inspect", tmp_path / "error", "--profile", "exceptions").code == 0
    assert safeser("inspect", tmp_path / "error").code == 0


def test_a_profile_brings_those_that_it_builds_on(safeser, tmp_path):
    (tmp_path / "frame").write_bytes(pickle.dumps(pd.DataFrame({"a": [1.0]})))
    ended = safeser("inspect", tmp_path / "frame", "--profile", "pandas")
    assert ended.code == 0
    assert "Judged by the profiles pandas (with data, numpy, on which they build)." in ended.out
    assert 'profile=("data", "numpy", "pandas")' in ended.out


def test_a_profile_that_does_not_exist_could_not_run(safeser, attack):
    ended = safeser("inspect", attack, "--profile", "everything")
    assert ended.code == 2
    assert ended.err.count("\n") == 1


def test_json_is_json(safeser, attack, tmp_path):
    (tmp_path / "plain").write_bytes(pickle.dumps([1]))
    ended = safeser("inspect", attack, tmp_path / "plain", "--json")
    refused, allowed = map(json.loads, ended.out.splitlines())
    assert ended.code == 1
    assert (refused["schema"], refused["permitted"], refused["exit_code"]) == (1, False, 1)
    assert refused["globals"][0]["name"] == "posix:mkdir"
    assert (allowed["verdict"], allowed["kind"], allowed["exit_code"]) == ("allowed", "pickle", 0)
    assert allowed["parts"][0]["tree"]["kind"] == "list"
    bare = json.loads(safeser("inspect", tmp_path / "plain", "--json", "--no-tree").out)
    assert "tree" not in bare["parts"][0]


def test_the_worst_of_several_files_decides(safeser, attack, tmp_path):
    (tmp_path / "fine").write_bytes(b"N.")
    (tmp_path / "cut").write_bytes(b"\x80\x04")
    assert safeser("inspect", tmp_path / "fine", tmp_path / "fine").code == 0
    assert safeser("inspect", tmp_path / "fine", attack).code == 1
    ended = safeser("inspect", tmp_path / "cut", attack, tmp_path / "fine")
    assert ended.code == 2
    assert ended.out.count("Refused: ") == ended.out.count("Not read: ") == 1


def test_text_in_a_pickle_cannot_style_or_move_the_terminal(safeser, tmp_path):
    (tmp_path / "text").write_bytes(pickle.dumps("\x1b[2J[red]x[/red] :boom:\n"))
    out = safeser("inspect", tmp_path / "text").out
    assert "\x1b" not in out
    assert r"'\x1b[2J[red]x[/red] :boom:\n'" in out


def test_names_in_an_archive_cannot_move_the_terminal(safeser, tmp_path):
    with zipfile.ZipFile(tmp_path / "\x1b[2Jzip", "w") as made:
        made.writestr("\x9b2J\u202e[red]a.txt", b"x")
    ended = safeser("inspect", tmp_path / "\x1b[2Jzip")
    assert ended.code == 2
    assert not {"\x1b", "\x9b", "\u202e"} & set(ended.out)


def test_what_is_long_is_cut(safeser, tmp_path):
    many = b"".join(b"cmod%d\nname\n0" % n for n in range(80))
    (tmp_path / "many").write_bytes(b"\x80\x02" + many + pickle.dumps(list(range(95)), 2)[2:])
    ended = safeser("inspect", tmp_path / "many")
    assert "... and 20 more globals" in ended.out
    assert "... the rest is left out; --tree shows it" in ended.out
    assert "the rest is left out" not in safeser("inspect", tmp_path / "many", "--tree").out
    assert "list of" not in safeser("inspect", tmp_path / "many", "--no-tree").out
    (tmp_path / "row").write_bytes(b"".join(pickle.dumps([n]) for n in range(50)))
    ended = safeser("inspect", tmp_path / "row")
    assert "... and 30 more parts" in ended.out
    assert "pickle 7:\nlist of 1  #0\n  6\n" in ended.out


def test_a_joblib_file_is_not_for_pickle(safeser, tmp_path):
    joblib.dump([np.arange(3)], tmp_path / "model")
    out = safeser("inspect", tmp_path / "model").out
    assert "Load it by joblib.load." in out
    assert "Never by pickle.load" in out
    assert "joblib.load does not check" in out


def test_a_pytorch_file_is_for_pytorch(safeser, tmp_path):
    (tmp_path / "weights.pth").write_bytes(archive(torch_records()))
    ended = safeser("inspect", tmp_path / "weights.pth")
    assert ended.code == 0
    assert "safeser itself loads no such file" in ended.out
    assert "Load it by torch.load(weights_only=True)." in ended.out
    assert "archive/data/0" in ended.out


def test_no_check_is_promised_where_safeser_does_not_load(safeser, tmp_path):
    joblib.dump(np.zeros(2, dtype=[("a", "u1")]), tmp_path / "array")
    assert "listed by profile numpy." in safeser("inspect", tmp_path / "array").out


def test_a_file_that_cannot_be_read(safeser, tmp_path):
    ended = safeser("inspect", tmp_path / "nothing")
    assert ended.code == 2
    assert "cannot be read: No such file" in ended.err
    assert safeser("inspect", "a\0b").code == 2


def test_a_file_that_is_too_large(safeser, tmp_path, monkeypatch):
    monkeypatch.setattr("safeser.inspection.source.MAX_HELD", 10)
    (tmp_path / "large").write_bytes(pickle.dumps("x" * 20))
    ended = safeser("inspect", tmp_path / "large")
    assert ended.code == 2
    assert "inspect.too-large" in ended.out


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


def test_nothing_that_a_file_names_is_imported(tmp_path):
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


@given(data=st.binary(max_size=80))
def test_any_bytes_give_a_code(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    assert run(lambda: app(["inspect", str(path)])) in (0, 1, 2)


def test_sizes_are_told_in_units(safeser, tmp_path):
    file = io.BytesIO()
    np.save(file, np.zeros(1 << 18))
    (tmp_path / "array").write_bytes(file.getvalue())
    assert "a NumPy array, 2.0 MiB" in safeser("inspect", tmp_path / "array").out


LONG = "package_of_somebody.a_module_inside_it:ClassWithALongName"


@pytest.fixture
def model(tmp_path):
    module, _, name = LONG.partition(":")
    used = f"c{module}\n{name}\n".encode()
    (tmp_path / "model").write_bytes(pickle.dumps([*range(60)], 2)[:-1] + used + b"\x86.")
    return tmp_path / "model"


def test_what_is_long_ends_with_its_verdict(safeser, model, tmp_path):
    (tmp_path / "list").write_bytes(pickle.dumps([*range(60)]))
    (tmp_path / "cut").write_bytes(pickle.dumps([*range(60)]) + b"\x80")
    for path, verdict in (
        (model, "Refused: "),
        (tmp_path / "list", "Allowed: "),
        (tmp_path / "cut", "Not read: "),
    ):
        first, *_, last = safeser("inspect", path).out.splitlines()[1:]
        assert first == last
        assert last.startswith(verdict)
        assert safeser("inspect", path, "--no-tree").out.count(verdict) == 1


def test_a_name_is_whole_in_a_pipe(safeser, model):
    assert f"\n{LONG}   referenced" in safeser("inspect", model, "--no-tree").out


@pytest.mark.parametrize("columns", [80, 40])
def test_a_name_breaks_behind_dots_on_a_terminal(safeser, model, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    out = safeser("inspect", model, "--no-tree").out
    rows = out.rpartition("at byte")[2].splitlines()
    pieces = [row.split("  ")[0].strip() for row in rows]
    assert "package_of_somebody." in pieces
    assert "a_module_inside_it:" in pieces
    assert "ClassWithALongName" in pieces
    if columns == 80:
        assert max(map(len, rows)) <= 80
