"""What the soak's workers import before they take work, on either scheme.

The one rule: nothing but imports. Two threads of a worker that has just begun import
``dask.dataframe`` and ``dask.array`` at once otherwise, each by another task, and one of them gets
half a module: Dask's own race, of every scheme.
"""

import dask.array
import dask.bag
import dask.dataframe
import distributed.shuffle

__all__ = ["dask", "distributed"]
