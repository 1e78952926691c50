"""One hostile message against everybody else: report loops, event loops, memory, and logs.

An error that escapes from reading ends a client's report loop, after which its futures wait for
ever; a batch that is dropped as a whole loses the elements that somebody waits for.
"""

from __future__ import annotations

import asyncio
import tracemalloc

import msgpack
import numpy as np
import pytest

from safeser.dask.messages.sending import ElementWriter
from safeser.families import serialize
from safeser.operations import Server
from tests.dask.attacks.rows import payload
from tests.dask.transport.conftest import GREETING, Wire

#: The reference to the second payload, as msgpack has it.
SECOND = b"\xd6\1\0\0\0\1"

AFTER = {"op": "key-in-memory", "key": "awaited", "type": None, "workers": ()}


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
    element = {"op": operation, "topic": "warn", "key": "k", field: payload(value)}
    got = t.attack_back([element, AFTER])
    assert got[-1]["key"] == "awaited"
    for left in got:
        assert left["op"] in ("event", "task-erred", "key-in-memory", "error")
        assert "status" not in left


# --- keys that were made to collide -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["dict", "set"])
def test_keys_that_collide_are_refused_before_a_dict_has_them(talk, kind):
    # A hundred thousand of them take minutes, a million hours: one message of some megabytes.
    t = talk("bob")
    prime = (1 << 61) - 1
    keys = [(one * prime, two * prime) for one in range(9) for two in range(8)]
    assert len(set(map(hash, keys))) == 1
    if kind == "set":
        body = msgpack.packb({"op": "identity", "x": msgpack.ExtType(3, msgpack.packb(keys))})
    else:
        pairs = b"".join(msgpack.packb(key) + b"\0" for key in keys)
        body = b"\x82" + msgpack.packb("op") + msgpack.packb("identity") + msgpack.packb("x")
        body += msgpack.Packer().pack_map_header(len(keys)) + pairs
    assert t.raw(body) is t.SKIP
    assert t.refused_by_server == ["payload.hash-flood"]
    value = {"x": {("key-1", i): i for i in range(1000)}, "y": set(range(99))}
    message = {"op": "set_metadata", "keys": ["a"], "value": value}
    assert talk("alice").attack(message)["value"]["x"][("key-1", 7)] == 7


# --- containers that claim more than they have --------------------------------------------------


@pytest.mark.parametrize("header", [b"\xdd\x00\x0f\x42\x40", b"\xdf\x00\x0f\x42\x40\x01"])
def test_no_memory_is_taken_for_what_nested_containers_claim(talk, header):
    # Older versions of msgpack took eight megabytes for each level, and kept some of it.
    t = talk("bob")
    tracemalloc.start()
    try:
        assert t.raw(header * 200) is t.SKIP
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()


# --- batches that carry what many said ----------------------------------------------------------


def nested(levels):
    value = 1
    for _ in range(levels):
        value = (value,)
    return value


def event(message):
    return {"op": "event", "topic": "print", "event": (1.0, message)}


