"""``Channel.dial`` and ``answer``: the handshake in one call, over any socket of messages."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from safeser.errors import AuthenticationError, EnvelopeError, SafeserError
from safeser.gate.handshake import REFUSED
from safeser.gate.values import Kind
from safeser.identity import KeyState
from tests.channel.rosters import changed
from tests.refusal import refusal


@pytest.fixture
def ends():
    """Two ends of a socket that carries whole messages, and gives up after a while."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for each in pair:
        each.settimeout(5)
    yield pair
    for each in pair:
        each.close()


def received(end):
    return lambda: end.recv(1 << 20)


class Answering(threading.Thread):
    """Answers on another thread; :meth:`link` returns what came of it."""

    def __init__(self, channel, end):
        super().__init__()
        self.channel, self.end, self.found = channel, end, None
        self.start()

    def run(self):
        try:
            self.found = self.channel.answer(self.end.send, received(self.end), address="pipe")
        except SafeserError as error:
            self.found = error

    def link(self):
        self.join()
        return self.found


def test_two_calls_make_a_session(doors, policy, ends):
    ann, bea = doors.channel("ann", policy), doors.channel("bea", policy)
    answering = Answering(bea, ends[1])
    near = ann.dial(ends[0].send, received(ends[0]), peer="bea")
    far = answering.link()
    assert (near.peer, far.peer, far.address) == ("bea", "ann", "pipe")
    for number in range(3):
        sealed = near.seal({"n": number}, near.outbound(Kind.DATA))
        ends[0].send(b"".join(sealed))
        context = far.inbound(Kind.DATA)
        admitted = far.admit_message(far.verify([ends[1].recv(1 << 20)]), context)
        assert far.load(admitted) == [{"n": number}]
        assert (
            ann.open(bea.seal(number, far.outbound(Kind.DATA)), near.inbound(Kind.DATA)) == number
        )


def test_sockets_may_be_asynchronous(doors, policy):
    async def run():
        there, back = asyncio.Queue(), asyncio.Queue()
        near, far = await asyncio.gather(
            doors.channel("ann", policy).dial(there.put, back.get, peer="bea"),
            doors.channel("bea", policy).answer(back.put, there.get),
        )
        return near.peer, far.peer

    assert asyncio.run(run()) == ("bea", "ann")


def test_both_ends_take_turns(doors, policy, ends):
    """As REQ and REP demand it: one sends when the other has."""
    turns = []

    def send(name, end):
        return lambda data: turns.append((name, len(data))) or end.send(data)

    channel = doors.channel("bea", policy)
    thread = threading.Thread(
        target=channel.answer, args=(send("answers", ends[1]), received(ends[1]))
    )
    thread.start()
    doors.channel("ann", policy).dial(send("dials", ends[0]), received(ends[0]))
    thread.join()
    assert [name for name, _ in turns] == ["dials", "answers"] * 2
    assert [size for _, size in turns[:3]] == [44, 428, 384]


def test_an_unlisted_key_is_refused_and_recorded(doors, policy, ends):
    bea = doors.channel("bea", policy)
    bea.adopt(roster=changed(bea.standing.listed, "ann", state=KeyState.RETIRED))
    answering = Answering(bea, ends[1])
    with refusal(AuthenticationError, "authentication.refused"):
        doors.channel("ann", policy).dial(ends[0].send, received(ends[0]))
    assert isinstance(answering.link(), AuthenticationError)
    assert [event["rule"] for event in bea.audit.events][1:] == ["authentication.key"]


def test_a_session_that_was_not_accepted_takes_no_ones_place(doors, policy, ends):
    ann, bea = doors.channel("ann", policy), doors.channel("bea", policy)
    answering = Answering(bea, ends[1])
    near = ann.dial(ends[0].send, received(ends[0]))
    assert answering.link()
    told = []

    def refused():  # in clear text, as those can who are on the way
        told.append(ends[0].recv(1 << 20) if not told else REFUSED)
        return told[-1]

    answering = Answering(bea, ends[1])
    with refusal(AuthenticationError, "authentication.refused"):
        ann.dial(ends[0].send, refused)
    assert answering.link()
    assert ann.seal(5, near.outbound(Kind.DATA))
    assert [link for link in ann.live_links() if not link.session.ended] == [near]


def test_a_stranger_without_a_key_is_counted(doors, policy):
    bea = doors.channel("bea", policy)
    with pytest.raises(AuthenticationError):
        bea.answer(lambda _: None, lambda: b"GET / HTTP/1.1")
    assert [(row[0], row[3]) for row in bea.audit.counts] == [("unknown", "authentication")]


def test_another_peer_than_the_expected_one_is_refused(doors, policy, ends):
    answering = Answering(doors.channel("ann", policy), ends[1])
    with pytest.raises(AuthenticationError):
        doors.channel("bea", policy).dial(ends[0].send, received(ends[0]), peer="cy")
    ends[0].close()
    assert isinstance(answering.link(), AuthenticationError)


#: What a stranger sends in place of a handshake, and whether it gets an answer.
STRANGERS = {
    "nothing": (b"", False),
    "http": (b"GET / HTTP/1.1\r\n\r\n".ljust(44), False),
    "far too much": (bytes(1 << 16), False),
    "another version": (b"\x93SAFESER\x01".ljust(44, b"\0"), False),
    "a key of low order": (b"\x93SAFESER\x02".ljust(44, b"\0"), True),
    "more than a message": (b"\x93SAFESER\x02\0\0\0" + b"\x09".ljust(32, b"\0") + b"more", False),
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_learns_nothing(doors, policy, ends, name):
    data, answered = STRANGERS[name]
    answering = Answering(doors.channel("bea", policy), ends[1])
    ends[0].send(data)
    if name == "more than a message":
        ends[0].send(bytes(380))
        ends[0].recv(1 << 10)  # message 2
        answered = True
    found = answering.link()
    assert isinstance(found, AuthenticationError)
    assert ("could not be authenticated" in str(found)) != (name in ("nothing", "far too much"))
    ends[1].close()
    assert ends[0].recv(1 << 10) == (REFUSED if answered else b"")


@pytest.mark.parametrize(
    "strange", ["text", None, 7, memoryview(b"abcd")[::2]], ids=["text", "none", "number", "gaps"]
)
def test_what_is_no_message_is_one_error(doors, policy, strange):
    bea = doors.channel("bea", policy)

    async def later():
        return strange

    for start in (bea.answer, bea.dial):
        sent = []
        with refusal(AuthenticationError, "authentication"):
            start(sent.append, lambda: strange)
        with refusal(AuthenticationError, "authentication"):
            asyncio.run(start(sent.append, later))


def test_the_first_message_must_be_the_acceptance(doors, policy, ends):
    ann, bea = doors.channel("ann", policy), doors.channel("bea", policy)

    def answer():
        handshake = bea.handshake(initiator=False)
        data = ends[1].recv(1 << 10)
        handshake.feed(data[:12])
        ends[1].send(handshake.feed(data[12:]))
        handshake.feed(ends[1].recv(1 << 10))
        ends[1].send(handshake.session().sealed(b"", [b"welcome"]))

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(EnvelopeError) as caught:
        ann.dial(ends[0].send, received(ends[0]))
    assert caught.value.rule == "envelope.control"
    thread.join()
