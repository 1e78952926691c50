"""Hooks of pytest, two sides of the one door in memory, and a log that remembers order."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import os
import pickle
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from safeser.audit import AuditKey, AuditLog
from safeser.channel import Channel, Link, watcher
from safeser.errors import AuditError
from safeser.gate.handshake import Handshake
from safeser.gate.key_pairs import PrivateKey
from safeser.identity import Identity, Roster, SigningKey
from safeser.policy import Policy
from tests.needs import require
from tests.processes import (
    DASK,
    MEASURED,
    PATIENCE,
    PRINCIPALS,
    Cluster,
    Ended,
    Folder,
    base_environment,
    measured,
    until,
)
from tests.shared import Shared, Visit

#: What tests import from here.
__all__ = [
    "DASK",
    "PATIENCE",
    "Cluster",
    "Doors",
    "Ended",
    "Folder",
    "Marker",
    "Witness",
    "base_environment",
    "measured",
    "until",
]

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


#: Files that one test process runs one after the other, since they share a cluster that is slow to
#: start; and then, each by itself, those that take longest, so that none of them is the last.
TOGETHER = (
    # demo
    (
        "dask/live/",
        "dask/attacks/test_live_rows.py",
        "dask/clusters/test_cluster.py",
        "dask/clusters/test_commands.py",
        "dask/clusters/test_encryption.py",
        "dask/test_monitoring.py",
        "cli/test_doctor.py",
    ),
    # default and sealed
    (
        "dask/notebook/",
        "dask/clients/test_joblib.py",
        "dask/clusters/test_key_conflicts.py",
        "dask/clusters/test_one_client.py",
        "dask/sealed/test_live.py",
        "dask/values/test_live.py",
        "seeds/test_compute_paths.py",
        "seeds/test_refused_calls.py",
        "seeds/test_trace.py",
    ),
    # confined and dask-cluster
    (
        "confinement/everyday/",
        "confinement/test_live.py",
        "dask/clusters/test_ready_policies.py",
    ),
    # clusters of their own
    ("dask/clusters/test_observe_to_enforce_page.py",),
    ("demo/test_whole_demo.py",),
    ("dask/clusters/test_deployers.py",),
    ("dask/clusters/test_revocation.py",),
    ("dask/clusters/test_rotation.py",),
    ("seeds/test_counts.py",),
)


def _group(path: str) -> int:
    """Return the place of a file in :data:`TOGETHER`, or that after all of them."""
    inside = path.removeprefix("tests/")
    return next((n for n, names in enumerate(TOGETHER) if inside.startswith(names)), len(TOGETHER))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order files so that test processes, which take one after the other, end at the same time.

    Files that start clusters come first, since some tests in them last a minute; then those with
    many tests. Within a file the order stays pytest's own.
    """
    counts = Counter(item.path for item in items)
    places = {path: _group(path.relative_to(config.rootpath).as_posix()) for path in counts}
    for item in items:
        if item.get_closest_marker("cluster") is not None:
            counts[item.path] = len(items)
    items.sort(key=lambda item: (-counts[item.path], places[item.path], str(item.path)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give test processes one file after the other, or all that are together."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            place = _group(file)
            return file if place == len(TOGETHER) else f"together {place}"

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


def pytest_configure(config: pytest.Config) -> None:
    """Measure coverage in the processes that run tests, and below them where a test asks for it.

    Measuring doubles what a process costs, and most that safeser does in processes of its own, it
    does in tests as well. The process that starts test processes has them measured, and runs none.
    """
    if config.getoption("numprocesses", None):
        sys.settrace(None)
    else:
        names = [name for name in os.environ if name.startswith("COVERAGE_PROCESS_")]
        MEASURED.update({name: os.environ.pop(name) for name in names})


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


def exchange(initiator: Handshake, responder: Handshake) -> None:
    """Carry bytes between the two until neither wants more."""
    to_responder, to_initiator = initiator.outgoing, responder.outgoing
    while initiator.wanted or responder.wanted:
        size = responder.wanted
        if size and len(to_responder) >= size:
            to_initiator += responder.feed(to_responder[:size])
            to_responder = to_responder[size:]
            continue
        size = initiator.wanted
        to_responder += initiator.feed(to_initiator[:size])
        to_initiator = to_initiator[size:]
    assert not to_responder
    assert not to_initiator


class Doors:
    """Channels of principals with fixed keys, and links between them without a socket.

    :param logs: folder for the logs of channels; without it they are in memory.
    """

    def __init__(self, logs: Path | None = None) -> None:
        self._logs = logs
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
        if self._logs is not None:
            log = AuditLog.open(self._logs, key=AuditKey(bytes(32)), principal=principal)
            made["audit"] = log
        return Channel(policy=loaded, **{**made, **options})

    def shake(self, initiator: Channel, responder: Channel, **options: Any) -> tuple[Link, Link]:
        """Carry the bytes of a handshake between two channels; return both links."""
        one, two = self.handshakes(initiator, responder, **options)
        return initiator.link(one), responder.link(two)

    def handshakes(self, initiator: Channel, responder: Channel, **options: Any) -> tuple[Any, Any]:
        one = initiator.handshake(initiator=True, **options)
        two = responder.handshake(initiator=False)
        exchange(one, two)
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
def visit(clusters: Shared, request: pytest.FixtureRequest) -> Callable[[str], Visit]:
    """Return what gives a client on the cluster of that name, and keys that no other test has."""
    prefixes = (f"{Path(request.node.name).stem}-{number}-" for number in itertools.count())
    return lambda name: Visit(clusters[name], next(prefixes))


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
    ) -> Iterator[Cluster]:
        path = tmp_path_factory.mktemp("own-cluster")
        policy = path / "policy.yaml"
        policy.write_text(text)
        made = Cluster(path, str(policy), principals)
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
