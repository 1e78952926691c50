"""pandas' arrays whose parts are honest values, and not what the array may be made of."""

import numpy as np
import pandas as pd
import pytest
from families_attack import FAMILIES, GRANT, LIMITS

from safeser import families
from safeser.errors import PayloadError


def forged(value, *parts):
    """Return the header and frames of *value* with *parts* for what it is made of."""
    header, _ = families.serialize(value, FAMILIES)
    sent = [families.serialize(part, FAMILIES) for part in parts]
    header["sub-headers"] = [one[0] for one in sent]
    header["frame-lengths"] = [len(one[1]) for one in sent]
    return header, [frame for one in sent for frame in one[1]]


TEXT = pd.array(["a", None], dtype=pd.StringDtype("python"))
ARROW = pd.array(["ab", "c"], dtype=pd.StringDtype("pyarrow"))
NULLABLE = pd.array([1, None])
DATES = pd.date_range("2020", periods=2, tz="UTC").array
INTERVALS = pd.arrays.IntervalArray.from_breaks([0, 1, 2])
FLAGS = np.zeros(2, bool)


@pytest.mark.parametrize(
    ("value", "parts", "rule"),
    [
        (NULLABLE, (np.arange(2), np.zeros(3, bool)), "families.shape"),
        (NULLABLE, (np.arange(2, dtype=">i4"), FLAGS), "families.dtype"),
        (NULLABLE, (np.zeros(2, np.float16), FLAGS), "families.dtype"),
        (NULLABLE, (np.zeros(2, np.longdouble), FLAGS), "families.dtype"),
        (NULLABLE, (np.arange(2), np.zeros(2, "u1")), "families.child-type"),
        (NULLABLE, (np.arange(2),), "families.child-count"),
        (TEXT, (), "families.child-type"),
        (TEXT, (["a"], ["b"]), "families.child-type"),
        (TEXT, ("ab",), "families.child-type"),
        (TEXT, (["a", 1],), "families.child-type"),
        (TEXT, (["a", b"b"],), "families.child-type"),
        (ARROW, (np.arange(2),), "families.child-count"),
        (ARROW, (np.arange(3, dtype="i4"), np.zeros(2, "u1"), FLAGS), "families.child-type"),
        (ARROW, (np.arange(3), np.zeros(2, "i1"), FLAGS), "families.child-type"),
        (INTERVALS, (np.arange(2), np.arange(2)), "families.child-type"),
        (INTERVALS, ("left", "right"), "families.child-type"),
        (DATES, (np.zeros(2, "M8[D]"),), "families.child-type"),
        (DATES, (np.zeros(2, "i8"),), "families.child-type"),
    ],
)
def test_parts_that_are_something_else(value, parts, rule):
    header, frames = forged(value, *parts)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    assert caught.value.rule == rule


def test_dates_of_no_zone():
    header, frames = families.serialize(DATES, FAMILIES)
    changed = [at for at in (header, header.get("sub-header")) if at and "zone" in at]
    assert changed
    for at in changed:
        at["zone"] = None
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    assert caught.value.rule == "families.time-zone"
