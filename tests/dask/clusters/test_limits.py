"""A real cluster whose policy takes one megabyte: what is larger fails by name, nothing hangs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

POLICY = Path(__file__).parents[3] / "policies" / "demo.yaml"

PROGRAM = """
import json, sys
import safeser
from distributed import wait

SIZE = 3_000_000
out = {}

def attempt(name, call):
    try:
        out[name] = call()
    except safeser.SafeserError as error:
        out[name] = [error.rule, str(error)]
    except Exception as error:
        out[name] = [type(error).__name__, str(error)]

def others(dask_worker):
    return dask_worker.transfer_outgoing_count_total

with safeser.Client(sys.argv[1], deserializers=["dask", "msgpack"], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    here, there = sorted(client.scheduler_info()["workers"])
    big = client.submit(lambda: bytes(SIZE), workers=[here])
    wait(big)
    attempt("result", lambda: len(big.result(timeout=60)))
    attempt("direct", lambda: len(client.gather([big], direct=True)[0]))
    out["sent"] = sum(client.run(others).values())
    out["next"] = client.submit(lambda: 7).result(timeout=60)

    attempt("scatter", lambda: client.scatter(bytes(SIZE)) and None)
    out["after_scatter"] = client.gather(client.scatter([5], hash=False))

    moved = client.submit(len, big, workers=[there])
    attempt("dependency", lambda: moved.result(timeout=60))
    small = client.submit(lambda: bytes(1000), workers=[here])
    attempt("small", lambda: client.submit(len, small, workers=[there]).result(timeout=60))

    # Both are fetched in one batch, for the first of the tasks.
    other = client.submit(lambda: bytes(1001), workers=[here])
    wait(other)
    both = client.submit(lambda *data: sum(map(len, data)), big, other, workers=[there])
    beside = client.submit(len, other, workers=[there], pure=False)
    attempt("batch", lambda: both.result(timeout=60))
    attempt("beside", lambda: beside.result(timeout=60))

    attempt("graph", lambda: client.submit(len, bytes(SIZE)).result(timeout=60))

    wrong = client.submit(lambda: 1 / 0)
    got = client.gather([small, big, wrong], errors="skip")
    out["skipped"] = list(map(len, got))

    several = [client.submit(lambda n: bytes(400_000), n, workers=[here]) for n in range(4)]
    wait(several)
    attempt("together", lambda: len(client.gather(several)))
    out["one_by_one"] = [len(future.result(timeout=60)) for future in several]

    out["still"] = client.submit(len, big, workers=[here], pure=False).result(timeout=60)
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def small(cluster_under):
    """What came out of a program on a cluster whose messages have at most a megabyte."""
    text = POLICY.read_text()
    for large, little in (
        ("max_bytes: 2GiB", "max_bytes: 1MiB"),
        ("max_array: 1GiB", "max_array: 1MiB"),
    ):
        assert large in text
        text = text.replace(large, little)
    with cluster_under(text, nannies=0) as cluster:
        ended = cluster.run("alice", PROGRAM, cluster.address, timeout=200)
        assert ended.code == 0, f"{ended.err}\n{cluster.logs()}"
        yield ended.answer


@pytest.mark.parametrize(
    "step", ["result", "direct", "scatter", "dependency", "batch", "graph", "together"]
)
def test_what_is_too_large_names_the_limit(small, step):
    rule, text = small[step]
    # A task's error crosses as data, by the name of its class.
    assert rule in ("limit.max_bytes", "peer.unsent", "RemoteError"), small
    assert "max_bytes" in text


def test_nothing_is_asked_for_again_and_again(small):
    assert small["sent"] <= 10, small


def test_everything_else_goes_on(small):
    assert {
        "next": 7,
        "after_scatter": [5],
        "small": 1000,
        "beside": 1001,
        "one_by_one": [400_000] * 4,
        "skipped": [1000],
        "still": 3_000_000,
    }.items() <= small.items(), small
