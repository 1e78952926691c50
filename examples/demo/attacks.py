"""The table of attacks: message, sender, recipient.

Each attack is listed once, and both clusters get the same messages. :mod:`examples.demo.messages`
and :mod:`examples.demo.rogue` build them; this table needs no Dask.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ATTACKS", "Attack", "markers"]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    :param name: the prefix of its marker files, and its key in ``BUILDERS``.
    :param what: the message, as the table shows it.
    :param attacker: ``stranger`` (no key), ``impostor`` (a key that is not in the roster), ``bob``
        or ``worker`` (a worker's key).
    :param recipient: ``scheduler``, ``worker`` or ``alice``: the process that it targets.
    :param forms: number of messages: the one for stock Dask and, where safeser does not know its
        header, the same content under safeser's header.
    :param leaks: whether it reads a secret instead of creating a file.
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
    """Return the files that the messages of *attack* would create."""
    return [folder / f"{attack.name}-{form}" for form in range(attack.forms)]
