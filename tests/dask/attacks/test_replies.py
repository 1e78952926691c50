"""Replies of a peer with a valid session: nothing in them is unpickled, errors least of all.

Every payload here would make a file when it is unpickled; the fixture ``marker`` fails a test in
which that happened. Where Dask would unpickle a field, its own functions are used on what it gets.
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest
from distributed import profile
from distributed.core import clean_exception
from distributed.protocol.serialize import deserialize

import safeser
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families.errors import wire

TRUSTED_WITHOUT_CODE = (Path(__file__).parents[1] / "trusted_without_code.yaml").read_text()

FORMS = ("opaque", "eager", "cloudpickle", "failed", "author")
ALL = ("bare", "bytes", "eager-bytes", *FORMS)

PICKLE = {"serializer": "pickle", "writeable": []}


def asks(talk, asker="alice", server="scheduler", policy="demo", **message):
    t = talk(asker, server, policy)
    t.request({"op": "identity", "reply": True, **message})
    return t


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize("field", ["exception", "traceback"])
def test_errors_in_replies_are_never_unpickled(talk, forms, form, field):
    t = asks(talk)
    reply = {"status": "uncaught-error", "exception": None, "traceback": None, field: forms[form]}
    try:
        got = t.attack_back(reply)
    except SafeserError:
        return
    clean_exception(got["exception"] or "none", got["traceback"])


def test_an_error_that_is_told_as_text_steers_no_terminal(talk):
    # clean_exception makes an Exception of text, whose traceback is printed as it is.
    steering = "\x1b[2J\r\u202e"
    reply = {"status": "uncaught-error", "exception": steering, "traceback": None}
    told = [asks(talk).attack_back(reply)["exception"]]
    erred = {"op": "task-erred", "key": "x", "exception": steering, "traceback": None}
    told += [each["exception"] for each in talk("alice").client_stream().attack_back([erred])]
    assert told == ["\\x1b[2J\\r\\u202e"] * 2


@pytest.mark.parametrize("form", ["opaque", "eager", "cloudpickle"])
def test_no_pickle_comes_back_to_a_client(talk, forms, form):
    t = asks(talk)
    for reply in (forms[form], {"x": forms[form]}, [[forms[form]]]):
        with pytest.raises(PolicyDenied):
            t.attack_back(reply)
    assert t.refused_by_asker.count("context.family") == 3


@pytest.mark.parametrize("form", ALL)
@pytest.mark.parametrize(
    ("operation", "around"),
    [
        ("register_worker_plugin", lambda error: {"w": error}),
        ("register_nanny_plugin", lambda error: {"w": error}),
        ("unregister_worker_plugin", lambda error: {"w": error}),
        ("queue_get", lambda error: error),
        ("queue_get", lambda error: [error]),
        ("variable_get", lambda error: error),
        ("broadcast", lambda error: {"w": error}),
        ("broadcast", lambda error: {"w": error["exception"]}),
        ("run_function", lambda error: error),
        ("proxy", lambda error: error),
    ],
)
def test_errors_inside_replies_are_never_unpickled(talk, forms, operation, around, form):
    t = talk("alice")
    extra = {"msg": {"op": "identity"}} if operation in ("broadcast", "proxy") else {}
    t.asker.send({"op": operation, "plugin": b"", "name": "x", "reply": True, **extra})
    error = {"status": "error", "type": "Future", "state": "erred", "exception": forms[form]}
    try:
        got = t.attack_back(around({**error, "traceback": None}))
    except SafeserError:
        return
    _as_dask_reads(got)


def _as_dask_reads(reply):
    """Do to errors anywhere in *reply* what Dask's client does to them."""
    if isinstance(reply, dict):
        if "exception" in reply:
            clean_exception(reply["exception"], reply.get("traceback"))
        for item in reply.values():
            _as_dask_reads(item)
    elif isinstance(reply, tuple | list):
        for item in reply:
            _as_dask_reads(item)
    elif isinstance(reply, bytes):  # Client.run takes bytes for an exception
        pickle.loads(reply)


