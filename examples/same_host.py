"""A family of one's own that hands large arrays over in shared memory, but only on one host.

Run it on Linux: python examples/same_host.py

On a cluster every process registers the family (by an entry point of group ``safeser.families``, or
a preload), and the policy declares it and lists it first, as the one below does.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import safeser

SHARED = Path("/dev/shm")  # noqa: S108 - memory, and each file there is made by mkstemp
LARGE = 1 << 20
NAME = re.compile(r"safeser-[a-z0-9_]{8}\Z")

POLICY = """
safeser: 1
name: one-host
revision: 1
families: [shared]
principals: {worker: {}}
contexts:
  - name: workers
    sender: worker
    recipient: worker
    kinds: [data]
    serializers: [shared, dask, msgpack]
    deserializers: [shared, dask, msgpack]
...
"""


def dumps(x: Any, context: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[bytes]]:
    """Write a large array of numbers to shared memory, where the context says one host."""
    same_host = context is not None and context["same_host"]
    if (
        not same_host
        or type(x) is not np.ndarray
        or x.dtype.kind not in "biufc"
        or x.nbytes < LARGE
    ):
        raise NotImplementedError  # the next family is tried
    number, path = tempfile.mkstemp(prefix="safeser-", dir=SHARED)
    with open(number, "wb") as file:
        x.tofile(file)
    return {"name": Path(path).name, "dtype": x.dtype.str, "shape": list(x.shape)}, []


def loads(header: dict[str, Any], frames: list[bytes]) -> Any:
    """Map the array and remove its name; a peer wrote *header*, so each part of it is checked."""
    del frames
    name, dtype = header["name"], np.dtype(header["dtype"])
    if not NAME.match(name) or dtype.kind not in "biufc":
        raise ValueError("that is no array of this family")
    path = SHARED / name
    found = os.stat(path, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
        raise ValueError("that file is not one of this user's arrays")
    array = np.memmap(path, dtype=dtype, mode="c", shape=tuple(header["shape"]))
    path.unlink()
    return array.view(np.ndarray)


def main() -> None:
    safeser.register_serialization_family("shared", dumps, loads)
    policy = safeser.Policy.parse(POLICY)
    array = np.arange(1 << 20, dtype="float64")
    for same_host in (True, False):
        context = safeser.Context("worker", "worker", same_host=same_host)
        header, frames = safeser.serialize(
            array, context=context, policy=policy, serializers=FAMILIES
        )
        sent = sum(memoryview(frame).nbytes for frame in frames)
        back = safeser.deserialize(header, frames, FAMILIES, context=context, policy=policy)
        where = "one host" if same_host else "two hosts"
        print(f"{where}: family {header['serializer']}, {sent:,} bytes sent, sum {back.sum():.0f}")


FAMILIES = ["shared", "dask", "msgpack"]

if __name__ == "__main__":
    main()
