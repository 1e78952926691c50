"""Decompress pickles as joblib writes them: one stream, up to a bounded size.

The one rule: the output is bounded, in total and in proportion to the input, before it is produced,
and the stream must end where the file ends.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

from safeser.errors import PayloadError
from safeser.inspection.source import MAX_HELD, Source, cut_off, too_large

__all__ = ["compression_of", "inflate"]

_CHUNK = 1 << 20
# Arrays of zeros compress far better than deflate's 1,032; a few of them are free.
_FREE, _RATIO = 64 << 20, 200
# What a stream's header may make the decoder set aside; the presets of xz take 65 MiB at most.
_LZMA_MEMORY = 128 << 20


def _lzma(form: int) -> Callable[[], Any]:
    return lambda: lzma.LZMADecompressor(form, memlimit=_LZMA_MEMORY)


# The bytes by which joblib itself tells them apart, and, where those are few, what follows them.
_STARTS: tuple[tuple[bytes, str, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", "gzip", lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)),
    (b"BZh", "bz2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", "xz", _lzma(lzma.FORMAT_XZ)),
    (b"\x5d\x00", "lzma", _lzma(lzma.FORMAT_ALONE)),
    (b"\x78", "zlib", zlib.decompressobj),
)


def compression_of(head: bytes) -> str:
    """Return the codec of a file that begins with *head*, or an empty string."""
    return next((name for start, name, _ in _STARTS if head.startswith(start)), "")


def inflate(source: Source, name: str) -> bytes:
    """Decompress *source*, which the codec *name* compressed."""
    make = next(make for _, known, make in _STARTS if known == name)
    engine, made, given = make(), bytearray(), 0
    try:
        while not engine.eof and given < source.size:
            raw = source.read(given, min(_CHUNK, source.size - given))
            given += len(raw)
            _feed(engine, raw, made, given)
    except (zlib.error, lzma.LZMAError, OSError, EOFError):
        raise PayloadError(
            f"the file does not decompress by {name}",
            rule="inspect.damaged",
            where=f"byte {given}",
            fix="Have it sent again.",
        ) from None
    if not engine.eof:
        raise cut_off("the compressed stream is cut off", source.size)
    if engine.unused_data or given < source.size:
        raise PayloadError(
            "there is data after the compressed stream",
            rule="inspect.trailing",
            where=f"byte {given - len(engine.unused_data)}",
            fix="Readers differ in whether they go on there; have it written again.",
        )
    return bytes(made)


def _feed(engine: Any, raw: bytes, made: bytearray, given: int) -> None:
    """Inflate all of *raw* onto *made*, a bounded piece at a time."""
    while True:
        out = engine.decompress(raw, _CHUNK)
        made += out
        if len(made) > MAX_HELD:
            raise too_large("the file, decompressed,")
        if len(made) > _FREE + given * _RATIO:
            raise PayloadError(
                f"the file becomes {_RATIO} times as large, or more",
                rule="inspect.bomb",
                where=f"byte {given}",
                fix="Decompress it where there is room for it, and inspect what comes out.",
            )
        # zlib hands back what it did not get to; the others keep it and say so.
        raw = getattr(engine, "unconsumed_tail", b"")
        if engine.eof or (not raw and (len(out) < _CHUNK or getattr(engine, "needs_input", False))):
            return
