"""``submission: sealed``: signed graphs and tasks pass where a context says so, nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import SEALED, Context, Kind
from safeser.policy import Policy
from safeser.policy.rules import CODE_OPERATIONS, SIGNED_OPERATIONS

HEAD = (
    "safeser: 1\nname: test\nrevision: 3\n"
    "principals: {a: {groups: [g]}, b: {}, c: {groups: [g]}}\ncontexts:\n"
)
GRANT = "  operations: {grant: [update-graph, compute-task]}\n"
SAID = "  submission: sealed\n"
GRAPH = Context("a", "b", Kind.TASK, "update-graph")
TASK = Context("a", "b", Kind.TASK, "compute-task")


def policy(rest: str, sender: str = "a") -> Policy:
    return Policy.parse(
        f"{HEAD}- name: x\n  sender: {sender}\n  recipient: b\n{rest}", source="p.yaml"
    )


def refused(rest: str, sender: str = "a") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy(rest, sender)
    return caught.value


AUTHORS = (None, "a", "b", "c", "x", "unknown", 5)
BOTH = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
LISTED = SAID + GRANT + "  authors: [c]\n"
WIDE = SAID + "  operations: {grant: [basic, cluster, update-graph]}\n  authors: [c]\n"
RUN = SAID + "  operations: {grant: [worker-run]}\n"
RUNS = Context("a", "b", Kind.CONTROL, "run")
OTHERS = ("scatter", "gather", "get_data", "register-worker", "actor_execute")

#: What a context says, what is asked, by whom it may be signed, and the rule for others.
SIGNED = [
    (LISTED, GRAPH, {None, "a", "c"}, "author.relayed"),
    (LISTED, TASK, {"c"}, "author.relayed"),
    # Without authors no task passes: a scheduler's own signature counts for nothing.
    (SAID + GRANT, GRAPH, {None, "a"}, "author.relayed"),
    (SAID + GRANT, TASK, set(), "author.relayed"),
    # A user hands over what it signed itself, until authors are listed.
    (RUN, RUNS, {None, "a"}, "author.relayed"),
    (RUN + "  authors: [b]\n", RUNS, {"b"}, "author.relayed"),
    # No other word lets sealed calls through.
    (GRANT, GRAPH, set(), "submission.none"),
    (GRANT, TASK, set(), "context.family"),
    *(
        (f"  submission: code\n{BOTH}{GRANT}", each, set(), "context.family")
        for each in (GRAPH, TASK)
    ),
    # A sealed call passes in no other operation.
    *(
        (WIDE, replace(GRAPH, operation=name, kind=kind), set(), None)
        for name in OTHERS
        for kind in (Kind.TASK, Kind.DATA)
    ),
]


@pytest.mark.parametrize(("rest", "context", "signers", "rule"), SIGNED)
def test_by_whom_a_sealed_call_may_be_signed(
    rest: str, context: Context, signers: set[str | None], rule: str | None
) -> None:
    loaded = policy(rest)
    for author in AUTHORS:
        for sealing in (False, True):
            found = loaded.decide(context, SEALED, sealing=sealing, author=author)
            assert found.permitted is (author in signers)
            assert found.permitted or rule in (found.rule, None)


@pytest.mark.parametrize("authors", ["", "  authors: [c]\n"])
def test_who_hands_sealed_tasks_on_calls_no_actor(authors: str) -> None:
    """No author signs such calls: a scheduler that was taken over could call any method."""
    assert (
        refused(f"{SAID}{authors}  operations: {{grant: [compute-task, actors]}}\n").rule
        == "config.relayed-actors"
    )
    apart = (
        f"{SAID}  authors: [c]\n  kinds: [task]\n  operations: {{grant: [compute-task]}}\n"
        f"- name: apart\n  sender: [a, c]\n  recipient: b\n  kinds: [control]\n{SAID}{authors}"
        "  operations: {grant: [actors]}\n"
    )
    error = refused(apart)
    assert error.rule == "config.relayed-actors"
    assert "'apart'" in error.message
    if not authors:
        policy(apart.replace("[a, c]", "c"))


@pytest.mark.parametrize("operation", sorted(CODE_OPERATIONS - SIGNED_OPERATIONS))
def test_nothing_that_runs_what_is_sent_is_granted_beside_it(operation: str) -> None:
    error = refused(SAID + f"  operations: {{grant: [update-graph, {operation}]}}\n")
    assert error.rule == "config.code"


@pytest.mark.parametrize(
    ("rest", "rule"),
    [
        (SAID, "config.no-effect"),
        (SAID + "  operations: {grant: [identity]}\n", "config.no-effect"),
        (SAID + GRANT + "  kinds: [admin, data]\n", "config.no-effect"),
        (SAID + GRANT + "  deserializers: [msgpack, pickle, cloudpickle]\n", "config.code"),
        ("  submission: seeled\n" + GRANT, "config.submission"),
        ("  submission: Sealed\n" + GRANT, "config.submission"),
        (GRANT + "  serializers: [msgpack, sealed]\n", "config.family"),
        (SAID + GRANT + "  deserializers: [sealed]\n", "config.family"),
    ],
)
def test_what_does_not_fit_together_is_refused(rest: str, rule: str) -> None:
    error = refused(rest)
    assert error.rule == rule


def test_it_is_nothing_for_unknown() -> None:
    assert refused(SAID + GRANT, "[a, unknown]").rule == "floor.unknown"
    loaded = policy(SAID + GRANT)
    for context in (replace(GRAPH, sender="unknown"), replace(GRAPH, recipient="unknown")):
        assert not loaded.decide(context, SEALED).permitted


def test_authors_have_an_effect_with_it() -> None:
    assert policy(SAID + GRANT + "  authors: [group:g]\n")
    assert refused(GRANT + "  authors: [c]\n").rule == "config.no-effect"


# -- workers that sign ----------------------------------------------------------------------------


def worker_policy(principals: str, *contexts: str) -> str:
    return (
        "safeser: 1\nname: test\nrevision: 1\n"
        f"principals: {{s: {{}}, alice: {{}}, {principals}}}\ncontexts:\n" + "".join(contexts)
    )


def submits(sender: str, submission: str = SEALED) -> str:
    families = "[msgpack]" if submission == SEALED else "[msgpack, pickle]"
    return (
        f"- name: submitting\n  sender: {sender}\n  recipient: s\n  submission: {submission}\n"
        f"  serializers: {families}\n  deserializers: {families}\n"
        "  operations: {grant: [update-graph]}\n"
    )


def hands(recipient: str, authors: str) -> str:
    return (
        f"- name: to-{recipient.strip('[]')[:1]}\n  sender: s\n  recipient: {recipient}\n"
        f"  authors: {authors}\n"
        "  submission: sealed\n  operations: {grant: [compute-task]}\n"
    )


def runs(sender: str, recipient: str, grant: str, authors: str = "") -> str:
    return (
        f"- name: {sender}-{recipient}\n  sender: {sender}\n  recipient: {recipient}\n"
        f"  {authors and f'authors: {authors}'}\n"
        f"  kinds: [admin, data, control]\n  submission: sealed\n"
        f"  operations: {{grant: [{grant}]}}\n"
    )


def tasks_alone(context: str) -> str:
    return context + "  kinds: [task]\n"


TWO = "w: {groups: [north]}, v: {groups: [south]}"
TOGETHER = "w: {groups: [north, both]}, v: {groups: [south, both]}"

FOREIGN = {
    "by name": worker_policy(TWO, submits("w"), hands("w", "[alice, w]"), hands("v", "[alice, w]")),
    "by group": worker_policy(
        TWO, submits("group:north"), hands("w", "[alice]"), hands("v", "['group:north']")
    ),
    "without groups": worker_policy(
        "w: {}, v: {}", submits("w"), hands("w", "[w]"), hands("v", "[w]")
    ),
    "in one context": worker_policy("w: {}, v: {}", submits("w"), hands("[w, v]", "[alice, w]")),
    "both ways": worker_policy(TWO, submits("[w, v]"), hands("w", "[v, w]"), hands("v", "[w, v]")),
}

HANDED = [tasks_alone(hands(each, "[alice]")) for each in "wv"]

FOREIGN |= {
    f"by {grant}": worker_policy(
        TWO, runs("w", "s", grant), *HANDED, runs("s", "v", grant, "[alice, w]")
    )
    for grant in ("worker-run", "worker-plugins")
}

FINE = {
    "functions of its own": worker_policy(
        TWO, runs("w", "s", "worker-run"), *HANDED, runs("s", "w", "worker-run", "[alice, w]")
    ),
    "its own": worker_policy(TWO, submits("w"), hands("w", "[alice, w]"), hands("v", "[alice]")),
    "its group": worker_policy(
        TOGETHER, submits("w"), hands("w", "[alice]"), hands("v", "[alice, w]")
    ),
    "one context of a group": worker_policy(
        TOGETHER, submits("group:both"), hands("group:both", "['group:both']")
    ),
    "no submission": worker_policy(TWO, hands("w", "[alice, w]"), hands("v", "[alice, w]")),
    "no sealed submission": worker_policy(
        TWO, submits("w", "code"), hands("w", "[alice, w]"), hands("v", "[alice, w]")
    ),
    "no worker": worker_policy(TWO, submits("alice"), hands("w", "[alice]"), hands("v", "[alice]")),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_worker_that_signs_for_workers_of_others_is_refused(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(FOREIGN[name], source="p.yaml")
    assert caught.value.rule == "config.worker-author"
    assert "p.yaml, line" in caught.value.where
    assert "put both into one group" in caught.value.fix


@pytest.mark.parametrize("name", FINE)
def test_a_worker_may_sign_for_its_own_group(name: str) -> None:
    assert Policy.parse(FINE[name], source="p.yaml").contexts
