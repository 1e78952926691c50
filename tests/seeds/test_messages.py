"""A refusal is one text of at most five lines, and a traceback has no frames of safeser."""

from __future__ import annotations

import copy
import logging
import pickle
import re
import traceback
import warnings

import pytest

import safeser
from safeser import families, pickles
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.families.errors import wire
from safeser.families.errors.raising import frames_of_users
from safeser.families.errors.unsent import unsent
from safeser.policy import explain
from safeser.tracebacks import callers_level, for_callers, hide_own_frames
from safeser.values import Context
from safeser.wording import legible, on_one_line, shortened
from tests.seeds.refusals import CASES, FILE, LOCK, POLICY, Point, text_of

#: Refusals whose reader can change nothing.
NO_FIX = {"a message that was changed"}

#: A policy of one context, which opens next to nothing.
PLAIN = """
safeser: 1
name: plain
revision: 1
principals: {ann: {}, bob: {}}
contexts:
  - name: plain
    sender: ann
    recipient: bob
    deserializers: [msgpack]
"""

#: Columns of a terminal in which five lines hold a refusal.
COLUMNS = 120


@pytest.fixture(scope="module")
def texts():
    return {name: text_of(case) for name, case in CASES.items()}


def test_the_texts_are_those_that_were_read(texts):
    known = {}
    for entry in FILE.read_text("utf-8").removeprefix("# ").rstrip("\n").split("\n\n# "):
        name, _, text = entry.partition("\n")
        known[name] = text
    assert texts == known


