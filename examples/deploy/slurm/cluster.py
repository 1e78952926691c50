"""Workers as SLURM jobs, with the scheduler in this process: run it where jobs can reach this host.

Usage: python cluster.py --keys ~/dask/keys --policy ~/dask/policy.yaml --principal carol \
    --audit ~/dask/audit --interface ib0
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dask_jobqueue import SLURMCluster

import safeser

ROLES = ("scheduler", "worker", "nanny")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=Path, required=True, help="made by 'safeser keys init'")
    parser.add_argument("--policy", required=True, help="a file, such as ../policy.yaml")
    parser.add_argument("--principal", required=True, help="whose key the client uses: you")
    parser.add_argument("--audit", type=Path, required=True, help="folder of the logs")
    parser.add_argument("--interface", help="network interface that jobs reach this host by")
    parser.add_argument("--jobs", type=int, default=2, help="at most so many jobs")
    given = parser.parse_args()

    keys = {role: given.keys / f"{role}.key" for role in ROLES}
    keys["client"] = given.keys / f"{given.principal}.key"
    # Paths on a file system that this host and the jobs share; never the keys themselves.
    security = safeser.Security(
        policy=given.policy,
        audit=str(given.audit),
        expected_scheduler="scheduler",
        roles={role: {"identity": str(key)} for role, key in keys.items()},
    )
    cluster = SLURMCluster(
        cores=1,
        processes=1,
        memory="2GB",
        walltime="00:30:00",
        protocol="safeser://",  # without it, dask-jobqueue chooses tls:// where there is a security
        security=security,
        interface=given.interface,
        job_script_prologue=security.exports(),
    )
    with cluster, safeser.Client(cluster) as client:
        cluster.adapt(minimum=0, maximum=given.jobs)
        print("sum:", client.submit(sum, [20, 22]).result())


if __name__ == "__main__":
    main()
