"""Two channels back to back: what is sealed on one side opens on the other, or is refused whole."""

from __future__ import annotations

import copy
import datetime
import decimal
import pickle
import sys
import threading

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser import families, pickles
from safeser.channel import Channel
from safeser.errors import (
    AuditError,
    AuthenticationError,
    ConfigError,
    EnvelopeError,
    PayloadError,
    PolicyDenied,
    SafeserError,
)
from safeser.identity import KeyState, Roster, RosterEntry
from safeser.values import Context, Kind

TODAY = datetime.date(2026, 1, 1)


class Pair:
    """Channels of two principals, linked."""

    def __init__(self, doors, policy, one, two):
        self.one, self.two = doors.channel(one, policy), doors.channel(two, policy)
        self.there, self.back = doors.shake(self.one, self.two)
        self.context = Context(one, two, Kind.DATA)


@pytest.fixture
def pair(doors, policy):
    return lambda one, two: Pair(doors, policy, one, two)


# --- round trips ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, "text", b"bytes"], "b": (1, 2)},
        {1, 2},
        decimal.Decimal("1.5"),
        datetime.timedelta(days=2),
        [np.arange(3).sum(), datetime.date(2026, 1, 2)],
    ],
)
def test_values_arrive_as_they_were(pair, value):
    p = pair("ann", "bea")
    assert p.two.open(p.one.seal(value, p.context), p.context) == value
    [event] = p.two.audit.events
    assert (event["event"], event["permitted"], event["rule"]) == ("admit", True, "permit")


@pytest.mark.parametrize("dtype", ["f8", "<i4", "M8[ns]", "U3"])
def test_arrays_arrive_as_arrays(pair, dtype):
    p = pair("bea", "ann")
    sent = np.zeros((3, 4), dtype)
    got = p.two.open(p.one.seal(sent, p.context), p.context)
    assert got.dtype == sent.dtype
    assert np.array_equal(got, sent)
    assert p.two.audit.events[0]["family"] == "dask"


def test_exceptions_arrive_as_exceptions(pair):
    p = pair("bea", "ann")
    got = p.two.open(p.one.seal(ValueError("wrong", 3), p.context), p.context)
    assert isinstance(got, ValueError)
    assert got.args == ("wrong", 3)


def test_code_arrives_where_it_is_granted(pair):
    p = pair("ann", "bea")
    context = Context("ann", "bea", Kind.TASK, None)
    got = p.two.open(p.one.seal(lambda x: x + 1, context), context)
    assert got(1) == 2
    assert p.two.audit.events[0]["family"] == "cloudpickle"


def test_code_is_not_sealed_where_it_is_not_granted(pair):
    p = pair("bea", "ann")
    with pytest.raises(PayloadError) as caught:
        p.one.seal(lambda x: x, p.context)
    assert caught.value.rule == "families.cannot-serialize"


def test_each_side_can_speak(pair):
    p = pair("ann", "bea")
    back = Context("bea", "ann", Kind.DATA, None)
    for number in range(3):
        assert p.two.open(p.one.seal(number, p.context), p.context) == number
        assert p.one.open(p.two.seal(-number, back), back) == -number


def test_what_a_socket_gave_in_pieces_opens_as_well(pair):
    p = pair("ann", "bea")
    whole = b"".join(p.one.seal([1, 2], p.context))
    assert p.two.open([whole[i : i + 7] for i in range(0, len(whole), 7)], p.context) == [1, 2]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
def test_any_plain_value_arrives(doors, policy, value):
    p = Pair(doors, policy, "cy", "bea")
    assert p.two.open(p.one.seal(value, p.context), p.context) == value


def test_the_operation_travels_and_must_be_the_expected_one(pair):
    p = pair("ann", "bea")
    context = Context("ann", "bea", Kind.DATA, "scatter")
    assert p.two.open(p.one.seal(1, context), context) == 1


