"""What a worker, and what its tasks start, do at Ctrl-C; in processes of their own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from safeser.dask.worker.endings import unblock

CHILD = (
    "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()),"
    " signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
)

BLOCKED = f"""
import multiprocessing, os, signal, subprocess, sys, threading
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
os.kill(os.getpid(), signal.SIGINT)     # waits, and arrives when it is let through
from safeser.dask.worker.endings import unblock
unblock()
unblock()                               # as a worker that listens twice
signal.raise_signal(signal.SIGINT)
print("alive", flush=True)
def task():
    subprocess.run([sys.executable, "-c", {CHILD!r}], check=True)
thread = threading.Thread(target=task)
thread.start()
thread.join()
child = os.fork()
if not child:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_worker_outlives_interrupts_and_what_its_tasks_start_does_not():
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\nset() True\n7\n"), done.stderr


def test_a_process_whose_interrupts_are_not_blocked_keeps_its_handler():
    before = signal.getsignal(signal.SIGINT)
    unblock()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_change_nothing():
    found = []

    def blocked():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        unblock()
        found.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    thread = threading.Thread(target=blocked)
    thread.start()
    thread.join()
    assert found == [{signal.SIGINT}]