@pytest.mark.parametrize("form", ["bare", "bytes", "eager-bytes", "eager"])
def test_types_in_replies_are_never_unpickled(talk, forms, form):
    t = talk("alice")
    t.request({"op": "get_task_stream", "start": None, "reply": True})
    with pytest.raises(SafeserError):
        t.attack_back([{"key": "x", "type": forms[form]}])


@pytest.mark.parametrize("form", ALL)
def test_plugins_come_only_from_whoever_may_send_code(talk, forms, form):
    t = talk("worker", "scheduler", TRUSTED_WITHOUT_CODE)
    t.request({"op": "register_nanny", "address": "x", "reply": True})
    with pytest.raises(SafeserError):
        t.attack_back({"status": "OK", "nanny-plugins": {"x": forms[form]}})


def test_a_reply_to_nothing_is_refused(talk):
    t = talk("alice")
    with pytest.raises(SafeserError):
        t.attack_back({"status": "OK"})


def test_a_failed_row_raises_its_text_without_control_characters(talk):
    t = asks(talk, op="gather", keys=["x"])
    row = t.Row(*t.in_msgpack("because\x1b[2J" + "x" * 10_000), None, True)
    with pytest.raises(PayloadError) as caught:
        t.attack_back({"status": "OK", "data": {"x": row}})
    assert caught.value.rule == "peer.unsent"
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("author", ["scheduler", "alice", "worker", "nobody", "any", "unknown"])
def test_an_authors_name_adds_nothing(talk, marker, author):
    t = asks(talk, op="gather", keys=["x"])
    with pytest.raises(PolicyDenied):
        t.attack_back({"data": {"x": t.Row(PICKLE, (marker.pickle,), author)}})
    up = talk("alice")
    if author != "alice":
        up.refuses({"op": "scatter", "data": {"x": up.Row(PICKLE, (b"",), author)}})


def test_what_a_scheduler_relays_no_code_of_dasks_can_open(talk):
    # Dask's own plugins for installing packages do this with what workers answer.
    t = talk("scheduler", "worker")
    t.request({"op": "plugin-add", "plugin": b"", "name": "x", "reply": True})
    row = t.Row(PICKLE, (pickle.dumps({"a": 1}),))
    relayed = t.attack_back({"status": "error", "exception": row, "traceback": None})["exception"]
    with pytest.raises(Exception, match="safeser"):
        deserialize(relayed.header, relayed.frames)


@pytest.mark.parametrize("form", ALL)
def test_a_pickle_for_an_error_fails_the_value_that_was_asked_for(talk, forms, form):
    """Whoever waits for it hears why; an error that says nothing would be asked for for ever."""
    t = talk("scheduler", "worker")
    t.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
    got = t.attack_back({"status": "uncaught-error", "exception": forms[form], "traceback": None})
    down = asks(talk, op="gather", keys=["x"])
    with pytest.raises(PayloadError) as caught:
        down.reply(got)
    assert caught.value.rule == "peer.unsent"


def test_a_failure_that_may_pass_is_left_to_dask(talk):
    t = talk("scheduler", "worker")
    t.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
    row = t.Row({"serializer": "error"}, (wire.encode(wire.to_data(OSError("gone"))),))
    got = t.attack_back({"status": "uncaught-error", "exception": row, "traceback": None})
    assert got["status"] == "uncaught-error"


@pytest.mark.parametrize(
    "answer",
    [
        [1, 2],
        "OK",
        None,
        {},
        {"status": "OK"},
        {"status": "OK", "data": ["x"]},
        {"status": "OK", "data": None},
        {"status": "error"},
        {"status": "missing", "data": {"x": 1}},
        {"status": ["OK"], "data": {"x": 1}},
    ],
)
def test_what_is_no_answer_fails_the_values_that_were_asked_for(talk, answer):
    """A client that is told neither values nor why asks again for ever."""
    t = talk("scheduler", "worker")
    t.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
    got = t.attack_back(answer)
    assert t.refused_by_asker == ["reply.values"]
    down = asks(talk, op="gather", keys=["x"])
    with pytest.raises(PayloadError) as caught:
        down.reply(got)
    assert caught.value.rule == "peer.unsent"
    direct = talk("alice", "worker")
    direct.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
    with pytest.raises(PayloadError) as caught:
        direct.attack_back(answer)
    assert caught.value.rule == "reply.values"


