"""Two sides of the one door in memory, a log that remembers order, and a cluster for a file."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from safeser.channel import Channel, Link, watcher
from safeser.errors import AuditError
from safeser.identity import Identity, PrivateKey, Roster, SigningKey
from safeser.policy import Policy
from safeser.policy.ready import locate
from safeser.values import Suite
from tests.forking import DASK, Forked, can_fork
from tests.needs import require
from tests.shared import Shared

# The same examples every time, however slow or busy the machine is: luck has its place in the long
# runs of verification/fuzz, verification/differential and verification/malformed.
settings.register_profile(
    "safeser", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("safeser")
# Hypothesis takes constants out of the modules that are imported: so examples would depend on which
# tests the process ran before.
providers._get_local_constants = lambda: providers._local_constants

# Whoever starts the tests in the background has them ignore Ctrl-C, and all that they start too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files so that test processes, which take one after the other, end at the same time.

    Files that start clusters come first, folder by folder, since some tests in them last a minute;
    then those with many tests. Within a file the order stays pytest's own.
    """
    counts = Counter(item.path for item in items)
    for item in items:
        if item.get_closest_marker("cluster") is not None:
            counts[item.path] = len(items)
    items.sort(key=lambda item: (-counts[item.path], str(item.path)))


#: Folders whose files one test process runs, since they share what is slow to start.
TOGETHER = ("tests/dask/live/",)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give test processes one file after the other, or all of such a folder."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return next((each for each in TOGETHER if file.startswith(each)), file)

    return ByFile(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Leave fourteen thousand tests and their modules out of every later search for garbage.

    They stay to the end, and a search through all of them takes half a second.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, Any, Any]:
    """Leave what the tests of a file imported and reported out of those searches, too."""
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    return _none_skipped(collector.nodeid, (yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    return _none_skipped(item.nodeid, (yield))


def _none_skipped(name: str, report: Any) -> Any:
    """Let nothing skip in CI, which installs what tests need; PyTorch is too large for that."""
    skipped = report.skipped and not hasattr(report, "wasxfail") and "test_tensors" not in name
    if skipped and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"CI skips no test: {report.longrepr[2]}"
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require(*mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Run tests that do many times what others do as well at twice the speed, unmeasured."""
    if item.get_closest_marker("unmeasured") is None and not _draws_examples(item):
        return (yield)
    tracer, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(of_threads)
        sys.settrace(tracer)


def _draws_examples(item: pytest.Item) -> bool:
    """Tell whether Hypothesis runs a test, once for each of its examples."""
    return getattr(getattr(item, "function", None), "is_hypothesis_test", False)


#: What has a Python process measure its coverage; kept out of the environment that tests pass on.
_MEASURED: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Measure coverage in the processes that run tests, and below them where a test asks for it.

    Measuring doubles what a process costs, and most that safeser does in processes of its own, it
    does in tests as well. The process that starts test processes has them measured, and runs none.
    """
    if config.getoption("numprocesses", None):
        sys.settrace(None)
    else:
        names = [name for name in os.environ if name.startswith("COVERAGE_PROCESS_")]
        _MEASURED.update({name: os.environ.pop(name) for name in names})


def measured(environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* for a process whose coverage is measured, if the tests' own is."""
    return {**environment, **_MEASURED}


@pytest.fixture(autouse=True)
def _nothing_watched() -> Iterator[None]:
    """Forget the files that a test's channels watch: their thread goes on beside later tests."""
    before = set(watcher._watcher._files)
    yield
    watcher._watcher._files &= before


class Witness:
    """An audit sink in memory. What it saw is in :attr:`events`, in order.

    :ivar broken: events of these names cannot be recorded.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.counts: list[tuple[str, str, str, str, bool]] = []
        self.broken: set[str] = set()

    def record(self, event: Mapping[str, Any], /) -> None:
        if event["event"] in self.broken:
            raise AuditError("the disk is full", rule="audit.write")
        self.events.append(dict(event))

    def record_all(self, events: Sequence[Mapping[str, Any]], /) -> None:
        if any(event["event"] in self.broken for event in events):
            raise AuditError("the disk is full", rule="audit.write")
        self.events += [dict(event) for event in events]

    def count(
        self,
        sender: str,
        recipient: str,
        operation: str,
        rule: str,
        permitted: bool,
        *,
        times: int = 1,
        kind: str = "admin",
    ) -> None:
        if "count" in self.broken:
            raise AuditError("the disk is full", rule="audit.write")
        self.counts += [(sender, recipient, operation, rule, permitted)] * times

    def note(self, what: str) -> None:
        """Put something that is no record into the order of events."""
        self.events.append({"event": what, "rule": "", "permitted": False})

    @property
    def order(self) -> list[str]:
        return [event["event"] for event in self.events]

    @property
    def rules(self) -> list[str]:
        return [event["rule"] for event in self.events if not event["permitted"]]


def in_suite(name: str, suite: Suite) -> str:
    """Return the text of the ready policy called *name* under *suite*."""
    text = locate(name).read_text("utf-8")
    changed = text.replace("revision: 1\n", f"revision: 1\nsuite: {suite.word}\n", 1)
    assert changed != text
    return changed


class Doors:
    """Channels of principals with fixed keys, and links between them without a socket."""

    def __init__(self) -> None:
        self._policies: dict[str, Policy] = {}

    def identity(
        self, principal: str, key: str = "", *, signing: SigningKey | None = None
    ) -> Identity:
        seed = hashlib.sha256((key or principal).encode()).digest()
        return Identity(principal, PrivateKey.from_bytes(seed), signing)

    def policy(self, name_or_text: str) -> Policy:
        """Return a ready policy, or the one that the text spells, with a key for each principal."""
        if name_or_text not in self._policies:
            plain = "\n" in name_or_text
            made = Policy.parse(name_or_text) if plain else Policy.load(name_or_text)
            self._policies[name_or_text] = made
        return self._policies[name_or_text]

    def roster(self, policy: Policy) -> Roster:
        lines = [
            f"{self.identity(name).public.text} {name} active 2026-01-01"
            for name in policy.principals
        ]
        return Roster.parse("\n".join(lines) + "\n")

    def channel(self, principal: str, policy: str | Policy, **options: Any) -> Channel:
        loaded = policy if isinstance(policy, Policy) else self.policy(policy)
        made = {
            "identity": self.identity(principal),
            "audit": Witness(),
            "roster": self.roster(loaded),
        }
        return Channel(policy=loaded, **{**made, **options})

    def shake(self, initiator: Channel, responder: Channel, **options: Any) -> tuple[Link, Link]:
        """Carry the bytes of a handshake between two channels; return both links."""
        one, two = self.handshakes(initiator, responder, **options)
        return initiator.link(one), responder.link(two)

    def handshakes(self, initiator: Channel, responder: Channel, **options: Any) -> tuple[Any, Any]:
        one = initiator.handshake(initiator=True, **options)
        two = responder.handshake(initiator=False)
        to_two, to_one = one.outgoing, b""
        while one.wanted or two.wanted:
            if two.wanted and len(to_two) >= two.wanted:
                size = two.wanted
                to_one += two.feed(to_two[:size])
                to_two = to_two[size:]
            else:
                size = one.wanted
                to_two += one.feed(to_one[:size])
                to_one = to_one[size:]
        return one, two

    def links(self, one: str, two: str, policy: str = "demo") -> tuple[Link, Link]:
        return self.shake(self.channel(one, policy), self.channel(two, policy))


@pytest.fixture(scope="session")
def doors() -> Doors:
    return Doors()


class Marker:
    """A file that a pickle makes when somebody opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def pickle(self) -> bytes:
        return pickle.dumps(_Touch(str(self.path)))

    @property
    def made(self) -> bool:
        return self.path.exists()


class _Touch:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self._path, "w")


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Marker]:
    """Yield an attack, and fail the test if it ran."""
    found = Marker(tmp_path / "marker")
    yield found
    assert not found.made, "bytes of a peer were executed"


# --- real processes ---------------------------------------------------------------------------

#: Two cores that others share, and processes that import pandas: minutes are bugs, seconds are not.
PATIENCE = 60.0


def until(what: str, probe: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Return what *probe* gives once it is true, or fail."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found = probe()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {patience:.0f} s")


#: Settings of Dask for the processes that tests start. By its defaults, a cluster that has nothing
#: to do takes a tenth of a processor, by loops that run up to a hundred times a second.
SETTINGS = {
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "200ms",
    "DASK_DISTRIBUTED__WORKER__PROFILE__INTERVAL": "100ms",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "1s",
}


def base_environment() -> dict[str, str]:
    """Return the environment without settings of Dask but those that tests share."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("DASK_")}
    return own | SETTINGS


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """What the program printed as its last line, as JSON."""
        assert self.code == 0, f"{self.out}\n{self.err}"
        return json.loads(self.out.splitlines()[-1])


#: The demo's principals.
PRINCIPALS = ("scheduler", "worker", "nanny", "alice", "bob")


class Folder:
    """Keys of the demo's principals, or others, logs, and processes that use them.

    :ivar measured: whether coverage is measured in the processes that are started from now on.
    :ivar fresh: whether each of them has an interpreter of its own, and imports by itself; those of
        a :class:`Cluster` need not.
    """

    def __init__(
        self, path: Path, policy: str = "demo", principals: tuple[str, ...] = PRINCIPALS
    ) -> None:
        from safeser.identities import make_identities

        self.path = path
        self.policy = policy
        self.measured = False
        self.fresh = True
        self.audit = path / "audit"
        self.keys = path / "keys"
        make_identities(self.keys, principals)
        self._running: list[subprocess.Popen[bytes]] = []
        self._gently: set[int] = set()  # processes whose coverage is measured, by their numbers

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        environment = base_environment() | {
            "DASK_SAFESER__POLICY": self.policy,
            "DASK_SAFESER__AUDIT": str(self.audit),
            "DASK_SAFESER__IDENTITY": str(self.keys / f"{principal}.key"),
        }
        if principal == "worker":
            environment["DASK_SAFESER__NANNY__IDENTITY"] = str(self.keys / "nanny.key")
        return {**(measured(environment) if self.measured else environment), **more}

    def start(self, name: str, *command: str, environment: Mapping[str, str]) -> Any:
        """Start a process group whose output goes to the log called *name*."""
        with (self.path / f"{name}.log").open("ab") as log:
            process = self._popen(command, environment)(
                command,
                env=dict(environment),
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(process)
        if _MEASURED and _MEASURED.keys() <= environment.keys():
            self._gently.add(process.pid)
        return process

    def _popen(self, command: Sequence[str], environment: Mapping[str, str]) -> Any:
        forked = not self.fresh and can_fork(command, environment, base_environment())
        return Forked if forked else subprocess.Popen

    def log(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text(errors="replace")

    def printed(self, name: str) -> Any:
        """Return the last JSON object in the log *name*, which has a program's errors as well."""
        lines = [line for line in self.log(name).splitlines() if line.startswith("{")]
        return json.loads(lines[-1])

    def logs(self) -> str:
        """Return the end of every log, for messages of failures."""
        texts = ((path, path.read_text(errors="replace")) for path in self.path.glob("*.log"))
        return "\n".join(f"--- {path.name}\n{text[-3000:]}" for path, text in texts)

    def run(
        self,
        principal: str,
        program: str | Path,
        *arguments: str,
        timeout: float = 100,
        **more: str,
    ) -> Ended:
        """Run a Python program as *principal* and wait for its end."""
        code = [str(program)] if isinstance(program, Path) else ["-c", program]
        return self.call(
            sys.executable,
            *code,
            *arguments,
            timeout=timeout,
            environment=self.environment(principal, **more),
        )

    def call(self, *command: str, environment: Mapping[str, str], timeout: float = 60) -> Ended:
        process = self._popen(command, environment)(
            command,
            env=dict(environment),
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"not ended in time:\n{out}\n{err}\n{self.logs()}") from None
        finally:
            _signal(process, signal.SIGKILL)
        return Ended(process.returncode, out, err)

    def stop(self, *, gently: bool = False) -> None:
        """End every group that was started: at once, unless its coverage is yet to be written.

        :param gently: have them all end as commands do that are told to.
        """
        waited = [each for each in self._running if gently or each.pid in self._gently]
        for process in self._running:
            if process not in waited:
                _signal(process, signal.SIGKILL)
        # A worker that its scheduler closes while it is told to end waits for itself, in stock Dask
        # as well: the scheduler, which was started first, is told when the others have ended.
        for together in (waited[1:], waited[:1]):
            for process in together:
                _signal(process, signal.SIGTERM)
            for process in together:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=15)
        for process in self._running:
            _signal(process, signal.SIGKILL)
            process.wait(timeout=15)
        self._running.clear()


def _signal(process: subprocess.Popen[Any], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class Cluster(Folder):
    """A scheduler and two workers with nannies, by the commands that users type."""

    def __init__(
        self,
        path: Path,
        policy: str = "demo",
        principals: tuple[str, ...] = PRINCIPALS,
        **environment: str,
    ) -> None:
        super().__init__(path, policy, principals)
        self.fresh = False
        self.address = ""
        self.scheduler = 0  # its process
        self._own = environment
        self._begun: dict[str, subprocess.Popen[bytes]] = {}

    def environment(self, principal: str, **more: str) -> dict[str, str]:
        return super().environment(principal, **{**self._own, **more})

    def ended(self) -> list[str]:
        """Return which of the processes that it began with have ended."""
        return [name for name, each in self._begun.items() if each.poll() is not None]

    def begin(self, workers: int = 2, *, nannies: int = 1) -> None:
        """Start a scheduler and *workers* commands, each of so many *nannies* or a worker alone."""
        where = self.path / "scheduler.json"
        options = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
        scheduler = [DASK, "scheduler", "--protocol", "safeser", "--port", "0", *options]
        scheduler += ["--scheduler-file", str(where)]
        started = self.start("scheduler", *scheduler, environment=self.environment("scheduler"))
        self.scheduler = started.pid
        self._begun["scheduler"] = started

        def written() -> Any:
            assert started.poll() is None, self.logs()
            with contextlib.suppress(OSError, ValueError):
                return json.loads(where.read_text())
            return None

        self.address = until("the scheduler's file", written)["address"]
        assert self.address.startswith("safeser://127.0.0.1:")
        for number in range(workers):
            scratch = ["--local-directory", str(self.path / f"scratch-{number}")]
            self._begun[f"worker-{number}"] = self.start(
                f"worker-{number}",
                *(DASK, "worker", self.address, "--nthreads", "1"),
                *(("--nworkers", str(nannies)) if nannies else ("--no-nanny",)),
                *(*options, *scratch),
                environment=self.environment("worker"),
            )


#: The one :class:`Shared` of this process, once a test has asked for it.
_SHARED: list[Shared] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Report the test that a shared cluster lost a process in."""
    result = yield
    lost = [each for shared in _SHARED for each in shared.lost()]
    if lost and item.get_closest_marker("cluster") is not None:
        pytest.fail(f"{'; '.join(lost)} ended during {item.nodeid}", pytrace=False)
    return result


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The clusters that tests share, by name: see :mod:`tests.shared`."""
    made = Shared(lambda name: tmp_path_factory.mktemp(f"cluster-{name}"))
    _SHARED.append(made)
    try:
        yield made
    finally:
        _SHARED.remove(made)
        made.stop()


@pytest.fixture(scope="module")
def cluster(clusters: Shared) -> Cluster:
    """The shared cluster under policy ``demo``: alice may submit, bob may not."""
    return clusters["demo"]


@pytest.fixture(scope="session")
def cluster_under(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., contextlib.AbstractContextManager[Cluster]]:
    """Return what starts a cluster of its own under the policy that a text spells."""

    @contextlib.contextmanager
    def started(
        text: str,
        principals: tuple[str, ...] = PRINCIPALS,
        *,
        workers: int = 2,
        nannies: int = 1,
        measured: bool = False,
    ) -> Iterator[Cluster]:
        path = tmp_path_factory.mktemp("own-cluster")
        policy = path / "policy.yaml"
        policy.write_text(text)
        made = Cluster(path, str(policy), principals)
        made.measured = measured
        try:
            made.begin(workers, nannies=nannies)
            yield made
        finally:
            made.stop()

    return started


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """Keys for processes of one test alone, which end with it."""
    made = Folder(tmp_path)
    made.fresh = False
    try:
        yield made
    finally:
        made.stop()
