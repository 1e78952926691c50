"""What cannot be recorded is neither opened nor handled, and ends no stream that others share."""

from __future__ import annotations

import contextlib
import pickle

import msgpack
import pytest

from safeser.dask.messages import building
from safeser.errors import AuditError
from safeser.gate.values import Kind

PICKLE = {"serializer": "pickle", "writeable": []}


def test_a_request_that_cannot_be_recorded_is_answered(talk, marker):
    for who, broken, said in (
        ("alice", {"admit", "refuse"}, {"op": "run_function", "function": marker.pickle}),
        ("bob", {"count"}, {"op": "who_has", "keys": []}),
    ):
        t = talk(who)
        t.far.audit.broken = broken
        assert t.attack(said) is t.SKIP
        assert isinstance(t.answers[0]["exception"], AuditError)
        t.far.audit.broken = set()
        assert t.request({"op": "who_has", "keys": []})["op"] == "who_has"


def test_a_graph_that_cannot_be_recorded_fails_its_futures(talk, marker):
    t = talk("alice").client_stream()
    t.far.audit.broken = {"admit"}
    graph = t.Row(PICKLE, (marker.pickle,))
    assert t.attack([{"op": "update-graph", "expr_ser": graph, "keys": ["x"]}]) is t.SKIP
    [[element]] = t.answers
    assert isinstance(element["exception"], AuditError)


@pytest.mark.parametrize("listed", [False, True])
def test_every_payload_is_recorded_before_one_is_opened(talk, monkeypatch, listed):
    """Of a message, and of a batch, whose records are one write."""
    t = talk("worker").worker_stream() if listed else talk("scheduler", "worker")
    log = t.near.audit if listed else t.far.audit
    real, together, writes = building.load_part, log.record_all, []
    monkeypatch.setattr(log, "record_all", lambda all_: writes.append(len(all_)) or together(all_))
    monkeypatch.setattr(building, "load_part", lambda *said: log.note("load") or real(*said))
    rows = {name: t.Row(PICKLE, (pickle.dumps(name),)) for name in "abc"}
    if listed:
        tasks = [{"op": "compute-task", "key": k, "run_spec": row} for k, row in rows.items()]
        assert [task["run_spec"] for task in t.attack_back(tasks)] == ["a", "b", "c"]
        assert writes == [3]
    else:
        got = t.attack({"op": "update_data", "data": rows, "reply": True})
        assert got["data"] == {"a": "a", "b": "b", "c": "c"}
    assert log.order == ["admit"] * 3 + ["load"] * 3


@pytest.mark.parametrize("broken", [{"admit"}, {"admit", "refuse"}], ids=len)
def test_of_a_batch_that_cannot_be_recorded_nothing_is_opened(talk, marker, broken):
    t = talk("worker").worker_stream()
    t.near.audit.broken = broken
    row = t.Row({**PICKLE, "serializer": "cloudpickle"}, (marker.pickle,))
    wrong = t.Row({"serializer": "nothing-known"}, (b"",))
    tasks = [
        {"op": "compute-task", "key": key, "run_spec": spec}
        for key, spec in (("a", row), ("b", wrong), ("c", row))
    ]
    got = {task["key"]: task["run_spec"] for task in t.attack_back(tasks)}
    assert sorted(got) == ["a", "b", "c"]
    for key in "ac":
        with pytest.raises(Exception, match="disk is full"):
            got[key]()
    with pytest.raises(Exception, match="no serializer"):  # refused anyway
        got["b"]()


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_is_opened_before_its_record_is_written(doors, broken):
    """Whoever keeps records together cannot load before they are written."""
    near, far = doors.links("worker", "scheduler")
    context = far.inbound(Kind.DATA)
    sealed = near.seal([1], near.outbound(Kind.DATA))
    far.audit.broken = {"admit"} if broken else set()
    with (
        pytest.raises(AuditError) if broken else contextlib.nullcontext(),
        far.recorded_together() as records,
    ):
        admitted = far.admit_message(far.verify(sealed), context, records=records)
        with pytest.raises(TypeError, match="not recorded yet"):
            far.load(admitted)
        assert not far.audit.events
    if broken:
        with pytest.raises(TypeError, match="not recorded yet"):
            far.load(admitted)
    else:
        assert far.load(admitted) == [[1]]
        assert [event["event"] for event in far.audit.events] == ["admit"]


