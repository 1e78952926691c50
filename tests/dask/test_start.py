"""What the comm backend adds to the start of a worker, counted in modules.

Counts do not depend on the machine. A bound is a little above what is counted; a change that goes
beyond it imports at every worker's start what few workers need.
"""

from __future__ import annotations

import sys

import pytest

from tests.conftest import Folder

WORKER = """
import gc, json, sys
import distributed.cli.dask_worker, distributed.nanny, distributed.worker
from distributed.comm.registry import get_backend

before = set(sys.modules)
get_backend("safeser")
assert gc.isenabled()
from safeser.dask.settings import channel_for

channel = channel_for("worker")
assert channel.policy.name == "default"
assert channel.identity.principal == "worker"
print(json.dumps([name for name in sys.modules if name not in before]))

import logging

NAME = "distributed.x"
said = logging.getLogger(NAME).makeRecord(NAME, 1, "f", 1, "%s", ("\\x1b[2J",), None)
assert said.getMessage().isprintable()  # whatever class of client or server comes
"""

#: What reads a policy, proves a principal and encrypts.
LIBRARIES = {
    "_cffi_backend",
    "_openssl",
    "cryptography",
    "msgpack",
    "numpy",
}

#: Modules of Dask whose functions are compared with reviewed source, and what they import.
OF_DASK = {"dask.dot", "distributed.shuffle._arrow", "distributed.shuffle._shuffle"}

#: What only a client, a log's reader, the command line or a confined worker needs.
LATER = {
    "safeser.audit.report",
    "safeser.audit.verification.folder",
    "safeser.cli",
    "safeser.confinement.probes",
    "safeser.dask.client",
    "safeser.dask.clients.sealing",
    "safeser.families.pandas.frames",
    "safeser.inspection",
    "safeser.pickles.shims.numpy.arrays",
    "safeser.policy.schema",
}


@pytest.fixture(scope="module")
def added(tmp_path_factory) -> list[str]:
    """The modules that the backend and a worker's channel add to those of ``dask worker``."""
    folder = Folder(tmp_path_factory.mktemp("start"), policy="default")
    names: list[str] = folder.run("worker", WORKER).answer
    return names


def root(name: str) -> str:
    return name.partition(".")[0]


def test_libraries_that_a_worker_may_never_need_are_not_imported(added):
    # Python's data of its own build has another name on each platform.
    ours = {root(name) for name in added if not name.startswith("_sysconfigdata")}
    assert ours <= {*LIBRARIES, *sys.stdlib_module_names, "safeser", "dask", "distributed"}
    assert {name for name in added if root(name) in ("dask", "distributed")} <= OF_DASK
    assert not [name for name in added if name.startswith(("numpy.ma", "numpy.char"))]


def test_what_only_some_processes_need_is_not_imported(added):
    assert LATER.isdisjoint(added)


@pytest.mark.parametrize(("of", "at_most"), [("", 374), ("safeser", 311)])
def test_no_more_modules_than_this(added, of, at_most):
    found = [name for name in added if not of or root(name) == of]
    assert len(found) <= at_most
    assert not of or found
