"""A local cluster of processes on ``safeser://`` with identities made for it.

The one rule: nothing is shared by reference. The scheduler and the nannies live in this process,
the workers in processes of their own, and every link between them is authenticated, decided and
recorded as on a cluster of many hosts.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any

from distributed import LocalCluster as _DaskLocalCluster
from distributed.utils import LoopRunner
from tornado.ioloop import IOLoop

import safeser
from safeser.dask.roles import require_fit
from safeser.dask.security import Security
from safeser.dask.settings import close_channels_in, settings_for
from safeser.errors import ConfigError
from safeser.identities import AUDIT_KEY, ROSTER, key_path, make_identities
from safeser.operations import Server
from safeser.policy import Policy
from safeser.policy.source.faults import shown
from safeser.policy.taken_tasks import anywhere
from safeser.tracebacks import callers_level

__all__ = ["LocalCluster", "require_processes", "up"]

#: The policy of a cluster for which none is named.
_DEFAULT = "default"

#: The principals of policy ``default``: one key for each role of a personal cluster.
_PRINCIPALS = ("scheduler", "worker", "nanny", "client")

#: The operation by which Dask's cluster, under the client's name, hears of its workers.
_HEARS = "subscribe_worker_status"


class LocalCluster(_DaskLocalCluster):  # type: ignore[misc]  # distributed ships no types
    """Scheduler, nannies and worker processes on loopback, under one policy.

    :param policy: a path, or the name of a ready policy with the principals scheduler, worker,
        nanny and client. Default: ``default``; settings are for clusters elsewhere.
    :param directory: where keys and logs go; kept. Default: a temporary folder that is removed when
        the cluster closes.
    :param dashboard_address: default: loopback, any free port.
    """

    def __init__(
        self,
        *,
        policy: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        dashboard_address: str | None = "127.0.0.1:0",
        host: str = "127.0.0.1",
        processes: bool = True,
        **kwargs: Any,
    ) -> None:
        require_processes(processes)
        for name in ("protocol", "security"):
            if name in kwargs:
                raise ConfigError(f"{name} is chosen by safeser.dask.cluster.LocalCluster")
        named = _default() if policy is None else str(policy)
        _check_policy(named)
        temporary = directory is None
        base = Path(
            tempfile.mkdtemp(prefix="safeser-") if temporary else os.fspath(directory or "")
        )
        if not temporary and base.exists() and any(base.iterdir()):
            raise ConfigError(
                f"{base} is not empty; a cluster's keys and logs get a folder of their own",
                rule="config.directory",
                fix="Name a folder that is not there yet.",
            )
        self.directory = base
        keys, logs = base / "keys", base / "audit"
        try:
            make_identities(keys, _PRINCIPALS)
            security = Security(
                policy=named,
                audit=str(logs),
                roster=str(keys / ROSTER),
                audit_key=str(keys / AUDIT_KEY),
                roles={role: {"identity": str(key_path(keys, role))} for role in _PRINCIPALS},
                expected_scheduler="scheduler",
            )
            with _suppress_start_warning():
                super().__init__(
                    host=host,
                    protocol="safeser://",
                    processes=True,
                    security=security,
                    dashboard_address=dashboard_address,
                    **kwargs,
                )
        except BaseException:
            _clean_up(base, temporary)
            raise
        self._cleaner = weakref.finalize(self, _clean_up, base, temporary)

    def get_client(self) -> safeser.Client:
        """Return the current client if it is one of this cluster, or a new one.

        Dask's cluster makes a client of Dask's, which narrows nothing and says less of a refusal.
        """
        with suppress(ValueError):  # there is none
            current = safeser.Client.current()
            if isinstance(current, safeser.Client) and current.cluster is self:
                return current
        return safeser.Client(self, asynchronous=self.asynchronous)

    async def _close(self) -> None:
        await super()._close()
        cleaner = getattr(self, "_cleaner", None)
        if cleaner is not None:
            cleaner()


def require_processes(processes: bool) -> None:
    """Refuse ``processes=False``: objects passed by reference go around everything."""
    if not processes:
        raise ConfigError(
            "processes=False would pass objects between threads by reference, without policy,"
            " envelope or log",
            rule="config.processes",
            fix="Leave it out: processes are started then.",
        )


def _default() -> str:
    """Return the policy of a cluster for which none is named; warn if a setting names another."""
    elsewhere = settings_for("client").policy
    if elsewhere not in (None, _DEFAULT):
        warnings.warn(
            f"this local cluster runs under policy {_DEFAULT!r}, and not under {shown(elsewhere)},"
            " which DASK_SAFESER__POLICY or a configuration file names for clusters elsewhere. Pass"
            " policy= to choose one.",
            stacklevel=callers_level(),
        )
    return _DEFAULT


def _check_policy(named: str) -> None:
    """Say what is wrong with a policy before anything is made or started."""
    policy = Policy.load(named)
    for name in _PRINCIPALS:
        if name not in policy.principals:
            raise ConfigError(
                f"policy {policy.name!r} lists no principal {name!r}, and a local cluster is made"
                f" of {', '.join(_PRINCIPALS)}",
                rule="config.principal",
                fix="Use 'default', 'strict' or 'sealed', or list it in a copy of this one. For"
                " other users, 'safeser keys init' makes keys, and Dask's commands start the"
                " cluster.",
            )
    require_fit(Server.SCHEDULER, policy, "scheduler")
    hears = anywhere("client", "scheduler", _HEARS)
    if not any(policy.permits_operation(each).permitted for each in hears):
        raise ConfigError(
            f"policy {policy.name!r} grants no {_HEARS} from client to scheduler, by which a local"
            " cluster hears of its workers",
            rule="config.principal",
            fix=f"Add {_HEARS} to the operations of the context by which client submits.",
        )


@contextmanager
def _suppress_start_warning() -> Iterator[None]:
    """Keep Dask from warning that a cluster did not start: the error that is raised says why."""
    logger = logging.getLogger("distributed.deploy.spec")

    def not_started(record: logging.LogRecord) -> bool:
        return record.msg != "Cluster closed without starting up"

    logger.addFilter(not_started)
    try:
        yield
    finally:
        logger.removeFilter(not_started)


def _clean_up(base: Path, temporary: bool) -> None:
    close_channels_in(base)
    if temporary:
        shutil.rmtree(base, ignore_errors=True)


def up(
    *,
    directory: Path | None,
    policy: str = _DEFAULT,
    n_workers: int | None = None,
    port: int = 8786,
    announce: Callable[[LocalCluster], None],
) -> None:
    """Run a local cluster until the process is told to stop: ``safeser up``, which ends with it.

    :param directory: where keys and logs go; None for a temporary folder, removed at the end.
    :param announce: called once with the running cluster, to print how to connect to it.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    for number in _ENDING:
        signal.signal(number, on_signal)
    try:
        with (
            _uninterrupted_loop() as loop,
            LocalCluster(
                policy=policy,
                directory=directory,
                n_workers=n_workers,
                scheduler_port=port,
                loop=loop,
            ) as cluster,
        ):
            if not stop.is_set():
                announce(cluster)
            while not stop.wait(0.5):
                pass
            # A worker that is killed because its end takes long loses nothing to the user by now.
            logging.getLogger("distributed.nanny").setLevel(logging.ERROR)
    finally:
        # It ends now. One more Ctrl-C could only print a traceback in place of its last line.
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def _uninterrupted_loop() -> Iterator[IOLoop]:
    """Run an event loop in a thread that Ctrl-C does not interrupt, nor processes it starts.

    The terminal sends it to every process of the cluster at once. Workers inherit what this thread
    blocks, so they are left alone from their first instruction until their nannies end them.
    """
    # Started later, from that thread, the tracker would let the signal through to it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner = LoopRunner(asynchronous=False)
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()
