"""``python -m verification.trust``: what a reviewer must trust, measured on real connections.

The one rule: a number is measured here and compared with ``bounds.toml``, never written there. One
that is above its ``most`` fails, as in ``lines.toml``; ``asked`` is where it is to come to.

Functions of safeser are those that Python reports, and lines those of them with code. The other
side of a connection is not measured: it runs in another thread, or before. Logs are in files.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import gc
import inspect
import logging
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from distributed import Scheduler
from distributed.protocol import to_serialize
from distributed.utils import offload
from rich.console import Console
from rich.table import Table
from tornado.iostream import IOStream

import safeser
from safeser.dask.transport.comm import REFUSED, SafeserComm
from safeser.gate.handshake import Handshake
from safeser.identities import make_identities
from tests.conftest import Doors
from tests.dask.conftest import Talk
from verification.benchmarks.report import show_notes

PACKAGE = Path(safeser.__file__).parent
BOUNDS = Path(__file__).with_name("bounds.toml")
POLICY = "default"
#: Each work is done so often. After the first one, what can be remembered is remembered.
ROUNDS = 5

STRANGER = "a stranger, refused by a listener"
ARRAY, PICKLE = "an array arrives at a client", "a pickle is loaded"
READ, WRITTEN = "an array: scheduler reads it", "an array: scheduler passes it on"
#: What writes records, and what moves bytes: each does the same for all that passes.
LOG_AND_CONNECTION = ("audit", "dask/transport", "dask/comm_backend.py", "dask/same_host.py")

#: Of functions that wait for something and go on.
_WAITS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: Imports modules, and prints the files of all that are there then.
_IMPORT = """import sys, importlib
for name in sys.argv[1:]: importlib.import_module(name)
for name, module in sorted(sys.modules.items()): print(name, getattr(module, "__file__", ""))"""

# --- what is entered, and what that imports -------------------------------------------------------


class Entered(Counter[CodeType]):
    """How often each function was entered."""

    @property
    def numbers(self) -> dict[str, int]:
        # Since Python 3.12 a comprehension is a part of the function around it.
        calls = [times for code, times in self.items() if not code.co_name.endswith("comp>")]
        lines = self.lines
        counted = (len(calls), sum(calls), len(lines), sum(map(len, lines.values())))
        return dict(zip(("functions", "calls", "files", "lines"), counted, strict=True))

    @property
    def lines(self) -> dict[Path, set[int]]:
        """Return the lines with code of these functions, by file."""
        found: dict[Path, set[int]] = {}
        for code in self:
            numbers = {line for *_, line in code.co_lines() if line}
            found.setdefault(Path(code.co_filename), set()).update(numbers)
        return found

    def judging(self) -> Entered:
        """Return the functions that neither move bytes nor write records."""
        left = Entered(self)
        for code in self:
            if _package(Path(code.co_filename)) in LOG_AND_CONNECTION:
                del left[code]
        return left


def _package(path: Path) -> str:
    """Return the package of a file, as ``gate`` or ``dask/wire``."""
    parts = path.relative_to(PACKAGE).parts
    return "/".join(parts[: 2 if parts[0] == "dask" else 1])


def imported_with(files: Iterable[Path]) -> tuple[set[Path], set[str]]:
    """Import *files* in a process of its own; return all files of safeser, and other packages."""
    names = (".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in files)
    command = [sys.executable, "-c", _IMPORT, *names]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    own, others = set(), set()
    for name, _, file in (line.partition(" ") for line in said.splitlines()):
        if name.partition(".")[0] == PACKAGE.name:
            own.add(Path(file))
        elif "site-packages" in file and name.isidentifier() and not name.startswith("_"):
            others.add(name)
    return own, others


class Recorder:
    """Notes the functions of safeser that some threads enter inside of :meth:`during`."""

    def __init__(self) -> None:
        #: What was entered in each case, as often as that was done.
        self.rounds: dict[str, list[Entered]] = defaultdict(list)
        self._entered: Entered | None = None
        self._waiting: set[FrameType] = set()

    def watch(self) -> None:
        """Note what the calling thread enters, from now on."""
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if self._entered is None or event != "call":
            return
        if not code.co_filename.startswith(f"{PACKAGE}/") or frame in self._waiting:
            return  # or it goes on where it was
        if code.co_flags & _WAITS:
            self._waiting.add(frame)
        self._entered[code] += 1

    @contextmanager
    def during(self, case: str) -> Iterator[None]:
        gc.collect()
        gc.disable()  # a collection would enter what other work left behind
        self._entered = Entered()
        self.rounds[case].append(self._entered)
        try:
            yield
        finally:
            self._entered = None
            self._waiting.clear()
            gc.enable()


# --- the cases ------------------------------------------------------------------------------------


async def run(recorder: Recorder, folder: Path) -> None:
    """Do the work of each case, some times; *folder* is for keys and logs."""
    recorder.watch()
    await offload(recorder.watch)  # the thread in which large messages are understood
    await _arrays(recorder, Doors(folder / "logs"))
    await _strangers(recorder, folder / "cluster")
    value = {"day": datetime.date(2026, 1, 1), "price": decimal.Decimal("9.90"), "at": (1, 2.5)}
    data = pickle.dumps(value, protocol=5)
    for _ in range(ROUNDS):
        with recorder.during(PICKLE):
            assert safeser.pickles.loads(data, profile="data") == value


async def _strangers(recorder: Recorder, folder: Path) -> None:
    """Let processes whose keys are not in the roster connect to a scheduler."""
    make_identities(folder, ("scheduler", "worker", "nanny", "client"))
    key = str(folder / "scheduler.key")
    security = safeser.Security(identity=key, policy=POLICY, audit=str(folder / "audit"))
    options = {"protocol": "safeser://", "host": "127.0.0.1", "dashboard_address": ":0"}
    async with Scheduler(**options, security=security, dashboard=False) as scheduler:
        for _ in range(ROUNDS):
            with recorder.during(STRANGER):
                await asyncio.to_thread(_knock, scheduler.port)


def _knock(port: int) -> None:
    stranger = safeser.Identity.generate("stranger")
    handshake = Handshake(
        initiator=True,
        identity=stranger,
        principal_of=lambda key: "scheduler",
        policy=(POLICY, 1, "ab" * 32),
    )
    with socket.create_connection(("127.0.0.1", port)) as peer, peer.makefile("rb") as heard:
        peer.sendall(handshake.outgoing)
        while not handshake.complete:
            peer.sendall(handshake.feed(heard.read(handshake.wanted)))
        assert heard.read() == REFUSED


class Connection:
    """A conversation whose asker reads on a real connection what its server sealed."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._far = socket.create_connection(server.getsockname())
            near, _ = server.accept()
        names = ("safeser://127.0.0.1:1", "safeser://127.0.0.1:2", talk.asker._opens)
        self._comm = SafeserComm(IOStream(near), *names, link=talk.near, server=None)
        self._comm.conversation = talk.asker

    async def read(self, recorder: Recorder, case: str, frames: list[Any]) -> Any:
        wire = b"".join(self._talk.far.session.seal(b"", frames))
        sending = threading.Thread(target=self._far.sendall, args=(wire,))
        with recorder.during(case):
            sending.start()
            message = await self._comm.read()
        sending.join()
        return message


