"""What was opened once: replays, restarts, clocks that jump, and stores that cannot tell."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from functools import partial

import pytest

from safeser.errors import AuditError, ConfigError, EnvelopeError
from safeser.gate.detached import FUTURE, Facts
from safeser.identity.secret import Secret
from safeser.once import Once
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


# --- locks ----------------------------------------------------------------------------------------

_OTHER = """
import sys
import safeser.once
from safeser.errors import SafeserError
from safeser.gate.detached import Facts
safeser.once._PATIENCE = {patience}
for number in sys.argv[2:]:
    try:
        once = safeser.once.Once(sys.argv[1], clock=lambda: {now})
        with once.taking("ann", Facts(int(number).to_bytes(16, "big"), {made}, 60, "x")):
            print("taken")
    except SafeserError as error:
        print(error.rule)
"""


def elsewhere(store, *numbers, patience=5.0):
    """Return what a short-lived process of the same store finds of messages."""
    text = _OTHER.format(now=NOW + 20, made=int(NOW + 10), patience=patience)
    command = [sys.executable, "-c", text, str(store.path), *map(str, numbers)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return found.stdout.split()


def in_a_fork(run):
    """Run *run* in a fork, and return its process id."""
    child = os.fork()
    if child == 0:
        try:
            run()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def joined(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_two_stores_of_one_path_lose_nothing_when_another_process_ends(store, clock):
    """To close any descriptor of a file drops this process's locks on it."""
    first = store()
    clock.now += 20
    take(first, 1)
    store()  # as in open(..., once=safeser.Once("opened")), for one call
    assert elsewhere(store, 2) == ["taken"]
    take(first, 3)
    take(store(), 4)
    assert elsewhere(store, 1, 2, 3, 4) == ["box.replayed"] * 4
    with refusal(EnvelopeError, "box.replayed"):
        take(first, 2)
    assert [each.name for each in store.path.parent.iterdir()] == ["once.db"]


def test_what_is_being_taken_stays_locked_while_another_thread_makes_a_store(store):
    once = store()
    thread = threading.Thread(target=store)
    with once.taking("ann", facts(1)):
        thread.start()
        assert elsewhere(store, 1, 2, patience=0.1) == ["box.once"] * 2
    thread.join()
    assert elsewhere(store, 1, 2) == ["box.replayed", "taken"]


@pytest.mark.parametrize("parent", ["stays", "uses it", "ends"])
def test_a_store_made_before_a_fork_keeps_what_the_child_takes(store, clock, parent):
    going, go = os.pipe()
    done, say = os.pipe()

    def child(once):
        os.read(going, 1)
        take(once, 2)
        os.write(say, b".")
        os.read(going, 1)
        take(once, 4)
        with pytest.raises(EnvelopeError):
            take(once, 3)

    def between():
        once = store()
        clock.now += 20
        take(once, 1)
        first = in_a_fork(partial(child, once))
        if parent == "uses it":
            take(once, 5)
        if parent != "ends":
            joined(first)

    middle = in_a_fork(between)
    if parent == "ends":
        joined(middle)
    os.write(go, b".")
    os.read(done, 1)
    assert elsewhere(store, 3) == ["taken"]
    os.write(go, b".")
    if parent == "ends":
        os.close(say)
        assert os.read(done, 1) == b""  # the child has ended
    else:
        joined(middle)
    assert elsewhere(store, 2, 3, 4) == ["box.replayed"] * 3


def test_a_fork_waits_until_another_thread_has_taken_a_message(store):
    once, inside, end = store(), threading.Event(), threading.Event()

    def taker():
        with once.taking("ann", facts(1)):
            inside.set()
            end.wait()

    def child():
        with pytest.raises(EnvelopeError):
            take(once, 1)
        take(once, 2)

    thread = threading.Thread(target=taker)
    thread.start()
    inside.wait()
    threading.Timer(0.2, end.set).start()
    joined(in_a_fork(child))
    thread.join()
    with refusal(EnvelopeError, "box.replayed"):
        take(once, 2)


def test_a_fork_amid_its_own_message_opens_nothing_more(store):
    """SQLite in it believes that it has the locks of its parent."""
    once, pid = store(), os.getpid()
    try:
        with once.taking("ann", facts(1)):
            child = os.fork()
            if child:
                joined(child)
    except EnvelopeError as error:  # in the child, which takes nothing
        if os.getpid() != pid:
            with pytest.raises(EnvelopeError):
                take(once, 2)
            os._exit(error.rule != "box.once")
        raise
    finally:
        if os.getpid() != pid:
            os._exit(2)
    assert elsewhere(store, 1) == ["box.replayed"]
    take(once, 2)


def test_a_write_ahead_log_of_another_program_is_no_store(store, monkeypatch):
    monkeypatch.setattr("safeser.once._PATIENCE", 0.05)
    once = store()
    other = sqlite3.connect(store.path)
    other.execute("pragma journal_mode = wal")
    other.execute("select * from store").fetchall()
    with refusal(EnvelopeError, "box.once"):
        take(once)
    other.close()
    take(once)


_KILLED = """
import os, signal, sys
from safeser.once import Once
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
    monkeypatch.setattr("safeser.once._PATIENCE", 0.05)
    once = store()
    with store().taking("ann", facts()), refusal(EnvelopeError, "box.once"):
        take(once, 1)
    take(once, 1)


def test_a_store_that_is_damaged_refuses(store):
    once = store()
    take(once)
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
