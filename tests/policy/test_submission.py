"""``submission: approved`` and ``key_conflicts``: what submitted work may be, and become."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.operations import GROUPS
from safeser.policy import Policy
from safeser.policy.rules import CODE_OPERATIONS
from safeser.policy.signable import Signable
from safeser.values import Context, KeyConflicts, Kind

HEAD = "safeser: 1\nname: test\nrevision: 3\nprincipals: {a: {}, b: {}}\ncontexts:\n"
BOTH = "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
GRANT = "  operations: {grant: [update-graph]}\n"
APPROVED = "  submission: approved\n" + BOTH + GRANT

GRAPH = Context("a", "b", Kind.TASK, "update-graph")


def policy(rest: str, sender: str = "a") -> Policy:
    return Policy.parse(
        f"{HEAD}- name: x\n  sender: {sender}\n  recipient: b\n{rest}", source="p.yaml"
    )


def refused(rest: str, sender: str = "a") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy(rest, sender)
    return caught.value


def test_approved_lets_listed_functions_through_and_no_code() -> None:
    loaded = policy(APPROVED)
    assert loaded.permits_operation(GRAPH).permitted
    assert loaded.decide(GRAPH, "pickle").permitted
    assert loaded.decide(GRAPH, "pickle", sealing=True).permitted
    assert loaded.decide(GRAPH, "cloudpickle").rule == "context.family"
    assert loaded.grant(GRAPH).submission == "approved"


def test_approved_implies_no_profile_and_needs_no_pickle() -> None:
    assert policy(APPROVED).grant(GRAPH).profiles == ("data",)
    plain = policy("  submission: approved\n" + GRANT)
    assert plain.decide(GRAPH, "sealed").permitted
    assert not plain.decide(GRAPH, "pickle").permitted


@pytest.mark.parametrize("families", ["", BOTH])
def test_approved_functions_are_listed_where_they_are_submitted(families: str) -> None:
    listed = '  pickle: {allow: {"my.lib:train": reference, "my.lib:Model": class}}\n'
    loaded = policy("  submission: approved\n" + families + GRANT + listed)
    assert loaded.signable("a", "b", Kind.TASK) == Signable(functions=frozenset({"my.lib:train"}))
    assert loaded.signable("b", "a", Kind.TASK) == Signable()


@pytest.mark.parametrize("profile", ["dask-graph", "dask-tasks"])
@pytest.mark.parametrize("submission", ["approved", "sealed", "code", "none"])
def test_profiles_of_graphs_are_refused_with_what_to_write_instead(
    profile: str, submission: str
) -> None:
    error = refused(
        f"  submission: {submission}\n{BOTH}{GRANT}  pickle: {{profile: [data, {profile}]}}\n"
    )
    assert error.rule == "config.moved"
    assert "line 13, column 28" in error.where
    assert ("Take it out: tasks" if submission == "approved" else "'authors: [...]'") in error.fix


HANDED_OUT = """\
- name: hands
  sender: b
  recipient: w
  kinds: [task]
  operations: {grant: [compute-task]}
