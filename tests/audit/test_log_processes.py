"""Threads, forks, kills and the end of processes: each writes a chain of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from safeser.audit import read
from tests.audit.conftest import ADMIT

# --- threads, forks, kills ------------------------------------------------------------------------


def test_threads_make_one_chain(make, place, key, records, clean, count):
    log = make()
    barrier = threading.Barrier(6)

    def work(n: int):
        barrier.wait()
        for _ in range(200):
            log.record({**ADMIT, "sender": f"s{n}"})
            count(log)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    clean(place, key)
    assert len(records(log)) == 1_200
    total = sum(entry[-1] for each in records(log, "counts") for entry in each.fields["counts"])  # type: ignore[attr-defined]
    assert total == 1_200


SCRIPT = """
import os, sys, time
from safeser.audit import AuditLog
log = AuditLog.open(sys.argv[1], key=bytes(range(32)), principal="alice")
EVENT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}
"""


def run(code: str, place: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + code, str(place)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_a_forked_child_writes_a_file_of_its_own(place, key, clean):
    done = run(
        """
log.record(EVENT)
log.count("a", "b", "c", "d", True)
child = os.fork()
if child == 0:
    log.record(EVENT)
    log.flush()
    os._exit(0)
os.waitpid(child, 0)
idle = os.fork()
if idle == 0:
    sys.exit(0)  # never used: the end of the process leaves the parent's file alone
os.waitpid(idle, 0)
log.record(EVENT)
log.close()
""",
        place,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert clean(place, key).files == 2
    by_parent = {
        each.text("parent"): list(read(path))
        for path in sorted(place.glob("*.log"))
        for each in read(path)
        if each.type == "genesis"
    }
    parent = by_parent.pop("")
    ((named, child),) = by_parent.items()
    assert named == parent[0].text("file")
    # A slow machine writes the counts earlier, when their second is over.
    types = [each.type for each in parent]
    assert sorted(types) == ["close", "counts", "event", "event", "genesis"]
    assert [each for each in types if each != "counts"] == ["genesis", "event", "event", "close"]
    assert [each.type for each in child] == ["genesis", "event"]  # the counts are the parent's


def test_a_fork_while_another_thread_holds_the_log_does_not_hang(place, key, clean):
    done = run(
        """
import threading
held, let_go = threading.Event(), threading.Event()
def hold():
    log._lock.call(lambda: (held.set(), let_go.wait()))
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    log.record(EVENT)
    os._exit(0)
_, status = os.waitpid(child, 0)
let_go.set()
thread.join()
sys.exit(status)
""",
        place,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert clean(place, key).files == 2
