"""Writing: what the other side would refuse does not leave, and the culprit is named."""

from __future__ import annotations

import collections
import pickle
import types

import numpy as np
import pytest

from safeser.errors import ConfigError, PayloadError, PolicyDenied
from safeser.gate.values import Limits
from safeser.pickles import Profile, dumps, inspect, loads
from safeser.pickles.stock import load_code
from tests.pickles.forging import refused


class Thing:
    def __init__(self, **fields):
        vars(self).update(fields)


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """Tests are imported under names of their own; a pickle names the module by this one."""
    import sys

    module = types.ModuleType("safeser_writing")
    module.Thing = Thing
    monkeypatch.setitem(sys.modules, "safeser_writing", module)
    monkeypatch.setattr(Thing, "__module__", "safeser_writing")


@pytest.fixture
def profile():
    return Profile.named("data").allowing({"safeser_writing:Thing": "class"})


def denied(obj, profile, **options):
    with pytest.raises(PolicyDenied) as caught:
        dumps(obj, profile=profile, **options)
    return caught.value


def test_what_is_accepted_is_written_as_ever():
    value = {"a": [1, (2, 3)], "b": collections.OrderedDict(c=1)}
    assert dumps(value, profile="data") == pickle.dumps(value, 5) == dumps(value)


@pytest.mark.parametrize(("wrap", "place"), [
    (lambda x: x, "obj"), (lambda x: [0, {"a": (1, x)}], "obj[1]['a'][1]"),
    (lambda x: Thing(field=[x]), "obj.field[0]"), (lambda x: {x: 1}, "obj.<key 0>"),
    (lambda x: collections.OrderedDict(a=x), "obj['a']"),
    (lambda x: collections.deque([x]), "obj[0]"), (lambda x: {(1, 2): x}, "obj[key 0]"),
    (lambda x: {"k" * 100: x}, f"obj['{'k' * 39}]"),
])  # fmt: skip
def test_the_culprit_is_named(profile, wrap, place):
    error = denied(wrap(types.SimpleNamespace), profile)
    assert error.where == place
    assert error.rule == "pickle.global"
    assert place in error.message
    assert "types:SimpleNamespace" in error.message
    assert error.fix


def test_the_way_to_it_is_short(profile):
    deep = types.SimpleNamespace
    for _ in range(90):
        deep = [deep]
    assert len(denied(deep, profile).where) < 300


def test_a_profile_that_would_do_is_named():
    error = denied([np.arange(3)], "data")
    assert error.where == "obj[0]"
    assert "profile numpy" in error.fix


def test_values_that_would_be_refused_are_too(profile):
    # Keys are judged when they are hashed: no list of names tells.
    error = denied([{Thing(): 1}], profile)
    assert (error.rule, error.where) == ("pickle.unhashable", "obj[0]")
    thing = Thing()
    vars(thing)["not a name"] = 1
    error = denied([0, thing], profile)
    assert (error.rule, error.where) == ("pickle.state", "obj[1]")
    assert "safeser_writing:Thing" in error.message


def test_limits_are_the_receivers(profile):
    with pytest.raises(PayloadError):
        dumps(list(range(100)), profile=profile, limits=Limits(max_memory=50 << 7))


def test_buffers_are_handed_over_once_all_is_well():
    buffers = []
    data = dumps(np.arange(1000), profile=("data", "numpy"), buffer_callback=buffers.append)
    assert loads(data, buffers=buffers, profile=("data", "numpy")).sum() == 499500
    buffers.clear()
    denied(np.arange(1000), "data", buffer_callback=buffers.append)
    assert buffers == []


def test_code_has_no_profile():
    with pytest.raises(ConfigError):
        dumps(1, code=True, profile="data")


class TestPersistentIds:
    KNOWN = types.MappingProxyType({"big": object(), ("part", 2): object()})

    def ids(self, obj):
        return next((key for key, known in self.KNOWN.items() if known is obj), None)

    def test_both_ends(self):
        value = [*self.KNOWN.values(), 1]
        data = dumps(value, persistent_id=self.ids, profile="data")
        assert loads(data, persistent_load=self.KNOWN.__getitem__) == value
        coded = dumps([lambda: 1, *value], persistent_id=self.ids, code=True)
        with pytest.raises(pickle.UnpicklingError):
            load_code(coded)

    def test_text_ids_of_protocol_0(self):
        assert loads(b"(lPbig\naPbig\na.", persistent_load=str.upper) == ["BIG", "BIG"]

    @pytest.mark.parametrize("data", [b"Pbig\n.", b"X\x01\x00\x00\x00aQ."])
    def test_one_end_is_refused(self, data):
        error = refused("pickle.persistent-id", loads, data)
        assert "persistent_load" in error.fix
        shown = inspect(data)
        assert not shown.permitted
        assert "persistent id" in shown.text()
        assert shown.globals[0].role == "persistent"

    @pytest.mark.parametrize(("pid", "said"), [
        (b"K\1", 1), (b"K\1N\x86", (1, None)), (b"(" + b"N" * 16 + b"t", (None,) * 16),
        (b"cbuiltins\nlen\n", len),
    ])  # fmt: skip
    def test_what_one_may_be(self, pid, said):
        data = b"\x80\x05" + pid + b"Q."
        assert loads(data, profile="functions", persistent_load=lambda held: [held]) == [said]

    @pytest.mark.parametrize("data", [
        b"\x96" + bytes(8) + b"Q.", b"](e\x85Q.", b"(" + b"N" * 17 + b"tQ.",
        b"c_codecs\nencode\nX\1\0\0\0x\x8c\6latin1\x86RQ.",
        b"P\xc3\xa9\n.", b"Pno end", b"P" + b"x" * 2000 + b"\n.", b"]Q.", b"}Q.", b"\x8fQ.", b"Q.",
        b"K\x01K\x02K\x03\x87" * 30 + b"(" + b"N" * 40 + b"tQ.", b"N\x85\x85\x85\x85Q.",
        b"ccollections\nOrderedDict\n)RQ.", b"Pbig\nQ.", b"Pbig\n)R.", b"Pbig\n}b.", b"Pbig\nNa.",
        b"Pbig\n)\x81.",
    ])  # fmt: skip
    def test_what_is_no_plain_id(self, data):
        def load(_):
            raise AssertionError("it was asked")

        with pytest.raises(PayloadError):
            loads(data, persistent_load=load)

    def test_names_in_ids_are_judged(self):
        data = b"cos\nsystem\n\x85Q."
        with pytest.raises(PolicyDenied):
            loads(data, persistent_load=print)

    def test_what_they_stand_for_is_no_key_unless_plain(self):
        data = b"}Pbig\nNs."
        assert loads(data, persistent_load=str.upper) == {"BIG": None}
        with pytest.raises(PayloadError):
            loads(data, persistent_load=lambda _: Thing())

    def test_an_unknown_id_is_a_clear_error(self):
        with pytest.raises(PayloadError) as caught:
            loads(b"Pgone\n.", persistent_load=self.KNOWN.__getitem__)
        assert isinstance(caught.value.__cause__, KeyError)

    def test_a_refusal_of_the_callers_own_stays(self):
        def load(_):
            raise PolicyDenied("not today", rule="mine")

        with pytest.raises(PolicyDenied, match="not today"):
            loads(b"Pgone\n.", persistent_load=load)