"""


def handing(more: str) -> Policy:
    head = HEAD.replace("b: {}", "b: {}, w: {}")
    own = f"- name: x\n  sender: a\n  recipient: b\n{APPROVED}"
    return Policy.parse(f"{head}{own}{HANDED_OUT}{more}", source="p.yaml")


def test_approved_tasks_need_a_worker_whose_context_lists_their_authors() -> None:
    assert handing("  submission: sealed\n  authors: [a]\n")
    for more in ("  submission: sealed\n  authors: [w]\n", "  submission: code\n", ""):
        with pytest.raises(ConfigError, match="no worker's context lists") as caught:
            handing(more)
        assert caught.value.rule == "config.moved"
        assert "line 9, column 15" in caught.value.where
        assert "in context 'hands'" in caught.value.fix


def test_pickles_have_no_effect_where_signed_tasks_are_handed_out() -> None:
    more = "  submission: sealed\n  authors: [a]\n"
    with pytest.raises(ConfigError, match="pickles have no effect here") as caught:
        handing(more + BOTH)
    assert caught.value.rule == "config.moved"
    assert handing(more + "  serializers: [dask, msgpack]\n")


def test_none_and_code_imply_no_profile() -> None:
    for submission in ("none", "code"):
        loaded = policy(f"  submission: {submission}\n{BOTH}{GRANT}")
        assert loaded.grant(GRAPH).profiles == ("data",)


@pytest.mark.parametrize(
    ("rest", "rule", "place", "words"),
    [
        ("  submission: aproved\n", "config.submission", "line 9, column 15", "'approved'"),
        ("  submission: [code]\n", "config.value", "line 9", "must be text"),
        (
            "  submission: approved\n  serializers: [msgpack, pickle, cloudpickle]\n"
            "  deserializers: [msgpack, pickle]\n",
            "config.approved",
            "line 10, column 16",
            "any code",
        ),
        ("  submission: approved\n" + BOTH, "config.no-effect", "line 9, column 15", "granted"),
        ("  submission: code\n  key_conflict: {}\n", "config.unknown-key", "line 10", "key_con"),
        ("  key_conflicts: {definition: warn}\n", "config.no-effect", "line 9", "does not let"),
        (GRANT + "  key_conflicts: {}\n", "config.no-effect", "line 10", "does not let"),
        (
            "  submission: code\n  key_conflicts: {definition: warn}\n",
            "config.no-effect",
            "line 10, column 18",
            "does not let",
        ),
        (
            APPROVED + "  key_conflicts: {definition: wran}\n",
            "config.key-conflict",
            "line 13, column 31",
            "'warn'",
        ),
        (APPROVED + "  key_conflicts: {principals: warn}\n", "config.unknown-key", "", "principal"),
        (APPROVED + "  key_conflicts: warn\n", "config.value", "line 13", "mapping"),
        (APPROVED + "  key_conflicts: {principal: 1}\n", "config.value", "line 13", "text"),
    ],
)
def test_what_does_not_fit_together_is_refused_at_its_place(
    rest: str, rule: str, place: str, words: str
) -> None:
    error = refused(rest)
    assert error.rule == rule
    assert place in error.where
    assert words in str(error)


@pytest.mark.parametrize(
    "rest",
    [
        "  submission: approved\n",
        "  submission: code\n  key_conflicts: {definition: warn}\n",
    ],
)
def test_where_no_graph_can_come_nothing_is_said_of_graphs(rest: str) -> None:
    # The group grants the name; the kinds keep every graph out.
    grant = "  operations: {grant: [basic]}\n"
    error = refused("  kinds: [admin, data]\n" + rest + BOTH + grant)
    assert error.rule == "config.no-effect"
    assert policy("  kinds: [admin, task]\n" + rest + BOTH + grant)


@pytest.mark.parametrize("operation", sorted(CODE_OPERATIONS))
def test_approved_grants_nothing_that_runs_what_is_sent(operation: str) -> None:
    error = refused(APPROVED.replace("[update-graph]", f"[update-graph, {operation}]"))
    assert error.rule == "config.code"
    assert policy(
        APPROVED.replace("approved", "code").replace("update-graph", f"update-graph, {operation}")
    )


def test_methods_of_actors_are_no_listed_functions() -> None:
    assert "actor_execute" in CODE_OPERATIONS
    error = refused("  operations: {grant: [get_data, actors]}\n")
    assert error.rule == "config.code"


def test_approved_is_nothing_for_unknown() -> None:
    assert refused(APPROVED, "[a, unknown]").rule == "floor.unknown"


def test_the_least_that_lets_work_through_is_advised() -> None:
    denied = policy(BOTH + GRANT).decide(GRAPH, "pickle")
    assert denied.rule == "submission.none"
    assert "set 'submission: approved'." in denied.fix
    assert "then run with any arguments of a" in denied.fix
    denied = policy(BOTH + GRANT).decide(GRAPH, "cloudpickle")
    assert "set 'submission: code'" in denied.fix
    denied = policy(APPROVED).decide(GRAPH, "cloudpickle")
    assert "add cloudpickle to 'deserializers', set 'submission: code'" in denied.fix


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
    for submission in ("approved", "code"):
        loaded = policy(APPROVED.replace("approved", submission) + spelled)
        assert loaded.key_conflicts(GRAPH) == KeyConflicts(*words) == words


def test_where_nothing_matches_key_conflicts_are_refused() -> None:
    loaded = policy(APPROVED + "  key_conflicts: {definition: warn, principal: warn}\n")
    assert loaded.key_conflicts(Context("b", "a")) == ("refuse", "refuse")


def test_update_graph_is_in_the_group_that_clients_are_given() -> None:
    assert "update-graph" in GROUPS["basic"]


# --- sealed -----------------------------------------------------------------------------------

SEALED = "  submission: sealed\n"
TASK = Context("a", "b", Kind.TASK, "compute-task")
HANDED = SEALED + "  operations: {grant: [compute-task]}\n"
RUN = SEALED + "  operations: {grant: [worker-run]}\n"


def signed_by(loaded: Policy, context: Context) -> set[str | None]:
    authors = (None, "a", "b", "c")
    return {each for each in authors if loaded.decide(context, "sealed", author=each).permitted}


def test_where_tasks_are_handed_out_the_sender_signs_nothing() -> None:
    loaded = policy(HANDED + "  authors: [b]\n")
    assert signed_by(loaded, TASK) == {"b"}
    assert loaded.decide(TASK, "sealed").rule == "author.relayed"
    assert loaded.decide(TASK, "sealed", author="c").rule == "author.relayed"


def test_where_authors_are_listed_the_sender_signs_nothing() -> None:
    run = Context("a", "b", Kind.CONTROL, "run")
    assert signed_by(policy(RUN + "  authors: [b]\n"), run) == {"b"}
    assert signed_by(policy(RUN), run) == {None, "a"}  # a user who hands over what it signed itself


def test_no_edit_lets_the_sender_sign_what_it_hands_out() -> None:
    decision = policy(HANDED + "  authors: [b]\n").decide(TASK, "sealed")
    assert decision.fix.startswith("No policy can permit it")


def test_advice_about_sealed_names_the_workers_as_what_is_at_risk() -> None:
    asked = Context("a", "b", Kind.TASK, "update-graph")
    plain = policy(GRANT)
    assert "run by workers" in plain.decide(asked, "sealed").fix
    sealed = policy(RUN).permits_operation(Context("a", "b", Kind.CONTROL, "plugin-add"))
    assert "set 'submission" not in sealed.fix  # it can be signed where 'sealed' is said
    assert "run by workers" in sealed.fix
    code = policy(RUN).permits_operation(Context("a", "b", Kind.CONTROL, "run_function"))
    assert "set 'submission: code'" in code.fix
    relayed = policy(HANDED + "  authors: [b]\n").decide(TASK, "sealed", author="a")
    assert relayed.rule == "author.relayed"
