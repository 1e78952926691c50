"""Answers that Dask's client goes through or prints: plain data, and objects as large as they came.

Ranges and keys without end are rows of ``tests/dask/attacks/rows_of_handlers.py``.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest

import safeser
from safeser.dask.messages.pending import pending
from safeser.dask.wire.bounded_repr import has_bounded_repr
from safeser.errors import PayloadError


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


@pytest.mark.parametrize("value", [OrderedDict(a=1), Counter("a"), defaultdict(int), np.add])
def test_no_size_bounds_the_text_of_other_objects(value):
    assert not has_bounded_repr(value)
