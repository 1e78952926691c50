"""``values``: whose values a client may read, and who reads all of them."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import Context, Kind
from safeser.policy import Policy
from safeser.policy.questions.readable import readable, reads_all

TEXT = """safeser: 1
name: test
revision: 1
principals:
  scheduler: {}
  worker-a: {groups: [workers]}
  worker-b: {groups: [workers]}
  ann: {groups: [staff]}
  bea: {groups: [staff]}
  cy: {groups: [guests]}
  dan: {groups: [guests]}
contexts:
- name: tasks
  sender: scheduler
  recipient: group:workers
  authors: [ann, bea, cy]
  submission: sealed
  operations: {grant: [compute-task]}
- name: report
  sender: group:workers
  recipient: scheduler
  operations: {grant: [register-worker, gather]}
- name: a-reads
  sender: worker-a
  recipient: worker-b
  operations: {grant: [get_data]}
  values: [cy]
- name: exchange
  sender: worker-b
  recipient: worker-a
  operations: {grant: [get_data]}
- name: users
  sender: [ann, bea, cy]
  recipient: scheduler
  submission: sealed
  operations: {grant: [basic]}
  values: [group:guests]
"""


def policy(old: str = "", new: str = "") -> Policy:
    assert old in TEXT
    return Policy.parse(TEXT.replace(old, new), source="p.yaml")


def read(loaded: Policy, sender: str, recipient: str) -> list[str]:
    context = Context(sender, recipient, Kind.DATA, "get_data", transport="safeser")
    return sorted(readable(loaded, context))


def test_a_user_reads_its_own_values_and_those_that_are_listed() -> None:
    assert read(policy(), "ann", "scheduler") == ["ann", "cy", "dan"]
    assert read(policy("  values: [group:guests]\n"), "ann", "scheduler") == ["ann"]


SERVERS = {"scheduler", "worker-a", "worker-b"}
EVERYONE = sorted({"ann", "bea", "cy", *SERVERS})


def test_workers_read_all_values() -> None:
    assert read(policy(), "worker-a", "worker-b") == EVERYONE
    assert read(policy(), "worker-b", "scheduler") == EVERYONE


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ("[group:guests]", ["ann", "cy", "dan"]),
        ("[group:staff, group:guests]", sorted({*EVERYONE, "dan"})),
        ("[bea, cy]", EVERYONE),
    ],
)
def test_who_may_read_values_of_every_user_reads_those_of_workers(
    values: str, found: list[str]
) -> None:
    loaded = policy("  values: [group:guests]\n", f"  values: {values}\n")
    assert read(loaded, "ann", "scheduler") == found
    asked = Context("ann", "scheduler", Kind.DATA, "gather", transport="safeser")
    assert reads_all(loaded, asked) is ("bea" in found)


def test_who_brings_values_counts_as_a_user() -> None:
    brings = "- {name: dan, sender: dan, recipient: scheduler, operations: {grant: [scatter]}}\n"
    text = TEXT.replace("  values: [group:guests]\n", "  values: [bea, cy]\n") + brings
    assert read(Policy.parse(text), "ann", "scheduler") == ["ann", "bea", "cy"]


def test_a_policy_without_workers_has_nobody_who_reads_all() -> None:
    loaded = policy("register-worker, gather", "gather")
    assert not reads_all(loaded, Context("ann", "scheduler", Kind.DATA, "gather"))
    assert read(loaded, "worker-b", "worker-a") == ["worker-b"]


def test_without_a_context_no_value_is_read() -> None:
    assert read(policy(), "ann", "worker-a") == []
    assert read(policy(), "nobody", "scheduler") == []


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ("[nobody]", "config.undefined"),
        ("[group:nobody]", "config.undefined"),
        ("[any]", "floor.author"),
        ("[unknown]", "floor.author"),
        ("[worker-a]", "config.no-effect"),
        ("[]", "config.empty"),
    ],
)
def test_names_that_mean_nothing_are_refused(values: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy("  values: [cy]\n", f"  values: {values}\n")
    assert caught.value.rule == rule


def test_a_group_of_one_may_be_listed_for_itself() -> None:
    text = TEXT.replace("ann: {groups: [staff]}", "ann: {groups: [solo]}")
    text = text.replace("sender: [ann, bea, cy]", "sender: ann")
    loaded = Policy.parse(text.replace("values: [group:guests]", "values: [group:solo]"))
    assert read(loaded, "ann", "scheduler") == sorted({"ann", *SERVERS})


def test_values_need_an_operation_that_reads_some() -> None:
    with pytest.raises(ConfigError, match="the sender may ask the recipient for none"):
        policy(
            "  operations: {grant: [get_data]}\n  values",
            "  operations: {grant: [identity]}\n  values",
        )


def test_nobody_unknown_reads_values_of_others() -> None:
    with pytest.raises(ConfigError) as caught:
        policy(
            "  sender: [ann, bea, cy]\n  recipient: scheduler\n  submission: sealed\n",
            "  sender: [ann, unknown]\n  recipient: scheduler\n",
        )
    assert caught.value.rule == "floor.unknown"
