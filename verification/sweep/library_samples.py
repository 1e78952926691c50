"""Samples of NumPy, pandas, Arrow, SciPy and Dask, at a size of one's choice.

The one rule: what has one size is no sample here, but an honest value of ``tests.samples``.
"""

from __future__ import annotations

import decimal
from functools import partial
from typing import Any

import numpy as np

from verification.sweep.product_samples import Maker, labels_of, text_of


def numpy_samples() -> dict[str, Maker]:
    def of(dtype: Any) -> Maker:
        return lambda n: np.zeros(n, dtype)

    def masked(n: int) -> Any:
        return np.ma.array(np.arange(n), mask=np.arange(n) % 2 == 0)

    poly = np.polynomial
    return {
        "times": of("M8[ns]"),
        "strings": of("U4"),
        "matrix": lambda n: np.zeros((n, 2)).view(np.matrix),
        "chararray": lambda n: np.zeros(n, "S4").view(np.char.chararray),
        "masked": masked,
        "scalar-text": lambda n: np.str_(text_of(n)),
        "scalar-bytes": lambda n: np.bytes_(bytes(n)),
        "scalar-void": lambda n: np.zeros(1, [("a", "f8")])[0],
        **{
            kind.__name__: lambda n, kind=kind: kind(np.ones(n))
            for kind in (
                poly.Polynomial, poly.Chebyshev, poly.Legendre, poly.Laguerre, poly.Hermite,
                poly.HermiteE,
            )
        },
        "SeedSequence": lambda n: np.random.SeedSequence(list(range(min(n, 30)))),
    }  # fmt: skip


def index_samples() -> dict[str, Maker]:
    import pandas as pd

    return {
        "Index-float": lambda n: pd.Index(np.arange(float(n))),
        "Index-bool": lambda n: pd.Index(np.zeros(n, bool)),
        "Index-Int64": lambda n: pd.Index(pd.array(range(n), dtype="Int64")),
        "Index-string": lambda n: pd.Index(pd.array(labels_of(n), dtype="string[python]")),
        "IntervalIndex-range": lambda n: pd.IntervalIndex.from_arrays(
            pd.RangeIndex(min(n, 10**6)), pd.RangeIndex(1, 1 + min(n, 10**6))
        ),
        "TimedeltaIndex": lambda n: pd.to_timedelta(np.arange(n) ** 2, unit="s"),
        "TimedeltaIndex-freq": lambda n: pd.timedelta_range("1h", periods=n),
    }


def frame_samples() -> dict[str, Maker]:
    import pandas as pd

    def mixed(n: int) -> Any:
        return pd.DataFrame(
            {
                "a": np.arange(n),
                "b": np.arange(float(n)),
                "c": pd.Categorical(np.arange(n) % 3),
                "d": pd.array(range(n), dtype="Int64"),
                "e": labels_of(n),
                "f": pd.date_range("2000", periods=n, freq="h", tz="UTC", unit="s"),
            }
        )

    def attributed(n: int) -> Any:
        made = pd.DataFrame({"a": [1]})
        made.attrs = dict.fromkeys(labels_of(n))
        return made

    return {
        "DataFrame": mixed,
        "DataFrame-attrs": attributed,
        "Series": lambda n: pd.Series(np.arange(float(n)), name="s"),
        "Series-int": lambda n: pd.Series(np.arange(n), index=np.arange(n)),
    }


_INTEGERS = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]


def extension_array_samples() -> dict[str, Maker]:
    import pandas as pd

    return {
        **{
            f"array-{kind}": lambda n, kind=kind: pd.array(np.zeros(n), dtype=kind)
            for kind in (*_INTEGERS, "Float32", "Float64", "boolean")
        },
        **{
            f"dtype-{kind}": lambda n, kind=kind: pd.array([], dtype=kind).dtype
            for kind in _INTEGERS
        },
        "Categorical": lambda n: pd.Categorical(np.arange(n)),
        "CategoricalDtype": lambda n: pd.CategoricalDtype(range(n)),
        "TimedeltaArray-freq": lambda n: pd.timedelta_range("1h", periods=n).array,
        "PeriodArray": lambda n: pd.period_range("2000", periods=n, freq="h").array,
        "IntervalArray": lambda n: pd.interval_range(0, n).array,
        "NumpyExtensionArray": lambda n: pd.arrays.NumpyExtensionArray(np.zeros(n)),
        "ArrowStringArray": lambda n: pd.array(labels_of(n), dtype="string[pyarrow]"),
        "IntervalDtype": lambda n: pd.IntervalDtype("int64"),
        "SparseArray": lambda n: pd.arrays.SparseArray(np.arange(n), fill_value=0),
    }


