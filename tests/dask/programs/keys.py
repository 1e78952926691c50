"""What two principals see of each other's keys. Prints it as JSON; run as one of them.

Alice, who runs it, gets the default words; bob's are the other way round.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import distributed
from dask.tokenize import tokenize
from dask.utils import funcname
from distributed import Variable, wait
from steps import own

import safeser

out = {}
clients = []


def tried(call):
    """Return what came, or the rule and text of the refusal, and the warnings that came with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = call()
        except safeser.SafeserError as error:
            value = [type(error).__name__, error.rule, str(error)]
        except (distributed.CancelledError, TimeoutError) as error:
            value = [type(error).__name__, "", str(error)]
        # A warning comes by the stream that then tells of this task: it is here, or there is none.
        for client in clients:
            client.submit(int, 0, pure=False).result(timeout=60)
    return [value, [str(one.message) for one in caught if "submitted by" in str(one.message)]]


def add(x, y):
    return x + y


def mul(x, y):
    return x * y


def main(alice, bob):
    first = bob.submit(mul, 40, 2, key="poisoned")
    wait(first)
    mine = alice.submit(add, 40, 2, key="poisoned")
    more = alice.submit(add, mine, 1)
    out["definition_refused"], out["its_dependent"] = (
        tried(partial(future.result, timeout=60)) for future in (mine, more)
    )
    out["first_untouched"] = [first.status, first.result(timeout=60)]
    for future in (mine, more, first):
        future.release()

    def gone():
        # A client releases on its own thread: until then, its next future is the old one.
        if "poisoned" in alice.futures:
            return False
        return not bob.run_on_scheduler(lambda dask_scheduler: "poisoned" in dask_scheduler.tasks)

    until(gone)
    out["free_again"] = alice.submit(add, 40, 2, key="poisoned").result(timeout=60)

    ours = alice.submit(add, 1, 1, key="ours")
    wait(ours)
    out["definition_warned"] = tried(lambda: bob.submit(mul, 7, 7, key="ours").result(timeout=60))
    out["principal_refused"] = tried(lambda: bob.submit(add, 1, 1, key="ours").result(timeout=60))
    theirs = bob.submit(add, 1, 1, key="theirs")
    wait(theirs)
    out["principal_warned"] = tried(
        lambda: alice.submit(add, 1, 1, key="theirs").result(timeout=60)
    )
    out["data_over_a_task"] = tried(lambda: alice.scatter({"theirs": 666}))
    out["task_untouched"] = theirs.result(timeout=60)
    workers = list(bob.nthreads())
    data = bob.scatter({"data": 1}, workers=workers[:1])
    out["task_over_data"] = tried(lambda: alice.submit(add, 600, 66, key="data").result(timeout=60))
    out["direct"] = tried(lambda: alice.scatter({"data": 666}, direct=True, workers=workers[1:]))
    out["data_untouched"] = [
        bob.submit(int, data["data"], workers=[one], pure=False).result(timeout=60)
        for one in workers
    ]

    # A key can be computed, and this one stands for another task, which alice already holds.
    expected = f"{funcname(add)}-{tokenize(add, {}, 20, 22)}"
    Variable(own("trap"), client=bob).set(bob.submit(mul, 6, 111, key=expected))
    trap = Variable(own("trap"), client=alice).get(timeout=60)
    trap.result(timeout=60)
    # Referring to somebody's future is no conflict: it was handed over.
    out["handed_over"] = tried(lambda: alice.submit(add, trap, 5).result(timeout=60))
    out["trap_submitted"] = tried(lambda: alice.submit(add, 20, 22).result(timeout=60))


def until(probe):
    for _ in range(1200):
        if probe():
            return
        time.sleep(0.05)
    raise SystemExit("it did not happen")


if __name__ == "__main__":
    identity = Path(sys.argv[2])
    security = safeser.Security(identity=str(identity))
    with (
        safeser.Client(sys.argv[1], timeout=30) as alice,
        safeser.Client(sys.argv[1], timeout=30, security=security, set_as_default=False) as bob,
    ):
        alice.wait_for_workers(2, timeout=60)
        clients += alice, bob
        main(alice, bob)
    print(json.dumps(out, default=str))
