"""List the names of the pandas types of family ``dask`` without importing pandas.

The one rule: pandas is imported only when an object of a listed type is sent or loaded. A header
that names a type imports nothing before the policy admits it.
"""

from __future__ import annotations

__all__ = ["NAMES", "load"]

NAMES = (
    "pandas:DataFrame",
    "pandas:Series",
    "pandas:Index",
    "pandas:RangeIndex",
    "pandas:MultiIndex",
    "pandas:array",
    "pandas:Timestamp",
    "pandas:Timedelta",
    "pandas:Period",
    "pandas:Interval",
    "pandas:NA",
    "pandas:NaT",
    "pandas:offset",
    "pandas:dtype",
    "pandas:GroupBy",
)


def load() -> None:
    """Import pandas and register its types; ModuleNotFoundError if it is not installed."""
    from safeser.families.pandas import arrays as pandas_arrays
    from safeser.families.pandas import dtypes as pandas_dtypes
    from safeser.families.pandas import frames as pandas_frames
    from safeser.families.pandas import indexes as pandas_indexes
    from safeser.families.pandas import scalars as pandas_scalars

    modules = (pandas_scalars, pandas_indexes, pandas_arrays, pandas_dtypes, pandas_frames)
    for module in modules:
        module.register()
