"""Decisions: against a reference evaluator, and the properties that truly hold.

Removing a context can permit more, since it may uncover a broader one below; removing families or
operations of one never does.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from safeser.errors import ConfigError, PolicyDenied
from safeser.gate.values import Context, Kind
from safeser.operations import GROUPS
from safeser.policy import Policy
from tests.draws import draws
from tests.policy.random_policies import (
    DATES,
    DAY,
    NAMES,
    PRINCIPALS,
    QUESTIONS,
    STARTS,
    STEP,
    loaded,
    noon,
    permits,
    policies,
    written,
)
from tests.policy.reference import reference

TAKEN = ("serializers", "deserializers", "operations")

# --- the properties ---------------------------------------------------------------------------


@given(policies(), st.sampled_from(("2026-01-01", *DATES, "2027-01-01")), STARTS)
@draws(50)
def test_decide_is_the_reference_on_every_day(
    spelled: dict[str, Any], day: str, first: int
) -> None:
    now = noon("2025-01-01")
    policy = Policy.parse(json.dumps(spelled, indent=1), clock=lambda: now)
    for question in QUESTIONS[first :: 3 * STEP]:
        permits(policy, question)  # remembered before the dates pass
    now = noon(day)
    for context, family, sealing, author in QUESTIONS[first::STEP]:
        decision = policy.decide(context, family, sealing=sealing, author=author)
        expected = reference(spelled, context, family, sealing, author, day=day)
        assert (decision.permitted, decision.rule) == expected, (context, family, sealing, author)


@given(policies(), STARTS)
@draws(25)
def test_floors_grants_and_denials(spelled: dict[str, Any], first: int) -> None:
    policy = loaded(spelled)
    for context, family, sealing, author in QUESTIONS[first::STEP]:
        decision = policy.decide(context, family, sealing=sealing, author=author)
        if not decision.permitted:
            assert decision.reason
            assert decision.fix
            continue
        assert decision.rule == "permit"
        assert policy.permits_operation(context).permitted
        grant = policy.grant(context, sealing=sealing)
        if family == "sealed":  # which no list of families names
            assert grant.submission == "sealed"
        else:
            assert family in grant.families
        assert grant.context == decision.context
        assert context.operation is None or context.operation in grant.operations
        if context.kind is Kind.ADMIN:
            assert family == "msgpack"
        if family in ("pickle", "cloudpickle"):
            assert {context.sender, context.recipient} <= {"a", "b", "c"}
            assert author in (None, context.sender) or author in grant.authors
            assert grant.profiles or family == "cloudpickle"
        if family == "cloudpickle":
            assert grant.submission == "code"
        if context.operation == "update-graph":
            assert grant.submission in ("sealed", "code")


@given(policies(), st.data(), STARTS)
@draws(25)
def test_taking_away_from_a_context_never_permits_more(
    spelled: dict[str, Any], data: st.DataObject, first: int
) -> None:
    before = loaded(spelled)
    rule = data.draw(st.sampled_from(spelled["contexts"]))
    fields = [name for name in (*TAKEN, "authors") if name in rule]
    assume(fields)
    field = data.draw(st.sampled_from(fields))
    del rule[field]
    try:
        fewer = loaded(spelled)
    except ConfigError:
        assume(False)  # what is left of it has no effect
    for question in QUESTIONS[first::STEP]:
        assert not permits(fewer, question) or permits(before, question), question


def placed(
    sender: str, recipient: str, kind: Kind, transport: str | None, same_host: bool | None
) -> Context:
    return Context(sender, recipient, kind, transport=transport, same_host=same_host)


@given(policies())
@draws(25)
def test_counterparts_are_whom_some_context_joins(spelled: dict[str, Any]) -> None:
    policy = loaded(spelled)
    for one in NAMES:
        expected = {
            other
            for other in PRINCIPALS
            for sender, recipient in ((one, other), (other, one))
            for kind in Kind
            for way in itertools.product(("safeser", "library", "tcp", None), (True, False, None))
            if reference(
                spelled, placed(sender, recipient, kind, *way), "msgpack", False, None, day=DAY
            )[0]
        }
        assert policy.counterparts(one) == expected == policy.counterparts(one)


# --- examples and attacks ---------------------------------------------------------------------


def code_policy() -> Policy:
    families = ["dask", "msgpack", "pickle", "cloudpickle"]
    rule = {
        "sender": ["a"],
        "recipient": ["b"],
        "submission": "code",
        "serializers": families,
        "deserializers": families,
        "pickle": {"profile": ["data", "numpy"]},
        "operations": {"grant": ["basic", "run"]},
    }
    return loaded(written([rule]))


def test_the_grant_is_the_contexts_in_its_order() -> None:
    grant = code_policy().grant(Context("a", "b", "task"))
    assert grant.families == ("dask", "msgpack", "pickle", "cloudpickle", "error")
    assert grant.profiles == ("data", "numpy")
    assert grant.submission == "code"
    assert grant.operations == GROUPS["basic"] | GROUPS["run"]


def test_no_context_no_grant() -> None:
    with pytest.raises(PolicyDenied) as caught:
        code_policy().grant(Context("b", "a"))
    assert caught.value.rule == "context.none"
    assert caught.value.fix
    with pytest.raises(PolicyDenied):
        code_policy().grant(Context("b", "a"))


@pytest.mark.parametrize("author", ["any", "c", "unknown", "b"])
def test_what_somebody_else_wrote_passes_only_as_data(author: str) -> None:
    policy = code_policy()
    context = Context("a", "b")
    for family in ("pickle", "cloudpickle"):
        assert policy.decide(context, family, author=author).rule == "author.relayed"
        assert policy.decide(context, family, author="a").permitted
        assert policy.decide(context, family, author=None).permitted
    for family in ("dask", "msgpack", "error"):
        assert policy.decide(context, family, author=author).permitted


def test_two_strangers_are_not_one_author() -> None:
    rule = {"sender": ["unknown"], "recipient": ["b"]}
    policy = loaded(written([rule]))
    assert policy.decide(Context("eve", "b"), "msgpack", author="mallory").permitted
    assert policy.decide(Context("eve", "b"), "pickle", author="mallory").rule == "floor.unknown"


@pytest.mark.parametrize(
    "operation", ["identity ", "Identity", "ident\u0131ty", "run\0", "?", "\ud800"]
)
def test_an_unknown_operation_is_never_granted_nor_printed(operation: str) -> None:
    decision = code_policy().decide(Context("a", "b", "control", operation), "msgpack")
    assert decision.rule == "operation.not-granted"
    assert operation not in decision.reason.replace(" operation unknown", "")
    assert "No policy can permit" in decision.fix


@pytest.mark.parametrize("family", [None, "", "?", "cuda", "PICKLE", "pickle ", "\ud800"])
def test_an_unknown_family_is_never_permitted(family: str | None) -> None:
    decision = code_policy().decide(Context("a", "b"), family)
    assert decision.rule == "context.family"
    assert "No policy can permit" in decision.fix


def test_an_unknown_kind_matches_nothing() -> None:
    context = Context("a", "b")
    object.__setattr__(context, "kind", "everything")
    assert code_policy().match(context) is None


def test_decisions_are_remembered_and_the_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_CACHE_MAX", "_ASKED_MAX"):
        monkeypatch.setattr(f"safeser.gate.decision.{name}", 8)
    policy = code_policy()
    first = policy.decide(Context("a", "b"), "dask")
    assert policy.decide(Context("a", "b"), "dask") is first
    for question in QUESTIONS[::7]:
        policy.decide(question[0], question[1])
    for sender, recipient, kind in itertools.product((*NAMES, "unknown"), NAMES, Kind):
        with_grant(policy, Context(sender, recipient, kind))
    table = policy._compiled.table
    assert len(table._decisions) <= 8
    assert len(table._granted) <= 8
    assert len(table._asked) <= 8
    assert policy.decide(Context("a", "b"), "dask") == first


def test_inventions_of_a_peer_share_one_entry() -> None:
    policy = code_policy()
    for number in range(1000):
        context = Context("a", "b", "control", f"op-{number}")
        policy.decide(context, f"family-{number}", author=f"author-{number}")
        policy.decide(Context(f"s{number}", f"r{number}"), "pickle")
    assert len(policy._compiled.table._decisions) == 2


def with_grant(policy: Policy, context: Context) -> object:
    try:
        return policy.grant(context)
    except PolicyDenied as denial:
        return denial


def test_a_decision_is_never_taken_for_its_answer() -> None:
    with pytest.raises(TypeError):
        bool(code_policy().decide(Context("a", "b"), "dask"))
