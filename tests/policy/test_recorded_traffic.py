"""``policy replay`` and ``policy learn``: on recorded traffic, honest and hostile."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.values import Context, Kind
from safeser.operations import NAMES as OPERATION_NAMES
from safeser.policy import Policy
from safeser.policy.ready import locate
from safeser.policy.recorded import traffic as traffic_module
from safeser.policy.recorded.learn import learn
from safeser.policy.recorded.replay import as_json, replay
from safeser.policy.recorded.traffic import Example, Message, gather
from safeser.policy.rules import WEAKEST
from tests.draws import draws
from tests.policy.random_policies import QUESTIONS, loaded, policies

NOON = 1_790_000_000_000_000


@dataclass
class Record:
    fields: dict[str, Any] = field(default_factory=dict)
    time: int = NOON
    type: str = "event"


def admit(sender: str, recipient: str, **said: Any) -> Record:
    base = {
        "event": "admit",
        "sender": sender,
        "recipient": recipient,
        "kind": "data",
        "operation": "",
        "family": "dask",
        "author": sender,
        "where": "data",
        "rule": "permit",
        "permitted": True,
    }
    return Record({**base, **said})


def counts(*rows: Any) -> Record:
    return Record({"counts": [*rows]}, type="counts")


HEARTBEAT = ["worker", "scheduler", "heartbeat_worker", "permit", True, 40]


# --- gathering ------------------------------------------------------------------------------------


def test_records_become_messages_with_counts_and_times() -> None:
    second = admit("alice", "scheduler")
    second.time = NOON + 5_000_000
    found = gather([second, admit("alice", "scheduler"), counts(HEARTBEAT, HEARTBEAT)])
    data = Message("alice", "scheduler", Kind.DATA, None, "dask", None)
    beat = Message("worker", "scheduler", Kind.ADMIN, "heartbeat_worker", "msgpack", None)
    assert found.messages.keys() == {data, beat}
    seen = found.messages[data]
    assert (seen.times, seen.first, seen.last) == (2, NOON, NOON + 5_000_000)
    assert (found.messages[beat].times, found.times, found.skipped) == (80, 82, 0)


def test_an_example_says_where_the_log_has_a_message() -> None:
    beats = counts(HEARTBEAT)
    single = admit("worker", "scheduler", kind="admin", operation="heartbeat_worker", family="")
    single.fields |= {"task": "inc-1", "where": "x"}
    single.time = NOON + 1
    other = Record(single.fields | {"task": "inc-2"})
    first, second = (Record({"principal": name}, type="genesis") for name in ("worker", "spare"))
    [seen] = gather([first, beats]).messages.values()
    assert seen.example == Example(NOON, "worker")
    # One that is a record of its own is found again, unlike one of many that were counted.
    [seen] = gather([first, beats, second, single, other]).messages.values()
    assert seen.example == Example(NOON + 1, "spare", "inc-1", "x", True)
    hostile = admit("alice", "scheduler", task="t" * 9_999, where=["x"])
    [seen] = gather([Record({"principal": 5}, type="genesis"), hostile]).messages.values()
    assert seen.example == Example(NOON, "", "t" * 128, "", True)


@pytest.mark.parametrize(
    "record",
    [
        admit("alice", "scheduler", permitted=False, event="refuse"),
        admit("alice", "scheduler", permitted=False),
        admit("alice", "scheduler", permitted="true"),
        admit("alice", "scheduler", permitted=1),
        admit("alice", "scheduler", event="load"),
        counts(["a", "b", "identity", "operation.not-granted", False, 3]),
        counts(["a", "b", "handshake", "suite.encrypt", True, 3]),
        counts(["a", "b", "identity", "permit", True, -3]),
        counts(["a", "b", "identity", "permit", True, True]),
        counts(["a", "b", "identity", "permit", 1, 3]),
        counts("abcdef", {}, None, 5, []),
        Record({"counts": "x"}, type="counts"),
        Record({}, type="genesis"),
    ],
)
def test_what_was_not_permitted_is_no_traffic(record: Record) -> None:
    found = gather([record])
    assert (found.messages, found.skipped) == ({}, 0)


HOSTILE = ("\x1b[31m", "a\nb: c", "&x", "{}", "a" * 65, "", "=1+1", "<script>", "\u202e", " a", "é")


@pytest.mark.parametrize(
    "said",
    [
        *({"sender": name} for name in (*HOSTILE, "unknown", "any", 5, None, ["alice"])),
        *({"recipient": name} for name in ("unknown", "a b", None)),
        *({"author": name} for name in ("unknown", "a b", "\n")),
        {"kind": "everything"},
        {"kind": None},
        {"operation": "no-such-operation"},
        {"operation": "run"},  # never of kind data
        {"family": "DASK"},
        {"family": "a\nb"},
        {"family": "sealed", "recipient": "carol", "author": "carol"},  # a reply to its author
        {"family": "any"},  # words of the language, which name no family
        {"family": "unknown"},
    ],
)
def test_what_no_policy_can_be_asked_about_is_skipped_and_counted(said: dict[str, Any]) -> None:
    record = admit("alice", "scheduler")
    found = gather([Record({**record.fields, **said})])
    assert (found.messages, found.skipped) == ({}, 1)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_module, "MOST_MESSAGES", 10)
    with pytest.raises(ConfigError) as caught:
        gather(admit(f"user-{number}", "scheduler") for number in range(11))
    assert caught.value.rule == "config.log-size"


# --- replay ---------------------------------------------------------------------------------------


def test_replay_names_what_is_refused_the_most_frequent_first() -> None:
    pickles = [admit("carol", "scheduler", family="pickle")] * 3
    steer = admit("dashboard", "scheduler", kind="control", operation="restart", family="")
    found = gather([*pickles, steer, admit("carol", "scheduler")])
    policy = Policy.load("dask-cluster")
    refused = replay(policy, found)
    assert [(each.decision.rule, each.seen.times) for each in refused] == [
        ("context.family", 3),
        ("operation.not-granted", 1),
    ]
    said = json.loads(json.dumps(as_json(policy, found, refused)))
    assert said["messages"] == 5
    assert said["refused"][0]["sender"] == "carol"
    assert said["refused"][0]["kind"] == "data"
    example = {"time": NOON, "log": "", "task": "", "where": "data", "single": True}
    assert said["refused"][0]["example"] == example
    assert replay(policy, gather([admit("carol", "scheduler")])) == []


VALUES, DASK = "    values: [group:engineers]\n", "    serializers: [dask, msgpack]\n"
TASK = {"sender": "scheduler", "recipient": "worker", "kind": "task", "operation": "compute-task"}

#: What replay refuses that the decision on the message itself permits: which line of which context
#: of policy dask-cluster becomes what, what the log has, and the rule.
BESIDE = [
    ("viewers-look", VALUES, "", {"event": "read", "author": "carol"}, "values.author"),
    (
        "viewers-fetch",
        VALUES,
        "",
        {"recipient": "worker", "operation": "get_data"},
        "values.direct",
    ),
    (
        *("viewers-fetch", "close, get_data", "close, get_data, update_data"),
        *({"recipient": "worker", "operation": "update_data"}, "key.direct"),
    ),
    (
        *("scheduler-hands-out-tasks", "[group:engineers]", "[group:engineers, alice]"),
        *({**TASK, "family": "sealed", "author": "alice"}, "sealed.author"),
    ),
    ("scheduler-hands-out-tasks", "", "", {**TASK, "family": "dask"}, "sealed.required"),
    (
        *("results", DASK, ""),
        *({"sender": "scheduler", "recipient": "alice", "family": "dask"}, "context.family"),
    ),
    (
        *("engineers-submit-sealed", DASK, f"    kinds: [control, data]\n{DASK}"),
        *({"sender": "carol", "kind": "control", "operation": "broadcast"}, "context.none"),
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "said", "rule"), BESIDE)
def test_replay_asks_what_enforcing_asks_beside_the_decision(name, old, new, said, rule) -> None:
    above, named, text = locate("dask-cluster").read_text("utf-8").partition(f"- name: {name}\n")
    changed = above + named + text.replace(old, new, 1)
    policy = Policy.parse(changed.partition("acknowledge:")[0])
    base = {"sender": "alice", "recipient": "scheduler", "operation": "gather", "family": ""}
    joined = counts(["worker", "scheduler", "register-worker", "permit", True, 1])
    found = gather([admit(**{**base, **said}), joined])
    message = next(iter(found.messages))
    context = message.context(same_host=True)
    assert policy.decide(context, message.family, author=message.author).permitted
    assert [each.decision.rule for each in replay(policy, found)] == [rule]


def test_where_ends_are_is_in_no_log() -> None:
    text = "safeser: 1\nname: near\nrevision: 1\nprincipals: {a: {}, b: {}}\ncontexts:\n"
    policy = Policy.parse(f"{text}- {{name: x, sender: a, recipient: b, same_host: true}}\n")
    [refused] = replay(policy, gather([admit("a", "b", family="")]))
    assert (refused.decision.rule, refused.same_host) == ("context.none", False)
    library = Policy.parse(f"{text}- {{name: x, sender: a, recipient: b, transport: library}}\n")
    records = [admit("a", "b", family="", transport="library"), admit("a", "b", family="")]
    assert [each.message.transport for each in replay(library, gather(records))] == ["safeser"]


# --- learn ----------------------------------------------------------------------------------------


def test_both_halves_of_a_relay_are_learned() -> None:
    records = [
        counts(beat("carol", "register-client")),
        admit("carol", "scheduler", kind="control", operation="broadcast", family="cloudpickle"),
        admit("carol", "scheduler", kind="control", operation="run", family=""),
    ]
    policy = Policy.parse(learn(gather(records)))
    for kind, name in (("admin", "broadcast"), ("control", "broadcast"), ("control", "run")):
        assert policy.permits_operation(Context("carol", "scheduler", kind, name)).permitted
    # The group of that name has more.
    context = Context("carol", "scheduler", "control", "run_function")
    assert not policy.permits_operation(context).permitted


@pytest.mark.parametrize("like", [None, "dask-cluster"])
def test_no_code_is_proposed_to_a_user(like: str | None) -> None:
    records = [
        counts(beat("alice", "register-client")),
        admit("worker", "alice", family="cloudpickle", author="carol"),
        admit("carol", "alice", kind="control", operation="run", family="cloudpickle"),
        admit("scheduler", "alice", kind="task", operation="compute-task", family="sealed"),
    ]
    text = learn(gather(records), like=None if like is None else Policy.load(like))
    policy = Policy.parse(text)
    assert not any(rule.submission != "none" for rule in policy.contexts)
    assert text.count("#     RISK: code where none is sent to") == 3


def recorded(policy: Policy, first: int = 0, step: int = 1) -> list[Record]:
    """Return the records of all messages that *policy* permits between listed principals."""
    found = []
    for context, family, sealing, author in QUESTIONS[first::step]:
        plain = Context(context.sender, context.recipient, context.kind, context.operation)
        known = context.operation is None or context.operation in OPERATION_NAMES
        if (
            not {context.sender, context.recipient} <= policy.principals.keys()
            or not known
            or (
                known
                and context.operation
                and WEAKEST[context.operation].strength > context.kind.strength
            )
            or sealing
            or author == "unknown"
            or not policy.decide(plain, family, author=author).permitted
        ):
            continue
        found.append(
            admit(
                context.sender,
                context.recipient,
                kind=context.kind.value,
                operation=context.operation or "",
                family=family,
                author=author or context.sender,
            )
        )
    return found


@given(policies(), st.integers(0, 6), st.sampled_from([13, 40]))
@draws(40)
def test_what_is_learned_loads_and_permits_what_it_was_learned_from(
    spelled: dict[str, Any], first: int, step: int
) -> None:
    policy = loaded(spelled)
    records = recorded(policy, first, step)
    found = gather(records)
    text = learn(found, like=policy)
    assert learn(gather(reversed(records)), like=policy) == text
    if found.messages:
        # Random messages are those of no cluster: no worker that is asked for values registers.
        left = {each.decision.rule for each in replay(Policy.parse(text), found)}
        assert left <= {"values.direct", "key.direct", "sealed.author", "sealed.required"}


@pytest.mark.parametrize("name", ["default", "strict", "dask-cluster", "trusted"])
def test_a_proposal_permits_nothing_that_was_not_seen(name: str) -> None:
    policy = Policy.load(name)
    sender, recipient = (
        ("client", "scheduler") if name != "dask-cluster" else ("carol", "scheduler")
    )
    records = [
        admit(sender, recipient, family="dask"),
        admit(sender, recipient, kind="admin", operation="identity", family=""),
    ]
    learned = Policy.parse(learn(gather(records), like=policy))
    assert not learned.decide(Context(sender, recipient), "pickle").permitted
    assert learned.decide(Context(sender, recipient), "dask").permitted
    admin = Context(sender, recipient, "admin", "identity")
    assert learned.permits_operation(admin).permitted
    assert not learned.permits_operation(Context(sender, recipient, "admin", "ping")).permitted
    assert not learned.decide(Context(recipient, sender), "msgpack").permitted
    assert learned.revision == policy.revision + 1


def test_groups_profiles_and_values_come_from_the_policy_of_the_traffic() -> None:
    like = Policy.parse(
        "safeser: 1\nname: like\nrevision: 4\n"
        "principals: {s: {}, a: {groups: [g]}, b: {groups: [g]}, c: {groups: [g]}}\ncontexts:\n"
        "- name: x\n  sender: group:g\n  recipient: s\n  values: [group:g]\n"
        "  serializers: [msgpack, pickle]\n  deserializers: [msgpack, pickle]\n"
        "  pickle: {profile: [data, numpy], allow: {'my.lib:P': class}}\n"
        "  operations: {grant: [basic]}\n"
    )
    seen = [admit(name, "s", operation="gather", family="pickle") for name in "ab"]
    text = learn(gather(seen), like=like)
    assert "sender: group:g" in text
    assert "values: [group:g]" in text
    assert 'pickle: {profile: [data, numpy], allow: {"my.lib:P": class}}' in text
    assert "revision: 5" in text
    Policy.parse(text)


def beat(sender: str, operation: str) -> list[Any]:
    return [sender, "scheduler", operation, "permit", True, 1]


def test_what_roles_need_to_end_is_proposed_and_marked() -> None:
    came = (beat("w1", "register-worker"), beat("nan", "register_nanny"))
    text = learn(gather([counts(beat("w1", "heartbeat_worker"), *came)]))
    assert "# What says 'not seen, needed by the role' is in no log" in text
    assert "        - close    # not seen, needed by the role" in text
    assert "        - heartbeat_worker    # 1 times" in text
    policy = Policy.parse(text)
    for sender, recipient, kind, name in (
        ("scheduler", "w1", "control", "close"),
        ("scheduler", "w1", "admin", "close-stream"),
        ("w1", "scheduler", "admin", "close-stream"),
        ("w1", "scheduler", "data", "task-erred"),
        ("w1", "nan", "control", "close_gracefully"),
        ("nan", "scheduler", "control", "unregister"),
    ):
        assert policy.permits_operation(Context(sender, recipient, kind, name)).permitted, name
    for ends in (("w1", "nan"), ("nan", "w1")):  # Dask's handshake, and the answer
        assert policy.decide(Context(*ends, "admin"), "msgpack").permitted
    for sender, recipient, kind, name in (
        ("scheduler", "w1", "task", "compute-task"),  # code
        ("w1", "w1", "data", "get_data"),  # values
        ("scheduler", "nan", "control", "close"),
        ("scheduler", "w1", "control", "terminate"),
    ):
        assert not policy.permits_operation(Context(sender, recipient, kind, name)).permitted, name
    assert not policy.decide(Context("scheduler", "w1", "task"), "pickle").permitted


@pytest.mark.parametrize("seen", [True, False])
def test_where_a_frame_was_shuffled_all_that_shuffles_ask_is_proposed(seen: bool) -> None:
    got = [admit("w1", "scheduler", operation="shuffle_get_or_create", family="")] * seen
    policy = Policy.parse(learn(gather([counts(beat("w1", "register-worker")), *got])))
    asked = Context("w1", "scheduler", "data", "shuffle_get")
    assert policy.permits_operation(asked).permitted is seen
    failed = Context("scheduler", "w1", "admin", "shuffle-fail")
    assert policy.permits_operation(failed).permitted is seen


def test_workers_do_not_get_the_nannies_of_others() -> None:
    came = [beat(name, what) for name in "ab" for what in ("register-worker", "register_nanny")]
    policy = Policy.parse(learn(gather([counts(*came)])))
    for one, other, permitted in (("a", "a", True), ("a", "b", False), ("b", "a", False)):
        context = Context(one, other, "control", "close_gracefully")
        assert policy.permits_operation(context).permitted is permitted


def test_a_worker_of_another_group_is_an_error_with_advice() -> None:
    seen = [
        admit("w1", "s", kind="task", operation="update-graph", family="sealed"),
        admit("s", "w1", kind="task", operation="compute-task", family="sealed", author="w2"),
        admit("s", "w2", kind="task", operation="compute-task", family="sealed", author="w1"),
        counts(*([name, "s", "register-worker", "permit", True, 1] for name in ("w1", "w2"))),
    ]
    with pytest.raises(ConfigError) as caught:
        learn(gather(seen))
    assert caught.value.rule == "config.learned"
    assert "--like" in caught.value.fix


def test_what_one_record_can_add_is_marked() -> None:
    """Logs are unverified: a thief of a folder writes lines into them."""
    records = [
        admit("ann", "bea"),
        admit("mallory", "scheduler", kind="control", operation="terminate", family=""),
        admit("mallory", "bea", family="evilfam"),
    ]
    like = Policy.parse(
        "safeser: 1\nname: team\nrevision: 1\n"
        "principals: {ann: {}, bea: {}, scheduler: {}}\n"
        "contexts: [{name: c, sender: ann, recipient: bea, kinds: [data]}]\n"
    )
    text = learn(gather(records), like=like)
    lines = text.splitlines()
    assert "  mallory: {}    # RISK: team does not list it" in lines
    assert "  ann: {}" in lines
    assert "    kinds: [control]    # RISK: these end, restart and register processes" in lines
    assert lines[lines.index("families: [evilfam]") - 1].startswith("# RISK")
