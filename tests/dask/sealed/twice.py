"""The same work, or other work under the same keys, submitted by one author in another process.

    python twice.py ADDRESS first|same|other

``first`` leaves what it computed to a dataset, so that its tasks stay; each of the others says as
one line of JSON what it got, and what it was told.
"""

from __future__ import annotations

import json
import sys
import warnings

import dask.array as da
import numpy as np
import xarray as xr

import safeser

BY = {"first": 1, "same": 1, "other": 2}[sys.argv[2]]
WORDS = {"alpha", "beta", "gamma", "delta"}


def adder(by):
    class Kept:
        words = WORDS

        def __init__(self):
            self.seen = frozenset(WORDS)

    kept = Kept()

    def add(value):
        return value + by + len(kept.seen & kept.words)

    return add


def known(word):
    return BY if word in {"alpha", "beta", "gamma", "delta"} else 0


def lazy():
    values = xr.DataArray(np.arange(60.0).reshape(6, 10), dims=("t", "x"), name="v").chunk({"t": 2})
    return (values - values.mean("t")).data


def work(client):
    one = client.submit(adder(BY), 5, key="closure")
    return {
        "closure": one,
        "constants": client.submit(known, "beta", key="constants"),
        "set": client.submit(len, WORDS | {str(BY)}, key="set"),
        "input": client.submit(adder(BY), one, key="input"),
        "iterator": client.submit(sum, iter({1, BY}), key="iterator"),
    }


def collections(client):
    found = {"xarray": lazy(), "array": da.arange(100, chunks=10).reshape(10, 10).sum(axis=0)}
    if BY == 1:
        found["mapped"] = da.ones((40, 40), chunks=10).map_blocks(adder(1)).sum()
    return dict(zip(found, client.persist(list(found.values())), strict=True))


def outcome(future):
    try:
        return future.result(timeout=60)
    except Exception as error:
        return [type(error).__name__, getattr(error, "rule", ""), str(error)]


def main(address, which):
    with (
        warnings.catch_warnings(record=True) as caught,
        safeser.Client(address, direct_to_workers=False) as client,
    ):
        warnings.simplefilter("always")
        client.wait_for_workers(2, timeout=60)
        futures, persisted = work(client), collections(client)
        answers = {name: outcome(future) for name, future in futures.items()}
        answers |= {name: float(each.sum().compute()) for name, each in persisted.items()}
        told = [str(each.message) for each in caught if "key " in str(each.message)]
        if which == "first":
            client.publish_dataset(kept=[*futures.values(), *persisted.values()])
    print(json.dumps({"answers": answers, "told": told}))


if __name__ == "__main__":
    main(*sys.argv[1:])
