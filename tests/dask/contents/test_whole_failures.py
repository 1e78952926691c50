"""Failures: whole where code is granted, else as data that names no folder of the server.

The pickle travels beside the data, in the field of the traceback, and is a payload like any other.
"""

from __future__ import annotations

import os
import pickle
import threading
from typing import Any

import pytest
from distributed.core import clean_exception, error_message
from distributed.protocol import to_serialize

from safeser.dask.contents import failures
from safeser.dask.contents.failures import Relayed
from safeser.dask.messages import translate
from safeser.families.errors.wire import RemoteError, from_data
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
    got = translate.incoming_element(Server.SCHEDULER, "task-erred", element, [])
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


# -- what a peer learns of a server's files: the class of a failure, and no folder -----------------


SECRET = "/srv/secret folder/dask"


def failing() -> None:
    error = RuntimeError(f"cannot write {SECRET}/state.msgpack")
    error.add_note(f"while writing {SECRET}/state.msgpack")
    error.__cause__ = KeyError(f"{SECRET}/lock")
    raise error


def handled(status: str) -> dict[str, Any]:
    """Return what Dask itself makes of a failure, its traceback included."""
    try:
        failing()
    except RuntimeError as error:
        return error_message(error, status=status)
    raise AssertionError


def texts(got: dict[str, Any]) -> list[str]:
    """Return all that can be read of a failure that arrived."""
    found = [str(got.get(name)) for name in ("exception_text", "traceback_text", "traceback")]
    error = got["exception"]
    while error is not None:
        found += [str(error), repr(error), str(vars(error)), *getattr(error, "__notes__", ())]
        error = error.__cause__ or error.__context__
    return found


def on_the_wire(talk: Any, said: Any) -> bytes:
    sent = talk.sent(talk.server, said)
    return (
        b"".join(bytes(frame) for row in sent.rows for frame in row.frames)
        + repr(sent.body).encode()
    )


@pytest.mark.parametrize("server", ["scheduler", "worker", "nanny"])
def test_a_failing_handler_names_no_folder_of_its_server(talk, server):
    t = talk("scheduler" if server == "nanny" else "bob", server)
    t.request({"op": "identity"})
    wire = on_the_wire(t, handled("uncaught-error"))
    assert b"secret" not in wire
    assert os.path.dirname(__file__).encode() not in wire
    assert b"site-packages" not in wire
    got = t.reply(handled("uncaught-error"))
    if server == "nanny":  # whose answers a scheduler passes on unopened
        assert isinstance(got["exception"], Relayed)
        return
    assert not any("secret" in text for text in texts(got))
    _, raised, _ = clean_exception(got["exception"], got["traceback"])
    assert type(raised) is RuntimeError
    assert str(raised) == "cannot write state.msgpack"
    assert type(raised.__cause__) is KeyError
    assert any('File "test_whole_failures.py"' in note for note in raised.__notes__)


RUN = {"op": "run_function", "function": pickle.dumps(print), "args": b"", "kwargs": b""}


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        (RUN, "error", True),  # what a principal had run fails with all its files
        (RUN, "uncaught-error", False),  # the handler itself failed
        ({"op": "identity"}, "error", False),  # which is about no code
    ],
)
def test_only_what_a_principal_had_run_names_files(talk, asked, status, told):
    t = talk("client", "scheduler", CODE)
    t.request(asked)
    assert (b"secret" in on_the_wire(t, handled(status))) is told
    t.request(asked)
    got = t.reply(handled(status))
    assert (str(got["exception"]) == f"cannot write {SECRET}/state.msgpack") is told
    assert (__file__ in str(got["traceback_text"])) is told


def test_a_task_fails_with_its_own_files_and_names_libraries_by_themselves():
    library = {"traceback_text": f'  File "{pickle.__file__}", line 1, in f\n'}
    element = {"op": "task-erred", "key": "x", **handled("error"), **library}
    sent = translate.outgoing(element, of_tasks=lambda: True)
    assert sent["exception"].data.message == f"cannot write {SECRET}/state.msgpack"
    assert sent["traceback_text"] == '  File "pickle.py", line 1, in f\n'
    assert sent["exception"].data.traceback == '  File "pickle.py", line 1, in f\n'


