"""joblib's Dask backend: each call ends, also where its argument or result is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from joblib import _dask, parallel

from safeser.dask.clients import joblib_calls
from safeser.errors import SerializationError

PROGRAM = Path(__file__).parents[1] / "programs" / "joblib_refused.py"

REFUSED = SerializationError("no", rule="peer.unsent")


class Loop:
    def add_callback(self, call, *arguments):
        asyncio.run(call(*arguments))


class Made:
    """A future of Dask's, as far as joblib looks at it."""

    def __init__(self, status):
        self.status = status


class Futures(list):
    add = list.append

    async def __aiter__(self):
        while self:
            yield self.pop(0)


@pytest.fixture
def backend():
    """joblib's backend with a client that does what a test says."""
    joblib_calls.register_backend()
    made = object.__new__(joblib_calls._backend())
    made.client = SimpleNamespace(loop=Loop(), submit=None)
    made.submit_kwargs, made._results, made._callbacks = {}, {}, {}
    made.data_futures, made.waiting_futures, made._continue = {}, Futures(), True
    return made


def batch():
    return SimpleNamespace(items=[(abs, (-1,), {})])


def collected(backend, status, result):
    """Submit one batch, have it end so, and return what joblib's callback and future got."""
    told = []
    made = Made(status)
    backend.client.submit = lambda *_, **__: made
    future = backend.submit(batch(), told.append)
    assert backend.waiting_futures == [made]
    backend.waiting_futures[:] = [(made, result)]

    async def once():
        task = asyncio.ensure_future(backend._collect())
        while not told:
            await asyncio.sleep(0)
        backend._continue = False
        await task

    asyncio.run(once())
    return told, future


def test_a_result(backend):
    told, future = collected(backend, "finished", [1])
    assert told == [[1]]
    assert future.get(timeout=0) == [1]


@pytest.mark.parametrize(
    ("status", "result"),
    [("error", (SerializationError, REFUSED, None)), ("cancelled", REFUSED)],
)
def test_a_future_without_a_result_fails_the_call(backend, status, result):
    told, future = collected(backend, status, result)
    assert told == [REFUSED]
    assert future.exception(timeout=0) is REFUSED
    with pytest.raises(SerializationError):
        backend.retrieve_result_callback(told[0])


def test_what_cannot_be_submitted_fails_the_call(backend):
    def submit(*_, **__):
        raise REFUSED

    backend.client.submit = submit
    told = []
    future = backend.submit(batch(), told.append)
    assert told == [REFUSED]
    assert future.exception(timeout=0) is REFUSED
    assert not backend.waiting_futures


def test_other_releases_are_left_as_they_are(monkeypatch):
    older = type("Older", (), {"apply_async": None})
    monkeypatch.setattr(_dask, "DaskDistributedBackend", older)
    assert joblib_calls._backend.__wrapped__() is older


def test_joblib_finds_it_under_its_usual_name(monkeypatch):
    joblib_calls.register_backend()
    monkeypatch.setattr(joblib_calls, "_backend", lambda: dict)
    assert parallel.BACKENDS["dask"](a=1) == {"a": 1}


def test_a_backend_of_joblib_that_is_there_already_ends_calls_too(monkeypatch):
    """A task's joblib makes its backend, which then asks for the client that registers this one."""
    stock = type("Stock", (), {"submit": None, "_collect": None})
    monkeypatch.setattr(_dask, "DaskDistributedBackend", stock)
    made = stock()
    monkeypatch.setattr(joblib_calls, "_backend", joblib_calls._backend.__wrapped__)
    joblib_calls.register_backend.__wrapped__()
    assert made.submit.__func__ is joblib_calls._submit
    assert made._collect.__func__ is joblib_calls._collect


def test_without_joblib(monkeypatch):
    monkeypatch.setattr(joblib_calls, "find_spec", lambda name: None)
    monkeypatch.setattr("joblib.register_parallel_backend", None)
    joblib_calls.register_backend.__wrapped__()


@pytest.mark.cluster
def test_refused_calls_end(visit):
    told = visit("default").answer("client", PROGRAM)
    assert told["result"] == "SerializationError peer.unsent"
    assert told["raised"] == "ValueError"
    assert told["argument"].partition(" ")[0] != "returned"
    assert told["scattered"].partition(" ")[0] != "returned"
    assert told["nested"] == "returned [[1, 1]]"
    assert told["then"] == "returned [1, 2]"
