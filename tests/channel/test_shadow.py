"""A shadow policy is judged beside the enforced one: recorded, and nothing else."""

from __future__ import annotations

import pickle
import time
from itertools import product
from pathlib import Path

import pytest

from safeser import families
from safeser.errors import ConfigError, PayloadError, PolicyDenied
from safeser.gate.values import FAMILIES, SEALED, Context, Kind
from safeser.policy import Policy
from tests.refusal import refusal

ONE = ({"serializer": "msgpack"}, [b"\x01"])
PICKLE = {"serializer": "pickle", "writeable": []}


def stricter(policy: str, *changes: tuple[str, str]) -> Policy:
    """Return the policy of these tests, whose first context is that of ann, with less in it."""
    for old, new in changes:
        assert old in policy
        policy = policy.replace(old, new, 1)
    return Policy.parse(policy.replace("name: doors", "name: shadow"))


CODE = "[dask, msgpack, pickle, cloudpickle]"
PICKLES = (CODE, "[dask, msgpack, pickle]"), (CODE, "[dask, msgpack, pickle]")
NO_CODE = (
    ("    submission: code\n", ""),
    *PICKLES,
    ("operations: {grant: [basic, run]}", "operations: {grant: [identity]}"),
)
DATA = (*NO_CODE, ("profile: [data, numpy]", "profile: [data]"))
NOTHING = (
    *NO_CODE,
    *(("[dask, msgpack, pickle]", "[msgpack]"),) * 2,
    ("    pickle: {profile: [data, numpy]}\n", ""),
)


@pytest.fixture
def bea(doors, policy):
    """Return a function that makes bea's side of a connection which ann opened, under a shadow."""

    def made(shadow=None, enforced=policy):
        ann = doors.channel("ann", enforced)
        bea = doors.channel("bea", enforced, shadow=shadow)
        near, far = doors.shake(ann, bea)
        return far, far.verify(near.session.seal(b"", []))

    return made


def admitted(link, message, *payloads, kind=Kind.DATA, operation="scatter"):
    context = link.inbound(kind, operation)
    each = [link.payload(message, context, f"x{at}", *one) for at, one in enumerate(payloads)]
    return link.admit(message, context, each)


def rules(link):
    return [event.get("shadow_rule") for event in link.audit.events if event["event"] == "admit"]


def test_what_a_shadow_refuses_passes_and_is_recorded(bea, policy):
    link, message = bea(stricter(policy, *NO_CODE))
    assert link.load(admitted(link, message, ONE)) == [1]
    assert rules(link) == ["operation.not-granted"]
    link, message = bea(stricter(policy, *NOTHING))
    array = families.serialize([1.5], ["dask", "msgpack"])
    assert link.load(admitted(link, message, array, operation=None)) == [[1.5]]


def test_a_shadow_that_permits_everything_loosens_nothing(bea, policy):
    generous = policy.replace(
        "deserializers: [dask, msgpack, pickle]", f"submission: code\n    deserializers: {CODE}"
    )
    link, message = bea(Policy.parse(generous), enforced=policy.replace("[basic, run]", "[basic]"))
    with refusal(PolicyDenied, "operation.not-granted"):
        admitted(link, message, kind=Kind.CONTROL, operation="run")
    assert [event["permitted"] for event in link.audit.events if event["event"] == "refuse"] == [
        False
    ]
    assert rules(link) == []


class Weird:
    def __reduce__(self):
        return (print, ("hello",))


@pytest.mark.parametrize(
    ("value", "changes", "expected"),
    [
        (
            {1, 2},
            NO_CODE,
            None,
        ),  # of profile data, although it counts as code where code is granted
        (complex(1, 2), DATA, None),
        (Weird(), NO_CODE, "pickle.global"),
        (Weird(), NOTHING, "context.family"),
        (Weird(), (), None),
        (b"x" * (2 << 20), NO_CODE, "shadow.unread"),
        (b"x" * (1 << 19), NO_CODE, None),
        (list(range(1 << 15)), NO_CODE, "shadow.unread"),
        (list(range(1 << 12)), NO_CODE, None),
    ],
)
def test_a_pickle_is_read_for_the_shadow(bea, policy, value, changes, expected):
    link, message = bea(stricter(policy, *changes))
    admitted(link, message, (PICKLE, [pickle.dumps(value)]), operation=None)
    assert rules(link) == [expected]


@pytest.mark.parametrize("together", [True, False])
def test_all_pickles_of_a_message_share_what_is_read_for_the_shadow(bea, policy, together):
    """The elements of a batch too, each of which is admitted by itself."""
    link, message = bea(stricter(policy, *NO_CODE))
    each = (PICKLE, [pickle.dumps(list(range(2_000)))])  # 6 kB
    for payloads in ([each] * 5,) if together else ([each],) * 5:
        admitted(link, message, *payloads, operation=None)
    assert rules(link) == [None, None, None, "shadow.unread", "shadow.unread"]


