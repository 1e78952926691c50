"""What a peer learns of a server's files when a handler fails there: the class, and no folder."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
from distributed.core import clean_exception, error_message
from distributed.protocol import to_serialize

from safeser.dask.contents.failures import Relayed
from safeser.dask.messages import translate
from tests.dask.contents.test_whole_failures import CODE

SECRET = "/srv/secret folder/dask"


def failing() -> None:
    error = RuntimeError(f"cannot write {SECRET}/state.msgpack")
    error.add_note(f"while writing {SECRET}/state.msgpack")
    error.__cause__ = KeyError(f"{SECRET}/lock")
    raise error


def message(status: str) -> dict[str, Any]:
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
    wire = on_the_wire(t, message("uncaught-error"))
    assert b"secret" not in wire
    assert os.path.dirname(__file__).encode() not in wire
    assert b"site-packages" not in wire
    got = t.reply(message("uncaught-error"))
    if server == "nanny":  # whose answers a scheduler passes on unopened
        assert isinstance(got["exception"], Relayed)
        return
    assert not any("secret" in text for text in texts(got))
    _, raised, _ = clean_exception(got["exception"], got["traceback"])
    assert type(raised) is RuntimeError
    assert str(raised) == "cannot write state.msgpack"
    assert type(raised.__cause__) is KeyError
    assert any('File "test_private_failures.py"' in note for note in raised.__notes__)


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
    assert (b"secret" in on_the_wire(t, message(status))) is told
    t.request(asked)
    got = t.reply(message(status))
    assert (str(got["exception"]) == f"cannot write {SECRET}/state.msgpack") is told
    assert (__file__ in str(got["traceback_text"])) is told


def test_a_task_fails_with_its_own_files_and_names_libraries_by_themselves():
    library = {"traceback_text": f'  File "{pickle.__file__}", line 1, in f\n'}
    element = {"op": "task-erred", "key": "x", **message("error"), **library}
    sent = translate.outgoing(element, of_tasks=lambda: True)
    assert sent["exception"].data.message == f"cannot write {SECRET}/state.msgpack"
    assert sent["traceback_text"] == '  File "pickle.py", line 1, in f\n'
    assert sent["exception"].data.traceback == '  File "pickle.py", line 1, in f\n'


@pytest.mark.parametrize(("client", "told"), [("alice", True), ("bob", False)])
def test_a_graph_that_fails_on_the_scheduler_is_its_clients_if_that_may_run_code(
    talk, client, told
):
    t = talk(client).client_stream()
    failure = {name: message("error")[name] for name in ("exception", "traceback")}
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
    assert b"secret" not in on_the_wire(t, message("uncaught-error"))


def test_a_worker_that_closes_logs_it_as_text(talk):
    event = {"op": "log-event", "topic": "worker-fail-hard", "msg": message("error"), "worker": "w"}
    sent = translate.outgoing(event)["msg"]
    assert (sent["exception"], sent["traceback"]) == (None, None)
    assert "RuntimeError" in sent["exception_text"]
    assert "secret" not in str(sent)
    assert 'File "test_private_failures.py"' in sent["traceback_text"]
    for said in (f"in {SECRET}", to_serialize(5)):  # what users log is theirs
        mine = {"op": "log-event", "topic": "mine", "msg": {"exception": said}}
        assert translate.outgoing(mine) is mine
