"""What a cluster says of its counts is checked: a hostile peer's inventions are no counts."""

from __future__ import annotations

import asyncio
import math

import pytest

from safeser.dask.clients import remote_counts
from safeser.dask.clients.remote_counts import RemoteCounts, counts_in
from safeser.errors import PolicyDenied
from safeser.trace.counting import counting
from safeser.trace.records import Count, Group

ONE = ["serialize", "dask", 2, 300, 0.5]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"counts": "serialize"},
        {"counts": [1]},
        {"counts": [["serialize", "dask", 1, 1, 1, 1]]},
        {"counts": [["run", "dask", 1, 1, 1.0]]},
        {"counts": [[["serialize"], "dask", 1, 1, 1.0]]},
        {"counts": [["serialize", 5, 1, 1, 1.0]]},
        {"counts": [["serialize", "dask", True, 1, 1.0]]},
        {"counts": [["serialize", "dask", -1, 1, 1.0]]},
        {"counts": [["serialize", "dask", 1, 1 << 64, 1.0]]},
        {"counts": [["serialize", "dask", 1, 1, math.inf]]},
        {"counts": [["serialize", "dask", 1, 1, "1"]]},
        {"counts": [ONE] * 257},
        PolicyDenied("no", rule="operation.not-granted"),
    ],
)
def test_inventions_are_no_counts(answer):
    assert counts_in(answer) is None


def test_text_of_a_peer_is_made_printable_and_short():
    [(_, family)] = counts_in({"counts": [["hash", "\x1b[2J" + "x" * 500, 1, 1, 1]]})
    assert family.isprintable()
    assert len(family) == 200


class Rpc:
    """A scheduler with answers for the first and the last question."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def serialization_counts(self, **asked):
        self.asked.append(asked)
        return self._next("scheduler")

    async def broadcast(self, msg, on_error):
        assert on_error == "return"
        self.asked.append(msg)
        return self._next("workers")

    def _next(self, of):
        answer = self.answers[0].pop(of)
        if not self.answers[0]:
            del self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def counted(rpc, *, scheduler=True, workers=True):
    async def main():
        counts = RemoteCounts(rpc, scheduler=scheduler, workers=workers)
        await counts.begin()
        return await counts.end()

    return asyncio.run(main())


def told(*counts):
    return {"status": "OK", "counts": counts}


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("ConnectionPool is closed")])
def test_a_client_that_was_closed_meanwhile_has_no_counts(error):
    """Its error would take the place of the one that ended the traced program."""
    rpc = Rpc(
        {"scheduler": told(ONE), "workers": {"a": told(ONE)}},
        {"scheduler": error, "workers": error},
    )
    counts, missing = counted(rpc)
    assert counts == {}
    name = type(error).__name__
    assert missing == {"scheduler": name, "workers": name, "worker a": "it is gone"}


def test_what_was_counted_meanwhile_is_the_difference():
    rpc = Rpc(
        {"scheduler": told(ONE), "workers": {"a": told(), "b": told(ONE)}},
        {
            "scheduler": told(["serialize", "dask", 5, 900, 0.75]),
            "workers": {"a": told(ONE), "b": told(ONE)},
        },
    )
    counts, missing = counted(rpc)
    assert counts == {
        Group("scheduler", "serialize", "dask"): Count(3, 600, 0.25),
        Group("worker a", "serialize", "dask"): Count(2, 300, 0.5),
    }
    assert missing == {}
    first, second, third, _ = rpc.asked
    assert first["trace"] == second["trace"] == third["trace"]
    assert second["op"] == "serialization_counts"
    assert (first["seconds"], third["seconds"]) == (3600.0, 0)


def test_a_process_that_began_anew_counts_from_zero():
    rpc = Rpc({"workers": {"a": told(["hash", "x", 9, 9, 9.0])}},
              {"workers": {"a": told(["hash", "x", 2, 3, 1.0])}})  # fmt: skip
    counts, _ = counted(rpc, scheduler=False)
    assert counts == {Group("worker a", "hash", "x"): Count(2, 3, 1.0)}


def test_who_gives_none_is_listed_with_the_reason():
    refused = PolicyDenied("not\x1b granted", rule="operation.not-granted")
    rpc = Rpc(
        {"scheduler": refused, "workers": {"gone": told(), "a": told(), "b\x1b": told()}},
        {"scheduler": refused, "workers": {"a": OSError("x"), "b\x1b": {"counts": 5}, "c": told()}},
    )
    counts, missing = counted(rpc)
    assert counts == {}
    assert missing == {
        "scheduler": "[operation.not-granted] not? granted",
        "worker a": "OSError",
        "worker b?": "its answer holds no counts",
        "worker c": "it was not there, or did not answer, when the trace began",
        "worker gone": "it is gone",
    }


def test_a_scheduler_in_this_process_is_counted_once():
    answer = {**told(ONE), "process": counting.process}
    counts, missing = counted(Rpc({"scheduler": answer}, {"scheduler": answer}), workers=False)
    assert counts == {}
    assert missing == {"scheduler": "it is part of this process, which counts it"}


@pytest.mark.parametrize("answer", [OSError("lost"), None, 5, dict.fromkeys(range(3))])
def test_workers_that_cannot_be_asked_are_one_line(answer, monkeypatch):
    monkeypatch.setattr(remote_counts, "_MOST_PROCESSES", 2)
    counts, missing = counted(Rpc({"workers": answer}, {"workers": answer}), scheduler=False)
    assert counts == {}
    assert list(missing) == ["workers"]