# --- refusals ---------------------------------------------------------------------------------


def forge(p, header, frames=(), *, kind="data", operation=None):
    """Seal on one side what its own door would not have sealed."""
    body = msgpack.packb([header, kind, operation])
    return p.there.session.seal(body, list(frames))


PICKLE = {"serializer": "pickle", "writeable": []}


@pytest.fixture(scope="module", autouse=True)
def _lists_are_read():
    """Have the profiles read, so that a refusal later shows what it imports by itself."""
    pickles.Profile.of(pickles.DATA_PROFILES)


def refused(p, frames, error, rule, context=None):
    """Assert that *frames* are refused by *rule*, recorded first, and change nothing."""
    modules, policy = set(sys.modules), p.two.policy
    with pytest.raises(error) as caught:
        p.two.open(frames, context or p.context)
    assert caught.value.rule == rule
    assert set(sys.modules) == modules
    assert p.two.policy is policy
    assert p.two.audit.rules == [rule]
    assert "admit" not in p.two.audit.order
    return caught.value


def test_a_pickle_that_needs_code_is_refused(pair, marker):
    p = pair("bea", "ann")
    error = refused(p, forge(p, PICKLE, [marker.pickle]), PolicyDenied, "context.family")
    assert "cloudpickle" in str(error)
    assert error.where == "message"
    assert p.two.audit.events[0]["family"] == "cloudpickle"


@pytest.mark.parametrize("claim", ["pickle", "cloudpickle"])
def test_what_a_pickle_claims_to_be_is_not_believed(pair, claim):
    p = pair("bea", "ann")
    frames = forge(p, {**PICKLE, "serializer": claim}, [pickle.dumps({"a": 1})])
    assert p.two.open(frames, p.context) == {"a": 1}
    assert p.two.audit.events[0]["family"] == "pickle"


def test_a_global_outside_the_granted_profiles_is_refused_before_anything_is_loaded(pair):
    # Profile numpy is known, so the family is pickle; this context grants profile data only.
    p = pair("bea", "ann")
    array = pickle.dumps(np.arange(3), protocol=4)
    with pytest.raises(PolicyDenied):
        p.two.open(forge(p, PICKLE, [array]), p.context)
    assert p.two.audit.order == ["refuse"]
    assert p.two.audit.events[0]["permitted"] is False


def test_a_family_that_the_opening_side_does_not_list_is_refused(pair, marker):
    p = pair("bea", "cy")
    refused(p, p.one.seal(np.arange(3), p.context), PolicyDenied, "context.family")


@pytest.mark.parametrize("kind", [Kind.TASK, Kind.CONTROL])
def test_a_kind_that_no_context_has_is_refused(pair, kind):
    p = pair("cy", "bea")
    context = Context("cy", "bea", kind)
    frames = forge(p, {"serializer": "msgpack"}, [b"\x01"], kind=kind.value)
    refused(p, frames, PolicyDenied, "context.none", context)


@pytest.mark.parametrize("operation", ["run", "no-such-operation", ""])
def test_an_operation_that_is_not_granted_is_refused(pair, operation):
    p = pair("cy", "bea")
    context = Context("cy", "bea", Kind.DATA, operation)
    frames = forge(p, {"serializer": "msgpack"}, [b"\x01"], operation=operation)
    refused(p, frames, PolicyDenied, "operation.not-granted", context)


def test_a_listed_operation_of_admin_kind_carries_msgpack_only(pair):
    p = pair("ann", "bea")
    context = Context("ann", "bea", Kind.ADMIN, "identity")
    assert p.two.open(p.one.seal({"a": 1}, context), context) == {"a": 1}
    header, frames = families.serialize(np.arange(3), ["dask"])
    frames = forge(p, header, frames, kind="admin", operation="identity")
    with pytest.raises(PolicyDenied) as caught:
        p.two.open(frames, context)
    assert caught.value.rule == "floor.admin"


