"""``confined:`` of a principal: what it demands, and which policies would undo it."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy

HEAD = """safeser: 1
name: test
revision: 1
principals:
  scheduler: {}
  nanny: {}
  other: {groups: [workers]}
  worker: {groups: [workers], confined: %s}
contexts:
- {name: in, sender: worker, recipient: scheduler, operations: {grant: [basic, cluster]}}
"""


def text(confined: str, more: str = "") -> str:
    return HEAD % confined + more


def policy(confined: str, more: str = "") -> Policy:
    return Policy.parse(text(confined, more), source="p.yaml")


def refused(confined: str, more: str = "") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy(confined, more)
    return caught.value


def demanded(confined: str):
    found = policy(confined).principals["worker"].confined
    assert found is not None
    return found


def test_nothing_but_its_cluster_is_what_an_empty_demand_leaves() -> None:
    found = demanded("{}")
    assert (found.read, found.write, found.execute, found.connect) == ((), (), False, "cluster")
    assert found.ports == (range(8786, 8787), range(9000, 9100))
    assert policy("{}").principals["scheduler"].confined is None


def test_a_demand_is_read_as_it_is_written() -> None:
    spelled = "{read: [/data/sales], write: [/scratch], execute: true, ports: [1, 7-9]}"
    found = demanded(spelled)
    assert (found.read, found.write, found.execute) == (("/data/sales",), ("/scratch",), True)
    assert found.ports == (range(1, 2), range(7, 10))
    assert dict(found.sentences()) == {
        "reads": "/data/sales",
        "writes": "/scratch",
        "starts": "any program",
        "connects": "by TCP to ports 1, 7-9",
    }
    assert dict(demanded("{connect: any}").sentences())["connects"] == "anywhere"
    assert demanded("{connect: any}").ports == ()


def test_equal_demands_have_one_digest_and_others_another() -> None:
    spelled = ["{}", "{read: [/d]}", "{write: [/d]}", "{execute: true}", "{connect: any}"]
    spelled += ["{ports: [8786]}", "{ports: [8786-8787]}"]
    assert len({demanded(each).digest for each in spelled}) == len(spelled)
    assert demanded("{connect: cluster, execute: false}").digest == demanded("{}").digest


@pytest.mark.parametrize(
    ("confined", "rule"),
    [
        ("{read: [data]}", "config.confined"),
        ("{read: [/data/../home]}", "config.confined"),
        ("{write: [/data/]}", "config.confined"),
        ("{write: [//data]}", "config.confined"),
        ("{write: [/]}", "config.confined"),
        ("{read: [/a/b], write: [/a]}", "config.confined"),
        ("{read: [/a, /a]}", "config.twice"),
        ("{connect: clutser}", "config.confined"),
        ("{connect: any, ports: [1]}", "config.confined"),
        ("{ports: []}", "config.value"),
        ("{ports: [0]}", "config.confined"),
        ("{ports: [65536]}", "config.confined"),
        ("{ports: [9-7]}", "config.confined"),
        ("{ports: [1-65535]}", "config.confined"),
        ("{execute: never}", "config.value"),
        ("{reed: [/a]}", "config.unknown-key"),
        ("yes", "config"),
    ],
)
def test_a_demand_that_means_nothing_definite_does_not_load(confined, rule) -> None:
    error = refused(confined)
    assert error.rule.startswith(rule)
    assert "line 8" in error.where


def test_a_principal_that_registers_no_worker_is_not_confined_in_vain() -> None:
    told = text("{}").replace("nanny: {}", "nanny: {confined: {}}")
    with pytest.raises(ConfigError) as caught:
        Policy.parse(told, source="p.yaml")
    assert caught.value.rule == "config.no-effect"
    assert "nobody" not in str(caught.value)


LISTS = "[msgpack, pickle, cloudpickle]"
CODE = f"submission: code, serializers: {LISTS}, deserializers: {LISTS}"


@pytest.mark.parametrize(
    "context",
    [
        f"sender: worker, recipient: nanny, {CODE}",
        f"sender: scheduler, recipient: nanny, authors: [worker], {CODE}",
        "sender: worker, recipient: nanny, submission: code",
        "sender: scheduler, recipient: other, authors: [worker], submission: sealed,"
        " operations: {grant: [cluster]}",
        "sender: worker, recipient: other, submission: sealed, operations: {grant: [actors]}",
    ],
)
def test_no_context_lets_code_out_of_the_sandbox(context: str) -> None:
    more = f"- {{name: out, {context}}}\n"
    Policy.parse(text("{}", more).replace(", confined: {}", ""))  # its control
    error = refused("{}", more)
    assert error.rule == "config.confined-code"
    assert "line 11" in error.where


def test_code_may_reach_a_confined_process_and_others_of_its_principal() -> None:
    policy("{}", f"- {{name: a, sender: scheduler, recipient: worker, {CODE}}}\n")
    policy("{}", f"- {{name: a, sender: worker, recipient: worker, {CODE}}}\n")
