"""Tasks that submit tasks, and what tasks take with them, under ``submission: sealed``, as JSON."""

from __future__ import annotations

import json
import sys
from functools import cache

import dask
import dask.array as da
from distributed import get_client, worker_client

import safeser


class Counter:
    def __init__(self, value):
        self.value = value

    def plus(self, other):
        return self.value + other


@cache
def cached(number):
    return number if number < 2 else cached(number - 1) + cached(number - 2)


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
        answers["cached"] = outcome(client.submit(cached, 9))
        [held] = client.scatter([Counter(5)], broadcast=True)
        added = [client.submit(Counter.plus, held, number) for number in range(9)]
        answers["scattered"] = outcome(client.submit(sum, added))
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
