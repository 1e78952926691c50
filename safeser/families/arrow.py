"""Arrow's types of family ``dask``: the names, listed without importing pyarrow.

The one rule: pyarrow is imported when an object of a type that is listed here is sent or loaded,
and for nothing else: a header that names one imports nothing before it is admitted.
"""

from __future__ import annotations

__all__ = ["NAMES", "load"]

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


def load() -> None:
    """Import pyarrow and register its types; ModuleNotFoundError if it is not installed."""
    from safeser.families import arrow_tables  # noqa: PLC0415 - it imports pyarrow

    arrow_tables.register()
