"""What others make a client print or log is text that steers no terminal and formats nothing."""

from __future__ import annotations

import asyncio
import inspect
import io
import logging
from contextlib import nullcontext

import numpy as np
import pytest
from distributed import Status
from distributed.client import Client, _handle_print
from distributed.protocol import to_serialize
from distributed.scheduler import Scheduler, WorkerState

from safeser.dask.contents.events import plain_event
from safeser.errors import PayloadError

STEERING = "\x1b]0;mine\x07\x1b[2J\x9b1m\r\u202e"
RECORD = {"name": "safeser.test-events", "levelno": 40, "levelname": "ERROR", "created": 1.5}


#: Each takes a few bytes of a message, or as many as the first element.
MANY = np.broadcast_to(np.int8(1), (6,) * 11)
LONG = [
    MANY,
    np.broadcast_to(np.array("x" * 1000), (500,)),
    np.zeros((), [("a", "i1", (6,) * 4)])[()],
    np.array([{"a": MANY}]),
]


class Raises(Exception):
    def __str__(self):
        raise OSError


def told(talk, topic, said):
    """Return the event that a client's handler gets when a guest logs *said*."""
    guest = talk("bob").request({"op": "log_event", "topic": topic, "msg": said, "reply": False})
    t = talk("alice").client_stream()
    [element] = t.reply([{"op": "event", "topic": topic, "event": (1.0, guest["msg"])}])
    return element["event"]


@pytest.mark.parametrize(
    "said",
    [
        STEERING,
        {"args": (STEERING, "x"), "sep": STEERING, "end": STEERING, "file": 2},
        {"args": (to_serialize(ValueError(STEERING)),)},
        {"args": ((STEERING,), {"x": STEERING}, 10**18, None)},
    ],
    ids=["text", "everywhere", "error", "nested"],
)
def test_what_a_guest_prints_steers_nobodys_terminal(talk, capfd, said):
    _handle_print(told(talk, "print", said))
    out, err = capfd.readouterr()
    assert out + err
    assert all(c.isprintable() or c in "\n\t" for c in out + err)


@pytest.mark.parametrize(
    ("said", "args"),
    [
        *(((said,), (str(said),)) for said in (np.arange(5), {"x": [1, {2.5}]})),
        (("a",) * 100_000, ("a",) * 100_000),
        (("Größe:\t5", "x"), ("Größe:\t5", "x")),
    ],
    ids=["array", "mapping", "much", "text"],
)
def test_what_says_what_it_holds_is_printed(said, args):
    _, printed = plain_event("print", (0, {"args": said, "sep": " | ", "end": "!\n", "file": 1}))
    assert (printed["args"], printed["sep"], printed["end"]) == (args, " | ", "!\n")


def test_an_object_without_a_text_is_named():
    for said, named in ((Raises(), "OSError"), (10**5000, "ValueError")):
        assert named in plain_event("print", (1.0, said))[1]


@pytest.mark.parametrize("said", LONG, ids=lambda said: type(said).__name__)
def test_what_says_far_more_than_it_holds_is_named(said):
    """A message of two hundred bytes kept everybody's clients busy until they ran out of memory."""
    name = type(said).__qualname__
    assert plain_event("print", (0, said))[1] in (f"<builtins.{name}>", f"<numpy.{name}>")
    _, printed = plain_event("print", (0, {"args": (said, [said])}))
    assert printed["args"][1] == "<builtins.list>"
    _, record = plain_event("forwarded-log-record-x", (0, {"name": "x", "msg": {"a": said}}))
    assert record["msg"] == "<builtins.dict>"


@pytest.mark.parametrize("said", [{"args": [STEERING]}, {"args": (), "file": STEERING}])
def test_what_dask_calls_a_type_error_stays_one_and_plain(said):
    with pytest.raises(TypeError, match="client received") as caught:
        _handle_print(plain_event("print", (1.0, said)))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("topic", "event"),
    [
        *(("print", event) for event in (None, (1.0,))),
        *(("print", (1.0, {"args": (), **said})) for said in ({"sep": 5}, {"end": b"x"})),
        *(("forwarded-log-record-x", event) for event in (None, (1.0, "text"), (1.0, {}))),
        ("forwarded-log-record-x", (1.0, {"name": 5})),
    ],
)
def test_what_dask_can_neither_print_nor_log_is_refused(topic, event):
    with pytest.raises(PayloadError):
        plain_event(topic, event)
    mine = (1.0, {"x": STEERING})
    assert plain_event("of-glass", mine) is mine  # whoever subscribed to it


@pytest.fixture
def lines():
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(lineno)d %(message)s"))
    logger = logging.getLogger(RECORD["name"])
    logger.addHandler(handler)
    yield said
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    "attributes",
    [
        {"msg": STEERING, "levelname": STEERING, "exc_text": STEERING, "stack_info": STEERING},
        {"msg": "%2000000000d", "args": (1,)},
        {"msg": "%(x)2000000000d", "args": {"x": 1}},
        {"msg": "x", "getMessage": "y", "__class__": "z", "lineno": "five", "exc_info": (1, 2)},
        {"msg": ("a", STEERING)},
    ],
)
def test_a_forwarded_log_record_is_a_line_of_text(talk, lines, attributes):
    event = told(talk, "forwarded-log-record-forward-logging-x", {**RECORD, **attributes})
    Client._handle_forwarded_log_record(None, event)
    assert len(lines.getvalue()) < 1000
    assert lines.getvalue().startswith(RECORD["name"])
    assert all(c.isprintable() or c in "\n\t" for c in lines.getvalue())


def test_an_honest_record_arrives(talk, lines):
    said = {**RECORD, "msg": "a worker says 5", "args": None, "lineno": 7, "worker": "alice"}
    event = told(talk, "forwarded-log-record-x", said)
    Client._handle_forwarded_log_record(None, event)
    assert lines.getvalue() == f"{RECORD['name']} ERROR 7 a worker says 5\n"
    assert event[1]["worker"] == "alice"


# --- events that the scheduler keeps --------------------------------------------------------------


class Running:
    """What ``Scheduler.replicate`` asks of a scheduler that has one worker and is given no keys."""

    def __init__(self):
        self.logged = []
        self.running = {WorkerState(address=WORKER, status=Status.running, pid=0, **ABOUT)}
        self._replica_lock = lambda _: nullcontext()

    def log_event(self, topic, msg):
        self.logged.append((1.0, msg))


WORKER = "safeser://127.0.0.1:1"
ABOUT = {"name": "w", "memory_limit": 0, "local_directory": "", "nanny": None, "server_id": "s"}


def test_events_of_copies_name_workers_by_their_addresses(talk):
    """Dask logs their states, which are no data: nobody was told any events after one of them."""
    running = Running()
    replicate = inspect.unwrap(Scheduler.replicate)
    asyncio.run(replicate(running, keys=[], n=1))
    [(_, said)] = running.logged
    assert isinstance(said["workers"][0], WorkerState), "the control did not run"
    told = {**said, "workers": (WORKER,)}
    t = talk("bob")
    t.request({"op": "events", "topic": "all", "reply": True})
    assert t.reply(running.logged) == ((1.0, told),)
    t = talk("alice").client_stream()
    [element] = t.reply([{"op": "event", "topic": "all", "event": (1.0, said)}])
    assert element["event"][1] == told
