"""Sealed graphs on their way to the scheduler: what is refused, and what it gets as data."""

from __future__ import annotations

import pytest
from dask._task_spec import Task

from safeser.dask.contents import opened_graph
from safeser.dask.sealed.node import Sealed
from safeser.identity import Identity, PrivateKey, SigningKey
from tests.dask.conftest import Talk
from tests.dask.sealed.conftest import POLICY
from tests.dask.sealed.graphs import written
from tests.dask.sealed.test_verification import FORMS, run

#: Who knows alice's name and no key that a roster lists.
THIEF = Identity("alice", PrivateKey.generate(), SigningKey.generate())


def submission(header, frames, **changed):
    return {
        "op": "update-graph",
        "expr_ser": Talk.Row(header, tuple(frames)),
        "keys": ["x"],
        "internal_priority": None,
        "submitting_task": None,
        "fifo_timeout": "100ms",
        "actors": None,
        "code": (),
        "annotations": {},
        "span_metadata": None,
        **changed,
    }


@pytest.fixture
def submitted(doors):
    """Return what one principal submits that another signed, as the scheduler reads it."""

    scheduler = doors.identity("scheduler").public

    def made(
        author="alice", sender="alice", *, policy=POLICY, identity=None, audience=None, **changed
    ):
        talk = Talk(doors, sender, "scheduler", policy).greet().client_stream()
        signer = identity or doors.identity(author)
        header, frames = written({"x": Task("x", run)}, signer, audience or scheduler)
        return talk, talk.attack([submission(header, frames, **changed)])

    return made


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({}, None),
        ({"identity": THIEF}, "sealed.author"),
        ({"author": "bob", "sender": "bob"}, "operation.not-granted"),
        ({"author": "bob"}, "sealed.author"),
        ({"author": "scheduler"}, "sealed.author"),
        ({"author": "alice", "sender": "bob"}, "operation.not-granted"),
        ({"audience": PrivateKey.generate().public}, "sealed.audience"),
        ({"policy": "demo"}, "context.family"),
        ({"annotations": {"priority": 1 << 63}}, "submission.annotation"),
    ],
)
def test_what_may_not_be_submitted_is_refused(submitted, options, rule):
    talk, got = submitted(**options)
    if rule is None:
        [update] = got
        assert opened_graph.is_opened(update["expr_ser"])
        built = opened_graph.SERIALIZATION[1](None, update["expr_ser"].frames)
        assert all(isinstance(task, Sealed) for task in built.__dask_graph__().values())
        assert not talk.refused_by_server
    else:
        assert got is Talk.SKIP
        assert talk.refused_by_server[-1] == rule


@pytest.mark.parametrize(
    "options", [{"author": "bob", "sender": "bob"}, {"author": "bob"}, {"policy": "demo"}]
)
def test_nothing_is_decompressed_of_what_may_not_be_submitted(submitted, monkeypatch, options):
    monkeypatch.setattr("safeser.dask.sealed.arrival.parse", lambda *_: pytest.fail("it was read"))
    _, got = submitted(**options)
    assert got is Talk.SKIP


@pytest.mark.parametrize("name", FORMS)
def test_an_unsealed_graph_is_not_opened(doors, forms, name):
    talk = Talk(doors, "alice", "scheduler", POLICY).greet().client_stream()
    got = talk.attack([submission({}, [], expr_ser=forms[name])])
    assert got is Talk.SKIP
    assert talk.refused_by_server


def test_a_sealed_graph_stands_in_no_other_field(doors, alice, audience):
    talk = Talk(doors, "alice", "scheduler", POLICY).greet().client_stream()
    header, frames = written({"x": Task("x", run)}, alice, audience)
    row = Talk.Row(header, tuple(frames))
    for field in ("annotations", "code"):
        talk.refuses([submission(header, frames, **{field: {"x": row}})])
    talk = Talk(doors, "alice", "scheduler", POLICY).greet()
    talk.refuses({"op": "scatter", "data": {"x": row}, "reply": True})
