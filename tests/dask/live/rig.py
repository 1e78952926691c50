"""Two clusters side by side, one on stock Dask, and what is needed to attack both and to look.

The one rule: whether something ran is read from files, and whether it was refused from the log of
whoever refused it; no attacker is believed.
"""

from __future__ import annotations

import itertools
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safeser.audit.names import Resolver
from safeser.audit.record import parse
from safeser.channel import Channel
from safeser.identity import Identity, Roster
from safeser.policy import Policy
from tests.dask.live.wires import Sealing, Stock, Wire, value_of
from tests.processes import DASK, address_in, base_environment, until
from tests.shared import SECRET

__all__ = ["SECRET", "Log", "Rig", "Silent"]

#: What configuration holds and no answer to an attacker has a reason to.
CONFIGURED = "allowed-imports"


class Silent:
    """An attacker's own log, which proves nothing."""

    def record(self, event: Mapping[str, Any], /) -> None:
        pass

    def record_all(self, events: Sequence[Mapping[str, Any]], /) -> None:
        pass

    def count(self, *_: Any, **__: Any) -> None:
        pass


class Log:
    """What all processes of the cluster recorded, each record returned once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, tuple[int, Resolver]] = {}
        self.text = b""  # all of it, to look for what must not be there

    def new(self) -> list[dict[str, Any]]:
        """Return the records since the last call."""
        found = []
        for path in sorted(self._folder.glob("*.log")):
            start, resolver = self._read.get(path, (0, Resolver()))
            if path.stat().st_size <= start:
                continue
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = start + len(whole), resolver
            self.text += whole
            found += [dict(resolver.resolve(parse(line)).fields) for line in whole.splitlines()]
        return found

    def holds(self, text: str) -> bool:
        """Tell whether any record so far holds *text*."""
        self.new()
        return text.encode() in self.text

    def refusals(self) -> list[dict[str, Any]]:
        """Return what was refused since the last call, one by one, counted, or too much to tell."""
        found = []
        for record in self.new():
            for sender, recipient, operation, rule, permitted, _ in record.get("counts", ()):
                if not permitted:
                    found.append(_refusal(sender, recipient, operation, rule))
            for sender, rule, *_ in record.get("suppressed", ()):
                found.append(_refusal(sender, "", "", rule))
            if record.get("permitted") is False:
                found.append(record)
        return found

    def wait(self, wanted: Callable[[dict[str, Any]], bool], patience: float = 30.0) -> Any:
        """Return the first refusal from now on that is *wanted*, or None."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            for record in self.refusals():
                if wanted(record):
                    return record
            time.sleep(0.005)
        return None


class Rig:
    """Both clusters, and a key of everybody's for whoever attacks.

    :param cluster: the one on safeser, already running.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.path: Path = cluster.path
        self.markers = self.path / "markers"
        self.markers.mkdir()
        self.log = Log(cluster.audit)
        self.policy = Policy.load(cluster.policy)
        self.roster = Roster.load(cluster.keys / "roster")
        self._channels: dict[str, Channel] = {}
        self._number = itertools.count()
        self.stock: dict[str, str] = {}  # addresses
        self.pids: dict[str, int] = {}  # of stock processes
        self.sealed: dict[str, str] = {}

    # --- keys -----------------------------------------------------------------------------------

    def channel(self, principal: str) -> Channel:
        """Return the side of whoever holds a key of *principal*, or one that nobody lists."""
        if principal not in self._channels:
            if principal == "unlisted":
                identity = Identity.generate("alice")
            else:
                identity = Identity.load(self.cluster.keys / f"{principal}.key")
            self._channels[principal] = self._channel_of(identity)
        return self._channels[principal]

    def _channel_of(self, identity: Identity) -> Channel:
        roster = self.roster
        if roster.principal_of(identity.public) is None:
            roster = Roster.parse(f"{identity.public.text} alice active 2026-01-01\n")
            known = [e for e in self.roster.entries if e.principal != "alice"]
            for entry in known:
                roster = roster.with_entry(entry)
        return Channel(identity=identity, policy=self.policy, audit=Silent(), roster=roster)

    def sealed_to(self, target: str, role: str, **greeting: Any) -> Sealing:
        return Sealing.to(self.sealed[target], self.channel(role), **greeting)

    def stock_to(self, target: str, **greeting: Any) -> Stock:
        return Stock.to(self.stock[target], **greeting)

    def told(self, text: str) -> list[str]:
        """Return who said *text* where operators look: in its log, or in an audit record."""
        safe = [path for path in self.path.glob("*.log") if not path.name.startswith("stock-")]
        found = [path.name for path in safe if text.encode() in path.read_bytes()]
        return found + (["the audit logs"] if self.log.holds(text) else [])

    # --- markers --------------------------------------------------------------------------------

    def marker(self, what: str) -> Path:
        """Return a file that nothing has made, and whose name no other one begins with."""
        return self.markers / f"{next(self._number):05d}-{what}"

    def made(self, marker: Path) -> bool:
        return any(self.markers.glob(f"{marker.name}*"))

    # --- the clusters ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Start stock Dask; return when both clusters work."""
        plain = base_environment() | {"LIVE_SECRET": SECRET}
        where = self.path / "stock.json"
        options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
        command = [DASK, "scheduler", "--port", "0", *options, "--scheduler-file", str(where)]
        started = self.cluster.start("stock-scheduler", *command, environment=plain)
        self.pids["scheduler"] = started.pid
        self.stock["scheduler"] = until("its file", lambda: address_in(where))
        scratch = ["--local-directory", str(self.path / "stock-scratch"), "--nthreads", "1"]
        command = [DASK, "worker", self.stock["scheduler"], *options, *scratch]
        self.cluster.start("stock-worker", *command, environment=plain)
        self.sealed["scheduler"] = self.cluster.address
        with self.stock_to("scheduler") as wire:
            self.stock |= until("a worker", lambda: _workers(wire, 1))
            self.pids["worker"] = self._pid(wire, nanny=False)
            self.pids["nanny"] = self._pid(wire, nanny=True)
        with self.sealed_to("scheduler", "alice") as wire:
            self.sealed |= until("two workers", lambda: _workers(wire, 2))

    @staticmethod
    def _pid(wire: Wire, *, nanny: bool) -> int:
        msg = {"op": "run", "function": pickle.dumps(os.getpid), "wait": True}
        [answer] = wire.ask({"op": "broadcast", "msg": msg, "nanny": nanny}).values()
        return int(value_of(answer["result"]))

    def evaluate(self, role: str, target: str, code: str) -> dict[str, Any]:
        """Return what *code* is in each worker, nanny or the scheduler; alice is granted to ask."""
        call = {"function": pickle.dumps(eval), "args": pickle.dumps((code,)), "wait": True}
        with self.sealed_to("scheduler", role) as wire:
            if target == "scheduler":
                answer = wire.ask({"op": "run_function", **call})
                return {self.sealed[target]: value_of(answer["result"])}
            message = {"op": "broadcast", "msg": {"op": "run", **call}, "nanny": target == "nanny"}
            return {k: value_of(v["result"]) for k, v in wire.ask(message).items()}


def _refusal(sender: str, recipient: str, operation: str, rule: str) -> dict[str, Any]:
    return {"sender": sender, "recipient": recipient, "operation": operation, "rule": rule}


def _workers(wire: Wire, count: int) -> dict[str, str] | None:
    workers = wire.ask({"op": "identity", "n_workers": -1})["workers"]
    if len(workers) < count:
        return None
    address, first = next(iter(workers.items()))
    return {"worker": address, "nanny": first["nanny"]}
