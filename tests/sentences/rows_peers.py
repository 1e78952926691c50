"""Sentences of what stands between Dask and its peers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest import mock

from safeser.dask.client import Client
from safeser.dask.clients.references import _elsewhere
from safeser.dask.contents.events import plain_event
from safeser.dask.messages import translate
from safeser.dask.messages.building import _check_written_out
from safeser.dask.messages.pending import COUNTS, answered
from safeser.dask.sealed import arrival
from safeser.dask.security import Security
from safeser.dask.settings import _NoLog
from safeser.dask.stock import client as stock
from safeser.dask.stock.headers import Translator
from safeser.dask.stock.wire import Room
from safeser.dask.transport.session_control import SessionControl
from safeser.dask.wire.reader import Reader
from safeser.errors import SafeserError
from safeser.gate.values import Limits
from tests.sentences.sentence import Sentence

NAMED = SimpleNamespace(name=COUNTS, takes={"process": None})
NO_HEADER = SimpleNamespace(header=b"x", frames=())


def a_traceback_of_bytes() -> None:
    refused: list[SafeserError] = []
    translate._no_traceback(b"x", refused)
    raise refused[0]


def guarded_beside_a_worker() -> None:
    worker = SimpleNamespace(status="running")
    with mock.patch.object(stock.Worker, "_instances", [worker]):
        stock._refuse_unguarded()


def an_actor_that_was_not_signed() -> None:
    with mock.patch.object(arrival, "barrier_plan"):
        arrival._require_place(SimpleNamespace(flags=0), {"actor": True}, Limits())


ROWS = [
    Sentence(
        "audit.none", lambda: _NoLog().record({}), "this channel is for looking at settings only"
    ),
    Sentence(
        "config.security",
        lambda: Security(identiy="x"),
        "safeser.Security takes no argument 'identiy'",
    ),
    Sentence(
        "dask.actor",
        lambda: _elsewhere("increment"),
        "increment is a method on the worker that has the actor",
    ),
    Sentence(
        "envelope.control",
        lambda: asyncio.run(SessionControl.take(None, NO_HEADER)),
        "a message has an unknown header",
    ),
    Sentence(
        "operation.field-missing",
        lambda: answered(NAMED, "a", {}),
        "serialization_counts lacks the field process",
    ),
    Sentence(
        "payload.dask-serialized",
        lambda: translate.from_dask_pickle({}, []),
        "a payload that Dask serialized by itself cannot be sent on safeser://",
    ),
    Sentence(
        "payload.duplicate-key",
        lambda: Reader(Limits()).read(b"\x82\xa1a\x01\xa1a\x02"),
        "a dictionary repeats a key",
    ),
    Sentence(
        "raw.event", lambda: plain_event("print", "x"), "an event is not one that can be shown"
    ),
    Sentence(
        "raw.topic",
        lambda: translate._show_element("event", {"topic": 1}, bool, []),
        "the topic of an event must be a name",
    ),
    Sentence(
        "raw.traceback",
        a_traceback_of_bytes,
        "a traceback arrived as raw bytes, which are never unpickled",
    ),
    Sentence(
        "raw.type",
        lambda: translate._for_scheduler("task-finished", {"type": 1}, []),
        "the type of a result must be a name",
    ),
    Sentence("raw.warn", lambda: translate._warning_event((0, 1)), "a warning must be text"),
    Sentence(
        "scheme.in-use",
        guarded_beside_a_worker,
        "a worker is open in this process, and would not be able to connect any more",
    ),
    Sentence(
        "sealed.actor",
        an_actor_that_was_not_signed,
        "a task is to make an actor, or none, against what its author signed",
    ),
    Sentence(
        "sendable.client",
        lambda: Client.submission_context(SimpleNamespace(_policy_link=lambda: None)),
        "this client is not connected to a scheduler on safeser://",
    ),
    Sentence(
        "stock.compression",
        lambda: Room(Limits()).take(-1),
        "compressed frames do not say their size, or it is over max_array or max_bytes",
    ),
    Sentence(
        "stock.family",
        lambda: Translator.value(None, {"serializer": "own"}, []),
        "a value came in a family that is not one of dask, msgpack and pickle",
    ),
    Sentence(
        "stock.msgpack",
        lambda: Translator._packed(SimpleNamespace(_limits=Limits()), object()),
        "plain values hold something that is none, or too much of it",
    ),
    Sentence(
        "submission.graph",
        lambda: _check_written_out({"expr_ser": 1}),
        "there is no graph to submit",
    ),
]
