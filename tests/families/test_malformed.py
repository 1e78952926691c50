"""A short share of the malformed headers and frames, over the examples of every room."""

from __future__ import annotations

import pytest

from safeser import families
from safeser.errors import PayloadError
from verification.malformed.parent import run

#: Names under which nothing travels, each to refuse it with advice; and paths of another system.
_NOTHING_TRAVELS = ["numpy:memmap", "pandas:GroupBy", "pathlib:WindowsPath", "polars:LazyFrame"]

# Some ten cases of each example; long runs are verification.malformed's own.
_CASES = 2_500


@pytest.mark.slow
@pytest.mark.unmeasured
def test_malformed_headers_and_frames_give_a_value_or_one_error():
    outcome = run(cases=_CASES, seed=4)
    assert not outcome.broken, str(outcome)
    assert outcome.counted["refused"] > outcome.counted["accepted"] > _CASES // 20
    assert outcome.counted["refused"] + outcome.counted["accepted"] == _CASES
    # Whoever adds a serializer adds an example of it: see verification.malformed.
    assert set(outcome.unseen) <= set(_NOTHING_TRAVELS)


def test_an_error_deep_inside_is_short():
    # Each of two hundred steps was spelled out: kilobytes for every log that sees the error.
    header = {"serializer": "nothing"}
    for _ in range(90):
        header = {
            "serializer": "collection",
            "type": "list",
            "sub-headers": [header],
            "frame-lengths": [0],
        }
    with pytest.raises(PayloadError, match=r"sub-headers\[0\]\.\.\.\.\.sub-headers") as caught:
        families.check(header, [])
    assert len(str(caught.value)) < 500
