"""``python -m tests.dask.golden [--update] [--policy NAME] [NAME ...]``: run workloads and compare.

Runs the 84 workloads, or those named, on a scheduler and two workers with nannies under a ready
policy, and compares the decisions with the recorded trace; exits 1 if they differ. ``--update``
records the union of two runs, since some actions of Dask happen in one run and not in another.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.conftest import Cluster
from tests.dask.golden.traces import Trace, differences, traced

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

#: The principal that runs the workloads under each policy, and those of the servers.
CLIENTS = {"dask-cluster": "carol", "default": "client"}
SERVERS = ("scheduler", "worker", "nanny")

#: Seconds after which a run is stopped; generous for two shared cores.
PATIENCE = 900.0


class Golden(Cluster):
    """A cluster of this checkout, whose processes can import the functions of the workloads."""

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        path = os.pathsep.join((str(HERE), str(ROOT)))
        return super().environment(principal, **{"PYTHONPATH": path, **more})


def golden(policy: str) -> Path:
    """Return the file of the recorded trace of *policy*."""
    return HERE / f"{policy}.json"


def run(policy: str, folder: Path, names: tuple[str, ...] = ()) -> tuple[Trace, str]:
    """Run workloads under *policy*; return the trace, and the stderr of the client."""
    client = CLIENTS[policy]
    cluster = Golden(folder, policy, (*SERVERS, client))
    files = folder / "files"
    files.mkdir()
    try:
        cluster.begin()
        program = HERE / "workloads.py"
        ended = cluster.run(client, program, cluster.address, str(files), *names, timeout=PATIENCE)
    finally:
        cluster.stop()
    return traced(cluster.audit, ended.answer), ended.err


def _run(policy: str, names: tuple[str, ...] = ()) -> Trace:
    with tempfile.TemporaryDirectory(prefix="safeser-golden-") as folder:
        trace, said = run(policy, Path(folder), names)
    print(said, file=sys.stderr)
    return trace


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dask.golden")
    parser.add_argument("--update", action="store_true", help="record what is decided")
    parser.add_argument("--policy", choices=CLIENTS, default="dask-cluster")
    parser.add_argument("names", nargs="*", metavar="NAME", help="workloads; all without any")
    arguments = parser.parse_args()
    path = golden(arguments.policy)
    if arguments.update:
        _run(arguments.policy).union(_run(arguments.policy)).save(path)
        return 0
    seen = _run(arguments.policy, tuple(arguments.names))
    found = list(differences(Trace.load(path), seen))
    print("\n".join(found))
    failed = [name for name, result in seen.results.items() if result != "ok"]
    print(f"{len(seen.results)} workloads, {len(failed)} failed, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
