"""The sweep of constructors leaves none out."""

from __future__ import annotations

import warnings

import pytest

from tests.sweep.pickles import UNCOVERED, attacks, constructors, everything


@pytest.mark.unmeasured
def test_each_listed_constructor_is_attacked_or_says_why_not():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attacked = {template.name for template in attacks(everything(large=False))}
    listed = constructors().keys()
    assert listed - attacked == UNCOVERED.keys()
    assert all(UNCOVERED.values())
