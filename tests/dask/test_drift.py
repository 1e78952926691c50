"""What processes report of their policy and roster, and what an operator reads of it."""

from __future__ import annotations

import pytest

from safeser.dask import drift

# --- drift ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"safeser": None},
        {"safeser": {"policy": 1, "revision": 1, "sha256": "x", "roster": "y"}},
        {"safeser": {"policy": "p", "revision": "1", "sha256": "x", "roster": "y"}},
        {"safeser": {"clients": [[1, 2, 3, 4], [], "abcd"]}},
        OSError("timed out"),
    ],
)
def test_who_says_nothing_and_a_peers_inventions_are_rows_that_agree_with_none(said):
    [row] = drift._read("worker", said)
    assert row == drift.Statement("worker", "", 0, "", "")
    assert not row.agrees(row)


@pytest.mark.parametrize("clients", [5, True, "abcd", {"a": 1}, [5], [[1, 2, 3, 4], [], "abcd"]])
def test_inventions_about_clients_are_no_rows(clients):
    own = {"policy": "p", "revision": 1, "sha256": "x", "roster": "y"}
    [row] = drift._read("worker", {"safeser": {**own, "clients": clients}})
    assert row.process == "worker"


def test_processes_that_say_the_same_agree():
    one = drift.Statement("scheduler", "p", 1, "a", "r")
    assert one.agrees(one._replace(process="2 clients", roster=""))
    assert not one.agrees(one._replace(sha256="b"))
    assert not one.agrees(one._replace(roster="s"))


def test_the_answer_to_identity_says_it_and_a_refusal_does_not(doors):
    _, far = doors.links("alice", "scheduler")
    far.is_client = True
    said = drift.stated({"type": "Scheduler", "id": "s"}, far)
    policy = far.policy
    assert said["safeser"]["sha256"] == policy.sha256
    assert said["safeser"]["clients"] == [[policy.name, policy.revision, policy.sha256, 1]]
    assert "clients" not in drift.stated({"type": "Worker"}, far)["safeser"]
    refusal = {"status": "uncaught-error"}
    assert drift.stated(refusal, far) is refusal
    rows = list(drift._read("scheduler", said))
    assert [row.process for row in rows] == ["scheduler", "1 client"]
    assert rows[0].roster == far.channel.standing.listed.sha256


class Asked:
    """A scheduler of one worker, whose nanny does not answer."""

    def __init__(self, address, **arguments):
        assert (address, arguments["timeout"]) == ("safeser://127.0.0.1:1", 10)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def identity(self, n_workers):
        assert n_workers == -1
        return {"safeser": {**_said("a"), "clients": [["p", 1, "a", 2]]}}

    async def broadcast(self, msg, *, nanny, on_error):
        assert (msg, on_error) == ({"op": "identity"}, "return")
        answer = OSError("gone") if nanny else {"safeser": _said("b")}
        return {"safeser://127.0.0.1:2": answer}


def _said(sha256):
    return {"policy": "p", "revision": 1, "sha256": sha256, "roster": "r"}


def test_the_scheduler_is_asked_and_by_it_workers_and_nannies(net, monkeypatch):
    from safeser.dask.diagnosis import ask_drift

    monkeypatch.setattr("safeser.dask.diagnosis.rpc", Asked)
    rows = [(row.process, row.sha256) for row in ask_drift("safeser://127.0.0.1:1")]
    assert rows == [
        ("scheduler", "a"),
        ("2 clients", "a"),
        ("worker safeser://127.0.0.1:2", "b"),
        ("nanny safeser://127.0.0.1:2", ""),
    ]
