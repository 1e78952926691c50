"""What would be a pickle on its way to a client, by every way there is; prints what came as JSON.

Each step is an error of its own or plain data, within seconds, and the client works afterwards.
Whatever unpickles :class:`Trap` writes its process into a file.
"""

from __future__ import annotations

import functools
import json
import operator
import os
import pickle
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from distributed import Queue, Variable, WorkerPlugin, get_worker
from distributed.protocol import to_serialize
from distributed.worker import warn

import safeser

STEPS: list[Any] = []


def step(function: Any) -> Any:
    STEPS.append(function)
    return function


class Trap:
    """A value that nobody can send but as a pickle, which tells on whoever opens it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return eval, (f"open({self.path!r}, 'a').write(f'{{__import__(\"os\").getpid()}} ')",)

    def method(self) -> Any:
        return Trap(self.path)


class TrapError(Exception):
    def __init__(self, path: str) -> None:
        super().__init__("fell into it", Trap(path))
        self.path = path

    __reduce__ = Trap.__reduce__


class TrapWarning(UserWarning):
    __reduce__ = TrapError.__reduce__

    def __init__(self, path: str) -> None:
        super().__init__("mind it")
        self.path = path


def make(path: str) -> Trap:
    return Trap(path)


def fall(path: str) -> None:
    raise TrapError(path)


@step
def result(client: Any, path: str) -> Any:
    return client.submit(make, path, key="trap").result(timeout=30)


@step
def gathered(client: Any, path: str) -> Any:
    futures = [client.submit(make, path, key="trap"), client.submit(operator.neg, 3)]
    said = []
    for direct in (False, True):
        try:
            said.append(client.gather(futures, direct=direct))
        except safeser.SafeserError as refused:
            said.append(refused.rule)
    return [*said, futures[1].result(timeout=20)]


@step
def kept_type(client: Any, path: str) -> Any:
    future = client.submit(make, path, key="trap")
    future.done()
    time_out(lambda: future.status == "finished")
    return [future.type is Trap, "Trap" in repr(future)]


@step
def error(client: Any, path: str) -> Any:
    return client.submit(fall, path).result(timeout=30)


@step
def its_traceback(client: Any, path: str) -> Any:
    future = client.submit(fall, path, pure=False)
    found = future.exception(timeout=30)
    return [type(found).__name__, "in fall" in str(found.__notes__), future.traceback(timeout=10)]


@step
def warning(client: Any, path: str) -> Any:
    def warns() -> None:
        warnings.simplefilter("ignore")
        warn(TrapWarning(path))
        warn("plain")

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        client.submit(warns, pure=False).result(timeout=30)
        time_out(lambda: any(str(each.message) == "plain" for each in seen))
    return sorted({each.category.__name__ for each in seen if "SAFESER" not in str(each.message)})


@step
def event(client: Any, path: str) -> Any:
    events: list[Any] = []
    client.subscribe_topic("traps", events.append)

    def logs() -> None:
        worker = get_worker()
        event = {"op": "log-event", "topic": "traps", "worker": worker.address}
        # Past log_event, which takes only what is plain.
        for held in (to_serialize(Trap(path)), pickle.dumps(Trap(path)), 2):
            worker.loop.add_callback(worker.batched_stream.send, {**event, "msg": {"x": held}})

    client.submit(logs, pure=False).result(timeout=30)
    time_out(lambda: any(each[1]["x"] == 2 for each in events))
    client.unsubscribe_topic("traps")
    return [type(each[1]["x"]).__name__ for each in events]


@step
def event_kept(client: Any, path: str) -> Any:
    return [type(each[1]["x"]).__name__ for each in client.get_events("traps")]


@step
def actor_result(client: Any, path: str) -> Any:
    actor = client.submit(Trap, path, actor=True).result(timeout=30)
    return actor.method().result(timeout=20)


@step
def actor_attribute(client: Any, path: str) -> Any:
    class Holds:
        held = plain = None

        def __init__(self) -> None:
            self.held = Trap(path)
            self.plain = 5

    actor = client.submit(Holds, actor=True).result(timeout=30)
    try:
        return actor.held
    finally:
        assert actor.plain == 5


@step
def plugin_reply(client: Any, path: str) -> Any:
    class Falls(WorkerPlugin):
        name = "falls"

        def setup(self, worker: Any) -> None:
            fall(path)

    try:
        client.register_plugin(Falls())
    finally:
        client.unregister_worker_plugin("falls")


@step
def queue_item(client: Any, path: str) -> Any:
    """What a task puts it may not send, and what a client puts neither."""
    queue = Queue("traps", client=client)
    queue.put(4)

    def puts() -> None:
        Queue("traps").put(Trap(path), timeout=10)

    said = []
    for call in (client.submit(puts, pure=False).result, functools.partial(queue.put, Trap(path))):
        try:
            said.append(call())
        except Exception as refused:
            said.append(getattr(refused, "rule", repr(refused)))
    return [*said, queue.get(timeout=20)]


@step
def variable(client: Any, path: str) -> Any:
    """What a task sets it may not send, and what a client sets neither."""
    kept = Variable("traps", client=client)
    kept.set(8)

    def sets() -> None:
        Variable("traps").set(Trap(path), timeout=10)

    said = []
    for call in (client.submit(sets, pure=False).result, functools.partial(kept.set, Trap(path))):
        try:
            said.append(call())
        except Exception as refused:
            said.append(getattr(refused, "rule", repr(refused)))
    return [*said, kept.get(timeout=20)]


@step
def future_in_a_variable(client: Any, path: str) -> Any:
    future = client.submit(make, path, key="trap")
    Variable("left-future", client=client).set(future)
    return Variable("left-future", client=client).get(timeout=20).result(timeout=20)


@step
def dataset(client: Any, path: str) -> Any:
    client.publish_dataset(Trap(path), name="left-by-alice", override=True)
    client.publish_dataset(7, name="plain", override=True)
    assert client.get_dataset("plain") == 7
    return client.get_dataset("left-by-alice")


@step
def run_reply(client: Any, path: str) -> Any:
    return client.run(functools.partial(make, path))


@step
def run_error(client: Any, path: str) -> Any:
    return client.run(functools.partial(fall, path))


@step
def run_on_scheduler_reply(client: Any, path: str) -> Any:
    return client.run_on_scheduler(functools.partial(make, path))


@step
def names_of_families(client: Any, path: str) -> Any:
    """Ask, by name, for what policy lets nobody send: of a worker, and of the scheduler."""
    future = client.submit(make, path, key="trap")
    time_out(lambda: future.status == "finished")
    [(worker,)] = client.who_has([future]).values()
    wanted = ["pickle", "cloudpickle"]

    async def of_a_worker() -> Any:
        return await client.rpc(worker).get_data(keys=["trap"], serializers=wanted)

    async def of_the_scheduler() -> Any:
        return await client.scheduler.gather(keys=["trap"], serializers=wanted)

    said = []
    for ask in (of_a_worker, of_the_scheduler):
        try:
            said.append(repr(client.sync(ask)))
        except Exception as refused:
            said.append(getattr(refused, "rule", repr(refused)))
    return said


def time_out(probe: Any) -> None:
    deadline = time.monotonic() + 20
    while not probe():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


# --- a guest, afterwards --------------------------------------------------------------------------


def guest(client: Any) -> dict[str, Any]:
    future = Variable("left-future", client=client).get(timeout=20)
    return {
        "future": lambda: future.result(timeout=20),
        "past the scheduler": lambda: client.gather([future], direct=True),
        "dataset": lambda: client.get_dataset("left-by-alice"),
        "names of families": lambda: client.sync(
            client.scheduler.gather, keys=[future.key], serializers=["pickle", "cloudpickle"]
        ),
    }


def heard(call: Any) -> list[Any]:
    began = time.monotonic()
    try:
        said = ["returned", "", call()]
    except Exception as refused:
        said = [type(refused).__name__, getattr(refused, "rule", ""), str(refused)[:300]]
    return [*said, time.monotonic() - began < 25]


def works(client: Any, who: str) -> bool:
    if who == "alice":
        return client.submit(operator.add, 1, 1, pure=False).result(timeout=30) == 2
    return client.gather(client.scatter([2], hash=False)) == [2]


def main(address: str, who: str, path: str) -> None:
    out: dict[str, Any] = {}
    with safeser.Client(address, deserializers=["dask", "msgpack"], timeout=30) as client:
        client.wait_for_workers(2, timeout=60)
        calls = (
            {each.__name__: functools.partial(each, client, path) for each in STEPS}
            if who == "alice"
            else guest(client)
        )
        for name, call in calls.items():
            out[name] = [*heard(call), works(client, who)]
    opened = Path(path).read_text().split() if Path(path).exists() else []
    out["opened here"] = str(os.getpid()) in opened
    pickle.loads(pickle.dumps(Trap(path)))
    out["the trap works"] = str(os.getpid()) in Path(path).read_text().split()
    print(json.dumps(out, default=repr))


if __name__ == "__main__":
    main(*sys.argv[1:])
