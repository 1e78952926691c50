"""The step with two worker groups, of which the kernel confines the analysts' worker.

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

from examples.demo.clusters import Cluster, start_program, start_scheduler, start_worker
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from examples.demo.processes import Child, Processes
from examples.demo.refusals import Refusal, now, wait_for_refusals
from examples.demo.screen import Screen
from safeser.confinement.launch import require_kernel
from safeser.errors import ConfigError
from safeser.identities import AUDIT_KEY, key_path, make_identities

__all__ = ["GroupCluster", "step", "why_skipped", "without_capabilities"]

_POLICY = Path(__file__).with_name("groups.yaml")
_ANSWER = 150.0  # seconds, for a busy machine

_CONFINED, _FREE = "worker-analysts", "worker-engineers"

_PERMISSION = "PermissionError: Permission denied"
_VALUES = "values.author"


def step(screen: Screen, processes: Processes, folder: Folder) -> str:
    """Run the step, or print why this machine skips it; return that reason, or an empty string."""
    screen.step("Two worker groups: the kernel confines the analysts' worker")
    reason = why_skipped()
    if reason:
        screen.say(f"Skipped: {reason}.")
        return reason
    site = GroupCluster(processes, folder)
    with screen.waiting("starting scheduler, workers and two users"):
        cluster, dana, erin = site.start()
        passed = _meet(dana, erin, processes)
    for command in cluster.commands:
        screen.command(shlex.split(command))
    screen.result(
        "confined",
        f"{passed} probes in {_CONFINED} passed before it listened: other files, programs,"
        " sockets and processes are out of reach",
    )
    _show(screen, processes, site, dana, erin)
    with screen.waiting("ending all processes"):
        # A worker that ends together with its scheduler may take longer than the grace period.
        processes.end(cluster.children[1:])
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


# --- the cluster ---------------------------------------------------------------------------------


class GroupCluster:
    """The cluster with two worker groups; its keys, policy and log are its own."""

    def __init__(self, processes: Processes, folder: Folder) -> None:
        self._processes = processes
        self._folder = folder
        self._path = folder.path / "groups"
        self._ports = _free_ports(3)

    @property
    def audit(self) -> Path:
        """The audit log of all processes but the confined worker, which has its own."""
        return self._path / "audit"

    def key(self, principal: str) -> Path:
        """Return the path of *principal*'s private key; the confined worker has its own folder."""
        return key_path(self._path / ("analysts" if principal == _CONFINED else "keys"), principal)

    def start(self) -> tuple[Cluster, Child, Child]:
        """Start scheduler, workers, and dana and erin, who connect at the first command."""
        self._make()
        address = f"safeser://127.0.0.1:{self._ports[0]}"
        dana, erin = (
            start_program(
                self._processes, name, "group_user", address, environment=self._identity(name)
            )
            for name in ("dana", "erin")
        )
        cluster = start_scheduler(
            self._processes,
            self._folder,
            "groups",
            ["--protocol", "safeser"],
            self._identity("scheduler"),
            port=self._ports[0],
        )
        self._start_workers(cluster)
        return cluster, dana, erin

    def _make(self) -> None:
        """Make keys, roster and policy, and the folder that the confined worker may write to."""
        for each in (self._path, self._public, self._scratch):
            each.mkdir(mode=0o700, parents=True)
        others = ("scheduler", _FREE, "dana", "erin")
        roster = make_identities(self.key("scheduler").parent, others)
        (confined,) = make_identities(self.key(_CONFINED).parent, [_CONFINED]).entries
        roster.with_entry(confined).save(self._public / "roster")
        text = Template(_POLICY.read_text(encoding="utf-8")).substitute(
            scratch=self._scratch.resolve(), ports=", ".join(map(str, self._ports))
        )
        (self._public / "policy.yaml").write_text(text, encoding="utf-8")

    @property
    def _public(self) -> Path:
        return self._path / "public"

    @property
    def _scratch(self) -> Path:
        return self._folder.scratch / _CONFINED

    def _identity(self, principal: str) -> dict[str, str]:
        """Return the environment of a process that holds *principal*'s key."""
        key = self.key(principal)
        audit = self._path / "audit-analysts" if principal == _CONFINED else self.audit
        return {
            "DASK_SAFESER__IDENTITY": str(key),
            "DASK_SAFESER__AUDIT_KEY": str(key.with_name(AUDIT_KEY)),
            "DASK_SAFESER__AUDIT": str(audit),
            "DASK_SAFESER__POLICY": str(self._public / "policy.yaml"),
            "DASK_SAFESER__ROSTER": str(self._public / "roster"),
        }

    def _start_workers(self, cluster: Cluster) -> None:
        safeser = str(Path(sys.executable).with_name("safeser"))
        start_worker(
            self._processes,
            self._folder,
            cluster,
            _CONFINED,
            options=["--no-nanny", "--name", _CONFINED, "--worker-port", str(self._ports[1])],
            environment=self._identity(_CONFINED),
            dashboard=self._ports[2],
            confined=[*without_capabilities(), safeser, "confined", "--"],
        )
        start_worker(
            self._processes,
            self._folder,
            cluster,
            _FREE,
            options=["--no-nanny", "--name", _FREE],
            environment=self._identity(_FREE),
        )


