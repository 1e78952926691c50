"""Tasks that submit tasks, under ``submission: sealed``: what they get, as one line of JSON."""

from __future__ import annotations

import json
import sys

import dask
import dask.array as da
from distributed import get_client, worker_client

import safeser


def gathered(count):
    with worker_client() as client:
        return sum(client.gather(client.map(lambda value: value + count, range(count))))


def submitted(value):
    return get_client().submit(lambda each: each * 2, value, pure=False).result(timeout=60)


def computed(count):
    with worker_client() as client, dask.annotate(priority=lambda key: 1):
        return int(client.compute(da.arange(count, chunks=3).sum()).result(timeout=60))


def keyed(by):
    with worker_client() as client:
        return client.submit(lambda value: value + by, 1, key="inner").result(timeout=60)


def outcome(future):
    try:
        return future.result(timeout=60)
    except Exception as error:
        return [type(error).__name__, getattr(error, "rule", "")]


def main(address):
    with safeser.Client(address) as client:
        client.wait_for_workers(2, timeout=60)
        steps = {"gathered": (gathered, 5), "submitted": (submitted, 7), "computed": (computed, 10)}
        answers = {name: outcome(client.submit(*call)) for name, call in steps.items()}
        answers["keyed"] = outcome(client.submit(keyed, 1))
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
