"""Answers that Dask's client goes through, piece by piece: they are lists of what was asked for.

A range takes a few bytes at any length, and so does an array that repeats one element. Whoever went
through one never came to an end, and had its event loop to itself meanwhile.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import safeser
from safeser.dask.messages.pending import pending
from safeser.dask.wire.bounded_repr import has_bounded_repr
from safeser.errors import PayloadError
from safeser.operations import shapes

#: Two hundred bytes of a message each, or fewer.
ENDLESS = {
    "range": range(1 << 60),
    "keys": np.broadcast_to(np.array("k"), (1 << 27,)),
    "records": np.broadcast_to(
        np.array(("k", "k", "k"), [("data", "U1"), ("type", "U1"), ("value", "U1")]), (1 << 26,)
    ),
}

TASK = {"key": "k", "worker": "w", "startstops": ({"action": "compute", "start": 1, "stop": 2},)}
QUEUED = {"type": "msgpack", "value": 5}
FUTURE = {"type": "Future", "value": ("k", 1), "state": "memory"}
STORY = (("k", "released", "waiting", {}, "stimulus", 1.5),)

#: What is asked, one honest answer, and others: where ... stands, something endless.
ASKED = {
    "gather": (
        {"op": "gather", "keys": ["k", "l"]},
        {"status": "error", "keys": ("k",)},
        [
            {"status": "error", "keys": ...},
            {"status": "error", "keys": ("k", "k", "k")},
            {"status": "error", "keys": ("k", "other")},
            {"status": "error"},
            {"status": "OK"},
            {"status": "OK", "data": ...},
            {"status": "OK", "data": {"k": 1}},
            {"status": ...},
            ...,
        ],
    ),
    "gathered": (
        {"op": "gather", "keys": ["k", "l"]},
        {"status": "OK", "data": {"k": 1, "l": 2}},
        [],
    ),
    "datasets": ({"op": "publish_list"}, ("a", ("b", 1)), [..., (...,)]),
    "retry": (
        {"op": "retry", "keys": ["k"], "client": "c"},
        ("k", "l"),  # a stock scheduler also names what they depend on
        [..., ("k", "k"), 5, "kl"],
    ),
    "story": ({"op": "get_story", "keys_or_stimuli": ["k"]}, STORY, [..., (...,), "text"]),
    "stories": (
        {"op": "broadcast", "msg": {"op": "get_story", "keys_or_stimuli": ["k"]}},
        {"w": STORY},
        [..., {"w": ...}, {"w": STORY, "v": (...,)}],
    ),
    "other": ({"op": "broadcast", "msg": {"op": "identity"}}, {"w": 5}, []),
    "dataset": (
        {"op": "publish_get", "names": ["a", "b"]},
        ({"data": 5, "keys": ()}, None),
        [..., (..., None), (None,), (None, {"keys": ()}), (None, None, None), 5],
    ),
    "queue": (
        {"op": "queue_get", "name": "q"},
        QUEUED,
        [..., {"type": ..., "value": 1}, {}, (FUTURE,)],
    ),
    "queues": (
        {"op": "queue_get", "name": "q", "batch": True},
        (QUEUED, FUTURE),
        [..., (...,), FUTURE, (5,), ({**FUTURE, "state": ...},), ({**FUTURE, "value": ...},)],
    ),
    "variable": (
        {"op": "variable_get", "name": "v", "client": "c"},
        {**FUTURE, "token": "t"},
        [..., {"type": "Future", "value": "k"}, 5, {**FUTURE, "token": ...}],
    ),
    "stream": (
        {"op": "get_task_stream"},
        (TASK, {"key": "l"}),
        [..., (...,), (None,), ({**TASK, "startstops": ...},), ({**TASK, "startstops": (...,)},)],
    ),
}


def filled(answer, endless):
    """Return *answer* with *endless* where it has ``...``."""
    if answer is ...:
        return endless
    if isinstance(answer, dict):
        return {key: filled(value, endless) for key, value in answer.items()}
    return tuple(filled(each, endless) for each in answer) if isinstance(answer, tuple) else answer


def asks(talk, **message):
    t = talk("client", "scheduler", "trusted")
    t.request({"reply": True, **message})
    return t


@pytest.mark.parametrize("endless", ENDLESS)
@pytest.mark.parametrize("name", ASKED)
def test_only_lists_of_what_was_asked_for_arrive(talk, name, endless):
    asked, honest, answers = ASKED[name]
    t = asks(talk, **asked)
    header, frames = safeser.serialize(ENDLESS[endless])
    row = t.Row({k: v for k, v in header.items() if k != "lengths"}, tuple(frames))
    for answer in answers:
        with pytest.raises(PayloadError) as caught:
            t.attack_back(filled(answer, row))
        assert caught.value.rule == "reply.form", answer
    assert t.reply(honest) == honest


def test_a_worker_that_was_told_who_has_what_names_what_it_did_not_get(talk):
    t = talk("scheduler", "worker", "trusted")
    t.request({"op": "gather", "who_has": {"k": ["safeser://127.0.0.1:1"]}, "reply": True})
    header, frames = safeser.serialize(ENDLESS["range"])
    row = t.Eager(t.Row({k: v for k, v in header.items() if k != "lengths"}, tuple(frames)))
    for answer in ({"status": "partial-fail", "keys": row}, row, {"status": row}, {}):
        with pytest.raises(PayloadError) as caught:
            t.attack_back(answer)
        assert caught.value.rule == "reply.form"
    for honest in ({"status": "OK"}, {"status": "partial-fail", "keys": ("k",)}):
        assert t.reply(honest) == honest


@pytest.mark.parametrize("endless", ["keys", "records"])
def test_how_it_went_is_a_word(talk, endless):
    """An array is compared piece by piece, or not at all."""
    t = talk("scheduler", "worker", "trusted")
    t.request({"op": "update_data", "data": {"k": 1}, "reply": True})
    header, frames = safeser.serialize(ENDLESS[endless])
    row = t.Eager(t.Row({k: v for k, v in header.items() if k != "lengths"}, tuple(frames)))
    with pytest.raises(PayloadError) as caught:
        t.attack_back({"status": row, "nbytes": {"k": 28}})
    assert caught.value.rule == "reply.form"


@pytest.mark.parametrize("endless", ["keys", "records"])
def test_what_dask_writes_out_is_no_longer_than_what_came(talk, endless):
    """A dump of a cluster goes to a file, and task streams say what workers are called."""
    header, frames = safeser.serialize(ENDLESS[endless])
    asked = {
        "dump_state": ({"x": ...}, {"id": "Worker-1", "tasks": {"k": {"nbytes": 28}}}),
        "get_cluster_state": (
            {"scheduler": {}, "workers": {"w": {"x": (...,)}}},
            {"scheduler": {"id": "s", "n": 5}, "workers": {"w": {"id": "w"}, "v": "OSError()"}},
        ),
        "get_task_stream": (({**TASK, "worker": (...,)},), (TASK,)),
    }
    for op, (answer, honest) in asked.items():
        t = talk("scheduler" if op == "dump_state" else "client", "worker", "trusted")
        t.request({"op": "identity", "reply": True})
        t.asker._asked = pending({"op": op, "exclude": ()})
        row = t.Row({k: v for k, v in header.items() if k != "lengths"}, tuple(frames))
        with pytest.raises(PayloadError) as caught:
            t.attack_back(filled(answer, row))
        assert caught.value.rule == "reply.form"
        assert t.reply(honest) == honest


#: Six to the power of eleven elements of one byte, all of which NumPy prints.
LONG = np.broadcast_to(np.array(1, "i1"), (6,) * 11)

#: What is asked of a cluster, an honest answer, and where something is printed of it.
TOLD = {
    "identity": (
        {"op": "identity"},
        {"id": "s", "services": {"dashboard": 8787}, "workers": {"w": {"nthreads": 1}}},
        [{"id": "s", "services": {"dashboard": ...}}, {"n_workers": ...}, {"workers": {"w": ...}}],
    ),
    "ncores": ({"op": "ncores"}, {"w": 1}, [..., {"w": ...}]),
    "processing": ({"op": "processing"}, {"w": ("k",)}, [{"w": ...}, {"w": (...,)}]),
    "call_stack": ({"op": "call_stack"}, {"k": ("x",)}, [{"k": (...,)}]),
    "worker_logs": ({"op": "worker_logs"}, {"w": (("INFO", "x"),)}, [{"w": (("INFO", ...),)}]),
    "versions": (
        {"op": "broadcast", "msg": {"op": "versions"}},
        {"w": {"packages": {"python": "3"}}},
        [{"w": {"packages": {"python": ...}}}],
    ),
    "run": (
        {"op": "broadcast", "msg": {"op": "run", "function": b""}},
        {"w": {"status": "OK", "result": 1}},
        [{"w": {"status": ..., "result": 1}}, {"w": ...}],
    ),
    "plugin": (
        {"op": "register_worker_plugin", "plugin": b"", "name": "p"},
        {"w": {"status": "OK"}},
        [{"w": {"status": ...}}],
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_is_told_of_a_cluster_can_be_printed(talk, name):
    """Of an array of eleven axes NumPy leaves nothing out: a byte is a gigabyte of text."""
    asked, honest, answers = TOLD[name]
    t = asks(talk, op="identity")
    t.asker._asked = pending(asked)
    header, frames = safeser.serialize(LONG)
    row = t.Row({k: v for k, v in header.items() if k != "lengths"}, tuple(frames))
    for answer in answers:
        with pytest.raises(PayloadError) as caught:
            t.attack_back(filled(answer, row))
        assert caught.value.rule == "reply.form", answer
    assert t.reply(honest) == honest


def test_numbers_of_numpy_are_told_and_what_users_put_in_is_theirs(talk):
    t = asks(talk, op="identity")
    assert t.reply({"workers": {"w": {"metrics": {"own": np.float32(2)}}}})
    t = asks(talk, op="get_metadata", keys=["x"])
    assert t.reply({"x": LONG})["x"].shape == LONG.shape
    t = asks(talk, op="identity")
    t.asker._asked = pending({"op": "broadcast", "msg": {"op": "run"}})
    assert t.reply({"w": {"status": "OK", "result": LONG}})["w"]["result"].shape == LONG.shape


@pytest.mark.parametrize(
    "value",
    [
        Fraction(1, 2),
        Decimal(1),
        pd.Timestamp("2020"),
        pd.NaT,
        pd.Timedelta(1),
        np.datetime64("2020"),
        np.longdouble(1),
        (({1.5}, {1j}), {"a": b""}),
    ],
)
def test_what_a_worker_tells_of_itself_is_heard_by_clients(talk, value):
    """Each of them asks for it to look at the workers."""
    assert shapes.shape("small")({"own": value})
    t = asks(talk, op="identity")
    told = t.reply({"workers": {"w": {"metrics": {"own": value}}}})
    assert repr(told["workers"]["w"]["metrics"]["own"]) == repr(value)


@pytest.mark.parametrize("value", [OrderedDict(a=1), Counter("a"), defaultdict(int), np.add])
def test_what_clients_would_not_hear_no_worker_tells(value):
    assert not has_bounded_repr(value)
    assert not shapes.shape("small")({"own": value})
