"""Listed globals are resolved once and kept; what stands in their place later is noticed."""

from __future__ import annotations

import collections
import datetime
import fractions
import ipaddress
import pickle
import subprocess
import sys
import types
import uuid

import pytest

from safeser.errors import PolicyDenied
from safeser.pickles import Profile, loads
from safeser.pickles.live import Live, Witness
from safeser.pickles.shims.stdlib import plain
from tests.pickles.forging import refused
from tests.samples import opcodes as op

SOURCE = """
class Meta(type):
    pass

class Base(metaclass=Meta):
    def __init__(self, *args):
        self.args = args

class Order(Base):
    pass

class Other:
    pass

class Outer:
    class Inner:
        pass

    @classmethod
    def make(cls):
        raise AssertionError

def helper(x, y=1):
    raise AssertionError

constant = 5
"""


@pytest.fixture
def shop(monkeypatch):
    module = types.ModuleType("safeser_live")
    exec(SOURCE, vars(module))
    monkeypatch.setitem(sys.modules, "safeser_live", module)
    return module


ROLES = {
    "safeser_live:Order": "class",
    "safeser_live:Outer.Inner": "class",
    "safeser_live:Outer.make": "reference",
    "safeser_live:helper": "reference",
    "safeser_live:constant": "constant",
}


@pytest.fixture
def profile(shop):
    return Profile.named("data").allowing(ROLES)


def use(profile, name):
    body = op.name(name) if ROLES[name] in ("reference", "constant") else op.call(name)
    return loads(op.pickled(body), profile=profile)


@pytest.mark.parametrize("name", ROLES)
def test_what_stays_as_it_is_loads_again(shop, profile, name):
    for _ in range(3):
        use(profile, name)


def fake(*args): ...


def other(x, y=2, *, z=3): ...


def setting(place, attribute, value=fake):
    return lambda shop: setattr(place(shop) if place else shop, attribute, value)


def order(shop):
    return shop.Order


def base(shop):
    return shop.Base


def moved(_):
    sys.modules["safeser_live"] = types.ModuleType("safeser_live")


def derived(shop):
    shop.Order.__bases__ = (type(shop.Base)("Base", (shop.Base,), {}),)


