"""Names that pickle spells by calls: one name like any other, and nothing is called for it."""

from __future__ import annotations

import pickle

import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import Entry, Profile, inspect, loads


def listing(name):
    entry = Entry(name, "reference", reviewed=True)
    return Profile("mine", [*Profile.named("data").entries.values(), entry])


UPPER, TEXT = listing("builtins:str.upper"), listing("builtins:str")


def spelt(asm, name, part):
    return asm.call("builtins:getattr", asm.name(name), asm.text(part))


def test_getattr_of_a_global_is_a_nested_name(asm):
    data = pickle.dumps([str.upper, str.upper])
    assert loads(data, profile=UPPER) == [str.upper, str.upper]
    assert inspect(data, profile=UPPER).permitted
    with pytest.raises(PolicyDenied, match=r"builtins:str\.upper is referenced"):
        loads(data)
    # What it begins with is not enough, and is not handed over by it either.
    with pytest.raises(PolicyDenied, match=r"builtins:str\.upper"):
        loads(data, profile=TEXT)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nested_names_of_every_protocol(protocol):
    assert loads(pickle.dumps(str.upper, protocol), profile=UPPER) is str.upper


@pytest.mark.parametrize(
    "recipe",
    [
        # getattr of what a pickle made: a bound method, or whatever hangs on it
        lambda a: a.call("builtins:getattr", a.text("abc"), a.text("upper")),
        lambda a: a.call("builtins:getattr", spelt(a, "builtins:str", "upper"), a.text("x"), b"N"),
        lambda a: a.call("builtins:getattr", a.call("builtins:complex", b"K\x00", b"K\x00")),
        # names that no profile lists, and names that are none
        lambda a: spelt(a, "safeser_trap:fire", "__globals__"),
        lambda a: spelt(a, "builtins:str", "__subclasses__"),
        lambda a: a.call(spelt(a, "builtins:str", "__subclasses__")),
        lambda a: a.call(spelt(a, "builtins:str", "upper"), a.text("abc")),
        lambda a: spelt(a, "builtins:str", "upper "),
        # CPython looks for an attribute that has a dot in its name
        lambda a: spelt(a, "builtins:str", "upper.upper"),
        lambda a: spelt(a, "builtins:str", "x" * 600),
        # thrown away, it was still looked up
        lambda a: b"(" + spelt(a, "safeser_trap:Armed", "__init__") + b"1N",
        lambda a: a.call(
            "copyreg:_reconstructor", a.name("safeser_trap:Armed"), a.name("builtins:object"), b"N"
        ),
        lambda a: a.call(
            "copyreg:_reconstructor", a.name("uuid:UUID"), a.name("safeser_trap:Armed"), b"N"
        ),
        lambda a: a.call(
            "copyreg:_reconstructor", a.name("uuid:UUID"), a.name("builtins:object"), a.text("x")
        ),
        lambda a: a.call(
            "copyreg:_reconstructor", a.name("decimal:Decimal"), a.name("builtins:object"), b"N"
        ),
        lambda a: a.call(
            "copyreg:_reconstructor", a.name("uuid:UUID"), a.name("builtins:object"), b"N"
        ),
    ],
)
def test_bypass_spelt_names_are_refused_like_written_ones(asm, trap, recipe):
    with pytest.raises((PolicyDenied, PayloadError)):
        loads(asm.pickle(recipe(asm)), profile=UPPER)


@pytest.mark.parametrize("which", [b"h\x00", b"h\x01", b"h\x02"])
def test_bypass_what_only_spelt_a_name_is_not_handed_over_by_it(asm, which):
    """The function, the class and the tuple stay in the memo, from where they can be taken."""
    body = asm.name("builtins:getattr") + b"\x94" + asm.name("builtins:str") + b"\x94"
    body += asm.text("upper") + b"\x86\x94R"
    assert loads(asm.pickle(body), profile=UPPER) is str.upper
    with pytest.raises(PolicyDenied):
        loads(asm.pickle(body + which + b"\x86"), profile=UPPER)


@pytest.mark.parametrize("protocol", [0, 1])
def test_instances_of_the_first_protocols(protocol):
    import uuid

    value = uuid.UUID(int=5)
    assert b"_reconstructor" in pickle.dumps(value, protocol)
    assert loads(pickle.dumps(value, protocol)) == value
