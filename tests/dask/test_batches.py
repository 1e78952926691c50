"""How often a scheduler writes to its clients: :mod:`safeser.dask.patches.batches`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from safeser.dask.patches import PATCHES, batches, install
from safeser.dask.patches.patch import is_applied
from safeser.dask.transport.comm import SafeserComm

TO_CLIENT = "Scheduler->Client"


def named(name):
    comm = SafeserComm.__new__(SafeserComm)
    comm.name = name
    return comm


@pytest.mark.parametrize(
    ("comm", "before", "after"),
    [
        (named(TO_CLIENT), 0.002, batches.INTERVAL),
        (named(TO_CLIENT), 0.01, 0.01),
        (named("Scheduler->Worker"), 0.001, 0.001),
        (named(None), 0.001, 0.001),
        (SimpleNamespace(name=TO_CLIENT), 0.002, 0.002),
    ],
)
def test_only_the_streams_to_clients_of_safeser_have_longer_intervals(comm, before, after):
    started = []
    sender = SimpleNamespace(interval=before)
    (row,) = batches.ROWS
    row.replace(lambda *given: started.append(given))(sender, comm)
    assert sender.interval == after
    assert started == [(sender, comm)]


def test_it_is_installed():
    install()
    (row,) = batches.ROWS
    assert row in PATCHES
    assert is_applied(row)
