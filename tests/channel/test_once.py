"""What was opened once: replays, restarts, clocks that jump, and stores that cannot tell."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from safeser.channel.once import Once
from safeser.errors import AuditError, ConfigError, EnvelopeError
from safeser.gate.detached import FUTURE, Facts
from safeser.identity.secret import Secret
from tests.channel.boxes import NOW, Clock, Folder, events, shared
from tests.refusal import refusal


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    tmp_path.chmod(0o700)

    def made(**more):
        return Once(tmp_path / "once.db", **{"clock": clock, **more})

    made.path = tmp_path / "once.db"
    return made


def facts(number=0, made=NOW + 10, ttl=60):
    return Facts(number.to_bytes(16, "big"), int(made), ttl, "x")


def take(once, *args, sender="ann", **more):
    with once.taking(sender, facts(*args, **more)):
        pass


def test_a_message_opens_once_whichever_process_asks(store, clock):
    first = store()
    clock.now += 20
    second = store()
    take(first)
    for once in (first, second, store()):
        with refusal(EnvelopeError, "box.replayed"):
            take(once)
    take(second, 1)
    take(first, sender="bea")  # each sender chooses its ids


def test_the_first_seconds_of_a_store_are_refused(store, clock):
    once = store()
    # A sender's clock may be ahead: a lost store may have taken what is dated so.
    for made in (0, NOW - 1, NOW + FUTURE - 1):
        with refusal(EnvelopeError, "box.once-start"):
            take(once, made=made, ttl=1 << 40)
    take(once, made=NOW + FUTURE)


def test_a_lost_store_opens_nothing_of_before(store, clock):
    once = store()
    clock.now += 20
    take(once)
    os.unlink(store.path)
    for each in (once, store()):  # the process that has the file open knows it, too
        with refusal(EnvelopeError, "box.once-start"):
            take(each)
    take(once, 7, made=NOW + 25)
    with refusal(EnvelopeError, "box.replayed"):
        take(store(), 7, made=NOW + 25)


def test_ids_are_forgotten_when_their_messages_have_expired(store, clock):
    once = store(most=2)
    clock.now += 20
    take(once, 1)
    take(once, 2)
    with refusal(EnvelopeError, "box.once-full"):
        take(once, 3)
    clock.now = NOW + 71  # 10 + 60 are over
    with refusal(EnvelopeError, "box.expired"):
        take(once, 1)
    take(once, 3, made=clock.now)
    take(once, 4, made=clock.now)
    with refusal(EnvelopeError, "box.once-full"):
        take(once, 5, made=clock.now)


def test_a_clock_that_goes_back_opens_nothing_again(store, clock):
    once = store()
    clock.now += 20
    take(once, 1)
    clock.now += 10_000  # and back, which would make 1 openable after it was forgotten
    take(once, 2, made=clock.now)
    clock.now = NOW + 20
    for each in (once, store()):
        with refusal(EnvelopeError, "box.once-clock"):
            take(each, 1)
    clock.now = NOW + 10_020 - FUTURE  # as little as clocks are corrected by
    take(once, 3, made=clock.now)
    with refusal(EnvelopeError, "box.expired"):
        take(once, 1)


def test_a_message_without_an_end_is_refused(store):
    with refusal(EnvelopeError, "box.once-endless"):
        take(store(), ttl=0)


def test_a_message_that_is_refused_is_not_taken(store):
    once = store()
    with pytest.raises(AuditError), once.taking("ann", facts()):
        raise AuditError("the log is full")
    take(once)


def test_an_interrupt_leaves_nothing_locked(store):
    once = store()
    with pytest.raises(KeyboardInterrupt), once.taking("ann", facts()):
        raise KeyboardInterrupt
    take(store())


def test_one_of_many_threads_opens_a_message(store):
    stores, found = [store(), store()], []

    def run(once):
        try:
            take(once)
            found.append("taken")
        except EnvelopeError as error:
            found.append(error.rule)

    threads = [threading.Thread(target=run, args=(stores[at % 2],)) for at in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [*["box.replayed"] * 7, "taken"]


def test_a_fork_uses_the_store_amid_its_parents_use(store):
    once = store()
    with once.taking("ann", facts(1)):
        child = os.fork()
        if child == 0:
            os._exit(int(once._database is not None))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    child = os.fork()
    if child == 0:
        try:
            take(once, 2)
            with pytest.raises(EnvelopeError):
                take(once, 1)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with refusal(EnvelopeError, "box.replayed"):
        take(once, 2)


_KILLED = """
import os, signal, sys
from safeser.channel.once import Once
from safeser.gate.detached import Facts
once = Once(sys.argv[1], clock=lambda: {now})
with once.taking("ann", Facts(bytes(16), {made}, 60, "x")):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_has_taken_what_it_opened(store):
    text = _KILLED.format(now=NOW, made=int(NOW + 10))
    subprocess.run([sys.executable, "-c", text, str(store.path)], check=False)
    with refusal(EnvelopeError, "box.replayed"):
        take(store())


