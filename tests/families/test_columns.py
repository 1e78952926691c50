"""Columns: many scalars of one type travel in one frame."""

import datetime as dt
import decimal

import pytest

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.gate.values import Limits
from tests.samples.typed import FAMILIES, GRANT
from tests.samples.values.stdlib import MIXED


def test_a_column_is_one_frame():
    header, frames = families.serialize([1j] * 1000, FAMILIES)
    assert (len(frames), header["type"]) == (1, "builtins:list")
    assert "sub-headers" not in header
    with pytest.raises(SafeserError, match="more memory"):
        families.serialize([1j] * 1000, FAMILIES, limits=Limits(max_memory=50 << 7))


def test_dicts_of_columns_that_lie():
    header, frames = families.serialize(dict.fromkeys(range(4), 1j), FAMILIES)
    for keys in ((0, 1, 2), (0, 1, 2, 2), (0, 1, 2, [])):
        with pytest.raises(PayloadError):
            families.deserialize(header, [plain.encode(keys), *frames[1:]], GRANT)
    for keys in ([0, 1, 2, 3], 5, {0: 1}):
        with pytest.raises(PayloadError) as caught:
            families.check(header, [plain.encode(keys), *frames[1:]])
        assert caught.value.rule == "families.child-type"


def test_an_element_that_cannot_be_sent_is_named():
    with pytest.raises(SafeserError) as caught:
        families.serialize([decimal.Decimal(1)] * 5 + [decimal.Decimal("1E+9999999")], FAMILIES)
    assert caught.value.where == "[5]"


def test_all_columns_of_a_message_share_what_it_may_hold():
    # Each was within its limit: a message of columns could take thirteen times its size.
    header, frames = families.serialize([[1j] * 400 for _ in range(4)], FAMILIES)
    families.check(header, frames, limits=Limits(max_memory=154_432))
    with pytest.raises(PayloadError) as caught:
        families.check(header, frames, limits=Limits(max_memory=154_431))
    assert caught.value.rule == "families.memory"


def test_columns_are_for_collections_alone():
    class Listy(list):
        pass

    with pytest.raises(SafeserError):
        families.serialize(Listy([1j] * 9), FAMILIES)
    with pytest.raises(plain.Unencodable):
        families.registry.named("builtins:list").encode([1j] * 9, Limits())


def test_a_column_alone_is_charged_to_its_message():
    # A payload of one value was once read by a shorter way, which charged one for all of it.
    sent = [dt.date(2026, 1, day) for day in range(1, 21)]
    header, frames = families.serialize(sent, FAMILIES)
    assert header["serializer"] == "dask"
    budget = families.Budget(Limits(max_memory=5000))
    families.deserialize(header, frames, GRANT, budget=budget)
    assert budget.memory == 5000 - 3056  # three numbers for each date, their list, the node
    families.deserialize(header, frames, GRANT, budget=families.Budget(Limits(max_memory=3056)))
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, budget=families.Budget(Limits(max_memory=3055)))
    assert caught.value.rule == "families.memory"


@pytest.mark.parametrize("value", MIXED)
def test_what_is_no_column_goes_one_by_one(value):
    assert families.serialize(value, FAMILIES)[0]["serializer"] == "collection"
