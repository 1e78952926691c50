"""The plugin that the clusters' tests run with: ends a test that hangs, writes down each outcome.

The one rule: it changes neither a test nor distributed, but for a default. Dask's configuration has
a setting for the scheme of addresses that name none; ``LocalCluster`` and listeners don't read it.
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
import pytest
from distributed import LocalCluster, core

#: Seconds after which a test has failed, as in distributed's own configuration.
_TEST_SECONDS = 300


class Hung(BaseException):
    """A test took longer than any that passes."""


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise Hung(f"the test took longer than {_TEST_SECONDS} s")


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
    """Give the two places that have a default of their own the configured one."""
    scheme = dask.config.get("distributed.comm.default-scheme")
    if scheme == "tcp":
        return
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
