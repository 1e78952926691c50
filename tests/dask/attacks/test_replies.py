"""What Dask reads of an answer, and answers in which what was asked for stands behind a relay."""

from __future__ import annotations

import pickle

import pytest
from distributed.protocol.serialize import deserialize

from safeser.dask.contents.failures import Relayed
from safeser.errors import PayloadError
from safeser.families.errors import wire
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


def test_a_failure_that_may_pass_is_left_to_dask(talk):
    t = asks(talk, "scheduler", "worker", op="get_data", keys=["x"], who=None)
    row = t.Row({"serializer": "error"}, (wire.encode(wire.to_data(OSError("gone"))),))
    got = t.attack_back({"status": "uncaught-error", "exception": row, "traceback": None})
    assert got["status"] == "uncaught-error"
    assert isinstance(got["exception"], Relayed)
    # Without a reason Dask would ask for the values for ever.
    t = asks(talk, "scheduler", "worker", op="get_data", keys=["x"], who=None)
    got = t.attack_back({"status": "uncaught-error", "exception": None, "traceback": None})
    assert (got["status"], set(got["data"])) == ("OK", {"x"})