@pytest.mark.parametrize("name", CASES)
def test_each_is_short_complete_and_in_order(texts, name):
    text = texts[name]
    assert not text.startswith("NOT REFUSED")
    lines = text.split("\n")
    assert sum(-(-len(line) // COLUMNS) for line in lines) <= 5, text
    if name.startswith("a policy"):  # a fault of a file is one line
        assert len(lines) == 1
        return
    assert lines[1].startswith("  rule: ")
    assert name in NO_FIX or lines[2].startswith("  fix: ")
    assert all(text.count(line.strip()) == 1 for line in lines)
    # An ellipsis that means "what you have there", or arguments, is no cut.
    fix = text.partition("fix: ")[2].replace("[..., ", "").replace("(...)", "")
    assert "..." not in fix


# --- the text ------------------------------------------------------------------------------------


def test_the_parts_stand_in_order_and_forge_no_other():
    error = PolicyDenied("no\n  fix: grant all", rule="a.b\nc", where="x\n", fix="Do\nthat.")
    error.decided_by("lab revision 3\n", "worker\r\n  fix: me")
    assert str(error).split("\n") == [
        "no   fix: grant all, at x",
        "  rule: a.b c of policy lab revision 3 , on worker   fix: me",
        "  fix: Do that.",
    ]


class Unpicklable:
    def __reduce__(self):
        raise ValueError


def denied(x, *more):
    with pytest.raises(PayloadError) as caught:
        families.serialize(x, ("dask", "msgpack", "error", *more))
    return caught.value


def test_an_object_that_no_family_takes_is_named_once():
    lock, own = denied(LOCK, "pickle"), denied(Unpicklable(), "pickle")
    assert (
        lock.message == "cannot serialize an object of type _thread:lock by dask, msgpack, pickle"
    )
    assert own.message.endswith(
        ":Unpicklable by dask, msgpack, pickle: it, or something in it, cannot be pickled"
    )
    assert denied(lambda: 1, "pickle").message.endswith(":function by dask, msgpack, pickle")


def test_a_task_is_not_advised_to_be_registered():
    dask = pytest.importorskip("dask")
    from safeser.dask.clients import dask_collections

    dask_collections.register()
    node = dask.delayed(print)(1)
    task = next(iter(node.__dask_graph__().values()))
    assert denied(task).fix == "Have its result and its error sent, not the task itself."
    assert denied(node).fix.startswith("Send .compute() or .persist() of it")


def test_a_method_that_stands_beside_the_client_hides_frames_too():
    from safeser.dask.clients.replay import Replay

    for name in ("recreate_error_locally", "recreate_task_locally"):
        assert getattr(Replay, name).__code__.co_filename == for_callers.__code__.co_filename


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
    back = wire.from_data(wire.decode(wire.encode(wire.to_data(error))))
    assert all(line.isprintable() for line in str(back).split("\n"))
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


def test_names_lose_their_middle():
    assert shortened("a" * 80) == "a" * 80
    assert shortened("x" * 50 + "y" * 50, 11) == "xxxx...yyyy"
    assert len(shortened("x" * 100)) == 80
    assert legible("a\x1b" * 100, 10) == "aa...a"
    assert on_one_line("a\r\nb\x85c\u2028d") == "a b c d"


# --- tracebacks ----------------------------------------------------------------------------------


def frames(error):
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


CALLS = [
    lambda: safeser.serialize(LOCK, on_error="raise"),
    lambda: safeser.deserialize({"serializer": "pickle"}, [b""], ["pickle"]),
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
def test_the_traceback_is_the_caller_s(call):
    with pytest.raises(SafeserError) as caught:
        call()
    assert frames(caught.value) == ["test_the_traceback_is_the_caller_s", "<lambda>"]
    printed = "".join(traceback.format_exception(caught.value))
    assert "/safeser/" not in printed.replace(__file__, "")
    assert printed.count("Traceback (most recent call last)") <= 2


class Rude:
    def __reduce__(self):
        raise ValueError("my own fault")


def test_the_user_s_own_frames_and_cause_stay():
    with pytest.raises(SafeserError) as caught:
        pickles.dumps(Rude(), code=True)
    assert frames(caught.value.__cause__)[-1] == "__reduce__"
    assert "my own fault" in "".join(traceback.format_exception(caught.value))


def test_what_the_user_was_handling_stays():
    try:
        _ = {}["mine"]
    except KeyError:
        with pytest.raises(SafeserError) as caught:
            pickles.loads(b"x")
    assert type(caught.value.__context__) is KeyError


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


def test_a_warning_names_the_user_s_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("x", stacklevel=callers_level())
    assert caught[0].filename == __file__


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


def test_advice_about_a_class_is_a_line_that_solves_it():
    with pytest.raises(PolicyDenied) as caught:
        pickles.loads(pickle.dumps(Point()))
    line = f"'pickle: {{allow: {{\"{Point.__module__}:Point\": class}}}}'"
    assert line in caught.value.fix


# --- policies -------------------------------------------------------------------------------------


def test_all_faults_of_a_policy_file_are_said_at_once():
    """With hints that can be followed."""
    text = POLICY.replace("kinds: [admin, data]", "same_host: yes").replace(
        "revision: 7", "revision: -7"
    )
    with pytest.raises(ConfigError) as caught:
        safeser.Policy.parse(text.replace("sender: bob", "sender: bobby"), "lab.yaml")
    assert len(caught.value.faults) == len(str(caught.value).splitlines()) == 3
    hints = " ".join(each.fix for each in caught.value.faults)
    assert "Numbers have no sign" in hints
    assert "Did you mean 'bob'?" in hints
    assert "Write true." in hints
    mended = text.replace("-7", "7").replace("same_host: yes", "same_host: true")
    assert safeser.Policy.parse(mended, "lab.yaml").name == "lab"


@pytest.mark.parametrize("family", ["dask", "pickle"])
def test_what_explain_advises_applied_permits(family):
    """The edit is a word of the policy: written there, it permits what was denied."""
    context = Context("ann", "bob", transport="safeser")
    policy = safeser.Policy.parse(PLAIN)
    fix = explain(policy, context, family).decision.fix
    edits = re.findall(r"add (\w+) to 'deserializers'", fix)
    assert fix.startswith("In context 'plain' (line ")
    listed = ", ".join(["msgpack", *edits])
    edited = safeser.Policy.parse(
        PLAIN.replace("deserializers: [msgpack]", f"deserializers: [{listed}]")
    )
    assert not explain(policy, context, family).decision.permitted
    assert explain(edited, context, family).decision.permitted
