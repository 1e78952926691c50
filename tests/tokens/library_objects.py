"""Objects of libraries whose tokens two processes must agree on."""

from __future__ import annotations

import decimal

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
    "arrays": lambda: [np.arange(6).reshape(2, 3).astype(each) for each in (
        "?", "i1", "u2", ">i4", "i8", "f2", "f4", "f8", "g", "c8", "c16", "S3", "U3", "M8[ns]",
        "m8[s]", "V4", "O",
    )],
    "object array": lambda: np.array([{"a", "b"}, None, "x", (1, 2)], dtype=object),
    "text array": lambda: np.array(["a", "bb"], dtype=np.dtypes.StringDType()),
    "records": lambda: np.zeros(3, records),
    "record array": lambda: np.rec.array([(1, "a"), (2, "b")], names="x,y"),
    "masked array": lambda: np.ma.masked_array([1, 2, 3], [0, 1, 0]),
    "scalars": lambda: [np.float64(1.5), np.int8(1), np.datetime64("2026-01-01"), np.str_("a"),
                        np.longdouble(1) / 3, np.zeros(1, records)[0]],
    "dtypes": lambda: [np.dtype("f8"), records, np.dtype(("f4", (2, 3)))],
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
        pa.array([1, None, 3]), pa.array(["a", None]), pa.array([[1], None, [2, 3]]),
        pa.array([{"a": 1}, None]), pa.array([True, None]),
        pa.array(["x", "y"]).dictionary_encode(),
        pa.array([decimal.Decimal("1.5")]), pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.table({"a": [1, 2], "b": ["x", None]}), pa.chunked_array([[1], [2, 3]]), pa.nulls(3),
        pa.int32(), pa.schema([("a", pa.int8())]), pa.scalar(3),
        pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
    ],
    "sparse": lambda: [scipy.sparse.eye_array(3, format=each) for each in
                       ("csr", "csc", "coo", "dia", "lil", "dok", "bsr")],
    "dask collections": lambda: [
        da.ones((4, 4), chunks=2).sum(), dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=1),
        dask.delayed(len, pure=True)("abc"),
    ],
}  # fmt: skip
