"""The demo: seven steps, each of which prints what it observed or ends the demo.

However it ends, no process that it started is left running.
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

from examples.demo import groups, tampering
from examples.demo.attack_run import AttackRun
from examples.demo.clusters import (
    dask_command,
    dask_environment,
    identity,
    start_program,
    start_safeser,
    start_stock,
)
from examples.demo.errors import StepFailed
from examples.demo.folder import PRINCIPALS, Folder
from examples.demo.processes import Child, Processes
from examples.demo.screen import Screen
from safeser.audit import verify
from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.ready import locate

__all__ = ["run"]

_POLICY = "demo"
# In seconds, for a busy machine.
_WORK = 300.0
_ANSWER = 150.0


@dataclass(slots=True)
class _Context:
    """What the steps share."""

    screen: Screen
    folder: Folder
    policy: str
    processes: Processes


def run(*, directory: Path | None, policy: str | None, environment: Mapping[str, str]) -> int:
    """Run the demo and return its exit code: 0 if every step succeeded, else 1.

    :param directory: an empty or new folder; default: a new temporary one.
    :param policy: a policy to use instead of the ready policy ``demo``.
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
    screen.title("Demo of safeser: work and attacks on a Dask cluster under policy")
    try:
        with (
            _exit_on_signals(),
            Processes(folder.logs, dask_environment(folder, environment)) as processes,
        ):
            context = _Context(screen, folder, chosen, processes)
            _identities(context, loaded)
            _clusters(context)
            skipped = groups.step(screen, processes, folder)
        _audit(screen, folder)
        _summary(screen, folder, chosen, time.monotonic() - started, skipped)
    except StepFailed as failure:
        screen.failed(failure.message, failure.lines)
        screen.location("keys, logs", folder.path)
        return 1
    return 0


