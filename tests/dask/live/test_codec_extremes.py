"""What crashes, fills or stalls a decoder without a pickle, sent to a worker that takes values."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from tests.dask.live.wires import PayloadRow


def _array(**meta: Any) -> dict[str, Any]:
    fine = {"shape": [1], "order": "C", "writeable": True, "dtype": "<i8"}
    return {"serializer": "dask", "type": "numpy:ndarray", "sub-header": {**fine, **meta}}


def _other(name: str, sub: Any = None, **more: Any) -> dict[str, Any]:
    return {"serializer": "dask", "type": name, "sub-header": sub or {}, **more}


_DEEP = b"\x91" * 100_000 + b"\xc0"
_MSGPACK = {"serializer": "msgpack"}

EXTREMES: dict[str, tuple[dict[str, Any], tuple[bytes, ...]]] = {
    "objects out of bytes": (_array(dtype="|O"), (b"A" * 8,)),
    "objects in a structure": (_array(dtype=[["x", "|O"]]), (b"A" * 8,)),
    "more items than bytes": (_array(shape=[1 << 40]), (b"A" * 8,)),
    "a product that overflows": (_array(shape=[1 << 33, 1 << 33]), (b"",)),
    "steps outside": (_array(strides=[1 << 40], order=None), (b"A" * 8,)),
    "a negative shape": (_array(shape=[-1]), (b"A" * 8,)),
    "a dtype of a terabyte": (_array(dtype="|V1099511627776"), (b"",)),
    "a bomb that says so": (_array(compression="zlib"), (b"x\x9c" * 100,)),
    "claimed compression": ({**_array(), "compression": ["lz4"]}, (b"\xff\xff\xff\x7f" * 3,)),
    "a file to open": (_other("h5py:File", {"filename": "/etc/passwd"}), ()),
    "another file": (_other("netCDF4:Dataset", {"filename": "/etc/passwd"}), ()),
    "no such family": ({"serializer": "cuda"}, (b"x",)),
    "a list for a family": ({"serializer": ["dask"]}, (b"x",)),
    "no such type": (_other("os:system"), (b"x",)),
    "a class by its pickle": (_other("numpy:ndarray", **{"type-serialized": b"x"}), (b"x",)),
    "depth": (_MSGPACK, (_DEEP,)),
    "a long list, claimed": (_MSGPACK, (b"\xdd\xff\xff\xff\xff",)),
    "a long text, claimed": (_MSGPACK, (b"\xdb\xff\xff\xff\xff",)),
    "an extension": (_MSGPACK, (msgpack.packb(msgpack.ExtType(1, b"x")),)),
    "an integer of a megabyte": (_other("builtins:int", {"bytes": 1 << 20}), (b"\xff",)),
    "no frames": (_array(), ()),
    "half a number": (_array(), (b"A" * 7,)),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_a_worker_refuses_it(talk, name):
    header, frames = EXTREMES[name]
    t = talk("carol", "worker", "dask-cluster")
    t.refuses({"op": "update_data", "data": {"x": PayloadRow(header, frames)}})
    assert t.refused_by_server[0].partition(".")[0] in ("families", "value")
