"""A program's own classes arrive as data where policy says so, and nothing of them runs."""

from __future__ import annotations

import importlib
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.registered import program
from safeser.gate.values import Grant, Limits
from safeser.pickles.reading.layout import layout
from tests.samples import classes as registered
from tests.samples import program as own
from tests.samples.typed import collection, encoded, rule_of, typed

GRANT = Grant("results", ("dask", "msgpack"), own=frozenset({"worker"}))
PREFIX = own.__name__


@pytest.fixture(autouse=True)
def _named(monkeypatch):
    monkeypatch.setattr(program, "_named", {PREFIX})


def build(header, frames, grant=GRANT):
    families.check(header, frames, grant=grant)
    return families.deserialize(header, frames, grant)


def through(x):
    return build(*families.serialize(x, ("dask", "msgpack"), reads=GRANT))


def state(x):
    """Return the type and attributes of *x*, all the way down, by the interpreter's own ways."""
    if type(x) in (list, tuple, deque):
        return type(x), [*map(state, x)]
    held = x if isinstance(x, dict) else None
    if type(x).__module__ == PREFIX and not isinstance(x, own.Color):
        places = layout(type(x))
        held = dict(places.fields.__get__(x)) if places.fields else {}
        for name in places.slots.keys() - {"never"}:
            held[name] = places.slots[name].__get__(x)
    return x if held is None else (type(x), [(key, state(held[key])) for key in held])


@pytest.mark.parametrize(
    "value",
    [
        own.Point(1, [own.Point(2), {"a": own.Frozen(3)}]), own.Sealed(1, 2), own.Slotted(),
        own.Outer.Inner(), own.Color.ALSO, [own.Color.RED, own.loud()], own.loud(),
        own.Point(1, own.loud()), deque([own.loud()]), OrderedDict(a=own.loud()),
        defaultdict(list, a=own.loud()), (own.loud(), 1), own.Point(0, OrderedDict(a=own.Base())),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_instances_arrive(value):
    assert state(through(value)) == state(value)


def test_columns_of_instances_arrive():
    column = np.fromiter([own.loud(), None, *[own.loud()] * 9], object)
    for value in (column, pd.Series(column), pd.DataFrame({"a": column, "b": 1})):
        back = through(value)
        assert type(back) is type(value)
        items = back["a"] if isinstance(back, pd.DataFrame) else back
        assert {type(items[at]) for at in range(11)} == {own.Loud, type(None)}
    assert type(through(SimpleNamespace(a=own.loud())).a) is own.Loud


@pytest.mark.parametrize(
    ("name", "word"),
    [
        *((cls.__name__, hook) for hook, cls in own.HOOKED.items()),
        ("OfInstalled", "types:SimpleNamespace"), ("OfBuiltin", "builtins:dict"),
        ("OfHooked", "__setstate__"), ("Stale", "Base, which was def"), ("OwnDict", "__dict__"),
        ("WithMeta", "no type"), ("Lying", "no type"), ("Alias", "no type"), ("never", "no type"),
        ("local", "no type"), ("local.<locals>.Local", "no type"), ("Missing", "no type"),
        ("types", "no type"), ("Outer.Missing", "no type"), ("Point.__post_init__", "no type"),
        ("BadArgs", "no type"), ("__dict__", "no type"), ("attr._make:Attribute", "no type"),
        ("tests.samples.never_imported:P", "no type"), ("threading:Thread", "no type"),
    ],
)  # fmt: skip
def test_other_classes_are_refused(name, word):
    name = name if ":" in name else f"{PREFIX}:{name}"
    with pytest.raises(PayloadError, match=word) as caught:
        build(*typed(name, plain=plain.encode({})))
    assert caught.value.rule == "families.type"
    assert "tests.samples.never_imported" not in sys.modules


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Loud", "method"), ("Loud", "size"), ("Loud", "__dict__"), ("Loud", "__class__"),
        ("Loud", "__len__"), ("Loud", "class"), ("Loud", "a b"), ("Loud", "__slots__"),
        ("Frozen", "y"), ("Frozen", "__weakref__"), ("Outer", "Inner"), ("Point", "__post_init__"),
        ("Loud", "ﬁ"),
    ],
)  # fmt: skip
def test_attributes_hide_plain_defaults_alone(kind, name):
    forged = typed(f"{PREFIX}:{kind}", plain=plain.encode({name: 1}))
    assert rule_of(build, *forged) == "families.attribute"


