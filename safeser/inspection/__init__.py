"""Inspect a file from an untrusted source: its format, its content, and what would load it.

The one rule: nothing of a file is imported, called or built, and what it is follows from its
content, never from its name. Each format has one strict reader, which reads up to the last byte.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable

from safeser.errors import PayloadError, SafeserError
from safeser.inspection.archives import read_archive, read_array
from safeser.inspection.compressed import compression_of, inflate
from safeser.inspection.examination import Examination
from safeser.inspection.npy import NPY_START
from safeser.inspection.pickled import read_pickles
from safeser.inspection.report import Global, Part, Report, Verdict
from safeser.inspection.sealed import ENVELOPE_START, read_envelope
from safeser.inspection.source import Source
from safeser.inspection.zips import ZIP_STARTS

__all__ = ["Global", "Part", "Report", "Source", "Verdict", "examine"]

# As much as one header of a tar archive.
_HEAD = 512


def examine(source: Source, *, profiles: Iterable[str] = ()) -> Report:
    """Return what *source* is and holds, judged by *profiles* and those that they build on.

    :param profiles: without them all, or, if safeser is not what would load it, those of values.
    :raises ConfigError: there is no such profile. Whatever the file is, is no error but a report.
    """
    seen = Examination(source, tuple(profiles))
    try:
        _read(seen)
    except SafeserError as error:
        return seen.report(error)
    return seen.report()


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
    elif _is_tar(head):
        seen.is_a("tar", "a tar archive", loader="")
        raise PayloadError(
            "tar archives, PyTorch's before 0.1.10 among them, are not read here",
            rule="inspect.unknown",
            fix="Unpack it somewhere empty, and look at its files one by one.",
        )
    elif compression:
        seen.is_a("joblib", f"something compressed by {compression}", loader="")
        read_pickles(seen, inflate(source, compression), compression=compression)
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
