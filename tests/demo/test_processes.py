"""Children are listened to, and gone when the demo is, whatever they do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from examples.demo.errors import StepFailed
from examples.demo.processes import Child, Processes, _only_zombies, _signals_deferred

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    print("ready", file=sys.stderr, flush=True)
time.sleep(60)
"""

TALKER = """
from examples.demo.pipe import Pipe
pipe = Pipe.of_this_process()
print("a library prints")
for command in pipe.commands():
    if command["do"] == "crash":
        raise SystemExit("gone")
    if command["do"] == "fail":
        pipe.tell("failed", reason="no luck")
    elif command["do"] == "work":
        pipe.tell("progress", done=1, of=2)
        pipe.tell("done", answer=42)
"""


@pytest.fixture
def processes(tmp_path: Path):
    with Processes(tmp_path, os.environ) as processes:
        yield processes


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_child_that_ignores_everything_is_killed_with_its_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("examples.demo.processes._GRACE", 0.2)
    with Processes(tmp_path, os.environ) as processes:
        child = processes.start("stubborn", python(STUBBORN))
        processes.wait_for("it", lambda: "ready" in child.tail() or None, timeout=20)
        assert not child.group_is_gone
    assert child.group_is_gone
    assert child.code == -signal.SIGKILL


def test_the_crash_of_a_child_is_told_with_its_log(processes) -> None:
    processes.start("worker 1", python("import sys; sys.exit('out of \\x1b[31m luck')"))
    with pytest.raises(StepFailed, match="worker 1 ended with code 1") as failed:
        processes.wait_for("nothing", lambda: None, timeout=20)
    assert failed.value.lines[0].endswith("worker-1.log:")
    assert failed.value.lines[1] == "out of  [31m luck"


def test_what_does_not_happen_in_time_ends_the_demo(processes) -> None:
    with pytest.raises(StepFailed, match="the start did not happen within 0 s"):
        processes.wait_for("the start", lambda: None, timeout=0.1)


def test_a_child_answers(processes) -> None:
    child = processes.start("talker", python(TALKER), talks=True)
    heard: list[object] = []
    child.tell({"do": "work"})
    answer = child.answer(timeout=20, meanwhile=heard.append, check=processes.check)
    assert answer["answer"] == 42
    assert heard == [{"event": "progress", "done": 1, "of": 2}]
    printed = processes.wait_for("its log", lambda: child.tail() or None, timeout=20)
    assert printed == ["a library prints"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [("fail", "talker reported: no luck"), ("crash", "talker ended unexpectedly"),
     ("nothing", "talker did not answer within 1 s")],
)  # fmt: skip
def test_no_answer_is_a_failure(processes, asked: str, said: str) -> None:
    child = processes.start("talker", python(TALKER), talks=True)
    with pytest.raises(StepFailed, match=said):
        child.ask({"do": asked}, timeout=1 if asked == "nothing" else 20)


def test_a_child_that_is_told_to_end_ends(processes) -> None:
    child = processes.start("talker", python(TALKER), talks=True)
    child.tell({"do": "end"})
    with pytest.raises(StepFailed, match="ended unexpectedly"):
        child.answer(timeout=20)
    child.tell({"do": "work"})  # into a closed pipe: no traceback


@pytest.fixture
def interruptible():
    """Let SIGINT interrupt: a shell that runs the tests in the background has them ignore it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("interruptible")
def test_signals_wait_until_children_are_listed_and_ended(tmp_path) -> None:
    processes = Processes(tmp_path, os.environ)

    def interrupted() -> None:
        with processes, _signals_deferred():
            processes.start("sleeper", python("import time; time.sleep(60)"))
            signal.raise_signal(signal.SIGINT)
            assert len(processes._children) == 1
            children.extend(processes._children)

    children: list[Child] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert children[0].group_is_gone


def test_it_ends_children_from_another_thread_too(tmp_path) -> None:
    processes = Processes(tmp_path, os.environ)
    child = processes.start("sleeper", python("import time; time.sleep(60)"))
    thread = threading.Thread(target=processes.end_all)
    thread.start()
    thread.join()
    assert child.group_is_gone


def test_a_group_without_processes_is_no_group_of_zombies() -> None:
    assert not _only_zombies(2**22 + 1)
    assert not _only_zombies(os.getpgid(0))


def test_a_missing_log_has_no_tail(processes, tmp_path) -> None:
    child = processes.start("sleeper", python("import time; time.sleep(60)"))
    child.log.unlink()
    assert child.tail() == []
