"""Runs the operations as cells of a notebook in a real Jupyter kernel, on one scheme or the other.

``python -m tests.dask.notebook.running tcp`` runs them in the current folder, or those of the areas
that follow; ``safeser`` on the cluster that ``SCHEDULER`` names, whose workers are in this folder.
It shows what each of them printed, and last all of it as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

from tests.dask.notebook.cells import operations, shown

HERE = Path(__file__).parent
OPERATIONS = tuple(
    HERE / f"{name}.py" for name in ("operations", "library_operations", "passed_operations")
)

#: Seconds for one cell on a busy machine, where one that hangs would wait for ever.
DEADLINE = 100

#: What a user writes at the beginning; the rest of the notebook is the same. Stock workers are
#: threads of the kernel: what they compute is the same, and nothing is imported three times.
BEGINNINGS = {
    "tcp": """
import distributed
cluster = distributed.LocalCluster(
    n_workers=2, threads_per_worker=1, processes=False, protocol="tcp", dashboard_address=None
)
client = distributed.Client(cluster)
def keep(cls):
    return cls
""",
    "safeser": """
import os, safeser
client = safeser.Client(os.environ["SCHEDULER"])
keep = safeser.register_class
""",
}


def run(
    scheme: str,
    folder: Path,
    heard: Callable[..., None],
    areas: Collection[str] = (),
) -> dict[str, str]:
    """Return what each operation printed, or its error, by area and title.

    :param heard: called for each cell that ended, as by :class:`NotebookClient`.
    :param areas: run these alone, if there are any.
    """
    setup, cells = operations(*OPERATIONS)
    cells = [cell for cell in cells if not areas or cell.area in areas]
    sources = [
        "%matplotlib agg",
        (HERE / "digest.py").read_text("utf-8"),
        BEGINNINGS[scheme],
        setup,
    ]
    sources += [shown(cell.source) for cell in cells] + ["client.close()"]
    notebook = executed(sources, folder, heard)
    begun = len(sources) - len(cells) - 1
    for cell in notebook.cells[:begun]:
        assert not said(cell, "error"), said(cell, "error")
    return {
        f"{cell.area}: {cell.title}": said(done, "error") or said(done, "shown")
        for cell, done in zip(cells, notebook.cells[begun:-1], strict=True)
    }


def executed(
    sources: Sequence[str], folder: Path, heard: Callable[..., None] | None = None
) -> nbformat.NotebookNode:
    """Return the notebook of *sources*, a cell each, run by a kernel in *folder*."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    # Sockets of this user alone, where the default is ports that others of the machine reach.
    kernel = AsyncKernelManager(
        kernel_name="python3", transport="ipc", connection_file=str(folder / "kernel.json")
    )
    client = NotebookClient(
        notebook,
        km=kernel,
        timeout=DEADLINE,
        on_cell_executed=heard,
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.owns_km = True  # so that the kernel ends with the run
    client.execute()
    return notebook


def said(cell: nbformat.NotebookNode, what: str) -> str:
    """Return the error of a cell that was run, or the line that tells its value."""
    if what == "error":
        errors = [out for out in cell.outputs if out.output_type == "error"]
        return "".join(f"{out.ename}: {out.evalue}" for out in errors)
    texts = [out.text for out in cell.outputs if out.output_type == "stream"]
    lines = "".join(texts).splitlines()
    return "".join(line for line in lines if line.startswith("shown "))


def _print(*, cell: nbformat.NotebookNode, cell_index: int, **_: object) -> None:
    print(cell_index, said(cell, "error") or said(cell, "shown"), flush=True)


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path.cwd(), _print, sys.argv[2:])))
