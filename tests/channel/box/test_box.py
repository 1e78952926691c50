"""Boxes: what two of them give each other, and what each refuses of an attacker."""

from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from safeser.audit import AuditKey, verify
from safeser.errors import (
    AuditError,
    AuthenticationError,
    ConfigError,
    EnvelopeError,
    PayloadError,
    PolicyDenied,
    SafeserError,
)
from safeser.gate import canonical, detached
from safeser.gate.detached import NO_KEY, PAIR, READERS, SHARED, SIGNED, Ends, Facts
from safeser.gate.values import Limits
from safeser.identity import Identity
from safeser.identity.secret import Secret
from tests.channel.boxes import NOW, WAYS, Q, events, refused, shared
from tests.channel.test_channel import Pair
from tests.refusal import refusal

# --- what two boxes give each other ---------------------------------------------------------------

VALUES = [
    {number: number for number in range(64)},
    [np.arange(5), {"a": (1, None)}, "text"],
    {"large": np.ones(20_000), "larger": np.zeros(70_000, "u1"), "small": np.ones(3)},
    b"x" * 100_000,
    ValueError("no"),
    None,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_sealed_is_opened(ann, bea, way, value):
    sealing, opening = WAYS[way]
    data = ann.seal(value, about=Q, ttl=60, **sealing)
    opened = bea.open(data, about=Q, **opening)
    assert type(data) is bytes
    assert repr(opened.value) == repr(value)
    assert (opened.sender, opened.made) == ("ann", NOW)
    assert opened.to == sealing.get("to")  # which signed=True alone does not tell
    assert len(opened.id) == 16
    (event,) = events(bea)
    assert (event["event"], event["sender"], event["recipient"]) == ("admit", "ann", "bea")
    assert event["id"] == opened.id.hex()
    assert event["session"].fields["transport"] == "box"


@pytest.mark.parametrize("way", WAYS)
def test_arrays_have_memory_that_is_theirs(ann, bea, way):
    sealing, opening = WAYS[way]
    data = ann.seal(np.zeros(100_000), about=Q, ttl=60, **sealing)
    value = bea.open(data, about=Q, **opening).value
    value += 1
    assert not bea.open(data, about=Q, **opening).value.any()


def test_what_is_encrypted_shows_nothing_and_what_is_for_readers_shows_all(ann):
    secret = "very secret text"
    for way, (sealing, _) in WAYS.items():
        data = ann.seal(secret, about="about it", ttl=60, **sealing)
        shown = [text.encode() in data for text in (secret, "about it")]
        assert shown == [way == "readers"] * 2


def test_a_box_opens_what_it_sealed_for_itself(ann):
    data = ann.seal(5, to="ann", about="cache: 5", ttl=None)
    assert ann.open(data, about="cache: 5").value == 5


def test_threads_share_a_box(ann, bea):
    found = []

    def run():
        for number in range(30):
            found.append(bea.open(ann.seal(number, to="bea", about=Q, ttl=9), about=Q).value)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == sorted([*range(30)] * 4)


def test_a_message_is_open_until_its_last_second(folder, ann, bea):
    data = ann.seal(5, to="bea", about=Q, ttl=59.5)
    folder.clock.now = NOW + 60
    assert bea.open(data, about=Q).value == 5
    folder.clock.now = NOW + 60.5
    refused(bea, EnvelopeError, "box.expired", data)


# --- attacks on one message -----------------------------------------------------------------------


def test_each_bit_of_a_message_counts(ann, bea):
    for sealing, opening in WAYS.values():
        data = ann.seal(5, about=Q, ttl=60, **sealing)
        for at in range(len(data) * 8):
            changed = bytearray(data)
            changed[at // 8] ^= 1 << at % 8
            with pytest.raises(SafeserError) as caught:
                bea.open(changed, about=Q, **opening)
            assert isinstance(caught.value, EnvelopeError)
        assert {event["permitted"] for event in events(bea)} == {False}


def test_each_other_length_is_refused(ann, bea):
    for sealing, opening in WAYS.values():
        data = ann.seal(np.ones(9_000), about=Q, ttl=60, **sealing)
        for size in [*range(400), *range(400, len(data), 997), len(data) - 1]:
            with refusal(EnvelopeError, "envelope.format"):
                bea.open(data[:size], about=Q, **opening)
        refused(bea, EnvelopeError, "envelope.format", data + b"\0", **opening)


@pytest.mark.parametrize("way", WAYS)
def test_parts_of_two_messages_are_none(ann, bea, way):
    sealing, opening = WAYS[way]
    values = ([np.full(9_000, float(each))] * 2 for each in range(2))
    one, two = (ann.seal(value, about=Q, ttl=60, **sealing) for value in values)
    for cut in (40, 56, 120, 140, 152, 300, len(one) - 72_016, len(one) - 32):
        refused(bea, EnvelopeError, _PROOF[way], one[:cut] + two[cut:], **opening)


_PROOF = {"pair": "envelope.mac", "signed": "envelope.mac", "readers": "box.signature"}


def test_frames_do_not_change_places(ann, bea):
    one, two = np.full(9_000, 1.0), np.full(9_000, 2.0)
    for way, (sealing, opening) in WAYS.items():
        data = ann.seal([one, two], about=Q, ttl=60, **sealing)
        size, end = (72_000, 0) if way == "readers" else (72_016, 32)
        first, second = len(data) - end - 2 * size, len(data) - end - size
        swapped = data[:first] + data[second : second + size] + data[first:second]
        refused(bea, EnvelopeError, _PROOF[way], swapped + data[len(data) - end :][:end], **opening)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.integers(0, 4), st.integers(0, 1 << 64), st.integers(0, 400))
@example(b"", 0, 0, 0)
@example(b"SSm2", 0, 0, 0)
def test_any_bytes_are_refused(bea, data, mode, number, more):
    fields = b"SSm2\x03" + bytes((mode, 0, 0)) + (number % (1 << 64)).to_bytes(8, "little")
    for each in (data, fields + bytes(more), fields + data):
        with pytest.raises(EnvelopeError):
            bea.open(each, about=Q)


#: What is no detached message of this version, and what an error says of it.
OTHERS = {
    "nothing": (b"", "no detached message"),
    "a pickle": (pickle.dumps(os.system), "no detached message"),
    "an older version": (b"SSm1" + bytes(300), "of this version"),
    "a later version": (b"SSm3" + bytes(300), "of this version"),
    "another type": (b"SSm2\x04" + bytes(300), "of this version"),
    "another mode": (b"SSm2\x03\x05" + bytes(300), "of this version"),
    "no mode": (b"SSm2\x03\x00" + bytes(300), "of this version"),
    "text": ("SSm2", "bytes"),
    "an object": (None, "bytes"),
    "memory with gaps": (memoryview(bytes(600))[::2], "contiguous"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_bytes_are_refused_in_words(bea, name):
    data, words = OTHERS[name]
    assert words in refused(bea, EnvelopeError, "envelope.format", data).message


@pytest.mark.parametrize(("at", "rule"), [(8, "block"), (16, "rest")])
def test_sizes_are_bounded_before_anything_is_taken(ann, bea, at, rule):
    data = bytearray(ann.seal(5, to="bea", about=Q, ttl=60))
    data[at : at + 8] = (1 << 40).to_bytes(8, "little")
    refused(bea, EnvelopeError, "envelope.limits", bytes(data))


def test_memory_that_changes_while_it_is_read_is_verified_as_it_is_built(ann, bea, monkeypatch):
    data = bytearray(ann.seal(np.ones(9_000), about=Q, ttl=60, signed=True))
    verified = Ends.signed

    def change(ends, fields, content):
        made = verified(ends, fields, content)
        data[-8:] = bytes(8)  # another process that has the memory, right after it was verified
        return made

    monkeypatch.setattr(Ends, "signed", change)
    assert bea.open(data, about=Q, signed=True).value.all()


# --- attacks between messages ---------------------------------------------------------------------


def test_a_message_opens_about_nothing_else(ann, bea):
    for sealing, opening in WAYS.values():
        data = ann.seal(5, about=Q, ttl=60, **sealing)
        error = refused(bea, EnvelopeError, "box.about", data, about="queue: others", **opening)
        # Keys of a cache may be bearer tokens.
        told = f"{error!r} {error} {vars(error)} {events(bea)[-1]}"
        assert "tasks" not in told
        assert "others" not in told


def test_a_message_opens_for_its_recipient_alone(folder, ann):
    with folder.box("cy") as cy:
        for signed in (False, True):
            data = ann.seal(5, to="bea", about=Q, ttl=60, signed=signed)
            refused(cy, EnvelopeError, "box.recipient", data)
            refused(ann, EnvelopeError, "box.recipient", data)  # nor goes it back


def test_keys_in_the_fields_are_part_of_the_keys(folder, ann, bea):
    """The key of another recipient or sender in the fields is one more wrong message."""
    public = {name: each.public.raw for name, each in folder.identities.items()}
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    with folder.box("cy") as cy:
        refused(cy, EnvelopeError, "envelope.mac", data.replace(public["bea"], public["cy"]))
    refused(bea, EnvelopeError, "envelope.mac", data.replace(public["ann"], public["cy"]))
    swapped = data.replace(public["ann"], bytes(32)).replace(public["bea"], public["ann"])
    # Reflected: both ends have the same shared secret, and each direction has keys of its own.
    refused(ann, EnvelopeError, "envelope.mac", swapped.replace(bytes(32), public["bea"]))


def test_a_stranger_seals_nothing(folder, bea):
    stranger = Identity.generate("ann")
    data = forged(stranger, folder.identities["bea"], sender="ann")
    refused(bea, AuthenticationError, "key.unlisted", data)
    # Nor by a key that is none.
    for key in (bytes(32), b"\xff" * 32):
        data = forged(stranger, folder.identities["bea"], sender="ann", key=key)
        refused(bea, AuthenticationError, "key.unlisted", data)


FACTS = Facts(bytes(16), int(NOW), 60, Q)


def forged(mine, theirs, *, sender, mode=PAIR, key=None, header=b"", frame=b"\x05", sign=None):
    """Return a message of who has the private key of *mine*, and knows the code of safeser."""
    readers = mode == READERS
    ends = Ends(
        mode,
        sender=sender,
        recipient="" if readers else theirs.principal,
        sender_key=key or (mine.verifying if readers else mine.public).raw,
        recipient_key=NO_KEY if readers else theirs.public.raw,
        secret=b"" if readers else mine.exchange(theirs.public),
    )
    header = header or canonical.pack({"serializer": "msgpack"})
    how = {"salt": bytes(32), "limits": Limits(), "sign": sign}
    return detached.seal(ends, FACTS, header, [frame], **how)


def test_an_insider_speaks_as_nobody_else(folder, bea):
    """cy has a key of the roster, and writes ann's name where names are part of the keys."""
    cy, theirs = folder.identities["cy"], folder.identities["bea"]
    refused(bea, EnvelopeError, "envelope.mac", forged(cy, theirs, sender="ann"))
    data = forged(cy, theirs, sender="ann", mode=READERS, sign=cy.sign)
    refused(bea, EnvelopeError, "box.signature", data, signed=True)
    # As herself she may hand bea nothing in a box, only on a connection.
    refused(bea, PolicyDenied, "context.none", forged(cy, theirs, sender="cy"))


def test_a_thief_of_the_recipients_key_signs_nothing(folder, bea):
    """Who stole bea's key forges to bea (the document says so), unless bea wants a signature."""
    ann, stolen, cy = (folder.identities[name] for name in ("ann", "bea", "cy"))
    ends = {
        "sender": "ann",
        "recipient": "bea",
        "sender_key": ann.public.raw,
        "recipient_key": stolen.public.raw,
        "secret": stolen.exchange(ann.public),
    }

    def made(mode, sign=None):
        header = canonical.pack({"serializer": "msgpack"})
        how = {"salt": bytes(32), "limits": Limits(), "sign": sign}
        return detached.seal(Ends(mode, **ends), FACTS, header, [b"\x05"], **how)

    for sign in (cy.sign, lambda data: bytes(64)):
        refused(bea, EnvelopeError, "box.signature", made(SIGNED, sign), signed=True)
    assert bea.open(made(PAIR), about=Q).sender == "ann"
    refused(bea, EnvelopeError, "box.unsigned", made(PAIR), signed=True)


def test_what_many_may_read_is_opened_where_that_is_asked_for(ann, bea):
    data = ann.seal(5, about=Q, ttl=60, signed=True)
    refused(bea, EnvelopeError, "box.readers", data)


# --- other protocols ------------------------------------------------------------------------------


def test_a_session_takes_no_detached_message_and_the_reverse(doors, policy, ann, bea):
    pair = Pair(doors, policy, "bea", "ann")
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    with refusal(EnvelopeError, "envelope.format"):
        pair.two.open([data], pair.context)
    pair = Pair(doors, policy, "bea", "ann")
    for message in (b"".join(pair.one.seal(5, pair.context)), pair.there.session.closing()):
        error = refused(bea, EnvelopeError, "envelope.format", message)
        assert "connection" in error.message


def test_a_shared_secret_opens_nothing_of_a_roster_nor_the_reverse(folder, ann, bea):
    with shared(folder.clock, Secret.generate()) as box:
        data = box.seal(5, about=Q, ttl=60)
        refused(bea, EnvelopeError, "box.kind", data)
        for sealing, opening in WAYS.values():
            data = ann.seal(5, about=Q, ttl=60, **sealing)
            refused(box, EnvelopeError, "box.kind", data, **opening)


def test_the_mode_is_part_of_the_keys(folder, ann, bea):
    """Another mode in the fields is one more wrong message: no downgrade."""
    data = ann.seal(5, to="bea", about=Q, ttl=60, signed=True)
    refused(bea, EnvelopeError, "envelope.mac", data[:5] + bytes((PAIR,)) + data[6:])
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    changed = data[:5] + bytes((SIGNED,)) + data[6:]
    refused(bea, EnvelopeError, "envelope.mac", changed, signed=True)
    refused(bea, EnvelopeError, "box.kind", data[:5] + bytes((SHARED,)) + data[6:])
    refused(bea, EnvelopeError, "envelope.format", data[:5] + bytes((READERS,)) + data[6:])


def test_a_signature_of_another_thing_is_none(folder, ann, bea):
    """The key that signs messages signs sealed calls, too: each begins with what it is."""
    signed = []
    data = ann.seal(5, about=Q, ttl=60, signed=True)
    keys, sign = ann._keys, ann._keys.sign
    keys.sign = lambda message: signed.append(message) or sign(message)
    ann.seal(5, about=Q, ttl=60, signed=True)
    assert signed[0].startswith(b"safeser detached message v2\n")
    signature = folder.identities["ann"].sign(signed[0].partition(b"\n")[2])
    refused(bea, EnvelopeError, "box.signature", data[:120] + signature + data[184:], signed=True)


# --- the dates of a message -----------------------------------------------------------------------


@pytest.mark.parametrize(("shift", "rule"), [(-5, ""), (-6, "box.future"), (61, "box.expired")])
def test_clocks_may_differ_by_a_little(folder, ann, bea, shift, rule):
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    folder.clock.now += shift
    if rule:
        refused(bea, EnvelopeError, rule, data)
    else:
        assert bea.open(data, about=Q).value == 5


# --- decide, record, build ------------------------------------------------------------------------


def test_the_policy_of_each_side_decides(folder, ann, bea):
    with refusal(PolicyDenied, "context.none"):
        bea.seal(5, to="cy", about=Q, ttl=60)
    assert events(bea)[-1]["rule"] == "context.none"
    data = bea.seal(lambda: 5, to="ann", about=Q, ttl=60)  # code, which ann opens of nobody
    refused(ann, PolicyDenied, "context.family", data)


def test_a_pickle_of_code_is_refused_before_it_is_read(folder, bea, marker):
    ann, theirs = folder.identities["ann"], folder.identities["bea"]
    header = canonical.pack({"serializer": "pickle", "writeable": []})
    data = forged(ann, theirs, sender="ann", header=header, frame=marker.pickle)
    refused(bea, PolicyDenied, "context.family", data)


def test_nothing_is_built_whose_record_fails(ann, bea, monkeypatch):
    data = ann.seal(np.ones(3), to="bea", about=Q, ttl=60)
    bea._keys.audit.broken = {"admit"}
    monkeypatch.setattr("safeser.families.receiving.built", None)
    with pytest.raises(AuditError):
        bea.open(data, about=Q)
    assert [event["event"] for event in events(bea)] == ["refuse"]


@pytest.mark.parametrize(
    ("header", "rule"),
    [(b"\x05", "payload.header"), (b"\x81", "payload.header"), (b"\x80", "families.serializer")],
)
def test_malformed_headers_are_refused_by_name(folder, bea, header, rule):
    ann, theirs = folder.identities["ann"], folder.identities["bea"]
    refused(bea, PayloadError, rule, forged(ann, theirs, sender="ann", header=header))


def test_the_log_beside_the_keys_has_what_was_decided(folder, ann):
    key = AuditKey.new()
    key.save(folder.path / "audit.key")
    data = ann.seal(5, to="bea", about=Q, ttl=60)
    with folder.box("bea", audit=None) as bea:
        opened = bea.open(data, about=Q)
        with pytest.raises(EnvelopeError):
            bea.open(data, about="other")
    (path,) = (folder.path / "audit").glob("*.log")
    assert path.read_text().count(f'"id":"{opened.id.hex()}"') == 2
    assert verify(folder.path / "audit", key=key).ok
    with refusal(ConfigError, "box.audit"):
        folder.path.joinpath("audit.key").unlink()
        folder.box("bea", audit=None)
