"""Run the workloads and a notebook's operations under four ready policies, and compare.

Whatever works under ``default`` works under the stricter ready policies, or :data:`DIFFERENT` says
why not. ``python -m verification.golden.policies`` runs all of them, 20 minutes, and exits with 1
where an operation differs that has no row there, or one works that has; it stops and resumes, in
.policies. ``--page`` writes the page of the documentation that shows the rows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.dask.notebook.cells import operations
from tests.dask.notebook.running import OPERATIONS
from tests.processes import base_environment
from verification.golden.__main__ import HERE, PATIENCE, ROOT, SERVERS, Golden

#: The principal that works under each policy: one person, and an engineer among others.
CLIENTS = {"default": "client", "strict": "client", "sealed": "client", "dask-cluster": "carol"}

PAGE = ROOT / "docs" / "reference" / "operations-by-policy.md"

#: Folders of a kernel that are not to be those of the user.
HOMES = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR")

ALL = tuple(CLIENTS)
STRICTER, SEALED = ALL[1:], ALL[2:]


class Difference(NamedTuple):
    """Operations that do not end everywhere as on ``tcp://``.

    :param operations: each by its area and title in the notebook, or its name in the workloads.
    :param policies: under which they do not.
    :param why: the decision, with what to do instead.
    :param sometimes: whether it depends on where Dask runs a task.
    """

    operations: tuple[str, ...]
    policies: tuple[str, ...]
    why: str
    sometimes: bool = False


DIFFERENT = (
    Difference(
        ("client: recreate_error_locally", "workloads: recreate_error_locally"),
        ("default", "strict"),
        "The scheduler would send the failed task, which is code, to the client; under sealed calls"
        " the client opens what it signed itself. Read `future.exception()` with its traceback.",
    ),
    Difference(
        ("xarray: open_mfdataset(parallel=True)",),
        ALL,
        "What a worker opened comes to the client as a pickle of openers, which are code. Leave out"
        " `parallel=True`.",
    ),
    Difference(
        ("client: tasks that submit tasks", "workloads: worker_client"),
        STRICTER,
        "Who took a worker's key would submit code. Submit from the client, or grant `worker` a"
        " [submission](../how-to/policy-contexts.md#submission).",
    ),
    Difference(
        ("own classes: a function that a task returns, on another worker",),
        STRICTER,
        "Workers pass each other data alone, and a function is code. Return what it is made of.",
    ),
    Difference(
        ("own classes: from worker to worker", "bags: objects of an own class"),
        STRICTER,
        "A worker has no class of the notebook. Return dictionaries or arrays, or put the class"
        " into a module that workers import and that is"
        " [own](../how-to/policy-contexts.md#classes-of-the-program) or"
        " [registered](families.md#registered-classes-and-register_generic) there.",
        sometimes=True,
    ),
    Difference(
        (
            "own classes: a dataclass, and a list and a dictionary of them",
            "own classes: a plain class whose method works here",
            "own classes: members of an enum and named tuples",
            "own classes: scattered, and used by tasks",
            "own classes: an own exception is caught by its class",
            "own classes: an own exception keeps its attributes and says what it said",
            "own classes: frozen dataclasses and frozen classes of attrs, in each other",
            "own classes: a cell that runs twice, and registers twice",
            "workloads: task_error_custom_cls",
        ),
        ("dask-cluster",),
        "On a shared cluster nobody's classes are rebuilt unasked: `classes: registered`. One line"
        " in the client, `safeser.register_class(Point)`, lets them come.",
    ),
    Difference(
        (
            "arrays: persist, slice and store to Zarr",
            "xarray: write netCDF and open it in chunks",
            "xarray: write Zarr from the cluster and open it",
        ),
        STRICTER,
        "One task hands others the opened file, an object that opens files of its sender's choice."
        " With `inline_array=True` in `xr.open_dataset`, `Dataset.chunk`, `da.from_zarr` or"
        " `da.from_array` each task has it as an argument.",
        sometimes=True,
    ),
    Difference(
        ("passed on: shuffle frames by disk", "passed on: bags, grouped by disk"),
        STRICTER,
        "Workers would hand each other a folder in which the recipient reads and writes. Shuffle by"
        " `p2p` or `tasks`.",
        sometimes=True,
    ),
    Difference(
        ("passed on: write Parquet with a file of metadata",),
        STRICTER,
        "The task that writes that file would parse what other workers say of theirs in compiled"
        " code. Leave out `write_metadata_file=True`; Dask reads the files without it.",
        sometimes=True,
    ),
    Difference(
        ("passed on: an actor that a task calls on another worker",),
        STRICTER,
        "A call runs a method by name: who took one worker's key would run code in another. Call it"
        " from the client, or from tasks on its own worker.",
    ),
    Difference(
        ("passed on: locks, events, queues, variables and semaphores",),
        STRICTER,
        "To rebuild one asks the scheduler in the recipient's name. Make it by its name in each"
        ' task, `Lock("l")`, or pass it as an argument.',
    ),
    Difference(
        (
            "client: performance_report and get_task_stream",
            "client: plugins of workers and of the scheduler",
            "workloads: performance_reported",
            "workloads: register_scheduler_plugin",
            "workloads: run_on_scheduler",
            "workloads: run_on_scheduler_error",
        ),
        SEALED,
        "They run on the scheduler, which opens nothing under sealed calls. `get_task_stream` and"
        " plugins of workers work by themselves.",
    ),
)


#: Classes whose objects tasks of Dask's collections return: by what, and what becomes of them.
OBJECTS = (
    (
        "`dask.dataframe.backends:ShuffleGroupResult`",
        "shuffles, merges and `set_index` by tasks, broadcast joins",
        "passes: profile `pandas`, keys checked",
    ),
    (
        "`dask.dataframe.rolling:CombinedOutput`",
        "`rolling`, `map_overlap`, `diff`, `shift`",
        "passes: profile `pandas`, parts checked",
    ),
    (
        "`dask.typing:_NoDefault`, `dask.bag.core:no_result`",
        "`Bag.accumulate`, `min`, `max` and others, of empty partitions",
        "pass: profile `data`",
    ),
    (
        "`numpy.linalg` and `numpy.unique_*`: named results",
        "`da.linalg.qr`, `svd`, `lstsq`",
        "pass: family `dask`, to clients too",
    ),
    (
        "`pyarrow.parquet:FileMetaData`",
        "`to_parquet(write_metadata_file=True)`",
        "refused, see above",
    ),
    (
        "results of `dask.array.stats`",
        "its tests",
        "pass: family `dask`, as SciPy's, to clients too",
    ),
    (
        "data of an index of xarray",
        "`xr.map_blocks`",
        "pass: family `dask`, as the index",
    ),
    (
        "futures, actors, persisted collections",
        "`submit`, `persist`",
        "pass: family `dask`, by key and names",
    ),
    (
        "`dask.bag.core:_MapChunk`, generators",
        "steps of a bag that Dask leaves as iterators for the one task that goes on",
        "the next task runs on the same worker, unless its work is stolen; such an iterator "
        "holds a function, so that it is refused then. What a generator left does not move on"
        " stock Dask either",
    ),
    (
        "`partd` files",
        "shuffles by disk",
        "refused, see above",
    ),
    (
        "opened arrays of Zarr, xarray, HDF5",
        "`from_array`, `from_zarr`, `open_dataset`",
        "refused, see above",
    ),
    (
        "locks, events, queues, variables, semaphores",
        "tasks of one's own; collections hand them over as arguments",
        "refused, see above",
    ),
)


def ended(scheme: str, state: Path) -> dict[str, str]:
    """Return how each operation ended on ``tcp``, or under a policy.

    :param state: folder with the answers of earlier runs; areas that it lacks are run.
    """
    known = state / f"{scheme}.json"
    found: dict[str, str] = json.loads(known.read_text("utf-8")) if known.exists() else {}
    _, cells = operations(*OPERATIONS)
    areas = {cell.area for cell in cells if f"{cell.area}: {cell.title}" not in found}
    works = scheme != "tcp" and "workloads: close" not in found
    if areas or works:
        with tempfile.TemporaryDirectory(prefix="safeser-policies-") as folder:
            found |= _run(scheme, Path(folder), areas, works=works)
        known.write_text(json.dumps(found, indent=1), "utf-8")
    return found


def _run(scheme: str, folder: Path, areas: set[str], *, works: bool) -> dict[str, str]:
    if scheme == "tcp":
        given = base_environment() | {"PYTHONPATH": str(ROOT)}
        return _notebook(scheme, folder, given, areas)
    client = CLIENTS[scheme]
    cluster = Golden(folder, scheme, (*SERVERS, client))
    (folder / "files").mkdir()
    found: dict[str, str] = {}
    try:
        cluster.begin()
        if areas:
            given = cluster.environment(client, SCHEDULER=cluster.address)
            found |= _notebook("safeser", folder, given, areas)
        if works:
            arguments = cluster.address, str(folder / "files")
            done = cluster.run(client, HERE / "workloads.py", *arguments, timeout=PATIENCE)
            print(done.err, file=sys.stderr)
            found |= {f"workloads: {name}": result for name, (result, *_) in done.answer.items()}
    finally:
        cluster.stop()
    return found


def _notebook(
    scheme: str, folder: Path, environment: Mapping[str, str], areas: set[str]
) -> dict[str, str]:
    homes = {name: str(folder / name.lower()) for name in HOMES}
    command = [sys.executable, "-m", "tests.dask.notebook.running", scheme, *sorted(areas)]
    done = subprocess.run(
        command, cwd=folder, env={**environment, **homes}, stdout=subprocess.PIPE, check=True
    )
    shown: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return shown


def differences(policy: str, state: Path) -> dict[str, str]:
    """Return what each operation came to that does not end under *policy* as on ``tcp://``."""
    stock = ended("tcp", state)
    found = ended(policy, state).items()
    return {name: text for name, text in found if text != stock.get(name, "ok")}


