"""Clusters of groups that do not trust each other, on one machine: ``safeser up --group NAME``.

The one rule: clusters share nothing. Each has a scheduler, workers, keys, a policy, a roster and
logs of its own, below a folder of its own. A worker's key lies apart from all others, so that a
confined worker reads no other key.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event

from safeser.errors import ConfigError
from safeser.identities import AUDIT_KEY, ROSTER, key_path, make_identities
from safeser.identity.files import replace_file
from safeser.policy import Policy
from safeser.policy.ready import is_ready, locate, read_policy, ready_policies

__all__ = ["GroupCluster", "up_groups"]

#: The principals whose processes are started; all others are users, or started by other means.
_SCHEDULER, _WORKER = "scheduler", "worker"

#: Of a group: the name of a folder below the one that is named, and of no other.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")

#: Seconds in which a scheduler has to listen, and in which a process has to end.
_START, _END = 60.0, 10.0


class GroupCluster:
    """The files and processes of one group's cluster.

    :param directory: of this group; a new one gets keys, and a copy of *policy*.
    :param policy: a path, or the name of a ready policy; None for the ready policy of that name.
    """

    def __init__(self, directory: Path, policy: str | None = None) -> None:
        self.directory = directory
        self.address = ""
        self._processes: list[tuple[subprocess.Popen[bytes], Path]] = []  # with their logs
        if not self.policy_path.exists():
            self._make(_policy_for(directory.name) if policy is None else policy)
        elif policy is not None:
            raise ConfigError(
                f"{directory} has a policy already",
                rule="config.directory",
                fix=f"Leave out --policy, and change {self.policy_path} instead.",
            )
        self.policy = Policy.load(self.policy_path)

    @property
    def policy_path(self) -> Path:
        return self.directory / "public" / "policy.yaml"

    @property
    def users(self) -> list[str]:
        """The principals that no process of the cluster has, those with a group first."""
        servers = {_SCHEDULER, _WORKER, "nanny"}
        users = [name for name in self.policy.principals if name not in servers]
        return sorted(users, key=lambda name: not self.policy.principals[name].groups)

    def key(self, principal: str) -> Path:
        """Return the path of the private key of *principal*."""
        return key_path(self.directory / (_WORKER if principal == _WORKER else "keys"), principal)

    def audit(self, principal: str) -> Path:
        """Return the folder of the log of *principal*'s processes."""
        return self.directory / ("audit-worker" if principal == _WORKER else "audit")

    def settings(self, principal: str) -> dict[str, str]:
        """Return the environment of a process that has *principal*'s key."""
        return {
            "DASK_SAFESER__IDENTITY": str(self.key(principal)),
            "DASK_SAFESER__AUDIT_KEY": str(self.key(principal).with_name(AUDIT_KEY)),
            "DASK_SAFESER__AUDIT": str(self.audit(principal)),
            "DASK_SAFESER__POLICY": str(self.policy_path),
            "DASK_SAFESER__ROSTER": str(self.policy_path.with_name(ROSTER)),
            "DASK_SAFESER__EXPECTED_SCHEDULER": _SCHEDULER,
        }

    def _make(self, named: str) -> None:
        # Read once: what is copied is what was judged.
        path = locate(named)
        text = read_policy(path)
        policy = Policy.parse(text)
        for name in (_SCHEDULER, _WORKER):
            if name not in policy.principals:
                raise ConfigError(
                    f"policy {policy.name!r} lists no principal {name!r}",
                    rule="config.principal",
                    fix="List it: a group's cluster has a scheduler and workers.",
                )
        roster = make_identities(self.key(_SCHEDULER).parent, {*policy.principals} - {_WORKER})
        (worker,) = make_identities(self.key(_WORKER).parent, [_WORKER]).entries
        self.policy_path.parent.mkdir(mode=0o700)
        roster.with_entry(worker).save(self.policy_path.with_name(ROSTER))
        for name in (_SCHEDULER, _WORKER):
            # It lists a part of them, and no change would reach it.
            self.key(name).with_name(ROSTER).unlink()
        placed = self._placed(policy, named, text.expanded.decode("utf-8")).encode("utf-8")
        replace_file(self.policy_path, placed, rule="config.up")

    def _placed(self, policy: Policy, named: str, text: str) -> str:
        """Return *text* of the policy; folders that a ready one names lie in this directory."""
        demand = policy.principals[_WORKER].confined
        for path in (*demand.read, *demand.write) if demand is not None and is_ready(named) else ():
            own = self.directory / Path(path).name
            own.mkdir(mode=0o700, exist_ok=True)
            text = text.replace(f"[{path}]", f"[{json.dumps(str(own))}]")
        return text

    # --- processes -------------------------------------------------------------------------------

    def start(self, port: int, workers: int) -> None:
        """Start the scheduler, wait until it listens, and start the workers."""
        announced = self.directory / "scheduler.json"
        announced.unlink(missing_ok=True)
        self._start(
            _SCHEDULER,
            [*_command("dask"), "scheduler", "--protocol", "safeser", "--port", str(port)],
            ["--scheduler-file", str(announced)],
        )
        deadline = time.monotonic() + _START
        while not self.address:
            self.require_running()
            if time.monotonic() > deadline:
                raise ConfigError("the scheduler does not listen", rule="config.up")
            time.sleep(0.05)
            with suppress(FileNotFoundError, ValueError):
                self.address = str(json.loads(announced.read_text(encoding="utf-8"))["address"])
        ports = self.worker_ports(int(self.address.rpartition(":")[2]), workers)
        for number in range(workers):
            self._start_worker(number, ports[number] if ports else None)

    def worker_ports(self, scheduler: int, workers: int) -> list[tuple[int, int]]:
        """Return the ports of each worker and its dashboard, if the policy limits its workers'.

        :param scheduler: the scheduler's port.
        :raises ConfigError: if the policy's ports are too few, or the scheduler's is none of them.
        """
        demand = self.policy.principals[_WORKER].confined
        if demand is None or not demand.ports:
            return []
        listed = [port for each in demand.ports for port in each]
        if scheduler not in listed:
            raise ConfigError(
                f"workers could not connect to the scheduler: 'ports' of {_WORKER!r} has no"
                f" {scheduler or 'port that is chosen when it starts'}",
                rule="config.up",
                where=str(self.policy_path),
                fix="List the scheduler's port there, or name one of them with --port; the"
                " schedulers of further groups have the ports that follow.",
            )
        ports = [port for port in listed if port != scheduler]
        if 2 * workers > len(ports):
            raise ConfigError(
                f"'ports' of {_WORKER!r} has none for worker {len(ports) // 2 + 1}, which needs"
                " two",
                rule="config.up",
                where=str(self.policy_path),
                fix="List more of them, or start fewer workers.",
            )
        return [(ports[number], ports[-1 - number]) for number in range(workers)]

    def _start_worker(self, number: int, ports: tuple[int, int] | None) -> None:
        command = ["worker", self.address, "--no-nanny", "--nthreads", "1"]
        demand = self.policy.principals[_WORKER].confined
        if demand is None:
            scratch = ["--local-directory", str(self.directory / f"scratch-{number}")]
            self._start(_WORKER, [*_command("dask"), *command], scratch, f"-{number}")
            return
        port, dashboard = ports or (0, 0)
        options = ["--worker-port", str(port)] if port else []
        confined = [*_command("safeser"), "confined", "--", "dask"]
        self._start(_WORKER, [*confined, *command], options, f"-{number}", dashboard)

    def _start(
        self,
        principal: str,
        command: Sequence[str],
        more: Sequence[str],
        suffix: str = "",
        dashboard: int = 0,
    ) -> None:
        environment = {name: value for name, value in os.environ.items() if name[:5] != "DASK_"}
        pages = ("--dashboard-address", f"127.0.0.1:{dashboard}", "--no-dashboard")
        loopback = ("--host", "127.0.0.1", *pages)
        path = self.directory / f"{principal}{suffix}.log"
        with path.open("ab") as log:
            started = subprocess.Popen(  # noqa: S603 - Dask's own command, and paths of this module
                [*command, *loopback, *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment | self.settings(principal),
                start_new_session=True,  # Ctrl-C ends the command, which ends them
            )
        self._processes.append((started, path))

    def require_running(self) -> None:
        """Raise ConfigError if a process has ended, with where it says why."""
        for process, log in self._processes:
            if process.poll() is not None:
                raise ConfigError(
                    f"a process of {self.directory.name} ended with code {process.returncode}",
                    rule="config.up",
                    fix=f"The last lines of {log} say why.",
                )

    def end(self) -> None:
        """End all processes, the scheduler last."""
        for process, _ in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()


def up_groups(
    directory: Path,
    groups: Sequence[str],
    *,
    policy: str | None,
    workers: int,
    port: int,
    announce: Callable[[GroupCluster], None],
) -> None:
    """Run a cluster for each of *groups* until the process is told to stop.

    :param port: of the first scheduler; the others have those that follow. 0 for any free ones.
    :param announce: called once with each running cluster.
    """
    _require_names(groups)
    with _stopping() as stop, ExitStack() as running:
        clusters = [GroupCluster(directory / name, policy) for name in groups]
        starts = [(each, port + place if port else 0) for place, each in enumerate(clusters)]
        _require_own_ports(starts, workers)
        for cluster, own in starts:
            running.callback(cluster.end)
            cluster.start(own, workers)
            announce(cluster)
        while not stop.wait(0.5):
            for cluster in clusters:
                cluster.require_running()


def _require_names(groups: Sequence[str]) -> None:
    for place, name in enumerate(groups):
        if not _NAME.match(name) or name in groups[:place]:
            raise ConfigError(
                f"{name!r} is given twice" if name in groups[:place] else f"{name!r} is no name",
                rule="config.up",
                fix="A group has one cluster, in a folder of its name: letters, digits, and . _ @ -"
                " behind the first.",
            )


def _require_own_ports(starts: Sequence[tuple[GroupCluster, int]], workers: int) -> None:
    """Refuse clusters whose policies leave two processes one port, before any is started."""
    taken = {port: cluster for cluster, port in starts if port}
    for cluster, scheduler in starts:
        for port in (each for pair in cluster.worker_ports(scheduler, workers) for each in pair):
            other = taken.setdefault(port, cluster)
            if other is not cluster:
                raise ConfigError(
                    f"processes of {cluster.directory.name} and {other.directory.name} would both"
                    f" listen on port {port}",
                    rule="config.up",
                    where=str(cluster.policy_path),
                    fix=f"Write other 'ports' for {_WORKER!r} there, the scheduler's among them,"
                    " and start again without --policy.",
                )


@contextmanager
def _stopping() -> Iterator[Event]:
    """Yield an event that Ctrl-C, SIGTERM and SIGHUP set, for the duration of the block."""
    stop = Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup has it
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _policy_for(group: str) -> str:
    if group in ready_policies():
        return group
    raise ConfigError(
        f"there is no ready policy {group!r}",
        rule="config.up",
        fix="Name one with --policy: a file, or one of 'safeser policy show'.",
    )


def _command(name: str) -> list[str]:
    """Return how the command *name* of this Python is called."""
    beside = Path(sys.executable).with_name(name)
    return [str(beside) if beside.exists() else shutil.which(name) or name]
