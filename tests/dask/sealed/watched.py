"""What a scheduler unpickles and imports, as the audit hook of ``watching.py`` writes it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

__all__ = ["Watched"]

_HOOK = Path(__file__).with_name("watching.py")

#: What the hook has the process unpickle, to show that it is there.
_CONTROL = "collections.Counter"


class Watched(NamedTuple):
    """The hook in one scheduler.

    :param path: file that it writes to.
    """

    path: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return what the environment of the scheduler has to say."""
        return {
            "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": json.dumps([str(_HOOK)]),
            "WATCHED": str(self.path),
        }

    def unpickled(self) -> set[str]:
        """Return the globals that were looked up for a pickle.

        :raises AssertionError: if the hook was not there.
        """
        found = self._lines("found")
        assert _CONTROL in found
        return found - {_CONTROL}

    def imported(self) -> set[str]:
        """Return the modules that were imported.

        :raises AssertionError: if the hook was not there.
        """
        found = self._lines("imported")
        assert found
        return found

    def _lines(self, event: str) -> set[str]:
        lines = (line.partition(" ") for line in self.path.read_text().splitlines())
        return {name for what, _, name in lines if what == event}
