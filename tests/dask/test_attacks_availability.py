"""One hostile message against everybody else: report loops, event loops, memory, and logs.

An error that escapes from reading ends a client's report loop, after which its futures wait for
ever; a batch that is dropped as a whole loses the elements that somebody waits for.
"""

from __future__ import annotations

import numpy as np
import pytest

from safeser.families import serialize

AFTER = {"op": "key-in-memory", "key": "awaited", "type": None, "workers": ()}


def row_of(t, value):
    header, frames = serialize(value, ["dask", "msgpack"])
    return t.Row(header, tuple(frames))


@pytest.mark.parametrize(
    "value",
    [
        10**5000,  # str() of it is an error
        np.array(["a", "b"]),
        (1.0, {"message": "m", "category": 10**5000}),
        (1.0, {"message": "m", "category": np.array(["a", "b"])}),
        (1.0, {"message": np.array(["a", "b"]), "category": "builtins:UserWarning"}),
        {"status": np.array(["a", "b"])},
    ],
    ids=["integer", "array", "category", "category-array", "message-array", "mapping"],
)
@pytest.mark.parametrize("field", ["event", "topic", "key", "status", "exception", "traceback"])
@pytest.mark.parametrize("operation", ["event", "task-erred", "key-in-memory", "error"])
def test_no_value_ends_a_clients_report_loop(talk, operation, field, value):
    t = talk("alice").client_stream()
    element = {"op": operation, "topic": "warn", "key": "k", field: row_of(t, value)}
    got = t.attack_back([element, AFTER])
    assert got[-1]["key"] == "awaited"
    for left in got:
        assert left["op"] in ("event", "task-erred", "key-in-memory", "error")
        assert "status" not in left
