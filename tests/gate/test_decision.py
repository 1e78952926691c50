"""Hostile tables: whatever rows the gate is given, it permits nothing below the floors.

Policies that load are held to their meaning in tests/policy/test_decide.py.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.decision import SUBMITTING, Row, Table
from safeser.gate.values import (
    FAMILIES,
    HARMLESS,
    SEALED,
    SUBMISSIONS,
    UNKNOWN,
    Context,
    Grant,
    Kind,
)
from tests.draws import draws

NAMES = ("a", "b", "eve", "unknown", "any", "*", None)
OPERATIONS = ("update-graph", "compute-task", "run", "invented", "?", "*", None)
LISTED = ("msgpack", "error", "dask", "pickle", "cloudpickle", "sealed", "own")
ASKED = (*LISTED, "invented", "?", "*", "", None, 5)


def some(values: Any) -> st.SearchStrategy[frozenset[Any]]:
    """Mostly all of *values*: what grants most is the most hostile."""
    return st.just(frozenset(values)) | st.sets(st.sampled_from(values)).map(frozenset)


ROWS = st.builds(
    Row,
    name=st.sampled_from(("x", "y")),
    senders=some(NAMES),
    recipients=some(NAMES),
    kinds=some((*Kind, "everything", "*", None)),
    transports=some(("safeser", "library", "*", None)),
    same_host=some((True, False, None)),
    serializers=some(LISTED).map(tuple),
    deserializers=some(LISTED).map(tuple),
    profiles=st.just(("data", "sklearn")),
    allow=st.just(("os:system",)),
    types=st.just(frozenset({"my.lib:Thing"})),
    own_classes=st.booleans(),
    submission=st.sampled_from(SUBMISSIONS),
    sealed=some(OPERATIONS),
    operations=some(OPERATIONS),
    authors=some(NAMES),
    ended=st.sampled_from(("", "", "2026-01-01")),
)
TABLES = st.builds(
    Table,
    st.lists(ROWS, min_size=1, max_size=3),
    some(NAMES),
    own=some(("own", *FAMILIES, SEALED, "?", "")),
    operations=some([each for each in OPERATIONS if each not in (None, "invented")]),
)


@st.composite
def asked(draw: st.DrawFn) -> Context:
    """A context as peers prove it, or with a field that its constructor never let in."""
    context = Context(
        draw(st.sampled_from(("a", "b", "eve", "unknown"))),
        draw(st.sampled_from(("a", "b", "eve", "unknown"))),
        draw(st.sampled_from(Kind)),
        draw(st.sampled_from(OPERATIONS)),
        transport=draw(st.sampled_from(("safeser", "library", None))),
        same_host=draw(st.sampled_from((True, False, None))),
    )
    if draw(st.booleans()):
        field, values = draw(st.sampled_from(FORGED))
        object.__setattr__(context, field, draw(st.sampled_from(values)))
    return context


FORGED = (
    ("sender", NAMES),
    ("recipient", NAMES),
    ("kind", ("everything", "*", "admin", None)),
    ("transport", ("*", "invented")),
)


@given(TABLES, asked(), st.sampled_from(ASKED), st.booleans(), st.sampled_from(NAMES))
@draws(300)
def test_no_table_permits_what_the_floors_forbid(
    table: Table, context: Context, family: Any, sealing: bool, author: Any
) -> None:
    check(table, context, family, sealing, author)


@pytest.mark.parametrize("authors", [NAMES, ()], ids=("all authors", "none"))
@pytest.mark.parametrize("submission", SUBMISSIONS)
def test_a_row_that_lists_everything_permits_nothing_below_the_floors(
    submission: str, authors: Any
) -> None:
    lists = (NAMES, NAMES, Kind, ("safeser",), (True, False, None))
    everything = Row(
        "x",
        *map(frozenset, lists),
        serializers=LISTED,
        deserializers=LISTED,
        submission=submission,
        sealed=frozenset(OPERATIONS),
        operations=frozenset(OPERATIONS),
        authors=frozenset(authors),
    )
    table = Table([everything], NAMES, own=LISTED, operations=frozenset(OPERATIONS) - {"invented"})
    known = ("a", "eve", "stranger", "unknown")
    asked = itertools.product(known, known, Kind, OPERATIONS, ASKED, (None, "any", "b", "unknown"))
    permitted = 0
    for sender, recipient, kind, operation, family, author in asked:
        context = Context(sender, recipient, kind, operation, transport="safeser", same_host=True)
        permitted += check(table, context, family, False, author)
    assert permitted > 500


def check(table: Table, context: Context, family: Any, sealing: bool, author: Any) -> bool:
    known = set(table.principals)
    stranger = context.sender not in known or context.recipient not in known
    decision = table.decide(context, family, sealing=sealing, author=author)
    if decision.permitted:
        row = first(table, context)
        assert row.name == decision.context
        assert not row.ended
        assert isinstance(context.kind, Kind)
        assert family in LISTED
        assert context.operation in (None, *(set(row.operations) - {"invented", "?"}))
        assert family == "msgpack" or context.kind is not Kind.ADMIN
        if stranger:
            assert family in HARMLESS
            assert context.operation not in SUBMITTING
        if author not in (None, context.sender):
            assert family in (*HARMLESS, "own") or author in row.authors & known
            assert family in HARMLESS or author in known
    # An operation that is not granted carries nothing at all.
    granted = table.permits_operation(context).permitted
    assert granted or not decision.permitted
    assert not (granted and stranger and context.operation in SUBMITTING)
    return decision.permitted


@given(TABLES, asked(), st.booleans())
@draws(400)
def test_no_grant_is_wider_than_the_floors(table: Table, context: Context, sealing: bool) -> None:
    grant = table.grant(context, sealing=sealing)
    row = first(table, context)
    assert (grant is None) == (row is None or bool(row.ended))
    if grant is None:
        return
    if context.kind is Kind.ADMIN:
        assert grant.families == ("msgpack",)
    if not {context.sender, context.recipient} <= set(table.principals):
        assert HARMLESS.issuperset(grant.families)
        assert (grant.types, grant.own, grant.submission) == (frozenset(), frozenset(), "none")
    if "pickle" not in grant.families:
        assert (grant.profiles, grant.allow) == ((), ())
    for lost in ("any", UNKNOWN):
        assert HARMLESS.issuperset(grant.written_by(lost, sender=str(context.sender)).families)
    assert not table.may_sign(UNKNOWN, "a", Kind.TASK)
    assert not table.may_sign("a", UNKNOWN, Kind.TASK)


def test_who_was_granted_sealed_calls_until_a_date_signs_nothing_after_it() -> None:
    def signs(ended: str) -> bool:
        ends = (frozenset("a"), frozenset("b"))
        return Table([Row("x", *ends, submission="sealed", ended=ended)], "ab").may_sign(
            "a", "b", Kind.DATA
        )

    assert signs("")
    assert not signs("2026-01-01")


def test_who_takes_no_typed_values_takes_no_classes_of_programs() -> None:
    grant = Grant("x", ("msgpack", "dask"), types=frozenset({"my.lib:Thing"}), own=frozenset("a"))
    assert grant.narrowed(["dask"]).own == {"a"}
    narrow = grant.narrowed(["msgpack", "pickle"])
    assert (narrow.families, narrow.types, narrow.own) == (("msgpack",), frozenset(), frozenset())


def first(table: Table, context: Context) -> Any:
    """Return the row that decides, looked for one after the other."""
    known = {name: name for name in table.principals}
    for row in table.rows:
        if (
            known.get(context.sender, UNKNOWN) in row.senders
            and known.get(context.recipient, UNKNOWN) in row.recipients
            and isinstance(context.kind, Kind)
            and context.kind in row.kinds
            and context.transport in row.transports
            and context.same_host in row.same_host
        ):
            return row
    return None


@pytest.mark.parametrize(
    "fields",
    [
        {"deserializers": ("?",)},
        {"serializers": ("*",)},
        {"deserializers": (None,)},
        {"submission": "all"},
        {"types": frozenset({"my.lib.*"})},
    ],
    ids=str,
)
def test_a_row_that_lists_what_is_none_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Row("x", frozenset("a"), frozenset("b"), **fields)