METHODS = ("__reduce_ex__", "__setstate__", "__del__", "__getattr__", "__getinitargs__", "__hash__")
#: The name that is used, and what changes of it after its first use.
CHANGES = {
    "class": ("Order", lambda shop: setattr(shop, "Order", shop.Other)),
    "gone": ("Order", lambda shop: delattr(shop, "Order")), "module": ("Order", moved),
    "no module": ("Order", lambda _: sys.modules.pop("safeser_live")), "bases": ("Order", derived),
    "code": ("Order", setting(lambda shop: shop.Base.__init__, "__code__", fake.__code__)),
    "metaclass": ("Order", setting(lambda shop: type(shop.Order), "__call__")),
    **{f"own {each}": ("Order", setting(order, each))
        for each in ("__init__", "__new__", "__setattr__", "__eq__")},
    **{f"inherited {each}": ("Order", setting(base, each)) for each in ("__init__", *METHODS)},
    **{f"function's {each}": ("helper", setting(lambda shop: shop.helper, each,
        getattr(other, each))) for each in ("__code__", "__defaults__", "__kwdefaults__")},
    "method": ("Outer.make", setting(lambda shop: shop.Outer, "make", classmethod(fake))),
    "what holds it": ("Outer.Inner", lambda shop: setattr(shop, "Outer", type("Outer", (), {
        "Inner": shop.Other}))),
    "constant": ("constant", setting(None, "constant", "six")),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_is_refused(shop, profile, what):
    name, change = CHANGES[what]
    named = f"safeser_live:{name}"
    use(profile, named)
    change(shop)
    assert named in refused("pickle.integrity", use, profile, named).message
    # A profile that is made anew takes what is there now, unless that has another name of its own.
    if name == "Order" and what not in ("class", "gone", "module", "no module"):
        Profile.named("data").allowing(ROLES).live(profile.get(named)).check()


def test_a_module_that_makes_its_names_is_taken_as_it_is(shop, profile):
    module = sys.modules["safeser_live"]
    del shop.Order
    made = [type("Order", (), {}), type("Order", (), {})]
    module.__getattr__ = lambda name: made[0] if len(made) == 1 else made.pop()
    live = Live("safeser_live:Order")
    assert live.found is not None
    live.check()


def test_reviewed_functions_and_what_they_stand_for(monkeypatch):
    profile = Profile("mine", Profile.named("data").entries.values())
    data = pickle.dumps(datetime.timedelta(1))
    loads(data, profile=profile)
    monkeypatch.setattr(datetime, "timedelta", type("timedelta", (), {}))
    refused("pickle.integrity", loads, data, profile=profile)


@pytest.mark.parametrize("loads_before", [1, 4], ids=["judged", "remembered"])
@pytest.mark.parametrize(("value", "method"), [
    (fractions.Fraction(1, 2), "__new__"), ({fractions.Fraction(1, 2): 1}, "__hash__"),
    (uuid.UUID(int=5), "__init__"), (uuid.UUID(int=5), "__setstate__"),
    (ipaddress.ip_address("192.0.2.1"), "__init__"), (collections.Counter("ab"), "__init__"),
], ids=lambda part: part if isinstance(part, str) else "")  # fmt: skip
def test_a_shipped_class_that_is_rewritten(monkeypatch, value, method, loads_before):
    # BUILD on the class does that in a stock unpickler, for the whole process.
    kind = type(next(iter(value)) if type(value) is dict else value)
    data = pickle.dumps(value)
    for _ in range(loads_before):
        loads(data)
    with monkeypatch.context() as patch:
        patch.setattr(kind, method, lambda *args, **kwargs: pytest.fail("it ran"), raising=False)
        with pytest.raises(PolicyDenied) as caught:
            loads(data)
    assert caught.value.rule == "pickle.integrity"
    assert loads(data) == value


def test_nested_names_and_what_is_imported_later_are_looked_at_too(shop):
    def shim(site, name): ...

    nested = Witness("safeser_live:Outer.make", shim)
    late = sys.modules.pop("safeser_live")
    unseen = Witness("safeser_live:Order", shim)
    unseen.check()
    sys.modules["safeser_live"] = late
    unseen.check()
    nested.check()
    shop.Outer.make = classmethod(lambda cls: None)
    shop.Order.__init__ = lambda self: None
    for witness in (nested, unseen):
        with pytest.raises(PolicyDenied):
            witness.check()


def test_a_reviewed_function_whose_code_is_replaced():
    def shim(site, name): ...

    def other(site, name): ...

    witness = Witness("safeser_gone:thing", shim)
    witness.check()
    shim.__code__ = other.__code__
    with pytest.raises(PolicyDenied):
        witness.check()
    # What nobody imported is not imported to be looked at.
    assert "safeser_gone" not in sys.modules
    Witness("builtins:complex", plain.SHIMS["complex"]).check()


LATER = """
import importlib, sys
from safeser.pickles.live import Live, Witness
name, module = sys.argv[1:]
live, witness = Live(name), Witness(name, len)
importlib.import_module(module)
live.check()
witness.check()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module"), [
    ("pandas:Series", "safeser.pickles.shims.pandas.times"),
    ("pandas:DataFrame", "safeser.pickles.shims.pandas.times"),
    ("sklearn.utils:Bunch", "safeser.pickles.shims.sklearn.estimators"),
    ("xarray:DataArray", "safeser.families.science.labelled"),
])  # fmt: skip
def test_what_safeser_itself_rewrites_is_rewritten_before_it_is_looked_at(name, module):
    """A graph may name a class before anything has met one of its objects."""
    pytest.importorskip(name.partition(":")[0].partition(".")[0])
    subprocess.run([sys.executable, "-c", LATER, name, module], check=True)
