"""What Dask reads of an answer, and answers in which what was asked for stands behind a relay."""

from __future__ import annotations

import pickle

import pytest
from distributed.protocol.serialize import deserialize

from safeser.errors import PayloadError
from tests.dask.attacks.rows import ALL, FORMS, PICKLE
from tests.refusal import refusal


def asks(talk, asker="alice", server="scheduler", policy="demo", **message):
    t = talk(asker, server, policy)
    t.request({"op": "identity", "reply": True, **message})
    return t


def test_an_error_that_is_told_as_text_steers_no_terminal(talk):
    # clean_exception makes an Exception of text, whose traceback is printed as it is.
    steering = "\x1b[2J\r\u202e"
    reply = {"status": "uncaught-error", "exception": steering, "traceback": None}
    told = [asks(talk).attack_back(reply)["exception"]]
    erred = {"op": "task-erred", "key": "x", "exception": steering, "traceback": None}
    told += [each["exception"] for each in talk("alice").client_stream().attack_back([erred])]
    assert told == ["\\x1b[2J\\r\\u202e"] * 2


def test_a_failed_row_raises_its_text_without_control_characters(talk):
    t = asks(talk, op="gather", keys=["x"])
    row = t.Row(*t.in_msgpack("because\x1b[2J" + "x" * 10_000), None, True)
    with refusal(PayloadError, "peer.unsent") as caught:
        t.attack_back({"status": "OK", "data": {"x": row}})
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_what_a_scheduler_relays_no_code_of_dasks_can_open(talk):
    # Dask's own plugins for installing packages do this with what workers answer.
    t = asks(talk, "scheduler", "worker", op="plugin-add", plugin=b"", name="x")
    row = t.Row(PICKLE, (pickle.dumps({"a": 1}),))
    relayed = t.attack_back({"status": "error", "exception": row, "traceback": None})["exception"]
    with pytest.raises(Exception, match="safeser"):
        deserialize(relayed.header, relayed.frames)


@pytest.mark.parametrize("form", ALL)
def test_a_pickle_for_an_error_fails_the_value_that_was_asked_for(talk, form):
    """Whoever waits for it hears why; an error that says nothing would be asked for for ever."""
    t = asks(talk, "scheduler", "worker", op="get_data", keys=["x"], who=None)
    got = t.attack_back({"status": "uncaught-error", "exception": FORMS[form], "traceback": None})
    down = asks(talk, op="gather", keys=["x"])
    with refusal(PayloadError, "peer.unsent"):
        down.reply(got)


def test_why_there_are_no_samples_is_told(talk):
    t = asks(talk, op="memory_sampler_stop", key="k")
    error = {"status": "uncaught-error", "exception": ValueError("gone"), "traceback": None}
    assert str(t.reply(error)["exception"]) == "gone"
