"""What three ready policies let through, hop by hop: loosening a context fails here."""

from __future__ import annotations

import itertools

import pytest

from safeser.operations import GROUPS, NAMES, OPERATIONS, Server
from safeser.operations.groups import PARTS, WHOLE
from safeser.policy import Policy
from safeser.policy.rules import CODE_OPERATIONS
from safeser.values import Context, Kind

#: Families from the least to the most powerful.
LADDER = ("msgpack", "dask", "pickle", "cloudpickle")

#: What belongs to others or steers a cluster: never for who may only look.
STEERING = NAMES - PARTS["look"] - {"get_task_stream", "profile"}


def families(policy: Policy, sender: str, recipient: str, **where: str) -> str:
    """Return the most powerful family that may pass, or nothing if none may."""
    context = Context(sender, recipient, where.get("kind", "data"), where.get("operation"))
    passing = [
        family
        for family in LADDER
        if policy.decide(context, family, author=where.get("author")).permitted
        and policy.decide(context, family, sealing=True, author=where.get("author")).permitted
    ]
    assert passing == list(LADDER[: len(passing)])
    return passing[-1] if passing else ""


def operations(policy: Policy, sender: str, recipient: str) -> frozenset[str]:
    """Return the operations that may be asked for, as messages of some kind."""
    return frozenset(
        name
        for name, kind in itertools.product(NAMES, Kind)
        if policy.permits_operation(Context(sender, recipient, kind, name)).permitted
    )


# --- dask-cluster -----------------------------------------------------------------------------

PEOPLE = ("carol", "alice", "dashboard")

#: Who hands whom values, and by which family at most; all other pairs: nothing at all.
HOPS = {
    ("scheduler", "worker"): "dask",
    ("scheduler", "nanny"): "dask",
    ("worker", "scheduler"): "pickle",
    ("nanny", "scheduler"): "pickle",
    ("worker", "worker"): "pickle",
    ("worker", "nanny"): "msgpack",
    ("nanny", "worker"): "msgpack",
    ("carol", "scheduler"): "dask",
    ("carol", "worker"): "dask",
    **{(user, at): "msgpack" for user in ("alice", "dashboard") for at in ("scheduler", "worker")},
    **{(sender, user): "dask" for sender in ("scheduler", "worker") for user in PEOPLE},
}


@pytest.fixture(scope="module")
def shared() -> Policy:
    return Policy.load("dask-cluster")


def test_each_hop_carries_what_is_written_here_and_no_more(shared: Policy) -> None:
    everybody = [*shared.principals, "unknown"]
    found = {
        (sender, recipient): families(shared, sender, recipient)
        for sender, recipient in itertools.product(everybody, everybody)
    }
    assert {hop: family for hop, family in found.items() if family} == HOPS


def test_what_others_wrote_is_data(shared: Policy) -> None:
    for (sender, recipient), most in HOPS.items():
        for author in (*shared.principals, "any", "unknown", "eve"):
            expected = most if author == sender else min("dask", most, key=LADDER.index)
            assert families(shared, sender, recipient, author=author) == expected


def test_cloudpickle_passes_nowhere(shared: Policy) -> None:
    everybody = [*shared.principals, "unknown"]
    for sender, recipient, author in itertools.product(everybody, everybody, (None, *everybody)):
        for kind, operation in itertools.product(Kind, (None, "update-graph", "compute-task")):
            context = Context(sender, recipient, kind, operation)
            for sealing in (True, False):
                asked = {"sealing": sealing, "author": author}
                assert not shared.decide(context, "cloudpickle", **asked).permitted


#: Operations by which code comes to workers and nannies, and the kinds of their messages.
TO_WORKERS = [
    ("compute-task", Kind.TASK),
    *((name, Kind.CONTROL) for name in ("run", "plugin-add")),
]


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
@pytest.mark.parametrize(("operation", "kind"), TO_WORKERS)
def test_workers_take_what_listed_authors_signed_and_nobody_else(
    shared: Policy, recipient: str, operation: str, kind: Kind
) -> None:
    context = Context("scheduler", recipient, kind, operation)
    decisions = {
        author: shared.decide(context, "sealed", author=author)
        for author in (None, *shared.principals, "any", "unknown", "eve")
    }
    assert {author for author, each in decisions.items() if each.permitted} == {"carol"}
    # The scheduler's identity has a signing key as well.
    assert decisions[None].rule == decisions["scheduler"].rule == "author.relayed"
    assert shared.may_sign("carol", "scheduler", kind)
    assert not shared.may_sign("alice", "scheduler", kind)
    assert shared.decide(context, "sealed", author="carol", sealing=True).permitted


