"""An exception at each point of each call: nothing acknowledged is lost or doubled.

KeyboardInterrupt, what a signal handler raises, MemoryError and what another thread throws in all
arrive this way.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections import Counter
from pathlib import Path

import pytest

from safeser.audit import AuditLog, read, tally, verify
from safeser.errors import AuditError
from tests.audit.conftest import REFUSE

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}

pytestmark = [pytest.mark.slow, pytest.mark.unmeasured, pytest.mark.usefixtures("no_disk")]

#: Steps of one log: verification reads the whole of it after each.
PER_LOG = 12


def in_another_thread(call) -> None:
    """Make a call in another thread, which would wait for ever for a lock that is still held."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert not thread.is_alive(), "a lock stays held"


class Checked:
    """A log, the numbers of events that it acknowledged, and of those whose call raised."""

    def __init__(self, log: AuditLog, place: Path, key) -> None:
        self.log = log
        self.place = place
        self.key = key
        self.written: set[int] = set()
        self.perhaps: set[int] = set()
        self.numbers = itertools.count()

    def events(self, count: int) -> list[dict[str, object]]:
        return [{**ADMIT, "bytes": next(self.numbers)} for _ in range(count)]

    def note(self, events: list[dict[str, object]], interrupted: bool) -> None:
        (self.perhaps if interrupted else self.written).update(
            int(str(each["bytes"])) for each in events
        )

    def check(self, *, notes: int = 0) -> None:
        """Fail unless the log verifies, goes on, and holds what it acknowledged, once."""
        self.verify()
        more = self.events(2)
        self.log.record(more[0])
        in_another_thread(lambda: self.log.record(more[1]))
        self.note(more, interrupted=False)
        report = self.verify()
        assert len(report.notes) <= notes
        found = Counter(
            each.number("bytes")
            for each in read(self.log.path)
            if each.fields.get("permitted") is True
        )
        assert set(found) >= self.written
        assert set(found) <= self.written | self.perhaps
        assert set(found.values()) == {1}

    def verify(self):
        report = verify(self.place, key=self.key)
        assert report.ok, str(report)
        return report


@pytest.fixture
def checked(make, place, key):
    """Return what gives the log of a step: the same for some steps, then a new one."""
    present: list[Checked] = []

    def of_step(at: int, **options) -> Checked:
        if at % PER_LOG == 0:
            if present:
                present[0].log.close()
                shutil.rmtree(present.pop().place)
            home = place / str(at)
            log = AuditLog.open(home, key=key, principal="alice", **options)
            present.append(Checked(log, home, key))
        return present[0]

    place.mkdir()
    yield of_step
    for each in present:
        each.log.close()


# --- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "durability", "count"),
    [
        (KeyboardInterrupt, "kernel", 1),
        (MemoryError, "kernel", 3),
        (SystemExit, "fsync", 1),
    ],
)
def test_records(checked, clock, interrupt, error, durability, count):
    for at in interrupt.rounds(200):
        this = checked(at, durability=durability, clock=clock)
        events = this.events(count)
        came = interrupt(lambda this=this, events=events: this.log.record_all(events), error)
        this.note(events, came)
        this.check()
        if came and count > 1:
            found = {each.number("bytes") for each in read(this.log.path)}
            numbers = {each["bytes"] for each in events}
            assert numbers <= found or not numbers & found


def test_the_first_record_of_a_forked_process(place, key, clock, interrupt, monkeypatch):
    place.mkdir()
    pid = os.getpid()
    for at in interrupt.rounds(700):
        home = place / str(at)
        with AuditLog.open(home, key=key, principal="alice", clock=clock) as log:
            monkeypatch.setattr(os, "getpid", lambda: pid + 1)
            this, parent = Checked(log, home, key), log.path
            events = this.events(1)
            came = interrupt(lambda log=log, events=events: log.record_all(events))
            this.note(events, came)
            this.check(notes=1)  # of a file that was begun and given up
            assert log.path != parent
            assert [each.type for each in read(parent)] == ["genesis"]
            monkeypatch.setattr(os, "getpid", lambda: pid)
        shutil.rmtree(home)


# --- counts, summaries and policies ---------------------------------------------------------------


def counted(log: AuditLog) -> Counter[str]:
    """Return how often each operation stands in the records of counts."""
    rows = [
        row for each in read(log.path) if each.type == "counts" for row in each.fields["counts"]
    ]
    found: Counter[str] = Counter()
    for row in rows:
        found[row[2]] += row[-1]
    return found


def refused(log: AuditLog) -> int:
    """Return how many refusals are written, one by one or as a number."""
    records = list(read(log.path))
    summed = [
        row[2] for each in records if each.type == "suppressed" for row in each.fields["suppressed"]
    ]
    return sum(summed) + sum(each.fields.get("permitted") is False for each in records)


