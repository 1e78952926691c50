"""A process that is confined, wholly or with one wall left out, and what it finds of itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from safeser.confinement import Own, launch, readable, writable
from safeser.confinement.own import DEVICES
from safeser.errors import ConfigError
from safeser.policy import Confined
from tests.conftest import base_environment
from tests.needs import require

INSIDE = Path(__file__).with_name("inside.py")
WALLS = ("witness", "landlock", "seccomp")


def lacks_landlock() -> str:
    """Return why this machine cannot confine a process by Landlock, or nothing."""
    try:
        launch.require_kernel()
    except ConfigError as error:
        return error.message
    return ""


def without_capabilities() -> list[str]:
    """Return what a command is started by, so that root's has no capability either."""
    if os.geteuid() != 0:
        return []
    none = ("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
    return [shutil.which("setpriv") or "setpriv", *none]


class Bench:
    """The files of a worker called worker, and processes that probe themselves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for name in ("own", "log", "data", "scratch", "more"):
            (path / name).mkdir(mode=0o700)
        for name in ("worker", "audit"):
            (path / "own" / f"{name}.key").write_text("key")
        self.own = Own(
            identity=path / "own" / "worker.key",
            audit_key=path / "own" / "audit.key",
            audit=path / "log",
            principals=("worker", "alice"),
        )
        self.demand = Confined(
            read=(str(path / "data"),),
            write=(str(path / "scratch"),),
            execute=False,
            connect="cluster",
            ports=(range(8786, 8787),),
        )
        self.rules = launch.Rules(
            read=readable(self.demand, self.own),
            write=writable(self.demand, self.own),
            devices=DEVICES,
            execute=False,
            ports=(8786,),
        )

    def also(self, **more: tuple[str, ...]) -> launch.Rules:
        """Return the rules with further paths."""
        return replace(
            self.rules,
            **{name: (*getattr(self.rules, name), *paths) for name, paths in more.items()},
        )

    def probe(
        self,
        rules: launch.Rules | None = None,
        *,
        demand: Confined | None = None,
        walls: tuple[str, ...] = WALLS,
        thread: bool = False,
    ) -> dict[str, list[str]]:
        """Return what each probe finds in a process behind *walls*: state, text, fix."""
        asked = asdict(demand or self.demand)
        asked["ports"] = [(each.start, each.stop) for each in asked["ports"]]
        files = {name: str(getattr(self.own, name)) for name in ("identity", "audit_key", "audit")}
        told: dict[str, Any] = {
            "demand": asked,
            "own": files,
            "rules": asdict(rules or self.rules),
            "parts": walls,
            "thread": thread,
        }
        ended = subprocess.run(
            [*without_capabilities(), sys.executable, "-P", str(INSIDE), json.dumps(told)],
            capture_output=True, text=True, timeout=60, check=False, env=base_environment(),
            cwd=self.path / "scratch",
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        found: dict[str, list[str]] = json.loads(ended.stdout)
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def landlock() -> None:
    reason = lacks_landlock()
    require(f"Landlock: {reason}", not reason)
