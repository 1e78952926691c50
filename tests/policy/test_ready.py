"""The ready policies: whom each is for, and exactly what passes between whom."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path

import pytest

from safeser.errors import ConfigError
from safeser.operations import GROUPS
from safeser.policy import Policy
from safeser.policy.ready import locate
from safeser.policy.rules import CODE_OPERATIONS
from safeser.values import FAMILIES, Context, Decision, Kind

CODERS = {"default": ["client"], "strict": ["client"], "demo": ["alice"]}
USERS = {**CODERS, "demo": ["alice", "bob"]}

#: Where workers are kept from running code in each other and in the scheduler.
KEPT_APART = ["strict", "demo"]

each = pytest.mark.parametrize("name", ["default", *KEPT_APART])


def ask(
    policy: Policy,
    hop: str,
    kind: str,
    operation: str | None,
    family: str,
    author: str | None = None,
) -> Decision:
    sender, recipient = hop.split(" -> ")
    return policy.decide(Context(sender, recipient, kind, operation), family, author=author)


@each
def test_code_passes_on_exactly_these_hops(name: str) -> None:
    policy = Policy.load(name)
    everybody = [*policy.principals, "unknown", "stranger"]
    hops = {
        f"{sender} -> {recipient}"
        for sender, recipient, kind in itertools.product(everybody, everybody, Kind)
        for sealing in (False, True)
        if policy.decide(Context(sender, recipient, kind), "cloudpickle", sealing=sealing).permitted
    }
    expected = {"scheduler -> worker", "scheduler -> nanny"}
    for coder in CODERS[name]:
        expected |= {f"{coder} -> scheduler", f"{coder} -> worker"}
    if name not in KEPT_APART:
        expected |= {"worker -> worker", "worker -> scheduler"}  # tasks submit tasks
    assert hops == expected
    # Of these, users ask only the scheduler to run what they send, beside the methods of their own
    # actors: whoever listens there with a worker's key is sent no graph.
    expected -= {"worker -> worker", *(f"{coder} -> worker" for coder in CODERS[name])}
    running = {
        f"{sender} -> {recipient}"
        for sender, recipient in itertools.product(everybody, everybody)
        for operation in {*CODE_OPERATIONS, "update-graph"} - GROUPS["actors"]
        for kind in ("task", "control")
        if policy.permits_operation(Context(sender, recipient, kind, operation)).permitted
    }
    assert running == expected


@each
def test_no_pickle_reaches_a_user(name: str) -> None:
    policy = Policy.load(name)
    for user, sender, kind in itertools.product(USERS[name], policy.principals, Kind):
        for family in ("pickle", "cloudpickle"):
            assert not policy.decide(Context(sender, user, kind), family).permitted
    for family in FAMILIES[:3]:
        assert ask(policy, f"scheduler -> {USERS[name][0]}", "data", None, family).permitted
        assert ask(policy, f"worker -> {USERS[name][0]}", "data", None, family).permitted


@pytest.mark.parametrize("name", KEPT_APART)
def test_a_stolen_worker_key_runs_no_code_elsewhere(name: str) -> None:
    policy = Policy.load(name)
    scheduler = "worker -> scheduler"
    assert ask(policy, scheduler, "data", None, "pickle").permitted
    assert ask(policy, scheduler, "task", "update-graph", "msgpack").rule == "submission.none"
    assert ask(policy, scheduler, "control", "run_function", "msgpack").rule == (
        "operation.not-granted"
    )
    assert ask(policy, scheduler, "data", None, "cloudpickle").rule == "context.family"
    assert ask(policy, "worker -> worker", "data", None, "cloudpickle").rule == "context.family"
    assert ask(policy, "worker -> nanny", "data", None, "pickle").rule == "context.family"
    assert policy.grant(Context("worker", "scheduler")).profiles == ("data", "numpy", "pandas")
    assert policy.grant(Context("worker", "worker")).profiles == ("data", "numpy", "pandas")


@each
def test_strangers_and_users_among_themselves_get_nothing(name: str) -> None:
    policy = Policy.load(name)
    for user, kind in itertools.product(USERS[name], Kind):
        for hop in ("unknown -> scheduler", f"{user} -> nanny", f"{user} -> {user}"):
            sender, recipient = hop.split(" -> ")
            assert policy.decide(Context(sender, recipient, kind), "msgpack").rule == "context.none"
    assert policy.counterparts("unknown") == frozenset()
    assert policy.counterparts(USERS[name][0]) == {"scheduler", "worker"}
    assert policy.counterparts("scheduler") == {"worker", "nanny", *USERS[name]}


@each
def test_the_cluster_can_do_its_work(name: str) -> None:
    policy = Policy.load(name)
    coder = CODERS[name][0]
    for hop, kind, operation, family in (
        ("scheduler -> worker", "task", "compute-task", "cloudpickle"),
        ("scheduler -> worker", "control", "plugin-add", "pickle"),
        ("scheduler -> nanny", "control", "restart", "msgpack"),
        ("worker -> scheduler", "admin", "heartbeat_worker", "msgpack"),
        ("worker -> scheduler", "admin", "register-worker", "msgpack"),
        ("worker -> scheduler", "data", "task-finished", "pickle"),
        ("worker -> worker", "data", "get_data", "msgpack"),
        ("worker -> worker", "data", "shuffle_receive", "dask"),
        ("nanny -> scheduler", "admin", "register_nanny", "msgpack"),
        ("worker -> nanny", "control", "close_gracefully", "msgpack"),
        ("nanny -> worker", "admin", None, "msgpack"),
        (f"{coder} -> scheduler", "task", "update-graph", "cloudpickle"),
        (f"{coder} -> scheduler", "control", "run_function", "cloudpickle"),
        (f"{coder} -> scheduler", "control", "register_worker_plugin", "cloudpickle"),
        (f"{coder} -> scheduler", "control", "restart", "msgpack"),
        (f"{coder} -> scheduler", "admin", "get_task_stream", "msgpack"),
        (f"{coder} -> worker", "data", "get_data", "msgpack"),
        (f"{coder} -> worker", "data", "update_data", "dask"),
        (f"scheduler -> {coder}", "data", "key-in-memory", "msgpack"),
        (f"scheduler -> {coder}", "data", "task-erred", "error"),
        (f"scheduler -> {coder}", "admin", "restart", "msgpack"),
        (f"scheduler -> {coder}", "admin", "stream-start", "msgpack"),
        (f"worker -> {coder}", "data", None, "dask"),
    ):
        decision = ask(policy, hop, kind, operation, family)
        assert decision.permitted, (hop, kind, operation, family, decision)


@each
def test_what_is_relayed_to_a_user_passes_as_data(name: str) -> None:
    hop = f"scheduler -> {USERS[name][0]}"
    for family in ("dask", "msgpack", "error"):
        assert ask(Policy.load(name), hop, "data", None, family, author="any").permitted


@pytest.mark.parametrize(
    ("kind", "operation", "family", "rule"),
    [
        ("task", "update-graph", "msgpack", "submission.none"),
        ("task", "update-graph", "pickle", "submission.none"),
        ("control", "run_function", "msgpack", "operation.not-granted"),
        ("control", "upload_file", "msgpack", "operation.not-granted"),
        ("control", "register_worker_plugin", "msgpack", "operation.not-granted"),
        # Relays are granted; what they relay is decided as an operation of its own.
        ("control", "broadcast", "pickle", "context.family"),
        ("control", "restart", "msgpack", "operation.not-granted"),
        ("control", "dump_cluster_state_to_url", "msgpack", "operation.not-granted"),
        ("control", "connection_stream", "msgpack", "operation.not-granted"),
        ("control", "terminate", "msgpack", "operation.not-granted"),
        ("admin", "register-worker", "msgpack", "operation.not-granted"),
        ("admin", None, "pickle", "floor.admin"),
        ("admin", "identity", "dask", "floor.admin"),
        ("data", None, "pickle", "context.family"),
        ("data", "scatter", "cloudpickle", "context.family"),
    ],
)
@pytest.mark.parametrize("recipient", ["scheduler", "worker"])
def test_bob_may_submit_nothing(
    recipient: str, kind: str, operation: str | None, family: str, rule: str
) -> None:
    decision = ask(Policy.load("demo"), f"bob -> {recipient}", kind, operation, family)
    if recipient == "worker" and operation in ("update-graph", "broadcast", "scatter"):
        rule = "operation.not-granted"  # guests only fetch from workers
    assert decision.rule == rule
    assert decision.fix


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
