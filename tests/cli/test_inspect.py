"""``safeser inspect``: hostile files are shown, judged, and never run."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.cli.app import app
from safeser.cli.ending import run


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
    assert ended.code == 1
    assert "posix:mkdir" in ended.out
    assert not (tmp_path / "ran").exists()


def test_plain_data_is_fine(safeser, tmp_path):
    (tmp_path / "plain").write_bytes(pickle.dumps({"a": [1, 2.5, None], "b": b"x"}))
    ended = safeser("inspect", tmp_path / "plain")
    assert (ended.code, ended.err) == (0, "")
    assert "profile data: every global is listed" in ended.out


def test_the_profile_decides(safeser, tmp_path):
    (tmp_path / "error").write_bytes(pickle.dumps(ValueError("x")))
    assert safeser("inspect", tmp_path / "error").code == 1
    assert safeser("inspect", tmp_path / "error", "--profile", "exceptions").code == 0


def test_a_profile_that_does_not_exist_could_not_run(safeser, attack):
    ended = safeser("inspect", attack, "--profile", "everything")
    assert ended.code == 2
    assert ended.err.count("\n") == 1


def test_json_is_json(safeser, attack):
    ended = safeser("inspect", attack, "--json")
    assert json.loads(ended.out)["permitted"] is False


def test_text_in_a_pickle_cannot_style_or_move_the_terminal(safeser, tmp_path):
    (tmp_path / "text").write_bytes(pickle.dumps("\x1b[2J[red]x[/red] :boom:\n"))
    out = safeser("inspect", tmp_path / "text").out
    assert "\x1b" not in out
    assert r"'\x1b[2J[red]x[/red] :boom:\n'" in out


def test_a_file_that_cannot_be_read(safeser, tmp_path):
    ended = safeser("inspect", tmp_path / "nothing")
    assert ended.code == 2
    assert "cannot be read: No such file" in ended.err
    assert safeser("inspect", "a\0b").code == 2


def test_a_file_that_is_too_large(safeser, tmp_path, monkeypatch):
    monkeypatch.setattr("safeser.cli.inspect._MAX_BYTES", 10)
    (tmp_path / "large").write_bytes(bytes(11))
    ended = safeser("inspect", tmp_path / "large")
    assert ended.code == 1
    assert "pickle.max-bytes" in ended.err


def test_standard_input_is_read(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", "from safeser.cli import main; main()", "inspect", "-"],
        input=pickle.dumps([1]),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.startswith(b"list of 1")


@given(data=st.binary(max_size=80))
def test_any_bytes_give_0_or_1(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    assert run(lambda: app(["inspect", str(path)])) in (0, 1)