@pytest.mark.parametrize("answer", [{"status": "busy"}, {"status": "OK", "data": {"x": 1}}])
def test_what_is_one_arrives(talk, answer):
    for asker in ("scheduler", "alice"):
        t = talk(asker, "worker")
        t.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
        assert t.attack_back(answer) == answer


@pytest.mark.parametrize("name", ["../../.config/dask", "/etc", "a/b", "..", "", ".", 5, None])
def test_no_state_names_a_path(talk, name):
    """DumpArtefact.to_yamls writes what a worker says of its configuration below that name."""
    t = asks(talk, "scheduler", "worker", op="dump_state", exclude=())
    state = {"id": name, "config": {"distributed": {"client": {"preload": ["evil"]}}}}
    with pytest.raises(PayloadError) as caught:
        t.attack_back(state)
    assert caught.value.rule == "reply.form"
    t = asks(talk, "alice", op="get_cluster_state", exclude=())
    with pytest.raises(PayloadError) as caught:
        t.attack_back({"scheduler": {}, "workers": {"safeser://w": state}, "versions": {}})
    assert caught.value.rule == "reply.form"


def test_an_honest_state_is_told(talk):
    worker = {"id": "Worker-5f0a4a1e-2a0c", "config": {"x": 1}, "tasks": {}}
    t = asks(talk, "scheduler", "worker", op="dump_state", exclude=())
    assert t.reply(worker) == worker
    assert t.reply({"tasks": {}}) == {"tasks": {}}
    told = {"scheduler": {"id": "x"}, "workers": {"a": worker, "b": "OSError()"}, "versions": {}}
    t = asks(talk, "alice", op="get_cluster_state", exclude=())
    assert t.reply(told) == told
    for none in ({"workers": []}, [], "x"):
        with pytest.raises(PayloadError):
            t.attack_back(none)


@pytest.mark.parametrize(
    "samples",
    [
        ((0.0, 1), (9e9, 1)),  # a row for each second between, when they are plotted
        ((float("nan"), 1),),
        (("now", 1),),
        ((1.0,),),
        (5,),
        "text",
        {"a": 1},
    ],
)
def test_samples_of_memory_were_taken_lately(talk, samples):
    t = asks(talk, op="memory_sampler_stop", key="k")
    with pytest.raises(PayloadError) as caught:
        t.attack_back(samples)
    assert caught.value.rule == "reply.form"
    now = time.time()
    assert t.reply([(now - 3600, 5), (now, 6)]) == ((now - 3600, 5), (now, 6))
    assert t.reply(()) == ()


def test_why_there_are_no_samples_is_told(talk):
    t = asks(talk, op="memory_sampler_stop", key="k")
    error = {"status": "uncaught-error", "exception": ValueError("gone"), "traceback": None}
    assert str(t.reply(error)["exception"]) == "gone"


def node(name="root", count=1, **children):
    described = {"filename": "f.py", "name": "f", "line": "x = 1", "line_number": 3}
    return {
        **{"identifier": name, "count": count, "description": described},
        "children": {key: node(key, each) for key, each in children.items()},
    }


@pytest.mark.parametrize(
    "profile",
    [
        {},
        5,
        {**node(), "identifier": "x"},
        {**node(), "children": {"a": node("b")}},
        {**node(), "children": ["a"]},
        {**node(a=1), "description": {}},
        {**node(), "description": {**node()["description"], "line_number": "x"}},
        node(count=float("nan")),
        node(a=float("inf")),
        {**node(), "more": 1},
    ],
)
def test_what_is_no_profile_fails_no_other(talk, profile):
    """Dask leaves out workers that fail, and fails for all if one answers nonsense."""
    t = asks(talk, "scheduler", "worker", op="profile")
    with pytest.raises(PayloadError) as caught:
        t.attack_back(profile)
    assert caught.value.rule == "reply.form"
    of_each = asks(talk, op="profile", merge_workers=False)
    with pytest.raises(PayloadError):
        of_each.attack_back({"w": node(), "v": profile})
    with pytest.raises(PayloadError):
        of_each.attack_back([node()])


