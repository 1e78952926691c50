"""Families of one's own: registered once, asked for by name, run only where they are granted."""

import functools
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from safeser import families
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError, SerializationError
from safeser.families.registered import own
from safeser.families.registered.own import OwnFamilies, OwnFamily, register_serialization_family
from safeser.gate.values import Context, Grant, Limits


class Tagged:
    def __init__(self, text, seen=None):
        self.text = text
        self.seen = seen


CALLS = []


def dumps(x, context=None):
    if not isinstance(x, Tagged):
        raise NotImplementedError
    if x.text == "broken":
        raise ValueError("secret")
    return {"serializer": "tagged", "to": (context or {}).get("recipient")}, [x.text.encode()]


def loads(header, frames, context=None):
    CALLS.append(header)
    return Tagged(b"".join(frames).decode(), (header, context))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    known = OwnFamilies(list)
    for module in ("registered.own", "tree", "sending", "receiving", "building"):
        monkeypatch.setattr(f"safeser.families.{module}.own_families", known)
    known.register(OwnFamily("tagged", dumps, loads))
    CALLS.clear()
    return known


def granted(*names):
    return Grant("here", names)


def test_round_trip_and_what_functions_are_given():
    context = Context("alice", "bob", addresses=("tcp://1", "tcp://2"), same_host=False)
    header, frames = families.serialize(Tagged("hello"), ["tagged"], context=context)
    assert header == {"serializer": "tagged", "sub-header": {"to": "tcp://2"}}
    assert families.derive(header, frames) == families.claimed(header) == "tagged"
    families.check(header, frames)
    back = families.deserialize(header, frames, granted("tagged"), context=context)
    assert back.text == "hello"
    assert back.seen == (
        {"to": "tcp://2", "serializer": "tagged"},
        {
            "sender": "tcp://1",
            "recipient": "tcp://2",
            "sender_principal": "alice",
            "recipient_principal": "bob",
            "kind": "data",
            "operation": None,
            "transport": None,
            "same_host": False,
        },
    )
    # Dask's own form of a context passes as it is.
    header, _ = families.serialize(Tagged("x"), ["tagged"], context={"recipient": "tcp://x"})
    assert header["sub-header"] == {"to": "tcp://x"}


def test_it_runs_only_where_it_is_granted():
    header, frames = families.serialize([1, Tagged("x")], ["tagged", "dask", "msgpack"])
    assert families.derive(header, frames) == "tagged"
    for names in ((), ("dask", "msgpack"), ("dask", "pickle", "cloudpickle"), ("other",)):
        with pytest.raises(PolicyDenied) as caught:
            families.deserialize(header, frames, granted(*names))
        assert caught.value.rule == "context.family"
    assert CALLS == []
    assert families.deserialize(header, frames, granted("tagged"))[1].text == "x"
    # What is granted brings plain values with it, and nothing stronger.
    header, frames = families.serialize([2j, Tagged("x")], ["tagged", "dask"])
    with pytest.raises(PolicyDenied):
        families.deserialize(header, frames, granted("tagged"))


def test_collections_of_what_only_it_can_carry():
    for x in ([Tagged("a"), 1], {"k": Tagged("a")}, (Tagged("a"), [Tagged("b")])):
        for tried in (["tagged"], ["tagged", "msgpack"], ["tagged", "dask", "msgpack"]):
            header, frames = families.serialize(x, tried)
            back = families.deserialize(header, frames, granted("tagged"))
            assert type(back) is type(x)
    with pytest.raises(SerializationError):
        families.serialize([Tagged("a")], ["tagged"], iterate_collection=False)


def test_names():
    for name in ("dask", "error", "collection", "unknown", "Tagged", "a b", "", 5, "x" * 33):
        with pytest.raises(ConfigError):
            OwnFamily(name, dumps, loads)
    with pytest.raises(ConfigError, match="neither"):
        OwnFamily("neither", None, None)
    with pytest.raises(ConfigError, match="callable"):
        OwnFamily("odd", "dumps", loads)
    # Builtins have no signature to ask for a context.
    assert OwnFamily("plain", dict, iter).dumps_context is False


def test_it_is_never_replaced(monkeypatch, registered):
    with pytest.raises(ConfigError, match="already"):
        registered.register(OwnFamily("tagged", dumps, loads))
    with pytest.raises(ConfigError, match="already"):
        register_serialization_family("tagged", dumps, loads)
    register_serialization_family("once", dumps, loads)
    assert registered.find("once").loads is loads


def test_one_way():
    families_ = own.own_families
    register_serialization_family("sends", dumps, None)
    register_serialization_family("reads", None, loads)
    header, frames = families.serialize(Tagged("x"), ["sends"])
    with pytest.raises(PayloadError, match="written"):
        families.deserialize(header, frames, granted("sends"))
    with pytest.raises(SerializationError, match="read"):
        families.serialize(Tagged("x"), ["reads"])
    assert families_.known("sends")


