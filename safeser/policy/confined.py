"""The section ``confined:`` of a principal: what its processes must be unable to do.

The one rule: this is a demand and not a sandbox. The kernel confines; the process probes itself at
its start (:mod:`safeser.confinement`) and does not run where a probe shows that it is not confined.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import NoReturn

from safeser.policy.source.faults import UndefinedName, fault, shown
from safeser.policy.source.fields import Strict, stated
from safeser.policy.source.forms import FLAG, TEXT, Either, Listed, Reading
from safeser.policy.source.loader import Document
from safeser.policy.source.scope import Scope

__all__ = ["CONNECT_WORDS", "DEFAULT_PORTS", "Confined", "ConfinedModel", "read_confined"]

#: To which TCP ports a confined process may connect: those of its cluster, or any.
CONNECT_WORDS = ("cluster", "any")

#: The scheduler's port, and those that workers are told to take.
DEFAULT_PORTS = ("8786", "9000-9099")

#: A rule of the kernel's for each port: more make each connection slower.
_MOST_PORTS = 1_000

_PORTS = re.compile(r"([1-9][0-9]{0,4})(?:-([1-9][0-9]{0,4}))?\Z")


def _connect(word: str, scope: Scope) -> str:
    if word not in CONNECT_WORDS:
        raise UndefinedName(
            f"it cannot connect to {shown(word)}",
            rule="config.confined",
            name=word,
            known=lambda: CONNECT_WORDS,
        )
    return word


class ConfinedModel(Strict):
    """``confined: {read: [/data], write: [/scratch]}``: what a process must be unable to exceed.

    A worker probes itself at its start; see :class:`Confined`.
    """

    # Each is a rule of the kernel, which compares every path that is opened with all of them.
    read: tuple[str, ...] = stated(Listed(TEXT, once=True, most=64), default=(), spelled=[])
    """Folders and files that it may read, as absolute paths."""
    write: tuple[str, ...] = stated(Listed(TEXT, once=True, most=64), default=(), spelled=[])
    """Folders that it may write to, as absolute paths."""
    execute: bool = stated(FLAG, default=False)
    """Whether it may start programs."""
    connect: str = stated(
        Reading(TEXT, _connect, lambda made: {**made, "enum": list(CONNECT_WORDS)}),
        default="cluster",
        spelled="cluster",
    )
    """`cluster`: TCP to `ports`, and no other socket; or `any`."""
    ports: tuple[str | int, ...] | None = stated(Listed(Either(), least=1, most=64), default=None)
    """Ports of its cluster, which it may listen at and connect to: 8786, or `9000-9099`."""


@dataclass(frozen=True, slots=True)
class Confined:
    """What a process may do beyond computing; it must be unable to do anything else.

    :param read: folders and files that it may read, beside those that Python and safeser need.
    :param write: folders in which it may read and write.
    :param execute: whether it may start programs.
    :param connect: ``cluster``, TCP with *ports* and no other socket, or ``any``.
    :param ports: where processes of its cluster listen, itself included.
    """

    read: tuple[str, ...]
    write: tuple[str, ...]
    execute: bool
    connect: str
    ports: tuple[range, ...]

    @property
    def digest(self) -> str:
        """A SHA-256 that is equal for equal demands."""
        said = {**asdict(self), "ports": [[each.start, each.stop] for each in self.ports]}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def sentences(self) -> Iterable[tuple[str, str]]:
        """Yield a label and a sentence for each part of the demand, for people."""
        yield "reads", ", ".join(self.read) or "what Python needs, and nothing else"
        yield "writes", ", ".join(self.write) or "its log, and nothing else"
        yield "starts", "any program" if self.execute else "no program"
        ports = ", ".join(
            str(each.start) if len(each) == 1 else f"{each.start}-{each.stop - 1}"
            for each in self.ports
        )
        yield "connects", "anywhere" if self.connect == "any" else f"by TCP to ports {ports}"


def read_confined(model: ConfinedModel, name: str, document: Document) -> Confined:
    """Return what ``confined:`` of the principal *name* demands.

    :raises ConfigError: at the first place where it means nothing definite.
    """
    reader = _Reader(name, document)
    for field in ("read", "write"):
        for index, path in enumerate(getattr(model, field)):
            reader.check_path(field, index, path)
    for index, path in enumerate(model.read):
        if any(path == folder or path.startswith(f"{folder}/") for folder in model.write):
            reader.refuse("what it may write, it may read", "read", index, fix="Take it out.")
    if model.connect == "any" and model.ports is not None:
        reader.refuse(
            "ports have no effect where it may connect to any", "ports", fix="Take one out."
        )
    return Confined(
        read=model.read,
        write=model.write,
        execute=model.execute,
        connect=model.connect,
        ports=reader.ports(model.ports or DEFAULT_PORTS) if model.connect == "cluster" else (),
    )


class _Reader:
    """Reads ``confined:`` of one principal; holds what every complaint needs."""

    def __init__(self, name: str, document: Document) -> None:
        self._name = name
        self._document = document

    def refuse(self, message: str, *path: str | int, fix: str = "") -> NoReturn:
        raise fault(
            f"principal {self._name!r}: {message}",
            source=self._document.source,
            place=self._document.place(("principals", self._name, "confined", *path)),
            rule="config.confined",
            fix=fix,
        )

    def check_path(self, field: str, index: int, path: str) -> None:
        if not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//"):
            self.refuse(
                f"{shown(path)} is not an absolute path as short as it can be written",
                field,
                index,
                fix="Write it from / on, without '.', '..' and a '/' at its end.",
            )
        if path == "/":
            self.refuse("/ is every file", field, index, fix="Name folders below it.")

    def ports(self, spelled: Iterable[str | int]) -> tuple[range, ...]:
        found = [self._range(index, str(each)) for index, each in enumerate(spelled)]
        if sum(map(len, found)) > _MOST_PORTS:
            self.refuse(f"it may name {_MOST_PORTS:,} ports at most", "ports")
        return tuple(found)

    def _range(self, index: int, text: str) -> range:
        match = _PORTS.match(text)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= 65535:
            self.refuse(
                f"{shown(text)} is neither a port nor a range of ports",
                "ports",
                index,
                fix="Write 8786, or 9000-9099.",
            )
        return range(first, last + 1)
