"""How long one message holds a scheduler's event loop, measured from a second client.

``python -m verification.sweep.stalls``. A real scheduler under policy ``dask-cluster``; each
message comes on a connection of its own from a principal with a valid key: a viewer, a worker or an
engineer. The figure for a message is the longest time that the second client waits for an answer
meanwhile; what is over the aim is measured twice more, and the shortest of the three counts, since
other processes of the machine can only add to it.

The aim: 100 milliseconds for each message that is refused, and that twelve refused messages of
60 MB leave less than one of them in the scheduler's memory. Exits with 1 if an aim is missed. What
Dask's handlers do with messages that are admitted is not measured.
"""

from __future__ import annotations

import contextlib
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import psutil

from safeser.gate.values import Context
from safeser.operations import OPERATIONS, Channel, Operation, Server
from safeser.policy import Policy
from safeser.policy.ready import locate
from tests.conftest import Cluster
from tests.dask.live.rig import Silent
from tests.dask.live.wires import Sealing, channel_of

AIM = 0.1
PRINCIPALS = ("scheduler", "worker", "nanny", "carol", "dashboard")
SENDERS = {"dashboard": "viewer", "worker": "worker", "carol": "engineer"}

#: Bytes of messages that are far over what any operation takes.
LARGE = 60 << 20

#: Seconds between an answer to the second client and its next question.
_PAUSE = 0.001

_HEADER = {"serializer": "pickle", "writeable": []}


class Attack(NamedTuple):
    """One message.

    :param sender: principal that sends it.
    :param stream: the stream that is opened first: ``client``, ``worker`` or none.
    :param frames: makes its frames.
    """

    name: str
    sender: str
    stream: str
    frames: Callable[[], list[bytes]]


class Figure(NamedTuple):
    attack: Attack
    hold: float
    total: float
    outcome: str


# --- messages ------------------------------------------------------------------------------------


def _array(items: int, item: bytes) -> bytes:
    return b"\xdd" + items.to_bytes(4, "big") + item * items


def _keys(count: int) -> bytes:
    """Return *count* different keys as Dask names parts of an array."""
    return msgpack.packb([f"sum-0123456789abcdef0123456789abcdef-{n}" for n in range(count)])


def _message(operation: str, **fields: bytes) -> bytes:
    """Return a request whose fields are packed already."""
    parts = [(b"\xa2op", msgpack.packb(operation))]
    parts += [(msgpack.packb(name), packed) for name, packed in fields.items()]
    return bytes([0x80 | len(parts)]) + b"".join(name + packed for name, packed in parts)


