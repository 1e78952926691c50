"""Classes registered as Dask registers them: exact names, checked headers, nothing imported."""

import sys
from array import array

import numpy as np
import pytest

from safeser import families
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SerializationError
from safeser.families.registered import dispatch
from safeser.families.registered.dispatch import Dispatch, Functions, name_of
from safeser.gate.values import Context, Grant, Limits

GRANT = Grant("here", ("dask", "msgpack"))
TRIED = ("dask", "msgpack")


class Human:
    def __init__(self, name, seen=None):
        self.name = name
        self.seen = seen


class Child(Human):
    pass


def take(human, context=None):
    return {"seen": (context or {}).get("sender_principal")}, [human.name.encode()]


def put(header, frames):
    return Human(bytes(frames[0]).decode(), header["seen"])


@pytest.fixture
def known(monkeypatch):
    """The process's own tables, without what one test leaves in them."""
    types = families.Registry(
        ready=dict(families.registry.ready),
        _by_class=dict(families.registry._by_class),
        _lazy=dict(families.registry._lazy),
        _lazy_names=dict(families.registry._lazy_names),
    )
    functions = Functions(types)
    for module in ("sending", "receiving", "registered.dispatch"):
        monkeypatch.setattr(f"safeser.families.{module}.registry", types)
    for module in ("sending", "receiving", "registered.dispatch"):
        monkeypatch.setattr(f"safeser.families.{module}.functions", functions)
    functions.dump = Dispatch("dumps", functions)
    functions.load = Dispatch("loads", functions)
    return functions


@pytest.fixture
def human(known):
    known.dump.register(Human, take)
    known.load.register(Human)(put)
    return known


def through(x, grant=GRANT, **given):
    header, frames = families.serialize(x, TRIED, **given)
    families.check(header, frames, grant=grant)
    return families.deserialize(header, frames, grant, **given)


def test_round_trip(human):
    header, frames = families.serialize(Human("Alice"), TRIED, context=Context("ann", "bob"))
    assert header["type"] == name_of(Human) == f"{__name__}:Human"
    assert header["sub-header"] == {"seen": "ann"}
    back = families.deserialize(header, frames, GRANT)
    assert (type(back), back.name, back.seen) == (Human, "Alice", "ann")
    inside = through({"a": [Human("Bob"), 2j], "b": (Human("Cy"),)})
    assert inside["a"][0].name == "Bob"
    assert inside["b"][0].name == "Cy"


def test_both_may_take_a_context(known):
    known.dump.register(Human, lambda x: ({}, []))
    known.load.register(Human, lambda header, frames, context: Human("x", context))
    context = {"sender": "tcp://a"}
    assert through(Human("y"), context=context).seen == context
    assert through(Human("y"), context=context).seen is not context


def test_a_subclass_is_not_its_base(human):
    with pytest.raises(SerializationError) as caught:
        families.serialize([Child("x")], TRIED)
    assert f"{__name__}:Human" in caught.value.fix
    assert caught.value.where == "[0]"
    human.dump.register((Child,), take)
    human.load.register([Child], lambda header, frames: Child("back"))
    assert through(Child("x")).name == "back"


def test_nothing_is_replaced(human):
    for attempt in (
        lambda: human.dump.register(Human, take),
        lambda: human.load.register(f"{__name__}:Human", put),
        lambda: human.dump.register(np.ndarray, take),
        lambda: human.dump.register(array, take),
        lambda: human.dump.register("pandas:DataFrame", take),
        lambda: human.dump.register(type("Human", (), {"__module__": __name__}), take),
        lambda: human.dump.register(5, take),
        lambda: human.dump.register("os.system()", take),
        lambda: human.dump.register("os", take),
        lambda: human.dump.register(Child, "no function"),
        lambda: human.dump.register_lazy("a.b", take),
        lambda: human.dump.register_lazy(5, take),
        lambda: human.dump.register_lazy("a", 5),
    ):
        with pytest.raises(ConfigError) as caught:
            attempt()
        assert caught.value.rule == "families.register"
    assert through(Human("still")).name == "still"


def test_a_notebook_may_define_its_class_again(known):
    for text in ("first", "second"):
        cls = type("Cell", (), {"__module__": "__main__"})
        known.dump.register(cls, lambda x: ({}, []))
        known.load.register(cls, lambda header, frames, text=text, cls=cls: cls())
        back = through(cls())
        assert type(back) is cls, text


def test_classes_of_functions_have_names_too(known):
    class Local:
        pass

    for _ in range(2):  # the function may run again, and make the class anew
        known.dump.register(Local, lambda x: ({}, []))
        known.load.register(Local, lambda header, frames: Local())
    assert "<locals>" in name_of(Local)
    assert type(through([Local()])[0]) is Local


def test_one_half_is_not_enough(known):
    known.dump.register(Human, take)
    header, frames = families.serialize(Human("x"), TRIED)
    with pytest.raises(PayloadError, match="dask_deserialize"):
        families.deserialize(header, frames, GRANT)
    known.load.register(Child, put)
    with pytest.raises(SerializationError, match="dask_serialize"):
        families.serialize(Child("x"), TRIED)


