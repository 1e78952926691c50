"""Where Dask's own code unpickles in the middle of something: shuffles, and plugins that install.

The one rule: the code that opens the answer is Dask's, unchanged. Honest calls, which alice may
make, bring a server to ask a hostile worker, on stock Dask and here alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.dask.live.payloads import Evil, evil, in_all_forms, in_stock
from tests.dask.live.rig import Rig
from tests.dask.live.wires import Host, Wire

pytestmark = pytest.mark.cluster


def _by_value(function: Any) -> bytes:
    """Return *function* as code: the servers cannot import this module."""
    made = function.__class__(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    made.__module__ = "__main__"
    return cloudpickle.dumps(made)


def ready_for_shards(dask_worker):
    from distributed.shuffle._core import ShuffleRun

    class Run:
        receive = ShuffleRun.receive

        async def _receive(self, data):
            pass

    async def any_run(*args, **kwargs):
        return Run()

    dask_worker.plugins["shuffle"]._get_shuffle_run = any_run


async def sends_shards(address, dask_worker):
    from distributed.shuffle._comms import CommShardsBuffer

    class Buffer:
        _process = CommShardsBuffer._process

        async def send(self, address, shards):
            peer = dask_worker.rpc(address)
            return await peer.shuffle_receive(data=shards, shuffle_id="s", run_id=1)

    try:
        await Buffer()._process(address, [])
    except Exception as error:
        return type(error).__name__


async def installs(address, dask_scheduler):
    from distributed.diagnostics.plugin import InstallPlugin

    class Scheduler:
        async def register_worker_plugin(self, **told):
            message = {"op": "plugin-add", "plugin": b"", "name": "x"}
            return await dask_scheduler.broadcast(msg=message, workers=[address])

    try:
        await InstallPlugin(lambda: None, restart_workers=False).start(Scheduler())
    except Exception as error:
        return type(error).__name__


async def asks(address, dask_worker):
    try:
        await dask_worker.rpc(address).identity()
    except Exception as error:
        return type(error).__name__


async def asks_as_scheduler(address, dask_scheduler):
    try:
        await dask_scheduler.rpc(address).identity()
    except Exception as error:
        return type(error).__name__


async def gets_shuffle(address, key, dask_worker):
    from types import SimpleNamespace

    from distributed.shuffle._worker_plugin import _ShuffleRunManager

    worker = SimpleNamespace(scheduler=dask_worker.rpc(address), address=dask_worker.address)
    manager = SimpleNamespace(_plugin=SimpleNamespace(worker=worker))
    try:
        await _ShuffleRunManager._fetch(manager, "s", key)
    except Exception as error:
        return type(error).__name__


def _calls(wire: Wire, target: str, function: Any, *arguments: Any) -> Any:
    """Have a server run one of the above."""
    operation = "run_function" if target == "scheduler" else "run"
    told = {"function": _by_value(function), "args": cloudpickle.dumps(arguments), "wait": True}
    return wire.ask({"op": operation, **told})


class Liar:
    """A hostile server: whatever it is asked, it failed, and this is the exception."""

    def __init__(self, status: str, channel: Any = None) -> None:
        self.exception: Any = None
        self._failed = {"status": status, "exception_text": "it failed", "traceback": None}
        self.host = Host(self._answer, channel=channel)

    def _answer(self, wire: Wire) -> None:
        while True:
            wire.read()
            wire.send({**self._failed, "exception": self.exception})


@dataclass(frozen=True, slots=True)
class Asked:
    """One place where a server takes for an exception what another one answered.

    :param target: who is brought to ask, by the honest call of *function*.
    :param how: how stock Dask takes the exception there.
    :param by: whose key the hostile one holds.
    :param runs: whether it runs on stock Dask: a scheduler opens no reply that it does not look at.
    """

    target: str
    function: Any
    how: str
    by: str = "worker"
    status: str = "error"
    arguments: tuple[Any, ...] = ()
    runs: bool = True


ASKED = {
    "shards": Asked("worker", sends_shards, "bytes"),
    "plugins": Asked("scheduler", installs, "dask-bytes"),
    "shuffle_get": Asked("worker", gets_shuffle, "bytes", arguments=(None,)),
    "shuffle_get_or_create": Asked("worker", gets_shuffle, "bytes", arguments=("k",)),
    "reply to a worker": Asked("worker", asks, "bytes", status="uncaught-error"),
    "reply to a nanny": Asked("nanny", asks, "bytes", "scheduler", status="uncaught-error"),
    "reply to a scheduler": Asked(
        "scheduler", asks_as_scheduler, "bytes", status="uncaught-error", runs=False
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_no_server_opens_why_another_failed(rig: Rig, name: str) -> None:
    row = ASKED[name]
    stock, liar = Liar(row.status), Liar(row.status, rig.channel(row.by))
    with stock.host, liar.host:
        marker = rig.marker("stock-liar")
        stock.exception = in_stock(Evil(row.how, "ValueError()"), marker, str)
        with rig.stock_to(row.target) as wire:
            _calls(wire, row.target, row.function, stock.host.address, *row.arguments)
        assert stock.host.connections == 1
        assert rig.made(marker) is row.runs
        assert not row.runs or int(marker.read_text()) == rig.pids[row.target]

        markers: list[Path] = []

        def marked(form: str) -> Path:
            markers.append(rig.marker(f"liar-{form}"))
            return markers[-1]

        rig.log.new()
        told = cloudpickle.dumps((liar.host.address, *row.arguments))
        call = {"function": _by_value(row.function), "args": told, "wait": True}
        for form, liar.exception in in_all_forms(Evil(row.how), marked, str):
            if (row.by, form) == ("scheduler", "eager"):
                continue  # what a scheduler says is code, a nanny of this policy may open
            with rig.sealed_to("scheduler", "alice") as wire:
                if row.target == "scheduler":
                    wire.ask({"op": "run_function", **call})
                else:
                    to = {"workers": [rig.sealed["worker"]], "nanny": row.target == "nanny"}
                    wire.ask({"op": "broadcast", "msg": {"op": "run", **call}, **to})
            found = rig.log.wait(
                lambda r: (r["sender"], r["recipient"]) == (row.by, row.target),
                patience=0.0 if form == "bytes" else 30.0,
            )
            assert found or form == "bytes", f"{form} left no record"
        assert liar.host.connections
        assert not [each for each in markers if rig.made(each)]
        assert rig.evaluate("alice", "scheduler", "1") == {rig.sealed["scheduler"]: 1}


def test_shards_are_opened_by_nobody_but_safeser(rig: Rig) -> None:
    shard = {"op": "shuffle_receive", "shuffle_id": "s", "run_id": 1}
    marker = rig.marker("stock-shard")
    with rig.stock_to("worker") as wire:
        _calls(wire, "worker", ready_for_shards)
        wire.ask({**shard, "data": evil(marker, "[]")})
    assert int(marker.read_text()) == rig.pids["worker"], "the control did not run"

    markers: list[Path] = []

    def marked(form: str) -> Path:
        markers.append(rig.marker(f"shard-{form}"))
        return markers[-1]

    template = {**shard, "data": Evil("bytes", "[]")}
    for role in ("worker", "bob", "carol", "alice"):
        with rig.sealed_to("worker", role) as wire:
            for form, message in in_all_forms(template, marked, str):
                rig.log.new()
                answer = wire.ask(message)
                assert answer["status"] == "uncaught-error", (role, form)
                assert rig.log.wait(lambda r, role=role: r["sender"] == role), (role, form)
    assert not [each for each in markers if rig.made(each)]
    assert set(rig.evaluate("alice", "worker", "2").values()) == {2}