@pytest.mark.parametrize(
    "sealed_for",
    [Context("ann", "bea", Kind.CONTROL), Context("ann", "bea", Kind.DATA, "scatter")],
)
def test_the_recipient_says_what_it_expects_not_the_message(pair, sealed_for):
    p = pair("ann", "bea")
    refused(p, p.one.seal(1, sealed_for), PolicyDenied, "context.mismatch")


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"serializer": "dask"},
        {"serializer": "nope"},
        {"serializer": ["msgpack"]},
        {"serializer": "pickle"},
        {"serializer": "dask", "type": "os:system", "sub-header": {}},
        {"serializer": "dask", "type": "numpy:ndarray", "sub-header": {}, "type-serialized": b"x"},
        {"serializer": "msgpack", "more": 1},
    ],
)
def test_a_header_that_describes_nothing_is_refused(pair, header):
    p = pair("ann", "bea")
    with pytest.raises(SafeserError):
        p.two.open(forge(p, header, [b"\x01"]), p.context)
    [event] = p.two.audit.events
    assert (event["event"], event["permitted"]) == ("refuse", False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgpack.packb(7),
        msgpack.packb([{}, "data"]),
        msgpack.packb([[], "data", None]),
        msgpack.packb([{}, 5, None]),
        msgpack.packb([{}, "data", 5]),
        msgpack.packb([{1: 2}, "data", None]),
        msgpack.packb([{}, "data", None]) + b"\x00",
        msgpack.packb(msgpack.ExtType(4, b"x")),
        b"\xdd\xff\xff\xff\xff",
    ],
)
def test_a_malformed_message_header_is_refused_and_recorded(pair, body):
    p = pair("ann", "bea")
    refused(p, p.there.session.seal(body, [b"\x01"]), PayloadError, "payload.header")


@given(st.binary(max_size=60), st.lists(st.binary(max_size=20), max_size=2))
def test_any_sealed_bytes_give_a_value_or_a_refusal(doors, policy, body, frames):
    p = Pair(doors, policy, "cy", "bea")
    sealed = p.there.session.seal(body, frames)
    try:
        p.two.open(sealed, p.context)
    except SafeserError:
        assert p.two.audit.rules


# --- the envelope -----------------------------------------------------------------------------


def test_a_replayed_message_is_refused(pair):
    p = pair("ann", "bea")
    frames = p.one.seal(1, p.context)
    assert p.two.open(frames, p.context) == 1
    with pytest.raises(EnvelopeError):
        p.two.open(frames, p.context)
    assert p.two.audit.order == ["admit", "refuse"]
    assert p.two.audit.events[1]["sender"] == "unknown"


@pytest.mark.parametrize("where", [0, 20, 40, 63, 64, 80, -1])
def test_a_changed_byte_is_refused(pair, where):
    p = pair("ann", "bea")
    data = bytearray(b"".join(p.one.seal({"a": "b" * 50}, p.context)))
    data[where] ^= 1
    with pytest.raises(EnvelopeError):
        p.two.open([bytes(data)], p.context)
    assert [event["sender"] for event in p.two.audit.events] == ["unknown"]


# --- who is who -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "context",
    [
        Context("bea", "bea"),
        Context("cy", "bea"),
        Context("unknown", "bea"),
        Context("dora", "bea"),
    ],
)
def test_there_is_no_session_with_whom_nobody_shook_hands(pair, context):
    p = pair("ann", "bea")
    with pytest.raises(ConfigError) as caught:
        p.two.open(p.one.seal(1, p.context), context)
    assert caught.value.rule == "channel.no-session"
    with pytest.raises(ConfigError):
        p.one.seal(1, Context("ann", "cy"))


