"""Which public names of Dask's arrays and frames the lists of operations have, and why not others.

The one rule: a public name is spelled in a list, in the way its place is spelled, or stands here.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.dataframe.dask_expr._categorical import CategoricalAccessor
from dask.dataframe.dask_expr._datetime import DatetimeAccessor
from dask.dataframe.dask_expr._groupby import GroupBy, SeriesGroupBy
from dask.dataframe.dask_expr._rolling import Rolling
from dask.dataframe.dask_expr._str_accessor import StringAccessor
from dask.dataframe.tseries.resample import Resampler

from benchmarks.approved.operations import operations

__all__ = ["PLACES", "UNMEASURED", "missing"]


def _of_module(module: types.ModuleType) -> list[str]:
    """Return what *module* defines; without ``__all__`` it has what it imports, too."""
    listed: Iterable[str] = getattr(module, "__all__", None) or (
        name for name, value in vars(module).items() if _is_of(value, module)
    )
    found = ((name, getattr(module, name)) for name in listed)
    return [name for name, value in found if _is_operation(name, value)]


def _is_of(value: Any, module: types.ModuleType) -> bool:
    """Tell whether *module* defines *value*; some are bound, or say that they are NumPy's."""
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    if code is not None:
        return bool(code.co_filename == module.__file__)
    return getattr(value, "__module__", None) == module.__name__


def _is_operation(name: str, value: Any) -> bool:
    types_of_elements = isinstance(value, type) and issubclass(value, np.generic | bool)
    return name[0] != "_" and callable(value) and not types_of_elements


def _of_class(kind: type) -> list[str]:
    return [name for name in dir(kind) if name[0] != "_"]


#: Of each place: its names, the list that has them, and how one is spelled there.
PLACES: dict[str, tuple[list[str], str, str]] = {
    "da": (_of_module(da), "arrays", r"\bda\.{}\b"),
    "da.fft": (_of_module(da.fft), "arrays", r"\bda\.fft\.{}\b"),
    "da.linalg": (_of_module(da.linalg), "arrays", r"\bda\.linalg\.{}\b"),
    "da.ma": (_of_module(da.ma), "arrays", r"\bda\.ma\.{}\b"),
    "da.random": (_of_module(da.random), "arrays", r"\bda\.random\..*\b{}\("),
    "Generator": (_of_class(da.random.Generator), "arrays", r"default_rng\(1\)\.{}\("),
    "Array": (_of_class(da.Array), "arrays", r"(?<!\bda)\.{}\b"),
    "dd": (_of_module(dd), "frames", r"\bdd\.{}\b"),
    "DataFrame": (_of_class(dd.DataFrame), "frames", r"(?<!\bdd)\.{}\b"),
    "Series": (_of_class(dd.Series), "frames", r"(?<!\bdd)\.{}\b"),
    "Index": (_of_class(dd.Index), "frames", r"(?<!\bdd)\.{}\b"),
    "GroupBy": (_of_class(GroupBy), "frames", r"\.groupby\(.*\.{}\b"),
    "SeriesGroupBy": (_of_class(SeriesGroupBy), "frames", r"\.groupby\(.*\.{}\b"),
    "Rolling": (_of_class(Rolling), "frames", r"\.rolling\(.*\.{}\b"),
    "Resampler": (_of_class(Resampler), "frames", r"\.resample\(.*\.{}\b"),
    ".str": (_of_class(StringAccessor), "frames", r"\.str\.{}\b"),
    ".dt": (_of_class(DatetimeAccessor), "frames", r"\.dt\.{}\b"),
    ".cat": (_of_class(CategoricalAccessor), "frames", r"\.cat\.{}\b"),
}


def missing(place: str) -> set[str]:
    """Return the names of *place* that no operation of its list spells."""
    names, kind, pattern = PLACES[place]
    text = "\n".join(text for _, text in operations(kind))
    return {name for name in names if not re.search(pattern.format(name), text)}


_NO_GRAPH = "answered from what the collection says of itself"
_SHOWS = "shows the graph or its expression"
_KIND = "a class"
_METHOD = "the method of frames, which is measured"
_OF_FRAMES = {
    **dict.fromkeys(("known_divisions", "npartitions"), _NO_GRAPH),
    **dict.fromkeys(
        ("analyze", "dask", "explain", "expr", "lower_once", "pprint", "simplify", "visualize"),
        _SHOWS,
    ),
    "from_dict": "dd.from_dict",
}
#: Of each place, why a name is not in the lists.
UNMEASURED: dict[str, dict[str, str]] = {
    "da": {
        **dict.fromkeys(("ndim", "result_type", "shape"), _NO_GRAPH),
        **dict.fromkeys(("Array", "PerformanceWarning"), _KIND),
        **dict.fromkeys(("from_zarr", "to_zarr"), "opens files; needs zarr"),
        **dict.fromkeys(("from_tiledb", "to_tiledb"), "opens files; needs tiledb"),
        "to_hdf5": "opens files; needs h5py",
        "push": "needs bottleneck, of which nobody reviewed anything",
        "array_expr_enabled": "tells a setting",
        "assert_eq": "for tests",
        "atop": "the old name of blockwise",
        "optimize": "of graphs",
        "register_chunk_type": "of the process that calls it",
    },
    "da.ma": {
        "normalize_masked_array": "of tokens",
        "set_fill_value": "changes its argument: lib.with_fill_value",
    },
    "da.random": {"Generator": _KIND, "seed": "of the process that calls it"},
    "Generator": {"multivariate_hypergeometric": "fails on stock Dask, too"},
    "Array": {
        "A": "another name of the array itself",
        **dict.fromkeys(("dask", "to_svg", "visualize"), _SHOWS),
        **dict.fromkeys(
            (
                *("chunks", "chunksize", "dtype", "itemsize", "name", "nbytes", "ndim"),
                *("npartitions", "numblocks", "shape", "size"),
            ),
            _NO_GRAPH,
        ),
        "to_hdf5": "opens files; needs h5py",
        "to_tiledb": "opens files; needs tiledb",
        "to_zarr": "opens files; needs zarr",
    },
    "dd": {
        **dict.fromkeys(("DataFrame", "Index", "Scalar", "Series"), _KIND),
        "Aggregation": "its functions are one's own, inside a class that nobody reviewed",
        "assert_eq": "for tests",
        "compute": "dask.compute",
        "from_graph": "of Dask itself",
        "get_collection_type": "of Dask itself",
        "read_hdf": "opens files; needs tables",
        **dict.fromkeys(
            ("read_sql", "read_sql_query", "read_sql_table"), "opens files; needs sqlalchemy"
        ),
        **dict.fromkeys(
            (
                *("to_bag", "to_csv", "to_hdf", "to_json", "to_orc", "to_parquet"),
                *("to_records", "to_sql"),
            ),
            _METHOD,
        ),
    },
    "DataFrame": {
        **_OF_FRAMES,
        "empty": "stock Dask refuses to say",
        "info": "prints what count and memory_usage compute",
        "pop": "changes the frame: lib.popped",
    },
    "Series": {**_OF_FRAMES, "dtype": _NO_GRAPH, "name": _NO_GRAPH},
    "Index": {**_OF_FRAMES, "dtype": _NO_GRAPH, "name": _NO_GRAPH},
    "GroupBy": {"compute": "groups alone are nothing to compute"},
    "SeriesGroupBy": {"compute": "groups alone are nothing to compute"},
    "Rolling": {"kwargs": _NO_GRAPH},
}
