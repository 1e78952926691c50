"""xarray's variables, indexes, arrays and datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def examples() -> dict[str, object]:
    import numpy as np
    import pandas as pd
    import xarray as xr

    made = xr.Dataset(
        {"a": (("x", "y"), np.arange(4.0).reshape(2, 2), {"units": "m"})},
        coords={"x": [10, 20], "y": list("ab"), "t": ("x", pd.date_range("2020", periods=2))},
    )
    return {
        "dataset": made,
        "stacked": made.stack(z=("x", "y")),
        "array": made["a"],
        "variable": made["a"].variable,
        "index": made.xindexes["y"],
    }


def uses(value: object) -> Iterator[Callable[[], object]]:
    import xarray as xr

    if isinstance(value, xr.Dataset | xr.DataArray | xr.Variable):
        for name in ("copy", "load", "sum", "to_dict", "isnull", "squeeze", "transpose", "var"):
            yield lambda name=name: getattr(value, name)()  # type: ignore[misc]  # the name is bound
        yield lambda: value + value
        yield lambda: value.identical(value)
        yield lambda: value.isel(x=0)
        yield lambda: value[...].values.tolist()
    if isinstance(value, xr.Dataset | xr.DataArray):
        yield lambda: value.sel(x=10)
        yield lambda: value.to_dataframe()
        yield lambda: value.sortby("x")
        yield lambda: xr.align(value, value, join="outer")
        yield lambda: value.drop_vars("x")
        yield lambda: value.reset_index("z")
        yield lambda: value.unstack()
