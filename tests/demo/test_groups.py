"""The step with a confined worker: it succeeds or fails."""

from __future__ import annotations

import datetime
import io
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from examples.demo import groups
from examples.demo.clusters import dask_environment
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from examples.demo.processes import Processes
from examples.demo.screen import Screen
from safeser.confinement import PROBES
from safeser.policy import Policy
from safeser.policy.questions.lint import lint

LACKING = groups.why_skipped()
needs_landlock = pytest.mark.skipif(bool(LACKING), reason=LACKING)


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
    size = (tmp_path / "demo" / "groups" / "engineers" / "keys" / "erin.key").stat().st_size
    for line in (
        "safeser up groups --group analysts --policy analysts.yaml",
        "safeser up groups --group engineers --policy engineers.yaml",
        f"confined: {len(PROBES)} probes in the analysts' worker passed before it listened",
        "dana, an analyst: her lambda returned 499500 in the confined worker",
        "her lambda opens erin's key: PermissionError: Permission denied",
        f"the same lambda read its {size} bytes in the engineers' worker",
        "dana at the engineers' cluster: refused by authentication",
    ):
        assert line in text
    # Nothing is shared: no key of one group is listed by the other.
    rosters = [
        (tmp_path / "demo" / "groups" / group / "public" / "roster").read_text()
        for group in ("analysts", "engineers")
    ]
    keys = [set(re.findall(r"x25519:\S+", text)) for text in rosters]
    assert all(keys)
    assert not keys[0] & keys[1]


def test_its_policies_show_what_they_say(tmp_path) -> None:
    folder = Folder.make(tmp_path / "demo")
    made = {
        group: Policy.load(groups.Site(PROCESSES, folder, group, user).policy())
        for group, user in (groups._CONFINED, groups._FREE)
    }
    demand = made["analysts"].principals["worker"].confined
    assert demand is not None
    assert not demand.execute
    assert made["engineers"].principals["worker"].confined is None
    for policy in made.values():
        found = {each.rule for each in lint(policy, today=datetime.date(2026, 3, 15))}
        assert found == {"lint.role"}  # a worker alone fetches from none


PROCESSES: Any = SimpleNamespace(check=lambda: None)


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


@pytest.mark.parametrize(
    ("analysts", "engineers"), [([], []), (["keys"], ["keys"]), ([], ["keys"])]
)
def test_exactly_one_worker_has_to_be_confined(analysts, engineers) -> None:
    sites: Any = [
        SimpleNamespace(user=User("each", meet={"probes": probes}))
        for probes in (analysts, engineers)
    ]
    with pytest.raises(StepFailed, match="analysts' worker must be confined, and no other"):
        groups._meet(*sites, PROCESSES)


DANA = {
    "compute": {"found": 1},
    "read": {"refused": "PermissionError: Permission denied"},
    "visit": {"refused": "authentication"},
}
ERIN = {"read": {"found": 100}, "visit": {"found": 1}}


@pytest.mark.parametrize(
    ("dana", "erin", "said"),
    [
        ({"read": {"found": 100}}, {}, "dana's lambda read erin's key"),
        ({"read": {"refused": "values.author"}}, {}, "by values.author, expected Permission"),
        ({"visit": {"found": 1}}, {}, "dana connected to the engineers' cluster"),
        ({}, {"read": DANA["read"]}, "erin's lambda did not read erin's key: Permission"),
        ({}, {"visit": DANA["visit"]}, "erin did not connect to the engineers' cluster: auth"),
    ],
)
def test_any_other_result_fails_the_step(dana, erin, said, tmp_path) -> None:
    analysts: Any = SimpleNamespace(user=User("dana", **{**DANA, **dana}))
    engineers: Any = SimpleNamespace(
        user=User("erin", **{**ERIN, **erin}), key=tmp_path / "erin.key", address="safeser://x:1"
    )
    with pytest.raises(StepFailed, match=said):
        groups._show(Screen(io.StringIO()), PROCESSES, analysts, engineers)
