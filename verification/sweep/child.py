"""Loads attacks, each in a forked process, and says what it took, for ``pickles`` and ``products``.

The one rule: everything is imported before the first fork, and an attack's baseline is what its
process holds once it has loaded the same call twice.

Reads from stdin, and writes to stdout, one frame for each attack: a length and as many bytes.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import struct
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import msgpack

from safeser import families
from safeser.errors import SafeserError
from safeser.families import building, receiving
from safeser.gate.values import Grant
from safeser.pickles import DATA_PROFILES, Profile, loads
from safeser.pickles.building import build
from safeser.pickles.nodes import Call
from safeser.pickles.shims import shim

PROFILE = Profile.named(*DATA_PROFILES)
_GRANT = Grant("sweep", ("dask", "msgpack"))
#: Attacks that take more end their process.
MAX_SECONDS, MAX_MEMORY = 20, 3 << 30
_PAGE = os.sysconf("SC_PAGE_SIZE")


class _Longest:
    """Measures the longest step of a build."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args)
            finally:
                self.seconds = max(self.seconds, time.process_time() - start)

        return measured

    def watch(self) -> None:
        build._MAKERS[Call] = self.timed(build.Builder.make_call)
        build.Builder.change = self.timed(build.Builder.change)  # type: ignore[method-assign]
        receiving._checked = self.timed(receiving._checked)
        building._decoded = self.timed(building._decoded)


def _pages(column: int) -> int:
    """Return the size of this process's memory, 0, or of what of it is resident, 1."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[column]) * _PAGE


def _forget_peak() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def _load(data: bytes) -> Any:
    """Load a pickle, or the header and frames of a typed value."""
    if data[:1] == b"\x80":
        return loads(data, profile=PROFILE)
    header, frames = msgpack.unpackb(data, strict_map_key=False)
    return families.deserialize(header, frames, _GRANT)


def _measured(twice: bytes, data: bytes) -> dict[str, Any]:
    try:
        _load(twice)
    except SafeserError as error:
        if twice != data:
            return {"unloadable": error.rule}
    # A collection that falls into a call would walk every library, whatever the call does.
    gc.freeze()
    longest, rule = _Longest(), ""
    longest.watch()
    _forget_peak()
    before, start = _pages(1), time.process_time()
    try:
        made = _load(data)
    except SafeserError as error:
        made, rule = None, error.rule
    seconds, peak = time.process_time() - start, _peak()
    del made
    return {
        "seconds": seconds,
        "memory": max(0, peak - before),
        "longest": longest.seconds,
        "rule": rule,
    }


def _forked(twice: bytes, data: bytes) -> bytes:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        most = _pages(0) + MAX_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
        try:
            found = _measured(twice, data)
        except BaseException as error:  # the parent has to hear of it, whatever it is
            found = {"failed": type(error).__name__}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = file.read()
    _, status = os.waitpid(pid, 0)
    return answer or json.dumps({"failed": f"status {status}"}).encode()


def _frame() -> bytes | None:
    head = sys.stdin.buffer.read(8)
    return sys.stdin.buffer.read(struct.unpack("<Q", head)[0]) if head else None


def main() -> None:
    warnings.simplefilter("ignore")
    for entry in PROFILE.entries.values():
        for name in (entry.make, entry.state):
            if name:
                shim(name)
    while (twice := _frame()) is not None:
        answer = _forked(twice, _frame() or b"")
        sys.stdout.buffer.write(struct.pack("<Q", len(answer)) + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
