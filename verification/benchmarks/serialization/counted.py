"""An object that counts, in each process, how often it is pickled and unpickled.

The one rule: counts are kept in a file for each process, since a scheduler of sealed calls runs
nothing that could be asked for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

#: Names the folder of the files; processes without it count nothing.
FOLDER = "SAFESER_BENCHMARK_COUNTED"


class Counted:
    """A plain object; its class is in a module that all processes import."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        note("P")
        return rebuilt, (self.number,)


def rebuilt(number: int) -> Counted:
    note("U")
    return Counted(number)


def note(letter: str) -> None:
    folder = os.environ.get(FOLDER)
    if folder:
        Path(folder).mkdir(exist_ok=True)
        # One write of one byte: threads of one process do not mix.
        with (Path(folder) / str(os.getpid())).open("ab", buffering=0) as file:
            file.write(letter.encode())


def counts(folder: Path, roles: Mapping[int, str]) -> dict[str, tuple[int, int]]:
    """Return pickles and unpickles by role, and forget them.

    :param roles: of the processes, by their ids.
    """
    found = dict.fromkeys(roles.values(), (0, 0))
    for pid, role in roles.items():
        file = folder / str(pid)
        if file.exists():
            letters = file.read_bytes()
            file.unlink()
            pickles, unpickles = found[role]
            found[role] = (pickles + letters.count(b"P"), unpickles + letters.count(b"U"))
    return found
