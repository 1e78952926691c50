"""Read zip archives strictly, so that every other reader sees the same entries.

The one rule: the central directory and the local headers must agree, and the entries must cover the
file from its first byte to the directory without gaps. Where they do not, scanners and loaders
disagree: on names, flags, sizes, on which of two equal names counts, and on the bytes between.
Only the subset that PyTorch and NumPy write is read: stored or deflated, no encryption, no
comments.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from safeser.errors import PayloadError
from safeser.inspection.source import MAX_HELD, Source, cut_off, too_large

__all__ = ["ZIP_STARTS", "Archive", "Entry"]

ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")

_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_DESCRIPTOR = struct.Struct("<4s3I")
_DESCRIPTOR64 = struct.Struct("<4sI2Q")

_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
# Sizes follow the data; names are UTF-8; how hard deflate tried. No encryption, no patches.
_LATER, _UTF8, _EFFORT = 1 << 3, 1 << 11, 0b110
_STORED, _DEFLATED = 0, 8
_NEWEST = 63  # the version of the format, 6.3, above which zipfile reads nothing
_ZIP64 = 0x0001
# PyTorch's padding ("FB"), and times and owners. Not 0x7075, which gives an entry another name.
_HARMLESS = frozenset({0x4246, 0x5455, 0x7875, 0x000A})

_MAX_ENTRIES = 100_000
_MAX_DIRECTORY = 32 << 20
_MAX_NAME = 512
_CHUNK = 1 << 20
# Deflate makes at most 1,032 bytes of one; honest arrays compress some times.
_FREE, _RATIO = 64 << 20, 200
_NAME = re.compile(r"[^\x00-\x1f\x7f\\:*?\"<>|]+\Z")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file in an archive: the place of its data, and the fields of both headers."""

    name: str
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    header: int
    offset: int = 0


