"""The step with two groups, each of which has a cluster; the kernel confines the analysts' worker.

Each request that is refused to the analyst succeeds for the engineer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from string import Template
from typing import Any

from examples.demo.clusters import start_program
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from examples.demo.processes import Child, Processes
from examples.demo.screen import Screen
from safeser.confinement.launch import require_kernel
from safeser.dask.group_clusters import GroupCluster
from safeser.errors import ConfigError

__all__ = ["Site", "step", "why_skipped", "without_capabilities"]

_POLICY = Path(__file__).with_name("groups.yaml")
_START = 90.0  # seconds, for a busy machine
_ANSWER = 150.0

#: The groups, and the user of each: one whose worker is confined, and one whose worker is not.
_CONFINED, _FREE = ("analysts", "dana"), ("engineers", "erin")

_PERMISSION = "PermissionError: Permission denied"
_STRANGER = "authentication"


def step(screen: Screen, processes: Processes, folder: Folder) -> str:
    """Run the step, or print why this machine skips it; return that reason, or an empty string."""
    screen.step("A cluster for each group: the kernel confines the analysts' worker")
    reason = why_skipped()
    if reason:
        screen.say(f"Skipped: {reason}.")
        return reason
    analysts, engineers = (Site(processes, folder, *each) for each in (_CONFINED, _FREE))
    with screen.waiting("starting two clusters, and a user of each"):
        for site in (analysts, engineers):
            site.start()
        passed = _meet(analysts, engineers, processes)
    for site in (analysts, engineers):
        screen.command(shlex.split(site.shown))
    screen.result(
        "confined",
        f"{passed} probes in the analysts' worker passed before it listened: other files, programs,"
        " sockets and processes are out of reach",
    )
    _show(screen, processes, analysts, engineers)
    with screen.waiting("ending all processes"):
        processes.end_all()
    return ""


# --- what the machine supports -------------------------------------------------------------------


def why_skipped() -> str:
    """Return why no worker can be confined on this machine, or an empty string."""
    try:
        require_kernel()
    except ConfigError as error:
        return error.message
    starts = without_capabilities()
    if starts and subprocess.run([*starts, "true"], capture_output=True, check=False).returncode:  # noqa: S603 - both words are above
        return "this machine cannot drop root's capabilities; run the demo as another user"
    return ""


def without_capabilities() -> list[str]:
    """Return the command that drops root's capabilities, which a confined worker may not have."""
    if os.geteuid() != 0:
        return []
    none = ("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
    return [shutil.which("setpriv") or "false", *none]


# --- the clusters --------------------------------------------------------------------------------


class Site:
    """The cluster of one group and its user, who connects at the first command."""

    def __init__(self, processes: Processes, folder: Folder, group: str, user: str) -> None:
        self._processes = processes
        self._folder = folder
        self.group, self.name = group, user
        self.path = folder.path / "groups" / group
        self.is_confined = group == _CONFINED[0]
        self._ports = _free_ports(3)
        self.user: Any = None
        self.shown = f"safeser up groups --group {group} --policy {group}.yaml"

    @property
    def address(self) -> str:
        return f"safeser://127.0.0.1:{self._ports[0]}"

    @property
    def key(self) -> Path:
        """The path of the user's private key."""
        return self.path / "keys" / f"{self.name}.key"

    def policy(self) -> Path:
        """Write the policy of this group, and the folder that its confined worker may write to."""
        scratch = self._folder.scratch / self.group
        scratch.mkdir(mode=0o700, parents=True)
        ports = ", ".join(map(str, self._ports))
        confined = f'write: ["{scratch.resolve()}"], execute: false, connect: cluster'
        worker = f"{{confined: {{{confined}, ports: [{ports}]}}}}" if self.is_confined else "{}"
        made = Template(_POLICY.read_text(encoding="utf-8")).substitute(
            group=self.group, user=self.name, worker=worker
        )
        written = self._folder.scratch / f"{self.group}.yaml"
        written.write_text(made, encoding="utf-8")
        return written

    def start(self) -> None:
        """Start the cluster by ``safeser up``, and the user's program once its keys are there."""
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        safeser = str(Path(sys.executable).with_name("safeser"))
        command = [*(without_capabilities() if self.is_confined else []), safeser, "up"]
        command += [str(self.path.parent), "--group", self.group]
        command += ["--policy", str(self.policy()), "--port", str(self._ports[0])]
        self._processes.start(f"cluster of {self.group}", command)
        self._processes.wait_for(
            f"the start of the {self.group}' scheduler",
            lambda: True if (self.path / "scheduler.json").exists() else None,
            timeout=_START,
        )
        settings = GroupCluster(self.path).settings(self.name)
        self.user = start_program(
            self._processes, self.name, "group_user", self.address, environment=settings
        )


def _free_ports(count: int) -> list[int]:
    """Return free ports: the policy has to list them before a process listens there."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in made]


# --- requests and their results ------------------------------------------------------------------


def _meet(analysts: Any, engineers: Any, processes: Processes) -> int:
    """Wait until both users see their worker; return how many probes the confined one passed."""
    sites = (analysts, engineers)
    for site in sites:
        site.user.tell({"do": "meet"})
    passed, others = (
        site.user.answer(timeout=_ANSWER, check=processes.check)["probes"] for site in sites
    )
    if not passed or others:
        raise StepFailed("the analysts' worker must be confined, and no other worker")
    return len(passed)


def _show(screen: Screen, processes: Processes, analysts: Any, engineers: Any) -> None:
    dana, erin = analysts.user, engineers.user

    def ask(user: Child, do: str, **more: str) -> dict[str, Any]:
        return user.ask({"do": do, **more}, timeout=_ANSWER, check=processes.check)

    found = ask(dana, "compute")["found"]
    screen.result("dana, an analyst", f"her lambda returned {found} in the confined worker")

    path = str(engineers.key)
    refused, read = (ask(user, "read", path=path) for user in (dana, erin))
    _require_refused(refused, _PERMISSION, "dana's lambda read erin's key")
    screen.result("her lambda opens erin's key", refused["refused"])
    size = _require_found(read, "erin's lambda did not read erin's key")
    screen.result(
        "erin, an engineer",
        f"the same lambda read its {size} bytes in the engineers' worker, which runs under the same"
        " account and is not confined",
    )

    refused, found = (ask(user, "visit", address=engineers.address) for user in (dana, erin))
    _require_refused(refused, _STRANGER, "dana connected to the engineers' cluster")
    value = _require_found(found, "erin did not connect to the engineers' cluster")
    screen.result(
        "dana at the engineers' cluster",
        f"refused by {refused['refused']}: it has other keys; erin sees its {value} worker",
    )


def _require_refused(outcome: dict[str, Any], rule: str, otherwise: str) -> None:
    found = outcome.get("refused")
    if found is None:
        raise StepFailed(otherwise)
    if found != rule:
        raise StepFailed(f"dana was refused by {found}, expected {rule}")


def _require_found(outcome: dict[str, Any], otherwise: str) -> Any:
    if "refused" in outcome:
        raise StepFailed(f"{otherwise}: {outcome['refused']}")
    return outcome["found"]
