"""xarray's arrays and datasets: indexes that are shared, and pickles inside that are checked."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from safeser import families
from safeser.errors import PayloadError
from safeser.gate.values import Grant
from tests.samples.hostile.labelled import CATEGORIES, INDEX, VARIABLE
from tests.samples.typed import FAMILIES, GRANT, replaced, shifted, through
from tests.samples.values.labelled import dataset

PICKLED = Grant("test", ("dask", "msgpack", "pickle"), profiles=("data", "numpy", "pandas"))
DAYS = pd.date_range("2020", periods=3, tz="UTC").array


@pytest.mark.parametrize(
    ("value", "position", "wrong", "right"),
    [
        (VARIABLE, 0, ["x"], ("x",)), (VARIABLE, 1, [1], {"a": 1}), (VARIABLE, 2, None, {}),
        (VARIABLE, 3, [1, 2], np.arange(2)), (INDEX, 0, [10, 20], None),
        (INDEX, 2, "i8", np.dtype("i8")), (INDEX, 3, [], None), (dataset(), 0, [1], {}),
        (dataset(), 2, (), None), (dataset(), 3, (), None), (dataset(), 4, [], {}),
        (dataset()["a"], 0, [1], None), (CATEGORIES, 3, [1], CATEGORIES.data),
        (CATEGORIES, 3, DAYS.reshape(1, 3), DAYS), (CATEGORIES, 3, pd.Index([1]), None),
    ],
)  # fmt: skip
def test_what_a_granted_pickle_holds_is_checked_as_well(value, position, wrong, right):
    for part, fine in ((wrong, False), (right, True)):
        if fine and right is None:
            continue
        header, frames = replaced(value, position, part, ("pickle",))
        if fine:
            families.deserialize(header, frames, PICKLED)
            continue
        with pytest.raises(PayloadError) as caught:
            families.deserialize(header, frames, PICKLED)
        assert caught.value.rule in ("families.build", "families.child-type")


def test_a_shared_index_is_one_object():
    got = through(dataset().stack(z=("x", "y")))
    assert got.xindexes["x"] is got.xindexes["y"] is got.xindexes["z"]
    assert got.sel(z=(10, "b"))["a"].item() == 1.0


def through_odd(value):
    header, frames = families.serialize(value, FAMILIES)
    return families.deserialize(header, shifted(frames), GRANT)


def test_numbers_that_are_seen_many_times_are_not_written_out_to_be_aligned():
    """Eight bytes at an odd address took as much memory as they claimed to be seen."""
    got = through_odd(xr.Variable("x", np.broadcast_to(np.float64(3), (1 << 20,))))
    assert got.values.strides == (0,)
    assert got.values.flags.aligned


def test_an_index_in_the_middle_of_being_renamed():
    made = dataset().stack(z=("x", "y"))
    index = made.xindexes["z"]
    index.index = index.index.set_names(["x", "other"])
    with pytest.raises((PayloadError, KeyError)):
        families.serialize(made, FAMILIES)
