"""Tables of a shuffle with numbers of parts that the worker does not keep, or that all say much."""

from __future__ import annotations

import dask.dataframe  # noqa: F401 - registers how Arrow's tables become frames
import pandas as pd
import pyarrow as pa
import pytest
from distributed.shuffle import _shuffle
from distributed.shuffle._arrow import deserialize_table, serialize_table

from safeser.dask import dividing
from safeser.errors import PayloadError

RUN = _shuffle.DataFrameShuffleRun
HERE = "safeser://127.0.0.1:1"
DIVIDES = getattr(_shuffle.split_by_partition, "__wrapped__", _shuffle.split_by_partition)
TAKES = getattr(RUN._repartition_buffers, "__wrapped__", RUN._repartition_buffers)


@pytest.fixture(autouse=True)
def _dividing(monkeypatch):
    monkeypatch.setattr(_shuffle, "split_by_partition", DIVIDES)
    monkeypatch.setattr(RUN, "_repartition_buffers", TAKES)
    dividing.divide_little()
    dividing.divide_little()
    assert _shuffle.split_by_partition.__wrapped__ is DIVIDES
    monkeypatch.setattr(dividing, "most_bytes", lambda: 50_000)


def run(own):
    made = object.__new__(RUN)
    made.column, made.drop_column, made.local_address = "_partitions", True, HERE
    made.partitions_of = {HERE: list(range(own))}
    return made


def divided(column, numbers, own=100, **more):
    numbers = numbers if isinstance(numbers, pa.Array) else pa.array(numbers, "i4")
    table = pa.table({"v": column, **more, "_partitions": numbers})
    return run(own)._repartition_buffers([(0, serialize_table(table))])


def refused(rule, *shard, **more):
    with pytest.raises(PayloadError) as caught:
        divided(*shard, **more)
    assert caught.value.rule == rule


def test_own_parts_are_made():
    made = divided(list("abcd"), [1, 0, 1, 99])
    assert {at: deserialize_table(part)["v"].to_pylist() for at, part in made.items()} == {
        (0,): ["b"],
        (1,): ["a", "c"],
        (99,): ["d"],
    }


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 100],
        [-1, 0],
        pa.array([0, None]),
        pa.array([0.0, 1.0]),
        pa.array([False, True]),
        pa.array(["0", "1"]),
        pa.array([[0], [1]]),
        pa.array([0, 1]).dictionary_encode(),
    ],
)
def test_none_is_made_of_others(numbers, monkeypatch):
    monkeypatch.setattr(_shuffle, "serialize_table", None)
    refused("shuffle.partition", ["a", "b"], numbers)


def test_no_more_are_looked_at_than_tell(monkeypatch):
    looked = []
    monkeypatch.setattr(dividing, "require_own", lambda _, found: looked.extend(found))
    divided(pa.nulls(10), range(10), own=3)
    assert looked == [(0,), (1,), (2,), (3,)]


TEXTS = pa.array(["x" * 1000])
NAMED = pa.DictionaryArray.from_arrays(pa.array([0] * 100, "i1"), TEXTS)


@pytest.mark.parametrize(
    "column",
    [
        NAMED,
        pa.StructArray.from_arrays([NAMED], ["a"]),
        pa.ListArray.from_arrays(range(101), NAMED),
        pa.DictionaryArray.from_arrays(
            pa.array([0] * 100, "i1"), pa.StructArray.from_arrays([NAMED[:1]], ["a"])
        ),
    ],
)
def test_categories_are_not_written_for_many_parts(column):
    assert sum(map(len, TAKES(run(0), [(0, serialize_table(_whole(column)))]).values())) > 99_000
    refused("shuffle.size", column, range(100))
    assert len(divided(column, [at % 9 for at in range(100)])) == 9


def _whole(column):
    return pa.table({"v": column, "_partitions": pa.array(range(100), "i4")})


def test_nor_are_long_names():
    names = {f"{at}" * 50: pa.nulls(100) for at in range(10)}
    refused("shuffle.size", pa.nulls(100), range(100), **names)
    assert len(divided(pa.nulls(100), [0] * 100, **names)) == 1


def test_tables_of_no_shuffle_are_divided_as_by_dask():
    table = pa.table({"v": [1, 2], "_partitions": [7, 8]})
    assert list(_shuffle.split_by_partition(table, "_partitions", False)) == [7, 8]
    assert pd.api.types.is_integer(next(iter(DIVIDES(table, "_partitions", True))))
