"""A failure of a class that only programs know: whole where code is granted, else as data.

The pickle travels beside the data, in the field of the traceback, and is a payload like any other.
"""

from __future__ import annotations

import pickle

import pytest
from distributed.core import clean_exception
from distributed.protocol import to_serialize

from safeser.families.errors.wire import RemoteError

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


def test_a_listed_class_needs_no_pickle_even_there(talk):
    t = talk("client", "scheduler", CODE)
    t.request({"op": "nbytes", "keys": [], "reply": True})
    sent = t.sent(t.server, message(ZeroDivisionError("by zero")))
    assert [row.header["serializer"] for row in sent.rows] == ["error"]


# --- attacks ------------------------------------------------------------------------------------


def error_row(t, failure):
    """Return the row of *failure* as data, as an honest server writes it."""
    return t.sent(t.server, message(failure)).rows[0]


@pytest.mark.parametrize("form", ["opaque", "eager", "cloudpickle", "failed", "author"])
def test_who_takes_data_only_opens_no_pickle_there(talk, forms, form):
    t = talk("reader", "scheduler", CODE)
    t.request({"op": "nbytes", "keys": [], "reply": True})
    row = error_row(t, ValueError("said"))
    got = t.attack_back({"status": "error", "exception": row, "traceback": forms[form]})
    assert str(got["exception"]) == "said"
    assert got["traceback"] is None
    if form != "failed":  # what says itself that it is nothing is not even looked at
        assert t.refused_by_asker == ["context.family"]


@pytest.mark.parametrize("form", ["bare", "bytes", "eager-bytes"])
def test_bytes_there_are_dropped_where_code_is_granted_too(talk, forms, form):
    t = talk("client", "scheduler", CODE)
    t.request({"op": "nbytes", "keys": [], "reply": True})
    row = error_row(t, ValueError("said"))
    got = t.attack_back({"status": "error", "exception": row, "traceback": forms[form]})
    _, raised, traceback = clean_exception(got["exception"], got["traceback"])
    assert (type(raised), traceback) == (ValueError, None)


def test_what_is_no_failure_takes_no_failures_place(talk):
    """Somebody who may send code sends something else: then the data is what counts."""
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
