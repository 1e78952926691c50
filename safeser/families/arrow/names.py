"""List the names of the Arrow and polars types of family ``dask`` without importing either library.

The one rule: a library is imported only when an object of a listed type is sent or loaded. A header
that names a type imports nothing before the policy admits it.
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
