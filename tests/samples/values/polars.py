"""polars' frames and series of every type."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator

import polars as pl


def columns() -> dict[str, object]:

    enum = pl.Enum(["a", "b"])
    moment = dt.datetime(2026, 1, 1, 12)
    return {
        "ints": pl.Series([1, None, 3], dtype=pl.Int8),
        "floats": pl.Series([1.5, None, 0.0], dtype=pl.Float32),
        "flags": pl.Series([True, None, False]),
        "text": pl.Series(["a" * 30, None, ""]),
        "bytes": pl.Series([b"x", None, b"y" * 40]),
        "categories": pl.Series(["a", None, "b"], dtype=pl.Categorical),
        "enum": pl.Series(["a", None, "b"], dtype=enum),
        "decimals": pl.Series([decimal.Decimal("1.25"), None, None], dtype=pl.Decimal(10, 2)),
        "dates": pl.Series([moment.date(), None, None]),
        "times": pl.Series([dt.time(1, 2, 3), None, None]),
        "durations": pl.Series([dt.timedelta(1), None, None], dtype=pl.Duration("ms")),
        "moments": pl.Series([moment, None, None]),
        "zoned": pl.Series([moment, None, None], dtype=pl.Datetime("ns", "Europe/Paris")),
        "lists": pl.Series([[1], None, [2, 3]]),
        "arrays": pl.Series([[1, 2], None, [3, 4]], dtype=pl.Array(pl.Int64, 2)),
        "squares": pl.Series([[[1, 2], [3, 4]], None, None], dtype=pl.Array(pl.Int64, (2, 2))),
        "structs": pl.Series([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        "empty-structs": pl.Series([{}, None, {}], dtype=pl.Struct([])),
        "nothing": pl.Series([None, None, None]),
        "deep": pl.Series([[{"x": "a", "d": moment}], None, []],
                          dtype=pl.List(pl.Struct({"x": enum, "d": pl.Datetime("us")}))),
    }  # fmt: skip


def examples() -> dict[str, object]:
    made = columns()
    return made | {
        "frame": pl.DataFrame({name: made[name] for name in ("ints", "text", "enum", "zoned")}),
        "nested": pl.DataFrame({name: made[name] for name in ("deep", "arrays", "categories")}),
        "sliced": made["text"].to_frame("text")[1:],
        "empty": pl.DataFrame(),
    }


def uses(value: object) -> Iterator[Callable[[], object]]:
    if not isinstance(value, (pl.DataFrame, pl.Series)):
        return
    frame = value.to_frame() if isinstance(value, pl.Series) else value
    # A panic of polars is no Exception; whoever sees one here has found something.
    yield lambda: repr(value)
    yield lambda: frame.rows()[:200]
    yield lambda: [column.to_list() for column in frame.get_columns()]
    yield lambda: frame.to_arrow()
    yield lambda: frame.to_pandas()
    yield lambda: frame.describe()
    yield lambda: frame.sort(frame.columns[0])
    yield lambda: pl.concat([frame, frame]).rechunk()
    yield lambda: frame.filter(pl.col(frame.columns[0]).is_not_null())
    yield lambda: frame.group_by(frame.columns[0]).len()
    yield lambda: frame.unnest(frame.columns[0])
    yield lambda: frame.explode(frame.columns[0])
    yield lambda: frame.unique()
    yield lambda: frame.write_csv()
    yield lambda: frame.estimated_size()
    yield lambda: frame.select(pl.all().cast(pl.String))
    yield lambda: frame.equals(frame.clone())
    yield lambda: frame.hash_rows()


def others() -> Iterator[object]:
    """Yield more honest values."""
    made = columns()
    for name, series in made.items():
        many = pl.concat([series] * 20)
        doubled = pl.concat([series, series], rechunk=False)
        for part in (series, many[7:13], doubled, series[:0]):
            yield from (part, part.alias("n"), pl.DataFrame({name: part, "": part}))
    whole = pl.DataFrame(made)
    yield from (whole, whole[1:], pl.DataFrame({"a": []}), {"a": whole, "b": [made["ints"]]})
    for count in (0, 1, 254, 255, 256, 65_535, 65_536):
        kind = pl.Enum([str(number) for number in range(count)])
        yield pl.Series("e", [None, *([str(count - 1), "0"] if count else [])], dtype=kind)
        yield pl.Series([[None], []], dtype=pl.List(kind))
    most = dt.timedelta.max.days
    yield (pl.Series([most, -most]) * 86_400_000).cast(pl.Duration("ms"))
    for unit in ("us", "ns"):
        yield pl.Series([-(2**63)], dtype=pl.Int64).cast(pl.Duration(unit))
