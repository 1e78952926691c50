"""How often objects are pickled; what small calls cost.

The one rule: ``tcp://``, ``safeser://`` with submission ``code`` and with ``sealed`` take turns in
one run, each with a scheduler, two workers and one client as processes on loopback.

Counts are those of one object that counts its own pickles: ``3P 2U`` is pickled three times and
unpickled twice. Times are processor time, but for *caller* and *loop held*.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from verification.benchmarks import report
from verification.benchmarks.clusters import Cluster
from verification.benchmarks.report import number, ratio
from verification.benchmarks.serialization.measuring import (
    COMPARED,
    MEASURES,
    ROLES,
    Cost,
    Counts,
    cost,
    counted,
    running,
)

PACKAGES = ("safeser", "dask", "distributed", "cloudpickle", "msgpack", "joblib")

#: What is shown of a cost, by its name with the unit, and what one such unit is.
_SHOWN: dict[str, tuple[Callable[[Cost], float], float]] = {
    "client (s)": (lambda each: each.client, 1),
    "scheduler (s)": (lambda each: each.scheduler, 1),
    "worker (s)": (lambda each: each.worker, 1),
    "caller (s)": (lambda each: each.caller, 1),
    "client to scheduler (MB)": (lambda each: each.to_scheduler, 1e6),
    "scheduler to worker (MB)": (lambda each: each.to_worker, 1e6),
    "scheduler's loop held (ms)": (lambda each: each.held, 1e-3),
    "client's loop held (ms)": (lambda each: each.client_held, 1e-3),
}


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


def cost_lines(measure: str, amount: int, found: Mapping[str, Sequence[Cost]]) -> list[list[str]]:
    """Return the rows of one measure.

    :param found: costs by transport, round by round.
    """
    lines = [[f"{MEASURES[measure]}, {amount:,}", *[""] * (2 * len(COMPARED) - 1)]]
    for name, (of, unit) in _SHOWN.items():
        taken = {transport: [of(each) for each in found[transport]] for transport in COMPARED}
        lines.append(
            [
                f"  {name}",
                *(number(statistics.median(each) / unit) for each in taken.values()),
                *(
                    f"{ratio(taken[transport], taken['tcp']):.2f}"
                    for transport in list(COMPARED)[1:]
                ),
            ]
        )
    return lines


def _costs(
    clusters: Mapping[str, Cluster], amounts: Mapping[str, int], rounds: int
) -> dict[str, dict[str, list[Cost]]]:
    found: dict[str, dict[str, list[Cost]]] = {
        measure: {transport: [] for transport in COMPARED} for measure in amounts
    }
    for measure, amount in amounts.items():
        for cluster in clusters.values():
            cost(cluster, measure, min(amount, 100))  # to warm up
        for index in range(rounds):
            print(f"{MEASURES[measure]}: round {index + 1} of {rounds}", file=sys.stderr)
            for transport, cluster in report.turns(list(clusters.items()), index):
                found[measure][transport].append(cost(cluster, measure, amount))
    return found


def main() -> None:
    options = report.options(__doc__, tasks=20_000, records=200_000, rounds=3)
    load = os.getloadavg()
    amounts = dict.fromkeys(MEASURES, options.tasks) | {"records": options.records}
    with tempfile.TemporaryDirectory(prefix="safeser-") as folder, running(Path(folder)) as up:
        numbers = {name: counted(cluster) for name, cluster in up.items()}
        costs = _costs(up, amounts if options.rounds else {}, options.rounds)
    report.show(("pickles and unpickles of one object", *COMPARED.values()), count_lines(numbers))
    lines = [row for each, found in costs.items() for row in cost_lines(each, amounts[each], found)]
    report.show(("", *COMPARED.values(), "code/tcp", "sealed/tcp"), lines)
    report.show_notes(rounds=options.rounds, load=load, packages=PACKAGES)


if __name__ == "__main__":
    main()