class Archive:
    """A zip archive whose headers have been read and found to agree; its data has not been."""

    def __init__(self, source: Source) -> None:
        self._source = source
        directory, size, count, end = self._find_directory()
        entries = self._read_directory(source.read(directory, size), count, directory)
        self.entries = tuple(self._located(entries, directory))
        seen: set[str] = set()
        for entry in self.entries:
            # PyTorch looks names up without regard to case.
            folded = entry.name.lower()
            if folded in seen:
                raise _bad("has two entries of one name", entry.header)
            seen.add(folded)
        packed = sum(e.packed for e in self.entries if e.method == _DEFLATED)
        unpacked = sum(e.size for e in self.entries if e.method == _DEFLATED)
        if unpacked > _FREE + packed * _RATIO:
            raise PayloadError(
                f"the archive says that it becomes {_RATIO} times as large, or more",
                rule="inspect.bomb",
                fix="Unpack it where there is room for it, and inspect what comes out.",
            )
        self.end = end

    # -- the directory -----------------------------------------------------------------------

    def _find_directory(self) -> tuple[int, int, int, int]:
        """Return offset and size of the directory, and how many entries it has."""
        source = self._source
        end = source.size - _END.size
        if end < 0:
            raise cut_off("the archive has no end", source.size)
        mark, disk, first, here, count, size, offset, comment = _END.unpack(
            source.read(end, _END.size)
        )
        if mark != b"PK\x05\x06":
            raise cut_off("the archive does not end with its directory", end)
        if disk or first or here != count or comment:
            raise _bad("has parts or a comment", end)
        directory_end = end
        if end >= _LOCATOR.size:
            found = source.read(end - _LOCATOR.size, _LOCATOR.size)
            if found.startswith(b"PK\x06\x07"):
                stated = (count, size, offset)
                directory_end, count, size, offset = self._read_end64(found, end, stated)
        if offset + size != directory_end:
            raise _bad("has a directory that is not where its end says", end)
        if count > _MAX_ENTRIES or size > _MAX_DIRECTORY:
            raise too_large("the archive's directory")
        return offset, size, count, end

    def _read_end64(
        self, locator: bytes, end: int, stated: tuple[int, int, int]
    ) -> tuple[int, int, int, int]:
        _, disk, at, disks = _LOCATOR.unpack(locator)
        if disk or disks != 1 or at + _END64.size + _LOCATOR.size != end:
            raise _bad("has a second end that is not before its end", end)
        mark, length, _, _, disk, first, here, count, size, offset = _END64.unpack(
            self._source.read(at, _END64.size)
        )
        if mark != b"PK\x06\x06" or length != _END64.size - 12 or disk or first or here != count:
            raise _bad("has a second end that is none", at)
        full = (_FULL16, _FULL32, _FULL32)
        for short, most, long in zip(stated, full, (count, size, offset), strict=True):
            if short not in (most, long):
                raise _bad("has two ends that contradict each other", at)
        return at, count, size, offset

    def _read_directory(self, raw: bytes, count: int, base: int) -> Iterator[Entry]:
        at = 0
        for _ in range(count):
            if at + _CENTRAL.size > len(raw):
                raise _bad("has fewer entries than its end says", base + at)
            fields = _CENTRAL.unpack_from(raw, at)
            mark, _, needed, flags, method, _, _, crc, packed, size = fields[:10]
            names, extras, comments, disk, _, _, header = fields[10:]
            name_at = at + _CENTRAL.size
            end = name_at + names + extras + comments
            if mark != b"PK\x01\x02" or disk or comments or end > len(raw):
                raise _bad("has an entry that is none, or has a comment", base + at)
            name = _name_of(raw[name_at : name_at + names], flags, base + at)
            extra = _extra(raw[name_at + names : end], base + at)
            size, packed, header = _widened(extra, (size, packed, header), base + at)
            if flags & ~(_LATER | _UTF8 | (_EFFORT if method == _DEFLATED else 0)):
                raise _bad("has an entry that is encrypted or has unknown flags", base + at)
            if needed > _NEWEST:
                raise _bad("has an entry of a later version of the format", base + at)
            if method not in (_STORED, _DEFLATED):
                raise _bad("has an entry that is neither stored nor deflated", base + at)
            yield Entry(name, flags, method, crc, packed, size, header)
            at = end
        if at != len(raw):
            raise _bad("has more in its directory than its entries", base + at)

    # -- the local headers ---------------------------------------------------------------------

    def _located(self, entries: Iterator[Entry], directory: int) -> Iterator[Entry]:
        """Yield the entries with the place of their data, which must follow one on another."""
        at = 0
        known = list(entries)
        ends = [entry.header for entry in known[1:]] + [directory]
        for entry, after in zip(known, ends, strict=False):  # of no entries there is one end
            if entry.header != at:
                raise _bad("has bytes between its entries, or entries out of order", at)
            yield self._with_local(entry, after)
            at = after
        if at != directory:
            raise _bad("has bytes before its directory", at)

    def _with_local(self, entry: Entry, after: int) -> Entry:
        """Return *entry* with the place of its data, if its local header agrees."""
        at = entry.header
        mark, _, flags, method, _, _, crc, packed, size, names, extras = _LOCAL.unpack(
            self._source.read(at, _LOCAL.size)
        )
        if mark != b"PK\x03\x04" or (flags, method) != (entry.flags, entry.method):
            raise _bad("has an entry with two different headers", at)
        rest = self._source.read(at + _LOCAL.size, names + extras)
        if _name_of(rest[:names], flags, at) != entry.name:
            raise _bad("has an entry with two different names", at)
        size, packed, _ = _widened(_extra(rest[names:], at), (size, packed, 0), at)
        stated, found = (entry.crc, entry.packed, entry.size), (crc, packed, size)
        # Fields that are known after the data only may be zero here, but must not differ.
        if found != stated and not (flags & _LATER and found == (0, 0, 0)):
            raise _bad("has an entry with two different sizes or checksums", at)
        offset = at + _LOCAL.size + names + extras
        if entry.method == _STORED and entry.packed != entry.size:
            raise _bad("has an entry with two different sizes or checksums", at)
        self._check_descriptor(entry, offset + entry.packed, after)
        return Entry(
            entry.name, flags, method, entry.crc, entry.packed, entry.size, at, offset=offset
        )

    def _check_descriptor(self, entry: Entry, begin: int, end: int) -> None:
        """Check that nothing but the entry's descriptor stands between its data and *end*."""
        known: dict[int, struct.Struct] = {}
        if entry.flags & _LATER:
            known = {form.size: form for form in (_DESCRIPTOR, _DESCRIPTOR64)}
        if end == begin and not entry.flags & _LATER:
            return
        form = known.get(end - begin)
        if form is None:
            raise _bad("has bytes between its entries, or entries that overlap", begin)
        stated = (b"PK\x07\x08", entry.crc, entry.packed, entry.size)
        if form.unpack(self._source.read(begin, form.size)) != stated:
            raise _bad("has an entry with two different sizes or checksums", begin)

    # -- data ------------------------------------------------------------------------------------

    def head(self, entry: Entry, most: int) -> bytes:
        """Read all of *entry*, check it, and return its first *most* bytes."""
        kept = bytearray()
        for chunk in self._chunks(entry):
            kept += chunk[: max(0, most - len(kept))]
        return bytes(kept)

    def whole(self, entry: Entry) -> bytes:
        """Return all of *entry*, if that can be held."""
        if entry.size > MAX_HELD:
            raise too_large("an entry of the archive")
        return self.head(entry, entry.size)

    def _chunks(self, entry: Entry) -> Iterator[bytes]:
        crc = made = 0
        for chunk in self._inflated(entry) if entry.method == _DEFLATED else self._stored(entry):
            crc = zlib.crc32(chunk, crc)
            made += len(chunk)
            if made > entry.size:
                break
            yield chunk
        if made != entry.size or crc != entry.crc:
            raise _bad(
                "has an entry that is damaged: its checksum or size is another", entry.offset
            )

    def _stored(self, entry: Entry) -> Iterator[bytes]:
        for at in range(0, entry.packed, _CHUNK):
            yield self._source.read(entry.offset + at, min(_CHUNK, entry.packed - at))

    def _inflated(self, entry: Entry) -> Iterator[bytes]:
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for raw in self._stored(entry):
                pending, full = raw, False
                while pending or full:
                    if engine.eof:
                        raise _bad("has an entry whose data goes on behind its end", entry.offset)
                    out = engine.decompress(pending, _CHUNK)
                    yield out
                    pending = engine.unconsumed_tail
                    full = len(out) == _CHUNK and not engine.eof
        except zlib.error:
            raise _bad("has an entry that does not inflate", entry.offset) from None
        if not engine.eof or engine.unused_data:
            raise _bad("has an entry whose data ends early or late", entry.offset)