def page() -> str:
    """Return the page of the documentation."""
    lines = [_HEAD.format(" | ".join(f"`{name}`" for name in ALL), " --- |" * len(ALL))]
    for row in DIFFERENT:
        cells = [
            "" if name not in row.policies else ("no", "at times")[row.sometimes] for name in ALL
        ]
        lines.append(f"| {' | '.join(['; '.join(row.operations), *cells, row.why])} |")
    return "\n".join([*lines, _END, *(f"| {' | '.join(row)} |" for row in OBJECTS), ""])


_HEAD = """\
# Operations by policy

The [84 workloads](dask.md#84-workloads) and the operations of a [notebook](../how-to/notebooks.md),
each run by one person under `default`, `strict` and `sealed`, and by an engineer under
`dask-cluster`. What is not in this table ends under all four as it does on `tcp://`; *at times*:
where Dask runs the next task on another worker. `python -m verification.golden.policies` runs all
of them and compares; it wrote this page.

| operation | {} | why, and what to do instead |
| --- |{} --- |"""

_END = """
## Objects of Dask's own between tasks

What tasks of Dask's collections return, beside numbers, text, containers, arrays and frames. It was
looked for in the results of 5,000 of Dask's own tests of bags, frames, arrays and delayed calls,
and in the sources of dask and distributed. Under `default` all of it passes. Under the other
policies, from worker to worker:

| class | returned by | between workers |
| --- | --- | --- |"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m verification.golden.policies")
    parser.add_argument("--page", action="store_true", help="write the page, and run nothing")
    parser.add_argument("--state", type=Path, default=ROOT / ".policies", help="what is done")
    parser.add_argument("policies", nargs="*", metavar="POLICY", help="all without any")
    arguments = parser.parse_args()
    if arguments.page:
        PAGE.write_text(page(), "utf-8")
        return 0
    arguments.state.mkdir(exist_ok=True)
    wrong = 0
    for policy in arguments.policies or ALL:
        found = differences(policy, arguments.state)
        rows = [row for row in DIFFERENT if policy in row.policies]
        decided = {name for row in rows for name in row.operations}
        must = {name for row in rows if not row.sometimes for name in row.operations}
        unlike = sorted(found.keys() - decided | must - found.keys())
        for name in unlike:
            print(f"{policy}: {name}: {found.get(name, 'works')}")
        print(f"{policy}: {len(found)} differ, {len(unlike)} not as decided", flush=True)
        wrong += len(unlike)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
