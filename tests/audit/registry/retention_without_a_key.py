"""Attack: who can write to the folder, and has no key, lets retention delete a file of today.

The file's ``close`` entry is dated back while a process keeps the files, and put back afterwards.
The removal is genuine, and its entry, too. Exits 1 if the file is gone and verification says ok.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from safeser.audit import verify
from safeser.errors import AuditError
from tests.audit.registry.forging import DAY, FILES, Folder

KEEP = replace(FILES, keep_age=90 * DAY)


def attack(home: Path) -> bool:
    """Return whether the file is gone unnoticed."""
    folder = Folder(home)
    evidence = folder.closed("alice")
    folder.closed("bob")
    folder.now += 5
    restore = folder.date_back(evidence, 100 * DAY)
    try:
        folder.tidy(KEEP)
    except AuditError as error:
        print(f"the pass over the files refused: {error.message}")
    restore()
    return not evidence.exists() and verify(folder.place, key=folder.initial).ok


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        fooled = attack(Path(home))
    print("the file is gone, and verify says ok" if fooled else "the attack failed")
    sys.exit(fooled)
