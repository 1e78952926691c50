"""Run workloads and compare.

Runs the 84 workloads, or those named, on a scheduler and two workers with nannies under a ready
policy, and compares the decisions with the recorded trace; exits 1 if they differ. Under
``dask-cluster`` it also exits 1 if the scheduler unpickled anything or imported a module of the
workloads, by an audit hook in its process. ``--update`` records the union of two runs, since some
actions of Dask happen in one run and not in another.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conftest import Cluster
from tests.dask.sealed.watched import Watched
from verification.golden.traces import Trace, differences, traced

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

#: The principal that runs the workloads under each policy, and those of the servers.
CLIENTS = {"dask-cluster": "carol", "default": "client"}
SERVERS = ("scheduler", "worker", "nanny")

#: Policies under which the scheduler opens nothing.
SEALED = frozenset({"dask-cluster"})

#: How the names of modules begin that only a client of the workloads and its workers need. The
#: scheduler could import them: they are on its path.
MODULES = ("golden_", "workloads", "tests.", "verification.")

#: Seconds after which a run is stopped; generous for two shared cores.
PATIENCE = 900.0


class Golden(Cluster):
    """A cluster of this checkout, whose processes can import the functions of the workloads."""

    watched: Watched | None = None

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        path = os.pathsep.join((str(HERE), str(ROOT)))
        hook = self.watched.environment if self.watched and principal == "scheduler" else {}
        return super().environment(principal, **{"PYTHONPATH": path, **hook, **more})


class Run(NamedTuple):
    """What is known of one run.

    :param opened: what the scheduler unpickled and imported of the workloads, if it was watched.
    :param said: stderr of the client.
    """

    trace: Trace
    opened: tuple[str, ...]
    said: str


def golden(policy: str) -> Path:
    """Return the file of the recorded trace of *policy*."""
    return HERE / f"{policy}.json"


def run(policy: str, folder: Path, names: tuple[str, ...] = ()) -> Run:
    """Run workloads under *policy*."""
    client = CLIENTS[policy]
    cluster = Golden(folder, policy, (*SERVERS, client))
    if policy in SEALED:
        cluster.watched = Watched(folder / "watched")
    files = folder / "files"
    files.mkdir()
    try:
        cluster.begin()
        program = HERE / "workloads.py"
        ended = cluster.run(client, program, cluster.address, str(files), *names, timeout=PATIENCE)
    finally:
        cluster.stop(gently=True)  # so that the counts are in the logs
    found = tuple(opened(cluster.watched)) if cluster.watched else ()
    return Run(traced(cluster.audit, ended.answer), found, ended.err)


def opened(watched: Watched) -> Iterator[str]:
    """Yield what a scheduler did that opens nothing of the workloads."""
    yield from (f"the scheduler unpickled {name}" for name in sorted(watched.unpickled()))
    for name in sorted(watched.imported()):
        if name.startswith(MODULES):
            yield f"the scheduler imported {name}"


def _run(policy: str, names: tuple[str, ...] = ()) -> Run:
    with tempfile.TemporaryDirectory(prefix="safeser-golden-") as folder:
        done = run(policy, Path(folder), names)
    print(done.said, file=sys.stderr)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.golden")
    parser.add_argument("--update", action="store_true", help="record what is decided")
    parser.add_argument("--policy", choices=CLIENTS, default="dask-cluster")
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads; all without any")
    arguments = parser.parse_args()
    path = golden(arguments.policy)
    if arguments.update:
        first, second = (_run(arguments.policy).trace for _ in range(2))
        first.union(second).save(path)
        return 0
    seen, did, _ = _run(arguments.policy, tuple(arguments.names))
    found = list(differences(Trace.load(path), seen))
    print("\n".join([*found, *did]))
    failed = [name for name, result in seen.results.items() if result != "ok"]
    print(f"{len(seen.results)} workloads, {len(failed)} failed, {len(found)} differences")
    if arguments.policy in SEALED and not did:
        print("the scheduler unpickled nothing and imported no module of the workloads")
    return 1 if found or did else 0


if __name__ == "__main__":
    sys.exit(main())
