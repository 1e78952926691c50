"""A worker that closes does not log that its connections closed; it logs everything else."""

from __future__ import annotations

import logging

import pytest
from distributed.comm.core import CommClosedError
from distributed.core import Status

from safeser.dask.worker.endings import silence_closed_connections

LOGGER = logging.getLogger("distributed.worker")


class Worker:
    status = Status.running


@pytest.fixture
def worker():
    before = LOGGER.filters[:]
    made = Worker()
    silence_closed_connections(made)
    yield made
    LOGGER.filters[:] = before


def logged(caplog, error):
    """Log as Dask's heartbeat does; return what was logged."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger=LOGGER.name):
        try:
            raise error
        except type(error):
            LOGGER.exception("Failed to communicate with scheduler during heartbeat.")
    return caplog.messages


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (Status.closing, CommClosedError("ConnectionPool closing."), 0),
        (Status.closed, CommClosedError("ConnectionPool closing."), 0),
        (Status.running, CommClosedError("gone"), 1),
        (Status.paused, CommClosedError("gone"), 1),
        (Status.closing_gracefully, CommClosedError("gone"), 1),
        (Status.closing, ValueError("something else"), 1),
        (Status.closing, OSError("no route"), 1),
    ],
)
def test_its_own_end_is_not_a_failure_and_all_else_is_said(worker, caplog, status, error, said):
    worker.status = status
    assert len(logged(caplog, error)) == said
    caplog.clear()
    with caplog.at_level(logging.INFO, logger=LOGGER.name):
        LOGGER.info("Stopping worker")
    assert caplog.messages == ["Stopping worker"]
