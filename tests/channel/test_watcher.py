"""The thread that looks at files: it starts once, survives what it meets, and hears SIGHUP."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from safeser.channel import watcher as module
from tests.conftest import until


class Looked:
    """Stands for the files of a channel."""

    def __init__(self, fails=False):
        self.looks = 0
        self.fails = fails
        self.channel = SimpleNamespace()

    def look(self):
        self.looks += 1
        if self.fails:
            raise RuntimeError("a disk that went away")


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.02)
    made = module._Watcher()
    monkeypatch.setattr(module, "_watcher", made)
    return made


def test_it_looks_again_and_again_and_not_after_the_end(made):
    files = Looked()
    module.watch(files)
    until("three looks", lambda: files.looks > 2)
    module.unwatch(files)
    other = Looked()
    module.watch(other)
    until("another look", lambda: other.looks)
    count = files.looks
    until("three more", lambda: other.looks > 3)
    assert files.looks == count
    module.unwatch(other)


def test_what_one_look_raises_ends_neither_the_thread_nor_the_look_at_others(made, caplog):
    bad, good = Looked(fails=True), Looked()
    for each in (bad, good):
        module.watch(each)
    until("looks at both", lambda: bad.looks > 1 and good.looks > 1)
    assert "went away" in caplog.text
    for each in (bad, good):
        module.unwatch(each)


def test_being_woken_looks_at_once(made, monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 60.0)
    files = Looked()
    module.watch(files)
    for _ in range(100):  # a storm is a look or two
        module.look_now()
    until("a look", lambda: files.looks)
    assert files.looks <= 100
    module.unwatch(files)


PROGRAM = """
import os, select, signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores for all that it starts
{before}
from safeser.channel import watcher

class Files:
    channel = None
    def look(self):
        print("looked", flush=True)

watcher.INTERVAL = 60.0
watcher.watch(Files())
{after}
print("ready", flush=True)
# A signal that comes just before a read begins would wait for the end of it.
while not select.select([sys.stdin], [], [], 0.05)[0]:
    pass
"""


def started(before="", after="", **options):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        **options,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process):
    process.stdin.close()
    out = process.stdout.read()
    process.stdout.close()
    return process.wait(30), out


def test_a_hangup_looks_at_once_and_ends_nothing():
    process = started(start_new_session=True)
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "looked\n"
    assert ended(process)[0] == 0


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ("signal.signal(signal.SIGHUP, lambda *_: print('mine', flush=True))", "mine\n"),
        ("signal.signal(signal.SIGHUP, signal.SIG_IGN)", ""),
    ],
)
def test_a_signal_that_is_anothers_or_ignored_stays_so(before, says):
    process = started(before, start_new_session=True)
    process.send_signal(signal.SIGHUP)
    if says:
        assert process.stdout.readline() == says
    assert ended(process) == (0, "")


def test_a_fork_has_no_thread_until_it_watches_and_keeps_the_handler():
    after = """
if os.fork() == 0:
    watcher.watch(Files())
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(0.01)
    while watcher._watcher._wake.qsize(): time.sleep(0.01)
    time.sleep(0.2)
    os._exit(0)
os.wait()
"""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before="", after=after)],
        input="",
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout == "looked\nready\n"


def test_a_closed_terminal_ends_a_program_that_runs_in_it():
    parent, child = os.openpty()
    process = started(stderr=subprocess.DEVNULL, preexec_fn=lambda: _take(child))
    os.close(child)
    os.close(parent)  # the kernel sends SIGHUP to the session's leader
    assert process.wait(30) == -signal.SIGHUP
    process.stdin.close()
    process.stdout.close()


def _take(terminal):
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def test_one_thread_looks_at_all_and_another_than_the_main_one_takes_no_signal(made):
    threads, before = threading.active_count(), signal.getsignal(signal.SIGHUP)
    several = [Looked() for _ in range(5)]
    thread = threading.Thread(target=lambda: [module.watch(each) for each in several])
    thread.start()
    thread.join()
    assert threading.active_count() == threads + 1
    assert signal.getsignal(signal.SIGHUP) is before
    for each in several:
        module.unwatch(each)