@pytest.mark.parametrize(("client", "told"), [("alice", True), ("bob", False)])
def test_a_graph_that_fails_on_the_scheduler_is_its_clients_if_that_may_run_code(
    talk, client, told
):
    t = talk(client).client_stream()
    failure = {name: handled("error")[name] for name in ("exception", "traceback")}
    wire = on_the_wire(t, [{"op": "task-erred", "key": "x", **failure}])
    assert (SECRET.encode() in wire) is told


@pytest.mark.parametrize("form", ["pickle", "object"])
def test_what_stands_for_one_workers_answer_names_none(talk, form):
    try:
        failing()
    except RuntimeError as failed:
        error = failed
    t = talk("alice")
    t.request({"op": "broadcast", "msg": {"op": "identity"}})
    said = {"safeser://127.0.0.1:1": pickle.dumps(error) if form == "pickle" else error}
    assert b"secret" not in on_the_wire(t, said)
    (answer,) = t.reply(said).values()
    answer = pickle.loads(answer) if isinstance(answer, bytes) else answer
    assert type(answer) is RuntimeError
    assert str(answer) == "cannot write state.msgpack"
    assert b"secret" not in on_the_wire(t, handled("uncaught-error"))


def test_a_worker_that_closes_logs_it_as_text():
    event = {
        "op": "log-event",
        "topic": "worker-fail-hard",
        "msg": handled("error"),
        "worker": "w",
    }
    sent = translate.outgoing(event)["msg"]
    assert (sent["exception"], sent["traceback"]) == (None, None)
    assert "RuntimeError" in sent["exception_text"]
    assert "secret" not in str(sent)
    assert 'File "test_whole_failures.py"' in sent["traceback_text"]
    for said in (f"in {SECRET}", to_serialize(5)):  # what users log is theirs
        mine = {"op": "log-event", "topic": "mine", "msg": {"exception": said}}
        assert translate.outgoing(mine) is mine


def raising(program, **names):
    try:
        exec(program, names)
    except Exception as error:
        return error
    raise AssertionError(program)


RAISED = {
    "a file": "open('/nonexistent')",
    "two files": "__import__('os').rename('/nonexistent', '/nor-this')",
    "json": "__import__('json').loads('{')",
    "a command": "__import__('subprocess').run(['false'], check=True)",
    "a module": "import nonexistent_module",
    "a name": "undefined_name",
    "an attribute": "None.missing",
    "bytes": "b'\\xff'.decode()",
    "a group": "raise ExceptionGroup('g', [ValueError(1), KeyError('k')])",
    "a cause": "try: 1 / 0\nexcept ArithmeticError as e: raise RuntimeError('r') from e",
    "attributes and notes": "e = ValueError('x'); e.code = 7; e.add_note('n'); raise e",
    "an attribute that is no data": "e = ValueError('x'); e.code = 7; e.lock = lock; raise e",
    "a key": "{}['k']",
}


@pytest.mark.parametrize("program", RAISED.values(), ids=RAISED)
def test_what_a_task_raises_is_what_it_raised(program):
    error = raising(program, lock=threading.Lock())
    element = {"op": "task-erred", "key": "x", **failures.told(error_message, error)}
    got = from_data(translate.outgoing(element, of_tasks=lambda: True)["exception"].data)
    assert (type(got), str(got)) == (type(error), str(error))
    kept = {name: value for name, value in vars(error).items() if name != "lock"}
    notes = [*kept.pop("__notes__", []), *got.__notes__[-1:]]
    assert vars(got) == {**kept, "__notes__": notes}
    for name in ("filename", "filename2", "errno", "name", "path", "doc", "pos", "cmd", "object"):
        assert getattr(got, name, None) == getattr(error, name, None)
    assert type(got.__cause__) is type(error.__cause__)
    assert [*map(str, getattr(got, "exceptions", ()))] == [
        *map(str, getattr(error, "exceptions", ()))
    ]


def test_an_error_that_dask_cannot_pickle_keeps_its_text():
    class Local(Exception):
        def __str__(self):
            return "as the worker saw it"

    message = failures.told(error_message, Local(threading.Lock()))
    element = {"op": "task-erred", "key": "x", **message}
    got = from_data(translate.outgoing(element, of_tasks=lambda: True)["exception"].data)
    assert type(got) is RemoteError
    assert "as the worker saw it" in str(got)
    assert "Local" in got.remote_type
