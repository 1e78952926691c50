"""Arrow's and polars' types of family ``dask``: the names, listed without importing either.

The one rule: a library is imported when an object of a type that is listed here is sent or loaded,
and for nothing else: a header that names one imports nothing before it is admitted.
"""

from __future__ import annotations

__all__ = ["NAMES", "POLARS_NAMES", "load", "load_polars"]

NAMES = (
    "pyarrow:Array",
    "pyarrow:Buffer",
    "pyarrow:ChunkedArray",
    "pyarrow:DataType",
    "pyarrow:Field",
    "pyarrow:KeyValueMetadata",
    "pyarrow:RecordBatch",
    "pyarrow:Scalar",
    "pyarrow:Schema",
    "pyarrow:Table",
)
POLARS_NAMES = ("polars:DataFrame", "polars:LazyFrame", "polars:Series")


def load() -> None:
    """Import pyarrow and register its types; ModuleNotFoundError if it is not installed."""
    from safeser.families.arrow import tables as arrow_tables

    arrow_tables.register()


def load_polars() -> None:
    """Import polars and register its types; ModuleNotFoundError if it or pyarrow is missing."""
    from safeser.families.arrow import polars as polars_frames

    polars_frames.register()
