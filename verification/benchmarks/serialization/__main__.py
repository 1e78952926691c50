"""How often objects are pickled; what small calls cost.

The one rule: ``tcp://``, ``safeser://`` with submission ``code`` and with ``sealed`` take turns in
one run, each with a scheduler, two workers and one client as processes on loopback.

Counts are those of one object that counts its own pickles: ``3P 2U`` is pickled three times and
unpickled twice. Times are processor time, but for *caller* and *loop held*.
"""

from __future__ import annotations

import datetime
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from verification.benchmarks.clusters import Cluster, StartError
from verification.benchmarks.report import grid, grid_markdown, machine, number, ratio
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
COUNTED = ("pickles and unpickles of one object", *COMPARED.values())
TIMED = ("", *COMPARED.values(), "code/tcp", "sealed/tcp")

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
    lines = [[f"{MEASURES[measure]}, {amount:,}", *[""] * (len(TIMED) - 1)]]
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
    clusters: Mapping[str, Cluster], amounts: Mapping[str, int], rounds: int, progress: Console
) -> dict[str, dict[str, list[Cost]]]:
    found: dict[str, dict[str, list[Cost]]] = {
        measure: {transport: [] for transport in COMPARED} for measure in amounts
    }
    for measure, amount in amounts.items():
        for cluster in clusters.values():
            cost(cluster, measure, min(amount, 100))  # to warm up
        for index in range(rounds):
            progress.print(f"{MEASURES[measure]}: round {index + 1} of {rounds}", highlight=False)
            turn = list(clusters.items())
            first = index % len(turn)
            for transport, cluster in turn[first:] + turn[:first]:
                found[measure][transport].append(cost(cluster, measure, amount))
    return found


def main(
    tasks: Annotated[int, typer.Option(min=1, help="Tasks of each timed measure.")] = 20_000,
    records: Annotated[int, typer.Option(min=1, help="Records of one argument.")] = 200_000,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds of what is timed.")] = 3,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Write the tables for the docs to this file.")
    ] = None,
) -> None:
    """Count pickles of one object, and time many small calls; some minutes for each round."""
    console, progress = Console(), Console(stderr=True)
    load = os.getloadavg()
    amounts = {"mapped": tasks, "submitted": tasks, "arguments": tasks, "records": records}
    with tempfile.TemporaryDirectory(prefix="safeser-") as folder:
        try:
            with running(Path(folder)) as clusters:
                numbers = {name: counted(cluster) for name, cluster in clusters.items()}
                costs = _costs(clusters, amounts if rounds else {}, rounds, progress)
        except StartError as error:
            progress.print(f"benchmark: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(2) from error
    tables = [(COUNTED, count_lines(numbers))]
    if costs:
        lines = [
            line
            for measure, found in costs.items()
            for line in cost_lines(measure, amounts[measure], found)
        ]
        tables.append((TIMED, lines))
    notes = [
        *machine(PACKAGES),
        f"Date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}; {rounds} rounds in turns;"
        f" load average {load[0]:.1f} before",
    ]
    for headings, lines in tables:
        console.print(grid(headings, lines))
    for note in notes:
        console.print(note, style="dim", highlight=False)
    if markdown_file is not None:
        text = "\n".join(grid_markdown(headings, lines) for headings, lines in tables)
        markdown_file.write_text(f"{text}\n{''.join(f'- {note}{chr(10)}' for note in notes)}")


if __name__ == "__main__":
    typer.run(main)
