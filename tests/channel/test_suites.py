"""``suite: encrypt`` between programs that use a Channel: what leaves is ciphertext, or nothing."""

from __future__ import annotations

import numpy as np
import pytest

from safeser.channel import Ending
from safeser.channel.records import PATIENCE
from safeser.envelope import HandshakeRefused
from safeser.errors import SafeserError
from safeser.policy import Policy
from safeser.values import Context, Suite
from tests.channel.test_renewal import Pair

WORD = b"Zq7Confidential3xW"


def in_suite(policy: str, suite: str = "encrypt") -> str:
    return policy.replace("revision: 3\n", f"revision: 3\nsuite: {suite}\n")


def said(kind: str = "data") -> Context:
    return Context("ann", "bea", kind)


@pytest.fixture
def pair(doors, policy):
    """Return the channels of ann and bea under encrypt, who have a session."""
    ann, bea = doors.channel("ann", in_suite(policy)), doors.channel("bea", in_suite(policy))
    doors.shake(ann, bea)
    return ann, bea


@pytest.mark.parametrize("suite", ["encrypt", "authenticate"])
def test_nothing_of_a_value_is_readable_where_it_is_encrypted(doors, policy, suite):
    ann, bea = (doors.channel(name, in_suite(policy, suite)) for name in ("ann", "bea"))
    doors.shake(ann, bea)
    value = {WORD.decode(): [np.frombuffer(WORD * 100, np.uint8), WORD * 100_000]}
    wire = b"".join(map(bytes, ann.seal(value, said())))
    for word in (WORD, b"serializer", b"dask"):
        assert (word in wire) is (suite == "authenticate")
    assert str(bea.open([wire], said())) == str(value)


def test_what_the_caller_gave_is_not_written_to(pair):
    ann, bea = pair
    wire = bytearray(b"".join(map(bytes, ann.seal(WORD * 10, said()))))
    before = bytes(wire)
    bea.open([memoryview(wire)], said())
    assert wire == before


# --- both sides keep to their own policy ---------------------------------------------------------


def test_the_stricter_policy_holds_or_there_is_no_session(doors, policy):
    weak, strict = policy, in_suite(policy)
    for one, two, suite in (
        (weak, weak, Suite.AUTHENTICATE),
        (strict, weak, Suite.ENCRYPT),
        (strict, strict, Suite.ENCRYPT),
    ):
        links = doors.shake(doors.channel("ann", one), doors.channel("bea", two))
        assert [link.session.suite for link in links] == [suite] * 2
    with pytest.raises(HandshakeRefused) as caught:
        doors.shake(doors.channel("ann", weak), doors.channel("bea", strict))
    assert caught.value.principal == "ann"


def test_a_link_is_of_the_suite_of_its_own_transport(doors, policy):
    """Whatever the handshake was made for."""
    text = policy.replace(
        "  - name: little\n",
        "  - {name: out, sender: cy, recipient: bea, transport: safeser, suite: encrypt}\n"
        "  - name: little\n",
    )
    cy, bea = doors.channel("cy", text), doors.channel("bea", text)
    one, two = doors.handshakes(cy, bea)
    assert one.session().suite is Suite.AUTHENTICATE
    for channel, handshake in ((cy, one), (bea, two)):
        with pytest.raises(HandshakeRefused):
            channel.link(handshake, transport="safeser", same_host=True)
        assert channel.link(handshake).session.suite is Suite.AUTHENTICATE


def test_an_initiator_that_expects_no_one_proposes_the_strictest(doors, policy):
    text = policy.replace("name: little\n", "name: little\n    suite: encrypt\n")
    ann, bea = doors.channel("ann", text), doors.channel("bea", text)

    def proposed(channel, **options):
        return channel.handshake(initiator=True, **options).outgoing[9]

    assert proposed(bea) == proposed(bea, expected_peer="cy") == Suite.ENCRYPT
    assert proposed(bea, expected_peer="ann") == proposed(ann) == Suite.AUTHENTICATE
    with pytest.raises(HandshakeRefused):  # what it proposed holds for whomever it reaches
        doors.shake(doors.channel("cy", policy), bea)


# --- a policy that changes while sessions live ---------------------------------------------------


def adopt(channel, text, *, revision=4):
    assert channel.adopt(policy=Policy.parse(text.replace("revision: 3", f"revision: {revision}")))


def test_a_session_goes_over_to_the_stricter_suite_and_back(doors, policy):
    pair = Pair(doors, policy)
    for revision, suite in ((4, Suite.ENCRYPT), (5, Suite.AUTHENTICATE)):
        for channel in (pair.ann, pair.bea):
            pair.link_of(channel).when_stale(lambda: None)
            adopt(channel, in_suite(policy, suite.word), revision=revision)
        pair.near.say(b"before")
        pair.near.step(pair.near.renewal.start())
        pair.near.say(b"behind")
        pair.settle()
        assert pair.far.got == [b"before", b"behind"]
        pair.far.got.clear()
        assert {side.link.session.suite for side in (pair.near, pair.far)} == {suite}
        pair.near.say(WORD)
        [buffers] = pair.near.out
        assert (WORD in b"".join(map(bytes, buffers))) is (suite is Suite.AUTHENTICATE)
        pair.settle()
        assert pair.far.got.pop() == WORD
    counted = [rule for *_, rule, _ in pair.bea.audit.counts]
    assert counted == ["suite.authenticate", "suite.encrypt", "suite.authenticate"]


@pytest.mark.parametrize("first", ["near", "far"])
def test_a_peer_that_requires_less_is_not_renewed_by_less(doors, policy, first):
    """Neither by its own proposal nor by taking one: the stricter policy holds, or it ends."""
    pair = Pair(doors, policy)
    strict = pair.bea
    link = pair.link_of(strict)
    link.when_stale(lambda: None)
    adopt(strict, in_suite(policy))
    if first == "far":
        pair.far.step(pair.far.renewal.start())
    else:
        pair.near.step(pair.near.renewal.start())
    pair.settle()
    assert link.session.suite is Suite.AUTHENTICATE
    assert link.over is None
    for _ in range(PATIENCE):
        strict.tend()
    assert link.over == Ending("policy.suite", "ann")


@pytest.mark.parametrize(
    ("before", "after"), [("authenticate", "encrypt"), ("encrypt", "authenticate")]
)
def test_a_session_that_is_not_renewed_ends_only_where_the_policy_forbids_it(
    doors, policy, before, after
):
    ann, bea = (doors.channel(name, in_suite(policy, before)) for name in ("ann", "bea"))
    near, _ = doors.shake(ann, bea)
    adopt(ann, in_suite(policy, after))
    for _ in range(PATIENCE * 2):
        ann.tend()
    if after == "encrypt":
        assert near.over == Ending("policy.suite", "bea")
        with pytest.raises(SafeserError):
            ann.seal(WORD, said())
    else:
        assert near.over is None
        assert bea.open(ann.seal(WORD, said()), said()) == WORD
