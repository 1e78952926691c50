"""What a record says of a message that was refused before anything in it was judged.

The one rule: the operation that it names, if there is one of that name, and nothing of a peer's
own making.
"""

from __future__ import annotations

import gc
import pickle

import msgpack
import pytest

from safeser.channel import SINGLE_REFUSALS
from safeser.dask.messages.refused import Refusals
from safeser.dask.stock.comm import GuardedBackend
from safeser.dask.transport import other_schemes
from safeser.dask.wire.codec import MOST_STRANGE
from safeser.errors import ConfigError, PayloadError
from safeser.policy import Policy
from safeser.policy.ready import locate


@pytest.mark.parametrize("broken", [False, True])
def test_a_process_that_is_told_to_leave_its_scheme_records_it(doors, monkeypatch, broken):
    channel = doors.channel("worker", "demo")
    if broken:
        channel.audit.broken = {"refuse"}
    monkeypatch.setattr(other_schemes, "open_channels", lambda: (channel,))
    with pytest.raises(ConfigError, match="closed"):
        other_schemes._Sealed("tcp").get_connector()
    said = [(each["rule"], each["sender"], each["where"]) for each in channel.audit.events]
    assert said == ([] if broken else [("scheme.sealed", "worker", "tcp://")])


@pytest.mark.parametrize("broken", [False, True])
def test_a_guarded_client_that_is_told_to_leave_its_scheme_records_it(doors, monkeypatch, broken):
    audit = doors.channel("worker", "demo").audit
    if broken:
        audit.broken = {"refuse"}
    monkeypatch.setattr(other_schemes, "open_channels", lambda: ())
    monkeypatch.setattr(other_schemes, "_guarded", {})
    for _ in range(2):  # of two clients that share a log, once
        other_schemes.record_for("client", audit)
    with pytest.raises(ConfigError, match="closed"):
        other_schemes._Sealed("inproc").get_connector()
    with pytest.raises(ConfigError, match="never listens"):
        GuardedBackend("tcp").get_listener("127.0.0.1:0", None, True)
    said = [(each["rule"], each["sender"], each["where"]) for each in audit.events]
    left = [("scheme.sealed", "client", "inproc://"), ("scheme.guarded", "client", "tcp://")]
    assert said == ([] if broken else left)


_FINISHED = {"op": "task-finished", "status": "OK", "run_id": 1, "stimulus_id": "s", "nbytes": 28}
_MANY = SINGLE_REFUSALS + 50


@pytest.mark.parametrize(
    ("change", "rule", "answer"),
    [
        ({"nbytes": "x"}, "operation.field-shape", "task-erred"),
        ({"zzz": 1}, "operation.unknown-field", "task-erred"),
        ({"metadata": {"a": "payload"}}, "operation.field", "task-erred"),
        ({"type": b"x"}, "raw.type", "task-finished"),
        ({}, "operation.not-granted", None),
    ],
)
def test_of_many_refusals_of_a_message_the_first_have_a_record_each(talk, change, rule, answer):
    """The others are counted; each element that a task waits for is answered."""
    t = talk("worker").worker_stream()
    if "metadata" in change:
        row = t.Row({"serializer": "pickle", "writeable": []}, (pickle.dumps(1),))
        change = {"metadata": {"a": row}}
    elif not change:
        granted = "grant: [basic, worker-reports, diagnose]"
        text = locate("demo").read_text("utf-8").replace("revision: 1\n", "revision: 2\n")
        t.far.channel.adopt(policy=Policy.parse(text.replace(granted, "grant: [identity]", 1)))
    elements = [{**_FINISHED, "key": f"k{at}"} for at in range(2 * _MANY)]
    sent = [each | change if at % 2 else each for at, each in enumerate(elements)]
    got = t.attack(sent)
    records = [each for each in t.far.audit.events if each["event"] == "refuse"]
    assert {each["rule"] for each in records} == {rule}
    assert len(records) == SINGLE_REFUSALS
    counts = [each for each in t.far.audit.counts if each[3] == rule]
    refused = 2 * _MANY if answer is None else _MANY
    assert len(counts) == refused - SINGLE_REFUSALS
    answers = [] if got is t.SKIP else [each["op"] for each in got if int(each["key"][1:]) % 2]
    assert answers == ([] if answer is None else [answer] * _MANY)


def test_the_next_message_has_records_again(talk):
    t = talk("worker").worker_stream()
    for _ in range(2):
        t.attack([{**_FINISHED, "key": "k", "nbytes": "x"}] * _MANY)
    assert len(t.refused_by_server) == 2 * SINGLE_REFUSALS


# --- elements that are none ----------------------------------------------------------------------

