"""The controls: each row on stock Dask, where it must do what it is there for, and what it needs.

The one rule: an attack that stock Dask was not seen to suffer, in the process that was meant, is
no attack.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from pathlib import Path
from typing import Any

from tests.dask.live.payloads import Evil, evil, in_stock
from tests.dask.live.rig import CONFIGURED, SECRET, Rig
from tests.dask.live.table import NEW_MODULES, Row
from tests.dask.live.wires import (
    Eager,
    Host,
    PayloadRow,
    Wire,
    value_of,
)

__all__ = ["Traps", "control", "is_stream", "send_all"]

#: How long stock Dask may take until it has run what it was sent.
RUNS = 20.0


def _asked(wire: Wire) -> bool:
    """Wait for a request: who got data says so in between, and waits for no answer to that."""
    while not isinstance(wire.read(), dict):
        pass
    return True


class Traps:
    """Hostile servers that messages may name, and what else they may name."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.marker = rig.marker("unused")
        self.stock = Host(self._answer_stock)
        self.sealed = Host(self._answer_sealed, channel=rig.channel("worker"))

    def _answer_stock(self, wire: Wire) -> None:
        while _asked(wire):
            payload = in_stock(Evil("pickled"), self.marker, str)
            wire.send({"status": "OK", "data": {"x": payload}})

    def _answer_sealed(self, wire: Wire) -> None:
        while _asked(wire):
            row = PayloadRow({"serializer": "pickle", "writeable": []}, (evil(self.marker),))
            wire.send({"status": "OK", "data": {"x": Eager(row)}})

    def here(self, marker: Path, *, stock: bool) -> Any:
        """Return what tells what a name stands for in a message with that marker."""
        self.marker = marker
        addresses = self.rig.stock if stock else self.rig.sealed
        host = self.stock if stock else self.sealed
        code = f"open({str(marker)!r}, 'w').write(str(__import__('os').getpid()))\n"
        number, scheme = int(marker.name[:5]), host.address.partition(":")[0]
        named = {
            "client": f"Client-{marker.name}",
            "nobody": f"{scheme}://127.0.0.1:{1 + number % 1000}",
            "worker": addresses["worker"],
            "hostile": host.address,
            "hostile-tcp": self.stock.address,
            "module-name": f"live_{marker.name.partition('-')[0]}.py",
            "module": code.encode(),
            "url": f"file://{marker}.yaml",
            "path": "../" * 40 + str(marker).lstrip("/"),
            "new-module": NEW_MODULES[0],
        }
        return named.__getitem__

    def close(self) -> None:
        self.stock.close()
        self.sealed.close()


def is_stream(row: Row) -> bool:
    return len(row.say) > 1


def send_all(wire: Wire, row: Row, messages: list[Any]) -> bytes:
    """Send the messages of *row*, and return the bytes of the answer if there must be one."""
    wire.last = b""
    first, *rest = messages
    if not is_stream(row):
        wire.send(first)
        return _answer(wire)
    wire.send(first)
    if first["op"] != "connection_stream":
        _answer(wire)
    for message in rest:
        wire.send([message])
    return b""


def _answer(wire: Wire) -> bytes:
    """Read the answer without believing that it can be decoded."""
    with contextlib.suppress(Exception):  # whatever it is, it is looked at as bytes
        wire.read()
    return wire.last


def _worked(rig: Rig, row: Row, marker: Path, answer: bytes) -> bool:
    if row.effect == "leaked":
        wanted = CONFIGURED if "config" in row.name else SECRET
        return wanted.encode() in answer
    return rig.made(marker)


def _said_in_turn(rig: Rig, row: Row, messages: list[Any]) -> tuple[Wire, bytes]:
    if messages[0]["op"] == "greet":
        return rig.stock_to(row.target, note=messages[0]["note"]), b""
    wire = rig.stock_to(row.target)
    return wire, send_all(wire, row, messages)


def control(rig: Rig, traps: Traps, row: Row) -> str:
    """Send *row* to stock Dask; return what is wrong with that, if anything."""
    marker = rig.marker("stock")
    named = traps.here(marker, stock=True)
    module = _not_imported(rig, row.target) if row.effect == "imported" else ""

    def here(name: str) -> Any:
        return module if name == "new-module" else named(name)

    messages = [in_stock(each, marker, here) for each in row.say]
    wire, answer = _said_in_turn(rig, row, messages)
    with wire:
        ran = _worked(rig, row, marker, answer)
        deadline = time.monotonic() + (RUNS if row.effect in ("ran", "wrote") else 0)
        while not ran and time.monotonic() < deadline:
            time.sleep(0.01)
            ran = _worked(rig, row, marker, answer)
    if row.effect == "imported":
        ran = module in _modules(rig, row.target)
    if not ran:
        return f"{row.name}: the control did not run on stock Dask"
    if row.effect == "ran":
        wrote, expected = _pid_in(marker), rig.pids[row.by or row.target]
        if wrote != expected:
            return f"{row.name}: the control ran in process {wrote}, not in {expected}"
    return ""


def _pid_in(marker: Path) -> int:
    deadline = time.monotonic() + RUNS
    while not (text := marker.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(text or 0)


def _not_imported(rig: Rig, target: str) -> str:
    known = _modules(rig, target)
    return next(name for name in NEW_MODULES if name not in known)


def _modules(rig: Rig, target: str) -> set[str]:
    code = "list(__import__('sys').modules)"
    call = {"function": pickle.dumps(eval), "args": pickle.dumps((code,)), "wait": True}
    with rig.stock_to(target) as wire:
        operation = "run_function" if target == "scheduler" else "run"
        return set(value_of(wire.ask({"op": operation, **call})["result"]))
