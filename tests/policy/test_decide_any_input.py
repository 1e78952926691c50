"""Decisions about any input: never an exception, and nothing permitted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.values import Context, Decision, Kind
from safeser.policy import Policy
from tests.draws import draws
from tests.policy.random_policies import OPERATIONS_ASKED, QUESTIONS, loaded, policies

# --- for every input -----------------------------------------------------------------------------


class Unhashable(str):
    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


class Hostile:
    """Raises, or agrees, wherever it is asked anything."""

    def __hash__(self) -> int:
        raise RuntimeError("hash")

    def __eq__(self, other: object) -> bool:
        return True

    def __bool__(self) -> bool:
        raise RuntimeError("bool")

    def __str__(self) -> str:
        raise RuntimeError("str")

    __repr__ = __str__


OBJECTS: st.SearchStrategy[Any] = st.one_of(
    st.text(),
    st.text().map(Unhashable),
    st.sampled_from(["msgpack", "pickle", "a"]).map(Unhashable),
    st.builds(Hostile),
    st.sampled_from([str, Kind.ADMIN, Ellipsis]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.sets(st.integers()),
        max_leaves=5,
    ),
)


@given(policies(), st.sampled_from(QUESTIONS), OBJECTS, OBJECTS, st.booleans())
@draws(200)
def test_decide_never_raises(
    spelled: dict[str, Any], question: Any, family: Any, author: Any, sealing: bool
) -> None:
    policy, (context, asked, _, _) = loaded(spelled), question
    for each, by in ((family, author), (family, None), (asked, author)):
        decision = policy.decide(context, each, sealing=sealing, author=by)
        assert type(decision) is Decision
        if type(each) is not str:
            assert not decision.permitted
        if by is not None and type(by) is not str:
            unknown = policy.decide(context, each, sealing=sealing, author="unknown")
            assert decision == unknown
    assert type(policy.permits_operation(context)) is Decision


@given(st.sampled_from(["a", "b", "stranger"]), st.sampled_from([*OPERATIONS_ASKED, "x"]))
def test_a_context_holds_plain_text_whatever_it_is_made_of(name: str, operation: Any) -> None:
    made = Context(Unhashable(name), Unhashable(name), "data", operation and Unhashable(operation))
    assert made == Context(name, name, "data", operation)
    assert hash(made) == hash(Context(name, name, "data", operation))
    for transport in (Hostile(), Unhashable("library"), [], 5):
        with pytest.raises(ConfigError):
            Context("a", "b", transport=transport)  # type: ignore[arg-type]


class _NoTruth:
    def __bool__(self) -> bool:
        raise ZeroDivisionError


ASKED = Context("alice", "scheduler")


@pytest.mark.parametrize("sealing", [[], {}, None, 2, "x", _NoTruth()], ids=lambda o: str(type(o)))
def test_what_is_no_side_is_denied(sealing: Any) -> None:
    decision = Policy.load("dask-cluster").decide(ASKED, "msgpack", sealing=sealing)
    assert (decision.permitted, decision.rule) == (False, "context.none")


@pytest.mark.parametrize("context", [None, "x", 1, [], (), object()], ids=lambda o: str(type(o)))
def test_what_is_no_context_is_denied(context: Any) -> None:
    policy = Policy.load("dask-cluster")
    for decision in (policy.decide(context, "msgpack"), policy.permits_operation(context)):
        assert (decision.permitted, decision.rule) == (False, "context.none")


def test_a_context_whose_field_has_no_hash_is_denied() -> None:
    context = Context("alice", "scheduler")
    object.__setattr__(context, "operation", [])
    assert Policy.load("dask-cluster").decide(context, "msgpack").rule == "context.none"
