"""``submission`` and ``key_conflicts``: what submitted work may be, and become."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import Context, Kind
from safeser.policy import Policy
from safeser.policy.rules import KeyConflicts

HEAD = "safeser: 1\nname: test\nrevision: 3\nprincipals: {a: {}, b: {}}\ncontexts:\n"
BOTH = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
GRANT = "  operations: {grant: [update-graph]}\n"
SUBMITS = "  submission: sealed\n" + BOTH + GRANT

GRAPH = Context("a", "b", Kind.TASK, "update-graph")


def policy(rest: str, sender: str = "a") -> Policy:
    return Policy.parse(
        f"{HEAD}- name: x\n  sender: {sender}\n  recipient: b\n{rest}", source="p.yaml"
    )


def refused(rest: str, sender: str = "a") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy(rest, sender)
    return caught.value


@pytest.mark.parametrize("more", ["", BOTH, "  pickle: {allow: {'my.lib:train': reference}}\n"])
def test_listed_functions_are_no_submission_any_more(more: str) -> None:
    """No advice turns what ran no code into what does."""
    error = refused("  submission: approved\n" + more + GRANT)
    assert error.rule == "config.moved"
    assert error.where == "p.yaml, line 9, column 15"
    assert "submission: " not in error.fix


@pytest.mark.parametrize("profile", ["dask-graph", "dask-tasks"])
@pytest.mark.parametrize("submission", ["sealed", "code", "none"])
def test_profiles_of_graphs_are_refused_with_what_to_write_instead(
    profile: str, submission: str
) -> None:
    error = refused(
        f"  submission: {submission}\n{BOTH}{GRANT}  pickle: {{profile: [data, {profile}]}}\n"
    )
    assert error.rule == "config.moved"
    assert "line 13, column 28" in error.where
    assert "submission: " not in error.fix


HANDED_OUT = """\
- name: hands
  sender: b
  recipient: w
  kinds: [task]
  operations: {grant: [compute-task]}
"""


def handing(more: str) -> Policy:
    head = HEAD.replace("b: {}", "b: {}, w: {}")
    own = f"- name: x\n  sender: a\n  recipient: b\n{SUBMITS}"
    return Policy.parse(f"{head}{own}{HANDED_OUT}{more}", source="p.yaml")


@pytest.mark.parametrize(
    ("own", "kinds"),
    [
        (SUBMITS, {Kind.TASK, Kind.CONTROL}),
        ("  submission: sealed\n  operations: {grant: [worker-run]}\n", {Kind.CONTROL}),
        ("  submission: code\n" + GRANT, set()),
        (GRANT, set()),
    ],
)
def test_who_may_sign_what_a_scheduler_hands_on(own: str, kinds: set[Kind]) -> None:
    loaded = policy(own)
    assert {kind for kind in (Kind.TASK, Kind.CONTROL) if loaded.may_sign("a", "b", kind)} == kinds
    for author, scheduler in (("b", "a"), ("a", "a"), ("unknown", "b"), ("x", "b")):
        assert not loaded.may_sign(author, scheduler, Kind.TASK)


def test_pickles_have_no_effect_where_signed_tasks_are_handed_out() -> None:
    more = "  submission: sealed\n  authors: [a]\n"
    with pytest.raises(ConfigError, match="pickles have no effect here") as caught:
        handing(more + BOTH)
    assert caught.value.rule == "config.moved"
    assert handing(more + "  serializers: [dask, msgpack]\n")


@pytest.mark.parametrize(
    ("rest", "rule"),
    [
        ("  submission: Approved\n", "config.submission"),
        ("  submission: [code]\n", "config.value"),
        ("  submission: code\n  key_conflict: {}\n", "config.unknown-key"),
        ("  key_conflicts: {definition: warn}\n", "config.no-effect"),
        (GRANT + "  key_conflicts: {}\n", "config.no-effect"),
        ("  submission: code\n  key_conflicts: {definition: warn}\n", "config.no-effect"),
        (SUBMITS + "  key_conflicts: {definition: wran}\n", "config.key-conflict"),
        (SUBMITS + "  key_conflicts: {principals: warn}\n", "config.unknown-key"),
        (SUBMITS + "  key_conflicts: warn\n", "config.value"),
        (SUBMITS + "  key_conflicts: {principal: 1}\n", "config.value"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_its_place(
    rest: str,
    rule: str,
) -> None:
    error = refused(rest)
    assert error.rule == rule


@pytest.mark.parametrize(
    "rest",
    [
        "  submission: sealed\n",
        "  submission: code\n  key_conflicts: {definition: warn}\n",
    ],
)
def test_where_no_graph_can_come_nothing_is_said_of_graphs(rest: str) -> None:
    # The group grants the name; the kinds keep every graph out.
    grant = "  operations: {grant: [basic]}\n"
    error = refused("  kinds: [admin, data]\n" + rest + BOTH + grant)
    assert error.rule == "config.no-effect"
    assert policy("  kinds: [admin, task]\n" + rest + BOTH + grant)


@pytest.mark.parametrize(
    ("spelled", "words"),
    [
        ("", ("refuse", "warn")),
        ("  key_conflicts: {}\n", ("refuse", "warn")),
        ("  key_conflicts: {definition: warn}\n", ("warn", "warn")),
        ("  key_conflicts: {principal: refuse, definition: warn}\n", ("warn", "refuse")),
    ],
)
def test_key_conflicts(spelled: str, words: tuple[str, str]) -> None:
    for submission in ("sealed", "code"):
        loaded = policy(SUBMITS.replace("sealed", submission) + spelled)
        assert loaded.key_conflicts(GRAPH) == KeyConflicts(*words) == words


def test_where_nothing_matches_key_conflicts_are_refused() -> None:
    loaded = policy(SUBMITS + "  key_conflicts: {definition: warn, principal: warn}\n")
    assert loaded.key_conflicts(Context("b", "a")) == ("refuse", "refuse")