def test_by_name(known):
    known.dump.register(f"{__name__}:Human", take)
    known.load.register(f"{__name__}:Human", put)
    assert through(Human("x")).name == "x"
    known.load.register("absent.module:Thing", put)
    header = {"serializer": "dask", "type": "absent.module:Thing", "sub-header": {"seen": 1}}
    with pytest.raises(PayloadError, match="no instance of it"):
        families.deserialize(header, [b"x"], GRANT)
    assert "absent" not in sys.modules


@pytest.mark.parametrize(
    ("header", "frames"),
    [
        ({"seen": object()}, [b"x"]), ({"seen": 1 << 64}, [b"x"]), ({"seen": {5: 6}}, [b"x"]),
        ({5: 6}, [b"x"]), ([], [b"x"]), ({"seen": [0] * 2000}, [b"x"]),
    ],
)  # fmt: skip
def test_headers_are_checked_before_functions_see_them(known, header, frames):
    called = []
    known.load.register(Human, lambda header, frames: called.append(1))
    wire = {"serializer": "dask", "type": name_of(Human), "sub-header": header}
    for read in (families.check, lambda *a, **k: families.deserialize(*a, GRANT, **k)):
        with pytest.raises(PayloadError):
            read(wire, frames, limits=Limits(max_memory=1000 << 7))
    assert called == []


# --- lazily ------------------------------------------------------------------------------------


@pytest.fixture
def package(monkeypatch):
    module = type(sys)("lazies")
    module.Thing = type("Thing", (), {"__module__": "lazies"})
    monkeypatch.setitem(sys.modules, "lazies", module)
    return module


def test_registered_when_first_met(known, package):
    met = []

    @known.dump.register_lazy("lazies")
    @known.load.register_lazy("lazies")
    def _register():
        met.append(1)
        known.dump.register(package.Thing, lambda x: ({}, []))
        known.load.register(package.Thing, lambda header, frames: package.Thing())

    families.serialize(5, TRIED)
    assert met == []
    assert type(through(package.Thing())) is package.Thing
    assert met == [1]


def test_a_peers_header_registers_but_never_imports(known, package, monkeypatch):
    header = {"serializer": "dask", "type": "lazies:Thing", "sub-header": {}}
    met = []

    def _register():
        met.append(1)
        known.load.register(package.Thing, lambda header, frames: package.Thing())

    known.load.register_lazy("lazies", _register)
    families.check(header, [])
    assert met == []
    monkeypatch.delitem(sys.modules, "lazies")
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, [], GRANT)
    assert caught.value.rule == "families.type"
    assert met == []
    monkeypatch.setitem(sys.modules, "lazies", package)
    assert type(families.deserialize(header, [], GRANT)) is package.Thing
    with pytest.raises(PayloadError):
        families.deserialize({**header, "type": "lazies:Other"}, [], GRANT)


def test_what_fails_to_register_is_one_error(known, package):
    known.dump.register_lazy("lazies", lambda: 1 / 0)
    for _ in range(2):
        with pytest.raises(ConfigError, match="lazies") as caught:
            families.serialize(package.Thing(), TRIED)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


# --- registered elsewhere ----------------------------------------------------------------------


class Elsewhere:
    def dumps(self, cls):
        return take if cls is Human or cls.__module__ == "odd name" else None

    def loads(self, name):
        return put if name == name_of(Human) else None


def test_what_others_registered_is_written_and_read_only_where_it_is_named(known):
    known.honour(Elsewhere())
    header, frames = families.serialize([Human("x")], TRIED)
    for grant in (GRANT, Grant("here", ("dask",), types=frozenset({"other.lib:Human"}))):
        for read in (
            families.deserialize,
            lambda header, frames, grant: families.check(header, frames, grant=grant),
        ):
            with pytest.raises(PolicyDenied) as caught:
                read(header, frames, grant)
            assert caught.value.rule == "families.type-not-granted"
            assert f'dask: {{types: ["{name_of(Human)}"]}}' in caught.value.fix
            assert "'here'" in caught.value.fix
    with pytest.raises(PolicyDenied):
        families.check(header, frames)
    named = Grant("here", ("dask",), types=frozenset({name_of(Human), "absent.lib:Thing"}))
    families.check(header, frames, grant=named)
    assert families.deserialize(header, frames, named)[0].name == "x"
    # A name that a policy lists and nobody registered is nothing.
    absent = {"serializer": "dask", "type": "absent.lib:Thing", "sub-header": {}}
    with pytest.raises(PayloadError, match="no type"):
        families.deserialize(absent, [], named)
    assert "absent" not in sys.modules
    with pytest.raises(SerializationError):
        families.serialize(Child("x"), TRIED)
    odd = type("x", (), {"__module__": "odd name"})
    with pytest.raises(SerializationError):
        families.serialize(odd(), TRIED)


def test_one_other_is_honoured(known):
    one = Elsewhere()
    known.honour(one)
    known.honour(one)
    with pytest.raises(ConfigError):
        known.honour(Elsewhere())


def test_the_public_pair_is_the_process_s_own():
    assert dispatch.dask_serialize._known is dispatch.functions
    assert dispatch.dask_deserialize._half == "loads"

    class Registered:
        pass

    dispatch.register_serialization(Registered, lambda x: ({}, []), lambda h, f: Registered())
    assert type(through(Registered())) is Registered
