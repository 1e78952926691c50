"""Detached messages: the vectors of docs/reference/envelope.md, and any other bytes.

The reader and writer of tests/gate/detached_document.py know nothing but that document; they and
the gate must write the same, read the same and refuse by the same layer.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeser.errors import ConfigError, EnvelopeError
from safeser.gate import detached
from safeser.gate.detached import NO_KEY, PAIR, READERS, SHARED, SIGNED, Ends, Facts
from safeser.gate.key_pairs import PrivateKey, PublicKey
from safeser.gate.values import Limits
from safeser.identity import SigningKey, VerifyingKey
from safeser.identity.secret import Secret
from tests.gate import detached_document as document
from tests.gate.document import RefusedBy
from tests.refusal import refusal

PLACE = Path(__file__).parents[1] / "vectors" / "detached-v2.json"
VECTORS = json.loads(PLACE.read_text("ascii"))
ABOUT, NOW = VECTORS["reader"]["about"], VECTORS["reader"]["now"]
SECRET = bytes.fromhex(VECTORS["secret"])
PEOPLE = {
    name: document.Person(
        name,
        *(bytes.fromhex(each[word]) for word in ("public", "verifying", "private", "signing")),
    )
    for name, each in VECTORS["identities"].items()
}
ANN, BEA = PEOPLE["ann"], PEOPLE["bea"]
LAYERS = {
    "format": ("envelope.format", "envelope.limits"),
    "mac": ("envelope.mac",),
    "gcm": ("envelope.gcm",),
    "signature": ("box.signature",),
    "about": ("box.about",),
    "dates": ("box.future", "box.expired"),
}


def cases(kind):
    names = [case["name"] for case in VECTORS[kind]]
    assert len(set(names)) == len(names)
    return pytest.mark.parametrize("case", VECTORS[kind], ids=names)


def ends(mode, about=ABOUT):
    """Return the ends of messages from ann to bea."""
    names = ("ann", "" if mode == READERS else "bea")
    if mode == SHARED:
        names = document.direction(about)
    secret = PrivateKey.from_bytes(ANN.private).exchange(PublicKey(BEA.public))
    keys = {
        SHARED: (Secret(SECRET).id, NO_KEY, SECRET),
        READERS: (ANN.verifying, NO_KEY, b""),
    }
    from_, to, secret = keys.get(mode, (ANN.public, BEA.public, secret))
    return Ends(
        mode,
        sender=names[0],
        recipient=names[1],
        sender_key=from_,
        recipient_key=to,
        secret=secret,
    )


def told(case):
    frames = [bytes.fromhex(each["data"]) * each["times"] for each in case["frames"]]
    said = (case["made"], case["ttl"], case["about"], bytes.fromhex(case["header"]), frames)
    return document.Said(bytes.fromhex(case["id"]), *said)


def sealed(case):
    said, mode = told(case), case["mode"]
    facts = Facts(said.id, said.made, said.ttl, said.about)
    sign = SigningKey.from_bytes(ANN.signing).sign if mode in (SIGNED, READERS) else None
    how = {"salt": bytes.fromhex(case["salt"]), "limits": Limits(), "sign": sign}
    return detached.seal(ends(mode, said.about), facts, said.header, said.frames, **how)


def read(data, *, about=ABOUT, now=NOW, shared=False):
    """Read *data* as bea, or as who has the secret; by rule ``keys`` if it is for neither."""
    parsed = detached.parse(data, Limits())
    made = ends(parsed.mode, about)
    mine = (parsed.mode == SHARED) == shared
    if not mine or (made.sender_key, made.recipient_key) != parsed[1:3]:
        if parsed.mode == PAIR and parsed[1:3] == (BEA.public, BEA.public):
            return detached.unseal(parsed, ends_of_bea(), limits=Limits())
        raise EnvelopeError("for somebody else", rule="keys")
    verify = VerifyingKey(ANN.verifying).verify
    message = detached.unseal(parsed, made, limits=Limits(), verify=verify)
    facts = message.facts
    facts.check(about, now)
    frames = [*map(bytes, message.frames)]
    return document.Said(facts.id, facts.made, facts.ttl, facts.about, message.header, frames)


def ends_of_bea():
    secret = PrivateKey.from_bytes(BEA.private).exchange(PublicKey(BEA.public))
    keys = {"sender_key": BEA.public, "recipient_key": BEA.public, "secret": secret}
    return Ends(PAIR, sender="bea", recipient="bea", **keys)


def by_document(data, *, about=ABOUT, now=NOW, shared=False):
    reader = SECRET if shared else BEA
    return document.read_detached(data, reader, PEOPLE, about=about, now=now)


WIRES = {case["name"]: sealed(case) for case in VECTORS["messages"]}


def test_the_secret_has_its_id():
    assert Secret(SECRET).id.hex() == VECTORS["id"]


@cases("messages")
def test_valid_messages(case):
    data = WIRES[case["name"]]
    size, digest = case.get("size"), case.get("sha256")
    if "wire" in case:
        assert data.hex() == case["wire"]
    else:
        assert (len(data), hashlib.sha256(data).hexdigest()) == (size, digest)
    salt = bytes.fromhex(case["salt"])
    said = told(case)
    how = {"salt": salt, "secret": SECRET}
    assert document.write_detached(case["mode"], ANN, BEA, said, **how) == data
    how = {"about": case["about"], "shared": case["mode"] == SHARED}
    assert read(data, **how) == by_document(data, **how) == said


@cases("invalid messages")
def test_invalid_messages_are_refused_by_their_layer(case):
    pieces = (
        bytes.fromhex(each) if isinstance(each, str) else WIRES[each[0]][each[1] : each[2]]
        for each in case["wire"]
    )
    data, shared = b"".join(pieces), case.get("reader") == "shared"
    with pytest.raises(EnvelopeError) as caught:
        read(data, shared=shared)
    assert caught.value.rule in LAYERS.get(case["layer"], (case["layer"],))
    with pytest.raises(RefusedBy, match=case["layer"]):
        by_document(data, shared=shared)


# --- any bytes ------------------------------------------------------------------------------------

SMALL = [WIRES[name] for name in ("pair", "signed", "shared", "readers")]


def both(data, *, shared):
    """Have both readers read *data*; return what they found, or the layer that refuses it."""
    try:
        found = read(data, shared=shared)
    except EnvelopeError as error:
        rules = (layer for layer, rules in LAYERS.items() if error.rule in rules)
        found = next(rules, error.rule)
    try:
        other = by_document(data, shared=shared)
    except RefusedBy as refused:
        other = str(refused)
    assert found == other
    return found


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SMALL), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_changed_messages_are_refused_alike(data, changes):
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    for shared in (False, True):
        found = both(bytes(changed), shared=shared)
        assert isinstance(found, str) or changed == data


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SMALL), st.sampled_from(SMALL), st.integers(0, 300), st.integers(0, 300))
def test_mixed_messages_are_refused_alike(one, other, cut, begin):
    mixed = one[:cut] + other[begin:]
    for shared in (False, True):
        assert isinstance(both(mixed, shared=shared), str) or mixed in SMALL


@given(st.binary(max_size=200), st.integers(0, 64))
def test_any_bytes_are_refused_alike(data, rest):
    for begin in (b"", b"SSm2", SMALL[0][:24], SMALL[3][: rest + 120]):
        assert both(begin + data, shared=False) in ("format", "keys", "mac", "signature")


# --- limits, memory and keys ----------------------------------------------------------------------


def test_limits_hold_for_both_ends():
    small = Limits(max_bytes=100)
    facts = Facts(bytes(16), NOW, 60, ABOUT)
    how = {"salt": bytes(32), "limits": small}
    with refusal(EnvelopeError, "envelope.limits"):
        detached.seal(ends(PAIR), facts, b"", [bytes(101)], **how)
    data = detached.seal(ends(PAIR), facts, b"", [bytes(101)], salt=bytes(32), limits=Limits())
    with refusal(EnvelopeError, "envelope.limits"):
        detached.unseal(detached.parse(data, small), ends(PAIR), limits=small)


def test_a_part_that_does_not_authenticate_leaves_no_plaintext(monkeypatch):
    taken, made = [], np.empty
    monkeypatch.setattr(np, "empty", lambda *how: taken.append(made(*how)) or taken[-1])
    data = bytearray(WIRES["pair, large parts"])
    data[-32 - 16 - 10 - 16 - 5] ^= 1  # in the 200,000 bytes, before their tag
    with refusal(EnvelopeError, "envelope.gcm"):
        read(bytes(data))
    assert len(taken) >= 1
    assert not taken[-1].any()


def test_secrets_are_not_shown():
    made = ends(PAIR)
    with pytest.raises(TypeError):
        made.__reduce_ex__(5)
    assert "secret" not in repr(made)
    with pytest.raises(TypeError):
        detached.unseal(detached.parse(WIRES["signed"], Limits()), made, limits=Limits())


WRONG = [(b"", 1, 1, "x"), (ID := bytes(16), -1, 1, "x"), (ID, 1, 1 << 53, "x"), (ID, 1, 1, "")]


@pytest.mark.parametrize("facts", WRONG)
def test_facts_are_checked(facts):
    with pytest.raises(ConfigError):
        Facts(*facts)
