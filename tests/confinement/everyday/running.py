"""Runs the operations in one interpreter and prints what each shows, as JSON.

``python -m tests.confinement.everyday.running safeser ADDRESS DATA SCRATCH`` asks the cluster
there; ``tcp`` in the place of ``safeser`` makes a stock cluster in this process.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from tests.dask.notebook import digest
from tests.dask.notebook.cells import operations, shown

OPERATIONS = Path(__file__).with_name("operations.py")
WORKERS = 2  # as the shared cluster has

#: What the text of an operation begins with that gave a value; that of others is their error.
SHOWN = "shown "


def connect(scheme: str, address: str) -> Any:
    if scheme == "safeser":
        import safeser

        client = safeser.Client(address, timeout=60)
    else:
        import distributed

        client = distributed.Client(
            n_workers=WORKERS, threads_per_worker=1, processes=False, dashboard_address=None
        )
    client.wait_for_workers(WORKERS, timeout=60)
    return client


def run(names: dict[str, Any]) -> dict[str, str]:
    """Return what each operation shows in *names*, or its error; by area and title."""
    found: dict[str, str] = {}
    setup, cells = operations(OPERATIONS)
    exec(setup, names)
    for cell in cells:
        said: list[str] = []
        names["show"] = lambda value, said=said: said.append(digest.told(value))
        try:
            exec(shown(cell.source), names)
            text = f"{SHOWN}{said.pop()}"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        found[f"{cell.area}: {cell.title}"] = text
    return found


def main(scheme: str, address: str, data: str, scratch: str) -> None:
    warnings.simplefilter("ignore")
    # Functions and classes of __main__ travel by value, as those of a notebook do.
    names = vars(sys.modules["__main__"])
    with connect(scheme, address) as client:
        names.update(client=client, DATA=data, SCRATCH=scratch)
        found = run(names)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
