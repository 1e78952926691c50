"""How often objects are pickled; what small calls cost.

The one rule: ``tcp://``, ``safeser://`` with submission ``code`` and with ``sealed`` take turns in
one run, each with a scheduler, two workers and one client as processes on loopback.

Counts are those of one object that counts its own pickles: ``3P 2U`` is pickled three times and
unpickled twice. Times are processor time, but for *caller* and *loop held*.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from verification.benchmarks import report
from verification.benchmarks.clusters import Cluster
from verification.benchmarks.report import number, ratio
from verification.benchmarks.serialization.measuring import (
    COMPARED,
    MEASURES,
    ROLES,
    Counts,
    cost,
    counted,
    running,
)

PACKAGES = ("safeser", "dask", "distributed", "cloudpickle", "msgpack", "joblib")


def count_lines(found: Mapping[str, Mapping[str, Counts]]) -> list[list[str]]:
    """Return the rows of the table of counts.

    :param found: counts by transport and case.
    """
    lines = []
    for case in found["tcp"]:
        for role in ROLES:
            cells = [_counts(*found[transport][case][role]) for transport in COMPARED]
            lines.append([f"{case}, {role}", *cells])
    return lines


def _counts(pickles: int, unpickles: int) -> str:
    parts = [f"{pickles}P" if pickles else "", f"{unpickles}U" if unpickles else ""]
    return " ".join(filter(None, parts)) or "0"


def cost_lines(
    clusters: Mapping[str, Cluster], measure: str, amount: int, rounds: int
) -> list[list[str]]:
    """Return the rows of one measure, after its rounds."""
    for cluster in clusters.values():
        cost(cluster, measure, min(amount, 100))  # to warm up
    found = {transport: [] for transport in COMPARED}
    for index in range(rounds):
        print(f"{MEASURES[measure]}: round {index + 1} of {rounds}", file=sys.stderr)
        for transport, cluster in report.turns(list(clusters.items()), index):
            found[transport].append(cost(cluster, measure, amount))
    lines = [[f"{MEASURES[measure]}, {amount:,}", *[""] * (2 * len(COMPARED) - 1)]]
    for name in found["tcp"][0]:
        taken = {transport: [each[name] for each in costs] for transport, costs in found.items()}
        medians = (number(statistics.median(each)) for each in taken.values())
        ratios = (f"{ratio(each, taken['tcp']):.2f}" for each in list(taken.values())[1:])
        lines.append([f"  {name}", *medians, *ratios])
    return lines


def main() -> None:
    options = report.options(__doc__, tasks=20_000, records=200_000, rounds=3)
    amounts = dict.fromkeys(MEASURES, options.tasks) | {"records": options.records}
    with tempfile.TemporaryDirectory(prefix="safeser-") as folder, running(Path(folder)) as up:
        numbers = {name: counted(cluster) for name, cluster in up.items()}
        lines = [
            row
            for measure, amount in amounts.items()
            if options.rounds
            for row in cost_lines(up, measure, amount, options.rounds)
        ]
    report.show(("pickles and unpickles of one object", *COMPARED.values()), count_lines(numbers))
    report.show(("", *COMPARED.values(), "code/tcp", "sealed/tcp"), lines)
    report.show_notes(rounds=options.rounds, packages=PACKAGES)


if __name__ == "__main__":
    main()
