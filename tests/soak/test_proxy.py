"""The road passes everything on, and cutting it ends both sides."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

import numpy as np
import pandas as pd
import pytest

from tests.soak.chaos import EVERY, garbage
from tests.soak.jobs import BY_TASKS, CODE, DATA, Wrong, expect
from tests.soak.proxy import Road


@pytest.fixture
def road():
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = Road(server.getsockname())
        yield made, server
        made.close()


def ends(road, server):
    near = socket.create_connection(("127.0.0.1", road.port), timeout=20)
    far, _ = server.accept()
    far.settimeout(20)
    return near, far


def received(end, size):
    data = b""
    while len(data) < size and (piece := end.recv(1 << 16)):
        data += piece
    return data


def test_both_ways_at_once_and_more_than_buffers_hold(road):
    near, far = ends(*road)
    there, back = random.Random(1).randbytes(5_000_000), random.Random(2).randbytes(5_000_000)
    with near, far:
        senders = [
            threading.Thread(target=end.sendall, args=(data,))
            for end, data in ((near, there), (far, back))
        ]
        got = []
        receiver = threading.Thread(target=lambda: got.append(received(far, len(there))))
        for thread in (*senders, receiver):
            thread.start()
        assert received(near, len(back)) == back
        for thread in (*senders, receiver):
            thread.join(timeout=30)
        assert got == [there]


def test_a_cut_ends_both_sides_and_no_other_road(road):
    near, far = ends(*road)
    with near, far:
        near.sendall(b"here")  # once this has arrived, the road knows the pair
        assert received(far, 4) == b"here"
        assert road[0].cut(random.Random(0), most=5) == 1
        for end in (near, far):
            with contextlib.suppress(ConnectionError):
                assert end.recv(1) == b""
    near, far = ends(*road)
    with near, far:
        far.sendall(b"again")
        assert received(near, 5) == b"again"


def test_the_end_of_one_side_is_the_end_of_the_other(road):
    near, far = ends(*road)
    with far:
        near.close()
        with contextlib.suppress(ConnectionError):
            assert far.recv(1) == b""


def test_garbage_is_the_same_each_time_and_bounded():
    pieces = [garbage(random.Random(seed)) for seed in range(200)]
    assert pieces == [garbage(random.Random(seed)) for seed in range(200)]
    assert max(map(len, pieces)) <= 100_000
    assert len({piece[:3] for piece in pieces}) > 5
    assert set(EVERY) == {"kill", "cut", "garbage", "attack", "stall"}


def test_a_value_of_another_type_or_content_is_wrong():
    table = pd.DataFrame({"a": [1, 2]})
    for value in (np.arange(3), table, 1.5, "x", (1, [2]), {"a": 1}):
        expect(value, value)
    for got, wanted in (
        (np.arange(3.0), np.arange(3)),
        ([0, 1, 2], np.arange(3)),
        (table.astype(float), table),
        (table["a"], table),
        ([1], (1,)),
        (True, 1),
        (1.6, 1.5),
    ):
        with pytest.raises(Wrong, match="instead of"):
            expect(got, wanted)


def test_each_kind_of_client_has_work_of_its_own():
    assert set(BY_TASKS) < set(CODE)
    assert {"reads", "submits_nothing"} == set(DATA) - set(CODE)
