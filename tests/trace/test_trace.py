"""Each serialization is recorded once, with its type, family, size and place, and nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import safeser
from safeser import pickles
from safeser.errors import ConfigError
from safeser.pickles.stock import load_code
from safeser.trace import probe, records
from safeser.trace.place import notebook_cell
from safeser.trace.records import HERE, Count, Group, Trace
from safeser.trace.tracing import trace_serialization
from tests.refusal import refusal

pytest_plugins = ["safeser.trace.fixture"]

SECRET = "a value that no trace may hold"


class Model:
    def __init__(self, text=SECRET):
        self.text = text


def serialized(x):
    """Round-trip *x*; the line below is the place."""
    header, frames = safeser.serialize(x, ["dask", "msgpack", "pickle"])
    return safeser.deserialize(header, frames, ["dask", "msgpack", "pickle"])


def test_what_is_serialized_and_deserialized_is_recorded_once():
    with trace_serialization() as trace:
        serialized(np.arange(1000))
        serialized({"a": [1, 2]})
        serialized({1, 2})
    assert [(each.action, each.family, each.type) for each in trace.records] == [
        ("serialize", "dask", "numpy.ndarray"),
        ("deserialize", "dask", "numpy.ndarray"),
        ("serialize", "msgpack", "builtins.dict"),
        ("deserialize", "msgpack", "builtins.dict"),
        ("serialize", "msgpack", "builtins.set"),
        ("deserialize", "msgpack", "builtins.set"),
    ]
    first = trace.records[0]
    assert 8000 <= first.size < 8200
    assert first.seconds > 0
    assert first.place.startswith("test_trace.py, line ")
    assert first.place.endswith("in serialized")
    assert first.thread == threading.current_thread().name
    assert trace.counts[Group(HERE, "serialize", "msgpack")].number == 2
    assert trace.number("serialize") == trace.number("deserialize") == 3
    assert trace.number("serialize", process="scheduler") == 0


def test_pickles_are_recorded_by_their_family():
    with trace_serialization() as trace:
        plain = pickles.dumps(Model())
        code = pickles.dumps(serialized, code=True)
        load_code(code)
        pickles.loads(pickles.dumps([1, 2]))
    assert [(each.action, each.family, each.size) for each in trace.records] == [
        ("serialize", "pickle", len(plain)),
        ("serialize", "cloudpickle", len(code)),
        ("deserialize", "cloudpickle", len(code)),
        ("serialize", "pickle", trace.records[3].size),
        ("deserialize", "pickle", trace.records[3].size),
    ]
    assert trace.records[1].type == f"{__name__}.serialized"


def test_nothing_of_the_values_is_kept():
    with trace_serialization() as trace:
        pickles.dumps(Model())
        serialized({SECRET: SECRET})
    assert SECRET not in f"{trace} {trace!r} {trace.records} {trace.counts}"


def test_a_trace_ends_with_an_error_too_and_cannot_be_used_twice(serialization_trace):
    """What fails is not recorded, and neither is anything before or after a trace."""
    tracing = trace_serialization()
    with contextlib.suppress(ZeroDivisionError), tracing as trace:
        with pytest.raises(TypeError):
            safeser.serialize(lambda: None, on_error="raise")
        with refusal(ConfigError, "trace.used"):
            tracing.__enter__()
        serialized(1)
        1 / 0  # noqa: B018 - raises
    serialized(1)
    assert trace.number("serialize") == 1
    assert serialization_trace.number("serialize") == 2  # the fixture's
    with refusal(ConfigError, "trace.used"):
        tracing.__enter__()


def work(x):
    """Say it."""
    return serialized(x)


async def work_in_a_loop(x):
    return serialized(x)


def fail(x):
    raise KeyError(serialized(x))


@pytest.mark.parametrize("function", [work, work_in_a_loop, fail])
def test_a_decorated_function_prints_its_table(capsys, function):
    traced, traces = trace_serialization()(function), []
    for _ in range(2):
        with contextlib.suppress(KeyError):
            got = traced([1])
            assert (asyncio.run(got) if asyncio.iscoroutine(got) else got) == [1]
        assert traced.trace.number("serialize") == 1
        assert capsys.readouterr().err.startswith(f"{function.__qualname__}:\nprocess")
        traces.append(traced.trace)
    assert traces[0] is not traces[1]
    assert traced.__doc__ == function.__doc__


# --- clients -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted", [{"scheduler": True}, {"workers": True}, {"client": object(), "workers": True}]
)
def test_other_processes_are_those_of_a_client_that_can_ask(wanted):
    with refusal(ConfigError, "trace.client"):
        trace_serialization(**wanted)


class Asked:
    """A client of a cluster that counted one object."""

    def __init__(self, *, asynchronous=False):
        self.asynchronous = asynchronous
        self.asked = []

    def serialization_counts(self, scheduler, workers):
        self.asked.append((scheduler, workers))
        return self

    def sync(self, function, *args):
        return asyncio.run(function(*args))

    async def begin(self):
        self.asked.append("begin")

    async def end(self):
        counts = {Group("scheduler", "serialize", "dask"): Count(2, 300, 0.5)}
        return counts, {"worker a": "it is gone"}


def test_counts_of_a_cluster_are_added():
    client = Asked()
    with trace_serialization(client=client):
        assert client.asked == []
    with trace_serialization(client=client, scheduler=True) as trace:
        serialized(1)
    assert client.asked == [(True, False), "begin"]
    assert trace.number("serialize") == 3
    assert trace.number("serialize", process="scheduler") == 2
    assert trace.missing == {"worker a": "it is gone"}
    assert "no counts of worker a: it is gone" in str(trace)


def test_an_asynchronous_client_is_traced_by_async_with():
    client = Asked(asynchronous=True)

    async def main():
        with refusal(ConfigError, "trace.asynchronous"):
            trace_serialization(client=client, workers=True).__enter__()
        async with trace_serialization(client=client, workers=True) as trace:
            serialized(1)
        async with trace_serialization(client=client) as alone:
            serialized(1)
        return trace, alone

    trace, alone = asyncio.run(main())
    assert trace.number("serialize") == 3
    assert alone.number("serialize") == 1


# --- the table -----------------------------------------------------------------------------------


def test_the_table_fits_into_80_columns_and_shows_no_control_characters():
    made = Trace()
    kind = type("X" * 300 + "\x1b[2J\n", (), {"__module__": "m\r"})
    made.note("serialize", probe.Done(kind(), "family\x1b" * 9, 10**13), 12345.678)
    workers = {Group(f"worker {at}", "deserialize", "dask"): Count(10**7, 10, 1.0) for at in "abc"}
    made.add_counts({**workers, Group("scheduler", "serialize", "dask"): Count()})
    made.missing["worker \x1b[31m" + "z" * 200] = "\x1b gone"
    for at in range(20):
        made.note("hash", probe.Done(type(f"C{at}", (), {})(), "cloudpickle", at), 0.1)
    text = str(made)
    assert max(map(len, text.splitlines())) <= 80
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "scheduler" not in text


def test_records_are_bounded_and_counts_are_not(monkeypatch):
    monkeypatch.setattr(records, "_MOST_RECORDS", 2)
    with trace_serialization() as trace:
        for _ in range(3):
            safeser.serialize(1)
    assert (len(trace.records), trace.dropped, trace.number("serialize")) == (2, 1, 3)
    assert "1 more were counted and not recorded." in str(trace)


# --- places --------------------------------------------------------------------------------------


def test_a_callback_of_an_event_loop_has_no_place():
    """The line that runs the loop is not the one that submitted."""

    async def main():
        asyncio.get_running_loop().call_soon(safeser.serialize, 1)
        await asyncio.sleep(0)
        safeser.serialize(2)

    with trace_serialization() as trace:
        asyncio.run(main())
    callback, coroutine = trace.records
    assert callback.place == ""
    assert coroutine.place.endswith(", in main")


def test_a_cell_of_a_notebook_is_named(monkeypatch):
    compile_ = SimpleNamespace(_filename_map={"/tmp/ipykernel/12.py": 7})
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=compile_))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert notebook_cell("/tmp/ipykernel/12.py") == "notebook cell 7"
    assert notebook_cell("x.py") == ""
    shell.get_ipython = lambda: None
    assert notebook_cell("/tmp/ipykernel/12.py") == ""


def test_tracing_loads_neither_dask_nor_numpy():
    program = (
        "import sys, safeser.trace.fixture, safeser\n"
        "with safeser.trace_serialization() as trace: pass\n"
        "print(str(trace), {'dask', 'distributed', 'numpy'} & set(sys.modules))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "Nothing was serialized. set()\n"
