"""dask.compute, Client.compute and the rest agree on what can be sent, and name what cannot.

https://docs.dask.org/en/stable/deploying-python-advanced.html is silent about it; the sentences
are those of the issue that describes ``dask.compute`` against ``Client.compute``.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from pathlib import Path

import pytest

from safeser.dask.clients import unsendable
from safeser.dask.clients.unsendable import blaming, graph_parts
from safeser.errors import PayloadError, PolicyDenied, SerializationError
from tests.seeds.running import run

PROJECT = Path(__file__).parents[2]


def check_paths(said):
    """Check what became of each object by each path."""
    assert len(said) == 8 * 6 + 8 * 7
    for name, (found, culprit) in said.items():
        if culprit is not None:
            assert culprit in found, name
            assert "cannot be sent" in found, name
            assert "Could not serialize" not in found, name
        elif name.endswith("preflight"):
            assert "can be sent" in found, name
        else:
            assert found == ("1" if name.startswith("closure") else "2"), name


@pytest.mark.cluster
def test_in_a_jupyter_kernel_every_path_agrees_and_names_the_culprit(clusters, tmp_path):
    cluster = clusters["default"]
    environment = cluster.environment(
        "client",
        SCHEDULER=cluster.address,
        PYTHONPATH=str(PROJECT),
        IPYTHONDIR=str(tmp_path / "ipython"),
        JUPYTER_CONFIG_DIR=str(tmp_path / "jupyter"),
    )
    ended = run("-m", "tests.seeds.in_notebook", cwd=tmp_path, env=environment, timeout=300)
    found = ended.answer
    check_paths(found["said"])
    errors = found["errors"]
    named = {"submit", "dask.compute", "gather", "loads", "generator", "shell", "client"}
    assert set(errors) == named
    for name, each in errors.items():
        assert len(each["text"].splitlines()) <= 5, name
        assert each["shown"].count(each["text"].splitlines()[0]) == 1, name
        assert "Cell In[" in each["shown"], name
        assert not re.search(r"safeser/[\w/]+\.py", each["shown"]), name
    assert re.search(r"notebook cell \d+, line 1\)", errors["generator"]["text"])
    assert "global 'get_ipython' -> its instance -> ipykernel." in errors["shell"]["text"]
    assert "global 'client' -> safeser.dask.client:Client: a client" in errors["client"]["text"]
    # A lambda is found by the cell that holds it.
    assert re.search(r"its function \(notebook cell \d+, line 1\)", errors["client"]["text"])


# --- what fails otherwise ------------------------------------------------------------------------

LOCK = threading.Lock()


@pytest.mark.parametrize("error", [TypeError("x"), PayloadError("x", rule="pickle.unwritable")])
def test_what_says_only_that_something_cannot_be_written_is_replaced(error):
    with pytest.raises(SerializationError) as caught, blaming("it", lambda: [("one", LOCK)]):
        raise error
    assert caught.value.message.startswith("it cannot be sent: one -> _thread:lock: ")
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    "error",
    [
        PolicyDenied("x"),
        PayloadError("x", rule="payload.unsendable"),
        ValueError("x"),
        TypeError("of the user's own"),
    ],
)
def test_what_has_another_cause_is_left_alone(error):
    with pytest.raises(type(error)) as caught, blaming("it", lambda: [("", 1)]):
        raise error
    assert caught.value is error


def test_distributed_s_report_is_dropped_only_meanwhile(caplog):
    logger = logging.getLogger("distributed.protocol.pickle")
    with blaming("it", list):
        logger.error("Failed to serialize")
    logger.error("later")
    assert [each.getMessage() for each in caplog.records if each.name == logger.name] == ["later"]


def test_another_task_of_the_loop_is_reported_meanwhile(caplog):
    logger = logging.getLogger("distributed.protocol.pickle")

    async def waiting(begun, done):
        with blaming("it", list):
            begun.set()
            await done.wait()
            logger.error("mine")

    async def main():
        begun, done = asyncio.Event(), asyncio.Event()
        task = asyncio.ensure_future(waiting(begun, done))
        await begun.wait()
        logger.error("another's")
        done.set()
        await task

    asyncio.run(main())
    said = [each.getMessage() for each in caplog.records if each.name == logger.name]
    assert said == ["another's"]


def test_a_graph_is_taken_apart_by_its_tasks():
    import dask
    from dask._task_spec import DataNode, List, Task

    node = dask.delayed(print)(1)
    ((word, task),) = graph_parts(node)
    assert word.startswith("task 'print-")
    assert isinstance(task, Task)
    made = [
        Task("a", print, 1, [LOCK], end=LOCK),
        Task("b", print, List(DataNode(None, LOCK))),
        DataNode("c", [threading.Event()]),
    ]
    found = [each.path for each in unsendable.culprits_among([("", each) for each in made])]
    assert found[0][0].startswith("argument 1")
    assert ("argument 'end'",) not in found  # the same lock
    assert found[-1][:2] == ("its value", "[0]")


class Broken:
    def __dask_graph__(self):
        raise RuntimeError


@pytest.mark.parametrize("x", [1, Broken(), Broken])
def test_what_is_no_graph_is_looked_at_itself(x):
    assert list(graph_parts(x)) == [("", x)]