def test_a_context_that_names_another_recipient_is_refused(pair):
    p = pair("ann", "bea")
    with pytest.raises(PolicyDenied) as caught:
        p.two.open(p.one.seal(1, p.context), Context("ann", "cy"))
    assert caught.value.rule == "context.session"
    assert p.two.audit.rules == ["context.session"]
    assert "admit" not in p.two.audit.order


@pytest.mark.parametrize("context", [Context("cy", "bea"), Context("unknown", "bea")])
def test_nobody_seals_in_anothers_name(pair, context):
    p = pair("ann", "bea")
    with pytest.raises(PolicyDenied) as caught:
        p.one.seal(1, context)
    assert caught.value.rule == "context.session"
    assert p.one.audit.rules == ["context.session"]


def test_whoever_shares_no_context_gets_no_session(doors, policy):
    ann, dora = doors.channel("ann", policy), doors.channel("dora", policy)
    for one, two in ((ann, dora), (dora, ann)):
        with pytest.raises(AuthenticationError):
            doors.shake(one, two)


def test_a_key_that_no_principal_lists_gets_no_session(doors, policy):
    ann = doors.channel("ann", policy)
    own = Roster([RosterEntry(doors.identity("bea", "evil").public, "bea", KeyState.ACTIVE, TODAY)])
    evil = Channel(
        identity=doors.identity("bea", "evil"),
        policy=doors.policy(policy),
        audit=ann.audit,
        roster=doors.roster(doors.policy(policy)).merged(own),
    )
    with pytest.raises(AuthenticationError):
        doors.shake(evil, ann)


def test_a_roster_may_list_keys_of_principals_that_the_policy_does_not(doors, policy):
    extra = doors.identity("zoe")
    roster = doors.roster(doors.policy(policy)).with_entry(
        RosterEntry(extra.public, "zoe", KeyState.ACTIVE, TODAY)
    )
    ann = doors.channel("ann", policy, roster=roster)
    assert ann._principal_of(extra.public) is None
    with pytest.raises(ConfigError) as caught:
        Channel(identity=extra, policy=doors.policy(policy), audit=ann.audit, roster=roster)
    assert caught.value.rule == "config.principal"
    assert "ann" in caught.value.fix


@pytest.mark.parametrize("state", [KeyState.RETIRED, KeyState.PENDING, KeyState.VERIFY_ONLY])
def test_a_key_that_is_not_active_is_not_advised_to_be_listed_anew(doors, policy, state):
    old = doors.identity("ann", "old")
    roster = Roster([RosterEntry(old.public, "ann", state, TODAY)])
    with pytest.raises(ConfigError, match=f"is {state.value} in the roster") as caught:
        Channel(identity=old, policy=doors.policy(policy), audit=None, roster=roster)
    assert old.public.text not in caught.value.fix


def test_an_identity_that_the_roster_does_not_list_is_refused_with_its_line(doors, policy):
    stranger = doors.identity("ann", "other")
    with pytest.raises(ConfigError) as caught:
        Channel(identity=stranger, policy=doors.policy(policy), audit=None)
    assert caught.value.rule == "config.identity"
    assert stranger.public.text in caught.value.fix


def test_an_identity_that_is_listed_for_somebody_else_is_refused(doors, policy):
    loaded = doors.policy(policy)
    bea_with_anns_key = doors.identity("bea", "ann")
    with pytest.raises(ConfigError) as caught:
        Channel(identity=bea_with_anns_key, policy=loaded, audit=None, roster=doors.roster(loaded))
    assert caught.value.rule == "config.identity"


def test_keys_in_the_policy_itself_are_enough(doors, policy):
    line = "principals: {ann: {}, bea: {}, cy: {}, dora: {}}"
    keys = ", ".join(
        f'{name}: {{keys: ["{doors.identity(name).public.text}"]}}'
        for name in ("ann", "bea", "cy", "dora")
    )
    text = policy.replace(line, f"principals: {{{keys}}}")
    one = doors.channel("ann", text, roster=None)
    two = doors.channel("bea", text, roster=None)
    link, _ = doors.shake(one, two, expected_peer="bea")
    assert link.peer == "bea"


