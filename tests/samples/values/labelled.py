"""xarray's variables, indexes, arrays and datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cftime
import numpy as np
import pandas as pd
import xarray as xr


def examples() -> dict[str, object]:
    made = xr.Dataset(
        {"a": (("x", "y"), np.arange(4.0).reshape(2, 2), {"units": "m"})},
        coords={"x": [10, 20], "y": list("ab"), "t": ("x", pd.date_range("2020", periods=2))},
    )
    return {
        "dataset": made,
        "stacked": made.stack(z=("x", "y")),
        "array": made["a"],
        "variable": made["a"].variable,
        "categories": made.assign(c=("x", pd.Categorical(["u", "v"]))),
        "index": made.xindexes["y"],
        "data of an index": made["y"].variable._data,
        "moment": cftime.DatetimeNoLeap(2001, 2, 28, 5, microsecond=7),
        "day": cftime.datetime(2001, 2, 30, calendar="360_day"),
        "calendar": xr.date_range("0001", periods=3, calendar="noleap", use_cftime=True),
        "years": made["a"].assign_coords(x=xr.date_range("9999", periods=2, use_cftime=True)),
    }


def uses(value: object) -> Iterator[Callable[[], object]]:
    if isinstance(value, xr.Dataset | xr.DataArray | xr.Variable):
        for name in ("copy", "load", "sum", "to_dict", "isnull", "squeeze", "transpose", "var"):
            yield lambda name=name: getattr(value, name)()  # type: ignore[misc]  # the name is bound
        yield lambda: value + value
        yield lambda: value.identical(value)
        yield lambda: repr(value.isel(x=0))
        yield lambda: value[...].values.tolist()
    if isinstance(value, xr.Dataset | xr.DataArray):
        yield lambda: value.sel(x=10)
        yield lambda: value.to_dataframe()
        yield lambda: value.sortby("x")
        yield lambda: xr.align(value, value, join="outer")
        yield lambda: value.drop_vars("x")
        yield lambda: value.reset_index("z")
        yield lambda: value.unstack()
        yield lambda: [value.groupby(name).first() for name in ("x", "c")]


def dataset():
    return xr.Dataset(
        {
            "a": (("x", "y"), np.arange(6.0).reshape(2, 3), {"units": "m"}),
            "s": 5,
            "words": ("y", np.array(["q", "r", "s"])),
        },
        coords={
            "x": [10, 20],
            "y": ("y", list("abc"), {"long_name": "letters"}),
            "lab": ("x", [1.5, 2.5]),
            "when": ("y", pd.date_range("2020", periods=3)),
        },
        attrs={"q": 1, "made": np.float32(2)},
    )


def _mapped():
    made = dataset()
    made["x"].encoding["dtype"] = "int16"
    made["a"].encoding.update(scale_factor=0.1, _FillValue=np.nan)
    made.encoding["source"] = "memory"
    return made


#: What pandas has and NumPy has not.
EXTENSIONS = (
    pd.Categorical(["u", None, "u"], ordered=True),
    pd.array([1, None, 3], "Int64"),
    pd.array([1.5, None, 3], "Float32"),
    pd.array([True, False, False], "boolean"),
    pd.array(["a", "b", "c"], "string"),
    pd.array(["a", None, "c"], "str"),
    pd.array([1, None, 3], "int64[pyarrow]"),
    pd.period_range("2020", periods=3, freq="M").array,
    pd.interval_range(0, 3).array,
    pd.arrays.SparseArray([0, 1, 0]),
)


def extended() -> Iterator[object]:
    for array in EXTENSIONS:
        made = xr.DataArray(array, dims="x", coords={"x": [1, 2, 3]}, name="c", attrs={"k": 1})
        yield from (made, made.variable, made.to_dataset(), made.to_dataset().set_coords("c"))
        yield xr.Variable("x", array[:0])
        index = xr.Dataset(coords={"t": pd.Index(array).dropna(), "w": [1, 2]})
        yield from (index, index.stack(z=("t", "w")), index["t"].variable.to_base_variable().load())
    yield xr.DataArray(EXTENSIONS[0], dims="x").stack(z=["x"])
    yield xr.Variable("x", EXTENSIONS[0])._data


def others() -> Iterator[object]:
    """Yield more honest values."""
    yield from extended()
    for made in (
        dataset(),
        xr.Dataset(),
        dataset().stack(z=("x", "y")),
        _mapped(),
        xr.Dataset(
            {"v": ("t", np.arange(4))}, coords={"t": pd.date_range("2020", periods=4, freq="h")}
        ),
        dataset().drop_indexes("x"),
        xr.Dataset({"v": ((1, "y"), np.zeros((2, 2)))}),
        xr.Dataset(coords={"m": ("x", [1, 2])}).set_xindex("m"),
    ):
        yield made
        yield from made.xindexes.values()
        for array in made.variables:
            yield from (made[array], made[array].variable)
    # What tasks of map_blocks pass on.
    yield dataset()["when"].variable._data
    yield dataset()["x"].variable._data
    levels = pd.MultiIndex.from_product([[1, 2], ["a"]], names=["x", "y"])
    yield from (xr.core.indexing.PandasMultiIndexingAdapter(levels, level=x) for x in ("x", None))
    yield xr.DataArray(np.zeros((2, 3)))
    yield xr.DataArray(5, name="five")
    yield xr.DataArray(np.arange(3), dims="x", name=("a", 1), attrs={"k": [1, 2]})
    yield xr.DataArray(np.array([None, "a"], object), dims="x")
    for writeable in (False, True):
        variable = xr.Variable("x", np.arange(3.0))
        variable.values.flags.writeable = writeable
        yield variable
