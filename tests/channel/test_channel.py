"""Two channels back to back: what is sealed on one side opens on the other, or is refused whole."""

from __future__ import annotations

import copy
import datetime
import decimal
import os
import pickle
import sys

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
    PolicyDenied,
    SafeserError,
)
from safeser.gate.values import Context, Kind
from safeser.identity import KeyState, Roster, RosterEntry
from tests.refusal import refusal

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


#: What passes from whom to whom, under which kind and operation, in which family.
ARRIVES = [
    ({"a": [1, b"bytes"], "b": (1, {2})}, "ann", "bea", Kind.DATA, None, "msgpack"),
    (decimal.Decimal("1.5"), "ann", "bea", Kind.DATA, None, "dask"),
    (np.zeros((3, 4), "M8[ns]"), "bea", "ann", Kind.DATA, None, "dask"),
    (ValueError("wrong", 3), "bea", "ann", Kind.DATA, None, "error"),
    (os.getpid, "ann", "bea", Kind.TASK, None, "cloudpickle"),
    (1, "ann", "bea", Kind.DATA, "scatter", "msgpack"),
]


@pytest.mark.parametrize(("value", "one", "two", "kind", "operation", "family"), ARRIVES)
def test_values_arrive_as_they_were(pair, value, one, two, kind, operation, family):
    p = pair(one, two)
    context = Context(one, two, kind, operation)
    whole = b"".join(p.one.seal(value, context))  # a socket gives it in pieces
    got = p.two.open([whole[at : at + 7] for at in range(0, len(whole), 7)], context)
    assert (type(got), repr(got)) == (type(value), repr(value))
    [event] = p.two.audit.events
    assert (event["event"], event["permitted"], event["rule"]) == ("admit", True, "permit")
    assert event["family"] == family


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


ARRAY = families.serialize(np.arange(3), ["dask"])

NUMBERS = pickle.dumps(np.arange(3), protocol=4)

#: From whom to whom, under which kind and operation, the header and frames of what is sealed, and
#: the rule. Headers that describe nothing are vectors.
REFUSED = [
    # Profile numpy is known, so the family is pickle; this context grants profile data only.
    ("bea", "ann", "data", None, PICKLE, [NUMBERS], "pickle.global"),
    ("bea", "cy", "data", None, *ARRAY, "context.family"),
    ("cy", "bea", "task", None, {"serializer": "msgpack"}, [b"\x01"], "context.none"),
    ("cy", "bea", "control", None, {"serializer": "msgpack"}, [b"\x01"], "context.none"),
    ("cy", "bea", "data", "run", {"serializer": "msgpack"}, [b"\x01"], "operation.not-granted"),
    ("cy", "bea", "data", "no-such", {"serializer": "msgpack"}, [b"\x01"], "operation.not-granted"),
    ("cy", "bea", "data", "", {"serializer": "msgpack"}, [b"\x01"], "operation.not-granted"),
    ("ann", "bea", "admin", "identity", *ARRAY, "floor.admin"),
]


@pytest.mark.parametrize(("one", "two", "kind", "operation", "header", "data", "rule"), REFUSED)
def test_what_no_context_grants_is_refused(pair, one, two, kind, operation, header, data, rule):
    p = pair(one, two)
    frames = forge(p, header, data, kind=kind, operation=operation)
    refused(p, frames, PolicyDenied, rule, Context(one, two, kind, operation))


def test_a_pickle_that_needs_code_is_refused(pair, marker):
    p = pair("bea", "ann")
    error = refused(p, forge(p, PICKLE, [marker.pickle]), PolicyDenied, "context.family")
    assert error.where == "message"
    assert p.two.audit.events[0]["family"] == "cloudpickle"


@pytest.mark.parametrize(
    "sealed_for",
    [Context("ann", "bea", Kind.CONTROL), Context("ann", "bea", Kind.DATA, "scatter")],
)
def test_the_recipient_says_what_it_expects_not_the_message(pair, sealed_for):
    p = pair("ann", "bea")
    refused(p, p.one.seal(1, sealed_for), PolicyDenied, "context.mismatch")


@pytest.mark.parametrize("claim", ["pickle", "cloudpickle"])
def test_what_a_pickle_claims_to_be_is_not_believed(pair, claim):
    p = pair("bea", "ann")
    frames = forge(p, {**PICKLE, "serializer": claim}, [pickle.dumps({"a": 1})])
    assert p.two.open(frames, p.context) == {"a": 1}
    assert p.two.audit.events[0]["family"] == "pickle"


@given(st.binary(max_size=60), st.lists(st.binary(max_size=20), max_size=2))
def test_any_sealed_bytes_give_a_value_or_a_refusal(doors, policy, body, frames):
    p = Pair(doors, policy, "cy", "bea")
    sealed = p.there.session.seal(body, frames)
    try:
        p.two.open(sealed, p.context)
    except SafeserError:
        assert p.two.audit.rules