def test_profiles_are_told(talk):
    t = asks(talk, "scheduler", "worker", op="profile")
    assert t.reply(node(a=2, b=3)) == node(a=2, b=3)
    assert t.reply(profile.create()) == profile.create()
    of_each = asks(talk, op="profile", merge_workers=False)
    assert of_each.reply({"w": node(a=2)}) == {"w": node(a=2)}


@pytest.mark.parametrize(
    "times",
    [
        [],
        {"counts": [], "keys": [(1.0, 5)]},
        {"counts": [(float("nan"), 1)], "keys": []},
        {"counts": [(1.0, 1, 1)], "keys": []},
        {"counts": [1], "keys": []},
        {"counts": [(1.0, 1)], "keys": [(1.0, {5: 1})]},
        {"counts": [(1.0, 1)], "keys": [(1.0, {"a": float("inf")})]},
        {"counts": [(1.0, 1)]},
    ],
)
def test_what_says_no_times_fails_no_other(talk, times):
    t = asks(talk, "scheduler", "worker", op="profile_metadata", start=0)
    with pytest.raises(PayloadError) as caught:
        t.attack_back(times)
    assert caught.value.rule == "reply.form"
    honest = {"counts": ((1.0, 2),), "keys": ((1.0, {"a": 2}),)}
    assert t.reply(honest) == honest


def test_few_names_at_few_times_are_many_lists(talk):
    """Dask's scheduler makes one for each name at each time that a worker tells of."""
    t = asks(talk, "scheduler", "worker", op="profile_metadata", start=0)
    names = {f"k{number}": 1 for number in range(2_000)}
    times = tuple((float(number), {}) for number in range(1_000))
    for more, passes in (((), True), (((1_000.0, {}),), False)):
        told = {"counts": (), "keys": ((0.0, names), *times[1:], *more)}
        if passes:
            assert t.reply(told) == told
        else:
            with pytest.raises(PayloadError) as caught:
                t.attack_back(told)
            assert caught.value.rule == "reply.form"


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "OK", "nbytes": {"k": float("nan")}},
        {"status": "OK", "nbytes": {"k": float("inf")}},
        {"status": "OK", "nbytes": {"k": "8"}},
        {"status": "OK", "nbytes": {"k": 8, "another worker's": 8}},
        {"status": "OK", "nbytes": [8]},
        {"status": "OK"},
        {"nbytes": {"k": 8}},
        "OK",
    ],
)
@pytest.mark.parametrize("asker", ["scheduler", "client"])
def test_a_worker_says_how_large_is_what_it_was_given(talk, asker, answer):
    """Infinity would leave what the worker holds no number, and others' decisions with it."""
    t = asks(talk, asker, "worker", policy="trusted", op="update_data", data={"k": 1})
    with pytest.raises(PayloadError) as caught:
        t.attack_back(answer)
    assert caught.value.rule == "reply.form"
    honest = {"status": "OK", "nbytes": {"k": 28}}
    assert t.reply(honest) == honest


def test_a_scheduler_says_nothing_of_sizes(talk):
    t = asks(talk, policy="trusted", asker="client", op="update_data", who_has={}, nbytes={})
    assert t.reply(None) is None


@pytest.mark.parametrize(
    ("op", "honest"),
    [
        ("who_has", {"k": ("safeser://127.0.0.1:1",), ("x", 1): ()}),
        ("has_what", {"safeser://127.0.0.1:1": ("k", ("x", 1))}),
    ],
)
def test_who_holds_what_is_a_list(talk, op, honest):
    """Dask's client makes a set of it, and a table: of a range, nine gigabytes."""
    t = asks(talk, op=op)
    assert t.reply(honest) == honest
    header, frames = safeser.serialize(range(1 << 60))
    row = t.Row({k: v for k, v in header.items() if k != "lengths"}, tuple(frames))
    for answer in ({next(iter(honest)): row}, row, [row], {"k": 5}, {"k": "text"}):
        with pytest.raises(PayloadError) as caught:
            t.attack_back(answer)
        assert caught.value.rule == "reply.form"