def _free_ports(count: int) -> list[int]:
    """Return free ports: the policy has to list them before a process listens there."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in made]


# --- requests and their results ------------------------------------------------------------------


def _meet(dana: Child, erin: Child, processes: Processes) -> int:
    """Wait until both users see both workers; return how many probes the confined one passed."""
    for user in (dana, erin):
        user.tell({"do": "meet", "workers": 2})
    passed, _ = (user.answer(timeout=_ANSWER, check=processes.check) for user in (dana, erin))
    if not passed[_CONFINED] or passed[_FREE]:
        raise StepFailed(f"{_CONFINED} must be confined, and no other worker")
    return len(passed[_CONFINED])


def _show(
    screen: Screen, processes: Processes, site: GroupCluster, dana: Child, erin: Child
) -> None:
    started = now()

    def ask(user: Child, do: str, **more: str) -> dict[str, Any]:
        return user.ask({"do": do, **more}, timeout=_ANSWER, check=processes.check)

    for user, worker in ((dana, _CONFINED), (erin, _FREE)):
        computed = ask(user, "compute", key=f"{user.name}s-sum")
        if computed["workers"] != [worker]:
            raise StepFailed(f"{user.name}'s lambda ran in {computed['workers']}")
        if user is dana:
            screen.result(
                "dana, an analyst", f"her lambda returned {computed['found']} in {worker}"
            )

    path = str(site.key("erin"))
    refused, read = (ask(user, "read", path=path) for user in (dana, erin))
    _require_refused(refused, _PERMISSION, "dana's lambda read erin's key")
    screen.result("her lambda opens erin's key", refused["refused"])
    size = _require_found(read, "erin's lambda did not read erin's key")
    screen.result(
        "erin, an engineer",
        f"the same lambda read its {size} bytes in {_FREE}, which runs under the same account and"
        " is not confined",
    )

    for do, what in (("gather", "erin's result"), ("depend", "a task that depends on it")):
        refused, found = (ask(user, do, key="erins-sum") for user in (dana, erin))
        _require_refused(refused, _VALUES, f"dana got {what}")
        value = _require_found(found, f"erin did not get {what}")
        screen.result(what, f"refused to dana by {refused['refused']}; erin gets {value}")
    recorded = wait_for_refusals(
        site.audit, since=started, senders=frozenset({"dana"}), check=processes.check
    )
    if Refusal("dana", "scheduler", _VALUES) not in recorded:
        raise StepFailed(f"the scheduler recorded no refusal of dana by {_VALUES}")


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