def _name_of(raw: bytes, flags: int, at: int) -> str:
    try:
        # Without the flag, what is not ASCII means another name to each reader.
        name = raw.decode("utf-8" if flags & _UTF8 else "ascii")
    except ValueError:
        raise _bad("has an entry whose name does not decode", at) from None
    parts = name.split("/")
    if len(raw) > _MAX_NAME or not _NAME.match(name) or {"", ".", ".."} & set(parts):
        raise _bad("has an entry whose name is no plain relative path", at)
    return name


def _extra(raw: bytes, at: int) -> bytes:
    """Return what the zip64 field of the extra fields *raw* holds."""
    found: dict[int, bytes] = {}
    pos = 0
    while pos < len(raw):
        if pos + 4 > len(raw):
            raise _bad("has an entry with broken extra fields", at)
        kind, size = struct.unpack_from("<2H", raw, pos)
        pos += 4 + size
        known = kind == _ZIP64 or kind in _HARMLESS
        if pos > len(raw) or kind in found or not known:
            raise _bad("has an entry with broken or unknown extra fields", at)
        found[kind] = raw[pos - size : pos]
    return found.get(_ZIP64, b"")


def _widened(extra: bytes, fields: tuple[int, int, int], at: int) -> tuple[int, int, int]:
    """Return size, packed size and offset, each from *extra* where its own field is full."""
    # Python before 3.11.4 repeated the sizes in local headers, whose own fields said them already.
    if _FULL32 not in fields and extra == struct.pack("<2Q", *fields[:2]):
        return fields
    widths = [8 if field == _FULL32 else 0 for field in fields]
    if sum(widths) != len(extra):
        raise _bad("has an entry with sizes of 64 bits for no reason", at)
    values = iter(struct.unpack(f"<{len(extra) // 8}Q", extra))
    size, packed, header = (
        next(values) if width else field for field, width in zip(fields, widths, strict=True)
    )
    return size, packed, header


def _bad(message: str, at: int) -> PayloadError:
    return PayloadError(
        f"the archive {message}",
        rule="inspect.zip",
        where=f"byte {at}",
        fix="Readers would see different things in it; have it written again.",
    )