def test_plugins_reach_a_worker_that_asks_for_msgpack(talk):
    # Dask reads the answer to register-worker with deserializers=["msgpack"], and unpickles them.
    t = talk("worker")
    t.request({"op": "register-worker", "address": "safeser://127.0.0.1:1", "reply": False})
    plugins = {"shuffle": pickle.dumps(1)}
    got = t._to_asker(t.forged({"status": "OK", "worker-plugins": plugins}), ["msgpack"])
    assert got["worker-plugins"] == plugins
    assert t.near.audit.events[-1]["family"] == "cloudpickle"


# --- shards of a shuffle ----------------------------------------------------------------------


@pytest.fixture
def opened(talk, monkeypatch):
    """Return a connection between workers whose log notes what is opened, and by which family."""
    t = talk("worker", "worker")
    real = t.far.load_one

    def noted(permitted):
        t.far.audit.note(f"load {permitted.payload.family}")
        return real(permitted)

    monkeypatch.setattr(t.far, "load_one", noted)
    return t


SHARDS = [(0, [1, 2]), (1, [3])]


def shard_row(t, data, form, **options):
    if form == "typed":
        header = {"serializer": "dask", "type": "builtins:bytes", "sub-header": {}}
        return t.Row(header, (data,), **options)
    return t.Row({"serializer": "msgpack"}, (msgpack.packb(data),), **options)


@pytest.mark.parametrize("form", ["msgpack", "typed", "bare"])
def test_a_shard_is_recorded_before_anything_is_opened(opened, form):
    t = opened
    data = pickle.dumps(SHARDS)
    data = data if form == "bare" else shard_row(t, data, form)
    more = t.Row({"serializer": "msgpack"}, (b"\x07",))
    message = {"op": "shuffle_receive", "data": data, "run_id": more}
    got = t.attack(message)
    assert got["data"] == SHARDS
    assert got["run_id"] == 7
    records = ["admit"] * (2 if form == "bare" else 3)
    assert t.far.audit.order[: len(records)] == records
    # Of a shard and what it is wrapped in, only the shard is opened.
    assert sorted(t.far.audit.order[len(records) :]) == ["load msgpack", "load pickle"]


@pytest.mark.parametrize("form", ["msgpack", "typed", "bare"])
def test_a_shard_that_is_refused_keeps_all_from_being_opened(opened, marker, form):
    t = opened
    data = marker.pickle if form == "bare" else shard_row(t, marker.pickle, form)
    more = t.Row({"serializer": "msgpack"}, (b"\x07",))
    assert t.attack({"op": "shuffle_receive", "shuffle_id": more, "data": data}) is t.SKIP
    assert t.far.audit.order == ["refuse"]


@pytest.mark.parametrize("form", ["msgpack", "typed"])
def test_whoever_wrote_a_shard_wrote_the_pickle_in_it(opened, form):
    t = opened
    row = shard_row(t, pickle.dumps(SHARDS), form, author="bob")
    assert t.attack({"op": "shuffle_receive", "data": row}) is t.SKIP
    assert t.refused_by_server == ["author.relayed"]


def test_a_shard_that_cannot_be_recorded_is_not_opened(opened):
    t = opened
    t.far.audit.broken = {"admit"}
    row = shard_row(t, pickle.dumps(SHARDS), "msgpack")
    assert t.attack({"op": "shuffle_receive", "data": row}) is t.SKIP
    assert not any(event.startswith("load") for event in t.far.audit.order)


def test_a_shard_that_could_not_be_sent_is_its_reason(opened, marker):
    t = opened
    row = shard_row(t, marker.pickle, "msgpack", failed=True)
    assert t.attack({"op": "shuffle_receive", "data": row}) is t.SKIP
    assert "peer.unsent" in t.refused_by_server
    assert t.far.audit.order == ["admit", "load msgpack", "refuse"]
