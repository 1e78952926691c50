"""What is too large for the other side is refused here, by name: one value, not the message."""

from __future__ import annotations

from pathlib import Path

import msgpack
import numpy as np
import pytest
from distributed.protocol import Serialized, to_serialize

from safeser.dask.wire.codec import Encoder, PayloadRow, parse
from safeser.dask.wire.reader import check_header, check_readable
from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from safeser.policy import Policy
from tests.refusal import refusal

DEMO = Path(__file__).parents[3] / "policies" / "demo.yaml"


@pytest.fixture
def small(doors, talk):
    """Return connections under the demo's policy with limits of its own."""

    def made(asker, server="scheduler", **limits):
        text = DEMO.read_text()
        head, _, _ = text.partition("\nlimits:")
        spelled = ", ".join(f"{name}: {value}" for name, value in limits.items())
        return talk(asker, server, f"{head}\nlimits: {{{spelled}}}\n")

    return made


def zeros(size):
    return to_serialize(np.zeros(size, "u1"))


GET = {"op": "get_data", "keys": ["a", "b"], "who": None, "reply": True}
GATHER = {"op": "gather", "keys": ["a", "b"], "reply": True}


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"max_bytes": 100_000}, "limit.max_bytes"),
        ({"max_bytes": 200_000, "max_array": 100_000}, "larger than max_array"),
    ],
)
def test_a_value_over_a_limit_fails_alone(small, limits, named):
    t = small("alice", **limits)
    t.request(GATHER)
    with refusal(PayloadError, "peer.unsent") as caught:
        t.reply({"status": "OK", "data": {"a": zeros(150_000), "b": zeros(5)}})
    assert named in str(caught.value)
    t.request({**GATHER, "keys": ["b"]})
    got = t.reply({"status": "OK", "data": {"b": zeros(5)}})
    assert len(got["data"]["b"]) == 5


@pytest.mark.parametrize(("most", "sent"), [(96_175, False), (96_176, True), (96_177, True)])
def test_a_value_that_takes_too_much_memory_fails_alone(small, most, sent):
    t = small("alice", max_memory=most)
    t.request({**GATHER, "keys": ["a"]})
    reply = {"status": "OK", "data": {"a": to_serialize([0.5] * 2000)}}
    if sent:
        assert t.reply(reply)["data"]["a"] == [0.5] * 2000
        return
    with refusal(PayloadError, "peer.unsent") as caught:
        t.reply(reply)
    assert "take more memory than max_memory" in str(caught.value)


def test_values_that_are_too_much_together_go_without_the_largest(small):
    t = small("scheduler", "worker", max_bytes=100_000)
    t.request(GET)
    sizes = {"a": 30_000, "b": 60_000, "c": 40_000, "d": 10}
    got = t.reply({"status": "OK", "data": {key: zeros(size) for key, size in sizes.items()}})
    assert {key: value.failed for key, value in got["data"].items()} == {
        "a": False,
        "b": True,
        "c": False,
        "d": False,
    }


def test_values_with_too_many_frames_together_go_without_the_largest(small):
    t = small("scheduler", "worker", max_frames=16)
    t.request(GET)
    many = to_serialize([np.zeros(3), np.zeros(4), *("x" * n for n in range(3))])
    got = t.reply({"status": "OK", "data": {"a": many, "b": many, "c": zeros(5), "d": many}})
    failed = [key for key, value in got["data"].items() if value.failed]
    assert len(failed) in (1, 2)
    assert "c" not in failed


# --- what is not divisible --------------------------------------------------------------------