# --- the envelope -----------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ["replayed", "changed"])
def test_what_the_envelope_refuses_is_recorded_as_nobodys(pair, attack):
    p = pair("ann", "bea")
    data = bytearray(b"".join(p.one.seal(1, p.context)))
    if attack == "replayed":
        assert p.two.open([bytes(data)], p.context) == 1
    else:
        data[-1] ^= 1
    with pytest.raises(EnvelopeError):
        p.two.open([bytes(data)], p.context)
    assert p.two.audit.order[-1] == "refuse"
    assert p.two.audit.events[-1]["sender"] == "unknown"


# --- who is who -------------------------------------------------------------------------------


@pytest.mark.parametrize("sender", ["bea", "cy", "unknown", "dora"])
def test_there_is_no_session_with_whom_nobody_shook_hands(pair, sender):
    p = pair("ann", "bea")
    with refusal(ConfigError, "channel.no-session"):
        p.two.open(p.one.seal(1, p.context), Context(sender, "bea"))
    with refusal(ConfigError, "channel.no-session"):
        p.one.seal(1, Context("ann", "cy"))
    with refusal(PolicyDenied, "context.session"):  # no principal seals in another's name
        p.one.seal(1, Context(sender, "bea"))


def test_who_gets_no_session(doors, policy):
    ann, bea, dora = (doors.channel(name, policy) for name in ("ann", "bea", "dora"))
    evil = doors.identity("bea", "evil")
    own = Roster([RosterEntry(evil.public, "bea", KeyState.ACTIVE, TODAY)])
    listed = doors.roster(doors.policy(policy)).merged(own)
    for one, two, options in (
        (ann, dora, {}),  # no context is theirs
        (dora, ann, {}),
        (doors.channel("bea", policy, identity=evil, roster=listed), ann, {}),
        (ann, bea, {"expected_peer": "cy"}),
    ):
        with pytest.raises(AuthenticationError):
            doors.shake(one, two, **options)
    with pytest.raises(AuthenticationError):
        ann.link(ann.handshake(initiator=True))  # which is not complete


@pytest.mark.parametrize(
    ("principal", "key", "lists", "rule"),
    [
        ("zoe", "zoe", ("zoe", KeyState.ACTIVE), "config.principal"),
        ("ann", "other", None, "config.identity"),
        ("ann", "old", ("ann", KeyState.RETIRED), "config.identity"),
        ("ann", "old", ("ann", KeyState.PENDING), "config.identity"),
        ("ann", "old", ("ann", KeyState.VERIFY_ONLY), "config.identity"),
        ("bea", "ann", ("ann", KeyState.ACTIVE), "config.identity"),
    ],
)
def test_a_process_does_not_start_with_a_key_that_is_not_its_own(
    doors, policy, principal, key, lists, rule
):
    identity = doors.identity(principal, key)
    own = Roster([RosterEntry(identity.public, *lists, TODAY)] if lists else [])
    with refusal(ConfigError, rule) as caught:
        Channel(identity=identity, policy=doors.policy(policy), audit=None, roster=own)
    if key == "old":
        assert identity.public.text not in caught.value.fix  # it is listed already


def test_a_refused_submission_is_recorded_and_says_whom_to_ask(doors, policy):
    channel = doors.channel("cy", policy)
    context = Context("cy", "unknown", Kind.TASK, "update-graph")
    with refusal(PolicyDenied, "submission.none") as caught:
        channel.refuse_submission(context)
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


@pytest.mark.parametrize(
    ("one", "two", "broken"), [("ann", "bea", "admit"), ("bea", "ann", "refuse")]
)
def test_what_cannot_be_recorded_is_not_loaded(pair, loads, marker, one, two, broken):
    p = pair(one, two)
    loads(p.two.audit)
    p.two.audit.broken = {broken}
    with pytest.raises(AuditError):
        p.two.open(forge(p, PICKLE, [marker.pickle]), p.context)
    assert p.two.audit.order == []


# --- the proof of admission -------------------------------------------------------------------


def test_nobody_else_makes_an_admitted(pair):
    p = pair("ann", "bea")
    admitted = p.two.admit(p.one.seal(1, p.context), p.context)
    for value in (admitted, *admitted.permitted, *admitted.payloads):
        for make in (
            lambda value=value: type(value)(*value),
            lambda value=value: type(value)._make(value),
            lambda value=value: value._replace(),
            lambda value=value: copy.copy(value),
        ):
            with pytest.raises(TypeError):
                make()
    with pytest.raises(AttributeError):
        admitted.outcomes = ()
    with pytest.raises(TypeError):
        p.back.load_one(admitted.payloads[0])  # a payload that was not admitted