@pytest.mark.parametrize("how", ["flush", "count", "record"])
def test_counts_that_are_due(checked, clock, interrupt, count, how):
    for at in interrupt.rounds(200):
        this = checked(at, clock=clock)
        before = counted(this.log)
        for _ in range(3):
            count(this.log, "due")
        clock.tick(1)
        events = this.events(1)
        call = {
            "flush": this.log.flush,
            "count": lambda this=this: count(this.log, "other"),
            "record": lambda this=this, events=events: this.log.record_all(events),
        }[how]
        came = interrupt(call)
        this.note(events, came) if how == "record" else None
        this.check()
        this.log.flush()
        assert (counted(this.log) - before)["due"] == 3


@pytest.mark.parametrize("how", ["flush", "record"])
def test_suppressed_refusals(checked, clock, interrupt, monkeypatch, how):
    monkeypatch.setattr(tally, "BURST", 3)
    for at in interrupt.rounds(100):
        this = checked(at, clock=clock)
        before, known = refused(this.log), this.log.refusals.get("policy.family", 0)
        this.log.record_all([REFUSE] * 8)
        if how == "flush":
            came = interrupt(this.log.flush)
        else:
            came = interrupt(lambda this=this: this.log.record(REFUSE))
        this.check()
        this.log.flush()
        wanted = {8} if how == "flush" else {8, 9} if came else {9}
        assert refused(this.log) - before in wanted
        assert this.log.refusals["policy.family"] - known == refused(this.log) - before


# --- the start and the end ------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("moving", [False, True])
def test_opening(place, key, clock, interrupt, begun, moving):
    place.mkdir()

    def open_log(home: Path, principal: str) -> AuditLog:
        own = home.with_suffix(".key") if moving else key
        return AuditLog.open(home, key=own, principal=principal, clock=clock)

    for at in interrupt.rounds(700):
        home = place / str(at)
        if moving:
            key.save(home.with_suffix(".key"), moving=True)
        if begun:
            open_log(home, "first").close()
        opened: list[AuditLog] = []

        def call(home=home, opened=opened) -> None:
            opened.append(open_log(home, "alice"))

        came = interrupt(call, every=13 if moving else 1)
        with open_log(home, "bob") as log:
            log.record(ADMIT)
        for each in opened:
            each.close()
        report = verify(home, key=key)
        assert report.ok, str(report)
        assert len(report.notes) <= 1
        shutil.rmtree(home)
        if not came:
            assert report.notes == ()


def test_closing(place, key, clock, interrupt, count):
    place.mkdir()
    for at in interrupt.rounds(700):
        home = place / str(at)
        log = AuditLog.open(home, key=key, principal="alice", clock=clock)
        log.record(ADMIT)
        count(log)
        interrupt(log.close)
        assert verify(home, key=key).ok
        # Another process registers its file meanwhile.
        AuditLog.open(home, key=key, principal="bob", clock=clock).close()
        in_another_thread(log.close)
        with pytest.raises(AuditError, match="closed"):
            log.record(ADMIT)
        types = [each.type for each in read(log.path)]
        assert types == ["genesis", "event", "counts", "close"]
        assert (home / "index").read_bytes().count(b'"type":"close"') == 2
        report = verify(home, key=key)
        assert (report.ok, report.notes) == (True, ()), str(report)
        shutil.rmtree(home)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_the_record_after_one_that_was_left_as_it_was(checked, clock, interrupt, monkeypatch, part):
    def interrupted_twice(handle: int, data: bytes) -> None:
        write(handle, data[: int(len(data) * part)])
        monkeypatch.setattr(os, "fstat", interrupted)
        raise KeyboardInterrupt

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    write = os.write
    for at in interrupt.rounds(200):
        this = checked(at, clock=clock)
        left, events = this.events(3), this.events(1)
        monkeypatch.setattr(os, "write", interrupted_twice)
        with pytest.raises(KeyboardInterrupt):
            this.log.record_all(left)
        monkeypatch.undo()
        this.note(left, interrupted=True)
        came = interrupt(lambda this=this, events=events: this.log.record_all(events))
        this.note(events, came)
        this.check()
        found = {each.number("bytes") for each in read(this.log.path)}
        assert len(found & {each["bytes"] for each in left}) == (3 if part == 1 else 0)


def test_a_new_policy(checked, clock, interrupt):
    for at in interrupt.rounds(200):
        this = checked(at, clock=clock)
        policy = ("production", at + 1, f"{at + 1:064x}")
        came = interrupt(lambda this=this, policy=policy: this.log.use_policy(policy))
        this.check()
        present = ""
        for each in read(this.log.path):
            if each.type in {"genesis", "policy"}:
                digest = each.text("policy_sha256")[:16]
                present = f"{each.text('policy_name')}/{each.number('policy_revision')}/{digest}"
            assert each.text("policy") == present
        if not came:
            assert present.startswith(f"production/{at + 1}/")
