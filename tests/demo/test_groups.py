"""The step with a confined worker: shown, left out where the machine has no sandbox, or failed."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from safeser.confinement import PROBES
from safeser.demo import groups, story
from safeser.demo.clusters import quiet_environment
from safeser.demo.failure import StepFailed
from safeser.demo.folder import Folder
from safeser.demo.processes import Processes
from safeser.demo.screen import Screen
from safeser.errors import ConfigError
from safeser.policy import Policy

LACKING = groups.why_left_out()
needs_landlock = pytest.mark.skipif(bool(LACKING), reason=LACKING)


def old_kernel() -> None:
    raise ConfigError("this kernel has no Landlock", rule="confined.landlock")


def shown(path: Path) -> str:
    """Return what the step shows on a real cluster."""
    output = io.StringIO()
    folder = Folder.make(path / "demo")
    with Processes(folder.logs, quiet_environment(folder, os.environ)) as processes:
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
        f"confined: before it listened, worker-analysts proved by {len(PROBES)} probes",
        "dana, an analyst: her lambda computed 499500 in worker-analysts",
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
    with pytest.raises(StepFailed, match="erin's result was given to dana"):
        shown(tmp_path)


@pytest.mark.usefixtures("wide")
def test_on_an_old_kernel_it_is_left_out_and_the_demo_succeeds(
    tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(groups, "require_kernel", old_kernel)
    monkeypatch.setattr(story, "_clusters", lambda stage: None)
    monkeypatch.setattr(story, "_audit", lambda screen, folder: None)
    assert story.run(directory=tmp_path / "x", policy=None, environment={}) == 0
    output = capsys.readouterr().out
    assert "   Left out: this kernel has no Landlock.\n" in output
    assert "Every step but the one that was left out came out as said" in output
    assert not (tmp_path / "x" / "groups").exists()


@pytest.mark.parametrize("package", ["landlockpy", "pyseccomp"])
def test_without_a_package_it_says_which(package, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert package in groups.why_left_out()


def test_root_needs_a_way_to_give_up_capabilities(monkeypatch) -> None:
    monkeypatch.setattr(groups, "require_kernel", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert groups.why_left_out().startswith("root's capabilities")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert groups.why_left_out() == ""
    assert groups.without_capabilities() == []


def test_its_policy_shows_what_it_says(tmp_path) -> None:
    site = groups.Site(SimpleNamespace(), Folder.make(tmp_path / "demo"))  # type: ignore[arg-type]
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
    with pytest.raises(StepFailed, match="not worker-analysts alone is confined"):
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
        ({"compute": ERIN["compute"]}, {}, "computed by .*worker-engineers"),
        ({"read": {"found": 100}}, {}, "dana's lambda read erin's key"),
        ({"read": {"refused": "values.author"}}, {}, "by values.author and not by Permission"),
        ({"depend": {"found": 2}}, {}, "depends on it was given to dana"),
        ({}, {"read": DANA["read"]}, "erin's lambda did not read erin's key: Permission"),
        ({}, {"gather": DANA["gather"]}, "result was not given to erin: values.author"),
        ({}, {}, "recorded no refusal"),
    ],
)
def test_what_does_not_come_out_as_said_fails_it(dana, erin, said, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(groups, "wait_for_refusals", lambda *_, **__: [])
    site: Any = SimpleNamespace(key=lambda name: tmp_path / name, audit=tmp_path)
    users: Any = User("dana", **{**DANA, **dana}), User("erin", **{**ERIN, **erin})
    with pytest.raises(StepFailed, match=said):
        groups._show(Screen(io.StringIO()), PROCESSES, site, *users)
