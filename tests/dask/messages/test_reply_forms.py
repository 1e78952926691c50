"""Objects in answers that Dask's client prints: of which ones a size bounds the text."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest

from safeser.dask.wire.bounded_repr import has_bounded_repr


@pytest.mark.parametrize("value", [OrderedDict(a=1), Counter("a"), defaultdict(int), np.add])
def test_no_size_bounds_the_text_of_other_objects(value):
    assert not has_bounded_repr(value)