def too_deep():
    value = 1
    for _ in range(60):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (b"x" * 150_000, "limit.max_bytes"),
        (too_deep(), "limit.max_depth"),
        (list(range(3_000)), "limit.max_memory"),
    ],
)
def test_a_reply_that_cannot_be_sent_is_an_error_for_whoever_asked(small, value, rule):
    t = small("alice", max_bytes=100_000, max_depth=50, max_memory=2_000 << 7)
    t.request({"op": "get_metadata", "keys": ["k"], "reply": True})
    got = t.reply(value)
    assert got["status"] == "uncaught-error"
    assert got["exception"].rule == rule
    with refusal(PayloadError, rule):
        t.request({"op": "set_metadata", "keys": ["k"], "value": value})
    assert t.request({"op": "who_has", "keys": []})["op"] == "who_has"


def test_more_values_than_a_message_has_frames_fail_all(small):
    up, down = small("scheduler", "worker", max_frames=16), small("alice", max_frames=16)
    keys = [f"k{number}" for number in range(30)]
    up.request({**GET, "keys": keys})
    data = {key: zeros(5) for key in keys}
    # Dask's handler writes this by itself, and answers with the error that it raises.
    with pytest.raises(PayloadError) as caught:
        up.reply({"status": "OK", "data": data})
    error = {"status": "uncaught-error", "exception": caught.value, "traceback": None}
    got = up.reply(error)
    assert got["status"] == "OK"
    assert set(got["data"]) == set(keys)
    assert all(value.failed for value in got["data"].values())
    assert up.asker.send("OK") == []  # nobody waits for it
    assert up.asker.send("OK") != []
    down.request(GATHER)
    got = down.reply(got)
    assert got["status"] == "uncaught-error"
    assert got["exception"].rule == "limit.max_frames"


def test_a_refused_transfer_is_acknowledged(talk, marker):
    """A peer that opens values says itself the word that the other side waits for."""
    t = talk("worker", "worker")
    t.request({**GET, "keys": ["a"]})
    row = t.Row({"serializer": "pickle", "writeable": []}, (marker.pickle,))
    with pytest.raises(SafeserError):
        t.attack_back({"status": "OK", "data": {"a": row}})
    [word] = t.asker.take_answers()
    assert t._to_server(word) == "OK"


# --- streams ----------------------------------------------------------------------------------


def test_a_batch_that_is_too_large_is_to_be_halved(small):
    t = small("worker", max_bytes=100_000).worker_stream()
    tasks = [{"op": "compute-task", "key": f"k{n}", "run_spec": zeros(60_000)} for n in range(3)]
    frames = t.server.send(tasks)
    assert t.server.is_overfull(tasks, frames)
    assert not t.server.is_overfull(tasks[:1], t.server.send(tasks[:1]))
    assert t.server.is_overfull(tasks, [b""] * 100_001)
    assert not t.asker.is_overfull({"op": "x"}, frames)


def test_what_a_stream_writes_holds_nothing_of_the_message_before(small):
    t = small("worker", max_bytes=100_000).worker_stream()
    t.server.send([{"op": "compute-task", "key": "k", "run_spec": zeros(50_000)}])
    t.server.send([{"op": "compute-task", "key": "k", "run_spec": zeros(150_000)}])
    t.server.send([{"op": "unheard"}])
    [free] = t.server.send([{"op": "free-keys", "keys": ["x"], "stimulus_id": "s"}])
    assert msgpack.unpackb(free) == [{"op": "free-keys", "keys": ["x"], "stimulus_id": "s"}]


def test_a_stream_writes_within_the_limits_of_a_new_policy(small):
    t = small("worker", max_memory=1_000_000 << 7).worker_stream()
    many = {"op": "free-keys", "keys": ["x"] * 2000, "stimulus_id": "s"}
    assert len(msgpack.unpackb(t.server.send([many])[0])) == 1
    text = DEMO.read_text().replace("revision: 1\n", "revision: 2\n")
    head, _, _ = text.partition("\nlimits:")
    t.far.channel.adopt(policy=Policy.parse(f"{head}\nlimits: {{max_memory: 128000}}\n"))
    assert msgpack.unpackb(t.server.send([many])[0]) == []


