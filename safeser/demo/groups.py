"""A step of the demo: two groups of workers, of which the analysts' is confined by the kernel.

The one rule: for each refusal to the analyst the same request succeeds for the engineer.
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

from safeser.confinement.launch import require_kernel
from safeser.demo.clusters import Cluster, python, start_scheduler, start_worker
from safeser.demo.evidence import Refusal, now, wait_for_refusals
from safeser.demo.failure import StepFailed
from safeser.demo.folder import Folder
from safeser.demo.processes import Child, Processes
from safeser.demo.screen import Screen
from safeser.errors import ConfigError
from safeser.identities import AUDIT_KEY, key_path, make_identities

__all__ = ["Site", "step", "why_left_out", "without_capabilities"]

_POLICY = Path(__file__).with_name("groups.yaml")
_ANSWER = 40.0

_CONFINED, _FREE = "worker-analysts", "worker-engineers"

_PERMISSION = "PermissionError: Permission denied"
_VALUES = "values.author"


def step(screen: Screen, processes: Processes, folder: Folder) -> str:
    """Show it, or why it is left out on this machine; return that reason, or an empty string."""
    screen.step("Two groups of workers: the kernel confines the analysts'")
    reason = why_left_out()
    if reason:
        screen.say(f"Left out: {reason}.")
        return reason
    site = Site(processes, folder)
    with screen.waiting("starting scheduler, workers and two users"):
        cluster, dana, erin = site.start()
        passed = _meet(dana, erin, processes)
    for command in cluster.commands:
        screen.command(shlex.split(command))
    screen.seen(
        "confined",
        f"before it listened, {_CONFINED} proved by {passed} probes that other files, programs,"
        " sockets and processes are out of its reach",
    )
    _show(screen, processes, site, dana, erin)
    with screen.waiting("ending all processes"):
        # Together with its scheduler, a worker of Dask may take longer than it is given.
        processes.end(cluster.children[1:])
        processes.end_all()
    return ""


# --- whether it can be shown ---------------------------------------------------------------------


def why_left_out() -> str:
    """Return why no worker can be confined on this machine, or an empty string."""
    try:
        require_kernel()
    except ConfigError as error:
        return error.message
    starts = without_capabilities()
    if starts and subprocess.run([*starts, "true"], capture_output=True, check=False).returncode:  # noqa: S603 - both stand here
        return "root's capabilities cannot be taken away here; another user has none"
    return ""


def without_capabilities() -> list[str]:
    """Return what a confined worker is started by: root's has to have no capabilities either."""
    if os.geteuid() != 0:
        return []
    none = ("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
    return [shutil.which("setpriv") or "false", *none]


# --- the cluster ---------------------------------------------------------------------------------


class Site:
    """The cluster of two groups, with keys, policy and log of its own in the demo's folder."""

    def __init__(self, processes: Processes, folder: Folder) -> None:
        self._processes = processes
        self._folder = folder
        self._path = folder.path / "groups"
        self._ports = _free_ports(3)

    @property
    def audit(self) -> Path:
        """The log of all but the confined worker, which writes one of its own."""
        return self._path / "audit"

    def key(self, principal: str) -> Path:
        """Return the path of *principal*'s private key; a confined worker's lies apart."""
        return key_path(self._path / ("analysts" if principal == _CONFINED else "keys"), principal)

    def start(self) -> tuple[Cluster, Child, Child]:
        """Start dana and erin, who connect when they are first asked, scheduler and workers."""
        self._make()
        address = f"safeser://127.0.0.1:{self._ports[0]}"
        dana, erin = (
            self._processes.start(
                name, python("member", address), environment=self._identity(name), talks=True
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
        """Make keys, roster and policy, and the folder in which the confined worker writes."""
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
        """Return the environment that makes a process *principal*."""
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
    """Return ports that are free now: the policy lists them before anything listens there."""
    with ExitStack() as stack:
        made = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in made]


# --- what is shown -------------------------------------------------------------------------------


def _meet(dana: Child, erin: Child, processes: Processes) -> int:
    """Wait until both users see both workers; return how many probes the confined one passed."""
    for user in (dana, erin):
        user.tell({"do": "meet", "workers": 2})
    passed, _ = (user.answer(timeout=_ANSWER, check=processes.check) for user in (dana, erin))
    if not passed[_CONFINED] or passed[_FREE]:
        raise StepFailed(f"not {_CONFINED} alone is confined")
    return len(passed[_CONFINED])


def _show(screen: Screen, processes: Processes, site: Site, dana: Child, erin: Child) -> None:
    started = now()

    def ask(user: Child, do: str, **more: str) -> dict[str, Any]:
        return user.ask({"do": do, **more}, timeout=_ANSWER, check=processes.check)

    for user, worker in ((dana, _CONFINED), (erin, _FREE)):
        computed = ask(user, "compute", key=f"{user.name}s-sum")
        if computed["workers"] != [worker]:
            raise StepFailed(f"{user.name}'s lambda was computed by {computed['workers']}")
        if user is dana:
            screen.seen("dana, an analyst", f"her lambda computed {computed['found']} in {worker}")

    path = str(site.key("erin"))
    refused, read = (ask(user, "read", path=path) for user in (dana, erin))
    _require_refused(refused, _PERMISSION, "dana's lambda read erin's key")
    screen.seen("her lambda opens erin's key", refused["refused"])
    size = _require_found(read, "erin's lambda did not read erin's key")
    screen.seen(
        "erin, an engineer",
        f"the same lambda read its {size} bytes in {_FREE}, which has the same account and is not"
        " confined",
    )

    for do, what in (("gather", "erin's result"), ("depend", "a task that depends on it")):
        refused, found = (ask(user, do, key="erins-sum") for user in (dana, erin))
        _require_refused(refused, _VALUES, f"{what} was given to dana")
        value = _require_found(found, f"{what} was not given to erin")
        screen.seen(what, f"refused to dana by {refused['refused']}; erin gets {value}")
    recorded = wait_for_refusals(
        site.audit, since=started, senders=frozenset({"dana"}), check=processes.check
    )
    if Refusal("dana", "scheduler", _VALUES) not in recorded:
        raise StepFailed(f"the scheduler recorded no refusal to dana by {_VALUES}")


def _require_refused(outcome: dict[str, Any], rule: str, otherwise: str) -> None:
    found = outcome.get("refused")
    if found is None:
        raise StepFailed(otherwise)
    if found != rule:
        raise StepFailed(f"dana was refused by {found} and not by {rule}")


def _require_found(outcome: dict[str, Any], otherwise: str) -> Any:
    if "refused" in outcome:
        raise StepFailed(f"{otherwise}: {outcome['refused']}")
    return outcome["found"]