LOUD = typed(f"{PREFIX}:Loud", plain=plain.encode({}))
RED = typed(f"{PREFIX}:Color", member=plain.encode(("RED", 1)))
OF_LOUD = collection("list", LOUD)
WHY = families.ExceptionData(f"{PREFIX}:QuotaError", "x", ("x",))
FAILED, GROUPED = (
    ({"serializer": "error"}, [families.errors.wire.encode(data)])
    for data in (WHY, families.ExceptionData("builtins:ExceptionGroup", "x", members=(WHY,)))
)


@pytest.mark.parametrize(
    "forged",
    [
        *(collection(kind, one) for kind in ("set", "frozenset") for one in (LOUD, RED)),
        collection("set", FAILED), collection("dict", collection("tuple", FAILED), encoded(1)),
        typed("builtins:slice", GROUPED, encoded(1), encoded(None)),
        collection("dict", collection("tuple", LOUD), encoded(1)),
        collection("dict", collection("tuple", collection("tuple", encoded(1), RED)), encoded(1)),
        typed("builtins:slice", LOUD, encoded(1), encoded(None)),
        typed("collections:Counter", collection("dict", encoded(("a",)), LOUD)),
        typed(
            f"{registered.__name__}:Point", LOUD, plain=plain.encode({"x": 1}), names=["x", "y"]
        ),
    ],
)  # fmt: skip
def test_no_parent_may_use_an_instance(forged):
    assert rule_of(build, *forged) == "families.own"


@pytest.mark.parametrize(
    "value",
    [
        lambda x: pd.Series([1], index=np.fromiter([x], object)), lambda x: pd.Series([1], name=x),
        lambda x: pd.DataFrame([[1]], columns=np.fromiter([x], object)),
        lambda x: pd.Categorical(np.fromiter([x], object)), lambda x: {x: 1},
        lambda x: Counter([x]), lambda x: {(1, x)},
    ],
)  # fmt: skip
def test_an_instance_is_no_label(value):
    assert rule_of(through, value(own.Color.RED)) == "families.own"


@pytest.mark.parametrize("forged", [{"flags": 3}, {"member": plain.encode(("RED", 2))}])
def test_members_are_known_by_their_names(forged):
    for name in ("Rights", "Color"):
        assert rule_of(build, *typed(f"{PREFIX}:{name}", **forged)) == "families.member"
    assert 3 not in own.Rights._value2member_map_


def test_an_instance_of_itself_is_not_sent():
    ring = own.Base()
    ring.me = ring
    assert rule_of(through, ring) == "families.cannot-serialize"


def test_a_class_that_changed_meanwhile(monkeypatch):
    header, frames = families.serialize(own.Base(), ("dask", "msgpack"), reads=GRANT)
    before, limits = own.Base, Limits()
    budget = families.Budget(limits)
    reading = families.read(header, frames)
    checked = families.check_reading(reading, GRANT, limits=limits, budget=budget)
    monkeypatch.setattr(own, "Base", type("Base", (), {"__module__": PREFIX, "new": True}))
    assert type(families.build(checked, budget=budget)) is before
    assert build(header, frames).new
    monkeypatch.setattr(own.Base, "late", own.never, raising=False)
    forged = typed(header["type"], plain=plain.encode({"late": 1}))
    assert rule_of(build, *forged) == "families.attribute"
    monkeypatch.setattr(own.Base, "__setstate__", own.never, raising=False)
    assert rule_of(build, header, frames) == "families.type"


# --- exceptions -----------------------------------------------------------------------------------


def raised(error, grant=GRANT):
    frames = [families.errors.wire.encode(families.errors.wire.to_data(error))]
    return families.deserialize({"serializer": "error"}, frames, grant)


