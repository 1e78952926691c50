"""What an engineer leaves on a shared cluster for others to look at. Run as a program."""

from __future__ import annotations

import json
import sys
from traceback import format_exc

import numpy as np
from dask.bag.core import no_result
from distributed import SchedulerPlugin, Variable
from mylib.readings import Reading, Unregistered, value_of

import safeser


class Counting(SchedulerPlugin):
    """Would count transitions in the scheduler."""


with safeser.Client(sys.argv[1], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    squares = client.submit(lambda: np.arange(4) ** 2, key="squares")
    Variable("squares").set(squares)
    client.publish_dataset(squares, name="published")
    client.set_metadata("owner", "carol")
    # What a bag's empty parts are, on their way from one worker to another.
    one, other = client.scheduler_info(n_workers=-1)["workers"]
    empty = client.submit(lambda: no_result, workers=[one])
    moved = client.submit(lambda part: part is no_result, empty, workers=[other])

    # Workers open her tasks when they run: what a value's class needs is imported before.
    client.run(value_of, Reading("north", 1.0))
    # Values of classes of her own: what goes from worker to worker is data, as what comes to her.
    passed = {}
    for kind in (Reading, Unregistered):
        made = client.submit(kind, "north", 2.5, workers=[one])
        here = client.submit(value_of, made, workers=[one], pure=False)
        there = client.submit(value_of, made, workers=[other], pure=False)
        try:
            passed[kind.__name__] = [here.result(timeout=30), there.result(timeout=30)]
        except Exception as error:
            passed[kind.__name__] = [here.result(timeout=30), str(error)]
    # Her own task, which she signed, comes back for her to run.
    failed = client.submit(lambda: 1 / 0, key="failed")
    Variable("failed").set(failed)
    try:
        client.recreate_error_locally(failed)
    except Exception as error:
        recreated = [type(error).__name__, __file__ in format_exc()]
    # Data that she brings a worker herself, which runs her tasks anyway.
    brought = client.submit(sum, client.scatter([[1, 2]], direct=True)[0]).result(timeout=60)
    # What only a scheduler could open never leaves her process, or is refused there.
    refused = {}
    for name, call in {
        "run_on_scheduler": lambda: client.run_on_scheduler(len, "x"),
        "scheduler plugin": lambda: client.register_plugin(Counting()),
    }.items():
        try:
            refused[name] = repr(call())
        except safeser.SafeserError as error:
            refused[name] = error.rule
    print(
        json.dumps(
            {
                "squares": squares.result(timeout=30).tolist(),
                "empty part moved": moved.result(timeout=30),
                "passed on": passed,
                "recreated": recreated,
                "refused": refused,
                "brought": brought,
                "run": sorted(client.run(len, "four").values()),
            }
        )
    )
