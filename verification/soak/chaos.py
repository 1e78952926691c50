"""What befalls the cluster while it works: kills, cuts, garbage and attacks.

The one rule: whatever is dealt is counted, and what can cost somebody a task is noted with its
time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from random import Random

import psutil

from examples.demo.errors import StepFailed
from examples.demo.messages import BUILDERS
from verification.soak.cluster import Cluster
from verification.soak.figures import Tally

#: Seconds between two of a kind, on average.
EVERY = {"kill": 60.0, "cut": 45.0, "garbage": 3.0, "attack": 8.0, "stall": 20.0}

#: What stock Dask is dealt: it would open what strangers send.
KILLS = ("kill", "cut")

_MAGIC = b"\x93SAFESER"

#: How many bytes of anything are sent at most; more than an unauthenticated peer is ever read.
_MOST = 100_000


def garbage(random: Random) -> bytes:
    """Return something that no peer of a cluster says."""
    kinds = (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(500),
        bytes(random.randrange(_MOST)),
        random.randbytes(random.randrange(1, _MOST)),
        _MAGIC + b"\x01\x01\x00\x00" + random.randbytes(random.randrange(1, 2000)),
        _MAGIC[: random.randrange(1, len(_MAGIC))],
        # Stock Dask's own beginning: three frames of so many bytes, the last one huge.
        (3).to_bytes(8, "little") + (1 << 60).to_bytes(8, "little") * 3,
    )
    return random.choice(kinds)


class Chaos:
    """Deals blows until it is told to stop; one thread for each kind."""

    def __init__(self, cluster: Cluster, tally: Tally, *, seed: str) -> None:
        self._cluster = cluster
        self._tally = tally
        self._seed = seed
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.blows: list[float] = []
        self._attacks = 0

    def begin(self, kinds: tuple[str, ...]) -> None:
        for name in kinds:
            act = getattr(self, f"_{name}")
            thread = threading.Thread(target=self._repeat, args=(name, act), daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=90)

    def _repeat(self, name: str, act: Callable[[Random], None]) -> None:
        random = Random(f"{self._seed} {name}")
        while not self._stop.wait(random.uniform(0.5, 1.5) * EVERY[name]):
            try:
                act(random)
            except OSError:  # whom it was meant for had just been killed
                self._tally.chaos[f"missed {name}"] += 1

    def _kill(self, random: Random) -> None:
        name = random.choice(("shaken", "shaken", "bare"))
        pid = self._cluster.worker_process(name)
        if pid is not None:
            self.blows.append(time.time())
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._tally.chaos[f"kill {name}"] += 1

    def _cut(self, random: Random) -> None:
        road = self._cluster.road
        assert road is not None
        self.blows.append(time.time())
        self._tally.chaos["cut"] += road.cut(random, most=random.randrange(1, 4))

    def _ports(self) -> list[int]:
        """The scheduler's port, and those on which workers listened when they were last asked."""
        return [self._cluster.port, *_listening(self._cluster)]

    def _garbage(self, random: Random) -> None:
        with socket.create_connection(
            ("127.0.0.1", random.choice(self._ports())), timeout=5
        ) as peer:
            self._tally.chaos["garbage"] += 1
            with contextlib.suppress(ConnectionError, TimeoutError):
                peer.sendall(garbage(random))
                peer.settimeout(2)
                peer.recv(100)

    def _stall(self, random: Random) -> None:
        """Open connections that say half a greeting and wait."""
        with contextlib.ExitStack() as stack:
            for _ in range(10):
                port = random.choice(self._ports())
                peer = socket.create_connection(("127.0.0.1", port), timeout=5)
                stack.enter_context(contextlib.closing(peer))
                self._tally.chaos["stalled"] += 1
                with contextlib.suppress(ConnectionError):
                    peer.sendall(_MAGIC[: random.randrange(len(_MAGIC))])
            self._stop.wait(random.uniform(1, 15))

    def _attack(self, random: Random) -> None:
        """One of the demo's messages, from an insider who obeys none of his own rules."""
        name = random.choice(sorted(BUILDERS))
        attacker = self._cluster.children["mallory"]
        at_worker = name in ("type-serialized", "object-array", "run", "upload-file")
        ports = self._ports()
        port = random.choice(ports[1:]) if at_worker and ports[1:] else ports[0]
        self._attacks += 1
        made = [self._cluster.markers / f"{name}-{self._attacks}-{form}" for form in range(2)]
        command = {"do": "attack", "name": name, "address": f"safeser://127.0.0.1:{port}"}
        command |= {"markers": [*map(str, made)], "secret": self._cluster.secret}
        try:
            answer = attacker.ask(command, timeout=60)
        except StepFailed as error:
            # Some of the workers that it is sent to are killed under it.
            self._tally.chaos["missed attack"] += 1
            if "Timed out" not in str(error):
                self._tally.note(chaos="attack", error=f"{name}: {error}"[:500])
            return
        self._tally.chaos[f"attack {name}"] += 1
        if answer["leaked"]:
            self._tally.chaos["ran"] += 1
            self._tally.note(chaos="attack", error=f"{name} read the secret")

    def count_markers(self) -> None:
        """Count what hostile code made: nothing."""
        made = sorted(path.name for path in self._cluster.markers.iterdir())
        if made:
            self._tally.chaos["ran"] += len(made)
            self._tally.note(chaos="attack", error=json.dumps(made))


def _listening(cluster: Cluster) -> list[int]:
    """Return the ports on which workers listen, out of what the kernel says of their sockets."""
    ports = []
    for name in ("steady", "shaken", "bare"):
        with contextlib.suppress(psutil.Error):
            if (pid := cluster.worker_process(name)) is not None:
                found = psutil.Process(pid).net_connections("tcp")
                listens = [each for each in found if each.status == psutil.CONN_LISTEN]
                ports += sorted({each.laddr.port for each in listens})
    return ports
