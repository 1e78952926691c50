"""Sinks beside the file: each gets whole records, and none costs the log anything."""

from __future__ import annotations

import threading
import time

import pytest

from safeser.audit import SessionFacts
from safeser.audit.names import Resolver
from safeser.audit.outputs.feed import Feed, Outputs
from safeser.audit.record import Record
from tests.conftest import until


class Kept:
    """A sink in memory, which fails or waits as it is told."""

    name = "kept"

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.failures = 0
        self.error: Exception = BrokenPipeError("gone")
        self.may_go = threading.Event()
        self.may_go.set()
        self.calls = 0
        self.closed = False

    def send(self, records):
        self.calls += 1
        assert self.may_go.wait(30)
        if self.failures:
            self.failures -= 1
            raise self.error
        self.records += records

    def close(self):
        self.closed = True


@pytest.fixture
def sink() -> Kept:
    return Kept()


def admitted(n: int, **more):
    said = {"event": "admit", "sender": "alice", "recipient": "scheduler", "kind": "data"}
    return {**said, "family": "dask", "rule": "permit", "permitted": True, "bytes": n, **more}


FACTS = SessionFacts("0123456789ab", {"peer": "alice", "address": "127.0.0.1:4"})


def test_a_sink_gets_each_record_with_all_of_its_fields(make, sink):
    log = make(outputs=Outputs([sink]))
    for n in range(3):
        log.record(admitted(n, session=FACTS, message=n))
    log.count("alice", "scheduler", "identity", "permit", True)
    log.close()
    kinds = [each.type for each in sink.records]
    assert kinds == ["genesis", "session", "event", "event", "event", "counts", "close"]
    assert [each.sequence for each in sink.records] == list(range(7))
    third = sink.records[4].fields
    assert {**admitted(2), "peer": "alice", "message": 2, "decision": "0123456789ab-2"}.items() <= (
        third.items()
    )
    assert third["log"] == "alice"
    assert third["file"] in log.path
    assert third["policy"] == f"production/7/{'ab' * 8}"
    assert sink.closed


def test_a_sink_that_hangs_delays_no_record_and_loses_what_does_not_fit(make, sink, records):
    sink.may_go.clear()
    outputs = Outputs([sink])
    outputs.feeds[0]._most = 10
    log = make(outputs=outputs)
    until("the sink waits", lambda: sink.calls)
    before = time.monotonic()
    for n in range(50):
        log.record(admitted(n))
    assert time.monotonic() - before < 5
    assert len(records(log)) == 50
    feed = outputs.feeds[0]
    assert feed.lost == 40
    sink.may_go.set()
    until("the sink goes on", lambda: not feed._queue.qsize())
    log.record(admitted(50))
    log.close()
    lost = [each for each in sink.records if each.type == "lost"]
    assert sum(each.fields["times"] for each in lost) == 40
    assert sum(each.type == "event" for each in sink.records) == 11


@pytest.mark.parametrize("error", [BrokenPipeError("gone"), ValueError("of another library")])
def test_a_sink_that_fails_gets_the_same_records_again(make, sink, caplog, error):
    sink.error = error
    outputs = Outputs([sink])
    outputs.feeds[0]._delay = 0.01
    sink.failures = 3
    log = make(outputs=outputs)
    log.record(admitted(1))
    until("the sink has them", lambda: len(sink.records) == 2)
    log.close()
    assert [each.type for each in sink.records] == ["genesis", "event", "close"]
    said = [each.getMessage() for each in caplog.records]
    assert said == [
        f"The audit output kept does not write: {type(error).__name__}",
        "The audit output kept writes again",
    ]


def test_closing_the_log_does_not_wait_for_a_sink_that_is_gone(make, sink, records, monkeypatch):
    monkeypatch.setattr("safeser.audit.outputs.feed.PATIENCE", 0.1)
    monkeypatch.setattr(Feed.close, "__defaults__", (0.1,))
    sink.failures = 1 << 30
    outputs = Outputs([sink])
    log = make(outputs=outputs)
    log.record(admitted(1))
    log.close()
    assert len(records(log)) == 1
    until("the thread ends", lambda: not outputs.feeds[0]._thread.is_alive())
    assert outputs.feeds[0].lost >= 2


def test_one_sink_does_not_wait_for_another(make, sink):
    other = Kept()
    other.may_go.clear()
    log = make(outputs=Outputs([other, sink]))
    log.record(admitted(1))
    until("the record", lambda: len(sink.records) == 2)
    other.may_go.set()
    log.close()
    assert len(other.records) == 3


def test_what_the_file_does_not_take_reaches_no_sink(make, sink, monkeypatch):
    log = make(outputs=Outputs([sink]))
    log.record(admitted(1))
    with monkeypatch.context() as patched:
        patched.setattr("os.write", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(Exception, match="written"):
            log.record(admitted(2))
    log.close()
    assert [each.fields.get("bytes") for each in sink.records if each.type == "event"] == [1]


def test_a_forked_process_has_a_feed_of_its_own(make, tmp_path):
    import os

    from safeser.audit.outputs.lines import StandardOutput

    out = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    log = make(outputs=Outputs([StandardOutput(out)]))
    log.record(admitted(1))
    child = os.fork()
    if child == 0:
        log.record(admitted(2))
        log.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    log.close()
    text = (tmp_path / "out").read_text()
    assert text.count('"type":"genesis"') == 2
    assert text.count('"bytes":1') == 1
    assert text.count('"bytes":2') == 1
    os.close(out)


def test_numbers_of_another_file_are_not_mixed_up():
    outputs = Outputs([Kept()])
    outputs._resolver = Resolver()
    record = outputs._resolved({"log": "a", "file": "b", "seq": 9, "time": 1, "case": 4, "s": 2})
    assert record.fields["case"] == 4  # shown as it stands, since nothing before it says more
    outputs.close()
