"""What a guest hears who asks, by Dask's own methods, for what nobody granted; prints it as JSON.

Each is an error at the call, and the client works afterwards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from distributed import Event, WorkerPlugin
from distributed.actor import Actor

import safeser


class OnWorkers(WorkerPlugin):
    name = "mine"


def calls(client, folder):
    asks = client.sync
    scheduler = client.scheduler
    module = Path(folder) / "uploaded.py"
    module.write_text("x = 1\n")
    worker = next(iter(client.scheduler_info()["workers"]))

    return {
        "submit": lambda: client.submit(len, "x"),
        "map": lambda: client.map(len, ["x"]),
        "run": lambda: client.run(len, "x"),
        "run_function": lambda: client.run_on_scheduler(len, "x"),
        "register_worker_plugin": lambda: client.register_plugin(OnWorkers()),
        "upload_file": lambda: client.upload_file(str(module)),
        "restart": client.restart,
        "actor_execute": lambda: (
            Actor(list, worker, "kept", worker=None).append(1).result(timeout=20)
        ),
        "get_task_stream": client.get_task_stream,
        "get_logs": client.get_scheduler_logs,
        "proxy": lambda: asks(scheduler.proxy, msg={"op": "run"}, worker=worker),
        "proxy of a broadcast": lambda: asks(
            scheduler.proxy, msg={"op": "broadcast", "msg": {"op": "run"}}, worker=worker
        ),
        "no such field": lambda: asks(scheduler.who_has, keys=[], nothing=1),
    }


def heard(call):
    try:
        said = ["returned", "", repr(call())[:300]]
    except Exception as error:
        rule = getattr(error, "rule", "")
        said = [type(error).__name__, rule, str(error)]
    return said


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