def test_an_initiator_gets_whom_it_expects_or_nobody(doors, policy):
    one, two = doors.channel("ann", policy), doors.channel("bea", policy)
    with pytest.raises(AuthenticationError):
        doors.shake(one, two, expected_peer="cy")


def test_a_handshake_that_is_not_complete_gives_no_link(doors, policy):
    channel = doors.channel("ann", policy)
    with pytest.raises(AuthenticationError):
        channel.link(channel.handshake(initiator=True))


def test_a_refused_submission_is_recorded_and_says_whom_to_ask(doors, policy):
    channel = doors.channel("cy", policy)
    context = Context("cy", "unknown", Kind.TASK, "update-graph")
    with pytest.raises(PolicyDenied) as caught:
        channel.refuse_submission(context)
    assert caught.value.rule == "submission.none"
    assert "cy may not submit" in str(caught.value)
    assert channel.audit.rules == ["submission.none"]


# --- record before load -----------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch):
    """Note in a witness when a payload is built."""

    def watch(witness):
        for name in ("build", "deserialize"):
            real = getattr(families, name)

            def noted(*args, _name=name, _real=real, **options):
                witness.note(_name)
                return _real(*args, **options)

            monkeypatch.setattr(families, name, noted)

    return watch


def test_the_record_comes_before_the_load(pair, loads):
    p = pair("ann", "bea")
    loads(p.two.audit)
    frames = p.one.seal(1, p.context)
    admitted = p.two.admit(frames, p.context)
    assert p.two.audit.order == ["admit"]
    assert p.two.load(admitted) == 1
    assert p.two.audit.order == ["admit", "build"]


def test_what_cannot_be_recorded_is_not_loaded(pair, loads, marker):
    p = pair("ann", "bea")
    loads(p.two.audit)
    p.two.audit.broken = {"admit"}
    with pytest.raises(AuditError):
        p.two.open(forge(p, PICKLE, [marker.pickle]), p.context)
    assert p.two.audit.order == []


def test_a_refusal_that_cannot_be_recorded_is_one_all_the_same(pair, loads, marker):
    p = pair("bea", "ann")
    loads(p.two.audit)
    p.two.audit.broken = {"refuse"}
    with pytest.raises(SafeserError):
        p.two.open(forge(p, PICKLE, [marker.pickle]), p.context)
    with pytest.raises(SafeserError):
        p.two.open(forge(p, {"serializer": "nope"}), p.context)
    assert p.two.audit.order == []


# --- the proof of admission -------------------------------------------------------------------


def test_nobody_else_makes_an_admitted(pair):
    p = pair("ann", "bea")
    admitted = p.two.admit(p.one.seal(1, p.context), p.context)
    for value in (admitted, *admitted.permitted, *admitted.payloads):
        with pytest.raises(TypeError, match="only a Link"):
            type(value)(*value)
        with pytest.raises(TypeError, match="only a Link"):
            type(value)._make(value)
        with pytest.raises(TypeError, match="only a Link"):
            value._replace()
    with pytest.raises(AttributeError):
        admitted.outcomes = ()


def test_a_payload_that_was_not_admitted_is_not_loaded(pair):
    p = pair("ann", "bea")
    admitted = p.two.admit(p.one.seal(1, p.context), p.context)
    with pytest.raises(TypeError):
        p.back.load_one(admitted.payloads[0])
    for value in (admitted, *admitted.permitted, *admitted.payloads):
        with pytest.raises(TypeError):
            copy.copy(value)


def test_links_are_found_from_any_thread(pair):
    p = pair("ann", "bea")
    frames = p.one.seal(1, p.context)
    got = []
    thread = threading.Thread(target=lambda: got.append(p.two.open(frames, p.context)))
    thread.start()
    thread.join()
    assert got == [1]