@pytest.mark.parametrize(
    "made",
    [
        None, 5, ({}, 5), ({}, [None]), ({}, [np.array([object()])]), ({}, [np.zeros((3, 3)).T]),
        ([], []), ({1: 2}, []), ({"x": object()}, []), ({"x": np.int64(1)}, []),
        ({"x": {1, 2}}, []), ({"x": "\ud800"}, []), ({"\ud800": 1}, []), ({"x": 1 << 64}, []),
        ({"x": {1: 2}}, []), ({"x": [[]] * 2000}, []), ({"x": type("D", (dict,), {})()}, []),
        (functools.reduce(lambda inner, _: {"x": inner}, range(300), {}), []),
    ],
)  # fmt: skip
def test_what_cannot_travel_is_refused(made):
    register_serialization_family("odd", lambda x: made, loads)
    with pytest.raises(SerializationError) as caught:
        families.serialize(
            Tagged("x"), ["odd", "dask", "msgpack"], limits=Limits(max_memory=1000 << 7)
        )
    assert "family odd" in str(caught.value)


def test_a_function_that_fails_is_named_and_no_other_family_is_tried():
    with pytest.raises(SerializationError) as caught:
        families.serialize(Tagged("broken"), ["tagged", "dask", "cloudpickle"])
    with pytest.raises(SerializationError) as caught:
        families.serialize({"a": Tagged("broken")}, ["tagged", "dask", "msgpack"])
    assert caught.value.where == "['a']"
    assert "ValueError" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    register_serialization_family("failing", dumps, lambda header, frames: 1 / 0)
    header, frames = families.serialize(Tagged("x"), ["failing"])
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, granted("failing"))
    assert caught.value.rule == "families.build"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "header",
    [
        {"serializer": "tagged"}, {"serializer": "tagged", "sub-header": []},
        {"serializer": "tagged", "sub-header": {1: 2}},
        {"serializer": "tagged", "sub-header": {}, "type": "x:y"},
        {"serializer": "tagged", "sub-header": {}, "sub-headers": [], "frame-lengths": []},
        {"serializer": "tagged", "sub-header": {"x": object()}},
        {"serializer": "tagged", "sub-header": {"x": "\udc80"}},
        {"serializer": "tagged", "sub-header": {"x": [1] * 1001}},
        {"serializer": "tagged", "sub-header": {}, "type-serialized": b"c"},
        {"serializer": "tagget", "sub-header": {}}, {"serializer": "cuda", "sub-header": {}},
    ],
)  # fmt: skip
def test_malformed_headers_never_reach_it(header):
    with pytest.raises(SafeserError):
        families.deserialize(header, [b"x"], granted("tagged"), limits=Limits(max_memory=1000 << 7))
    assert CALLS == []


def test_sequences_come_as_tuples_whatever_the_transport():
    register_serialization_family("shapes", lambda x: ({"shape": [1, (2, [3])]}, []), loads)
    header, frames = families.serialize(5, ["shapes"])
    for shape in (header["sub-header"]["shape"], [1, [2, [3]]]):
        header["sub-header"]["shape"] = shape
        families.deserialize(header, frames, granted("shapes"))
        assert CALLS.pop()["shape"] == (1, (2, (3,)))


# --- entry points ------------------------------------------------------------------------------


def points(*named):
    return [EntryPoint(name, value, own.GROUP) for name, value in named]


def installed(monkeypatch, *named):
    known = OwnFamilies(lambda: points(*named))
    for module in ("registered.own", "tree", "sending", "receiving", "building"):
        monkeypatch.setattr(f"safeser.families.{module}.own_families", known)
    return known


def test_an_entry_point_is_imported_when_it_is_asked_for_and_not_when_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tagging", None)  # an import of it fails
    known = installed(monkeypatch, ("away", "tagging:family"), ("dask", "tagging:family"))
    header = {"serializer": "away", "sub-header": {}}
    with pytest.raises(PayloadError) as refused:
        families.derive(header, [])
    assert refused.value.rule == "families.serializer"
    known.look_for(["away"])
    assert families.derive(header, []) == "away"
    families.check(header, [])
    with pytest.raises(PolicyDenied):
        families.deserialize(header, [], granted("dask", "msgpack"))
    with pytest.raises(ConfigError) as caught:
        families.deserialize(header, [], granted("away"))
    assert isinstance(caught.value.__cause__, ImportError)
    monkeypatch.setitem(sys.modules, "tagging", type(sys)("tagging"))
    sys.modules["tagging"].family = (dumps, loads)
    assert families.deserialize(header, [], granted("away")).text == ""


def test_forms_of_entry_points(monkeypatch):
    module = type(sys)("tagging")
    monkeypatch.setitem(sys.modules, "tagging", module)
    module.dumps, module.loads, module.pair, module.nothing = dumps, loads, (dumps, None), 5
    known = installed(
        monkeypatch,
        ("whole", "tagging"),
        ("pair", "tagging:pair"),
        ("nothing", "tagging:nothing"),
        ("twice", "tagging"),
        ("twice", "tagging:pair"),
    )
    assert known.find("whole").loads is loads
    assert known.find("whole") is known.find("whole")
    assert known.find("pair").loads is None
    assert known.find("absent") is None
    for name in ("nothing", "twice"):
        assert known.known(name)
        with pytest.raises(ConfigError):
            known.find(name)
    with pytest.raises(ConfigError, match="already"):
        known.register(OwnFamily("whole", dumps, loads))


def test_this_process_looks_for_entry_points_once_and_never_for_a_name_that_a_peer_wrote():
    asked = []
    known = OwnFamilies(lambda: asked.append(1) or [])
    assert not any(known.known(name) for name in ("a", "b", "c"))
    known.look_for(["dask", "pickle"])
    assert asked == []
    known.look_for(["dask", "a"])
    known.look_for(["b"])
    assert known.find("c") is None
    assert asked == [1]
    assert all(point.group == own.GROUP for point in own._installed())
