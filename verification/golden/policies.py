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
    """An operation that does not end everywhere as on ``tcp://``.

    :param policies: under which it does not.
    :param why: the decision, in a sentence, with what to do instead.
    :param sometimes: whether it depends on where Dask runs a task.
    """

    policies: tuple[str, ...]
    why: str
    sometimes: bool = False


DIFFERENT: Mapping[str, Difference] = {}


def ended(scheme: str, state: Path) -> dict[str, str]:
    """Return how each operation ended on ``tcp``, or under a policy; run before, it is remembered.

    :param state: folder in which it is remembered.
    """
    known = state / f"{scheme}.json"
    if known.exists():
        found: dict[str, str] = json.loads(known.read_text("utf-8"))
        return found
    with tempfile.TemporaryDirectory(prefix="safeser-policies-") as name:
        folder = Path(name)
        if scheme == "tcp":
            shown = _notebook(scheme, folder, base_environment() | {"PYTHONPATH": str(ROOT)})
        else:
            shown = _on_cluster(scheme, folder)
    known.write_text(json.dumps(shown, indent=1), "utf-8")
    return shown


def _on_cluster(policy: str, folder: Path) -> dict[str, str]:
    client = CLIENTS[policy]
    cluster = Golden(folder, policy, (*SERVERS, client))
    (folder / "files").mkdir()
    try:
        cluster.begin()
        given = cluster.environment(client, SCHEDULER=cluster.address)
        shown = _notebook("safeser", folder, given)
        arguments = cluster.address, str(folder / "files")
        done = cluster.run(client, HERE / "workloads.py", *arguments, timeout=PATIENCE)
    finally:
        cluster.stop()
    print(done.err, file=sys.stderr)
    return shown | {f"workloads: {name}": result for name, (result, *_) in done.answer.items()}


def _notebook(scheme: str, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    homes = {name: str(folder / name.lower()) for name in HOMES}
    command = [sys.executable, "-m", "tests.dask.notebook.running", scheme]
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
    lines = [_HEAD.format(" | ".join(f"`{name}`" for name in ALL), "| :---: " * len(ALL))]
    for name, row in DIFFERENT.items():
        no = "at times" if row.sometimes else "no"
        cells = " | ".join(no if each in row.policies else "" for each in ALL)
        lines.append(f"| {name} | {cells} | {row.why} |")
    return "\n".join(lines) + "\n"


_HEAD = """\
# Operations by policy

The [84 workloads](dask.md#84-workloads) and the operations of a [notebook](../how-to/notebooks.md), each run by one person under
`default`, `strict` and `sealed`, and by an engineer under `dask-cluster`: what is not in this table ends under all four as it does on
`tcp://`. `python -m verification.golden.policies` runs them and compares; this page is written by it.

| operation | {} | why, and what to do instead |
| --- {}| --- |"""


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
        decided = {name: row for name, row in DIFFERENT.items() if policy in row.policies}
        must = {name for name, row in decided.items() if not row.sometimes}
        unlike = sorted(found.keys() - decided.keys() | must - found.keys())
        for name in unlike:
            print(f"{policy}: {name}: {found.get(name, 'works')}")
        print(f"{policy}: {len(found)} differ, {len(unlike)} not as decided", flush=True)
        wrong += len(unlike)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