def offset_samples() -> dict[str, Maker]:
    from pandas._libs.tslibs import offsets

    def free(name: str, n: int) -> Any:
        days = [np.datetime64("2026-01-01") + at for at in range(n)]
        return getattr(offsets, name)(holidays=days)

    kinds = ("Day", "Hour", "MonthEnd", "MonthBegin")
    return {f"CustomBusiness{kind}": partial(free, f"CustomBusiness{kind}") for kind in kinds}


def arrow_samples() -> dict[str, Maker]:
    import pyarrow as pa

    number, text = pa.int64(), pa.string()

    def numbers(n: int, kind: Any = number) -> Any:
        return pa.array(range(n), kind)

    def stored(kind: Any, values: Any) -> Any:
        return pa.ExtensionArray.from_storage(kind, values)

    def table(n: int) -> Any:
        return pa.table({"a": np.arange(n), "b": labels_of(n)})

    return {
        "decimals": lambda n: pa.array([decimal.Decimal("1.25")] * n, pa.decimal128(5, 2)),
        "times": lambda n: pa.array(np.zeros(n, "M8[us]"), pa.timestamp("us", "Europe/Paris")),
        "long-list": lambda n: pa.array([list(range(n))], pa.list_(number)),
        "large-list": lambda n: pa.array([[1]] * n, pa.large_list(number)),
        "fixed-list": lambda n: pa.array([[1, 2, 3]] * n, pa.list_(number, 3)),
        "large-list-view": lambda n: pa.array([[1]] * n, pa.large_list_view(number)),
        "map": lambda n: pa.array([[("a", 1)]] * n, pa.map_(text, number)),
        "uuid": lambda n: stored(pa.uuid(), pa.array([b"1" * 16] * n, pa.binary(16))),
        "json": lambda n: stored(pa.json_(), pa.array(["{}"] * n)),
        "bool8": lambda n: stored(pa.bool8(), pa.array([1] * n, pa.int8())),
        "opaque": lambda n: stored(pa.opaque(number, "a", "b"), numbers(n)),
        "tensor": lambda n: stored(
            pa.fixed_shape_tensor(number, [2]), pa.array([[1, 2]] * n, pa.list_(number, 2))
        ),
        "batch": lambda n: table(n).to_batches()[0],
        "scalar-text": lambda n: pa.scalar(text_of(n)),
        "scalar-list": lambda n: pa.scalar(list(range(n))),
        "scalar-dictionary": lambda n: pa.array(labels_of(n)).dictionary_encode()[0],
        "buffer": lambda n: pa.py_buffer(bytes(n)),
        "metadata": lambda n: pa.KeyValueMetadata(dict.fromkeys(labels_of(n), "x")),
        "type-decimal64": lambda n: pa.decimal64(5, 2),
    }


def scipy_samples() -> dict[str, Maker]:
    import scipy.sparse as sp
    import scipy.spatial

    forms = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")
    return {
        **{f"{form}_matrix": lambda n, form=form: sp.eye(n, format=form) for form in forms},
        **{f"{form}_array": lambda n, form=form: sp.eye_array(n, format=form) for form in forms},
        **{
            f"{form}-rows": lambda n, form=form: sp.coo_array((max(n, 1), 3)).asformat(form)
            for form in ("csr", "lil")
        },
        "KDTree": lambda n: scipy.spatial.KDTree(np.arange(2.0 * max(n, 2)).reshape(-1, 2), 2),
        "cKDTree": lambda n: scipy.spatial.cKDTree(np.arange(2.0 * max(n, 2)).reshape(-1, 2), 3),
    }


def dask_samples() -> dict[str, Maker]:
    import dask.array as da
    import dask.dataframe as dd
    import pandas as pd
    from dask._collections import new_collection
    from dask._task_spec import DataNode, Task, TaskRef
    from dask.layers import ArrayBlockIdDep, ArrayChunkShapeDep, ArraySliceDep, ArrayValuesDep

    def frame(n: int) -> Any:
        return dd.from_pandas(pd.DataFrame({"a": np.arange(max(n, 2))}), npartitions=2)

    return {
        "Task-references": lambda n: Task("k", max, *(TaskRef(key) for key in labels_of(n))),
        "DataNode": lambda n: DataNode("d", list(range(n))),
        "ChunkShapeDep": lambda n: ArrayChunkShapeDep(((1,) * n,)),
        "SliceDep": lambda n: ArraySliceDep(((1,) * n,)),
        "BlockIdDep": lambda n: ArrayBlockIdDep(((1,) * n,)),
        "ValuesDep": lambda n: ArrayValuesDep(((1,) * n,), list(range(n))),
        "Array-2": lambda n: da.ones((4, 4), chunks=2) + 1,
        "collection": lambda n: new_collection(frame(n).expr),
    }


GROUPS = (
    *(numpy_samples, index_samples, frame_samples, extension_array_samples, offset_samples),
    *(arrow_samples, scipy_samples, dask_samples),
)
