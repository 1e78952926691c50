"""Objects of libraries whose tokens two processes must agree on."""

from __future__ import annotations

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse

WORDS = ["alpha", "beta", "gamma"]
records = np.dtype([("a", "i2"), ("b", "f8"), ("c", "S3")], align=True)
MAKERS = {
    "object array": lambda: np.array([{"a", "b"}, None, "x", (1, 2)], dtype=object),
    "frame": lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": [{"s", "t"}, ()]}),
    "categorical": lambda: pd.Series(pd.Categorical(WORDS[:3], ordered=True), name="k"),
    "extension arrays": lambda: [
        pd.Series([1, None], dtype="Int64"), pd.Series([True, None], dtype="boolean"),
        pd.Series(["a", None], dtype="string"), pd.Series([1.5, 2], dtype="double[pyarrow]"),
        pd.arrays.SparseArray([0, 0, 1]), pd.interval_range(0, 3), pd.Series(["a"], dtype=object),
    ],
    "indexes": lambda: [
        pd.date_range("2026", periods=3, tz="UTC"), pd.RangeIndex(3), pd.Index(["a", "b"]),
        pd.MultiIndex.from_product([[1, 2], ["a", "b"]], names=["p", "q"]),
        pd.period_range("2026", periods=2, freq="M"), pd.timedelta_range("1D", periods=2),
    ],
    "pandas scalars": lambda: [
        pd.Timestamp("2026", tz="UTC"), pd.Timedelta(1), pd.NaT, pd.NA, pd.Period("2026"),
        pd.offsets.MonthEnd(2), pd.Interval(0, 1),
    ],
    "pandas dtypes": lambda: [pd.CategoricalDtype(["a"]), pd.Int64Dtype(), pd.StringDtype()],
    "arrow": lambda: [
        pa.array([1, None, 3]), pa.array([{"a": 1}, None]), pa.array(["x"]).dictionary_encode(),
        pa.table({"a": [1, 2], "b": ["x", None]}), pa.schema([("a", pa.int8())]),
    ],
    "sparse": lambda: scipy.sparse.eye_array(3, format="csr"),
    "dask collections": lambda: [
        da.ones((4, 4), chunks=2).sum(), dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=1),
        dask.delayed(len, pure=True)("abc"),
    ],
}  # fmt: skip