def test_tasks_that_nobody_signed_run_nowhere(shared: Policy) -> None:
    tasks = shared.grant(Context("scheduler", "worker", Kind.TASK, "compute-task"))
    assert tasks.families == ("dask", "msgpack", "error")
    assert tasks.operations == {"compute-task", "statement-renewed"}
    assert tasks.submission == "sealed"


def test_what_needs_code_on_the_scheduler_is_granted_to_nobody(shared: Policy) -> None:
    needs = {"run_function", "register_scheduler_plugin", "unregister_scheduler_plugin", "feed"}
    for name in {*shared.principals} - {"scheduler"}:
        assert not operations(shared, name, "scheduler") & needs
        assert shared.grant(Context(name, "scheduler", Kind.CONTROL)).submission != "code"


@pytest.mark.parametrize(
    ("sender", "recipient", "granted"),
    [
        ("carol", "worker", {"identity", "close", "get_data", "update_data"} | GROUPS["actors"]),
        *((user, "worker", {"identity", "close", "get_data"}) for user in ("alice", "dashboard")),
        *(
            (user, "scheduler", PARTS["look"] | {"get_task_stream", "profile"})
            for user in ("alice", "dashboard")
        ),
        ("worker", "nanny", {"close", "close_gracefully"}),
        ("nanny", "worker", set()),
        ("worker", "worker", {"identity", "close", "get_data", "shuffle_receive"}),
        ("worker", "scheduler", GROUPS["basic"] | PARTS["worker-reports"] | GROUPS["diagnose"]),
        ("nanny", "scheduler", {"identity", "close", "log_event"} | PARTS["nanny-reports"]),
        *((sender, "alice", GROUPS["basic"] | {"restart"}) for sender in ("scheduler", "worker")),
        *((one, other, set()) for one in PEOPLE for other in PEOPLE),
        *((one, "nanny", set()) for one in PEOPLE),
        *(("unknown", other, set()) for other in ("scheduler", "worker", "nanny", "carol")),
    ],
)
def test_operations_are_granted_by_name(
    shared: Policy, sender: str, recipient: str, granted: frozenset[str]
) -> None:
    asked = operations(shared, sender, recipient)
    # What is in a group but of no kind that this context matches cannot be asked for.
    assert asked <= granted
    assert not {name for name in granted - asked if _weakest(name) is Kind.ADMIN}


def _weakest(name: str) -> Kind:
    return min((row.kind for row in OPERATIONS if row.name == name), key=lambda kind: kind.strength)


@pytest.mark.parametrize("operation", sorted(STEERING))
def test_a_viewer_changes_nothing(shared: Policy, operation: str) -> None:
    for recipient, kind in itertools.product(("scheduler", "worker", "nanny"), Kind):
        decision = shared.permits_operation(Context("dashboard", recipient, kind, operation))
        assert not decision.permitted


def test_graphs_by_grant(shared: Policy) -> None:
    graph = {"kind": "task", "operation": "update-graph"}
    assert families(shared, "carol", "scheduler", **graph) == "dask"
    for name, submission in (("carol", "sealed"), ("alice", "none"), ("dashboard", "none")):
        context = Context(name, "scheduler", Kind.TASK, "update-graph")
        assert shared.grant(context).submission == submission
        assert shared.decide(context, "sealed").permitted is (submission != "none")
    for name in ("alice", "dashboard"):
        assert families(shared, name, "scheduler", **graph) == ""
        assert not shared.grant(Context(name, "scheduler")).operations & CODE_OPERATIONS
    asked = Context("carol", "scheduler", **graph)
    assert shared.key_conflicts(asked) == ("refuse", "warn")


# --- analysts ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def analysts() -> Policy:
    return Policy.load("analysts")


def test_analysts_hand_and_get_what_is_written_here(analysts: Policy) -> None:
    everybody = [*analysts.principals, "unknown", "stranger"]
    found = {hop: families(analysts, *hop) for hop in itertools.product(everybody, everybody)}
    assert {hop: family for hop, family in found.items() if family} == {
        **dict.fromkeys(itertools.product(("alice",), ("scheduler", "worker")), "dask"),
        **dict.fromkeys(itertools.product(("scheduler",), ("worker", "nanny", "alice")), "dask"),
        ("worker", "scheduler"): "pickle",
        ("worker", "worker"): "cloudpickle",
        ("worker", "nanny"): "msgpack",
        ("worker", "alice"): "dask",
        ("nanny", "scheduler"): "dask",
        ("nanny", "worker"): "msgpack",
    }


