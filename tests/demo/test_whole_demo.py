"""The demo as a user runs it: every attack ran on stock Dask, and safeser refused it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.attacks import ATTACKS, markers
from examples.demo.groups import why_skipped

pytestmark = pytest.mark.cluster


def left_running(folder: Path) -> list[int]:
    """Return the processes that have to do with *folder*, by their arguments or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in known and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


def test_every_step_succeeds_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "demo-folder"
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--directory", str(folder)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.partition("safeser refused it by")[2]
    for attack in ATTACKS:
        assert attack.what in table
        made = [path.exists() for path in markers(folder / "markers" / "stock", attack)]
        assert any(made) or attack.leaks, attack.name
    # On safeser:// only the code that the policy permits alice ran.
    ran = [path.name for path in (folder / "markers" / "safeser").iterdir()]
    assert ran == ["alice-update-graph"]
    if not why_skipped():
        _no_key_of_one_group_is_listed_by_the_other(folder / "groups")
    assert not left_running(folder)


def _no_key_of_one_group_is_listed_by_the_other(groups: Path) -> None:
    rosters = [groups / group / "public" / "roster" for group in ("analysts", "engineers")]
    one, other = (set(re.findall(r"x25519:\S+", roster.read_text())) for roster in rosters)
    assert one
    assert other
    assert not one & other
