"""The plugin that the clusters' tests run with: ends a test that hangs, writes down each outcome.

The one rule: it changes neither a test nor distributed, but for a default. Dask's configuration has
a setting for the scheme of addresses that name none; ``LocalCluster`` and listeners don't read it.
On a busy machine tests can be given more time, on any scheme.
"""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import dask
import distributed
import pytest
from distributed import LocalCluster, client, core, utils_test
from distributed.comm import registry

import safeser
from safeser.channel import watcher

#: Seconds after which a test has failed, as in distributed's own configuration.
_TEST_SECONDS = 300


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    pytest.fail(f"the test took longer than {_TEST_SECONDS} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    del item
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(_TEST_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append the outcome, from the process that hears of all of them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when == "call" or report.outcome != "passed":
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        line = {"test": report.nodeid, "outcome": outcome, "seconds": round(report.duration, 2)}
        if outcome == "failed":
            line["why"] = str(report.longrepr)
        with Path(os.environ["SAFESER_SUITE_OUTCOMES"]).open("a") as file:
            file.write(json.dumps(line) + "\n")


def pytest_configure() -> None:
    be_patient(int(os.environ.get("SAFESER_SUITE_PATIENCE", "1")))
    scheme = dask.config.get("distributed.comm.default-scheme")
    if scheme != "tcp":
        default_to(scheme)
    if os.environ.get("SAFESER_SUITE_CLIENT"):
        submit_by_safeser()


def submit_by_safeser() -> None:
    """Have tests make clients of safeser's: of Dask's own, none seals what it submits."""
    distributed.Client = client.Client = utils_test.Client = safeser.Client


def begin_watching() -> None:
    """Begin the thread that looks at files of keys and policy: it lives as long as its process.

    A test that is the first to need it would seem to leave it behind.
    """

    class Nothing:
        def look(self) -> None:
            """There are no files."""

    nothing: Any = Nothing()
    watcher.watch(nothing)
    watcher.unwatch(nothing)


def default_to(scheme: str) -> None:
    """Give the two places that have a default scheme of their own the configured one.

    Its backend is loaded at once, so that no test finds other schemes open because it comes first.
    """
    registry.get_backend(scheme)
    begin_watching()
    made, listen = LocalCluster.__init__, core.listen

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        encrypted = getattr(kwargs.get("security"), "require_encryption", kwargs.get("security"))
        named = kwargs.get("protocol") or "://" in str(kwargs.get("host")) or encrypted
        made(self, *args, **kwargs if named else {**kwargs, "protocol": f"{scheme}://"})

    @functools.wraps(listen)
    def listening(addr: str, *args: Any, **kwargs: Any) -> Any:
        return listen(addr if "://" in addr else f"{scheme}://{addr}", *args, **kwargs)

    LocalCluster.__init__, core.listen = init, listening


def be_patient(factor: int) -> None:
    """Let tests wait *factor* times as long for their clusters before they count as failed."""
    if factor == 1:
        return
    make, test = utils_test.gen_cluster, utils_test.gen_test
    configure = utils_test.config_for_cluster_tests
    connect = "distributed.comm.timeouts.connect"

    @functools.wraps(make)
    def gen_cluster(*args: Any, timeout: float = 30, **kwargs: Any) -> Any:
        return make(*args, timeout=timeout * factor, **kwargs)

    @functools.wraps(test)
    def gen_test(timeout: float = 30, **kwargs: Any) -> Any:
        return test(timeout=timeout * factor, **kwargs)

    @functools.wraps(configure)
    def config_for_cluster_tests(**kwargs: Any) -> Any:
        if kwargs.get(connect) == "5s":
            kwargs[connect] = f"{5 * factor}s"
        return configure(**kwargs)

    utils_test.gen_cluster, utils_test.gen_test = gen_cluster, gen_test
    utils_test.config_for_cluster_tests = config_for_cluster_tests
