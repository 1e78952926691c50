"""``safeser up`` for real: its line connects, it ends when told to, and its log verifies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from safeser.audit import verify
from tests.processes import in_session, measured, until

COMMAND = (sys.executable, "-c", "from safeser.cli import main; main()", "up")
DEADLINE = 60
# What a task's own subprocess finds: which signals are blocked, and that Ctrl-C ends it.
CHILD = (
    "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()),"
    " signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
)


@pytest.mark.cluster
def test_a_cluster_comes_up_works_and_ends(tmp_path):
    """By Ctrl-C; that of groups ends by SIGTERM in tests/dask/test_group_clusters.py."""
    folder = tmp_path / "cluster"
    command = (*COMMAND, folder, "--port=0", "--workers=1")
    with (
        (tmp_path / "stderr").open("w") as stderr,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
            env=measured(os.environ),
        ) as running,
    ):
        try:
            assert running.stdout is not None
            lines = iter(running.stdout.readline, "")
            connect = next(line for line in lines if line.startswith("client = "))
            program = (
                f"import safeser\n{connect}\n"
                "print(client.submit(sum, [20, 22]).result(timeout=30))\n"
                "import subprocess, sys\n"
                f"child = [sys.executable, '-c', {CHILD!r}]\n"
                "told = client.submit(subprocess.check_output, child)\n"
                "print(told.result(timeout=30).decode(), end='')\nclient.close()\n"
            )
            asked = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                check=False,
            )
            assert (asked.returncode, asked.stdout) == (0, "42\nset() True\n"), asked.stderr
            children = psutil.Process(running.pid).children(recursive=True)
            assert children  # the worker is a process of its own
            running.send_signal(signal.SIGINT)
            rest = running.stdout.read()
            assert running.wait(timeout=DEADLINE) == 0, (tmp_path / "stderr").read_text()
            assert f"Ended. Keys and logs are in {folder}\n" in rest
            assert psutil.wait_procs(children, timeout=DEADLINE)[1] == []
            nothing_is_left_of(running.pid)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert (tmp_path / "stderr").read_text() == ""
    report = verify(folder / "audit", key=folder / "keys" / "audit.key")
    assert report.ok, str(report)
    assert report.files >= 3


@pytest.mark.cluster
def test_a_policy_that_no_cluster_can_work_under_is_said_and_nothing_is_left_running(tmp_path):
    policy = tmp_path / "closed.yaml"
    policy.write_text(
        "safeser: 1\nname: closed\nrevision: 1\n"
        "principals: {scheduler: {}, worker: {}, nanny: {}, client: {}}\n"
        "contexts:\n- {name: c, sender: client, recipient: scheduler}\n...\n"
    )
    with subprocess.Popen(
        (*COMMAND, tmp_path / "cluster", "--port=0", "--workers=1", "--policy", policy),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        out, err = running.communicate(timeout=DEADLINE)
    assert running.returncode == 2
    assert out == ""
    assert err.startswith("safeser: policy 'closed' lets no principal register")
    assert err.count("\n") == 1
    nothing_is_left_of(running.pid)


@pytest.mark.cluster
@pytest.mark.parametrize("early", ["keys", "audit"])
def test_interrupts_at_any_time_end_it_quietly_and_delete_what_was_temporary(tmp_path, early):
    """As a terminal sends them: to every process of the group, more than once."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        (*COMMAND, "--port=0", "--workers=1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    ) as running:
        try:
            # It has begun and no worker is there yet.
            until("its folder", lambda: list(tmp_path.glob(f"safeser-*/{early}")))
            for _ in range(5):
                os.killpg(running.pid, signal.SIGINT)
                time.sleep(0.3)
            out, err = running.communicate(timeout=DEADLINE)
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
    assert (running.returncode, err) == (0, "")
    assert out.splitlines()[-1].startswith("Ended. ")
    nothing_is_left_of(running.pid)
    assert list(tmp_path.glob("safeser-*")) == []


def nothing_is_left_of(leader):
    # multiprocessing's tracker ends when it sees that nobody holds its pipe any more.
    until("the end of every process", lambda: not in_session(leader))
