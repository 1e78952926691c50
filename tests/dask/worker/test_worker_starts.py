"""A worker's process writes what it likes to its nanny: nothing of it runs, and nothing hangs."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import functools
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import Empty
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status
from distributed.diskutils import WorkSpace
from distributed.nanny import WorkerProcess
from distributed.utils import get_mp_context
from tornado.ioloop import IOLoop

from safeser.dask.servers import served
from safeser.dask.worker import start_pipes, worker_folders
from safeser.dask.worker.nannies import OwnWorker
from safeser.dask.worker.start_pipes import MOST, START_RULE, StartPipe, StopPipe
from safeser.dask.worker.worker_folders import WorkerFolder
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families import plain
from safeser.families.errors.wire import encode, to_data
from safeser.operations import Server
from tests.conftest import Marker
from tests.dask.hostile_start import Fails, Says, Writes
from tests.dask.patched import patched, serve, with_rows

ROOT = Path(__file__).parents[3]

ROWS = (
    "distributed.nanny:get_mp_context",
    "distributed.nanny:WorkerProcess._wait_until_connected",
)


class Watcher:
    """A nanny, as far as its worker's process has to do with it."""

    contact_address = None

    def __init__(self, folder: Path) -> None:
        self._original_local_dir = str(folder / "dask-scratch-space")
        self._workspace = WorkSpace(self._original_local_dir)
        self.process = None

    def exited(self, code: int) -> None:
        self.code = code


@pytest.fixture
def nanny(doors, tmp_path):
    made = Watcher(tmp_path)
    made.channel = doors.channel("nanny", "dask-cluster")
    known = serve(made, Server.NANNY, made.channel, worker="worker")
    known.part(made, WorkerFolder).make()
    return made


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


def process(nanny: Any, worker: Any) -> WorkerProcess:
    return WorkerProcess(
        worker_kwargs={}, silence_logs=False, on_exit=nanny.exited, worker=worker,
        env={}, pre_spawn_env={}, config={},
    )  # fmt: skip


def started(
    nanny: Any, worker: Any, *, ends_later: bool = False
) -> tuple[WorkerProcess, BaseException | None]:
    """Start a process that is *worker* there, and end it; return it and how its start failed.

    :param ends_later: Dask hears of the process's end after the start has failed. Without it, which
        comes first is a matter of time, and the process is failed or stopped.
    """

    async def run() -> Any:
        IOLoop.current()  # which distributed's processes look for
        made, failure = process(nanny, worker), None
        ends: list[Any] = []
        failed, stop = asyncio.Event(), made.mark_stopped
        if ends_later:
            made.mark_stopped = lambda: stop() if failed.is_set() else ends.append(stop)
        try:
            await made.start()
        except Exception as error:
            failure = error
        found = SimpleNamespace(status=made.status, address=made.worker_address)
        failed.set()
        for end in ends:
            end()
        await made.kill(timeout=10)
        assert not made.is_alive()
        return found, failure

    return asyncio.run(asyncio.wait_for(run(), 90))


ANSWER = plain.encode(["u", "safeser://127.0.0.1:1", "/tmp/dask-scratch-space/worker-1"])
HOSTILE = {
    "no size": (b"\xff" * 100, "longer"),
    "declares too much": ((MOST + 1).to_bytes(4, "little"), "longer"),
    "never ends": ((100).to_bytes(4, "little") + b"x", "does not end"),
    "not even a size": (b"\x01", "does not end"),
    "no msgpack": (framed(b"\xc1"), "not what a worker says"),
    "too deep": (framed(b"\x91" * 1000 + b"\x90"), "not what a worker says"),
    "another form": (framed(plain.encode({"uid": "u"})), "not what a worker says"),
    "two messages": (framed(ANSWER) * 2, "more follows"),
    "of another start": (framed(ANSWER), "answers another start"),
    "a long address": (framed(plain.encode(["u", "a" * 301, "d"])), "not what a worker says"),
    "no failure": (framed(plain.encode(["u", b"x"])), "not what a worker says"),
}


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(start_pipes, "PATIENCE", 0.2)