_BEAT = msgpack.packb({"op": "heartbeat-client"})
_TWICE = b"\x82\xa2op\xa3run\xa2op\x01"  # the key repeats
_MARKED = msgpack.packb({"op": "event", "topic": "t", "event": {"__Pickled__": 1}})


def _batch(*elements):
    return b"\xdd" + len(elements).to_bytes(4, "big") + b"".join(elements)


@pytest.mark.parametrize(
    ("element", "rule"),
    [
        (_TWICE, "payload.duplicate-key"),
        (msgpack.packb({"op": "run", "x": {"__Enum__": 1}}), "marker.enum"),
        (b"\x91" * 120 + b"\x01", "limit.max_depth"),
        (b"\x80", "operation.missing"),
        (b"\xd4\x09\x01", "payload.ext"),
        (msgpack.packb({"op": "unheard"}), "operation.unknown"),
    ],
)
def test_after_many_elements_that_are_none_the_rest_is_refused_as_one(talk, element, rule):
    """Three hundred thousand took 200 MB and eight seconds, and the loop waited for 1.4."""
    t = talk("alice").client_stream()
    few = [element] * (MOST_STRANGE - 1)
    assert t.raw(_batch(*few, _BEAT)) == ({"op": "heartbeat-client"},)
    assert t.refused_by_server == [rule] * (MOST_STRANGE - 1)
    t.far.audit.events.clear()
    t.far.audit.counts.clear()
    got = t.raw(_batch(_BEAT, *[element] * 5000, _BEAT))
    assert got == ({"op": "heartbeat-client"},)
    assert t.refused_by_server == [rule] * MOST_STRANGE + ["payload.batch"]
    assert [each for each in t.far.audit.counts if each[3] != "permit"] == []


def test_what_others_make_a_scheduler_say_takes_nothing_with_it(talk, monkeypatch):
    """Of its elements, errors of a hundred are kept, and no more than that in memory."""
    t = talk("alice").client_stream()
    alive = []
    awaited = {"op": "key-in-memory", "key": "x", "type": None, "workers": ()}

    def counting(real):
        def note(refusals, error, *rest, **options):
            real(refusals, error, *rest, **options)
            if refusals.count % 1000 == 0:
                alive.append(sum(type(one) is PayloadError for one in gc.get_objects()))

        return note

    monkeypatch.setattr(Refusals, "note", counting(Refusals.note))
    got = t.raw_back(_batch(*[_MARKED] * 3000, msgpack.packb(awaited)))
    assert [each["op"] for each in got] == ["key-in-memory"]
    assert t.refused_by_asker == ["marker.pickled"] * SINGLE_REFUSALS
    assert len([each for each in t.near.audit.counts if each[3] == "marker.pickled"]) == (
        3000 - SINGLE_REFUSALS
    )
    assert len(alive) == 3
    assert max(alive) < SINGLE_REFUSALS + 10  # which the log of this test has


# --- batches without a fault in any element -------------------------------------------------------


def _deep(t):
    levels = (
        t.far.policy.limits.max_depth - 1
    )  # of the field: the element is one, the batch another
    return [_batch(_BEAT, b"\x82\xa2op\xb0heartbeat-client\xa1x" + b"\x91" * levels + b"\x01")]


def _unused(t):
    row = t.Row({"serializer": "msgpack"}, (b"\x01",))
    [_, table, frame] = t.forged([{"op": "log-event", "topic": "a", "msg": row}])
    return [_batch(_BEAT, _BEAT), table, frame]


@pytest.mark.parametrize(
    ("frames", "rule", "kept"),
    [
        (_deep, "limit.max_depth", 1),
        (_unused, "payload.table", 0),
        (lambda _: [_TWICE], "payload.duplicate-key", 0),  # one element, which is in no list
    ],
)
def test_no_refusal_is_recorded_where_nothing_is_left_out(talk, frames, rule, kept):
    t = talk("alice").client_stream()
    got = t.raw(*frames(t))
    assert t.refused_by_server == [rule]
    assert (0 if got is t.SKIP else len(got)) == kept


@pytest.mark.parametrize("marker", ["__Enum__", "__Pickled__", "__Set__", "__Serialized__"])
def test_what_a_reader_takes_for_a_marker_is_refused_where_it_is_sent(talk, marker):
    """Else the elements behind too many of them would be lost, honest as their sender is."""
    t = talk("worker").worker_stream()
    logged = {"op": "log-event", "topic": "t", "msg": {marker: 1}}
    frames = t.asker.send([*[logged] * _MANY, {**_FINISHED, "key": "k"}])
    (got,) = t.server.receive(t.far.verify(t.near.session.seal(b"", frames)), None)
    assert got["key"] == "k"
    assert t.refused_by_server == []
