"""The one table of states: whole, and with no way from one side's states to the other's."""

from __future__ import annotations

import pytest

from safeser.dask.messages import states
from safeser.dask.messages.states import Meaning, State, meaning_of, meaning_of_malformed

ASKER, SERVER = State.ASKER_GREETING, State.SERVER_GREETING

OPERATION, ANSWER, BATCH, WORD = {"op": "identity"}, {"status": "OK"}, ({"op": "x"},), "OK"


def reached(state):
    """Return every state that something can lead to from *state*."""
    found, ahead = set(), [state]
    while ahead:
        state = ahead.pop()
        if state not in found:
            found.add(state)
            ahead += states.NEXT[state]
    return found


def test_each_state_is_reached_by_one_side():
    assert reached(ASKER) | reached(SERVER) == set(State)
    assert reached(ASKER) & reached(SERVER) == {State.STREAMING}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("body", [OPERATION, ANSWER, BATCH, WORD, None, 5])
def test_each_message_means_something_in_each_state(state, body):
    assert meaning_of(state, body) in Meaning
    assert meaning_of_malformed(state) in Meaning


def test_an_asker_is_asked_nothing():
    served = {Meaning.REQUEST, Meaning.LAST_WORD}
    for state in reached(ASKER):
        assert not served & {meaning_of(state, body) for body in (OPERATION, ANSWER, BATCH, WORD)}
        assert meaning_of_malformed(state) not in served


def test_a_server_reads_no_replies():
    asked = {Meaning.REPLY, Meaning.START}
    for state in reached(SERVER):
        assert not asked & {meaning_of(state, body) for body in (OPERATION, ANSWER, BATCH, WORD)}
        assert meaning_of_malformed(state) not in asked


def test_a_stream_stays_one():
    assert not states.NEXT[State.STREAMING]
    assert not states.NEXT[State.UNOPENED]


def seen(talk, *steps):
    """Return the states of asker and server after each of *steps*."""
    found = []
    for step in steps:
        step()
        found.append((talk.asker.state, talk.server.state))
    return found


def test_a_transfer_of_values_ends_with_a_word(talk):
    t = talk("client", "worker", "default")
    value = {"status": "OK", "data": {"x": 1}}
    ask = {"op": "get_data", "keys": ["x"], "who": "safeser://1:1", "reply": True}
    assert (t.asker.state, t.server.state) == (State.ASKING, State.SERVING)
    assert seen(t, lambda: t.request(ask), lambda: t.reply(value), lambda: t.request("OK")) == [
        (State.ASKING, State.CONFIRMING),
        (State.ASKING, State.CONFIRMING),
        (State.ASKING, State.SERVING),
    ]
    assert t.request("OK") is t.SKIP  # which answers nothing any more
    assert "operation.missing" in t.refused_by_server


@pytest.mark.parametrize(
    ("who", "more", "answer", "between"),
    [
        ("client", {"client": "Client-1", "versions": {}}, [{"op": "stream-start"}], "STARTING"),
        ("worker", {"address": "safeser://127.0.0.1:1"}, {"status": "OK"}, "OPENING"),
    ],
)
def test_who_registers_opens_a_stream(talk, who, more, answer, between):
    t = talk(who, policy="default")
    ask = {"op": f"register-{who}", "reply": False, **more}
    assert seen(t, lambda: t.request(ask), lambda: t.reply(answer)) == [
        (State[between], State.STREAMING),
        (State.STREAMING, State.STREAMING),
    ]


def test_a_stream_that_does_not_start_is_forgotten(talk):
    t = talk("client", policy="default")
    t.request({"op": "register-client", "client": "Client-1", "reply": False, "versions": {}})
    with pytest.raises(Exception, match="start of a stream"):
        t.reply([{"op": "key-in-memory", "key": "x"}])
    assert t.asker.state is State.UNOPENED
    assert t.asker.forgotten