@pytest.mark.cluster
def test_a_pickle_in_the_place_of_a_start_message_runs_nowhere(nanny, marker, tmp_path):
    control = Marker(tmp_path / "control")
    with patched(*ROWS):
        for data in (framed(marker.pickle), marker.pickle):
            _, failure = started(nanny, functools.partial(Writes, data))
            assert failure.rule == START_RULE
    assert nanny.channel.audit.rules == [START_RULE] * 2
    # A stock nanny opens it, in a process in which no row is installed.
    asked = [sys.executable, "-m", "tests.dask.hostile_start", control.pickle.hex()]
    subprocess.run(asked, cwd=ROOT, timeout=60, check=False, capture_output=True)
    assert control.made


@pytest.mark.cluster
def test_what_is_no_start_message_ends_the_start(nanny):
    data, why = HOSTILE["two messages"]
    with patched(*ROWS):
        found, failure = started(nanny, functools.partial(Writes, data), ends_later=True)
    assert (failure.rule, found.status) == (START_RULE, Status.failed)
    assert why in str(failure)
    (event,) = nanny.channel.audit.events
    assert (event["sender"], event["recipient"], event["permitted"]) == ("worker", "nanny", False)


@pytest.mark.cluster
def test_a_worker_that_starts_is_running_and_stops_when_it_is_told(nanny):
    said = functools.partial(Says, dir=f"{nanny._original_local_dir}/worker-x")
    with patched(*ROWS):
        found, failure = started(nanny, said)
    assert failure is None
    assert found.status == Status.running
    assert found.address.startswith("safeser://127.0.0.1:")
    assert nanny.code == 7
    assert nanny.channel.audit.events == []


@pytest.mark.cluster
def test_a_worker_that_names_a_folder_of_another_nanny_s_does_not_start(nanny, tmp_path):
    """Its nanny would delete the folder, and unregister the address."""
    theirs = Path(Watcher(tmp_path)._original_local_dir, "worker-y")
    theirs.mkdir()
    with patched(*ROWS):
        found, failure = started(nanny, functools.partial(Says, dir=str(theirs)))
    assert failure.rule == START_RULE
    assert "folder" in str(failure)
    assert found.address is None
    assert theirs.is_dir()
    assert nanny.channel.audit.rules == [START_RULE]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, None),
        ({"dir": "/home"}, "folder"),
        ({"dir": "{own}"}, "folder"),
        ({"dir": "{own}/../nanny-x/y"}, "folder"),
        ({"dir": "{theirs}/worker-y"}, "folder"),
        ({"address": "safeser://127.0.0.1:1"}, "address"),
    ],
)
def test_a_worker_speaks_of_its_own_folder_and_address_alone(nanny, tmp_path, said, why):
    # Another nanny's, with the same local_directory and account.
    names = {"own": nanny._original_local_dir, "theirs": Watcher(tmp_path)._original_local_dir}
    told = {name: text.format(**names) for name, text in said.items()}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own = {
            "address": f"safeser://127.0.0.1:{listener.getsockname()[1]}",
            "dir": f"{names['own']}/worker-x",
        }
        expected = nullcontext() if why is None else pytest.raises(PolicyDenied, match=why)
        with expected as caught:
            served(nanny).part(nanny, OwnWorker).require_own_start({**own, **told}, pid=os.getpid())
    assert why is None or caught.value.rule == START_RULE


class Starts:
    """A nanny, as far as it starts workers."""

    def __init__(self, folder: Path) -> None:
        self._original_local_dir = str(folder / "dask-scratch-space")
        self._workspace = WorkSpace(self._original_local_dir)
        self.process, self.status = None, Status.running

    async def instantiate(self) -> str:
        if self.process is None:
            kwargs = {"local_directory": self._original_local_dir}
            self.process = SimpleNamespace(worker_kwargs=kwargs)
        return self.process.worker_kwargs["local_directory"]

    def _on_worker_exit_sync(self, exitcode: int | None) -> None: ...


