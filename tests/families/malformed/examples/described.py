"""Descriptions of Dask's collections."""

from __future__ import annotations


def examples() -> dict[str, object]:
    import dask
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd

    from safeser.dask import described

    described.register()
    made = (
        da.ones((4, 3), chunks=2),
        dd.from_pandas(pd.DataFrame({"a": [1, 2]}, index=[5, 6]), npartitions=1),
        dask.delayed(sum)([1]),
    )
    return {f"{type(one).__name__}": described.describe(one) for one in made}
