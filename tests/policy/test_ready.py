"""The ready policies, hop by hop: loosening a context fails here.

What each lets through besides is in ``policies/tests``, whose cases ``test_cases.py`` runs.
"""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import Context, Kind
from safeser.operations import GROUPS, NAMES, OPERATIONS, Server
from safeser.operations.groups import PARTS, WHOLE
from safeser.policy import Policy
from safeser.policy.ready import locate, ready_policies
from safeser.policy.rules import CODE_OPERATIONS

#: Families from the least to the most powerful.
LADDER = ("msgpack", "dask", "pickle", "cloudpickle")

_SIBLINGS = {"msgpack": "worker>nanny nanny>worker"}
_ORDERS = "scheduler>worker scheduler>nanny"
_CODE = f"{_ORDERS} client>scheduler client>worker"
_RESULTS = "scheduler>client worker>client"
_REPORTS = "worker>scheduler nanny>scheduler"

#: Who hands whom values, and by which family at most; all other pairs: nothing at all.
_HANDED = {
    "default": {"cloudpickle": f"{_CODE} worker>worker", "dask": _RESULTS, "pickle": _REPORTS},
    "strict": {"cloudpickle": _CODE, "dask": _RESULTS, "pickle": f"{_REPORTS} worker>worker"},
    "demo": {
        "cloudpickle": _CODE.replace("client", "alice"),
        "dask": "scheduler>alice worker>alice scheduler>bob worker>bob bob>scheduler bob>worker",
        "pickle": f"{_REPORTS} worker>worker",
    },
    "sealed": {"dask": f"{_CODE} {_RESULTS}", "pickle": f"{_REPORTS} worker>worker"},
    "analysts": {
        "dask": f"{_CODE} {_RESULTS} nanny>scheduler".replace("client", "alice"),
        "pickle": "worker>scheduler",
        "cloudpickle": "worker>worker",
    },
    "dask-cluster": {
        "dask": f"{_CODE} {_RESULTS}".replace("client", "carol")
        + " scheduler>alice worker>alice scheduler>dashboard worker>dashboard",
        "pickle": f"{_REPORTS} worker>worker",
        "msgpack": f"{_SIBLINGS['msgpack']}"
        " alice>scheduler alice>worker dashboard>scheduler dashboard>worker",
    },
}
HOPS = {
    name: {
        tuple(hop.split(">")): family
        for family, hops in {**_SIBLINGS, **handed}.items()
        for hop in hops.split(" ")
    }
    for name, handed in _HANDED.items()
}
SERVERS = {"scheduler", "worker", "nanny"}


