"""A Redis server that a test starts for itself: on a socket in a folder of its own, on no port."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis

from tests.needs import needs
from tests.processes import until

__all__ = ["needs_redis", "redis_server"]

needs_redis = needs("redis-server")


@contextlib.contextmanager
def redis_server() -> Iterator[str]:
    """Yield the path of the socket of a server that keeps nothing on disk."""
    folder = Path(tempfile.mkdtemp(prefix="redis-"))  # paths of sockets have at most 107 bytes
    socket = folder / "redis.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--dir", str(folder)]
    process = subprocess.Popen(
        [*command, "--unixsocketperm", "700", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until("the socket of Redis", lambda: process.poll() is not None or _answers(socket))
        assert process.poll() is None
        yield str(socket)
    finally:
        process.terminate()
        process.wait(15)
        shutil.rmtree(folder)


def _answers(socket: Path) -> bool:
    try:
        with redis.Redis(unix_socket_path=str(socket)) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False