def with_why(error, why="\x1b[2J"):
    error.why = why
    return error


@pytest.mark.parametrize(
    "error",
    [
        own.ValueError("a", 2), own.QuotaError(3, 4), own.Told("x"), own.FileGone(2, "no", "f"),
        with_why(own.QuotaError(1, 2), (1, [2])), with_why(own.Lacking("x"), None),
    ],
    ids=repr,
)  # fmt: skip
def test_own_exceptions_arrive(error):
    error.why = getattr(error, "why", "a reason")
    error.add_note("noted")
    back = raised(error)
    assert (type(back), back.args, vars(back)) == (type(error), error.args, vars(error))
    assert str(back) == str(error)
    assert type(raised(error, Grant("c", ("msgpack", "error")))) is families.RemoteError


@pytest.mark.parametrize(
    ("name", "field"),
    [
        *((name, "used") for name in ("BadNotes", "BadArgs", "BadNew", "Leaving", "SlottedError")),
        ("BadGroup", "used"), *(("ValueError", name) for name in ("with_traceback", "add_note")),
        ("ValueError", "args"), ("Point", "used"), ("Missing", "used"),
    ],
)  # fmt: skip
def test_other_exceptions_are_remote_errors(name, field):
    data = families.ExceptionData(f"{PREFIX}:{name}", "x", ("x",), notes=("n",), fields={field: 1})
    assert type(families.errors.wire.from_data(data, own=True)) is families.RemoteError


def test_an_exception_that_prints_itself_says_all_and_steers_no_terminal():
    assert "\x1b" not in str(raised(with_why(own.Told("\x1b"))))
    assert type(raised(with_why(own.Told("x"), object()))) is families.RemoteError
    vars(told := with_why(own.Told("x")))["told"] = 1  # what a property computes
    assert vars(raised(told)) == {"why": told.why.replace("\x1b", "\\x1b")}
    assert type(raised(with_why(own.QuotaError(1, 2), object()))) is own.QuotaError


# --- modules --------------------------------------------------------------------------------------

TREE = {
    "main.py": True, "models.py": True, "package/__init__.py": True, "package/inner.py": True,
    "vendored/plain.py": True, "vendored/site/copied.py": False, "json.py": False,
    "../outside.py": False, "env/lib/zoned.py": False,
}  # fmt: skip


@pytest.fixture
def app(tmp_path, monkeypatch):
    """A main program with modules beside it, of which some were installed there."""
    folder = tmp_path / "app"
    for name in TREE:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("class P: pass\ndef __getattr__(name): raise SystemExit(name)")
    (folder / "vendored/site/copied-1.0.dist-info").mkdir()
    (folder / "linked.py").symlink_to(tmp_path / "outside.py")
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(folder / "env/lib")})
    main = types.ModuleType("__main__")
    main.__file__ = str(folder / "main.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return folder


def load(path, name, monkeypatch):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)


@pytest.mark.parametrize(("file", "is_own"), [*TREE.items(), ("linked.py", False)])
def test_modules_beside_the_main_program_are_its_own(app, monkeypatch, file, is_own):
    name = file.rpartition("/")[2].removesuffix(".py").strip("_")
    load(app / file, name, monkeypatch)
    assert (program.find(f"{name}:P") is not None) is is_own
    assert program.find(f"{name}:Missing") is None
    monkeypatch.setattr(program, "_named", {name})
    assert (program.find(f"{name}:P") is not None) is (name != "json")
    monkeypatch.setitem(sys.modules, name, type("Lazy", (types.ModuleType,), {})(name))
    assert program.find(f"{name}:P") is None


def test_a_notebook_has_no_folder(app, monkeypatch):
    del sys.modules["__main__"].__file__
    load(app / "models.py", "models", monkeypatch)
    assert program.find("models:P") is None
    sys.modules["__main__"].P = type("P", (), {"__module__": "__main__"})
    assert program.find("__main__:P") is sys.modules["__main__"].P
