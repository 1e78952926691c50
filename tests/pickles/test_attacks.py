"""Ways in which restricted unpicklers were broken; each must be refused before anything runs."""

from __future__ import annotations

import fractions
import pickle
import sys
import types

import pytest

from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.pickles import DATA_PROFILES, Profile, inspect, loads
from tests.pickles.derived import family_of

FIRE = "safeser_trap:fire"
ARMED = "safeser_trap:Armed"

#: Recipes for one hostile pickle each.
ATTACKS = {
    "reduce": lambda a: a.call(FIRE),
    "reduce by GLOBAL": lambda a: a.call(a.line_name(FIRE)),
    "reduce inside a list": lambda a: a.list(b"N", a.call(FIRE)),
    "reduce as dict key": lambda a: a.dict(a.call(FIRE), b"N"),
    "reduce in a frozenset": lambda a: b"(" + a.call(FIRE) + b"\x91",
    "newobj": lambda a: a.new(ARMED),
    "newobj_ex": lambda a: a.name(ARMED) + b")}\x92",
    "mere reference": lambda a: a.name(FIRE),
    "reference thrown away": lambda a: a.name(FIRE) + b"0N",
    "reference through the memo": lambda a: a.name(FIRE) + b"q\x000h\x00",
    "reference as argument": lambda a: a.call("collections:deque", a.list(a.name(FIRE))),
    "reference as factory": lambda a: a.call("collections:defaultdict", a.name(FIRE)),
    "build on an unlisted class": lambda a: a.build(a.name(ARMED), a.dict()),
    "build on a container": lambda a: a.build(b"]", a.dict()),
    "build on a listed value": lambda a: a.build(
        a.call("builtins:complex", b"K\x01", b"K\x01"), a.dict()
    ),
    "slot state on a listed class": lambda a: a.build(
        a.name("collections:Counter"), a.tuple(b"N", a.dict(a.text("__missing__"), b"N"))
    ),
    "state for an uuid's class": lambda a: a.build(
        a.new("uuid:UUID"), a.dict(a.text("int"), b"K\x01", a.text("__class__"), b"N")
    ),
    "the result of a call is called": lambda a: a.call("builtins:bytearray") + b")R",
    "getattr": lambda a: a.call("builtins:getattr", a.name("builtins:str"), a.text("mro")),
    "type makes a class": lambda a: a.call("builtins:type", a.text("X"), b")", b"}"),
    "type of a thing": lambda a: a.call("builtins:type", b"K\x01"),
    "dotted": lambda a: a.call("builtins:bytearray.fromhex", a.text("00")),
    "dotted through a listed module": lambda a: a.call("uuid:os.system", a.text("true")),
    "dotted dunder": lambda a: a.name("collections:deque.__init__.__globals__"),
    "look-alike letters": lambda a: a.call("builtins:c\u043emplex", b"K\x01", b"K\x01"),
    "compatibility letters": lambda a: a.call("builtins:\uff43omplex", b"K\x01", b"K\x01"),
    "trailing NUL": lambda a: a.call("builtins\0:complex", b"K\x01", b"K\x01"),
    "prefix of a listed name": lambda a: a.name("collections:Order"),
    "other case": lambda a: a.call("Builtins:complex", b"K\x01", b"K\x01"),
    "submodule of a listed one": lambda a: a.name("collections.abc:Iterator"),
    "a listed name elsewhere": lambda a: a.call("_collections:deque"),
    "name by a call": lambda a: a.text("os") + a.call("builtins:bytes") + b"\x93",
    "name by a buffer": lambda a: b"\x97" + a.text("system") + b"\x93",
    "setitem on a module's dict": lambda a: a.name("sys:modules") + a.text("x") + b"Ns",
    "append to a module's list": lambda a: a.name("sys:meta_path") + b"Na",
    "setitem on a listed object": lambda a: a.call("collections:deque") + b"NNs",
    "append to a listed object": lambda a: a.call("collections:OrderedDict") + b"Na",
    "additems to a listed object": lambda a: a.call("builtins:set") + b"(N\x90",
    "tblib": lambda a: a.call(
        "tblib.pickling_support:unpickle_exception", a.name(FIRE), b")", b"N", b"N"
    ),
    "partial": lambda a: a.new("functools:partial", a.name(FIRE)),
    "nested pickle": lambda a: a.call("_pickle:loads", a.raw(b"N.")),
    "copyreg reconstructor": lambda a: a.call(
        "copyreg:_reconstructor", a.name(ARMED), a.name("builtins:object"), b"N"
    ),
    "python 2 names": lambda a: a.call(a.line_name("__builtin__:apply"), a.name(FIRE)),
    "exit": lambda a: a.call("builtins:SystemExit"),
    "interrupt": lambda a: a.call("builtins:KeyboardInterrupt"),
    "bytes of a size": lambda a: a.call("builtins:bytes", a.number(1 << 33)),
    "deque of a range": lambda a: a.call(
        "collections:deque", a.call("builtins:range", b"K\x00", a.number(10**12)), b"K\x01"
    ),
    "set of a range": lambda a: a.call(
        "builtins:set", a.call("builtins:range", b"K\x00", a.number(10**12), b"K\x01")
    ),
    "encoder": lambda a: a.call("_codecs:encode", a.text("x"), a.text("idna")),
    "large exponent": lambda a: a.call("decimal:Decimal", a.text("1E999999999")),
    "fraction of an exponent": lambda a: a.call("fractions:Fraction", a.text("1e999999999")),
    "late payload": lambda a: b"N0" * 5000 + a.call(FIRE),
}


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("recipe", ATTACKS.values(), ids=ATTACKS.keys())
def test_attack_is_refused_and_leaves_no_trace(asm, trap, recipe, protocol):
    data = asm.pickle(recipe(asm), protocol)
    modules, fraction = set(sys.modules), vars(fractions.Fraction).copy()
    with pytest.raises(SafeserError):
        loads(data, profile=DATA_PROFILES, buffers=[b"os"])
    assert set(sys.modules) == modules
    assert vars(fractions.Fraction) == fraction


