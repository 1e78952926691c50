"""``safeser up``: what it prints, and what it says when no cluster comes up."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from safeser import PolicyDenied
from safeser.dask import cluster


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Stand in for the cluster; what was asked for is kept."""
    asked = {}

    def up(*, announce, **options):
        asked.update(options)
        announce(
            SimpleNamespace(
                scheduler_address="safeser://127.0.0.1:4321",
                dashboard_link="http://127.0.0.1:5432/status",
                directory=options["directory"] or tmp_path / "temporary",
            )
        )

    monkeypatch.setattr(cluster, "up", up)
    return asked


def test_it_prints_a_line_that_connects(safeser, started, tmp_path, monkeypatch):
    ended = safeser("up", tmp_path / "here", "--workers", "2", "--port", "0")
    assert (ended.code, ended.err) == (0, "")
    assert started == {
        "directory": tmp_path / "here",
        "policy": "default",
        "n_workers": 2,
        "port": 0,
    }
    [line] = [each for each in ended.out.splitlines() if each.startswith("client = ")]
    given = {}
    names = SimpleNamespace(
        Client=lambda *address, **options: given.update(options, address=address),
        Security=dict,
    )
    exec(line, {"safeser": names})
    assert given["address"] == ("safeser://127.0.0.1:4321",)
    assert given["deserializers"] == ["dask", "msgpack"]
    assert given["security"]["identity"] == str(tmp_path / "here" / "keys" / "client.key")


def wrapped(cause):
    error = RuntimeError("Cluster failed to start")
    error.__cause__ = RuntimeError("inner")
    error.__cause__.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (wrapped(OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))), 2, "--port"),
        (wrapped(PolicyDenied("x may not", rule="operation.not-granted")), 1, "x may not"),
        (PolicyDenied("x may not"), 1, "x may not"),
        (RuntimeError("no reason\nat all"), 2, "could not be started: no reason at all"),
    ],
)
def test_a_cluster_that_does_not_start_says_why_in_short(safeser, monkeypatch, error, code, says):
    def up(**_):
        raise error

    monkeypatch.setattr(cluster, "up", up)
    ended = safeser("up")
    assert ended.code == code
    assert ended.err.count("\n") <= 2
    assert says in ended.err


@pytest.mark.parametrize(
    "arguments",
    [("--workers", "0"), ("--port", "65536"), ("--port=-1",), ("--group", "needs a folder")],
)
def test_what_could_not_run(safeser, started, arguments):
    assert safeser("up", *arguments).code == 2
    assert started == {}
