"""Where Dask's own code unpickles in the middle of something: shuffles, and plugins that install.

The one rule: the code that opens the answer is Dask's, unchanged. Honest calls, which alice may
make, bring a server to ask a hostile worker, on stock Dask and here alike.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed.protocol.serialize import Serialized

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


def _calls(wire: Wire, target: str, function: Any, *arguments: Any) -> Any:
    """Have a server run one of the above."""
    operation = "run_function" if target == "scheduler" else "run"
    told = {"function": _by_value(function), "args": cloudpickle.dumps(arguments), "wait": True}
    return wire.ask({"op": operation, **told})


class Liar:
    """A hostile worker: whatever it is asked, it failed, and this is the exception."""

    def __init__(self, channel: Any = None) -> None:
        self.exception: Any = None
        self.host = Host(self._answer, channel=channel)

    def _answer(self, wire: Wire) -> None:
        while True:
            wire.read()
            wire.send({"status": "error", "exception": self.exception, "traceback": None})


#: Who is brought to ask, by which honest call, and how stock Dask takes the exception there.
ASKED = [("worker", sends_shards, "bytes"), ("scheduler", installs, "dask-bytes")]


@pytest.mark.parametrize(("target", "function", "how"), ASKED)
def test_no_server_opens_why_another_failed(rig: Rig, target: str, function: Any, how: str) -> None:
    stock, liar = Liar(), Liar(rig.channel("worker"))
    with stock.host, liar.host:
        marker = rig.marker("stock-liar")
        stock.exception = in_stock(Evil(how, "ValueError()"), marker, str)
        assert how == "bytes" or isinstance(stock.exception, Serialized)
        with rig.stock_to(target) as wire:
            _calls(wire, target, function, stock.host.address)
        assert int(marker.read_text()) == rig.pids[target], "the control did not run"

        markers: list[Path] = []

        def marked(form: str) -> Path:
            markers.append(rig.marker(f"liar-{form}"))
            return markers[-1]

        rig.log.new()
        forms = list(in_all_forms(Evil(how), marked, str, short=True))
        for form, liar.exception in forms:
            address = liar.host.address
            if target == "scheduler":
                with rig.sealed_to("scheduler", "alice") as wire:
                    _calls(wire, target, function, address)
            else:
                call = {
                    "op": "run",
                    "function": _by_value(function),
                    "args": cloudpickle.dumps((address,)),
                    "wait": True,
                }
                with rig.sealed_to("scheduler", "alice") as wire:
                    message = {"op": "broadcast", "msg": call, "workers": [rig.sealed["worker"]]}
                    wire.ask(message)
            found = rig.log.wait(
                lambda r: (r["sender"], r["recipient"]) == ("worker", target),
                patience=0.0 if form == "bytes" else 30.0,
            )
            assert found or form == "bytes", f"{form} left no record"
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
            for form, message in in_all_forms(template, marked, str, short=role != "worker"):
                rig.log.new()
                answer = wire.ask(message)
                assert answer["status"] == "uncaught-error", (role, form)
                assert rig.log.wait(lambda r, role=role: r["sender"] == role), (role, form)
    assert not [each for each in markers if rig.made(each)]
    assert set(rig.evaluate("alice", "worker", "2").values()) == {2}
