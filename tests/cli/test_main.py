"""The command as a process: exit codes, one line on standard error, quick start, clean ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from safeser import AuthenticationError, ConfigError, PolicyDenied, SafeserError
from safeser.cli.ending import complain, one_line, run
from safeser.cli.screen import line, table


def test_version(safeser):
    ended = safeser("--version")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("safeser 0.")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        *(
            (words, "")
            for words in (
                *("keys init", "keys frobnicate", "demo", "policy explain demo", "--frobnicate"),
                "audit tail . -n many",
            )
        ),
        ("keys list nowhere", "does not exist"),
        ("keys fingerprint .", "is a folder, not a regular file"),
        ("policy show nowhere", "no ready policy 'nowhere'"),
        ("policy check /dev/null/x.yaml", "cannot be read"),
        ("audit tail nowhere", "there is no log at nowhere"),
        ("audit query nowhere", ""),
        ("inspect nowhere", "cannot be read"),
        ("keys list a\nb\x1b[2J", "safeser: "),
    ],
)
def test_what_could_not_run(safeser, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    ended = safeser(*words.split(" "))
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert "\x1b" not in ended.err
    if says:  # the others are wrong usage, which comes with the command's own lines
        assert ended.err.startswith("safeser: ")
        assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (PolicyDenied("x"), 1),
        (AuthenticationError("x"), 1),
        (SafeserError("x"), 1),
    ],
)
def test_each_error_has_its_code(capsys, error, code):
    assert complain(error) == code
    rule = f" [{error.rule}]" if isinstance(error, ConfigError) else f"\n  rule: {error.rule}"
    assert capsys.readouterr().err == f"safeser: x{rule}\n"


def test_long_and_hostile_messages_are_cut():
    assert one_line("a\n\tb\x1b[0m\u202ec") == "a b?[0m?c"
    assert len(one_line("x" * 5000)) < 1300


def test_interrupt_ends_with_130():
    def interrupted():
        raise KeyboardInterrupt

    assert run(interrupted) == 130


@pytest.mark.parametrize(("asked", "code"), [(0, 0), (3, 3), (None, 0)])
def test_exits_keep_their_code(asked, code):
    def leave():
        raise SystemExit(asked)

    assert run(leave) == code


def test_errors_that_are_not_of_safeser_stay_visible():
    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(broken)


@pytest.mark.parametrize("arguments", ["policy show demo", "--version"])
def test_a_reader_that_goes_away_is_quiet_and_no_verdict(arguments):
    command = f'"{sys.executable}" -c "from safeser.cli import main; main()" {arguments}'
    # The pipe's only reader is gone before the command starts.
    script = f"set -o pipefail; {{ read -r _ < <(sleep 0.2); {command}; }} | true"
    ended = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (141, "")


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_nothing_heavy_is_imported_for_keys(tmp_path):
    code = (
        "import sys\n"
        "from safeser.cli.app import app\n"
        "from safeser.cli.ending import run\n"
        "assert run(lambda: app(['keys', 'init', sys.argv[1]])) == 0\n"
        "heavy = {'dask', 'distributed', 'numpy', 'pandas', 'pyarrow', 'tornado', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    ended = python(code, str(tmp_path / "keys"))
    assert ended.stdout.splitlines()[-1] == "[]", ended.stderr


NO_DASK = """
import importlib.metadata as metadata
def hidden(name):
    raise metadata.PackageNotFoundError(name)
metadata.version = hidden
from safeser.cli import main
main()
"""


@pytest.mark.slow
def test_without_dask(tmp_path):
    ended = python(NO_DASK, "up", str(tmp_path))
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "pip install '.[dask]'" in ended.stderr


@pytest.mark.parametrize("width", ["40", "80", "120"])
def test_tables_fold_and_never_cut(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    table(("a", "b"), [("x" * 60, "[b]" * 20)])
    out = capsys.readouterr().out
    assert out.count("x") == 60
    assert out.count("[") == 20
    assert max(map(len, out.splitlines())) <= int(width)


def test_text_cannot_move_the_cursor(capsys):
    line("a\x1b[2Jb\rc\u202ed\ne")
    table(("name",), [("x\x1b[1Ay",)])
    out = capsys.readouterr().out
    assert "a?[2Jb?c?d\ne" in out
    assert "x?[1Ay" in out