def test_what_analysts_sign_runs_in_confined_workers_alone(analysts: Policy) -> None:
    assert [name for name, each in analysts.principals.items() if each.confined] == ["worker"]
    permitted = {
        (recipient, operation, author)
        for recipient in analysts.principals
        for operation, kind in TO_WORKERS
        for author in (None, *analysts.principals, "any", "unknown", "eve")
        if analysts.decide(
            Context("scheduler", recipient, kind, operation), "sealed", author=author
        ).permitted
    }
    assert permitted == {("worker", "compute-task", "alice")}
    assert analysts.may_sign("alice", "scheduler", Kind.TASK)
    assert not any(
        analysts.may_sign(name, "scheduler", Kind.TASK)
        for name in {*analysts.principals} - {"alice"}
    )


def test_a_key_out_of_the_sandbox_registers_no_worker(analysts: Policy) -> None:
    register = [
        name
        for name in analysts.principals
        if "register-worker" in operations(analysts, name, "scheduler")
    ]
    assert register == ["worker"]
    assert not operations(analysts, "scheduler", "nanny") & CODE_OPERATIONS


# --- sealed -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sealed() -> Policy:
    return Policy.load("sealed")


def test_one_persons_sealed_calls_carry_what_is_written_here(sealed: Policy) -> None:
    everybody = [*sealed.principals, "unknown", "stranger"]
    found = {hop: families(sealed, *hop) for hop in itertools.product(everybody, everybody)}
    assert {hop: family for hop, family in found.items() if family} == {
        **dict.fromkeys(itertools.product(("worker", "nanny"), ("scheduler",)), "pickle"),
        ("worker", "worker"): "pickle",
        ("worker", "nanny"): "msgpack",
        ("nanny", "worker"): "msgpack",
        **dict.fromkeys(itertools.product(("scheduler",), ("worker", "nanny", "client")), "dask"),
        **dict.fromkeys(itertools.product(("client",), ("scheduler", "worker")), "dask"),
        ("worker", "client"): "dask",
    }


@pytest.mark.parametrize("recipient", ["worker", "nanny"])
def test_only_what_the_client_signed_runs(sealed: Policy, recipient: str) -> None:
    for operation, kind in TO_WORKERS:
        context = Context("scheduler", recipient, kind, operation)
        permitted = {
            author
            for author in (None, *sealed.principals, "any", "unknown", "eve")
            if sealed.decide(context, "sealed", author=author).permitted
        }
        assert permitted == {"client"}
    graph = {"kind": "task", "operation": "update-graph"}
    assert [
        sender
        for sender in sealed.principals
        if sealed.decide(Context(sender, "scheduler", **graph), "sealed").permitted
    ] == ["client"]


# --- trusted ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trusted() -> Policy:
    return Policy.load("trusted")


def test_everybody_hands_everybody_anything_whoever_wrote_it(trusted: Policy) -> None:
    for sender, recipient, author in itertools.product(trusted.principals, repeat=3):
        assert families(trusted, sender, recipient, author=author) == "cloudpickle"


def test_everything_is_granted_but_what_is_for_tests_of_dask(trusted: Policy) -> None:
    granted = operations(trusted, "client", "scheduler")
    assert granted == NAMES - GROUPS["debug"]
    assert trusted.key_conflicts(Context("client", "scheduler", "task")) == ("warn", "warn")


def test_strangers_get_nothing_and_unknown_authors_pass_as_data(trusted: Policy) -> None:
    for other in trusted.principals:
        for hop in (("eve", other), (other, "eve")):
            assert families(trusted, *hop) == ""
    for author in ("any", "unknown", "eve"):
        assert families(trusted, "scheduler", "client", author=author) == "dask"
    assert families(trusted, "client", "scheduler", kind="admin") == "msgpack"


# --- parts of groups --------------------------------------------------------------------------


def test_what_looks_carries_no_payload_and_a_part_is_of_its_group() -> None:
    assert not [
        row.name
        for row in OPERATIONS
        if row.name in PARTS["look"]
        and row.fields
        and row.server is not Server.CLIENT
        and row.streams != {"worker-stream"}
    ]
    assert all(names < GROUPS[WHOLE[part]] for part, names in PARTS.items())
