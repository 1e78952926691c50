"""Messages over their ceilings are refused before they are parsed, and honest ones arrive."""

from __future__ import annotations

import msgpack
import pytest

from safeser.dask.messages.conversation import Conversation
from safeser.dask.wire import reader
from safeser.dask.wire.ceilings import named_first
from safeser.operations import FLOOR, NAMES, Channel, Server, lookup
from tests.refusal import refusal

KEYS = [f"sum-0123456789abcdef-{n}" for n in range(30_000)]


@pytest.fixture
def parsed(monkeypatch):
    """Sizes of what a reader begins to parse."""
    sizes = []
    real = reader.Reader.read

    def read(self, data):
        sizes.append(len(data))
        return real(self, data)

    monkeypatch.setattr(reader.Reader, "read", read)
    return sizes


# --- which operation it is -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 20, 70_000])
def test_the_first_field_names_the_operation(count):
    fields = {str(number): number for number in range(count)}
    for name in NAMES if count < 100 else ("identity",):
        assert named_first(msgpack.packb({"op": name, **fields})) == name


@pytest.mark.parametrize(
    "message",
    [
        {},
        5,
        {"x": 1, "op": "identity"},
        {"op": 5},
        {"op": "identity" * 50},
        {b"op": "identity"},
        [{"op": "identity"}],
    ],
    ids=repr,
)
def test_anything_else_names_none(message):
    assert named_first(msgpack.packb(message)) == ""


@pytest.mark.parametrize("size", range(14))
def test_what_is_cut_short_names_none(size):
    assert named_first(msgpack.packb({"op": "who_has"})[:size]) in ("", "who_has")


def test_the_encoder_writes_the_operation_first(talk):
    t = talk("alice")
    [frame] = t.asker.send({"keys": ["x"], "op": "who_has"})
    assert named_first(frame) == "who_has"
    assert t.request({"keys": ["x"], "op": "who_has"}) == {"op": "who_has", "keys": ("x",)}


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"op": "identity", "unknown": bytes(1 << 20)}, "identity"),
        ({"unknown": bytes(1 << 20)}, "known"),
        ([{"op": "identity"}, bytes(1 << 20)], "known"),
    ],
    ids=["unknown-field", "no-operation", "no-map"],
)
@pytest.mark.parametrize("sender", ["alice", "bob"])
def test_a_request_over_its_ceiling_is_refused_unparsed(talk, parsed, sender, message, why):
    t = talk(sender)
    parsed.clear()
    t.refuses(message)
    assert t.refused_by_server == ["limit.operation"]
    assert why in t.answers[0]["exception_text"]
    assert max(parsed) < FLOOR  # the answer


@pytest.mark.parametrize("keys", [KEYS, [1] * 20_000], ids=["many bytes", "few bytes"])
def test_a_sender_without_a_submission_asks_for_fewer_keys(talk, keys):
    t = talk("bob")
    t.refuses({"op": "who_has", "keys": keys})
    assert t.refused_by_server == ["limit.operation"]
    assert t.request({"op": "who_has", "keys": KEYS[:8000]})["keys"] == tuple(KEYS[:8000])
    assert talk("alice").request({"op": "who_has", "keys": keys})["keys"] == tuple(keys)


@pytest.mark.parametrize(
    ("asker", "message", "helps"),
    [
        ("bob", {"op": "who_has", "keys": KEYS}, "fewer"),
        ("alice", {"op": "log_event", "topic": "x", "msg": "m" * (1 << 21)}, "a smaller event"),
    ],
)
def test_the_asker_hears_of_its_own_ceiling_before_it_sends(talk, asker, message, helps):
    with refusal(Exception, "limit.operation", match=message["op"]) as caught:
        talk(asker).asker.send(message)
    assert helps in caught.value.fix


# --- streams -------------------------------------------------------------------------------------


def test_an_element_over_its_ceiling_is_left_out_alone(talk, parsed):
    t = talk("alice").client_stream()
    parsed.clear()
    beat = {"op": "heartbeat-client", "client": "Client-1"}
    got = t.attack([beat, {**beat, "unknown": bytes(1 << 20)}, {"op": "close-stream"}])
    assert got == (beat, {"op": "close-stream"})
    assert t.refused_by_server == ["limit.operation"]
    assert max(parsed) < FLOOR


def test_a_large_batch_of_small_elements_is_parsed_at_once_and_one_may_be_large(talk, parsed):
    t = talk("alice").client_stream()
    beats = [{"op": "heartbeat-client", "client": "Client-1"}] * 1000
    wants = {"op": "client-desires-keys", "keys": tuple(KEYS), "client": "Client-1"}
    parsed.clear()
    assert t.request(beats) == tuple(beats)
    assert len(parsed) == 1
    assert t.request([*beats[:1], wants]) == (beats[0], wants)


def test_a_list_of_keys_over_the_ceiling_travels_in_parts(talk, caplog):
    t = talk("bob").client_stream()
    keys = [f"{'x' * 60}-{number}" for number in range(20_000)]
    wants = {"op": "client-desires-keys", "keys": keys, "client": "Client-1"}
    got = t.request([wants])
    assert len(got) > 1
    assert [key for element in got for key in element["keys"]] == keys
    assert not caplog.records


def test_a_batch_of_what_are_no_elements_ends_early(talk, parsed):
    t = talk("alice").client_stream()
    beat = {"op": "heartbeat-client", "client": "Client-1"}
    deep = {**beat, "client": []}
    for _ in range(200):
        deep["client"] = [deep["client"]]
    parsed.clear()
    assert t.attack([beat, deep, *[{}] * 5000, beat]) == (beat,)
    assert len(t.refused_by_server) <= 101
    assert len(parsed) < 110


# --- before anything is read ---------------------------------------------------------------------


def test_the_room_of_a_connection_follows_what_may_be_said_on_it(doors, talk):
    _, far = doors.links("alice", "scheduler", "demo")
    before = Conversation(far, server=Server.SCHEDULER, opens=False)
    assert before.message_bounds() == (FLOOR, FLOOR, 2 + FLOOR // 32)  # before the greeting
    viewer, submitter = talk("bob"), talk("alice")
    assert viewer.server.message_bounds().structure < submitter.server.message_bounds().structure
    submitter.client_stream()
    update = lookup(Server.SCHEDULER, Channel.STREAM, "update-graph")
    assert submitter.server.message_bounds().structure >= update.ceilings.submitter.structure
    t = talk("alice")
    rooms = []
    for message in ({"op": "identity"}, {"op": "gather", "keys": ["x"]}):
        t.asker.send(message)
        rooms.append(t.asker.message_bounds().whole)
    assert rooms[0] < rooms[1]
