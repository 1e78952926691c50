"""Frames, series and indexes of a stock cluster, and their comparison."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd

from safeser.gate.values import Limits

DAYS = pd.date_range("2026-01-01", periods=3, freq="D")
PLACES = pd.Categorical(["a", "b", "a"], ["b", "a"], ordered=True)

FRAMES = {
    "numbers": pd.DataFrame({t: np.array([0, 1, 2]).astype(t) for t in ("i1", "u8", "f4", "c16")}),
    "flags": pd.Series([True, False], name="flag"),
    "text": pd.DataFrame({"str": ["a", None, "ü"], "NA": pd.array(["a", None, ""], "string")}),
    "nullable": pd.DataFrame({t: pd.array([1, None], t) for t in ("Int8", "Float64", "boolean")}),
    "times": pd.DataFrame(
        {"day": DAYS, "zone": DAYS.tz_localize("Europe/Zurich"), "d": DAYS - DAYS[0]}
    ),
    "periods": pd.Series(pd.period_range("2026-01", periods=3, freq="M")),
    "intervals": pd.Series(pd.interval_range(0, 3)),
    "categories": pd.Series(PLACES, index=DAYS),
    "objects": pd.Series([1, "x", None, 2.5, float("inf"), (1, [2])], dtype=object, name=("a", 1)),
    "levels": pd.DataFrame(
        np.arange(8).reshape(4, 2),
        pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["k", "n"]),
        pd.MultiIndex.from_tuples([("x", 1), ("y", 2)]),
    ),
    "grouped": pd.DataFrame({"k": PLACES, "n": [1, 2, 3]}).groupby("k", observed=True).agg(["sum"]),
    "empty": pd.DataFrame({"a": []}),
    "no columns": pd.DataFrame(index=range(3)),
    "same names": pd.DataFrame([[1, 2.5]], columns=["a", "a"]),
    "blocks": pd.DataFrame({f"c{n}": [n, 2, 3] for n in range(5)}).assign(x=0.5, y="a", z=1),
    "every other row": pd.DataFrame({"a": [1, 2, 3], "b": ["ä", None, "c"]})[::2],
    "part of a text": pd.Series(["a", None, "ü"] * 9)[3:20],
    "text of Python": pd.Series(["a", None], dtype=pd.StringDtype("python")),
    "text that repeats": pd.Series(["a", "b", None] * 9, dtype=object),
    "no text": pd.Series([], dtype="str"),
    "empty texts": pd.Series(["", ""]),
    "missing objects": pd.Series([pd.NA, pd.NaT, None, DAYS[0], DAYS[1] - DAYS[0]], dtype=object),
    "other names": pd.Series([1, 2], index=pd.Index([1, 2], name=np.int64(1)), name="a\nb"),
    "wrapped": pd.Series(pd.arrays.NumpyExtensionArray(np.arange(3))),
    "sorted levels": pd.MultiIndex([["a", "b"]], [[0, 1]], sortorder=0, names=["k"]).to_frame(),
    "fixed zones": pd.DataFrame(
        {str(zone): DAYS.tz_localize(zone) for zone in (dt.UTC, dt.timezone(dt.timedelta(0, 60)))}
    ),
}

LIMITS = Limits()


def same(one, other):
    kinds = {pd.DataFrame: pd.testing.assert_frame_equal, pd.Series: pd.testing.assert_series_equal}
    assert type(one) is type(other)
    kinds.get(type(one), pd.testing.assert_index_equal)(one, other)