@pytest.mark.parametrize(
    "message",
    [
        nested(100),  # as the scheduler may hear it; in the element it is deeper
        {"__Pickled__": 1},  # from a payload that the scheduler opened
        {1: {"__Enum__": 1}},
        ((1,) * 600_000, (2,) * 600_000),
    ],
    ids=["deep", "marker", "marker-below", "large"],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_malformed_element_takes_no_other_with_it(talk, message, place):
    t = talk("alice").client_stream()
    batch = [AFTER, AFTER]
    batch.insert(place, event(message))
    assert [e["op"] for e in t.attack_back(batch)] == ["key-in-memory"] * 2
    assert len(t.refused_by_asker) == 1


def test_payloads_of_the_elements_that_are_left_stay_theirs(talk):
    t = talk("alice").client_stream()
    batch = [
        {**event(payload("first")), "deep": nested(100)},
        event(payload("second")),
        event([nested(100), payload("third")]),
        event(payload("fourth")),
    ]
    assert [e["event"][1] for e in t.attack_back(batch)] == ["second", "fourth"]


@pytest.mark.parametrize("index", [b"\0\0\0\0", b"\0\0\0\2", b"\xff\xff\xff\xff"])
def test_nor_do_those_that_are_left_share_a_payload_or_name_one_that_is_not_there(talk, index):
    t = talk("alice").client_stream()
    batch = [event(nested(100)), event(payload("first")), event(payload("second"))]
    body, *rest = t.forged(batch)
    assert bytes(body).count(SECOND) == 1
    assert t.raw_back(bytes(body).replace(SECOND, SECOND[:2] + index), *rest) is t.SKIP
    assert t.refused_by_asker == ["limit.max_depth", "payload.table"]


@pytest.mark.parametrize("reference", [b"\xd4\1\1", b"\xc7\0\1", b"\xd7\1" + bytes(8)])
def test_a_reference_has_one_form(talk, reference):
    t = talk("alice").client_stream()
    body, *rest = t.forged([event(payload("first")), event(payload("second"))])
    assert t.raw_back(bytes(body).replace(SECOND, reference), *rest) is not t.SKIP
    assert t.refused_by_asker == ["payload.table"]


@pytest.mark.parametrize("value", ["\udcff", nested(600), {"a\udcff": 1}])
def test_what_cannot_be_sent_does_not_end_the_stream_of_others(talk, value):
    # A scheduler that opened such a value as a payload says it to every client that listens.
    t = talk("alice").client_stream()
    assert t.reply([event(value), AFTER]) == ({**AFTER, "type": None},)


# --- messages that are refused many times --------------------------------------------------------


@pytest.mark.parametrize("size", [2, 10_000])
def test_refused_graphs_of_one_message_get_one_short_answer(talk, size):
    # Half a millisecond and half a kilobyte for each of a million keys were minutes and gigabytes.
    t = talk("bob").client_stream()
    keys = [number * sign for number in range(1, 5_001) for sign in (1, -1)]
    graphs = [
        {"op": "update-graph", "keys": tuple(keys[at : at + size])} for at in range(0, 10_000, size)
    ]
    assert t.attack([*graphs, {"op": "update-graph", "keys": 1}]) is t.SKIP
    [answer] = t.answers
    assert [element["op"] for element in answer] == ["task-erred"] * 100 + ["cancelled-keys"]
    assert [element["key"] for element in answer[:4]] == [1, -1, 2, -2]
    assert answer[100]["keys"] == tuple(keys[100:])
    assert "submission.none" in answer[100]["msg"]
    assert t.attack([{"op": "update-graph", "keys": (1, -1)}]) is t.SKIP
    assert [element["key"] for element in t.answers[0]] == [1, -1]


def test_refusals_of_one_message_are_counted_when_they_are_too_many(talk, caplog):
    t = talk("bob").client_stream()
    other = {"op": "heartbeat-client", "client": "Client-2"}
    own = {"op": "client-releases-keys", "client": "Client-1", "keys": "none"}
    assert t.attack([own] * 5000) is t.SKIP
    assert len(t.refused_by_server) == 100
    rule = t.refused_by_server[0]
    counted = ("bob", "scheduler", "client-releases-keys", rule, False)
    assert t.far.audit.counts.count(counted) == 4900
    assert len(caplog.records) < 110
    assert t.attack([other]) is t.SKIP
    assert len(t.refused_by_server) == 101
    t.far.audit.broken.add("count")  # which ends nothing
    assert t.attack([{"op": "no-such"}] * 200) is t.SKIP


# --- peers that ask without a pause, and never read ----------------------------------------------


@pytest.fixture
def wire(doors):
    """Return a scheduler's side of a connection, and what its peer writes and reads by itself."""
    wires = []

    def made(*messages):
        wires.append(Wire(doors, "bob"))
        for message in messages:
            wires[-1].say(message)
        return wires[-1].comm

    yield made
    for each in wires:
        each.mine.close()


@pytest.mark.parametrize("operation", ["no-such", "identity"])
def test_a_peer_that_asks_without_a_pause_lets_others_run(wire, run, operation):
    async def main():
        ticks = 0

        async def other():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        comm = wire(GREETING, *[{"op": operation}] * 40, {"op": "versions"})
        beside = asyncio.create_task(other())
        await comm.read()
        while (await comm.read())["op"] != "versions":
            pass
        beside.cancel()
        comm.abort()
        return ticks

    assert run(main()) >= 40


@pytest.mark.parametrize("operation", ["no-such", "identity"])
def test_answers_that_nobody_reads_stop_the_questions(wire, run, operation):
    async def main():
        comm = wire(GREETING, *[{"op": operation}] * 3000)
        await comm.read()
        await comm.write(GREETING)

        async def serve():
            while True:
                await comm.read()
                await comm.write({"answer": "x" * 500})

        serving = asyncio.create_task(serve())
        for _ in range(20_000):
            await asyncio.sleep(0)
        kept = len(comm.stream._write_buffer)
        serving.cancel()
        comm.abort()
        return kept

    assert run(main()) < 10_000


@pytest.mark.parametrize(
    "value",
    [10**5000, np.array(["a", "b"]), KeyError(10**5000), {"a": 1}, "why\x1b[2J"],
    ids=["integer", "array", "error", "mapping", "text"],
)
def test_why_a_value_was_not_sent_is_text_or_nothing(talk, value):
    # bob logs an event with such a value, the scheduler passes it on to everybody.
    t = talk("alice").client_stream()
    header, frames = serialize(value, ["dask", "msgpack", "error"])
    failed = t.Row(header, tuple(frames), "bob", True)
    got = t.attack_back(
        [event(failed), {"op": "task-erred", "key": "k", "exception": failed}, AFTER]
    )
    assert got[-1]["key"] == "awaited"
    assert t.refused_by_asker == ["peer.unsent", "peer.unsent"]
    assert all(line.isprintable() for line in str(got[0]["exception"]).split("\n"))


def test_halves_of_a_batch_arrive_in_order(wire, run, monkeypatch):
    async def main():
        comm = wire(GREETING)
        await comm.read()
        await comm.write(GREETING)
        conversation = comm.conversation
        sent = []
        conversation._writer = ElementWriter(comm.link, Server.CLIENT, conversation.sent)
        monkeypatch.setattr(conversation, "is_overfull", lambda batch, _: len(batch) > 2)
        encode = conversation.send
        monkeypatch.setattr(conversation, "send", lambda b, s=None: (sent.append(b), encode(b))[1])
        batch = [event(number) for number in range(5)]
        assert await comm.write(batch) > 0
        comm.abort()
        return [element["event"][1] for part in sent if len(part) <= 2 for element in part]

    assert run(main()) == [0, 1, 2, 3, 4]
