"""Attack: who has tonight's key rewrites a file that was closed this morning.

The key has moved since, so the file's own keys are gone. The index takes a second ``open`` entry
for the file, and a second ``close``: verification would then use the keys of tonight. Exits 1 if
verification says ok, with or without a head that was kept after the file was closed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from safeser.audit import verify
from tests.audit.registry.forging import Fields, Folder


def attack(home: Path) -> list[str]:
    """Return the ways to verify that do not see the attack."""
    folder = Folder(home)
    morning = folder.closed("alice")
    head = verify(folder.place, key=folder.initial).head
    folder.closed("bob")
    before = verify(folder.place, key=folder.initial)
    assert before.ok, str(before)

    def hide(fields: Fields) -> Fields | None:
        return None if fields.get("bytes") == 7 else fields

    folder.add(*folder.rewritten(morning, hide))
    return [
        name
        for name, expect in (("initial key", ""), ("initial key and a kept head", head))
        if verify(folder.place, key=folder.initial, expect=expect).ok
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        fooled = attack(Path(home))
    print(f"verify says ok with: {', '.join(fooled)}" if fooled else "verification found it")
    sys.exit(bool(fooled))
