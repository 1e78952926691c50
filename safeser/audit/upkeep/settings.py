"""How the files of a log are kept: when they are rotated, compressed and removed, and their heads.

The one rule: what is not known is refused at the start. Sizes and times are texts with a unit, or
numbers of bytes and seconds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from safeser.audit.record import printable
from safeser.errors import ConfigError

__all__ = ["AuditFiles"]

_SIZE = re.compile(r"([1-9][0-9]{0,6})(KiB|MiB|GiB|TiB)\Z")
_BYTES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TIME = re.compile(r"([1-9][0-9]{0,6})([smhdw])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

_SMALLEST, _LARGEST = 64 << 10, 512 << 20  # compressed files are read back up to 1 GiB
_MOST = 1 << 50  # bytes or seconds; more than any disk or calendar has

_LONGEST_PLACE = 4_096

_Value: TypeAlias = str | int | bool | Sequence[str] | None


@dataclass(frozen=True, slots=True)
class AuditFiles:
    """How the files of an audit log are kept.

    :param rotate_size: a file that has so many bytes is closed, and the log goes on in another.
    :param rotate_age: seconds after which that happens, whatever the size; 0 for never.
    :param compress: whether closed files are compressed.
    :param keep_age: seconds after its end at which a closed file is removed; 0 for never.
    :param keep_size: bytes of all files of the directory above which the oldest closed files are
        removed; 0 for no limit.
    :param heads: places that the log's heads are written to: ``file:PATH``, ``syslog``,
        ``syslog:HOST:PORT``, ``command:PROGRAM ARGUMENTS``.
    :param heads_every: seconds between two of them; one is also written at each rotation and at the
        end.
    """

    rotate_size: int = 64 << 20
    rotate_age: int = 0
    compress: bool = True
    keep_age: int = 0
    keep_size: int = 0
    heads: tuple[str, ...] = ()
    heads_every: int = 60

    def __post_init__(self) -> None:
        if not _SMALLEST <= self.rotate_size <= _LARGEST:
            raise _refused("rotate-size", "is 64KiB to 512MiB")
        if (self.rotate_age and self.rotate_age < 1) or self.heads_every < 1:
            raise _refused("rotate-age", "is a second at least")
        if self.keep_size and self.keep_size < 2 * self.rotate_size:
            raise _refused("keep-size", "is twice rotate-size at least")
        for place in self.heads:
            if not _is_place(place):
                raise _refused("heads", f"has {printable(place)!r}", _HEADS_FIX)

    @property
    def is_timed(self) -> bool:
        """Whether something is due though no record is written."""
        return bool(self.rotate_age or self.keep_age or self.keep_size or self.heads)

    @property
    def tidies(self) -> bool:
        """Whether closed files are compressed or removed."""
        return self.compress or bool(self.keep_age or self.keep_size)

    @classmethod
    def parse(cls, section: Mapping[str, object]) -> AuditFiles:
        """Return what the section ``safeser.audit-files`` of the configuration says.

        :raises ConfigError: if it names a setting or a value that there is not.
        """
        known = {each.name: each for each in fields(cls)}
        values: dict[str, _Value] = {}
        for name, value in section.items():
            field = str(name).replace("-", "_")
            if field not in known:
                names = ", ".join(each.replace("_", "-") for each in known)
                raise _refused(printable(str(name)), "is not a setting", f"There are: {names}.")
            if value is not None:
                values[field] = _READ[field](str(name), value)
        return cls(**values)  # type: ignore[arg-type]  # each was read as its field is typed


def _size(name: str, value: object) -> int:
    if type(value) is int and 0 <= value <= _MOST:
        return value
    found = _SIZE.match(value) if isinstance(value, str) else None
    if found is None:
        raise _refused(name, "is a size", "Write a number of KiB, MiB, GiB or TiB: 64MiB.")
    return int(found[1]) * _BYTES[found[2]]


def _time(name: str, value: object) -> int:
    if type(value) is int and 0 <= value <= _MOST:
        return value
    found = _TIME.match(value) if isinstance(value, str) else None
    if found is None:
        raise _refused(name, "is a time", "Write a number and s, m, h, d or w: 90d.")
    return int(found[1]) * _SECONDS[found[2]]


def _is_place(text: str) -> bool:
    kind, _, rest = text.partition(":")
    if not text.isprintable() or len(text) > _LONGEST_PLACE:
        return False
    if kind == "syslog":
        return not rest or re.fullmatch(r".+:[0-9]{1,5}", rest) is not None
    if kind == "command":
        try:
            return bool(shlex.split(rest))
        except ValueError:
            return False
    return kind == "file" and bool(rest)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refused(name, "is true or false")
    return value


def _places(name: str, value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not all(isinstance(each, str) for each in found):
        raise _refused(name, "is a place or a list of them", _HEADS_FIX)
    return tuple(found)


_HEADS_FIX = "Write file:PATH, syslog, syslog:HOST:PORT or command:PROGRAM ARGUMENTS."

_READ: Final[Mapping[str, Callable[[str, object], _Value]]] = {
    "rotate_size": _size,
    "rotate_age": _time,
    "compress": _switch,
    "keep_age": _time,
    "keep_size": _size,
    "heads": _places,
    "heads_every": _time,
}


def _refused(name: str, what: str, fix: str = "") -> ConfigError:
    return ConfigError(
        f"safeser.audit-files.{name.replace('_', '-')} {what}", rule="config.audit-files", fix=fix
    )
