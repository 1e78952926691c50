"""Report on a file: its format, the globals that it uses, and whether they are allowed.

The one rule: a file is fine only if every byte of it was read, every use of a global is listed and,
where safeser loads such files, it did load this one. Any other is refused, over a limit or, where
nothing more can be said, unreadable.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from safeser.pickles.inspection import Inspection

__all__ = ["Global", "Part", "Report", "Verdict"]

#: Of the JSON; a person is shown fewer.
_MAX_GLOBALS = 1000
_MAX_PARTS = 200
_MAX_TREES = 20
SCHEMA = 1


class Verdict(enum.Enum):
    """The verdict on a file; ``code`` is the exit code."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    UNREADABLE = "unreadable"
    OVER_LIMIT = "over-limit"

    @property
    def code(self) -> int:
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Global:
    """Uses of one global in one role, in one part of the file.

    :param name: ``module:qualname``, printable and short.
    :param role: ``called``, ``instantiated``, ``built``, ``referenced`` or ``persistent``.
    :param allowed_by: the profile, or the format's own list, that allows it; empty if none does.
    :param problem: why it is refused, or the empty string.
    :param offset: byte of *part* at which it is first used so.
    """

    name: str
    role: str
    allowed_by: str
    problem: str
    part: str
    offset: int
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "role": self.role,
            "allowed": not self.problem,
            "allowed_by": self.allowed_by,
            "problem": self.problem,
            "part": self.part,
            "offset": self.offset,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a file: a pickle, an array's bytes, a record of an archive.

    :param name: of the record in its archive, or of what it is.
    :param what: what it holds, in a few words.
    :param inspection: of a pickle, its tree.
    """

    name: str
    what: str
    offset: int
    size: int
    inspection: Inspection | None = field(default=None, repr=False)

    def as_dict(self, *, tree: bool) -> dict[str, Any]:
        told: dict[str, Any] = {
            "name": self.name,
            "what": self.what,
            "offset": self.offset,
            "bytes": self.size,
        }
        if self.inspection is not None:
            told["protocol"] = self.inspection.program.protocol
            if tree:
                told["tree"] = self.inspection.as_dict()["tree"]
        return told


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of :func:`safeser.inspection.examine`.

    :param kind: ``pickle``, ``joblib``, ``npy``, ``npz``, ``torch``, ``torch-legacy``, ``zip``,
        ``tar``, ``envelope`` or ``unknown``.
    :param title: the same for people, with the compression if there is one.
    :param profiles: by which it was judged, those that they build on included.
    :param reason: one sentence; *fix* says what could be changed, and at what risk.
    :param loader: what reads such a file as it was judged.
    :param compression: what has to be undone before *loader* reads it.
    :param limits: those that were given, if not the default.
    """

    kind: str
    title: str
    size: int
    profiles: tuple[str, ...]
    verdict: Verdict
    reason: str
    rule: str = ""
    fix: str = ""
    loader: str = ""
    compression: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    globals: Sequence[Global] = ()
    parts: Sequence[Part] = ()
    needs: tuple[str, ...] = ()

    def as_dict(self, *, tree: bool = True) -> dict[str, Any]:
        """Return the report as values for JSON, of bounded size for any file.

        :param tree: give the first twenty pickles' trees; see ``Inspection.as_dict``.
        """
        trees = 0
        parts = []
        for part in self.parts[:_MAX_PARTS]:
            trees += part.inspection is not None
            parts.append(part.as_dict(tree=tree and trees <= _MAX_TREES))
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "title": self.title,
            "bytes": self.size,
            "profiles": list(self.profiles),
            "verdict": self.verdict.value,
            "exit_code": self.verdict.code,
            "permitted": self.verdict is Verdict.ALLOWED,
            "reason": self.reason,
            "rule": self.rule,
            "fix": self.fix,
            "loader": self.loader,
            "compression": self.compression,
            "limits": dict(self.limits),
            "needs": list(self.needs),
            "globals": [use.as_dict() for use in self.globals[:_MAX_GLOBALS]],
            "globals_in_all": len(self.globals),
            "parts": parts,
            "parts_in_all": len(self.parts),
        }