def test_a_task_that_is_too_large_fails_and_the_stream_goes_on(small):
    t = small("worker", max_bytes=100_000).worker_stream()
    [got] = t.reply([{"op": "compute-task", "key": "k", "run_spec": zeros(150_000)}])
    with pytest.raises(SafeserError, match=r"limit\.max_bytes"):
        got["run_spec"]()
    assert t.reply([{"op": "free-keys", "keys": ["k"]}])


def test_a_graph_that_is_too_large_fails_its_futures_by_the_reason(small):
    t = small("alice", max_bytes=100_000).client_stream()
    graph = Serialized({"serializer": "pickle", "writeable": ()}, [bytes(150_000)])
    assert t.request([{"op": "update-graph", "expr_ser": graph, "keys": {"x"}}]) is t.SKIP
    [[element]] = t.answers
    assert element["key"] == "x"
    assert element["exception"].rule == "peer.unsent"
    assert "limit.max_bytes" in str(element["exception"])


@pytest.mark.parametrize("listed", [True, False])
def test_an_element_that_cannot_be_divided_is_left_out(small, listed):
    t = small("alice", max_bytes=100_000, max_depth=50).client_stream()
    for value in (b"x" * 150_000, too_deep()):
        element = {"op": "client-releases-keys", "keys": [value], "client": "Client-1"}
        assert t.request([element] if listed else element) is t.SKIP
    assert t.request([{"op": "heartbeat-client"}]) == ({"op": "heartbeat-client"},)


def test_what_stands_beside_the_values_has_a_bound_of_its_own(talk, monkeypatch):
    monkeypatch.setattr("safeser.dask.messages.sending._MOST_PLAIN", 1000)
    t = talk("alice")
    with refusal(PayloadError, "limit.frame") as caught:
        t.request({"op": "set_metadata", "keys": ["k"], "value": "x" * 2000})
    assert "to_serialize" in caught.value.fix


@pytest.mark.parametrize("change", [lambda row: [*row, [1]], lambda row: row[:3], lambda row: []])
def test_a_row_of_the_table_has_four_elements(change):
    encoder = Encoder()
    encoder.add([PayloadRow({"serializer": "msgpack"}, (b"x",))], lambda leaf: (leaf, False))
    frames = encoder.frames(listed=False)
    [entry] = msgpack.unpackb(frames[1])
    with refusal(PayloadError, "payload.table"):
        parse([frames[0], msgpack.packb([change(entry)]), *frames[2:]], Limits())


# --- telling in advance -----------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 10, 18, 19, 20, 30])
def test_depth_is_judged_as_its_reader_does(depth):
    limits = Limits(max_depth=20)
    value = []
    for _ in range(depth - 1):
        value = [value]
    encoder = Encoder(limits)

    def readable(element):
        encoder.add(element, lambda leaf: (leaf, False))

    if depth < 20:
        readable(value)
        assert parse(encoder.frames(listed=True), limits)
    else:
        with refusal(PayloadError, "limit.max_depth"):
            readable(value)
        assert encoder.frames(listed=True) == [b"\x90"]


def test_many_short_containers_are_not_deep():
    check_readable(msgpack.packb([[] for _ in range(500)]), Limits(max_depth=20), levels=1)


def test_a_header_that_is_nested_too_deeply_is_refused():
    header = {"serializer": "msgpack"}
    check_header(header, Limits(max_depth=8))
    for _ in range(5):
        header = {"serializer": "collection", "sub-headers": [header], "frame-lengths": [1]}
    check_header(header, Limits(max_depth=20))
    with refusal(PayloadError, "limit.max_depth"):
        check_header(header, Limits(max_depth=8))


def test_a_payload_table_is_judged_as_its_reader_does(small):
    # Each row costs elements of the table, whatever the value is.
    t = small("alice", max_memory=1_000 << 7)
    t.request(GATHER)
    got = t.reply({"status": "OK", "data": {str(n): zeros(1) for n in range(200)}})
    assert got["status"] == "uncaught-error"
    assert got["exception"].rule == "limit.max_memory"
