"""What pandas 2 pickled is read by the pandas that is installed, whichever names it used."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from safeser.pickles import loads
from tests.pickles.forging import PROFILE, family_of

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


def values():
    """Return what the vectors hold, by name; they were pickled by pandas 2.2 from this."""
    days = pd.date_range("2026", periods=3, freq="2D", unit="ns")
    frame = pd.DataFrame({"i": [1, 2], "f": [1.5, np.nan], "o": np.array(["x", 1], object)})
    frame["c"] = pd.Categorical([1, 2], ordered=True)
    frame["t"] = days[:2]
    frame["j"] = [3, 4]
    frame.columns = frame.columns.astype(object)  # text is objects in pandas 2
    return {
        "frame": frame,
        "zone": pd.Series(days.tz_localize("UTC"), index=[3, 1, 2], name="z"),
        "moments": days,
        "spans": pd.TimedeltaIndex(np.array([1, 2], "m8[ns]"), name="d"),
        "periods": pd.period_range("2026", periods=2, freq="M"),
        "intervals": pd.interval_range(0, 2, closed="left"),
        "levels": pd.MultiIndex.from_product([[1, 2], [0.5]], names=["a", "b"]),
        "categories": pd.CategoricalIndex([1, 2, 1]),
        "masked": pd.array([1, None], dtype="Int64"),
        "sparse": pd.arrays.SparseArray([0, 0, 1.5], fill_value=0),
        "text": pd.array(["a", None], dtype=pd.StringDtype("python")),
        "arrow": pd.array([1, None], dtype=pd.ArrowDtype(pa.int64())),
        "arrow text": pd.array(["a", None], dtype=pd.StringDtype("pyarrow")),
        "offset": pd.DateOffset(months=2, hour=3),
        "month end": pd.offsets.MonthEnd(2),
        "period": pd.Period("2026-01", "M"),
        "interval": pd.Interval(0, 1, "both"),
        "missing": [pd.NA, pd.NaT],
    }


EXPECTED = values()
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "pandas-2.json").read_text("utf-8"))[
    "pickles"
]


def test_there_is_a_vector_for_each_value():
    assert VECTORS.keys() == EXPECTED.keys()


@pytest.mark.parametrize("protocol", ["2", "5"])
@pytest.mark.parametrize("name", EXPECTED)
def test_values_of_pandas_2(name, protocol):
    data, expected = base64.b64decode(VECTORS[name][protocol]), EXPECTED[name]
    assert family_of(data) == "pickle"
    got = loads(data, profile=PROFILE)
    assert type(got) is type(expected)
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(got, expected)
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(got, expected)
    elif isinstance(expected, pd.Index):
        pd.testing.assert_index_equal(got, expected, exact=True)
        assert getattr(got, "freq", None) == getattr(expected, "freq", None)
    elif isinstance(expected, pd.api.extensions.ExtensionArray):
        pd.testing.assert_extension_array_equal(got, expected)
    elif isinstance(expected, list):
        assert all(mine is theirs for mine, theirs in zip(got, expected, strict=True))
    else:
        assert got == expected
