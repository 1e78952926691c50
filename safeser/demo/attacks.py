"""The attacks, as a table: what is sent, by whom, to whom, and what stock Dask makes of it.

The one rule: each is written once, and the same messages go to both clusters. How they are made is
in :mod:`safeser.demo.messages` and :mod:`safeser.demo.rogue`; this table needs no Dask.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ATTACKS", "Attack", "markers"]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    :param name: names its marker files and messages.
    :param what: what is sent, for the reader.
    :param attacker: ``stranger`` (no key), ``impostor`` (a key that nobody lists), ``bob``,
        ``worker`` (a worker's key) or ``alice``.
    :param recipient: ``scheduler``, ``worker`` or ``alice``: whom it is meant to run code in.
    :param forms: how many messages: the one that stock Dask understands and, where its header means
        nothing to safeser, its translation.
    :param leaks: whether it reads a secret instead of making a file.
    """

    name: str
    what: str
    attacker: str
    recipient: str
    forms: int = 1
    leaks: bool = False


ATTACKS = (
    Attack("stranger-scheduler", "__Pickled__ in handshake", "stranger", "scheduler"),
    Attack("stranger-worker", "__Pickled__ in handshake", "stranger", "worker"),
    Attack("impostor", "the same, unlisted key", "impostor", "scheduler"),
    Attack("pickled", "__Pickled__ admin message", "bob", "scheduler", forms=2),
    Attack("type-serialized", "pickled type-serialized", "bob", "worker"),
    Attack("object-array", "object-dtype array", "bob", "worker", forms=2),
    Attack("run", "run", "bob", "worker"),
    Attack("run-function", "run_function", "bob", "scheduler"),
    Attack("upload-file", "upload_file, no pickle", "bob", "worker"),
    Attack("enum", "__Enum__ through echo", "bob", "scheduler", leaks=True),
    Attack("update-graph", "update-graph with code", "bob", "scheduler"),
    Attack("error-reply", "exception in error reply", "worker", "alice", forms=2),
    Attack("warn-event", "warn event", "worker", "alice"),
    Attack("result-type", "key-in-memory type", "worker", "alice"),
)


def markers(folder: Path, attack: Attack) -> list[Path]:
    """Return the files that the messages of *attack* would make."""
    return [folder / f"{attack.name}-{form}" for form in range(attack.forms)]
