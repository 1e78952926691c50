"""Another handshake inside a session: what both sides seal in between arrives, in any order."""

from __future__ import annotations

from collections import deque
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.channel import Ending, Renewal
from safeser.errors import AuthenticationError, EnvelopeError
from safeser.gate.session import MAX_SECONDS
from safeser.identity import KeyState, Roster
from tests.channel.rosters import changed, entry


class Side:
    """One end: seals what it is told to, and takes what the other end sealed in order."""

    def __init__(self, link, *, initiator):
        self.link = link
        self.out = deque()
        self.got = []
        self.renewal = Renewal(
            initiator=initiator,
            begin=partial(link.handshake, initiator=initiator),
            receive_anew=link.renewed,
        )

    def say(self, data):
        self.out.append(self.link.session.seal(b"", [data]))

    def step(self, step):
        self.out.append(self.link.session.seal(b"renew", [step.name, step.data]))
        handshake = self.renewal.sent(step)
        if handshake is not None:
            self.link.session.send_as(handshake.session())

    def take(self, buffers):
        verified = self.link.verify(buffers)
        frames = [bytes(frame) for frame in verified.frames]
        if not verified.header:
            self.got.append(frames[0])
            return
        answer = self.renewal.take(*frames)
        if answer is not None:
            self.step(answer)


class Pair:
    def __init__(self, doors, policy):
        self.ann, self.bea = doors.channel("ann", policy), doors.channel("bea", policy)
        near, far = doors.shake(self.ann, self.bea)
        self.near, self.far = Side(near, initiator=True), Side(far, initiator=False)

    def link_of(self, channel):
        return (self.near if channel is self.ann else self.far).link

    def deliver(self, *, to_far):
        source, target = (self.near, self.far) if to_far else (self.far, self.near)
        if source.out:
            target.take(source.out.popleft())

    def settle(self):
        while self.near.out or self.far.out:
            self.deliver(to_far=True)
            self.deliver(to_far=False)

    @property
    def ids(self):
        return {self.near.link.session.id, self.far.link.session.id}


@pytest.fixture
def pair(doors, policy):
    return Pair(doors, policy)


def second_key(doors, channel, *others):
    """Give *channel* another key, which it and *others* list."""
    identity = doors.identity(channel.identity.principal, "second")
    for each in (channel, *others):
        each.adopt(roster=Roster([*each.standing.listed.entries, entry(identity)]))
    channel.adopt(identity=identity)
    return identity


def both_speak(pair):
    for side, other in ((pair.near, pair.far), (pair.far, pair.near)):
        side.say(b"hello")
        pair.settle()
        assert other.got.pop() == b"hello"


def _retired(channel, identity):
    gone = entry(identity, KeyState.RETIRED)
    return Roster(gone if e.public == gone.public else e for e in channel.standing.listed.entries)


@pytest.mark.parametrize("who", ["ann", "bea"])
def test_either_side_renews_by_a_new_key(doors, pair, who):
    before = pair.ids
    ends = [(pair.ann, pair.near), (pair.bea, pair.far)]
    (one, side), (other, peer) = ends if who == "ann" else ends[::-1]
    identity = second_key(doors, one, other)
    side.step(side.renewal.start())
    pair.settle()
    assert len(pair.ids) == 1
    assert pair.ids.isdisjoint(before)
    assert peer.link.session.peer_key == side.link.own_key == identity.public
    for each in (pair.near, pair.far):  # what records say from now on
        assert each.link.facts.id == each.link.session.id.hex()[:12]
    both_speak(pair)
    for channel in (pair.ann, pair.bea):  # the old key may go now
        channel.adopt(roster=_retired(channel, doors.identity(who)))
    assert pair.near.link.over is pair.far.link.over is None
    both_speak(pair)


