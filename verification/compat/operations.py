"""Compare the table of operations with live servers of every release.

``python -m verification.compat.operations --sources DIR`` starts the servers of each
``DIR/<release>/{dask,distributed}``, two unpacked wheels with their metadata, in a process of its
own, prints what differs from the table, and exits with 1 if anything does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safeser.operations import operations_in, release
from tests.operations import comparison
from verification.compat.fingerprints import releases_in

PROGRAM = Path(comparison.__file__).with_name("registered.py")


def live_in(folder: Path) -> dict[str, Any]:
    """Return what servers of the release that is unpacked in *folder* register."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    if found["version"] != folder.name:
        raise ValueError(f"{folder} has release {found['version']}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="a folder of each release")
    sources: Path = parser.parse_args().sources
    failed = False
    for name in releases_in(sources):
        rows = operations_in(release(name))
        found = list(comparison.differences(rows, live_in(sources / name)))
        print(name, f"{len(rows)} rows", *(found or ["as in the table"]), sep="\n  ", flush=True)
        failed = failed or bool(found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
