"""Trees of headers and frames that are no payload."""

from __future__ import annotations

from safeser.families import plain
from tests.samples.typed import payload, ruled

MSGPACK = {"serializer": "msgpack"}
NIL = b"\xc0"
FLOOD = [plain.encode(((1 << 61) - 1) * (1 << 70) * n) for n in range(1, 101)]


def collection(kind, *headers, lengths=None):
    lengths = [1] * len(headers) if lengths is None else lengths
    return {
        "serializer": "collection",
        "type": kind,
        "sub-headers": list(headers),
        "frame-lengths": lengths,
    }


TREES = [
    (None, [], "families.header"), ({}, [], "families.serializer"),
    ({"serializer": "cuda"}, [], "families.serializer"),
    ({"serializer": ["dask"]}, [], "families.serializer"),
    ({"serializer": "msgpack", "x": 1}, [NIL], "families.header"),
    (MSGPACK, [], "families.frame-count"), (MSGPACK, [NIL, NIL], "families.frame-count"),
    (MSGPACK, [None], "families.frame"), (MSGPACK, [memoryview(b"abcd")[::2]], "families.frame"),
    ({"type-serialized": b"cos\nsystem\n"}, [], "families.type-serialized"),
    ({"is-collection": True}, [], "families.type-serialized"),
    ({"serializer": "dask", "type": "x:y", "sub-header": {}}, [], "families.type"),
    ({"serializer": "dask", "type": 5, "sub-header": {}}, [], "families.header"),
    ({"serializer": "dask", "type": "a\n:b", "sub-header": {}}, [], "families.header"),
    ({"serializer": "dask", "type": "x:y", "sub-header": {5: 1}}, [], "families.header"),
    ({"serializer": "pickle", "writeable": [1]}, [NIL], "families.header"),
    ({"serializer": "pickle", "writeable": [True]}, [NIL], "families.frame-count"),
    (collection("list", MSGPACK), [], "families.frame-count"),
    (collection("list", MSGPACK), [NIL, NIL], "families.frame-count"),
    (collection("list", MSGPACK, lengths=[-1]), [], "families.header"),
    (collection("list", MSGPACK, lengths=[]), [], "families.header"),
    (collection("list", MSGPACK, lengths=[True]), [NIL], "families.header"),
    ({**collection("list"), "sub-headers": 5}, [], "families.header"),
    (collection("bag", MSGPACK), [NIL], "families.collection"),
    (collection("dict"), [], "families.child-count"),
    (collection("dict", MSGPACK), [NIL], "families.header"),
    (collection("dict", MSGPACK), [b"\x92\xc7\x00\x01\x01"], "families.child-count"),
    (collection("set", *[MSGPACK] * 100), FLOOD, "families.hash-flood"),
]  # fmt: skip

HOSTILE = ruled(payload, TREES)