_STARTS = ("distributed.nanny:Nanny.instantiate", "distributed.nanny:Nanny._on_worker_exit_sync")


@pytest.mark.parametrize("guarded", [False, True], ids=["stock", "guarded"])
def test_a_nanny_makes_a_folder_for_each_start(tmp_path, doors, guarded):
    nanny = with_rows(Starts, *_STARTS)(tmp_path)
    if guarded:
        serve(nanny, Server.NANNY, doors.channel("nanny", "dask-cluster"), worker="worker")
    seen = []
    for _ in range(2):
        seen.append(asyncio.run(nanny.instantiate()))
        assert asyncio.run(nanny.instantiate()) == seen[-1]
        nanny._on_worker_exit_sync(0)
    above = tmp_path / "dask-scratch-space"
    if not guarded:
        assert seen == [str(above)] * 2
        return
    assert len(set(seen)) == 2
    for made in map(Path, seen):
        assert made.parent == above
        assert not made.exists()


# --- what a worker leaves beside its folder -------------------------------------------------------


def folder_of(nanny: Any) -> WorkerFolder:
    return served(nanny).part(nanny, WorkerFolder)


@pytest.mark.parametrize("name", ["global.lock", "purge.lock", "x.dirlock"])
def test_a_nanny_empties_no_file_to_which_its_worker_links(nanny, tmp_path, name):
    key = tmp_path / "nanny.key"
    key.write_text("secret")
    folder, above = folder_of(nanny), tmp_path / "dask-scratch-space"
    (above / name).unlink(missing_ok=True)
    (above / name).symlink_to(key)
    folder.delete()
    folder.make()
    assert Path(nanny._original_local_dir).is_dir()
    assert key.read_text() == "secret"