@pytest.mark.parametrize("opcode", [b"\x8f", b"}", b"N0", b"(1", b"\x94", b"(\x91"])
def test_reading_for_the_shadow_ends_soon(bea, policy, opcode):
    link, message = bea(stricter(policy, *NO_CODE))
    hostile = b"\x80\x04](" + opcode * (900_000 // len(opcode)) + b"e."
    start = time.process_time()
    admitted(link, message, (PICKLE, [hostile]), operation=None)
    assert time.process_time() - start < 0.5  # 4 seconds without a bound
    assert rules(link)[0] is not None


def test_a_header_that_claims_another_family_does_not_deceive_the_shadow(bea, policy):
    link, message = bea(stricter(policy, *NOTHING))
    context = link.inbound(Kind.DATA)
    for claim in ({"family": "msgpack"}, {"shadow_rule": "permit"}):
        with pytest.raises(PayloadError):
            link.payload(message, context, "x", {**PICKLE, **claim}, [pickle.dumps({1})])
    admitted(link, message, (PICKLE, [pickle.dumps({1})]), operation=None)
    assert rules(link) == ["context.family"]


def test_a_plain_message_is_counted_by_the_shadows_rule(bea, policy):
    link, message = bea(stricter(policy, *NO_CODE))
    context = link.inbound(Kind.ADMIN, "gather")
    first = link.admit(message, context)
    assert link.holds_again(message, link.policy)
    link.count_again(first)
    link.admit(message, link.inbound(Kind.ADMIN, "identity"))
    assert link.audit.counts[1:] == [
        ("ann", "bea", "gather", "shadow.operation.not-granted", True),
        ("ann", "bea", "gather", "shadow.operation.not-granted", True),
        ("ann", "bea", "identity", "permit", True),
    ]


def test_a_shadow_is_replaced_while_links_live(doors, policy):
    ann, bea = doors.channel("ann", policy), doors.channel("bea", policy)
    near, link = doors.shake(ann, bea)
    assert bea.shadow is None
    bea.adopt(shadow=stricter(policy, *NO_CODE))
    admitted(link, link.verify(near.session.seal(b"", [])), kind=Kind.CONTROL, operation="run")
    assert rules(link) == ["operation.not-granted"]
    assert any(event["rule"] == "shadow.adopted" for event in link.audit.events)
    assert not link.session.ended


# --- mode: observe --------------------------------------------------------------------------------


def observing(policy: str) -> str:
    return policy.replace("revision: 3", "revision: 3\nmode: observe")


def test_an_observing_policy_records_what_its_contexts_refuse(bea, policy):
    text = observing(policy)
    for old, new in NO_CODE:
        text = text.replace(old, new, 1)
    link, message = bea(enforced=text)
    assert link.policy.observes
    admitted(link, message, kind=Kind.CONTROL, operation="restart")
    admitted(link, message, ONE, operation=None)
    assert rules(link) == ["operation.not-granted", None]
    with refusal(PolicyDenied, "operation.not-granted"):  # no context sends code to bea
        admitted(link, message, kind=Kind.CONTROL, operation="run")


def test_a_relay_of_data_is_recorded_and_one_of_questions_counted(bea):
    """A count says the operation alone, which replaying takes for one of its weakest kind."""
    link, message = bea()
    for kind in (Kind.ADMIN, Kind.DATA):
        link.note_plain(message, link.inbound(kind, "broadcast"))
    link.note_reading(link.inbound(Kind.DATA, "gather"), {"cy", "dora"})
    made = [(each["event"], each["kind"], each["author"]) for each in link.audit.events[-3:]]
    assert made == [("admit", "data", ""), ("read", "data", "cy"), ("read", "data", "dora")]


def test_while_observing_the_family_of_a_pickle_is_that_of_the_file(bea, policy):
    """Another context sends code to bea; the one of ann lets pickles pass, of these profiles."""
    text = observing(policy)
    for old, new in (*NO_CODE, ("sender: cy\n", "sender: cy\n    submission: code\n")):
        text = text.replace(old, new, 1)
    for value, family in ((complex(1, 2), "pickle"), (Weird(), "cloudpickle")):
        link, message = bea(enforced=text)
        admitted(link, message, (PICKLE, [pickle.dumps(value)]), operation=None)
        assert [each["family"] for each in link.audit.events][-1] == family


SIGNED = """safeser: 1
name: signed
revision: 1
mode: observe
principals: {s: {}, w: {}, carol: {}, alice: {}}
contexts:
  - {name: submit, sender: carol, recipient: s, submission: sealed, operations: {grant: basic}}
  - {name: look, sender: alice, recipient: s, operations: {grant: look}}
  - {name: hand, sender: s, recipient: w, authors: carol, submission: sealed,
     operations: {grant: cluster}}
  - {name: results, sender: [s, w], recipient: [carol, alice], kinds: [admin, data]}
"""


@pytest.mark.parametrize(
    ("sender", "recipient", "operation", "family", "permitted"),
    [
        ("alice", "s", "update-graph", "sealed", True),  # as she would under the file if she might
        ("alice", "s", "update-graph", "cloudpickle", False),
        ("alice", "w", "run", "cloudpickle", True),  # workers run what is signed: code reaches them
        ("w", "alice", None, "dask", True),
        ("w", "alice", None, "pickle", False),
        ("w", "alice", None, "cloudpickle", False),
        ("w", "alice", "upload_file", "msgpack", False),
        ("w", "alice", "terminate", "msgpack", True),
        ("w", "s", "run_function", "cloudpickle", False),
    ],
)
def test_code_goes_where_the_file_sends_code(sender, recipient, operation, family, permitted):
    observed = Policy.parse(SIGNED)
    context = Context(sender, recipient, "control", operation, transport="safeser", same_host=True)
    for sealing in (True, False):
        found = observed.decide(context, family, sealing=sealing)
        assert found.permitted is permitted, found
    assert observed.may_sign("alice", "s", Kind.TASK)


def test_an_observing_policy_keeps_the_floors(policy):
    observed = Policy.parse(observing(policy))
    everything = ("dask", "pickle", "cloudpickle", "sealed")
    for sender, recipient in (("eve", "bea"), ("bea", "eve"), ("unknown", "bea")):
        for family in ("msgpack", *everything):
            for sealing in (True, False):
                context = Context(sender, recipient, "task", "update-graph")
                assert not observed.decide(context, family, sealing=sealing).permitted
    for family in everything:
        assert observed.decide(Context("ann", "bea", "admin"), family).rule == "floor.admin"
    assert not observed.decide(Context("ann", "bea"), "no-such-family").permitted
    assert not observed.decide(Context("ann", "bea", "control", "no-such"), "msgpack").permitted
    assert not observed.decide(Context("ann", "bea"), "cloudpickle", author="eve").permitted
    assert observed.decide(Context("dora", "cy"), "cloudpickle", author="ann").permitted


def test_unknown_has_what_the_contexts_say(policy):
    text, _, _ = observing(policy).partition("limits:")
    text += "  - {name: strangers, sender: unknown, recipient: bea, kinds: [admin, data]}\n"
    observed = Policy.parse(text)
    assert observed.decide(Context("eve", "bea"), "msgpack").context == "strangers"
    assert not observed.decide(Context("eve", "bea"), "dask").permitted
    assert not observed.decide(Context("eve", "bea", "task"), "msgpack").permitted


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("mode: observe", "mode: observer"), "config.mode"),
        (("dora: {}", "dora: {confined: {}}"), "config.no-effect"),
        (
            (
                "limits:",
                "  - {name: w, sender: dora, recipient: ann,"
                " operations: {grant: [register-worker]}}\nlimits:",
            ),
            None,
        ),
    ],
)
def test_a_file_that_observes_is_as_strict_as_others(policy, change, rule):
    text = observing(policy).replace(*change)
    if rule is None:
        Policy.parse(text)
        text = text.replace("dora: {}", "dora: {confined: {}}")
        rule = "config.observe"
    with refusal(ConfigError, rule):
        Policy.parse(text)


@pytest.mark.parametrize("name", ["strict", "dask-cluster", "demo", "default", "trusted"])
def test_what_the_contexts_permit_is_permitted_while_they_are_observed(name):
    """Sealed calls too, which a context of code refuses."""
    path = Path(__file__).parents[2] / "policies" / f"{name}.yaml"
    enforced = Policy.parse(path.read_text())
    text = path.read_text().replace("\nprincipals:", "\nmode: observe\nprincipals:", 1)
    observed = Policy.parse(text)
    assert observed.observes
    asked = permitted = 0
    ends = sorted({*enforced.principals, "unknown"})
    operations = (None, "update-graph", "compute-task", "gather", "get_data", "run")
    for sender, recipient, kind, operation in product(ends, ends, Kind, operations):
        context = Context(sender, recipient, kind, operation, transport="safeser", same_host=True)
        for family, sealing in product((*FAMILIES, SEALED), (True, False)):
            asked += 1
            if enforced.decide(context, family, sealing=sealing).permitted:
                permitted += 1
                found = observed.decide(context, family, sealing=sealing)
                assert found.permitted, (context, family)
        if enforced.permits_operation(context).permitted:
            assert observed.permits_operation(context).permitted
    assert 0 < permitted < asked
