"""Run compute_paths.py, and a few refusals, as cells in a Jupyter kernel; prints JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.dask.notebook.running import executed

PROGRAM = Path(__file__).with_name("compute_paths.py")

#: Cells whose errors a user reads, by name.
REFUSED = {
    "submit": "client.submit(closing_over(LOCK), 1)",
    "dask.compute": "dask.compute(dask.delayed(closing_over(LOCK))(1))",
    "gather": "client.gather(client.submit(threading.Thread, pure=False))",
    "loads": "safeser.pickles.loads(b'x')",
    "generator": "client.submit(plain, written_here())",
    "shell": "client.submit(lambda: get_ipython())",
    "client": "client.submit(lambda: client)",
}

CELL = """
def written_here():
    yield 1

import os, threading
client = safeser.Client(os.environ["SCHEDULER"])
"""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def main() -> None:
    definitions = PROGRAM.read_text("utf-8")
    begun = [definitions, CELL, "main(client)"]
    notebook = executed([*begun, *REFUSED.values(), "client.close()"], Path.cwd())
    printed = "".join(out.text for out in notebook.cells[2].outputs if out.output_type == "stream")
    errors = {}
    for name, cell in zip(REFUSED, notebook.cells[len(begun) :], strict=False):
        for out in cell.outputs:
            if out.output_type == "error":
                shown = _COLOURS.sub("", "\n".join(out.traceback))
                errors[name] = {"text": out.evalue, "shown": shown}
    said = [line for line in printed.splitlines() if line.startswith("{")]
    print(json.dumps({"said": json.loads(said[-1]) if said else printed, "errors": errors}))


if __name__ == "__main__":
    main()
