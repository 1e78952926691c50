"""What a guest hears who asks, by Dask's own methods, for what nobody granted; prints it as JSON.

Each is an error at the call, within seconds, and the client works afterwards.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from distributed import Event, NannyPlugin, SchedulerPlugin, WorkerPlugin
from distributed.actor import Actor
from distributed.core import send_recv

import safeser


class OnWorkers(WorkerPlugin):
    name = "mine"


class OnScheduler(SchedulerPlugin):
    name = "mine"


class OnNannies(NannyPlugin):
    name = "mine"


def calls(client, folder):
    asks = client.sync
    scheduler = client.scheduler
    module = Path(folder) / "uploaded.py"
    module.write_text("x = 1\n")
    worker = next(iter(client.scheduler_info()["workers"]))

    async def feed():
        comm = await client.rpc.connect(client.scheduler.address)
        try:
            return await send_recv(comm, op="feed", function=b"", interval=1)
        finally:
            client.rpc.reuse(client.scheduler.address, comm)

    return {
        "run": lambda: client.run(len, "x"),
        "run_coroutine": lambda: asks(scheduler.broadcast, msg={"op": "run_coroutine"}),
        "run_function": lambda: client.run_on_scheduler(len, "x"),
        "run on nannies": lambda: client.run(len, "x", nanny=True),
        "feed": lambda: asks(feed),
        "register_worker_plugin": lambda: client.register_plugin(OnWorkers()),
        "register_scheduler_plugin": lambda: client.register_plugin(OnScheduler()),
        "register_nanny_plugin": lambda: client.register_plugin(OnNannies()),
        "unregister_worker_plugin": lambda: client.unregister_worker_plugin("mine"),
        "unregister_scheduler_plugin": lambda: client.unregister_scheduler_plugin("mine"),
        "upload_file": lambda: client.upload_file(str(module)),
        "upload_file itself": lambda: asks(
            scheduler.broadcast, msg={"op": "upload_file", "filename": "x.py", "data": b""}
        ),
        "restart": client.restart,
        "restart_workers": lambda: client.restart_workers([worker]),
        "retire_workers": lambda: client.retire_workers([worker]),
        "terminate": lambda: asks(scheduler.terminate),
        "terminate a worker": lambda: asks(scheduler.proxy, msg={"op": "terminate"}, worker=worker),
        "get_cluster_state": lambda: client.dump_cluster_state(str(Path(folder) / "dump")),
        "dump_cluster_state_to_url": lambda: client.dump_cluster_state(f"file://{folder}/x"),
        "benchmark_hardware": client.benchmark_hardware,
        "set_restrictions": lambda: asks(scheduler.set_restrictions, worker={}),
        "set_resources": lambda: asks(scheduler.set_resources, worker=worker),
        "adaptive_target": lambda: asks(scheduler.adaptive_target),
        "workers_to_close": lambda: asks(scheduler.workers_to_close),
        "unregister": lambda: asks(scheduler.unregister, address=worker, stimulus_id="x"),
        "actor_execute": lambda: (
            Actor(list, worker, "kept", worker=None).append(1).result(timeout=20)
        ),
        "get_task_stream": client.get_task_stream,
        "call_stack": lambda: client.call_stack(keys=["kept"]),
        "profile": client.profile,
        "get_logs": client.get_scheduler_logs,
        "echo": lambda: asks(scheduler.echo, data=1),
        "connection_stream": lambda: asks(scheduler.connection_stream),
        "proxy": lambda: asks(scheduler.proxy, msg={"op": "run"}, worker=worker),
        "proxy of a broadcast": lambda: asks(
            scheduler.proxy, msg={"op": "broadcast", "msg": {"op": "run"}}, worker=worker
        ),
        "no such field": lambda: asks(scheduler.who_has, keys=[], nothing=1),
    }


def heard(call):
    began = time.monotonic()
    try:
        said = ["returned", "", repr(call())[:300]]
    except Exception as error:
        rule = getattr(error, "rule", "")
        said = [type(error).__name__, rule, str(error)]
    return [*said, time.monotonic() - began < 25]


def main(address, folder):
    with safeser.Client(address, deserializers=["dask", "msgpack"], timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        out = {}
        for name, call in calls(client, folder).items():
            out[name] = [*heard(call), client.gather(client.scatter([name], hash=False))[0] == name]
        event = Event("guests", client=client)
        event.set()
        out["afterwards"] = [event.is_set(), len(client.scheduler_info()["workers"])]
    print(json.dumps(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