@given(order=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_what_is_said_meanwhile_arrives_in_order(doors, policy, order):
    pair = Pair(doors, policy)
    before = pair.ids
    pair.near.step(pair.near.renewal.start())
    said = {True: [], False: []}
    for number, (speaks, to_far) in enumerate(order):
        if speaks:
            data = str(number).encode()
            (pair.near if to_far else pair.far).say(data)
            said[to_far].append(data)
        else:
            pair.deliver(to_far=to_far)
    pair.settle()
    assert pair.far.got == said[True]
    assert pair.near.got == said[False]
    assert pair.ids.isdisjoint(before)
    both_speak(pair)


def test_the_time_of_the_session_begins_anew(doors, policy):
    now = [0.0]
    pair = Pair(doors, policy)
    for side in (pair.near, pair.far):
        side.link.session._clock = lambda: now[0]
        side.link.session._ends_at = MAX_SECONDS
    assert not pair.near.link.session.is_aged
    now[0] = MAX_SECONDS / 2
    assert pair.near.link.session.is_aged
    pair.near.step(pair.near.renewal.start())
    pair.settle()
    now[0] = MAX_SECONDS + 1.0
    both_speak(pair)


def test_a_session_that_is_old_is_renewed_and_a_fresh_one_is_left_alone(pair):
    link, asked = pair.near.link, []
    link.when_stale(lambda: asked.append(1))
    pair.ann.tend()
    assert asked == []
    link.session._clock = lambda: link.session._ends_at - MAX_SECONDS / 2
    pair.ann.tend()
    assert asked == [1]


@pytest.mark.parametrize("lists", ["ann", "bea"])
def test_who_does_not_list_the_new_key_yet_goes_on_by_the_old_one(doors, pair, lists):
    """The other end's roster comes later: it refuses, and both speak as before."""
    before = pair.ids
    one = pair.ann if lists == "ann" else pair.bea
    second_key(doors, one)
    side = pair.near if lists == "ann" else pair.far
    side.step(side.renewal.start())
    pair.settle()
    assert pair.ids == before
    assert pair.near.renewal.under_way is pair.far.renewal.under_way is None
    both_speak(pair)


def test_another_principals_key_does_not_renew_a_session(doors, policy, pair):
    """A peer that holds two keys cannot turn one session into the other's."""
    cy = doors.channel("cy", policy)
    handshake = cy.handshake(initiator=True)
    answer = pair.far.renewal.take(b"hello", handshake.outgoing)
    handshake.feed(answer.data[:12])
    proof = handshake.feed(answer.data[12:])
    assert pair.far.renewal.take(b"proof", proof).name == b"refuse"
    assert pair.far.link.peer == "ann"


def test_a_key_that_is_retired_while_it_renews_ends_the_session(doors, pair):
    second_key(doors, pair.ann, pair.bea)
    pair.near.step(pair.near.renewal.start())
    for to_far in (True, False, True):
        pair.deliver(to_far=to_far)
    pair.bea.adopt(roster=_retired(pair.bea, doors.identity("ann", "second")))
    pair.deliver(to_far=False)
    pair.deliver(to_far=True)
    assert pair.far.link.over == Ending("key.retired", "ann")
    with pytest.raises(EnvelopeError):
        pair.far.say(b"x")


@pytest.mark.parametrize(
    "name", [b"accept", b"proof", b"answer", b"nonsense", b"ask", b"", b"hello"]
)
def test_steps_out_of_order_end_the_session(pair, name):
    if name == b"hello":  # where one goes over already
        pair.near.step(pair.near.renewal.start())
        for to_far in (True, False, True):  # hello, answer, proof
            pair.deliver(to_far=to_far)
        with pytest.raises(EnvelopeError, match="inside another"):  # nor one that comes too soon
            pair.far.renewal.decline()
    with pytest.raises(EnvelopeError) as refused:
        pair.far.renewal.take(name, b"x" * 384)
    assert refused.value.rule == "envelope.renewal"


@pytest.mark.parametrize("size", [0, 1, 12, 44, 384, 385, 428, 5000])
@pytest.mark.parametrize("step", [b"hello", b"answer", b"proof"])
def test_a_step_of_anything_else_is_refused(pair, step, size):
    before, side = pair.ids, pair.near if step == b"answer" else pair.far
    if step != b"hello":
        pair.near.step(pair.near.renewal.start())
    if step == b"proof":
        pair.deliver(to_far=True)
    assert side.renewal.take(step, b"x" * size).name == b"refuse"
    assert pair.ids == before
    if step == b"hello":
        both_speak(pair)


def test_one_that_takes_long_is_not_begun_again(pair):
    """A busy peer answers late, and its answer belongs to the first."""
    before = pair.ids
    pair.near.step(pair.near.renewal.start())
    assert pair.near.renewal.start() is None
    pair.far.step(pair.far.renewal.start())
    pair.settle()
    assert pair.ids.isdisjoint(before)
    both_speak(pair)


def test_who_may_not_speak_any_more_begins_none(doors, pair):
    pair.near.link._when_over = lambda ending: None  # its end is on its way
    pair.ann.adopt(roster=changed(pair.ann.standing.listed, "ann", state=KeyState.RETIRED))
    with pytest.raises(AuthenticationError):
        pair.near.renewal.start()