def families(policy: Policy, sender: str, recipient: str, kind: Kind, author: str | None) -> str:
    """Return the most powerful family that may pass, or nothing if none may."""
    context = Context(sender, recipient, kind)
    passing = [
        family
        for family in LADDER
        if policy.decide(context, family, author=author).permitted
        and policy.decide(context, family, sealing=True, author=author).permitted
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


@pytest.mark.parametrize("name", HOPS)
def test_each_hop_carries_what_is_written_here_and_no_more(name: str) -> None:
    policy = Policy.load(name)
    everybody = [*policy.principals, "unknown", "stranger"]
    for hop in itertools.product(everybody, everybody):
        most = HOPS[name].get(hop, "")
        assert families(policy, *hop, Kind.DATA, None) == most
        for kind in (Kind.TASK, Kind.CONTROL):  # users are told values alone
            found = families(policy, *hop, kind, None)
            if (name, *hop, kind) == ("default", "worker", "scheduler", Kind.TASK):
                assert found == "cloudpickle"  # tasks submit tasks
            else:
                assert found == (most if hop[1] in SERVERS and hop != ("nanny", "worker") else "")


@pytest.mark.parametrize("name", ["strict", "dask-cluster", "sealed"])
def test_what_others_wrote_is_data(name: str) -> None:
    policy = Policy.load(name)
    for (sender, recipient), most in HOPS[name].items():
        listed = policy.grant(Context(sender, recipient)).authors
        for author in (*policy.principals, "any", "unknown", "eve"):
            own = author == sender or author in listed
            expected = most if own else min("dask", most, key=LADDER.index)
            assert families(policy, sender, recipient, Kind.DATA, author) == expected


_OWN = {
    "default": _RESULTS,
    **dict.fromkeys(("strict", "sealed"), f"{_RESULTS} worker>worker"),
}


@pytest.mark.parametrize("name", ready_policies())
def test_own_classes_arrive_on_ones_own_cluster_alone(name: str) -> None:
    policy = Policy.load(name)
    pairs = itertools.product(policy.principals, repeat=2)
    found = {f"{one}>{other}" for one, other in pairs if policy.bound(Context(one, other)).own}
    assert found == set(_OWN.get(name, "").split())


#: Operations by which code comes to workers and nannies, and the kinds of their messages.
TO_WORKERS = [
    ("compute-task", Kind.TASK),
    *((name, Kind.CONTROL) for name in ("run", "plugin-add")),
]


@pytest.mark.parametrize(
    ("name", "author"), [("dask-cluster", "carol"), ("sealed", "client"), ("analysts", "alice")]
)
def test_workers_take_what_listed_authors_signed_and_nobody_else(name: str, author: str) -> None:
    policy = Policy.load(name)
    everybody = (None, *policy.principals, "any", "unknown", "eve")
    found = {
        (recipient, operation, by)
        for recipient in policy.principals
        for operation, kind in TO_WORKERS
        for by in everybody
        if policy.decide(
            Context("scheduler", recipient, kind, operation), "sealed", author=by
        ).permitted
    }
    taken = {
        (recipient, operation, author)
        for recipient in ("worker", "nanny")
        for operation, _ in TO_WORKERS
    }
    confined = [principal for principal, each in policy.principals.items() if each.confined]
    if name == "analysts":
        taken = {("worker", "compute-task", author)}
        assert confined == ["worker"]
    assert found == taken
    assert [by for by in policy.principals if policy.may_sign(by, "scheduler", Kind.TASK)] == [
        author
    ]
    graph = Kind.TASK, "update-graph"
    assert [
        sender
        for sender in policy.principals
        if policy.decide(Context(sender, "scheduler", *graph), "sealed").permitted
    ] == [author]


@pytest.mark.parametrize("name", ["dask-cluster", "sealed", "analysts"])
def test_cloudpickle_passes_nowhere_but_inside_the_sandbox(name: str) -> None:
    policy = Policy.load(name)
    everybody = [*policy.principals, "unknown"]
    inside = {("worker", "worker")} if name == "analysts" else set()
    for hop, author in itertools.product(
        {*itertools.product(everybody, repeat=2)} - inside, everybody
    ):
        for kind, operation in itertools.product(Kind, (None, "update-graph", "compute-task")):
            for sealing in (True, False):
                asked = {"sealing": sealing, "author": author}
                assert not policy.decide(
                    Context(*hop, kind, operation), "cloudpickle", **asked
                ).permitted


@pytest.mark.parametrize(("name", "users"), [("strict", ["client"]), ("demo", ["alice", "bob"])])
def test_nobody_but_users_and_the_scheduler_asks_for_code(name: str, users: list[str]) -> None:
    policy = Policy.load(name)
    everybody = [*policy.principals, "unknown", "stranger"]
    asking = {
        hop
        for hop in itertools.product(everybody, everybody)
        if operations(policy, *hop) & {*CODE_OPERATIONS, "update-graph"} - GROUPS["actors"]
    }
    expected = {("scheduler", "worker"), ("scheduler", "nanny"), (users[0], "scheduler")}
    assert asking == expected
    for user in users:
        assert policy.counterparts(user) == {"scheduler", "worker"}
    assert policy.counterparts("unknown") == frozenset()
    assert policy.grant(Context("worker", "scheduler")).profiles == ("data", "numpy", "pandas")


@pytest.mark.parametrize("operation", ["restart", "terminate", "upload_file", "register-worker"])
def test_bob_steers_nothing(operation: str) -> None:
    """Relays are granted; what they relay is decided as an operation of its own."""
    policy = Policy.load("demo")
    for recipient, kind in itertools.product(("scheduler", "worker"), Kind):
        decision = policy.permits_operation(Context("bob", recipient, kind, operation))
        assert decision.rule in ("operation.not-granted", "context.none")
        assert decision.fix
    assert operations(policy, "bob", "worker") == {"close", "get_data", "identity"}


PEOPLE = ("carol", "alice", "dashboard")
_FETCH = {"identity", "close", "get_data"}
_LOOK = PARTS["look"] | {"get_task_stream", "profile"}


@pytest.mark.parametrize(
    ("sender", "recipient", "granted"),
    [
        ("carol", "worker", _FETCH | {"update_data"} | GROUPS["actors"]),
        *((user, "worker", _FETCH) for user in ("alice", "dashboard")),
        *((user, "scheduler", _LOOK) for user in ("alice", "dashboard")),
        ("worker", "nanny", {"close", "close_gracefully"}),
        ("nanny", "worker", set()),
        ("worker", "worker", _FETCH | {"shuffle_receive"}),
        ("worker", "scheduler", GROUPS["basic"] | PARTS["worker-reports"] | GROUPS["diagnose"]),
        ("nanny", "scheduler", {"identity", "close", "log_event"} | PARTS["nanny-reports"]),
        *((sender, "alice", GROUPS["basic"] | {"restart"}) for sender in ("scheduler", "worker")),
        *((one, other, set()) for one in PEOPLE for other in (*PEOPLE, "nanny")),
        *(("unknown", other, set()) for other in ("scheduler", "worker", "nanny", "carol")),
    ],
)
def test_operations_are_granted_by_name(
    sender: str, recipient: str, granted: frozenset[str]
) -> None:
    asked = operations(Policy.load("dask-cluster"), sender, recipient)
    # What is in a group but of no kind that this context matches cannot be asked for.
    assert asked <= granted
    assert not {name for name in granted - asked if _weakest(name) is Kind.ADMIN}


def _weakest(name: str) -> Kind:
    return min((row.kind for row in OPERATIONS if row.name == name), key=lambda kind: kind.strength)


def test_what_needs_code_on_the_scheduler_is_granted_to_nobody() -> None:
    policy = Policy.load("dask-cluster")
    needs = {"run_function", "register_scheduler_plugin", "unregister_scheduler_plugin", "feed"}
    for name in {*policy.principals} - {"scheduler"}:
        assert not operations(policy, name, "scheduler") & needs
        assert policy.grant(Context(name, "scheduler", Kind.CONTROL)).submission != "code"
    tasks = policy.grant(Context("scheduler", "worker", Kind.TASK, "compute-task"))
    assert tasks.operations == {"compute-task"}


def test_a_key_out_of_the_sandbox_registers_no_worker() -> None:
    policy = Policy.load("analysts")
    hops = ((name, "scheduler") for name in policy.principals)
    assert [hop[0] for hop in hops if "register-worker" in operations(policy, *hop)] == ["worker"]
    assert not operations(policy, "scheduler", "nanny") & CODE_OPERATIONS


def test_trust_is_whole_and_ends_at_strangers() -> None:
    policy = Policy.load("trusted")
    for sender, recipient, author in itertools.product(policy.principals, repeat=3):
        assert families(policy, sender, recipient, Kind.DATA, author) == "cloudpickle"
    assert operations(policy, "client", "scheduler") == NAMES - GROUPS["debug"]
    for other in policy.principals:
        for hop in (("eve", other), (other, "eve")):
            assert families(policy, *hop, Kind.DATA, None) == ""
    for author in ("any", "unknown", "eve"):
        assert families(policy, "scheduler", "client", Kind.DATA, author) == "dask"


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


# --- files ------------------------------------------------------------------------------------


def test_a_policy_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever can put a file in its place could list a key of their own as the client's.
    path = tmp_path / "mine.yaml"
    path.write_bytes(locate("default").read_bytes())
    assert Policy.load(path).name == "default"
    stock = os.fstat

    owner = os.geteuid() + 1000

    def of_another_user(handle: int) -> os.stat_result:
        status = list(stock(handle))
        if stat.S_ISREG(status[0]):
            status[4] = owner
        return os.stat_result(status)

    monkeypatch.setattr(os, "fstat", of_another_user)
    with pytest.raises(ConfigError, match="belongs to another user") as refused:
        Policy.load(path)
    assert refused.value.rule == "config.file-owner"
    assert Policy.load("default").name == "default"
    owner = 0
    assert Policy.load(path).name == "default"


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o660, 0o622])
def test_a_policy_that_others_may_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(locate("default").read_bytes())
    path.chmod(mode)
    with pytest.raises(ConfigError, match="written by others") as refused:
        Policy.load(path)
    assert refused.value.rule == "config.file-mode"
    assert f"{mode:04o}" in refused.value.message
    path.chmod(mode & ~0o022)
    assert Policy.load(path).name == "default"


def test_a_ready_policy_is_as_trusted_as_the_code_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A checkout under umask 002 is its group's to write, and its code is, too.
    status = list(os.stat(locate("default")))
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(status))
    status[0] = 0o100664
    assert Policy.load("default").name == "default"
    status[0] = 0o100666
    with pytest.raises(ConfigError) as refused:
        Policy.load("default")
    assert refused.value.rule == "config.file-mode"
