"""An engineer whose work takes longer than a statement is valid: what becomes of it, as JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import shifted

import safeser
from safeser.audit import read
from safeser.dask.sealed.statement import LIFETIME, RENEWED_AFTER


def until(probe):
    deadline = time.monotonic() + 60
    while not (found := probe()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)
    return "waited"


def process():
    return os.getpid()


def answered():
    return "ran"


def admitted(audit, operation):
    """Return how often *operation* was recorded as permitted."""
    records = (each for log in Path(audit).glob("*.log") for each in read(log))
    return sum(
        each.text("operation") == operation and each.fields.get("permitted") is True
        for each in records
    )


def failure(future):
    try:
        future.result(timeout=60)
    except Exception as error:
        return [type(error).__name__, getattr(error, "rule", ""), str(error)]


def main(address, audit, opened):
    answers = {}
    with safeser.Client(address, set_as_default=False) as gone:
        gone.wait_for_workers(1, timeout=60)
        published = gone.submit(process, key="published")
        first = published.result(timeout=60)
        gone.publish_dataset(published, name="published")
    with safeser.Client(address) as client:
        [worker] = client.scheduler_info()["workers"]
        held = client.submit(process, key="held")
        assert held.result(timeout=60) == first
        running = client.submit(wait_for, opened, key="running")
        queued = client.submit(answered, key="queued")
        until(lambda: {"running", "queued"} <= set(client.processing()[worker]))

        shifted.go_to(RENEWED_AFTER + 60)
        until(lambda: admitted(audit, "statement-renewed") >= 2)
        shifted.go_to(LIFETIME + 60)
        Path(opened).touch()
        answers["queued"] = queued.result(timeout=60)
        answers["running"] = running.result(timeout=60)

        # What the worker had is lost, and computed again.
        client.restart_workers([worker])
        answers["held"] = held.result(timeout=60) != first
        answers["published"] = failure(client.get_dataset("published"))

        # Dask cancels all futures of a connection that is lost; nothing of them is renewed.
        client.loop.add_callback(client.scheduler_comm.comm.abort)
        until(lambda: held.status == "cancelled" and client.status == "running")
        answers["again"] = client.submit(answered, key="again").result(timeout=60)
        before = admitted(audit, "renew-statement")
        answer = client.submit(answered, key="after")
        answer.result(timeout=60)
        shifted.go_to(2 * LIFETIME)
        until(lambda: admitted(audit, "renew-statement") > before)
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
