"""What a process may still ask of the kernel by the numbers of others, and by odd arguments."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from tests.conftest import base_environment

pytestmark = pytest.mark.usefixtures("landlock")

LIBC = ctypes.CDLL(None, use_errno=True)
_OWN, _REMOVE = 0o1600, 0


@contextmanager
def system_v() -> Iterator[dict[str, int]]:
    """Yield the numbers of a queue with a message, a semaphore and a segment of this process."""
    made = {
        "messages": LIBC.msgget(0, _OWN),
        "semaphores": LIBC.semget(0, 1, _OWN),
        "segment": LIBC.shmget(0, ctypes.c_size_t(4096), _OWN),
    }
    try:
        assert min(made.values()) >= 0
        message = (ctypes.c_long * 3)(1)
        assert LIBC.msgsnd(made["messages"], message, ctypes.c_size_t(16), 0) == 0
        yield made
    finally:
        LIBC.msgctl(made["messages"], _REMOVE, None)
        LIBC.semctl(made["semaphores"], 0, _REMOVE)
        LIBC.shmctl(made["segment"], _REMOVE, None)


PROGRAM = """
import ctypes, errno, json, os, socket, sys
told, rules = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
if rules is not None:
    from safeser.confinement import launch
    launch.restrict(launch.Rules(**rules))

def code(result):
    return errno.errorcode[ctypes.get_errno()] if result < 0 else ""

size, message = ctypes.c_size_t(16), (ctypes.c_long * 3)(1)
add_one = ctypes.create_string_buffer(bytes([0, 0, 1, 0, 0, 0]), 6)
found = {
    "send": code(libc.msgsnd(told["messages"], message, size, 0o4000)),
    "receive": code(libc.msgrcv(told["messages"], message, size, 0, 0o4000)),
    "add": code(libc.semop(told["semaphores"], add_one, ctypes.c_size_t(1))),
    "remove messages": code(libc.msgctl(told["messages"], 0, None)),
    "remove semaphores": code(libc.semctl(told["semaphores"], 0, 0)),
    "remove segment": code(libc.shmctl(told["segment"], 0, None)),
}
number = {"x86_64": (54, 241), "aarch64": (208, 181)}[os.uname().machine]
with socket.socket() as made:
    for name, level, option in (
        ("protocol", 6, 31),
        ("protocol, wide level", 1 << 32 | 6, 31),
        ("protocol, wide option", 6, 1 << 32 | 31),
    ):
        wide = ctypes.c_long(level), ctypes.c_long(option)
        found[name] = code(libc.syscall(number[0], made.fileno(), *wide, b"none", 4))
found["POSIX messages"] = code(libc.syscall(number[1], b"safeser-none"))
found["disk quota"] = code(libc.syscall(443, -1, 0, 0, None))
pair = (ctypes.c_int * 2)()
found["another pair"] = code(libc.socketpair(30, socket.SOCK_STREAM, 0, pair))
found["an own pair"] = code(libc.socketpair(socket.AF_UNIX, socket.SOCK_STREAM, 0, pair))
print(json.dumps(found))
"""


def attempted(bench, *, confined: bool) -> dict[str, str]:
    """Return how the kernel refuses each attempt of a process that is *confined*, or not."""
    with system_v() as told:
        asked = json.dumps([told, asdict(bench.rules) if confined else None])
        ended = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, asked],
            capture_output=True, text=True, timeout=60, check=False, env=base_environment(),
            cwd=bench.path / "scratch",
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        found: dict[str, str] = json.loads(ended.stdout)
        return found


OTHERS = ("send", "receive", "add", "remove messages", "remove semaphores", "remove segment")
WIDE = ("protocol", "protocol, wide level", "protocol, wide option")


def test_neither_a_number_nor_a_wide_argument_passes_the_filter(bench) -> None:
    free, confined = (attempted(bench, confined=each) for each in (False, True))
    assert [free[name] for name in OTHERS] == [""] * len(OTHERS)
    assert "EPERM" not in [free[name] for name in WIDE]
    assert confined == {
        **dict.fromkeys((*OTHERS, *WIDE, "POSIX messages", "disk quota"), "EPERM"),
        "another pair": "EAFNOSUPPORT",
        "an own pair": "",  # what asyncio wakes its loop by
    }
