"""A failure of a class that only programs know: whole where code is granted, else as data.

The pickle travels beside the data, in the field of the traceback, and is a payload like any other.
"""

from __future__ import annotations

import pickle

import pytest
from distributed.core import clean_exception
from distributed.protocol import to_serialize

from safeser.dask.contents import failures
from safeser.dask.messages import translate
from safeser.families.errors.wire import RemoteError
from safeser.operations import Server

CODE = """\
safeser: 1
name: code-both-ways
revision: 1
principals: {scheduler: {}, worker: {}, client: {}, reader: {}}
contexts:
  - name: code
    sender: [scheduler, worker, client]
    recipient: [scheduler, worker, client]
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
    operations: {grant: [basic, cluster, run]}
  - name: data
    sender: [scheduler, reader]
    recipient: [scheduler, reader]
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic]}
"""


class TwoParts(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)
        self.b = b


def message(error, **more):
    """Return what Dask's ``error_message`` makes of *error*."""
    return {
        "status": "error",
        "exception": to_serialize(pickle.dumps(error)),
        "traceback": to_serialize(pickle.dumps("a traceback object")),
        "exception_text": repr(error),
        "traceback_text": "  line 1, in f\n",
        **more,
    }


def asked(talk, asker):
    """Return a connection on which *asker* had code run, if it may, and waits for what comes."""
    t = talk(asker, "scheduler", CODE)
    code = {"op": "run_function", "function": pickle.dumps(print), "args": b"", "kwargs": b""}
    t.request(code if asker == "client" else {"op": "nbytes", "keys": [], "reply": True})
    return t


def failed(talk, asker, error, **options):
    t = asked(talk, asker)
    got = t.reply(message(error), **options)
    _, raised, traceback = clean_exception(got["exception"], got["traceback"])
    assert traceback is None
    assert any("line 1, in f" in note for note in raised.__notes__)
    return t, raised


def test_whoever_takes_code_gets_the_failure_whole(talk):
    _, raised = failed(talk, "client", TwoParts(1, 2))
    assert type(raised) is TwoParts
    assert (raised.args, raised.b) == ((1, 2), 2)


@pytest.mark.parametrize(
    ("asker", "narrow", "refused"),
    [
        ("reader", {}, []),  # it was not even sent
        ("client", {"deserializers": ["dask", "msgpack"]}, ["caller.deserializers"]),
    ],
)
def test_who_takes_data_only_gets_it_as_data(talk, asker, narrow, refused):
    t, raised = failed(talk, asker, TwoParts(1, 2), **narrow)
    assert type(raised) is RemoteError
    assert raised.remote_type.endswith(":TwoParts")
    assert "(1, 2)" in str(raised)
    assert t.refused_by_asker == refused


def raised_from(error, cause):
    error.__cause__ = cause
    return error


def unpickled(talk, asker, exception):
    """Return what *asker* reads of an error that no traceback says more of."""
    got = asked(talk, asker).reply({"status": "error", "exception": exception})
    return clean_exception(got["exception"], got["traceback"])[1]


@pytest.mark.parametrize(
    ("asker", "held", "cls"),
    [
        ("client", 2, TwoParts),
        ("reader", 2, RemoteError),
        ("client", (each for each in ()), RemoteError),  # which cannot be pickled
    ],
)
def test_an_actors_error_comes_whole_though_dask_does_not_pickle_it(talk, asker, held, cls):
    assert type(unpickled(talk, asker, to_serialize(TwoParts(1, held)))) is cls


def test_so_does_a_listed_one_that_was_raised_from_an_unlisted_one(talk):
    # tblib, which Dask pickles errors with, keeps what they were raised from.
    error = to_serialize(pickle.dumps(raised_from(RuntimeError("r"), TwoParts(1, 2))))
    for asker, cause in (("client", TwoParts), ("reader", RemoteError)):
        raised = unpickled(talk, asker, error)
        assert (type(raised), type(raised.__cause__)) == (RuntimeError, cause)


@pytest.mark.parametrize(
    ("text", "kept"), [("  line 1, in f\n", "  line 1, in f\n"), (None, None), (b"x", None)]
)
def test_the_scheduler_keeps_the_text_of_a_traceback(text, kept):
    # It looks for the text only where there is a traceback.
    element = {"op": "task-erred", "exception": None, "traceback": b"x", "traceback_text": text}
    got = translate.incoming_element(Server.SCHEDULER, "task-erred", element).message
    assert got["traceback"] == kept
    got["exception"] = failures.failure_of(KeyError("k"))
    assert translate.outgoing(got)["traceback"] is None
    assert translate.outgoing(got, takes_code=lambda: True)["traceback"] is None


# --- attacks ------------------------------------------------------------------------------------


def error_row(t, failure):
    """Return the row of *failure* as data, as an honest server writes it."""
    return t.sent(t.server, message(failure)).rows[0]


def test_bytes_there_are_dropped_where_code_is_granted_too(talk, forms):
    t = talk("client", "scheduler", CODE)
    t.request({"op": "nbytes", "keys": [], "reply": True})
    row = error_row(t, ValueError("said"))
    got = t.attack_back({"status": "error", "exception": row, "traceback": forms["bare"]})
    _, raised, traceback = clean_exception(got["exception"], got["traceback"])
    assert (type(raised), traceback) == (ValueError, None)


def test_what_is_no_failure_takes_no_failures_place(talk):
    t = talk("client", "scheduler", CODE)
    t.request({"op": "nbytes", "keys": [], "reply": True})
    for value in ("text", SystemExit(0), ValueError):
        data = error_row(t, TwoParts(1, 2))
        row = t.Row({"serializer": "pickle", "writeable": []}, (pickle.dumps(value),))
        got = t.attack_back({"status": "error", "exception": data, "traceback": row})
        assert type(got["exception"]) is RemoteError
        assert got["traceback"] is None


def test_a_worker_reports_it_whole_and_the_scheduler_passes_it_on_unopened(talk, marker):
    up = talk("worker", "scheduler", CODE).worker_stream()
    row = error_row(up, TwoParts(1, 2))
    evil = up.Row({"serializer": "pickle", "writeable": []}, (marker.pickle,))
    element = {"op": "task-erred", "key": "x", "exception": row, "traceback": evil}
    [got] = up.attack([element])
    assert type(got["traceback"]).__name__ == "Relayed"
    # Without a grant for what the worker wrote, it goes no further.
    down = talk("reader", "scheduler", CODE).client_stream()
    [seen] = down.reply([{**got, "op": "task-erred"}])
    assert type(seen["exception"]) is RemoteError
    assert seen["traceback"] is None