async def _arrays(recorder: Recorder, doors: Doors) -> None:
    """Send an array of 800 kB from a worker by its scheduler to a client."""
    array = np.arange(100_000.0)
    worker = Talk(doors, "scheduler", "worker", POLICY).greet()
    client = Talk(doors, "client", "scheduler", POLICY).greet()
    to_scheduler, to_client = Connection(worker), Connection(client)
    for _ in range(ROUNDS):
        worker.request({"op": "get_data", "keys": ["x"], "who": "safeser://1:1", "reply": True})
        frames = worker.server.send({"status": "OK", "data": {"x": to_serialize(array)}})
        relayed = await to_scheduler.read(recorder, READ, frames)
        worker.request("OK")
        client.request({"op": "gather", "keys": ["x"], "reply": True})
        with recorder.during(WRITTEN):
            frames = client.server.send({"status": "OK", "data": relayed["data"]})
        got = await to_client.read(recorder, ARRAY, frames)
        np.testing.assert_array_equal(got["data"]["x"], array)


# --- what is printed ------------------------------------------------------------------------------


def table(*headings: str) -> Table:
    made = Table(*headings, box=None, pad_edge=False)
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def row(*cells: str | int) -> tuple[str, ...]:
    return tuple(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells)


def main() -> int:
    """Print the tables.

    :return: 0, or 1 where a number is above its ``most``.
    """
    logging.disable(logging.CRITICAL)  # a stranger who is refused is logged
    recorder = Recorder()
    with tempfile.TemporaryDirectory(prefix="safeser-trust-") as folder:
        asyncio.run(run(recorder, Path(folder)))
    entered = table("functions of safeser that are entered", "functions", "calls", "files", "lines")
    imported = table("imported with the files of these", "files", "lines", "and packages")
    imported.columns[-1].justify = "left"
    bounds = table("bounds", "", "measured", "most", "asked")
    bounds.columns[1].justify = "left"
    broken = []
    for case, rows in tomllib.loads(BOUNDS.read_text("utf-8")).items():
        # Another one may write what is written once a second.
        fewest = min(recorder.rounds[case], key=Entered.total)
        every, counted = fewest.numbers, fewest.judging().numbers
        entered.add_row(*row(case, *every.values()))
        if counted != every:
            entered.add_row(*row("  without connection and log", *counted.values()))
        if "lines imported" in rows:
            files, packages = imported_with(fewest.lines)
            lines = sum(len(path.read_text("utf-8").splitlines()) for path in files)
            counted["lines imported"] = lines
            imported.add_row(*row(case, len(files), lines, " ".join(sorted(packages))))
        for what, bound in rows.items():
            number, most = counted[what], bound["most"]
            style = "bold red" if number > most else None
            bounds.add_row(*row(case, what, number, most, bound.get("asked", "")), style=style)
            if number > most:
                broken.append(f"{case}: {number:,} {what}, at most {most:,} in bounds.toml")
    console = Console(width=100, highlight=False)
    for each in (entered, imported, bounds):
        console.print(each, "")
    show_notes(rounds=ROUNDS, packages=("safeser", "distributed", "numpy"))
    for problem in broken:
        print(f"trust: {problem}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
