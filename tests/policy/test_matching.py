"""``transport`` and ``same_host``: contexts that match by how a message came."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.decision import ANY_TRANSPORT, ANYWHERE, Hop
from safeser.gate.values import TRANSPORTS, Context, Kind
from safeser.policy import Policy
from safeser.policy.compiled import Compiled
from safeser.policy.source.context import Rule
from tests.draws import draws
from tests.refusal import refusal

HEAD = "safeser: 1\nname: test\nrevision: 3\nprincipals: {a: {}, b: {}}\ncontexts:\n"


def context(name: str, rest: str = "", *, sender: str = "a") -> str:
    return f"- name: {name}\n  sender: {sender}\n  recipient: b\n{rest}"


def loaded(*contexts: str) -> Policy:
    return Policy.parse(HEAD + "".join(contexts), source="p.yaml")


def refused(*contexts: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(*contexts)
    return caught.value


NEAR = context("near", "  same_host: true\n  deserializers: [dask, msgpack]\n")
REST = context("rest")


@pytest.mark.parametrize("name", TRANSPORTS)
def test_a_context_matches_the_transports_that_it_lists(name: str) -> None:
    policy = loaded(context("one", f"  transport: [{name}]\n", sender="[a, unknown]"))
    for transport in (*TRANSPORTS, None):
        for sender in ("a", "stranger"):
            decision = policy.decide(Context(sender, "b", transport=transport), "msgpack")
            assert decision.permitted is (transport == name)


def test_one_transport_needs_no_list() -> None:
    policy = loaded(context("one", "  transport: library\n"))
    assert policy.contexts[0].transports == {"library"}
    assert loaded(REST).contexts[0].transports == ANY_TRANSPORT
    assert loaded(REST).contexts[0].same_host == ANYWHERE


@pytest.mark.parametrize(
    ("rest", "rule"),
    [
        ("  transport: [safesr]\n", "config.transport"),
        ("  transport: inproc\n", "config.transport"),
        ("  transport: []\n", "config.empty"),
        ("  transport: [tls, tls]\n", "config.twice"),
        ("  transport: 7\n", "config.value"),
        ("  same_host: yes\n", "config.ambiguous"),
        ("  same_host: 'true'\n", "config.value"),
        ("  same_host: Off\n", "config.ambiguous"),
        ("  same_host: 1\n", "config.value"),
        ("  same_host: [true]\n", "config.ambiguous"),
        ("  same-host: true\n", "config.ambiguous"),
        ("  samehost: 'x'\n", "config.unknown-key"),
        ("  submission: true\n", "config.ambiguous"),
        ("  transport: [tcp, tls]\n", "config.unreachable"),
    ],
)
def test_what_means_nothing_is_refused_at_its_place(
    rest: str,
    rule: str,
) -> None:
    assert refused(context("one", rest)).rule == rule


def test_no_stranger_comes_by_safeser() -> None:
    error = refused(context("one", "  transport: safeser\n", sender="unknown"))
    assert error.rule == "config.unreachable"
    assert "no connection on safeser://" in error.message
    loaded(context("one", "  transport: [safeser, tcp]\n", sender="[a, unknown]"))


@pytest.mark.parametrize(
    "contexts",
    [
        (REST, NEAR),
        (context("one", sender="[a, unknown]"), context("two", sender="unknown")),
        (
            context("one", "  kinds: [data, task]\n"),
            context("two", "  kinds: [admin, control]\n"),
            REST,
        ),
        (
            context("one", "  transport: [safeser, library]\n"),
            context("two", "  transport: library\n"),
        ),
        (
            context("one", "  same_host: true\n"),
            context("two", "  same_host: false\n"),
            context("last", "  same_host: true\n  transport: library\n"),
        ),
        (
            # Together they leave nothing: each alone leaves something.
            context("one", "  transport: library\n"),
            context("two", "  same_host: true\n"),
            context("last", "  transport: library\n  same_host: true\n"),
        ),
    ],
)
def test_a_context_that_others_leave_nothing_is_an_error(contexts: tuple[str, ...]) -> None:
    error = refused(*contexts)
    assert error.rule == "config.unreachable"
    assert error.where.startswith("p.yaml, line ")


def test_who_says_neither_is_reached_below_all_who_say_one() -> None:
    # What nobody measured is left for it.
    policy = loaded(
        context("one", "  same_host: true\n"),
        context("two", "  same_host: false\n"),
        context("last"),
    )
    assert policy.grant(Context("a", "b")).context == "last"


# --- reachability, against every hop there is ---------------------------------------------------


def subset(values: frozenset[object]) -> st.SearchStrategy[frozenset[object]]:
    return st.sets(st.sampled_from(sorted(values, key=str)), min_size=1).map(frozenset)


RULES = st.builds(
    Rule,
    name=st.just("x"),
    senders=subset(frozenset("ab")),
    recipients=subset(frozenset("ab")),
    kinds=subset(frozenset(Kind)),
    transports=subset(ANY_TRANSPORT),
    same_host=subset(ANYWHERE),
)

HOPS = tuple(Hop(*parts) for parts in itertools.product("ab", "ab", Kind, ANY_TRANSPORT, ANYWHERE))


@given(st.lists(RULES, min_size=1, max_size=5))
@draws(40)
def test_shadowed_is_exactly_what_no_hop_reaches(rules: list[Rule]) -> None:
    compiled = Compiled(rules, "ab")
    reached = {compiled.table.match(hop) for hop in HOPS}
    rows = zip(rules, compiled.table.rows, strict=True)
    unreached = [rule for rule, row in rows if row not in reached]
    assert compiled.shadowed() is (unreached[0] if unreached else None)


def test_contexts_that_overlap_in_too_many_ways_are_refused() -> None:
    # Any two of these principals share one of eleven groups; to find that out takes all pairs.
    shared = [[bit for bit in range(11) if number >> bit & 1] for number in range(1 << 11)]
    names = [", ".join(f"g{bit}" for bit in bits) for bits in shared if len(bits) >= 6]
    people = "".join(f"  p{at}: {{groups: [all, {each}]}}\n" for at, each in enumerate(names))
    contexts = "".join(
        f"- {{name: x-{group}, sender: group:{group}, recipient: group:{group}}}\n"
        for group in [*(f"g{bit}" for bit in range(11)), "all"]
    )
    head = "safeser: 1\nname: t\nrevision: 1\n"
    with pytest.raises(ConfigError) as caught:
        Policy.parse(f"{head}principals:\n{people}contexts:\n{contexts}", source="p.yaml")
    assert caught.value.rule == "config.size"
    assert "overlap in too many ways" in caught.value.message
    assert "p.yaml, line" in caught.value.where


@pytest.mark.parametrize(
    ("field", "value"),
    [("transport", "inproc"), ("transport", ""), ("same_host", 1), ("same_host", "true")],
)
def test_a_context_holds_what_there_is(field: str, value: object) -> None:
    rule = {"transport": "config.transport", "same_host": "config.same-host"}[field]
    with refusal(ConfigError, rule):
        Context("a", "b", **{field: value})  # type: ignore[arg-type]  # that is what is tested
