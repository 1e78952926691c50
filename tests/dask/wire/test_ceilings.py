"""Messages over their ceilings are refused before they are parsed, and honest ones arrive."""

from __future__ import annotations

import msgpack
import pytest

from safeser.dask.wire import reader
from safeser.dask.wire.ceilings import named_first
from safeser.operations import FLOOR, NAMES, Channel, Server, lookup

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


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_first_field_names_the_operation(name):
    for fields in ({}, {str(n): n for n in range(20)}, {str(n): n for n in range(70_000)}):
        assert named_first(msgpack.packb({"op": name, **fields})) == name


@pytest.mark.parametrize(
    "message",
    [
        {},
        [],
        5,
        "op",
        {"x": 1, "op": "identity"},
        {"op": 5},
        {"op": "identity" * 50},
        {"op": b"identity"},
        {b"op": "identity"},
        {"op": ["identity"]},
        {"op": ""},
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
        ({"op": "no-such", "unknown": bytes(1 << 20)}, "known"),
        ({"unknown": bytes(1 << 20)}, "known"),
        ([{"op": "identity"}, bytes(1 << 20)], "known"),
    ],
    ids=["unknown-field", "unknown-operation", "no-operation", "no-map"],
)
@pytest.mark.parametrize("sender", ["alice", "bob"])
def test_a_request_over_its_ceiling_is_refused_unparsed(talk, parsed, sender, message, why):
    t = talk(sender)
    parsed.clear()
    t.refuses(message)
    assert t.refused_by_server == ["limit.operation"]
    assert why in t.answers[0]["exception_text"]
    assert max(parsed) < FLOOR  # the answer


def test_a_sender_without_a_submission_asks_for_fewer_keys(talk):
    t = talk("bob")
    t.refuses({"op": "who_has", "keys": KEYS})
    assert t.refused_by_server == ["limit.operation"]
    assert "who_has" in t.answers[0]["exception_text"]
    assert t.request({"op": "who_has", "keys": KEYS[:8000]})["keys"] == tuple(KEYS[:8000])


def test_many_elements_in_few_bytes_are_counted_too(talk):
    t = talk("bob")
    t.refuses({"op": "who_has", "keys": [1] * 20_000})
    assert t.refused_by_server == ["limit.operation"]


def test_a_submitter_asks_for_as_many_as_the_limits_allow(talk):
    t = talk("alice")
    assert t.request({"op": "who_has", "keys": KEYS})["keys"] == tuple(KEYS)


def test_the_asker_hears_of_its_own_ceiling_before_it_sends(talk):
    t = talk("bob")
    with pytest.raises(Exception, match="who_has") as caught:
        t.asker.send({"op": "who_has", "keys": KEYS})
    assert caught.value.rule == "limit.operation"
    assert "fewer" in caught.value.fix


def test_a_submitter_is_told_what_helps_a_submitter(talk):
    t = talk("alice")
    with pytest.raises(Exception, match="log_event") as caught:
        t.asker.send({"op": "log_event", "topic": "x", "msg": "m" * (1 << 21)})
    assert caught.value.rule == "limit.operation"
    assert "a smaller event" in caught.value.fix
    assert "only for a sender without a submission" in caught.value.fix


# --- streams -------------------------------------------------------------------------------------


def test_an_element_over_its_ceiling_is_left_out_alone(talk, parsed):
    t = talk("alice").client_stream()
    parsed.clear()
    beat = {"op": "heartbeat-client", "client": "Client-1"}
    got = t.attack([beat, {**beat, "unknown": bytes(1 << 20)}, {"op": "close-stream"}])
    assert got == (beat, {"op": "close-stream"})
    assert t.refused_by_server == ["limit.operation"]
    assert max(parsed) < FLOOR


def test_a_large_element_that_may_be_large_arrives(talk):
    t = talk("alice").client_stream()
    wants = {"op": "client-desires-keys", "keys": tuple(KEYS), "client": "Client-1"}
    beat = {"op": "heartbeat-client", "client": "Client-1"}
    assert t.request([beat, wants, beat]) == (beat, wants, beat)


def test_a_large_batch_of_small_elements_is_parsed_at_once(talk, parsed):
    t = talk("alice").client_stream()
    parsed.clear()
    beats = [{"op": "heartbeat-client", "client": "Client-1"}] * 1000
    assert t.request(beats) == tuple(beats)
    assert len(parsed) == 1


def test_a_list_of_keys_over_the_ceiling_travels_in_parts(talk, caplog):
    t = talk("bob").client_stream()
    keys = [f"{'x' * 60}-{number}" for number in range(20_000)]
    wants = {"op": "client-desires-keys", "keys": keys, "client": "Client-1"}
    got = t.request([wants])
    assert len(got) > 1
    assert [key for element in got for key in element["keys"]] == keys
    assert not caplog.records


def test_a_batch_of_what_are_no_elements_ends_early(talk, caplog):
    t = talk("alice").client_stream()
    beat = {"op": "heartbeat-client", "client": "Client-1"}
    assert t.attack([beat, *[{}] * 5000, beat]) == (beat,)
    assert len(t.refused_by_server) == 100
    assert "is left out" in caplog.text


def test_a_malformed_batch_of_what_are_no_elements_ends_early(talk, parsed):
    t = talk("alice").client_stream()
    beat = {"op": "heartbeat-client", "client": "Client-1"}
    parsed.clear()
    assert t.attack([beat, beat | {"client": deep(200)}, *[{}] * 5000, beat]) == (beat,)
    assert len(parsed) < 110


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


# --- before anything is read ---------------------------------------------------------------------


def test_before_the_greeting_little_is_read(doors):
    from safeser.dask.messages.conversation import Conversation

    _, far = doors.links("alice", "scheduler", "demo")
    talk = Conversation(far, server=Server.SCHEDULER, opens=False)
    assert talk.message_bounds() == (FLOOR, FLOOR, 2 + FLOOR // 32)


def test_the_room_of_a_connection_follows_what_may_be_said_on_it(talk):
    viewer, submitter = talk("bob"), talk("alice")
    assert viewer.server.message_bounds().structure < submitter.server.message_bounds().structure
    submitter.client_stream()
    update = lookup(Server.SCHEDULER, Channel.STREAM, "update-graph")
    assert submitter.server.message_bounds().structure >= update.ceilings.submitter.structure


def test_a_reply_has_the_room_of_what_was_asked(talk):
    t = talk("alice")
    t.asker.send({"op": "identity"})
    small = t.asker.message_bounds()
    t.asker.send({"op": "gather", "keys": ["x"]})
    assert t.asker.message_bounds().whole > small.whole
