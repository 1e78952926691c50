"""Columns: many scalars of one type in one frame come back as they would one by one."""

import collections
import datetime as dt
import decimal
import fractions
import ipaddress
import pathlib
import uuid
import zoneinfo

import pytest
from families_attack import FAMILIES, GRANT, mutate_all, through
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.types import stdlib
from safeser.values import Limits
from tests.draws import draws

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
ODD = dt.timezone(dt.timedelta(hours=1), "odd")

COLUMNS = [
    [1j, complex("nan"), -0j, complex("inf")],
    [dt.date(2020, 1, day) for day in range(1, 9)],
    [dt.datetime(2020, 10, 25, 2, 30, fold=n % 2) for n in range(5)],
    [dt.datetime(2020, 10, 25, 2, 30, fold=n % 2, tzinfo=BERLIN) for n in range(5)],
    tuple(dt.time(n, 1, 2, 3, tzinfo=ODD, fold=1) for n in range(5)),
    [dt.timedelta(-n, n, n) for n in range(5)],
    [decimal.Decimal(text) for text in ("1.20", "sNaN", "-0", "1E+5", "Infinity")],
    [fractions.Fraction(n, 7) for n in range(20)],
    [uuid.UUID(int=n) for n in range(5)],
    tuple(pathlib.PurePosixPath(f"/a/{n}") for n in range(5)),
    [ipaddress.ip_address(n) for n in range(5)],
    [ipaddress.ip_address(f"fe80::{n}%eth0") for n in range(5)],
    {n: decimal.Decimal(n) for n in range(6)},
    {dt.date(2020, 1, n): [n] for n in range(1, 9)},
    {dt.datetime(2020, 1, n, tzinfo=BERLIN): [2j] for n in range(1, 9)},
    {dt.date(2020, 1, n): uuid.UUID(int=n) for n in range(1, 9)},
    {dt.datetime(2020, 1, n, tzinfo=dt.UTC): 1j * n for n in range(1, 9)},
    collections.deque([dt.date(2020, 1, n) for n in range(1, 9)], 20),
    collections.OrderedDict((n, 1j) for n in range(9)),
]


@pytest.mark.parametrize("value", COLUMNS)
def test_columns_come_back(value):
    back = through(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


MIXED = [
    [1j, 1j, 1j, None],
    [1j, 1j, 1j, 1.0],
    [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 3,
    [dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)] * 3,
    [1j] * 3,
    {1j} | {1j + n for n in range(9)},
]


@pytest.mark.parametrize("value", MIXED)
def test_what_is_no_column_goes_one_by_one(value):
    assert families.serialize(value, FAMILIES)[0]["serializer"] == "collection"
    back = through(value)
    assert back == value
    assert list(map(type, back)) == list(map(type, value))


def test_a_column_is_one_frame():
    header, frames = families.serialize([1j] * 1000, FAMILIES)
    assert (len(frames), header["type"]) == (1, "builtins:list")
    assert "sub-headers" not in header
    with pytest.raises(SafeserError, match="more than 50"):
        families.serialize([1j] * 1000, FAMILIES, limits=Limits(max_refs=50))


@draws(25)
@given(
    st.lists(st.datetimes(), min_size=4, max_size=9)
    | st.lists(st.decimals(), min_size=4, max_size=9)
    | st.lists(st.timedeltas(), min_size=4, max_size=9)
    | st.lists(st.fractions(), min_size=4, max_size=9)
    | st.lists(st.times(), min_size=4, max_size=9).map(tuple)
    | st.dictionaries(st.dates(), st.complex_numbers(), min_size=4, max_size=9)
)
def test_any_column_comes_back(value):
    back = through(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize("value", COLUMNS[:4] + COLUMNS[12:16])
def test_headers_that_lie(value):
    mutate_all(value, repr, every=2)


def column(name, flat, *, kind="list", **meta):
    header = {"serializer": "dask", "type": f"builtins:{kind}", "sub-header": {"of": name, **meta}}
    return header, [plain.encode(flat)]


NONE = plain.encode(None)


@pytest.mark.parametrize(
    ("header", "frames", "rule"),
    [
        (*column("builtins:range", [1, 2, 3]), "families.type"),
        (*column("os:system", ["true"]), "families.type"),
        (*column(["datetime:date"], [1, 1, 1]), "families.type"),
        (*column("datetime:date", [1, 1, 1], x=1), "families.header"),
        (*column("datetime:date", [1, 1]), "families.count"),
        (*column("datetime:date", [1, 1, 1, 1]), "families.count"),
        (*column("datetime:date", (1, 1, 1)), "families.count"),
        (*column("datetime:date", [0, 1, 1]), "families.value"),
        (*column("datetime:date", [1, True, 1]), "families.value"),
        (*column("datetime:datetime", [2020, 1, 1] + [0] * 5), "families.header"),
        (*column("datetime:datetime", [2020, 1, 1] + [0] * 5, zone=5), "families.header"),
        (*column("datetime:datetime", [2020, 1, 1] + [0] * 5, zone=b"\xc1"), "families.msgpack"),
        (
            *column("datetime:datetime", [2020, 1, 1] + [0] * 5, zone=plain.encode(("/etc",))),
            "value.time-zone",
        ),
        (*column("datetime:time", [25, 0, 0, 0, 0], zone=NONE), "families.value"),
        (*column("decimal:Decimal", ["1E+10000000"]), "value.decimal"),
        (*column("decimal:Decimal", [1]), "families.value"),
        (*column("fractions:Fraction", [2, 4]), "families.value"),
        (*column("pathlib:PurePosixPath", ["a//b"]), "families.value"),
        (*column("builtins:complex", [1.0, 2]), "families.value"),
    ],
)
def test_columns_that_lie(header, frames, rule):
    with pytest.raises(PayloadError) as caught:
        families.check(header, frames)
    assert caught.value.rule == rule


def test_a_zone_is_looked_up_only_when_it_is_loaded(monkeypatch):
    header, frames = families.serialize(COLUMNS[3], FAMILIES)
    looked = []
    monkeypatch.setattr(stdlib, "_zone_keys", lambda: looked.append(1) or frozenset({"UTC"}))
    families.check(header, frames)
    assert not looked
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule == "value.time-zone"


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
    families.check(header, frames, limits=Limits(max_refs=4000))
    with pytest.raises(PayloadError) as caught:
        families.check(header, frames, limits=Limits(max_refs=3000))
    assert caught.value.rule == "families.refs"


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
    budget = families.Budget(Limits(max_refs=100))
    families.deserialize(header, frames, GRANT, budget=budget)
    assert budget.refs == 100 - 61  # three numbers for each date, and the list
    families.deserialize(header, frames, GRANT, budget=families.Budget(Limits(max_refs=61)))
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT, budget=families.Budget(Limits(max_refs=60)))
    assert caught.value.rule == "families.refs"
