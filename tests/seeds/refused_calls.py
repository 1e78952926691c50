"""Calls of a client that are refused on a cluster; prints the error of each as JSON."""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from distributed import NannyPlugin, Queue, SchedulerPlugin, Variable, WorkerPlugin

import safeser

LOCK = threading.Lock()


class Parcel:
    """Registered in the client's process alone."""

    def __init__(self) -> None:
        self.weight = 1


class OfWorkers(WorkerPlugin):
    name = "of-workers"

    def __init__(self, held: Any) -> None:
        self.held = held


class OfScheduler(SchedulerPlugin):
    name = "of-scheduler"

    def __init__(self, held: Any) -> None:
        self.held = held


class OfNannies(NannyPlugin):
    name = "of-nannies"

    def __init__(self, held: Any) -> None:
        self.held = held


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        call()
    except Exception as error:
        shown = traceback.format_exception(error)
        return {"type": type(error).__name__, "text": str(error), "shown": "".join(shown)}
    return {"type": "", "text": "", "shown": ""}


def passed_on(client: safeser.Client) -> dict[str, Callable[[], Any]]:
    """Return calls that a worker refuses, of which the scheduler is told."""
    safeser.register_class(Parcel)
    return {
        "scatter": lambda: client.scatter(Parcel()),
        "scatter to all": lambda: client.scatter({"parcel": Parcel()}, broadcast=True),
    }


def unsendable(client: safeser.Client) -> dict[str, Callable[[], Any]]:
    """Return calls that hold a lock."""
    return {
        "run": lambda: client.run(lambda: LOCK),
        "run with an argument": lambda: client.run(print, 1, LOCK),
        "run on the scheduler": lambda: client.run_on_scheduler(print, end=LOCK),
        "plugin of workers": lambda: client.register_plugin(OfWorkers(LOCK)),
        "plugin of the scheduler": lambda: client.register_plugin(OfScheduler(LOCK)),
        "plugin of nannies": lambda: client.register_plugin(OfNannies(LOCK)),
        "data set": lambda: client.publish_dataset(mine=[LOCK]),
        "queue": lambda: Queue("queue").put({"mine": LOCK}),
        "variable": lambda: Variable("variable").set([LOCK]),
        "metadata": lambda: client.set_metadata("mine", LOCK),
    }


def main() -> None:
    said = {}
    families = ["dask", "msgpack"]
    with safeser.Client(sys.argv[1], serializers=families) as client:
        for name, call in {**passed_on(client), **unsendable(client)}.items():
            print(f"--- {name}", file=sys.stderr, flush=True)
            said[name] = error_of(call)
        print("--- end", file=sys.stderr, flush=True)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
