"""What the runner makes of reports, and what it prints."""

from __future__ import annotations

import subprocess
import sys

import pytest

from safeser.dask.patches.fingerprints import known_sources
from tests.compat import __main__ as compat
from tests.compat import environments, smoke

FILES = [target.partition("::")[0] for target in compat.TESTS.values()]


def case(file, inner=""):
    return f'<testcase file="{file}" name="test">{inner}</testcase>'


def report(*cases):
    return f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"


def test_a_report_in_which_all_passed():
    found = compat.read_report(report(*map(case, FILES), case("tests/other.py", "<failure/>")))
    assert found == dict.fromkeys(compat.TESTS, compat.OK)


@pytest.mark.parametrize(
    ("inner", "outcome"),
    [
        ('<failure message="it ran&#10;and more">text</failure>', "it ran"),
        ('<error message="no cluster"/>', "no cluster"),
        ("<skipped/>", "skipped"),
    ],
)
def test_one_test_that_did_not_pass_fails_its_line_alone(inner, outcome):
    first, *others = FILES
    found = compat.read_report(report(case(first), case(first, inner), *map(case, others)))
    line, *left = compat.TESTS
    assert found == {line: outcome, **dict.fromkeys(left, compat.OK)}


def test_a_line_without_a_test_failed():
    found = compat.read_report(report(*map(case, FILES[1:])))
    assert found[next(iter(compat.TESTS))] == "no test ran"


def test_the_table_has_each_line_and_release():
    good = dict.fromkeys(compat.LINES, compat.OK)
    results = {"2025.5.1": good, "2026.8.0": {**good, "actors": "LookupError: none"}}
    head, *lines = compat.table(results).splitlines()
    assert head.split() == ["2025.5.1", "2026.8.0"]
    assert [line[: -2 * 11].strip() for line in lines] == list(compat.LINES)
    assert lines[compat.LINES.index("actors")].split() == ["actors", "ok", "FAILED"]
    assert compat.failures(results) == ["2026.8.0, actors: LookupError: none"]
    assert compat.failures({"2025.5.1": good}) == []


@pytest.mark.parametrize(
    ("out", "err", "outcome"),
    [("", "Traceback\nImportError: none", "ImportError: none"), ("", "", "it said nothing")],
)
def test_a_program_that_ends_early_fails_each_line(monkeypatch, out, err, outcome):
    ended = subprocess.CompletedProcess([], 1, out, err)
    monkeypatch.setattr(compat, "_ended", lambda *command: ended)
    assert compat._used("python") == dict.fromkeys(smoke.LINES, outcome)
    assert set(compat._tested("python").values()) == {
        err.rpartition("\n")[2] or "pytest reported nothing"
    }


def test_what_a_program_says_is_its_result(monkeypatch):
    out = 'noise\n{"submit": "ok", "map": "LookupError: x"}'
    monkeypatch.setattr(compat, "_ended", lambda *_: subprocess.CompletedProcess([], 0, out, "w"))
    found = compat._used("python")
    assert (found["submit"], found["map"], found["bags"]) == ("ok", "LookupError: x", "w")


@pytest.mark.parametrize("failed", [False, True])
def test_the_exit_code_says_whether_anything_failed(monkeypatch, capsys, failed):
    good = dict.fromkeys(compat.LINES, compat.OK)
    found = {**good, "bags": "no"} if failed else good
    monkeypatch.setattr(compat, "results_of", lambda release: found)
    monkeypatch.setattr(sys, "argv", ["compat", "2025.5.1"])
    assert compat.main() == int(failed)
    assert ("2025.5.1, bags: no" in capsys.readouterr().out) == failed


def test_each_release_that_has_a_lock_was_reviewed():
    known = known_sources().releases
    assert set(environments.releases()) <= set(known)
    assert environments.releases()[0] == known[0]
    assert environments.releases()[-1] == known[-1]


def test_an_environment_is_made_once_and_of_one_text_of_its_lock(tmp_path, monkeypatch):
    (tmp_path / "requirements").mkdir()
    lock = tmp_path / "requirements" / "compat-1.0.lock"
    lock.write_text("one")
    ran = []
    monkeypatch.setattr(environments, "PROJECT", tmp_path)
    monkeypatch.setattr(environments, "CACHE", tmp_path / "cache")

    def run(*command):
        ran.append(command)
        if "venv" in command:
            environments.Path(command[-1]).mkdir(parents=True)

    monkeypatch.setattr(environments, "_run", run)
    python = environments.python_of("1.0")
    assert len(ran) == 3
    assert environments.python_of("1.0") == python
    assert len(ran) == 3
    lock.write_text("two")
    assert environments.python_of("1.0") != python
    assert not python.parents[1].exists()


@pytest.mark.parametrize("reached", [True, False])
def test_pip_installs_what_uv_cannot(tmp_path, monkeypatch, reached):
    ran = []

    def run(*command):
        ran.append(command)
        if "uv" in command and not reached:
            raise subprocess.CalledProcessError(2, command)

    monkeypatch.setattr(environments, "_run", run)
    environments._install(tmp_path / "python", tmp_path / "lock")
    tools = ["uv" if "uv" in command else "pip" for command in ran]
    assert tools == (["uv", "uv"] if reached else ["uv", "pip", "pip"])
    monkeypatch.setattr(environments.importlib.util, "find_spec", lambda _: None)
    ran.clear()
    environments._install(tmp_path / "python", tmp_path / "lock")
    assert not any("uv" in command for command in ran)
