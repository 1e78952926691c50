"""Descriptions of Dask's collections, and what stands for something on a cluster."""

from __future__ import annotations


class Tile:
    side = 1

    def total(self) -> int:
        return 1


def examples() -> dict[str, object]:
    import dask
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd
    from distributed import Actor, Future

    from safeser.dask.clients import dask_collections, references

    dask_collections.register()
    references.register()
    made = (
        da.ones((4, 3), chunks=2),
        dd.from_pandas(pd.DataFrame({"a": [1, 2]}, index=[5, 6]), npartitions=1),
        dask.delayed(sum)([1]),
    )
    kept = made[-1]
    return {
        **{f"{type(one).__name__}": dask_collections.describe(one) for one in made},
        "future": Future("inc-1"),
        "actor": Actor(Tile, "safeser://127.0.0.1:1", "tile-1"),
        "persisted": type(kept)(kept.key, {kept.key: Future(kept.key)}),
    }
