"""The step with a confined worker: it succeeds, is skipped without a sandbox, or fails."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples.demo import groups, steps
from examples.demo.clusters import dask_environment
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from examples.demo.processes import Processes
from examples.demo.screen import Screen
from safeser.confinement import PROBES
from safeser.errors import ConfigError
from safeser.policy import Policy

LACKING = groups.why_skipped()
needs_landlock = pytest.mark.skipif(bool(LACKING), reason=LACKING)


def old_kernel() -> None:
    raise ConfigError("this kernel has no Landlock", rule="confined.landlock")


def shown(path: Path) -> str:
    """Return what the step shows on a real cluster."""
    output = io.StringIO()
    folder = Folder.make(path / "demo")
    with Processes(folder.logs, dask_environment(folder, os.environ)) as processes:
        assert groups.step(Screen(output), processes, folder) == ""
    return output.getvalue()


@pytest.fixture
def wide(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@needs_landlock
@pytest.mark.cluster
@pytest.mark.usefixtures("wide")
def test_code_of_an_analyst_computes_and_reaches_nothing_of_an_engineer(tmp_path) -> None:
    text = shown(tmp_path)
    size = (tmp_path / "demo" / "groups" / "keys" / "erin.key").stat().st_size
    for line in (
        f"confined: {len(PROBES)} probes in worker-analysts passed before it listened",
        "dana, an analyst: her lambda returned 499500 in worker-analysts",
        "her lambda opens erin's key: PermissionError: Permission denied",
        f"the same lambda read its {size} bytes in worker-engineers",
        "erin's result: refused to dana by values.author; erin gets 499500",
        "a task that depends on it: refused to dana by values.author; erin gets 499501",
    ):
        assert line in text


@needs_landlock
@pytest.mark.cluster
def test_a_policy_that_gives_her_the_result_fails_the_step(tmp_path, monkeypatch) -> None:
    text = groups._POLICY.read_text(encoding="utf-8")
    before, found, after = text.partition("  - name: users-submit-sealed\n")
    generous = tmp_path / "generous.yaml"
    generous.write_text(f"{before}{found}    values: [group:engineers]\n{after}")
    monkeypatch.setattr(groups, "_POLICY", generous)
    with pytest.raises(StepFailed, match="dana got erin's result"):
        shown(tmp_path)


@pytest.mark.usefixtures("wide")
def test_on_an_old_kernel_it_is_skipped_and_the_demo_succeeds(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(groups, "require_kernel", old_kernel)
    monkeypatch.setattr(steps, "_clusters", lambda stage: None)
    monkeypatch.setattr(steps, "_audit", lambda screen, folder: None)
    assert steps.run(directory=tmp_path / "x", policy=None, environment={}) == 0
    output = capsys.readouterr().out
    assert "   Skipped: this kernel has no Landlock.\n" in output
    assert "Every step but the skipped one succeeded" in output
    assert not (tmp_path / "x" / "groups").exists()


@pytest.mark.parametrize("package", ["landlockpy", "pyseccomp"])
def test_without_a_package_it_says_which(package, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert package in groups.why_skipped()


def test_root_needs_a_way_to_give_up_capabilities(monkeypatch) -> None:
    monkeypatch.setattr(groups, "require_kernel", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert groups.why_skipped().startswith("this machine cannot drop root's capabilities")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert groups.why_skipped() == ""
    assert groups.without_capabilities() == []


def test_its_policy_shows_what_it_says(tmp_path) -> None:
    site = groups.GroupCluster(SimpleNamespace(), Folder.make(tmp_path / "demo"))  # type: ignore[arg-type]
    site._make()
    policy = Policy.load(str(tmp_path / "demo" / "groups" / "public" / "policy.yaml"))
    confined = {name: each.confined for name, each in policy.principals.items() if each.confined}
    assert set(confined) == {"worker-analysts"}
    assert not confined["worker-analysts"].execute
    keys = (tmp_path / "demo" / "groups" / "analysts").glob("*.key")
    assert {path.name for path in keys} == {"audit.key", "worker-analysts.key"}


class User:
    """A user who gives prepared answers."""

    def __init__(self, name: str, **answers: Any) -> None:
        self.name = name
        self._answers = answers

    def tell(self, command: dict[str, Any]) -> None:
        self._asked = command["do"]

    def answer(self, **_: Any) -> Any:
        return self._answers[self._asked]

    def ask(self, command: dict[str, Any], **_: Any) -> Any:
        return self._answers[command["do"]]


PROCESSES: Any = SimpleNamespace(check=lambda: None)


@pytest.mark.parametrize(
    ("analysts", "engineers"), [([], []), (["keys"], ["keys"]), ([], ["keys"])]
)
def test_exactly_one_worker_has_to_be_confined(analysts, engineers) -> None:
    users: Any = User("both", meet={"worker-analysts": analysts, "worker-engineers": engineers})
    with pytest.raises(StepFailed, match="worker-analysts must be confined, and no other"):
        groups._meet(users, users, PROCESSES)


DANA = {
    "compute": {"found": 1, "workers": ["worker-analysts"]},
    "read": {"refused": "PermissionError: Permission denied"},
    "gather": {"refused": "values.author"},
    "depend": {"refused": "values.author"},
}
ERIN = {
    "compute": {"found": 1, "workers": ["worker-engineers"]},
    "read": {"found": 100},
    "gather": {"found": 1},
    "depend": {"found": 2},
}


@pytest.mark.parametrize(
    ("dana", "erin", "said"),
    [
        ({"compute": ERIN["compute"]}, {}, "dana's lambda ran in .*worker-engineers"),
        ({"read": {"found": 100}}, {}, "dana's lambda read erin's key"),
        ({"read": {"refused": "values.author"}}, {}, "by values.author, expected Permission"),
        ({"depend": {"found": 2}}, {}, "dana got a task that depends on it"),
        ({}, {"read": DANA["read"]}, "erin's lambda did not read erin's key: Permission"),
        ({}, {"gather": DANA["gather"]}, "erin did not get erin's result: values.author"),
        ({}, {}, "recorded no refusal"),
    ],
)
def test_any_other_result_fails_the_step(dana, erin, said, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(groups, "wait_for_refusals", lambda *_, **__: [])
    site: Any = SimpleNamespace(key=lambda name: tmp_path / name, audit=tmp_path)
    users: Any = User("dana", **{**DANA, **dana}), User("erin", **{**ERIN, **erin})
    with pytest.raises(StepFailed, match=said):
        groups._show(Screen(io.StringIO()), PROCESSES, site, *users)
