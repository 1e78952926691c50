"""What the record of a decision says: session, message, key, context, code and task."""

from __future__ import annotations

import hashlib
import os
import pickle

import pytest

from safeser.audit import AuditKey, AuditLog, read
from safeser.channel.events import _MOST_DIGESTED, _digest
from safeser.errors import PolicyDenied
from safeser.gate.values import Context, Kind, Payload


class Code:
    """What only family cloudpickle carries."""

    def __reduce__(self):
        return os.getpid, ()


def linked(doors, policy, one="ann", two="bea"):
    asks, answers = doors.channel(one, policy), doors.channel(two, policy)
    near, far = doors.handshakes(asks, answers)
    return asks.link(near, address="10.0.0.2:8786"), answers.link(far, address="10.0.0.1:4711")


def test_both_ends_know_the_session_and_the_number_of_a_message(doors, policy):
    near, far = linked(doors, policy)
    assert near.facts.id == far.facts.id == near.session.id.hex()[:12]
    context = Context("ann", "bea", Kind.DATA)
    for number in (1, 2):
        far.load(far.admit_message(far.verify(near.seal(b"x", context)), context))
        event = far.audit.events[-1]
        assert (event["message"], event["session"], event["context"]) == (number, far.facts, "code")
    assert far.facts.fields == {
        "address": "10.0.0.1:4711",
        "key": near.own_key.fingerprint,
        "peer": "ann",
        "peer_states": f"doors/3/{near.policy.sha256[:16]}",
        "suite": "encrypt",
        "transport": "library",
    }


def test_code_has_a_digest_and_data_has_none(doors, policy):
    near, far = linked(doors, policy)
    context = Context("ann", "bea", Kind.DATA)
    far.admit_message(far.verify(near.seal(3, context)), context)
    assert "digest" not in far.audit.events[-1]
    payload = far.payload(
        far.verify(near.seal(3, context)),
        far.inbound(Kind.DATA),
        "code",
        {"serializer": "pickle", "writeable": []},
        [data := pickle.dumps(Code())],
    )
    event = far.event("admit", context, payload, "permit", True)
    assert event["digest"] == hashlib.sha256(data).hexdigest()[:24]
    assert event["message"] == 2


def test_a_huge_pickle_has_no_digest():
    frame = bytes(_MOST_DIGESTED + 1)
    assert _digest(Payload("", "cloudpickle", {}, (frame,))) == ""
    assert _digest(Payload("", "cloudpickle", {}, (frame[:-1],))) != ""


def test_a_refusal_names_the_global(doors, policy):
    near, far = linked(doors, policy, "bea", "ann")
    context = far.inbound(Kind.DATA)
    verified = far.verify(near.seal(3, Context("bea", "ann", Kind.DATA)))
    header = {"serializer": "pickle", "writeable": []}
    payload = far.payload(verified, context, "x", header, [pickle.dumps(Code())], task="t-1")
    with pytest.raises(PolicyDenied):
        far.admit(verified, context, [payload])
    event = far.audit.events[-1]
    assert (event["global"], event["task"], event["permitted"]) == (
        f"{os.getpid.__module__}:getpid",
        "t-1",
        False,
    )


def test_a_flood_of_unlisted_keys_takes_little_of_the_disk(doors, policy, tmp_path):
    with AuditLog.open(tmp_path / "audit", key=AuditKey(bytes(32)), principal="bea") as log:
        channel = doors.channel("bea", policy, audit=log)
        for number in range(1_000):
            channel.note_unlisted_key(f"key-{number}", f"10.0.0.9:{number}")
    records = list(read(log.path))
    kept = [each for each in records if each.text("rule") == "authentication.key"]
    assert len(kept) == 100
    assert (kept[0].text("key"), kept[0].text("address")) == ("key-0", "10.0.0.9:0")
    [summary] = [each for each in records if each.type == "suppressed"]
    assert summary.fields["suppressed"][0][:3] == ["unknown", "authentication.key", 900]
