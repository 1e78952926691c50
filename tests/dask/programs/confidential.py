"""Carry a word through everything that crosses a cluster's connections; print what came back.

The word stands in keys, arguments, code, results, errors, names and columns. Run as alice.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Queue, Variable, wait

import safeser

ADDRESS, WORD = sys.argv[1:]


def fails(text: str) -> None:
    raise ValueError(text)


def shuffled(word: str) -> Any:
    """Shuffle a frame whose column and values are *word*, from worker to worker."""
    frame = pd.DataFrame({"key": np.arange(2000) % 7, word: [f"{word}-{n}" for n in range(2000)]})
    moved = dd.from_pandas(frame, npartitions=4).shuffle("key", shuffle_method="p2p")
    found = moved.compute()
    assert sorted(found[word]) == sorted(frame[word])
    return len(found)


def between(client: Any, word: str) -> Any:
    """Add what one worker holds to what the other holds."""
    workers = sorted(client.scheduler_info()["workers"])
    parts = [
        client.submit(lambda text: text * 50_000, word, key=f"{word}-{n}", workers=[where])
        for n, where in enumerate(workers)
    ]
    wait(parts, timeout=60)
    total = client.submit(lambda one, two: len(one) + len(two), *parts, pure=False)
    return total.result(timeout=60)


def main() -> None:
    done: dict[str, Any] = {}
    with safeser.Client(ADDRESS, timeout=60) as client:
        client.wait_for_workers(2, timeout=60)
        text = WORD * 20_000
        scattered = client.scatter({WORD: text.encode()}, direct=False, timeout=60)
        done["scatter"] = scattered[WORD].result(timeout=60) == text.encode()
        array = np.frombuffer(text.encode(), np.uint8)
        future = client.scatter(array, direct=True, timeout=60)
        done["gather"] = bool((client.gather(future, direct=True) == array).all())
        done["submit"] = client.submit(str.lower, WORD, key=f"{WORD}-lower").result(timeout=60)
        done["map"] = client.gather(client.map(lambda n: f"{WORD}-{n}", range(3), pure=False))
        error = client.submit(fails, WORD, key=f"{WORD}-fails").exception(timeout=60)
        done["error"] = str(error) == WORD
        done["between"] = between(client, WORD)
        done["shuffle"] = shuffled(WORD)
        Variable(f"{WORD}-variable").set(WORD)
        done["variable"] = Variable(f"{WORD}-variable").get(timeout=20)
        Queue(f"{WORD}-queue").put(WORD)
        done["queue"] = Queue(f"{WORD}-queue").get(timeout=20)
        client.publish_dataset(**{f"{WORD}_dataset": scattered[WORD]})
        done["datasets"] = list(client.list_datasets())
        client.set_metadata([WORD], WORD)
        done["metadata"] = client.get_metadata([WORD])
        done["run"] = sorted(client.run(lambda: WORD).values())
    print(json.dumps(done))


if __name__ == "__main__":
    main()