# --- stores that cannot tell ----------------------------------------------------------------------


def test_a_store_that_another_process_keeps_locked_refuses(store, monkeypatch):
    monkeypatch.setattr("safeser.channel.once._PATIENCE", 0.05)
    once = store()
    with store().taking("ann", facts()), refusal(EnvelopeError, "box.once"):
        take(once, 1)
    take(once, 1)


def test_a_store_that_is_damaged_refuses(store):
    once = store()
    take(once)
    once.close()
    store.path.write_bytes(b"no database at all" * 100)
    with refusal(EnvelopeError, "box.once"):
        take(once)
    with refusal(ConfigError, "box.once"):
        store()


def test_a_store_that_others_could_change_is_none(store, tmp_path):
    store()
    store.path.chmod(0o666)
    with refusal(ConfigError, "box.once"):
        store()
    with refusal(ConfigError, "box.once"):
        Once(tmp_path / "no folder" / "once.db")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("create table store (other text)")
    other.close()
    (tmp_path / "other.db").chmod(0o600)
    with refusal(ConfigError, "box.once"):
        Once(tmp_path / "other.db")


# --- with a box -----------------------------------------------------------------------------------


def test_a_box_opens_once_and_records_each_refusal_once(tmp_path):
    folder = Folder(tmp_path / "keys")
    once = Once(folder.path / "once.db", clock=lambda: NOW - 60)
    once._clock = folder.clock
    with folder.box("ann") as ann, folder.box("bea") as bea:
        data = ann.seal(5, to="bea", about="x", ttl=60)
        bea._keys.audit.broken = {"admit"}
        with pytest.raises(AuditError):
            bea.open(data, about="x", once=once)
        bea._keys.audit.broken = set()
        bea._keys.audit.events.clear()
        with refusal(EnvelopeError, "box.about"):
            bea.open(data, about="y", once=once)
        assert bea.open(data, about="x", once=once).value == 5
        with refusal(EnvelopeError, "box.replayed"):
            bea.open(data, about="x", once=once)
        assert bea.open(data, about="x").value == 5  # where the caller has no store
        rules = ["box.about", "permit", "box.replayed", "permit"]
        assert [event["rule"] for event in events(bea)] == rules
        # Nor does what the policy refuses count as opened.
        data = ann.seal(6, to="ann", about="x", ttl=60)
        with refusal(EnvelopeError, "box.recipient"):
            bea.open(data, about="x", once=once)
        assert ann.open(data, about="x", once=once).value == 6


def test_a_shared_box_opens_once(tmp_path, clock):
    tmp_path.chmod(0o700)
    once = Once(tmp_path / "once.db", clock=lambda: NOW - 60)
    once._clock = clock
    with shared(clock, Secret.generate()) as box:
        data = box.seal(5, about="x", ttl=60)
        assert box.open(data, about="x", once=once).value == 5
        with refusal(EnvelopeError, "box.replayed"):
            box.open(data, about="x", once=once)
