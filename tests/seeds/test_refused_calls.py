"""What a client's call raises and what the logs say where the refusal is another process's.

The sentence: a refusal is one message, never repeated, the same text wherever it appears (client,
log); safeser's own frames are not part of its traceback. And what cannot be sent is
named by its path wherever a user hands something over, as by ``submit``.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from safeser.dask.clients.unsendable import Blamed
from safeser.errors import SerializationError

PROGRAM = Path(__file__).with_name("refused_calls.py")
LOCK = threading.Lock()


@pytest.fixture(scope="module")
def ran(visit):
    """Return the error of each call by its name, what was logged meanwhile, and by the workers."""
    client = visit("default")
    before = workers_said(client.cluster)
    ended = client.run("client", PROGRAM)
    logged = {}
    for part in ended.err.split("--- ")[1:]:
        name, _, text = part.partition("\n")
        logged[name] = text
    return ended.answer, logged, workers_said(client.cluster)[len(before) :]


def workers_said(cluster):
    return cluster.log("worker-0") + cluster.log("worker-1")


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["scatter", "scatter to all"])
def test_a_worker_s_refusal_is_raised_where_the_scheduler_passed_it_on(ran, name):
    said, logged, _ = ran
    error = said[name]
    assert error["type"] == "PayloadError"
    assert error["text"].startswith("no type __main__:Parcel is registered here")
    assert "rule: families.type, on worker" in error["text"]
    assert "/safeser/dask/" not in error["shown"]
    assert error["shown"].count("no type __main__:Parcel") == 1
    assert logged[name] == ""


@pytest.mark.cluster
def test_the_worker_says_why_in_one_line(ran):
    *_, workers = ran
    assert 1 <= workers.count("no type __main__:Parcel is registered here") <= 3
    assert "Exception while handling" not in workers
    assert "Traceback" not in workers


# --- what cannot be sent --------------------------------------------------------------------------

CULPRITS = {
    "run": "its function (refused_calls.py, line 68) -> global 'LOCK'",
    "run with an argument": "argument 2",
    "run on the scheduler": "argument 'end'",
    "plugin of workers": "attribute 'held'",
    "plugin of the scheduler": "attribute 'held'",
    "plugin of nannies": "attribute 'held'",
    "data set": "argument 'mine' -> [0]",
    "queue": "['mine']",
    "variable": "[0]",
    "metadata": "argument 'value'",
}


@pytest.mark.cluster
@pytest.mark.parametrize("name", CULPRITS)
def test_what_cannot_be_sent_is_named_by_its_path(ran, name):
    said, logged, _ = ran
    error = said[name]
    assert error["type"] == "SerializationError"
    assert f"cannot be sent: {CULPRITS[name]}" in error["text"]
    assert "_thread:lock" in error["text"]
    assert "rule: sendable.unwritable" in error["text"]
    assert "/safeser/dask/" not in error["shown"]
    assert "_packer" not in error["shown"]
    for word in ("Failed to serialize", "Traceback", "_thread"):
        assert word not in logged[name]


def refused(*_, **__):
    raise SerializationError("no", rule="families.cannot-serialize")


async def refused_later(*_, **__):
    refused()


class Calls:
    """Stands for Dask's client."""

    asynchronous = True

    def sync(self, func, *args, asynchronous=None, **kwargs):
        del asynchronous
        return func(*args, **kwargs)


class Client(Blamed, Calls):
    pass


@pytest.mark.parametrize("value", [LOCK, [1, LOCK]])
def test_an_asynchronous_client_names_it_too(value):
    for function in (refused, refused_later):
        with pytest.raises(SerializationError, match=r"the value cannot be sent: .*_thread:lock"):
            asyncio.run(once(Client().sync(function, value)))


async def once(result):
    return await result
