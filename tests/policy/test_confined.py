"""``confined:`` of a principal: what it demands, and which policies would undo it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml

from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.schema import json_schema

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
    ("confined", "rule", "said"),
    [
        ("{read: [data]}", "config.confined", "'data' is not an absolute path"),
        ("{read: [/data/../home]}", "config.confined", "not an absolute path"),
        ("{write: [/data/]}", "config.confined", "not an absolute path"),
        ("{write: [//data]}", "config.confined", "not an absolute path"),
        ("{write: [/]}", "config.confined", "/ is every file"),
        ("{read: [/a/b], write: [/a]}", "config.confined", "what it may write, it may read"),
        ("{read: [/a, /a]}", "config.twice", "listed twice"),
        ("{connect: clutser}", "config.confined", "Did you mean 'cluster'?"),
        ("{connect: any, ports: [1]}", "config.confined", "no effect"),
        ("{ports: []}", "config.value", "at least 1"),
        ("{ports: [0]}", "config.confined", "neither a port"),
        ("{ports: [65536]}", "config.confined", "neither a port"),
        ("{ports: [9-7]}", "config.confined", "neither a port"),
        ("{ports: [1-65535]}", "config.confined", "1,000 ports at most"),
        ("{execute: never}", "config.value", "true or false"),
        ("{reed: [/a]}", "config.unknown-key", "Did you mean 'read'?"),
        ("yes", "config", ""),
    ],
)
def test_a_demand_that_means_nothing_definite_does_not_load(confined, rule, said) -> None:
    error = refused(confined)
    assert error.rule.startswith(rule)
    assert said in str(error)
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
    ("context", "why"),
    [
        (f"sender: worker, recipient: nanny, {CODE}", "cloudpickle"),
        (f"sender: scheduler, recipient: nanny, authors: [worker], {CODE}", "cloudpickle"),
        ("sender: worker, recipient: nanny, submission: code", "could submit code"),
        (
            "sender: scheduler, recipient: other, authors: [worker], submission: sealed,"
            " operations: {grant: [cluster]}",
            "what it signs would run there",
        ),
        (
            "sender: worker, recipient: other, submission: sealed, operations: {grant: [actors]}",
            "runs what it is sent",
        ),
    ],
)
def test_no_context_lets_code_out_of_the_sandbox(context: str, why: str) -> None:
    more = f"- {{name: out, {context}}}\n"
    Policy.parse(text("{}", more).replace(", confined: {}", ""))  # its control
    error = refused("{}", more)
    assert error.rule == "config.confined-code"
    assert why in str(error)
    assert "line 11" in error.where


def test_code_may_reach_a_confined_process_and_others_of_its_principal() -> None:
    policy("{}", f"- {{name: a, sender: scheduler, recipient: worker, {CODE}}}\n")
    policy("{}", f"- {{name: a, sender: worker, recipient: worker, {CODE}}}\n")


@pytest.mark.parametrize(
    ("confined", "valid"),
    [
        ("{}", True),
        ("{read: [/a], write: [/b], execute: true, connect: any}", True),
        ("{ports: [8786, 9000-9099]}", True),
        ("{connect: all}", False),
        ("{read: /a}", False),
        ("{execute: 1}", False),
        ("{reed: [/a]}", False),
    ],
)
def test_editors_know_the_field(confined: str, valid: bool) -> None:
    schema = jsonschema.Draft202012Validator(json_schema())
    assert schema.is_valid(yaml.safe_load(text(confined))) is valid


def documented() -> list[str]:
    docs = Path(__file__).parents[2] / "docs" / "how-to"
    pages = (docs / name for name in ("policy.md", "confined-workers.md"))
    blocks = (re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S) for page in pages)
    return [block for found in blocks for block in found if "    confined:" in block]


def test_what_documentation_shows_loads() -> None:
    shown = documented()
    assert len(shown) == 2
    context = "contexts:\n- {name: in, sender: worker, recipient: %s,"
    grant = " operations: {grant: [basic, cluster]}}\n"
    for block in shown:
        principals = block if "  scheduler:" in block else f"{block}  scheduler: {{}}\n"
        told = f"safeser: 1\nname: x\nrevision: 1\n{principals}{context % 'scheduler'}{grant}"
        found = Policy.parse(told).principals["worker"].confined
        assert found is not None
        assert (found.read, found.write) == (("/data/sales",), ("/scratch/analysts",))
        # What both pages say the defaults are.
        assert found.digest == replace(found, execute=False, connect="cluster").digest
        assert found.ports == demanded("{}").ports
