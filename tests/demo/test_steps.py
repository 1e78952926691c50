"""What the demo says before it starts anything, and what it makes of what it sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo import steps
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from safeser.errors import ConfigError


def run(directory: Path, *, policy: str | None = None) -> int:
    return steps.run(directory=directory, policy=policy, environment={})


def test_without_its_packages_it_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(steps, "find_spec", lambda name: None if name == "sklearn" else name)
    with pytest.raises(ConfigError, match=r"sklearn.*'\.\[demo\]'"):
        run(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_a_policy_without_its_principals_is_refused_before_anything_starts(tmp_path) -> None:
    with pytest.raises(ConfigError, match="lists no alice, bob"):
        run(tmp_path / "x", policy="default")
    with pytest.raises(ConfigError, match="no ready policy"):
        run(tmp_path / "x", policy="unheard-of")
    assert not list(tmp_path.iterdir())


class _Alice:
    def tail(self) -> list[str]:
        return ["last words"]


def test_a_pickle_of_a_peer_in_alices_process_ends_the_demo() -> None:
    seen = {"peer": 1, "own": 3, "unwrapped": ["os:system"], "peer_globals": ["builtins:eval"]}
    with pytest.raises(StepFailed, match="loaded 1 pickles of other processes") as failed:
        steps._require_clean(seen, _Alice())  # type: ignore[arg-type]
    assert failed.value.lines == ("globals: builtins:eval, os:system", "last words")
    steps._require_clean({**seen, "peer": 0, "unwrapped": []}, _Alice())  # type: ignore[arg-type]


def test_what_stock_dask_cannot_do_is_said() -> None:
    assert steps._missing([]) == ""
    assert steps._missing(["frames: TypeError: no"]) == "; 'frames' failed there"


def test_a_log_that_does_not_verify_ends_the_demo(tmp_path, capsys) -> None:
    folder = Folder.make(tmp_path)
    folder.make_identities()
    with pytest.raises(StepFailed, match="does not verify"):
        steps._audit(steps.Screen(), folder)
    assert "The audit log" in capsys.readouterr().out


def test_commands_can_be_typed_as_shown(tmp_path, monkeypatch) -> None:
    folder = Folder(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert all(Path(command[0]).is_absolute() for command in steps.next_commands(folder, "demo"))
    beside = str(Path(steps.sys.executable).with_name("safeser"))
    monkeypatch.setattr("shutil.which", lambda name: beside)
    assert {command[0] for command in steps.next_commands(folder, "demo")} == {"safeser"}


def test_what_tells_the_story_imports_no_dask() -> None:
    script = "import examples.demo.steps, sys; print({'dask', 'distributed'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