def _require_packages() -> None:
    missing = [name for name in ("distributed", "sklearn", "pandas") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the demo needs packages that are not installed: {', '.join(missing)}",
            rule="config.extra",
            fix="Run 'make demo', or: pip install --editable '.[demo]'.",
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
def _exit_on_signals() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise an exception, as Ctrl-C does, so that the demo cleans up."""

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


def _identities(context: _Context, policy: Policy) -> None:
    context.screen.step("Principals, and what the policy lets each do")
    context.folder.make_identities()
    context.screen.result("scheduler, worker, nanny", "the processes of the cluster")
    context.screen.result("alice", "may submit code, which runs on the scheduler and the workers")
    context.screen.result("bob", "has a valid key and may submit nothing")
    context.screen.result(
        "policy", f"{policy.name}, revision {policy.revision}; denies what it does not list"
    )


# --- 2 -------------------------------------------------------------------------------------------


def _clusters(context: _Context) -> None:
    """Start both clusters, run the workload and the attacks on both, and end them."""
    screen, processes, folder = context.screen, context.processes, context.folder
    screen.step("A cluster, started with Dask's own command lines")
    with screen.waiting("starting scheduler, workers and nannies"):
        cluster = start_safeser(processes, folder, policy=context.policy)
        stock = start_stock(processes, folder)
        as_alice = identity(folder, "alice", policy=context.policy)
        alice = start_program(processes, "alice", "alice", cluster.address, environment=as_alice)
        stock_alice = start_program(processes, "alice on stock", "alice", stock.address)
        for one, client, count in ((cluster, alice, 2), (stock, stock_alice, 1)):
            met = client.ask(
                {"do": "meet", "workers": count}, timeout=_ANSWER, check=processes.check
            )
            one.workers = met["workers"]
    for command in cluster.commands:
        screen.command(shlex.split(command))
    screen.result("running", f"{cluster.address} with 2 workers, each under a nanny")
    screen.result("for comparison", f"a stock cluster at {stock.address}")
    _work(context, alice, stock_alice)
    attack_run = AttackRun(
        processes=processes,
        folder=folder,
        policy=context.policy,
        cluster=cluster,
        stock=stock,
        alice=alice,
        stock_alice=stock_alice,
    )
    _attacks(context, attack_run, alice)
    with screen.waiting("ending all processes"):
        processes.end_all()


# --- 3 -------------------------------------------------------------------------------------------


def _work(context: _Context, alice: Child, stock_alice: Child) -> None:
    screen, check = context.screen, context.processes.check
    screen.step("Alice works: safeser.Client(address, deserializers=['dask', 'msgpack'])")
    with screen.progress("alice's tasks") as progress:
        (bar,) = progress.task_ids

        def heard(event: dict[str, Any]) -> None:
            if event["event"] == "progress":
                progress.update(bar, completed=event["done"], total=event["of"])
            else:
                screen.result(event["what"], event["found"])

        stock_alice.tell({"do": "work", "go_on": True})
        alice.tell({"do": "work"})
        alice.answer(timeout=_WORK, meanwhile=heard, check=check)
    report = alice.ask({"do": "probe_report"}, timeout=_ANSWER, check=check)
    _require_clean(report, alice)
    with screen.waiting("the same work on the stock cluster, with the same arguments"):
        done = stock_alice.answer(timeout=_WORK, check=check)
        stock = stock_alice.ask({"do": "probe_report"}, timeout=_ANSWER, check=check)
    if not stock["peer"]:
        raise StepFailed(
            "the probe counted no pickle of another process in a stock client, where Dask loads"
            " many; so its 0 for alice proves nothing"
        )
    screen.result(
        "probe in alice's process",
        f"loaded 0 pickles of other processes, and {report['own']} that it had written itself",
    )
    screen.result(
        "probe in a stock client",
        f"loaded {stock['peer']} pickles of other processes for the same work with the same"
        f" deserializers{_missing(done['failed'])}",
    )


def _missing(failed: list[str]) -> str:
    """Name the parts that failed on stock Dask, which sends no DataFrame without pickle."""
    if not failed:
        return ""
    names = " and ".join(f"'{each.partition(':')[0]}'" for each in failed)
    return f"; {names} failed there"


def _require_clean(report: Mapping[str, Any], alice: Child) -> None:
    if report["peer"] or report["unwrapped"]:
        named = [*report["peer_globals"], *report["unwrapped"]]
        raise StepFailed(
            f"alice's process loaded {report['peer']} pickles of other processes",
            lines=[f"globals: {', '.join(named)}", *alice.tail()],
        )


# --- 4 -------------------------------------------------------------------------------------------


def _attacks(context: _Context, attack_run: AttackRun, alice: Child) -> None:
    screen, check = context.screen, context.processes.check
    screen.step("The same attacks on both clusters: each creates a file or reads a secret")
    with screen.progress("attacks") as progress:
        (bar,) = progress.task_ids
        for done, of in attack_run.run():
            progress.update(bar, completed=done, total=of)
    screen.say(
        "stranger: has no key, or one that is not in the roster. bob: uses his own key. worker:"
        " an attacker who holds a worker's key."
    )
    screen.blank()
    screen.table(attack_run.rows)
    screen.blank()
    attack_run.require_expected()
    found = alice.ask({"do": "again"}, timeout=_ANSWER, check=check)
    report = alice.ask({"do": "probe_report"}, timeout=_ANSWER, check=check)
    _require_clean(report, alice)
    screen.result("the cluster still works", f"alice computed {found['found']}")
    screen.result("probe in alice's process", "still loaded 0 pickles of other processes")
    screen.say(
        "The last row is expected: the policy permits alice's code, and a thief of her key can"
        " run code on the scheduler and the workers.",
        style="yellow",
    )


# --- 6 and 7 -------------------------------------------------------------------------------------


def _audit(screen: Screen, folder: Folder) -> None:
    screen.step("The audit log: verify it, then tampered copies of it")
    report = verify(folder.audit, key=folder.audit_key)
    if not report.ok:
        raise StepFailed("the audit log does not verify", lines=str(report).splitlines())
    screen.result("verified", f"{report.records} records in {report.files} files")
    log = tampering.largest_log(folder.audit)
    for forgery in tampering.FORGERIES:
        problem = tampering.try_forgery(forgery, log, key=folder.audit_key, scratch=folder.scratch)
        screen.result(forgery.what, f"detected: {_short(log.name)}, {problem}")


def _short(name: str) -> str:
    principal, _, _ = name.partition("-")
    return f"{principal}'s log"


def _summary(screen: Screen, folder: Folder, policy: str, seconds: float, skipped: str) -> None:
    screen.step("Files of this demo, and commands to try")
    screen.location("policy", locate(policy))
    screen.location("keys", folder.keys)
    screen.location("audit log", folder.audit)
    screen.location("other logs", folder.logs)
    screen.location("to delete", f"rm -r {shlex.quote(str(folder.path))}")
    screen.blank()
    for command in next_commands(folder, policy):
        screen.command(command)
    screen.blank()
    but = " but the skipped one" if skipped else ""
    screen.say(f"Every step{but} succeeded, in {seconds:.0f} s. No process is left running.")


def next_commands(folder: Folder, policy: str) -> list[list[str]]:
    """Return three commands to try, as a user can type them."""
    beside = Path(sys.executable).with_name("safeser")
    safeser = "safeser" if shutil.which("safeser") == str(beside) else str(beside)
    question = ["--sender", "bob", "--recipient", "scheduler", "--kind", "task"]
    question += ["--operation", "update-graph", "--family", "cloudpickle"]
    return [
        [safeser, "policy", "explain", policy, *question],
        [safeser, "audit", "tail", str(folder.audit), "-n", "5"],
        [safeser, "audit", "verify", str(folder.audit), "--key", str(folder.audit_key)],
    ]
