"""What distributed's own tests found missing of failures and warnings on their way."""

from __future__ import annotations

import pickle

import pytest
from distributed.core import clean_exception
from distributed.protocol import to_serialize

from safeser.dask.contents import failures
from safeser.dask.messages import translate
from safeser.families.errors.wire import RemoteError
from safeser.operations import Server
from tests.dask.contents.test_whole_failures import TwoParts, asked


def raised_from(error, cause):
    error.__cause__ = cause
    return error


def failed(talk, asker, exception):
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
    assert type(failed(talk, asker, to_serialize(TwoParts(1, held)))) is cls


def test_so_does_a_listed_one_that_was_raised_from_an_unlisted_one(talk):
    # tblib, which Dask pickles errors with, keeps what they were raised from.
    error = to_serialize(pickle.dumps(raised_from(RuntimeError("r"), TwoParts(1, 2))))
    raised = failed(talk, "client", error)
    assert type(raised) is RuntimeError
    assert type(raised.__cause__) is TwoParts
    raised = failed(talk, "reader", error)
    assert type(raised) is RuntimeError
    assert type(raised.__cause__) is RemoteError


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