def test_a_nanny_waits_for_no_lock_that_its_worker_keeps(nanny, tmp_path):
    above = tmp_path / "dask-scratch-space"
    with (above / "global.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        folder_of(nanny).delete()
        folder_of(nanny).make()
    assert Path(nanny._original_local_dir).is_dir()


@pytest.mark.cluster
def test_a_nanny_deletes_nothing_to_which_its_worker_links(nanny, tmp_path):
    """The worker has put a link in the place of the folder above its own."""
    mine = Path(nanny._original_local_dir)
    theirs = tmp_path / "theirs"
    (theirs / "worker-x").mkdir(parents=True)
    with patched(*ROWS):
        mine.rmdir()
        mine.symlink_to(theirs)
        _, failure = started(nanny, functools.partial(Says, dir=str(mine / "worker-x")))
    folder_of(nanny).delete()
    assert failure is None
    assert (theirs / "worker-x").is_dir()


def test_a_nanny_deletes_what_others_left_and_no_more(nanny, tmp_path):
    above, other = tmp_path / "dask-scratch-space", Watcher(tmp_path)
    serve(other, Server.NANNY, nanny.channel, worker="worker")
    left, elsewhere = above / "nanny-left", tmp_path / "elsewhere"
    for each in (left, elsewhere):
        (each / "worker-y").mkdir(parents=True)
    (above / "nanny-link").symlink_to(elsewhere)
    (above / "nanny-file").write_text("text")
    folder_of(other).make()
    assert not left.exists()
    assert (elsewhere / "worker-y").is_dir()
    assert {Path(each._original_local_dir).is_dir() for each in (nanny, other)} == {True}


def test_a_nanny_looks_for_what_others_left_behind_no_link(nanny, tmp_path):
    above, elsewhere = tmp_path / "dask-scratch-space", tmp_path / "elsewhere"
    above.rename(tmp_path / "moved")
    (elsewhere / "nanny-of-others").mkdir(parents=True)
    above.symlink_to(elsewhere)
    folder_of(nanny).delete()
    folder_of(nanny).make()
    assert (elsewhere / "nanny-of-others").is_dir()


def test_where_folders_take_no_lock_a_worker_starts_all_the_same(nanny, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "")

    folder_of(nanny).delete()
    monkeypatch.setattr(worker_folders.fcntl, "flock", refuse)
    folder_of(nanny).make()
    made = Path(nanny._original_local_dir)
    assert made.is_dir()
    folder_of(nanny).delete()
    assert not made.exists()


@pytest.mark.cluster
def test_why_a_worker_cannot_start_is_told(nanny):
    with patched(*ROWS):
        _, failure = started(nanny, functools.partial(Fails, "no such port", cause="taken"))
    assert isinstance(failure, ValueError)
    assert (str(failure), str(failure.__cause__)) == ("no such port", "taken")
    assert nanny.channel.audit.events == []  # nobody was refused


# --- the pipes by themselves ---------------------------------------------------------------------


def read(pipe: StartPipe) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            pipe.get_nowait()
        except Empty:
            time.sleep(0.01)


@contextmanager
def start_pipe():
    made = StartPipe(get_mp_context())
    try:
        yield made
    finally:
        made._reader.close()
        made._writer.close()


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_refused_of_a_start_message(impatient, name):
    data, why = HOSTILE[name]
    with start_pipe() as pipe:
        os.write(pipe._writer.fileno(), data)
        with pytest.raises(PayloadError) as raised:
            read(pipe)
        assert raised.value is pipe.refused
        assert raised.value.rule == START_RULE
        assert why in str(raised.value)


def test_nothing_that_would_end_the_nanny_is_raised_from_a_message():
    with start_pipe() as pipe:
        failure = encode(to_data(SystemExit(3)))
        os.write(pipe._writer.fileno(), framed(plain.encode(["u", failure])))
        said = pipe.get_nowait()
        assert isinstance(said["exception"], Exception)


def test_a_message_that_comes_in_parts_is_read():
    with start_pipe() as pipe:
        data = framed(ANSWER)
        for part in (data[:2], data[2:9]):
            os.write(pipe._writer.fileno(), part)
            with pytest.raises(Empty):
                pipe.get_nowait()
        os.write(pipe._writer.fileno(), data[9:])
        assert pipe.get_nowait()["uid"] == "u"


def test_the_longest_failures_arrive_cut():
    long = SafeserError("x" * 100_000, rule="a.b", where="w" * 100_000, fix="f" * 100_000)
    long.__cause__ = ValueError("y" * 60_000)
    long.__cause__.__cause__ = ValueError("z" * 60_000)
    long.__cause__.__cause__.args = ("z" * 60_000,)
    with start_pipe() as pipe:
        pipe.put({"uid": "u", "exception": long})
        assert "xxxx" in str(pipe.get_nowait()["exception"])


def test_ends_go_to_worker_processes_alone():
    for made in (StartPipe(get_mp_context()), StopPipe(get_mp_context())):
        with pytest.raises(RuntimeError, match="inheritance"):
            made.__getstate__()
        made._reader.close()
        made._writer.close()


def test_telling_a_worker_to_stop_waits_for_nothing():
    pipe = StopPipe(get_mp_context())
    message = {"op": "stop", "timeout": 4.0, "executor_wait": True, "reason": "r" * 10_000}
    for _ in range(1_000):  # more than a pipe holds
        pipe.put(message)
    assert pipe.get() == {**message, "reason": "r" * 300}
    pipe.close()
    with pytest.raises(ValueError, match="closed"):
        pipe.put(message)
    pipe._reader.close()


def test_what_a_worker_puts_wakes_itself_alone():
    nannys = StopPipe(get_mp_context())
    own = StopPipe.__new__(StopPipe)
    own.__setstate__({"_reader": nannys._reader})
    own.put({"op": "stop"})
    assert own.get() == {"op": "stop"}
    nannys.put(None)
    assert own.get() is None
    nannys.close()
    with pytest.raises(EOFError):
        own.get()
    own.close()
    own.join_thread()
    for each in (nannys._reader, own._woken):
        each.close()
