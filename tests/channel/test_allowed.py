"""What a policy allows beside its profiles reaches judge and load, and nothing else does."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import types

import msgpack
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.values import Context, Kind
from tests.refusal import refusal

POLICY = """
safeser: 1
name: shop
revision: 1
principals: {ann: {}, bea: {}}
contexts:
  - name: orders
    sender: ann
    recipient: bea
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle:
      allow:
        "safeser_shop:Order": {role: class, fields: [number], trust: [__hash__]}
        "safeser_shop:total": reference
  - name: answers
    sender: bea
    recipient: ann
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
limits: {max_memory: 1280000, max_calls: 100}
"""

PICKLE = {"serializer": "pickle", "writeable": []}


@pytest.fixture
def shop(monkeypatch):
    module = types.ModuleType("safeser_shop")

    @dataclasses.dataclass(unsafe_hash=True)
    class Order:
        number: int

    class Customer:
        pass

    def total():
        raise AssertionError("nothing is called")

    for made in (Order, Customer, total):
        made.__module__, made.__qualname__ = "safeser_shop", made.__name__
        setattr(module, made.__name__, made)
    monkeypatch.setitem(sys.modules, "safeser_shop", module)
    # Each test has classes of its own, so that each needs profiles of its own.
    from safeser.pickles.profiles import _granted

    _granted.cache_clear()
    yield module
    _granted.cache_clear()


class Pair:
    def __init__(self, doors, one, two):
        self.one, self.two = doors.channel(one, POLICY), doors.channel(two, POLICY)
        self.there, _ = doors.shake(self.one, self.two)
        self.context = Context(one, two, Kind.DATA)

    def send(self, value):
        return self.two.open(self.one.seal(value, self.context), self.context)

    def forge(self, *frames):
        body = msgpack.packb([PICKLE, "data", None])
        return self.two.open(self.there.session.seal(body, list(frames)), self.context)


def test_an_allowed_class_arrives_and_may_be_a_key_where_that_is_said(doors, shop):
    value = {"orders": [shop.Order(3)], "how": shop.total, shop.Order(3): 1}
    assert Pair(doors, "ann", "bea").send(value) == value


def test_its_family_is_pickle_there_and_code_elsewhere(doors, shop):
    p = Pair(doors, "ann", "bea")
    p.send(shop.Order(3))
    assert p.two.audit.events[0]["family"] == "pickle"
    back = Pair(doors, "bea", "ann")
    with pytest.raises(PolicyDenied) as caught:
        back.send(shop.Order(3))
    assert '{"safeser_shop:Order": class}' in caught.value.fix
    with refusal(PolicyDenied, "context.family") as caught:
        back.forge(pickle.dumps(shop.Order(3)))
    assert '{"safeser_shop:Order": class}' in caught.value.fix


def test_nothing_else_of_its_module_is_allowed(doors, shop):
    p = Pair(doors, "ann", "bea")
    with pytest.raises(PolicyDenied):
        p.send(shop.Customer())
    for data in (pickle.dumps(shop.Customer()), b"csafeser_shop\ntotal\n)R."):
        with pytest.raises(PolicyDenied):
            Pair(doors, "ann", "bea").forge(data)


def test_a_message_of_many_pickles_gets_the_budget_of_one(doors, shop):
    p = Pair(doors, "ann", "bea")
    calls = pickle.dumps([shop.Order(n) for n in range(60)])
    children = {
        "serializer": "collection",
        "type": "list",
        "sub-headers": [PICKLE, PICKLE],
        "frame-lengths": [1, 1],
    }
    body = msgpack.packb([children, "data", None])
    with refusal(PayloadError, "pickle.max-calls") as caught:
        p.two.open(p.there.session.seal(body, [calls, calls]), p.context)
    assert "max_calls" in caught.value.fix
    assert "admit" not in p.two.audit.order


def test_so_does_a_message_of_many_payloads(doors, shop):
    p = Pair(doors, "ann", "bea")
    there, back = doors.shake(p.one, p.two)
    data = pickle.dumps([shop.Order(n) for n in range(60)])
    for _ in range(2):
        # Each message has its own; its elements, which are admitted one by one, share one.
        verified = back.verify(there.seal(None, p.context))
        first = back.payload(verified, p.context, "part 0", PICKLE, [data])
        admitted = back.admit(verified, p.context, [first])
        assert len(back.load(admitted)[0]) == 60
        with refusal(PayloadError, "pickle.max-calls"):
            back.load(admitted)
        with refusal(PayloadError, "pickle.max-calls"):
            back.admit(verified, p.context, [first])
