"""One client of one cluster, told over its standard input what to measure.

The one rule: it does nothing but answer, so that the process which drives several of these decides
whose turn it is. It has to be a process of its own,
since safeser closes every other scheme in the process that uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from examples.demo.pipe import Pipe

_PATIENCE = 120  # seconds for a loaded machine to start its workers
_SETTLE = 0.2  # seconds in which released futures are forgotten, before another cluster's turn


def connect(scheme: str, address: str, workers: int, tls: dict[str, str] | None) -> Any:
    if scheme == "safeser":
        import safeser

        client = safeser.Client(address, deserializers=["dask", "msgpack"])
    else:
        from distributed import Client, Security

        security = Security(require_encryption=True, **tls) if tls else None
        client = Client(address, security=security)
    client.wait_for_workers(workers, timeout=_PATIENCE)
    return client


def tasks(client: Any, count: int) -> list[float]:
    """Return the seconds in which *count* tiny tasks were submitted, run and gathered."""
    start = time.perf_counter()
    futures = client.map(lambda number: number + 1, range(count), pure=False)
    results = client.gather(futures)
    seconds = time.perf_counter() - start
    assert results == list(range(1, count + 1))
    return [seconds]


def calls(client: Any, count: int) -> list[float]:
    """Return the seconds of each of *count* calls that wait for one result."""
    measured = []
    for number in range(count):
        start = time.perf_counter()
        result = client.submit(lambda given: given + 1, number, pure=False).result()
        measured.append(time.perf_counter() - start)
        assert result == number + 1
    return measured


def transfer(client: Any, size: int) -> list[float]:
    """Return the seconds to scatter an array of *size* bytes and those to gather it."""
    array = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    start = time.perf_counter()
    future = client.scatter(array, hash=False)
    scattered = time.perf_counter()
    result = future.result()
    gathered = time.perf_counter()
    assert np.array_equal(result, array)
    return [scattered - start, gathered - scattered]


def array_sum(client: Any, count: int) -> list[float]:
    """Return the seconds to sum an array of *count* chunks, made on the workers."""
    import dask.array as da

    start = time.perf_counter()
    found = client.compute(da.ones(count, chunks=1).sum()).result()
    seconds = time.perf_counter() - start
    assert found == count, (found, count)
    return [seconds]


#: Rows of one partition: 64 MB of two columns of eight bytes each, as Dask's guide advises.
_PARTITION_ROWS = 4_000_000
_ROW_BYTES = 16


def shuffle(client: Any, size: int) -> list[float]:
    """Return the seconds to move *size* bytes of rows, made on the workers, to where they belong.

    The rows are made by the tasks themselves, so that only the shuffle crosses from process to
    process; every row is counted where it arrives.
    """
    import dask.dataframe as dd

    total = max(1, size // _ROW_BYTES)
    number = max(2, -(-total // _PARTITION_ROWS))
    counts = [len(range(start, total, number)) for start in range(number)]
    frame = dd.from_map(_rows, counts, range(number), meta=_rows(0, 0))
    moved = frame.shuffle("key", shuffle_method="p2p").map_partitions(len)
    start_time = time.perf_counter()
    found = client.compute(moved.sum()).result()
    seconds = time.perf_counter() - start_time
    assert found == total, (found, total)
    return [seconds]


def _rows(count: int, seed: int) -> Any:
    import pandas as pd

    keys = np.random.default_rng(seed).integers(0, 1 << 40, count)
    return pd.DataFrame({"key": keys, "value": np.arange(count, dtype=np.float64)})


def modules(client: Any, count: int) -> list[float]:
    """Return how many modules each of at most *count* workers has imported."""

    def imported() -> int:
        import sys

        return len(sys.modules)

    return [float(found) for found in client.run(imported).values()][:count]


MEASURES: dict[str, Callable[[Any, int], list[float]]] = {
    "tasks": tasks,
    "calls": calls,
    "sum": array_sum,
    "transfer": transfer,
    "shuffle": shuffle,
    "modules": modules,
}


def main() -> None:
    held: list[Any] = []

    def answer(order: dict[str, Any]) -> dict[str, Any]:
        if order["do"] == "connect":
            held.append(connect(order["scheme"], order["address"], order["workers"], order["tls"]))
            return {"seconds": []}
        seconds = MEASURES[order["do"]](held[0], order["amount"])
        time.sleep(_SETTLE)
        return {"seconds": seconds}

    Pipe.of_this_process().serve(answer)
    for client in held:
        client.close()


if __name__ == "__main__":
    main()
