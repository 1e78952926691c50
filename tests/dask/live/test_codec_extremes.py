"""What crashes, fills or stalls a decoder without any pickle, sent to a worker that takes values.

The one rule: each hostile value is refused by itself, and the process goes on to serve the next.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import msgpack
import pytest

from tests.dask.live.rig import Rig
from tests.dask.live.wires import PayloadRow


@cache
def bomb() -> bytes:
    """Return the quarter of a megabyte that zlib makes a quarter of a gigabyte of."""
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()


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


@pytest.mark.cluster
def test_a_bomb_does_not_fill_a_worker(rig: Rig) -> None:
    state = "(__import__('os').getpid(), int(open('/proc/self/statm').read().split()[1]) * 4096)"
    before = rig.evaluate("alice", "worker", state)
    bombed = {**_array(dtype="|u1", shape=[1 << 28]), "compression": ["zlib"]}
    with rig.sealed_to("worker", "carol") as wire:
        rig.log.new()
        for header, frame in ((bombed, bomb()), (_MSGPACK, _DEEP)):
            row = PayloadRow(header, (frame,))
            answer = wire.ask({"op": "update_data", "data": {"extreme": row}})
            assert answer.get("status") == "uncaught-error"
            assert rig.log.wait(lambda r: r["sender"] == "carol")
        fine = PayloadRow(_MSGPACK, (msgpack.packb(5),))
        assert "nbytes" in wire.ask({"op": "update_data", "data": {"fine": fine}})
    for address, (pid, memory) in rig.evaluate("alice", "worker", state).items():
        assert pid == before[address][0]
        assert memory - before[address][1] < 128 << 20