def _fillings(elements: int, size: int) -> dict[str, Callable[[], bytes]]:
    """Return what to fill a field with that may have many elements."""
    return {
        "keys": lambda: _keys(min(elements, size // 50)),
        "numbers": lambda: _array(min(elements, size), b"\x01"),
        "different numbers": lambda: msgpack.packb(list(range(min(elements, size // 5)))),
        "empty maps": lambda: _array(min(elements, size), b"\x80"),
        "map": lambda: msgpack.packb({f"k{n}": n for n in range(min(elements // 2, size // 12))}),
        "map of lists": lambda: msgpack.packb(
            {f"k{n}": [f"safeser://127.0.0.1:{n}"] for n in range(min(elements // 3, size // 40))}
        ),
        "bytes": lambda: msgpack.packb(b"\xc9" * size),
        "text": lambda: msgpack.packb("x" * size),
    }


def _has_many(field: str) -> bool:
    return "*" in field or "->" in field or "any" in field or "table" in field


def _granted(policy: Policy, sender: str, row: Operation) -> bool:
    context = Context(sender, "scheduler", row.kind, row.name, transport="safeser")
    return policy.permits_operation(context).permitted


def of_operations(policy: Policy) -> Iterator[Attack]:
    """Yield, for each operation of a scheduler, what its largest form could be filled with.

    Of that, what is not of the field's shape, from senders that may not submit work; and, from an
    engineer, a large unknown field.
    """
    few = {what: msgpack.unpackb(made()) for what, made in _fillings(8, 512).items()}
    for row in OPERATIONS:
        if row.server is not Server.SCHEDULER:
            continue
        stream = row.channel is Channel.STREAM
        opened = _opened(row) if stream else ""
        for sender in ("dashboard", "worker"):
            if not _granted(policy, sender, row) or (
                stream and (sender == "worker") != (opened == "worker")
            ):
                continue
            most = row.ceiling(submits=False)
            for field in filter(_has_many, row.spelt):
                name = field.partition(":")[0]
                room = min(most.structure, 1 << 23) - (1 << 13)
                elements = min(most.elements, 900_000) - 64
                for what, filling in _fillings(elements, room).items():
                    if row.takes[name](few[what]):
                        continue
                    frames = _one(row, sender, name, filling)
                    yield Attack(f"{row.name}.{name}: {what}", sender, opened, frames)
        sender = "carol" if opened != "worker" else "worker"
        frames = _one(row, sender, "unknown", lambda: msgpack.packb(b"\xc9" * LARGE))
        yield Attack(f"{row.name}: an unknown field of 60 MB", sender, opened, frames)


def _opened(row: Operation) -> str:
    return "client" if "client-stream" in row.streams else "worker"


def _spoken(stream: str, sender: str) -> dict[str, bytes]:
    """Return the field by which elements say whose they are."""
    if stream == "client":
        return {"client": msgpack.packb(f"Client-{sender}")}
    return {"worker": msgpack.packb("safeser://127.0.0.1:9")}


def _one(
    row: Operation, sender: str, name: str, filling: Callable[[], bytes]
) -> Callable[[], list[bytes]]:
    def frames() -> list[bytes]:
        if row.channel is Channel.RPC:
            return [_message(row.name, **{name: filling()})]
        spoken = _spoken(_opened(row), sender)
        own = {field: value for field, value in spoken.items() if field in row.takes}
        return [b"\x91" + _message(row.name, **{**own, name: filling()})]

    return frames


def special() -> Iterator[Attack]:
    """Yield messages that are no operation's fields: batches, payloads, and what is malformed."""
    for sender in ("dashboard", "worker", "carol"):
        stream = "worker" if sender == "worker" else "client"
        op = "keep-alive" if stream == "worker" else "heartbeat-client"
        element = _message(op, **_spoken(stream, sender))
        for size in (1 << 18, 1 << 22):
            batch = _batch(element, size)
            yield Attack(f"a batch of {op}, {size >> 10} KiB", sender, stream, batch)
        for size in (1 << 18, 1 << 22, 1 << 25):
            name = f"a pickle of {size >> 10} KiB of opcodes as metadata"
            yield Attack(name, sender, "", _pickled(size))
        for name, frames in _SPECIAL.items():
            yield Attack(name, sender, "", frames)


def _batch(element: bytes, size: int) -> Callable[[], list[bytes]]:
    return lambda: [_array(size // len(element), element)]


def _reference(index: int) -> bytes:
    return msgpack.packb(msgpack.ExtType(1, index.to_bytes(4, "big")))


def _pickled(size: int, opcodes: bytes = b"N0") -> Callable[[], list[bytes]]:
    def frames() -> list[bytes]:
        body = _message("set_metadata", keys=msgpack.packb(["x"]), value=_reference(0))
        data = b"\x80\x05" + opcodes * (size // len(opcodes)) + b"N."
        return [body, msgpack.packb([[_HEADER, 1, None, False]]), data]

    return frames


def _payloads(count: int) -> Callable[[], list[bytes]]:
    def frames() -> list[bytes]:
        value = b"\xdd" + count.to_bytes(4, "big") + b"".join(map(_reference, range(count)))
        body = _message("set_metadata", keys=msgpack.packb(["x"]), value=value)
        row = [{"serializer": "msgpack"}, 1, None, False]
        return [body, msgpack.packb([row] * count), *[b"\x01"] * count]

    return frames


_SPECIAL: dict[str, Callable[[], list[bytes]]] = {
    "no message at all, 4 MiB": lambda: [b"\xc1" * (1 << 22)],
    "a request cut short": lambda: [
        _message("identity", n_workers=b"\xdd\x00\xff\xff\xff" + b"\x90" * (1 << 16))
    ],
    "empty maps without an operation": lambda: [_array(1 << 19, b"\x80")],
    "60 MB without an operation": lambda: [msgpack.packb(bytes(LARGE))],
    "two frames of 60 MB": lambda: [_message("identity"), bytes(LARGE)],
    "10,000 payloads as metadata": _payloads(10_000),
    "60 MB of payload as metadata": _pickled(LARGE, b"C\xff" + bytes(255) + b"0"),
}


# --- measuring -----------------------------------------------------------------------------------


_METRICS: dict[str, Any] = {
    **{"memory": 0, "spilled_bytes": {"memory": 0, "disk": 0}},
    **{"digests_total_since_heartbeat": {}},
    **{"bandwidth": {"total": 1e8, "workers": {}, "types": {}}},
}


class Bench:
    """A scheduler, its second client, and channels of those who attack."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.policy = Policy.load(cluster.policy)
        self._channels = {
            name: channel_of(cluster.keys, name, self.policy, Silent()) for name in PRINCIPALS
        }
        command = [sys.executable, "-m", "verification.sweep.stalls", "--probe", cluster.address]
        self._probe = subprocess.Popen(
            [*command, str(cluster.keys), cluster.policy, "dashboard"],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.waited()

    def waited(self) -> float:
        """Return the longest that the second client waited since the last call."""
        assert self._probe.stdin is not None
        assert self._probe.stdout is not None
        self._probe.stdin.write("\n")
        self._probe.stdin.flush()
        return float(self._probe.stdout.readline())

    def close(self) -> None:
        self._probe.kill()
        self._probe.communicate()

    def measure(self, attack: Attack) -> Figure:
        found = self._once(attack)
        for _ in range(2):
            if found.hold <= AIM:
                break
            again = self._once(attack)
            found = min(found, again, key=lambda each: each.hold)
        return found

    def _once(self, attack: Attack) -> Figure:
        frames = attack.frames()
        with contextlib.ExitStack() as stack:
            wire = stack.enter_context(
                Sealing.to(self.cluster.address, self._channels[attack.sender])
            )
            self._open(wire, attack)
            buffers = [bytes(each) for each in wire.link.session.seal(b"", frames)]
            self.waited()
            began = time.perf_counter()
            outcome = self._say(wire, buffers, attack.stream)
            total = time.perf_counter() - began
            return Figure(attack, self.waited(), total, outcome)

    @staticmethod
    def _open(wire: Sealing, attack: Attack) -> None:
        if attack.stream == "client":
            name = f"Client-{attack.sender}"
            wire.ask({"op": "register-client", "client": name, "reply": False, "versions": {}})
        elif attack.stream == "worker":
            wire.ask(
                {
                    **{"op": "register-worker", "address": "safeser://127.0.0.1:9", "reply": False},
                    **{"nthreads": 1, "name": "sweep", "pid": 1, "services": {}, "extra": {}},
                    **{"now": time.time(), "metrics": _METRICS, "resources": {}, "versions": {}},
                    **{"local_directory": "/", "nanny": None, "memory_limit": 1 << 30},
                    **{"status": "running", "server_id": "w", "stimulus_id": "s"},
                }
            )

    @staticmethod
    def _say(wire: Sealing, buffers: list[bytes], stream: str) -> str:
        """Send the message; return what became of it, once the scheduler is through with it."""
        try:
            for buffer in buffers:
                wire.socket.sendall(buffer)
            if stream:
                # Nothing answers an element: the stream is closed, and answers no more after that.
                wire.send([{"op": "close-stream"}])
                while True:
                    wire.read()
            answer = wire.read()
        except ConnectionError:
            return "closed"
        except OSError as error:
            return type(error).__name__
        if isinstance(answer, dict) and answer.get("status") == "uncaught-error":
            text = str(answer.get("exception_text"))
            return (text.partition("\n  rule: ")[2].split() or ["error"])[0].rstrip(",")
        return "answered"


def kept(bench: Bench) -> int:
    """Return how many bytes the scheduler grows by while an engineer's messages are refused."""
    process = psutil.Process(bench.cluster.scheduler)
    row = next(each for each in OPERATIONS if each.name == "set_metadata")
    attack = Attack(
        "", "carol", "", _one(row, "carol", "unknown", lambda: msgpack.packb(bytes(LARGE)))
    )
    bench.measure(attack)
    before = process.memory_info().rss
    for _ in range(12):
        outcome = bench.measure(attack).outcome
        if outcome != "operation.unknown-field":
            raise SystemExit(f"an unknown field of 60 MB: {outcome}")
    return int(process.memory_info().rss - before)


def shown(figures: list[Figure], count: int = 25) -> Iterator[str]:
    yield "Longest wait of a second client, by message, and the time to the answer, in ms"
    for each in sorted(figures, key=lambda figure: -figure.hold)[:count]:
        took = f"{each.hold * 1e3:6.0f} {each.total * 1e3:6.0f}"
        yield f"{took}  {SENDERS[each.attack.sender]:8}  {each.outcome:24}  {each.attack.name}"


def probe(address: str, keys: str, policy: str, principal: str) -> None:
    """Be the second client: ask a scheduler for its identity again and again, and time the answers.

    For each line that it reads, it prints the longest time since the line before, in seconds.
    """
    channel = channel_of(Path(keys), principal, Policy.load(policy), Silent())
    worst = 0.0
    with Sealing.to(address, channel) as wire:
        while True:
            began = time.perf_counter()
            wire.ask({"op": "identity", "n_workers": 0, "reply": True})
            worst = max(worst, time.perf_counter() - began)
            if select.select([sys.stdin], [], [], _PAUSE)[0]:
                if not sys.stdin.readline():
                    return
                print(worst, flush=True)
                worst = 0.0


def main(only: str = "") -> int:
    with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
        path = Path(folder)
        policy = path / "policy.yaml"
        policy.write_bytes(locate("dask-cluster").read_bytes())
        policy.chmod(0o600)
        cluster = Cluster(path, str(policy), PRINCIPALS)
        figures: list[Figure] = []
        try:
            cluster.begin(workers=1)
            bench = Bench(cluster)
            try:
                attacks = [*special(), *of_operations(bench.policy)]
                attacks = [each for each in attacks if only in each.name]
                idle = max(bench.waited() for _ in range(20))
                for number, attack in enumerate(attacks, 1):
                    if number % 50 == 0:
                        print(f"{number} of {len(attacks)}", file=sys.stderr, flush=True)
                    figures.append(bench.measure(attack))
                grown = kept(bench)
            finally:
                bench.close()
        finally:
            cluster.stop()
    print(*shown(figures), sep="\n")
    over = [each for each in figures if each.hold > AIM]
    print(
        f"{len(figures)} messages; {len(over)} over {AIM * 1e3:.0f} ms;"
        f" without any message {idle * 1e3:.0f} ms"
    )
    print(f"12 refused messages of {LARGE >> 20} MB: the scheduler grew by {grown >> 20} MB")
    return 1 if over or grown > LARGE else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        probe(*sys.argv[2:])
    else:
        raise SystemExit(main(*sys.argv[1:]))