@pytest.mark.parametrize("recipe", ATTACKS.values(), ids=ATTACKS.keys())
def test_looking_at_an_attack_runs_and_imports_nothing(asm, trap, recipe):
    data = asm.pickle(recipe(asm))
    modules = set(sys.modules)
    try:
        inspection = inspect(data, profile=DATA_PROFILES)
        family_of(data)
    except PayloadError:
        pass
    else:
        inspection.text()
        inspection.as_dict()
    assert set(sys.modules) == modules


def test_nothing_is_built_before_the_whole_stream_is_judged(asm, trap, monkeypatch):
    from safeser.pickles.building import build

    monkeypatch.setattr(build.Builder, "build", lambda _: pytest.fail("it was built"))
    with pytest.raises(PolicyDenied):
        loads(asm.pickle(asm.call("builtins:bytearray") + b"0" + asm.call(FIRE)))
    with pytest.raises(PayloadError):
        loads(asm.pickle(asm.call("builtins:bytearray") + b"\xff"))


def test_an_argument_that_changes_later_is_used_as_it_was(asm):
    # the list is an argument first and grows afterwards, as in CPython
    data = b"]q\x000" + asm.name("collections:deque") + b"h\x00\x85R" + b"h\x00K\x01a\x86."
    got = loads(b"\x80\x04" + data)
    assert got == pickle.loads(b"\x80\x04" + data)
    assert len(got[0]) == 0


def test_unknown_globals_are_not_imported_when_refused(asm):
    with pytest.raises(PolicyDenied):
        loads(asm.pickle(asm.name("this:s")), profile=DATA_PROFILES)
    assert "this" not in sys.modules


def test_a_denial_shows_hostile_names_short_and_plain(asm):
    name = "a" * 300 + ":\u0430" + "b" * 150
    with pytest.raises(PolicyDenied) as refused:
        loads(asm.pickle(asm.call(name)))
    assert len(str(refused.value)) < 1000
    assert all(line.isprintable() for line in str(refused.value).split("\n"))
    assert str(refused.value).isascii()


def test_repeated_copies_are_charged(asm):
    megabyte = asm.raw(bytes(1 << 20)) + b"q\x000"
    copies = (asm.name("builtins:bytearray") + b"h\x00\x85R") * 40
    with pytest.raises(PayloadError) as refused:
        loads(asm.pickle(megabyte + b"](" + copies + b"e"))
    assert refused.value.rule == "pickle.max-bytes"
    numbers = asm.list(*[b"K\x01"] * 10_000) + b"q\x000"
    copies = (asm.name("collections:deque") + b"h\x00\x85R") * 500
    with pytest.raises(PayloadError) as refused:
        loads(asm.pickle(numbers + b"](" + copies + b"e"))
    assert refused.value.rule == "pickle.max-refs"


def test_a_name_allowed_as_argument_is_not_allowed_as_a_value(asm):
    factory = asm.name("collections:defaultdict")
    assert loads(asm.pickle(factory + asm.tuple(asm.name("builtins:list")) + b"R")) == {}
    kept = asm.tuple(asm.name("builtins:list")) + b"q\x000" + factory + b"h\x00R0h\x00"
    with pytest.raises(PolicyDenied, match="builtins:list is referenced"):
        loads(asm.pickle(kept))


def test_a_placeholder_never_leaks(asm):
    for body in (
        asm.new("uuid:UUID"),
        asm.list(asm.new("uuid:UUID")),
        asm.build(
            asm.new("uuid:UUID") + b"q\x00", asm.dict(asm.text("int"), b"K\x01", b"h\x00", b"N")
        ),
    ):
        with pytest.raises(PayloadError) as refused:
            loads(asm.pickle(body))
        assert refused.value.rule == "pickle.unfinished"


@pytest.mark.parametrize("name", ["safeser_shop:gone", "safeser_gone:x"])
def test_an_allowed_global_that_is_missing_is_a_clear_refusal(asm, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "safeser_shop", types.ModuleType("safeser_shop"))
    profile = Profile.named("data").allowing({name: "reference"})
    with pytest.raises(PayloadError) as refused:
        loads(asm.pickle(asm.name(name)), profile=profile)
    assert refused.value.rule == "pickle.unresolved"
