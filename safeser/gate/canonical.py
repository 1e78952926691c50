"""Canonical MessagePack, for claims and for headers of library messages.

The one rule: bytes are read only if packing the value gives the same bytes again. So nothing is
read that two readers could understand differently: wider forms than needed, a key twice, bytes
after the end.
"""

from __future__ import annotations

from typing import Any

import msgpack

#: Bytes of which msgpack reserves 3 MB at most: containers inside each other have three each.
_SHORT = 1 << 10


def pack(value: Any) -> bytes:
    """Return plain values as MessagePack, each in its shortest form; floats take 64 bits."""
    packed: bytes = msgpack.packb(value)
    return packed


def unpack(data: bytes | bytearray | memoryview) -> Any:
    """Return the value that *data* spells.

    A long one is passed over once before anything is made of it: msgpack reserves up to 64 KiB for
    what each of 1,024 containers inside each other claims to hold, whether that is there or not.

    :raises ValueError: for whatever :func:`pack` would not have written, extension types and keys
        of maps that are not text included.
    """
    try:
        if len(data) > _SHORT:
            scanner = msgpack.Unpacker(max_buffer_size=len(data))
            scanner.feed(data)
            scanner.skip()
        value = msgpack.unpackb(
            data, object_pairs_hook=_map, ext_hook=_no_extension, max_ext_len=0, strict_map_key=True
        )
        again = pack(value)
    except (msgpack.UnpackException, TypeError, OverflowError, RecursionError) as error:
        raise ValueError("that is not MessagePack of plain values") from error
    if again != data:
        raise ValueError("that is not the shortest encoding of what it says")
    return value


def _map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs) or not all(type(key) is str for key in made):
        raise ValueError("keys are text, and each stands once")
    return made


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError("there are no extension types here")
