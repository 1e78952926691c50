"""Each path by which a hostile scheduler or worker runs code in a stock client, over plain TCP.

The positive control is a stock client that hears the same: where it does not run it either,
a test of the guarded one would show nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TIMEOUT = 150

#: What a stock client with deserializers=['dask', 'msgpack'] refuses, too.
REFUSED_BY_STOCK = {"reply.opaque", "reply.collection", "reply.cuda", "dataset.opaque"}


def start(program, *arguments):
    command = [sys.executable, str(HERE / program), *arguments]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return what both clients said, and which variants ran in which of them."""
    folder = tmp_path_factory.mktemp("hostile")
    kinds = ("guarded", "stock")
    started = []
    try:
        schedulers = [start("hostile_scheduler.py", str(folder)) for _ in kinds]
        started += schedulers
        addresses = [scheduler.stdout.readline() for scheduler in schedulers]
        pairs = zip(kinds, addresses, strict=True)
        victims = {kind: start("victim.py", kind, given) for kind, given in pairs}
        started += victims.values()
        said = {
            kind: json.loads(each.communicate(timeout=TIMEOUT)[0]) for kind, each in victims.items()
        }
    finally:
        for each in started:
            each.kill()
            each.wait()
            each.stdout.close()
    hit = defaultdict(set)
    for made in folder.iterdir():
        variant, _, pid = made.name.rpartition("@")
        hit[int(pid)].add(variant)
    return {kind: (told["said"], hit[told["pid"]]) for kind, told in said.items()}


def test_the_same_bytes_run_in_a_stock_client(ran):
    said, hit = ran["stock"]
    assert set(said) - hit == REFUSED_BY_STOCK
    assert len(hit) == 33


def test_nothing_runs_in_a_guarded_client(ran):
    said, hit = ran["guarded"]
    assert set(said) == set(ran["stock"][0])
    assert hit == set()


def test_the_guarded_client_goes_on(ran):
    said, _ = ran["guarded"]
    connected = {name: told for name, told in said.items() if not name.startswith("handshake")}
    assert {name for name, told in connected.items() if told["then"] != [0, 1, 2]} == set()


def test_what_is_refused_says_so_once(ran):
    said, _ = ran["guarded"]
    refused = {name for name, told in said.items() if "error" in told}
    inert = {
        "reply.fill-value",  # how masked elements print; NumPy's default stands in
    }
    streams = {name for name in said if name.startswith(("stream", "handshake"))}
    assert set(said) - refused == inert | streams
    for name in refused - {"error.exception", "error.traceback"}:
        kind, text = said[name]["error"]
        if kind in ("PolicyDenied", "PayloadError"):
            assert "rule: " in text, name
            # Instead of the worker's, Dask asks for the scheduler's value, which has another key.
            told = "no answer to gather" if name == "direct.typed" else "safeser://"
            assert told in text or "stock" in text, name
        else:
            # Errors arrive as data: what was to be called is part of a name.
            assert (kind, text.partition(":")[0]) == ("RemoteError", "builtins"), name


def test_futures_fail_or_finish_and_never_hang(ran):
    said, _ = ran["guarded"]
    status = {name: told["future"] for name, told in said.items() if name.startswith("stream.")}
    about = ("stream.type", "stream.exception", "stream.traceback", "stream.bare-exception")
    assert {status[name] for name in about} == {"finished", "error"}
    assert all(told["got"] == "arrived" for name, told in said.items() if name in status)
