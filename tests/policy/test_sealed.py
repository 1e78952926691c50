"""``submission: sealed``: signed graphs and tasks pass where a context says so, nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.rules import CODE_OPERATIONS, SIGNED_OPERATIONS
from safeser.values import SEALED, SUBMISSIONS, Context, Kind

HEAD = (
    "safeser: 1\nname: test\nrevision: 3\n"
    "principals: {a: {groups: [g]}, b: {}, c: {groups: [g]}}\ncontexts:\n"
)
GRANT = "  operations: {grant: [update-graph, compute-task]}\n"
SAID = "  submission: sealed\n"
GRAPH = Context("a", "b", Kind.TASK, "update-graph")
TASK = Context("a", "b", Kind.TASK, "compute-task")
RENEWALS = (
    "  operations: {grant: [update-graph, compute-task, renew-statement, statement-renewed]}\n"
)
RENEW = Context("a", "b", Kind.TASK, "renew-statement")
RENEWED = Context("a", "b", Kind.TASK, "statement-renewed")


def policy(rest: str, sender: str = "a") -> Policy:
    return Policy.parse(
        f"{HEAD}- name: x\n  sender: {sender}\n  recipient: b\n{rest}", source="p.yaml"
    )


def refused(rest: str, sender: str = "a") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy(rest, sender)
    return caught.value


def test_a_graph_passes_from_its_sender_and_a_task_from_listed_authors() -> None:
    loaded = policy(SAID + GRANT + "  authors: [c]\n")
    assert loaded.grant(GRAPH).submission == SEALED
    for sealing in (False, True):
        assert loaded.decide(GRAPH, SEALED, sealing=sealing).permitted
        assert loaded.decide(TASK, SEALED, sealing=sealing, author="c").permitted
        for author in (None, "a", "b", "x", "unknown", 5):
            denied = loaded.decide(TASK, SEALED, sealing=sealing, author=author)
            assert denied.rule == "author.relayed"
            assert "a listed author" in denied.reason


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


def test_without_authors_no_task_passes() -> None:
    loaded = policy(SAID + GRANT)
    assert loaded.decide(GRAPH, SEALED).permitted
    for author in (None, "a", "b", "c"):
        assert not loaded.decide(TASK, SEALED, author=author).permitted


@pytest.mark.parametrize("submission", sorted({*SUBMISSIONS} - {SEALED}))
def test_no_other_word_lets_sealed_calls_through(submission: str) -> None:
    both = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
    loaded = policy(f"  submission: {submission}\n{both}{GRANT}")
    for context, author in ((GRAPH, None), (TASK, "c")):
        denied = loaded.decide(context, SEALED, author=author)
        assert not denied.permitted
        assert "set 'submission: sealed'" in denied.fix


def test_a_renewal_passes_where_the_graph_or_task_does_that_it_is_about() -> None:
    loaded = policy(SAID + RENEWALS + "  authors: [c]\n")
    assert loaded.decide(RENEW, SEALED).permitted
    assert loaded.decide(RENEWED, SEALED, author="c").permitted
    for author in (None, "a", "b", "unknown"):
        assert loaded.decide(RENEWED, SEALED, author=author).rule == "author.relayed"
    loaded = policy(SAID + GRANT)
    assert loaded.decide(RENEW, SEALED).rule == "operation.not-granted"
    assert loaded.decide(RENEWED, SEALED, author="c").rule == "operation.not-granted"


def test_who_may_submit_nothing_renews_nothing() -> None:
    loaded = policy(RENEWALS)
    denied = loaded.permits_operation(RENEW)
    assert denied.rule == "submission.none"
    assert "set 'submission: sealed'" in denied.fix
    assert "set 'submission: sealed'" in loaded.decide(RENEW, SEALED).fix
    both = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
    loaded = policy(f"  submission: code\n{both}{RENEWALS}")
    assert loaded.decide(RENEW, SEALED).rule == "context.family"
    assert "set 'submission: sealed'" in loaded.decide(RENEW, SEALED).fix


@pytest.mark.parametrize(
    "operation", ["scatter", "gather", "get_data", "register-worker", "actor_execute"]
)
def test_a_sealed_call_passes_in_no_other_operation(operation: str) -> None:
    loaded = policy(
        SAID + "  operations: {grant: [basic, cluster, update-graph]}\n  authors: [c]\n"
    )
    for kind in (Kind.TASK, Kind.DATA):
        context = replace(GRAPH, operation=operation, kind=kind)
        assert not loaded.decide(context, SEALED).permitted
        assert not loaded.decide(context, SEALED, author="c").permitted


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
