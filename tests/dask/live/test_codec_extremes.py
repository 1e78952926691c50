"""What crashes, fills or stalls a decoder without any pickle, sent to a worker that takes values.

The one rule: carol may send values of every family but pickle. Each hostile one is refused by
itself, in the process that goes on to serve the next; on stock Dask the worst of them ends it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.dask.live.rig import Rig
from tests.dask.live.wires import PayloadRow

pytestmark = pytest.mark.cluster

#: Bytes that NumPy takes for pointers to objects, in Dask's own header: memory that is not there.
_CRASH = """
import pickle, numpy as np
from distributed.protocol.serialize import deserialize
meta = {"dtype": (0, "|O"), "shape": (1,), "strides": (8,), "writeable": (True,)}
header = {"serializer": "dask", "type": "x", "type-serialized": pickle.dumps(np.ndarray)}
print(deserialize({**header, "sub-header": meta}, [b"A" * 8]))
"""

#: In one process of Dask's own, with a bomb on its input: a file that a header names, which a
#: stand-in for h5py is told to open; a family that nobody has; and the bomb, with half the memory.
_OTHERS = """
import json, pickle, resource, sys, types
import numpy as np
from distributed.protocol import dumps, loads
from distributed.protocol.serialize import Serialized

class File:
    def __init__(self, name, mode):
        self.text = open(name, mode).read()

made = types.ModuleType("h5py")
for name in ("File", "Group", "Dataset"):
    made.__dict__[name] = type(name, (File,), {"__module__": "h5py"})
sys.modules["h5py"] = made

def opened(cls, sub, *frames, **header):
    typed = {"serializer": "dask", "type-serialized": pickle.dumps(cls), "sub-header": sub}
    message = dumps({"x": Serialized({**typed, **header}, list(frames))})
    try:
        return loads([bytes(each) for each in message])["x"]
    except BaseException as error:
        return type(error).__name__

said = {"file": opened(made.File, {"filename": sys.argv[1]}).text}
said["family"] = opened(dict, {}, b"x", serializer="nobody")
plain = {"dtype": (0, "|u1"), "shape": (1 << 28,), "strides": (1,), "writeable": (True,)}
bomb = sys.stdin.buffer.read()
now = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 27), now + (1 << 27)))
said["bomb"] = opened(np.ndarray, plain, bomb, compression=["zlib"])
print(json.dumps(said))
"""


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


def test_stock_dask_is_ended_by_a_header() -> None:
    done = subprocess.run([sys.executable, "-c", _CRASH], capture_output=True, check=False)
    assert done.returncode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT), done.stderr


def test_stock_dask_opens_a_file_and_a_bomb(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("told")
    command = [sys.executable, "-c", _OTHERS, str(tmp_path / "secret")]
    done = subprocess.run(command, input=bomb(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    # A family that nobody has is an error there, too.
    assert json.loads(done.stdout) == {"file": "told", "family": "KeyError", "bomb": "MemoryError"}
    assert len(bomb()) < 1 << 19


def test_no_value_ends_or_fills_a_worker(rig: Rig) -> None:
    state = "(__import__('os').getpid(), int(open('/proc/self/statm').read().split()[1]) * 4096)"
    before = rig.evaluate("alice", "worker", state)
    bombed = {**_array(dtype="|u1", shape=[1 << 28]), "compression": ["zlib"]}
    values = {**EXTREMES, "a bomb": (bombed, (bomb(),))}
    failures = []
    with rig.sealed_to("worker", "carol") as wire:
        for name, (header, frames) in values.items():
            rig.log.new()
            row = PayloadRow(header, frames)
            answer = wire.ask({"op": "update_data", "data": {"extreme": row}})
            if answer.get("status") != "uncaught-error":
                failures.append(f"{name}: {answer}")
            if not rig.log.wait(lambda r: r["sender"] == "carol"):
                failures.append(f"{name}: no record")
            if b"passwd" in wire.last and b"root:" in wire.last:
                failures.append(f"{name}: a file came back")
        fine = PayloadRow(_MSGPACK, (msgpack.packb(5),))
        assert "nbytes" in wire.ask({"op": "update_data", "data": {"fine": fine}})
    for address, (pid, memory) in rig.evaluate("alice", "worker", state).items():
        assert pid == before[address][0]
        assert memory - before[address][1] < 128 << 20
    assert not failures, "\n".join(failures)
