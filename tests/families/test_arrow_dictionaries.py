"""What dictionary-encoded arrays take once written out is known before they are."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa
import pytest

from safeser.families.arrow.streams import decoded_size

TEXT = pa.array(["x" * 1000])
NAMED = pa.DictionaryArray.from_arrays(pa.array([0] * 500, "i1"), TEXT)
ALL = pa.array([0, 500], "i4")
LISTS = pa.ListArray.from_arrays(ALL, NAMED)


def encoded(values, indices=(0,) * 500, kind="i1"):
    return pa.DictionaryArray.from_arrays(pa.array(indices, kind), values)


@pytest.mark.parametrize(
    "array",
    [
        NAMED, encoded(TEXT, kind="u8"), encoded(TEXT.cast(pa.large_string())),
        encoded(pa.array([b"x" * 1000])), encoded(pa.array([b"x" * 1000], pa.binary(1000))), LISTS,
        pa.LargeListArray.from_arrays(ALL.cast("i8"), NAMED),
        pa.FixedSizeListArray.from_arrays(NAMED, 500), pa.StructArray.from_arrays([NAMED], ["a"]),
        pa.ListArray.from_arrays(ALL, pa.StructArray.from_arrays([NAMED], ["a"])),
        pa.MapArray.from_arrays(ALL, pa.array(range(500)), NAMED),
        pa.ExtensionArray.from_storage(pa.opaque(LISTS.type, "a", "b"), LISTS),
        pa.StructArray.from_arrays([NAMED.slice(0, 200), NAMED.slice(200, 200)], ["a", "b"]),
    ],
    ids=lambda array: str(array.type)[:40],
)  # fmt: skip
def test_what_rows_name_is_counted_for_each_of_them(array):
    named = 400 if array.type.num_fields == 2 and pa.types.is_struct(array.type) else 500
    assert decoded_size(array) == named * 1000


@pytest.mark.parametrize(
    "values",
    [TEXT.cast(pa.string_view()), NAMED, LISTS, pa.StructArray.from_arrays([TEXT], ["a"])],
    ids=lambda values: str(values.type)[:40],
)
def test_where_each_row_may_name_all_it_counts_as_all(values):
    assert 500 * 1000 <= decoded_size(encoded(values)) <= 500 * (2 * 500_000 + 10_000)


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (pa.array([7]), 8), (pa.array([True]), 1), (pa.array([1.5], "f2"), 2),
        (pa.array([datetime.date(2020, 1, 1)]), 4), (pa.array([decimal.Decimal("1.5")]), 16),
        (pa.array([""]), 0), (pa.nulls(1), 0),
    ],
)  # fmt: skip
def test_numbers_take_what_their_type_takes(values, size):
    assert decoded_size(encoded(values)) == 500 * size


def test_rows_of_nothing_name_nothing():
    assert decoded_size(encoded(pa.array([], "str"), [None] * 500)) == 0
    assert decoded_size(encoded(pa.array(["ab", None]), [0, None, 1, 0])) == 4
    assert decoded_size(NAMED.slice(0, 0)) == 0
    assert decoded_size(NAMED.slice(3, 4)) == 4000


@pytest.mark.parametrize("array", [pa.array(["x"] * 9), pa.array([[1]]), pa.array([{"a": "x"}])])
def test_what_names_nothing_counts_as_nothing(array):
    assert decoded_size(array) == 0


def test_runs_count_as_their_values():
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([9], "i4"), NAMED.slice(0, 1))
    assert decoded_size(runs) == 1000
