"""Names that pickle spells by calls: one name like any other, and nothing is called for it."""

from __future__ import annotations

import pickle

import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import Entry, Profile, inspect, loads
from tests.samples import opcodes as op


def listing(name):
    entry = Entry(name, "reference", reviewed=True)
    return Profile("mine", [*Profile.named("data").entries.values(), entry])


UPPER, TEXT = listing("builtins:str.upper"), listing("builtins:str")


def spelt(name, part):
    return op.call("builtins:getattr", op.name(name), part)


def test_getattr_of_a_global_is_a_nested_name():
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


@pytest.mark.parametrize("body", [
    op.call("builtins:getattr", "abc", "upper"),
    op.call("builtins:getattr", spelt("builtins:str", "upper"), "x", None),
    op.call("builtins:getattr", op.call("builtins:complex", 0, 0)),
    spelt("safeser_trap:fire", "__globals__"), spelt("builtins:str", "__subclasses__"),
    op.call(spelt("builtins:str", "__subclasses__")),
    op.call(spelt("builtins:str", "upper"), "abc"), spelt("builtins:str", "upper "),
    spelt("builtins:str", "upper.upper"), spelt("builtins:str", "x" * 600),
    b"(" + spelt("safeser_trap:Armed", "__init__") + b"1N",
    op.call("copyreg:_reconstructor", op.name("safeser_trap:Armed"), op.name("builtins:object"),
        None),
    op.call("copyreg:_reconstructor", op.name("uuid:UUID"), op.name("safeser_trap:Armed"), None),
    op.call("copyreg:_reconstructor", op.name("uuid:UUID"), op.name("builtins:object"), "x"),
    op.call("copyreg:_reconstructor", op.name("decimal:Decimal"), op.name("builtins:object"), None),
    op.call("copyreg:_reconstructor", op.name("uuid:UUID"), op.name("builtins:object"), None),
])  # fmt: skip
def test_bypass_spelt_names_are_refused_like_written_ones(trap, body):
    with pytest.raises((PolicyDenied, PayloadError)):
        loads(op.pickled(body), profile=UPPER)


@pytest.mark.parametrize("which", [b"h\x00", b"h\x01", b"h\x02"])
def test_bypass_what_only_spelt_a_name_is_not_handed_over_by_it(which):
    """The function, the class and the tuple stay in the memo, from where they can be taken."""
    body = op.name("builtins:getattr") + b"\x94" + op.name("builtins:str") + b"\x94"
    body += op.value("upper") + b"\x86\x94R"
    assert loads(op.pickled(body), profile=UPPER) is str.upper
    with pytest.raises(PolicyDenied):
        loads(op.pickled(body + which + b"\x86"), profile=UPPER)


@pytest.mark.parametrize("protocol", [0, 1])
def test_instances_of_the_first_protocols(protocol):
    import uuid

    value = uuid.UUID(int=5)
    assert b"_reconstructor" in pickle.dumps(value, protocol)
    assert loads(pickle.dumps(value, protocol)) == value
