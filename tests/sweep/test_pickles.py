"""The sweep of constructors leaves none out, and that of products makes what it names."""

from __future__ import annotations

import warnings

import pytest

from tests.sweep import product_samples, products
from tests.sweep.pickles import UNCOVERED, attacks, constructors, everything

PRODUCTS = tuple(product_samples.products())


@pytest.mark.unmeasured
def test_each_listed_constructor_is_attacked_or_says_why_not():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attacked = {template.name for template in attacks(everything(large=False))}
    listed = constructors().keys()
    assert listed - attacked == UNCOVERED.keys()
    assert all(UNCOVERED.values())


@pytest.mark.unmeasured
def test_each_product_has_a_message_in_a_spelling():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {name: list(products.spelt(name, product, 4, 8)) for name, product in PRODUCTS}
    assert len(made) > 80
    assert [name for name, found in made.items() if not found] == []
    kinds = {type(attack).__name__ for found in made.values() for attack in found}
    assert kinds == {"Copies", "Template", "Whole"}
