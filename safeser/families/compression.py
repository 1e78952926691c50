"""Compress frames where that saves bytes, and decompress them to exactly the declared length.

The one rule: the decompressed length is known, and within limits, before memory is allocated. A
frame that holds more, less or trailing data is refused.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from safeser.errors import ConfigError, PayloadError

__all__ = ["CODECS", "available", "compressed", "decompressed", "resolve"]

#: In the order of preference of ``auto``: the fast ones only, as in Dask.
CODECS = ("lz4", "zstd", "zlib")
_AUTO = ("lz4", "zstd")

#: Smaller frames are not worth it, and what cannot be cut to this is not either; as in Dask.
MIN_SIZE = 10_000
_MIN_RATIO = 0.7
_SAMPLES = 5
_SAMPLE_SIZE = 10_000

#: What the libraries take at once.
_MAX_SIZE = 0x7E000000

#: The most that a byte can become: no real frame declares more. LZ4's lengths grow by 255 for
#: a byte, deflate's best is 258 bytes for two bits, a Zstandard block makes 128 KiB of four bytes.
_MOST = {"lz4": 255, "zlib": 1032, "zstd": 1 << 15}
_HEADROOM = 1 << 10

#: A Zstandard frame and nothing else: no skippable frame, no dictionary by its own magic.
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True)
class _Codec:
    compress: Callable[[memoryview], bytes]
    decompress: Callable[[memoryview, int], bytes | bytearray]


def available(name: str) -> bool:
    """Tell whether this process can compress and decompress by *name*."""
    return name in CODECS and _codec(name) is not None


def resolve(wanted: str | bool | None) -> str | None:
    """Return the codec for the option *wanted*; None for no compression.

    :raises ConfigError: if there is no such codec, or it is not installed.
    """
    if wanted is None or wanted is False:
        return None
    if wanted == "auto":
        return next((name for name in _AUTO if available(name)), None)
    if not isinstance(wanted, str) or wanted not in CODECS:
        raise ConfigError(
            f"compression is one of {', '.join(CODECS)}, 'auto' or None",
            rule="families.compression",
        )
    if not available(wanted):
        raise ConfigError(
            f"compression by {wanted} needs a package that is not installed",
            rule="families.compression",
            fix=f"Install {_PACKAGES[wanted]}, or choose another.",
        )
    return wanted


def compressed(frame: Any, name: str) -> bytes | None:
    """Return *frame* compressed by *name*, or None where that would not pay."""
    view = memoryview(frame).cast("B")
    codec = _codec(name)
    if codec is None or not MIN_SIZE <= view.nbytes <= _MAX_SIZE:
        return None
    sample = _sample(view)
    if len(codec.compress(sample)) > _MIN_RATIO * sample.nbytes:
        return None
    body = codec.compress(view)
    return body if len(body) <= _MIN_RATIO * view.nbytes else None


def _sample(view: memoryview) -> memoryview:
    """Return runs from all over *view*: its beginning alone may be unlike the rest."""
    if view.nbytes <= _SAMPLES * _SAMPLE_SIZE:
        return view
    step = (view.nbytes - _SAMPLE_SIZE) // (_SAMPLES - 1)
    runs = [view[start : start + _SAMPLE_SIZE] for start in range(0, step * _SAMPLES, step)]
    return memoryview(b"".join(runs))


def decompressed(frame: memoryview, name: str, length: int, *, where: str) -> bytes | bytearray:
    """Decompress *frame*, or refuse it unless it holds exactly *length* bytes.

    :param length: what the header declares; already within limits.
    :raises PayloadError: for anything else, before more than *length* bytes are taken.
    """
    codec = _codec(name) if name in CODECS else None
    if codec is None:
        raise PayloadError(
            "a frame is compressed in a way that is not known or not installed here",
            rule="families.compression",
            where=where,
            fix=f"Install {_PACKAGES[name]}." if name in CODECS else "",
        )
    if not 0 < length <= _MOST[name] * frame.nbytes + _HEADROOM or length > _MAX_SIZE:
        raise _wrong("a compressed frame cannot hold as much as it declares", where)
    try:
        whole = codec.decompress(frame, length)
    # Each library has errors of its own; what they say may quote the frame.
    except Exception:
        raise _wrong("a compressed frame differs from its declaration", where) from None
    if len(whole) != length:
        raise _wrong("the decompressed length of a frame differs from the declared one", where)
    return whole


def _wrong(message: str, where: str) -> PayloadError:
    return PayloadError(message, rule="families.compression", where=where)


_PACKAGES = {"lz4": "lz4", "zstd": "zstandard", "zlib": "zlib"}


def _open_zlib(frame: memoryview, length: int) -> bytes:
    opener = zlib.decompressobj()
    # A length of zero would mean "no bound"; the caller refuses it.
    whole = opener.decompress(frame, length)
    # The end may lie behind the last byte of output; asking for one more finds what is too much.
    more = b"" if opener.eof else opener.decompress(opener.unconsumed_tail, 1)
    if more or not opener.eof or opener.unused_data or opener.unconsumed_tail:
        raise ValueError("no end, or something behind it")
    return whole


def _lz4() -> _Codec:
    from lz4 import block  # noqa: PLC0415 - optional

    # Without the size that the library puts in front: the one declared length is the header's.
    def decompress(frame: memoryview, length: int) -> bytearray:
        whole: bytearray = block.decompress(frame, uncompressed_size=length, return_bytearray=True)
        return whole

    return _Codec(lambda view: bytes(block.compress(view, store_size=False)), decompress)


def _zstd() -> _Codec:
    import zstandard  # noqa: PLC0415 - optional

    def decompress(frame: memoryview, length: int) -> bytes:
        if frame[:4] != _ZSTD_MAGIC:
            raise ValueError("not one frame of Zstandard")
        about = zstandard.get_frame_parameters(frame)
        # The library takes what the frame itself declares, whatever it is told: so both must agree,
        # and the window, which it takes besides, be no larger than honest ones of that length.
        if about.content_size != length or about.dict_id:
            raise ValueError("another length, or a dictionary")
        if about.window_size > max(2 * length, 1 << 18):
            raise ValueError("a window larger than its content")
        opener = zstandard.ZstdDecompressor()
        # Data behind the first frame is refused rather than dropped.
        whole: bytes = opener.decompress(frame, max_output_size=length, allow_extra_data=False)
        return whole

    return _Codec(lambda view: bytes(zstandard.ZstdCompressor().compress(view)), decompress)


_MAKERS: dict[str, Callable[[], _Codec]] = {
    "lz4": _lz4,
    "zstd": _zstd,
    "zlib": lambda: _Codec(zlib.compress, _open_zlib),
}


@cache
def _codec(name: str) -> _Codec | None:
    return _MAKERS[name]() if find_spec(_PACKAGES[name]) else None
