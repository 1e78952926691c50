"""The demo itself: seven steps, each of which says what it saw or ends the demo.

The one rule: whatever ends it, no process that it started is left running.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from safeser.audit import verify
from safeser.demo import groups, tampering
from safeser.demo.assault import Assault
from safeser.demo.clusters import (
    dask_command,
    identity,
    python,
    quiet_environment,
    start_safeser,
    start_stock,
)
from safeser.demo.failure import StepFailed
from safeser.demo.folder import PRINCIPALS, Folder
from safeser.demo.processes import Child, Processes
from safeser.demo.screen import Screen
from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.ready import locate

__all__ = ["run"]

_POLICY = "demo"
_WORK = 90.0  # seconds that all of alice's work may take on a busy machine
_ANSWER = 40.0


@dataclass(slots=True)
class _Stage:
    """What the steps share."""

    screen: Screen
    folder: Folder
    policy: str
    processes: Processes


def run(*, directory: Path | None, policy: str | None, environment: Mapping[str, str]) -> int:
    """Run the demo and return its exit code: 0 if every step came out as said, else 1.

    :param directory: a folder that is empty or not there yet; default: a new temporary one.
    :param policy: a policy to try instead of the ready policy ``demo``.
    :raises ConfigError: if it cannot run at all.
    """
    started = time.monotonic()
    screen = Screen()
    _require_packages()
    chosen = policy or _POLICY
    loaded = Policy.load(chosen)
    _require_principals(loaded)
    chosen = str(locate(chosen).absolute()) if policy else chosen
    folder = Folder.make(directory)
    screen.title("safeser demo: a Dask cluster under policy, at work and under attack")
    try:
        with (
            _told_to_stop(),
            Processes(folder.logs, quiet_environment(folder, environment)) as processes,
        ):
            stage = _Stage(screen, folder, chosen, processes)
            _identities(stage, loaded)
            _clusters(stage)
            left_out = groups.step(screen, processes, folder)
        _audit(screen, folder)
        _farewell(screen, folder, chosen, time.monotonic() - started, left_out)
    except StepFailed as failure:
        screen.failed(failure.message, failure.lines)
        screen.place("everything", folder.path)
        return 1
    return 0


def _require_packages() -> None:
    missing = [name for name in ("distributed", "sklearn", "pandas") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the demo needs packages that are not installed: {', '.join(missing)}",
            rule="config.extra",
            fix="In a clone of safeser, run: pip install '.[demo]'.",
        )
    dask_command()


def _require_principals(policy: Policy) -> None:
    missing = [name for name in PRINCIPALS if name not in policy.principals]
    if missing:
        raise ConfigError(
            f"policy {policy.name!r} lists no {', '.join(missing)}",
            rule="config.demo",
            fix=f"The demo's principals are {', '.join(PRINCIPALS)}.",
        )


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does, by an exception that cleans up."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise SystemExit(128 + number)

    previous = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# --- 1 -------------------------------------------------------------------------------------------


def _identities(stage: _Stage, policy: Policy) -> None:
    stage.screen.step("Who there is, and what each may do")
    stage.folder.make_identities()
    stage.screen.seen("keys", "scheduler, worker and nanny, the processes of the cluster")
    stage.screen.seen("alice", "may submit code: what she submits runs on scheduler and workers")
    stage.screen.seen("bob", "is who he says he is, and may submit nothing")
    stage.screen.seen(
        "policy", f"{policy.name}, revision {policy.revision}; what it does not name is denied"
    )


# --- 2 -------------------------------------------------------------------------------------------


def _clusters(stage: _Stage) -> None:
    """Start both clusters, work on both, attack both, and end them."""
    screen, processes, folder = stage.screen, stage.processes, stage.folder
    screen.step("A real cluster, by Dask's own command lines")
    with screen.waiting("starting scheduler, workers and nannies"):
        cluster = start_safeser(processes, folder, policy=stage.policy)
        stock = start_stock(processes, folder)
        as_alice = identity(folder, "alice", policy=stage.policy)
        alice = processes.start(
            "alice", python("alice", cluster.address), environment=as_alice, talks=True
        )
        twin = processes.start("alice on stock", python("alice", stock.address), talks=True)
        for one, client, count in ((cluster, alice, 2), (stock, twin, 1)):
            met = client.ask(
                {"do": "meet", "workers": count}, timeout=_ANSWER, check=processes.check
            )
            one.workers = met["workers"]
    for command in cluster.commands:
        screen.command(shlex.split(command))
    screen.seen("running", f"{cluster.address} with 2 workers, each kept by a nanny")
    screen.seen("beside it", f"a stock cluster at {stock.address}, to compare with")
    _work(stage, alice, twin)
    assault = Assault(
        processes=processes,
        folder=folder,
        policy=stage.policy,
        cluster=cluster,
        stock=stock,
        alice=alice,
        twin=twin,
    )
    _attacks(stage, assault, alice)
    with screen.waiting("ending all processes"):
        processes.end_all()


# --- 3 -------------------------------------------------------------------------------------------


def _work(stage: _Stage, alice: Child, twin: Child) -> None:
    screen, check = stage.screen, stage.processes.check
    screen.step("Alice works: safeser.Client(address, deserializers=['dask', 'msgpack'])")
    with screen.progress("alice's tasks") as progress:
        (bar,) = progress.task_ids

        def heard(event: dict[str, Any]) -> None:
            if event["event"] == "progress":
                progress.update(bar, completed=event["done"], total=event["of"])
            else:
                screen.seen(event["what"], event["found"])

        twin.tell({"do": "work", "go_on": True})
        alice.tell({"do": "work"})
        alice.answer(timeout=_WORK, meanwhile=heard, check=check)
    witness = alice.ask({"do": "witness"}, timeout=_ANSWER, check=check)
    _require_clean(witness, alice)
    with screen.waiting("the same work on the stock cluster, with the same arguments"):
        done = twin.answer(timeout=_WORK, check=check)
        stock = twin.ask({"do": "witness"}, timeout=_ANSWER, check=check)
    if not stock["peer"]:
        raise StepFailed(
            "the probe saw no pickle from a peer in a stock client, where Dask opens many; it"
            " proves nothing then"
        )
    screen.seen(
        "probe in alice's process",
        f"0 pickles of peers were opened; the {witness['own']} that were opened there, that process"
        " had written itself",
    )
    screen.seen(
        "probe in a stock client",
        f"{stock['peer']} pickles of peers were opened for the same work, with the same"
        f" deserializers{_missing(done['failed'])}",
    )


def _missing(failed: list[str]) -> str:
    """Say which steps stock Dask could not do: without pickle it has no way to send a frame."""
    if not failed:
        return ""
    names = " and ".join(f"'{each.partition(':')[0]}'" for each in failed)
    return f"; {names} failed there"


def _require_clean(witness: Mapping[str, Any], alice: Child) -> None:
    if witness["peer"] or witness["unseen"]:
        named = [*witness["peer_globals"], *witness["unseen"]]
        raise StepFailed(
            f"{witness['peer']} pickles of peers reached an unpickler in alice's process",
            lines=[f"globals: {', '.join(named)}", *alice.tail()],
        )


# --- 4 -------------------------------------------------------------------------------------------


def _attacks(stage: _Stage, assault: Assault, alice: Child) -> None:
    screen, check = stage.screen, stage.processes.check
    screen.step("The same attacks on both clusters; each would make a file or read one secret")
    with screen.progress("attacks") as progress:
        (bar,) = progress.task_ids
        for done, of in assault.run():
            progress.update(bar, completed=done, total=of)
    screen.say(
        "A stranger has no key, or a new one that nobody lists. Bob has his own. Worker means"
        " somebody who got hold of a worker's key and turns on the users."
    )
    screen.blank()
    screen.table(assault.rows)
    screen.blank()
    assault.require_as_said()
    found = alice.ask({"do": "again"}, timeout=_ANSWER, check=check)
    witness = alice.ask({"do": "witness"}, timeout=_ANSWER, check=check)
    _require_clean(witness, alice)
    screen.seen("the cluster still works", f"alice computed {found['found']}")
    screen.seen("probe in alice's process", "still 0 pickles of peers, after all attacks")
    screen.say(
        "The last row is no mistake: alice is granted code, and whoever holds her key can run code"
        " on the scheduler and the workers.",
        style="yellow",
    )


# --- 6 and 7 -------------------------------------------------------------------------------------


def _audit(screen: Screen, folder: Folder) -> None:
    screen.step("The audit log: whole, and what it says after somebody changed it")
    report = verify(folder.audit, key=folder.audit_key)
    if not report.ok:
        raise StepFailed("the audit log does not verify", lines=str(report).splitlines())
    screen.seen("verified", f"{report.records} records in {report.files} files")
    log = tampering.largest_log(folder.audit)
    for forgery in tampering.FORGERIES:
        place = tampering.try_forgery(forgery, log, key=folder.audit_key, scratch=folder.scratch)
        screen.seen(forgery.what, f"found in a copy: {_short(log.name)}, {place}")


def _short(name: str) -> str:
    principal, _, _ = name.partition("-")
    return f"{principal}'s log"


def _farewell(screen: Screen, folder: Folder, policy: str, seconds: float, left_out: str) -> None:
    screen.step("Where things lie, and what to try next")
    screen.place("policy", locate(policy))
    screen.place("keys", folder.keys)
    screen.place("audit log", folder.audit)
    screen.place("other logs", folder.logs)
    screen.place("to delete", f"rm -r {shlex.quote(str(folder.path))}")
    screen.blank()
    for command in next_commands(folder, policy):
        screen.command(command)
    screen.blank()
    but = " but the one that was left out" if left_out else ""
    screen.say(f"Every step{but} came out as said, in {seconds:.0f} s. Nothing is left running.")


def next_commands(folder: Folder, policy: str) -> list[list[str]]:
    """Return three commands to try, as they can be typed."""
    beside = Path(sys.executable).with_name("safeser")
    safeser = "safeser" if shutil.which("safeser") == str(beside) else str(beside)
    question = ["--sender", "bob", "--recipient", "scheduler", "--kind", "task"]
    question += ["--operation", "update-graph", "--family", "cloudpickle"]
    return [
        [safeser, "policy", "explain", policy, *question],
        [safeser, "audit", "tail", str(folder.audit), "-n", "5"],
        [safeser, "audit", "verify", str(folder.audit), "--key", str(folder.audit_key)],
    ]
