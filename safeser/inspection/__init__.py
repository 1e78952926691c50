"""Inspect a file from an untrusted source: its format, its content, and what would load it.

The one rule: nothing of a file is imported, called or built in this process, and what it is follows
from its content, never from its name. Each format has one strict reader, which reads up to the last
byte.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable

from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from safeser.inspection import trial
from safeser.inspection.archives import read_archive, read_array
from safeser.inspection.compressed import compression_of, inflate
from safeser.inspection.examination import Examination
from safeser.inspection.lists import known_format
from safeser.inspection.npy import NPY_START
from safeser.inspection.pickled import read_pickles
from safeser.inspection.report import Global, Part, Report, Verdict
from safeser.inspection.sealed import ENVELOPE_START, read_envelope
from safeser.inspection.source import Source
from safeser.inspection.zips import ZIP_STARTS

__all__ = ["Global", "Part", "Report", "Source", "Verdict", "examine"]

# As much as one header of a tar archive.
_HEAD = 512
_DEFAULTS = Limits()


def examine(source: Source, *, profiles: Iterable[str] = (), limits: Limits = _DEFAULTS) -> Report:
    """Return what *source* is and holds, judged by *profiles* and those that they build on.

    Pickles whose names all pass are loaded as ``safeser.pickles.loads`` does, because it judges
    values too: in a process of its own, unless they name nothing.

    :param profiles: without them all, or, if safeser is not what would load it, those of values.
    :raises ConfigError: there is no such profile. Whatever the file is, is no error but a report.
    """
    seen = Examination(source, tuple(profiles), limits)
    try:
        _read(seen)
    except SafeserError as error:
        return seen.report(error)
    report = seen.report()
    if report.verdict is Verdict.ALLOWED and seen.pickles:
        load = trial.load_apart if report.globals else trial.load_all
        return seen.report(load(seen.pickles, report.needs or ("data",), limits))
    return report


def _read(seen: Examination) -> None:
    source = seen.source
    head = source.read(0, min(source.size, _HEAD))
    compression = compression_of(head)
    if not head:
        raise PayloadError("the file is empty", rule="inspect.unknown")
    if head.startswith(NPY_START):
        read_array(seen)
    elif head.startswith(ZIP_STARTS):
        read_archive(seen)
    elif head.startswith(ENVELOPE_START):
        read_envelope(seen)
    elif known := known_format(head):
        seen.is_a("unknown", known[0], loader="")
        raise PayloadError(known[1], rule="inspect.unknown")
    elif _is_tar(head):
        seen.is_a("tar", "a tar archive", loader="")
        raise PayloadError(
            "tar archives, PyTorch's before 0.1.10 among them, are not read here",
            rule="inspect.unknown",
            fix="Unpack it somewhere empty, and look at its files one by one.",
        )
    elif compression:
        seen.is_a("joblib", f"something compressed by {compression}", loader="")
        data = inflate(source, compression)
        if data.startswith((NPY_START, *ZIP_STARTS)) or known_format(data) or _is_tar(data[:_HEAD]):
            raise PayloadError(
                f"only pickles and joblib files are read through {compression}, not this",
                rule="inspect.unknown",
                fix="Decompress it into a file of its own, and inspect that.",
            )
        read_pickles(seen, data, compression=compression)
    else:
        read_pickles(seen, source.whole())


def _is_tar(head: bytes) -> bool:
    """Whether PyTorch would take it for a tar archive before it takes it for anything older.

    It asks this very module, to which a header is one by its sum alone, whatever else it says.
    """
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True
