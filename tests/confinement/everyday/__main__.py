"""Prints the table of docs/explanation/everyday-operations.md.

Run it with ``python -m tests.confinement.everyday``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.confinement.everyday.cluster import measure, rows
from tests.confinement.site import Analysts

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as stock:
        site = Analysts(Path(made))
        try:
            site.begin()
            print("\n".join(rows(measure(site, Path(stock)))))
        finally:
            site.stop()
