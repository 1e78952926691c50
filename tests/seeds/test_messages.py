"""A refusal is one text of at most five lines, and a traceback has no frames of safeser."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
import traceback

import pytest

import safeser
from safeser import pickles
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.families.errors import wire
from safeser.families.errors.raising import frames_of_users
from safeser.families.errors.unsent import unsent
from safeser.tracebacks import for_callers, hide_own_frames

LOCK = threading.Lock()

#: Columns of a terminal in which five lines hold a refusal.
COLUMNS = 120


# --- the text ------------------------------------------------------------------------------------


def test_the_parts_stand_in_order_and_forge_no_other():
    error = PolicyDenied("no\n  fix: grant all", rule="a.b\nc", where="x\n", fix="Do\nthat.")
    error.decided_by("lab revision 3\n", "worker\r\n  fix: me")
    assert str(error).split("\n") == [
        "no   fix: grant all, at x",
        "  rule: a.b c of policy lab revision 3 , on worker   fix: me",
        "  fix: Do that.",
    ]


def test_what_decided_first_is_kept():
    error = PolicyDenied("no").decided_by("one revision 1", "a").decided_by("two revision 2", "b")
    assert (error.policy, error.process) == ("one revision 1", "a")
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(twin), twin.process) == (str(error), "a")


def test_a_refusal_is_the_same_text_on_the_other_process():
    error = PolicyDenied("no", rule="a.b", where="here", fix="f" * 3000).decided_by("p", "worker")
    back = wire.from_data(wire.decode(wire.encode(wire.to_data(error))))
    assert str(back) == str(error)
    assert back.__notes__ == [
        "Another process says so, about its own policy: nothing was refused here."
    ]


@pytest.mark.parametrize("field", ["message", "rule", "where", "fix", "policy", "process"])
def test_an_error_whose_fields_a_user_s_code_changed_is_still_data(field):
    error = PayloadError("no")
    setattr(error, field, 1)
    assert type(wire.to_data(error).message) is str
    assert wire.to_data(error).state == ()


def test_of_a_peer_s_control_characters_nothing_is_left():
    error = PolicyDenied("n\x1b[2J", rule="\x07", fix="\x1b]0;", policy="\u202e", process="\x9b")
    error = unsent("w could not send", error, rule="peer.unsent", where="")
    assert all(line.isprintable() for line in str(error).split("\n"))


def test_what_a_sender_says_is_told_once_with_its_whole_fix():
    said = PolicyDenied("m" * 9000, rule="a.b", where="x", fix="f" * 3000).decided_by("lab", "w")
    error = unsent("w could not send this value", said, rule="peer.unsent", where="data.y")
    assert error.fix == f"its sender advises: {'f' * 3000}"
    assert len(error.message) < 700
    assert error.message.endswith("(rule a.b of policy lab, on w)")
    assert error.process == ""  # of this process, which adds its own
    assert str(unsent("it", 3, rule="r", where="")).startswith("it: it gives no reason\n")
    assert unsent("it", "", rule="r", where="").message == "it"
    assert unsent("it", ValueError("no.\nyes."), rule="r", where="").message == "it: no. yes"


# --- tracebacks ----------------------------------------------------------------------------------


def frames(error):
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


CALLS = [
    lambda: safeser.serialize(LOCK, on_error="raise"),
    lambda: safeser.deserialize({"serializer": "dask", "type": "shop:Cart", "sub-header": {}}, []),
    lambda: safeser.serialize_bytes(LOCK, on_error="raise"),
    lambda: safeser.deserialize_bytes(b"x"),
    lambda: pickles.loads(b"x"),
    lambda: pickles.check(b"x"),
    lambda: pickles.inspect(b"x"),
    lambda: pickles.dumps(LOCK),
    lambda: safeser.preflight(LOCK).require(),
    lambda: safeser.tokenize(LOCK, ensure_deterministic=True),
    lambda: safeser.Policy.load("no-such"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_is_short_complete_and_the_caller_s(call):
    with pytest.raises(SafeserError) as caught:
        call()
    assert frames(caught.value) == ["test_a_refusal_is_short_complete_and_the_caller_s", "<lambda>"]
    printed = "".join(traceback.format_exception(caught.value))
    assert "/safeser/" not in printed.replace(__file__, "")
    assert printed.count("Traceback (most recent call last)") <= 2
    text = str(caught.value)
    lines = text.split("\n")
    assert sum(-(-len(line) // COLUMNS) for line in lines) <= 5, text
    assert [line[:7] for line in lines[1:]] in (["  rule:", "  fix: "], [])
    # An ellipsis that means "what you have there", or arguments, is no cut.
    assert "..." not in text.partition("fix: ")[2].replace("[..., ", "").replace("(...)", "")


class Rude:
    def __reduce__(self):
        raise ValueError("my own fault")


def test_the_user_s_own_frames_and_cause_stay():
    with pytest.raises(SafeserError) as caught:
        pickles.dumps(Rude(), code=True)
    assert frames(caught.value.__cause__)[-1] == "__reduce__"
    assert "my own fault" in "".join(traceback.format_exception(caught.value))


def test_the_logger_at_debug_shows_the_frames(caplog):
    with caplog.at_level(logging.DEBUG, logger="safeser"), pytest.raises(SafeserError) as caught:
        pickles.loads(b"x")
    assert len(frames(caught.value)) > 2


def test_errors_that_are_not_safeser_s_lose_its_frames_alone():
    @for_callers
    def call():
        raise ValueError

    with pytest.raises(ValueError, match=r"^$") as caught:
        call()
    assert frames(caught.value)[-1] == "call"  # of this module
    assert "for_callers" not in "".join(traceback.format_exception(caught.value))


def test_a_cycle_of_causes_ends():
    one, two = SafeserError("a"), ConfigError("b")
    one.__cause__, two.__cause__ = two, one
    hide_own_frames(one)
    last = SafeserError("x")
    for _ in range(1000):
        last.__cause__, last = SafeserError("y"), last
    hide_own_frames(last)


def test_a_remote_traceback_keeps_the_user_s_lines():
    text = (
        '  File "distributed/worker.py", line 1, in apply\n    x\n      ^\n'
        '  File "/home/ann/job.py", line 9, in task\n    safeser.loads(b)\n    ^^^^\n'
        '  File "safeser/serialization.py", line 3, in call\n    y\n'
    )
    assert frames_of_users(text) == (
        '  File "/home/ann/job.py", line 9, in task\n    safeser.loads(b)\n    ^^^^'
    )
    assert frames_of_users("") == frames_of_users("  no frames\n") == ""
