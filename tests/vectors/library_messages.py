"""Library messages of docs/reference/envelope-v1.md, valid and invalid, for the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

# --- library messages ---------------------------------------------------------------------------

PLAIN = {"serializer": "msgpack"}
ARRAY = {
    "serializer": "dask",
    "type": "numpy:ndarray",
    "sub-header": {"shape": [2], "order": "C", "writeable": True, "dtype": "<i2"},
}


def library_messages() -> list[dict[str, Any]]:
    """Headers and frames that stand for a value, which is written in the words of JSON."""
    mark = {kind: bytes((0xC7, 0, code)) for code, kind in enumerate(("tuple", "set"), 1)}
    names = b"\x93" + mark["tuple"] + b"\xa1a\xa1b"
    pair = {"serializer": "collection", "type": "dict", "sub-headers": [PLAIN, PLAIN, ARRAY]}
    failure = ["builtins:KeyError", "'k'", None, "", ["a note"], None, None, False, [], {}, []]
    made: list[tuple[str, Any, str, str | None, list[bytes], Any]] = [
        ("a number", PLAIN, "data", None, [b"\x05"], 5),
        ("an operation", PLAIN, "data", "scatter", [b"\xc0"], None),
        ("each kind", PLAIN, "control", "", [b"\x90"], []),
        (
            "text and bytes",
            PLAIN,
            "task",
            None,
            [b"\x92\xa2\xc3\xa9\xc4\x01\xff"],
            ["\u00e9", {"bytes": "ff"}],
        ),
        ("a wider form inside a frame", PLAIN, "data", None, [b"\xcd\x00\x05"], 5),
        ("a tuple", PLAIN, "data", None, [names], {"tuple": ["a", "b"]}),
        ("a set", PLAIN, "data", None, [b"\x92" + mark["set"] + b"\x07"], {"set": [7]}),
        (
            "a large integer",
            PLAIN,
            "data",
            None,
            [b"\xc7\x09\x04\x01" + bytes(8)],
            {"integer": str(1 << 64)},
        ),
        ("an array", ARRAY, "data", None, [b"\x01\x00\x02\x00"], {"typed": "numpy:ndarray"}),
        (
            "a dictionary with an array",
            {**pair, "frame-lengths": [1, 1, 1]},
            "data",
            None,
            [names, b"\x01", b"\x01\x00\x02\x00"],
            {"a": 1, "b": {"typed": "numpy:ndarray"}},
        ),
        (
            "keys in another order",
            dict(reversed(ARRAY.items())),
            "data",
            None,
            [bytes(4)],
            {"typed": "numpy:ndarray"},
        ),
        (
            "a failure",
            {"serializer": "error"},
            "data",
            None,
            [msgpack.packb([failure])],
            {"failure": "builtins:KeyError"},
        ),
        (
            "a failure in place of a value",
            {"serializer": "error", "failed": True},
            "data",
            None,
            [msgpack.packb([failure])],
            {"failure": "builtins:KeyError"},
        ),
        (
            "a pickle",
            {"serializer": "pickle", "writeable": []},
            "data",
            None,
            [b"\x80\x05K\x05."],
            {"pickle": 5},
        ),
    ]
    return [
        {
            "name": name,
            "header": msgpack.packb([header, kind, operation]).hex(),
            "frames": [each.hex() for each in frames],
            "kind": kind,
            "operation": operation,
            "value": value,
        }
        for name, header, kind, operation, frames, value in made
    ]


def invalid_library_messages() -> list[dict[str, Any]]:
    made: list[tuple[str, str, bytes, list[bytes]]] = []

    def header(name: str, data: bytes, frames: Sequence[bytes] = (b"\x05",)) -> None:
        made.append((name, "library header", data, list(frames)))

    def family(name: str, described: Any, frames: Sequence[bytes] = (b"\x05",)) -> None:
        made.append((name, "family header", msgpack.packb([described, "data", None]), list(frames)))

    good = msgpack.packb([PLAIN, "data", None])
    of = b"\x81\xaaserializer\xa7msgpack"
    header("nothing", b"")
    header("cut off", good[:-1])
    header("a byte follows", good + b"\xc0")
    header("a map", msgpack.packb({"header": PLAIN}))
    header("two elements", msgpack.packb([PLAIN, "data"]))
    header("five elements", msgpack.packb([PLAIN, "data", None, [1], [1]]))
    header("array in a wider form", b"\xdc\x00\x03" + good[1:])
    header("map in a wider form", b"\x93\xde\x00\x01" + of[1:] + b"\xa4data\xc0")
    header("text in a wider form", b"\x93" + of + b"\xd9\x04data\xc0")
    header("a key twice", b"\x93\x82" + of[1:] + of[1:] + b"\xa4data\xc0")
    header("a key that is a number", b"\x93\x82" + of[1:] + b"\x01\xc0\xa4data\xc0")
    header("a key that is bytes", b"\x93\x81\xc4\x0aserializer\xa7msgpack\xa4data\xc0")
    header("text that is not UTF-8", b"\x93" + of + b"\xa4dat\xff\xc0")
    header("an extension", b"\x93" + of + b"\xa4data\xd4\x01\x00")
    header("an extension without content", b"\x93" + of + b"\xa4data\xc7\x00\x01")
    header("a timestamp", b"\x93" + of + b"\xa4data\xd6\xff" + bytes(4))
    lengths = {"serializer": "collection", "type": "list", "sub-headers": [PLAIN]}
    spelt = msgpack.packb([{**lengths, "frame-lengths": [1]}, "data", None])
    header("integer in a wider form", spelt.replace(b"lengths\x91\x01", b"lengths\x91\xcc\x01"))
    header(
        "signed form of a positive integer",
        spelt.replace(b"lengths\x91\x01", b"lengths\x91\xd0\x01"),
    )
    floats = msgpack.packb([{**ARRAY, "sub-header": {"x": 1.5}}, "data", None])
    header("a float of 32 bits", floats.replace(msgpack.packb(1.5), b"\xca\x3f\xc0\x00\x00"))
    header("a family header that is a list", msgpack.packb([["msgpack"], "data", None]))
    header("no kind", msgpack.packb([PLAIN, None, None]))
    header("an unknown kind", msgpack.packb([PLAIN, "Data", None]))
    header("a kind in bytes", msgpack.packb([PLAIN, b"data", None]))
    header("an operation that is a number", msgpack.packb([PLAIN, "data", 5]))
    header("an operation of 129 characters", msgpack.packb([PLAIN, "data", "x" * 129]))
    for name, counts, parts in (
        ("part counts that are nil", None, 1),
        ("part counts that are no array", 1, 1),
        ("part counts of one", [1], 1),
        ("no part counts", [], 0),
        ("a part count of 0", [0, 2], 2),
        ("a part count that is true", [True, 2], 3),
        ("part counts of other parts", [2], 1),
        ("parts that are too short", [2], 2),
    ):
        header(name, msgpack.packb([PLAIN, "data", None, counts]), [b"\x05"] * parts)
    family("no serializer", {})
    family("a serializer that is a number", {"serializer": 5})
    family("an unknown serializer", {"serializer": "json"})
    family("another key", {**PLAIN, "more": 1})
    family("lengths", {**PLAIN, "lengths": [1]})
    family("compression", {**PLAIN, "lengths": [1], "compression": [None]})
    family("a class by pickle", {**ARRAY, "type-serialized": b"x"}, [bytes(4)])
    family("no type", {"serializer": "dask", "sub-header": {}})
    family("an empty type", {**ARRAY, "type": ""})
    family("a type that is not printable", {**ARRAY, "type": "a\nb"})
    family("a type of 129 characters", {**ARRAY, "type": "x" * 129})
    family("a sub-header that is a list", {**ARRAY, "sub-header": []})
    family("sub-headers alone", {**ARRAY, "sub-headers": []})
    family("frame-lengths alone", {**ARRAY, "frame-lengths": []})
    family("too many frames", PLAIN, [b"\x05", b"\x05"])
    family("too few frames", PLAIN, [])
    family("flags that are numbers", {"serializer": "pickle", "writeable": [1]}, [b"N.", b""])
    family("fewer flags than buffers", {"serializer": "pickle", "writeable": []}, [b"N.", b""])
    family("failed that is a number", {"serializer": "error", "failed": 1})
    family("an unknown collection", {**lengths, "type": "deque", "frame-lengths": [1]})
    family("a collection with a frame of its own", {**lengths, "frame-lengths": [0]})
    family("more headers than lengths", {**lengths, "frame-lengths": []})
    family("a negative length", {**lengths, "frame-lengths": [-1]})
    family("a length that is true", {**lengths, "frame-lengths": [True]})
    family("a child without frames", {**lengths, "frame-lengths": [0]}, [])
    family(
        "a child with another key",
        {**lengths, "sub-headers": [{**PLAIN, "lengths": [1]}], "frame-lengths": [1]},
    )
    deep: Any = PLAIN
    for _ in range(101):
        deep = {**lengths, "sub-headers": [deep], "frame-lengths": [1]}
    family("nested deeper than 100", deep)
    return [
        {"name": name, "layer": layer, "header": data.hex(), "frames": [f.hex() for f in frames]}
        for name, layer, data, frames in made
    ]
