"""Run the workloads and a notebook's operations under four ready policies, and compare.

Whatever works under ``default`` works under the stricter ready policies, or ``policies.toml`` says
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
import tomllib
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


_EXPECTED = tomllib.loads(HERE.joinpath("policies.toml").read_text("utf-8"))
DIFFERENT = [Difference(**row) for row in _EXPECTED["different"]]


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
    return "\n".join(
        [*lines, _END, *(f"| {' | '.join(row.values())} |" for row in _EXPECTED["object"]), ""]
    )


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
looked for in the results of 8,400 of Dask's own tests of bags, frames, arrays and delayed calls,
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
