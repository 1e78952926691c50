"""Families and types that programs registered, through the one door."""

from __future__ import annotations

import pytest

from safeser import Serialized, families
from safeser.channel.link import ordered
from safeser.errors import PolicyDenied, SerializationError
from safeser.families import Parts, Typed
from safeser.families.registered import dispatch
from safeser.families.registered import program as own_program
from safeser.families.registered.own import OwnFamilies, OwnFamily
from safeser.gate.values import Context, Grant
from tests.refusal import refusal
from tests.samples import program

POLICY = """
safeser: 1
name: registered
revision: 1
families: [shout]
principals: {ann: {}, bea: {}, cy: {}}
contexts:
  - name: both
    sender: ann
    recipient: bea
    kinds: [admin, data]
    serializers: [dask, msgpack, shout]
    deserializers: [dask, msgpack, shout]
    classes: own
    dask: {types: ["tests.channel.test_registered:Tiles"]}
  - name: too-much
    sender: ann
    recipient: cy
    kinds: [admin, data]
    serializers: [dask, msgpack, shout]
    deserializers: [dask, msgpack]
"""


class Loud:
    pass


class Tiles:
    def __init__(self, text):
        self.text = text


class Elsewhere:
    def dumps(self, cls):
        return (lambda x: ({}, [x.text.encode()])) if cls is Tiles else None

    def loads(self, name):
        return lambda header, frames: Tiles(bytes(frames[0]).decode())


@pytest.fixture
def calls(monkeypatch):
    """The contexts that registered functions were given, in order."""
    given = []

    def dumps(x, context):
        if type(x) is not Loud:
            raise NotImplementedError
        given.append(context)
        return {}, [b"hey"]

    def loads(header, frames, context):
        given.append(context)
        return bytes(frames[0]).decode().upper()

    known = OwnFamilies(list)
    known.register(OwnFamily("shout", dumps, loads))
    for module in ("registered.own", "tree", "sending", "receiving", "building"):
        monkeypatch.setattr(f"safeser.families.{module}.own_families", known)
    monkeypatch.setattr(Tiles, "__module__", "tests.channel.test_registered")
    monkeypatch.setattr(dispatch.functions, "_foreign", Elsewhere())
    return given


@pytest.fixture
def send(doors):
    def send(value, recipient):
        one, two = doors.channel("ann", POLICY), doors.channel(recipient, POLICY)
        doors.shake(one, two)
        context = Context("ann", recipient)
        frames = one.seal(value, context)
        return two, lambda: two.open(frames, context)

    return send


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("value", [program.Frozen(1), program.Color.RED], ids=repr)
def test_a_class_of_the_recipients_program_passes_where_it_says_so(send, doors, value, monkeypatch):
    monkeypatch.setattr(own_program, "_named", {program.__name__})
    context = Context("ann", "bea")
    header, frames = families.serialize([value], ("dask", "msgpack"), reads=Grant("", ("dask",)))
    assert send(Serialized(header, frames), "bea")[1]() == [value]
    near, reader = doors.links("ann", "bea", POLICY)
    message = reader.verify(near.session.seal(b"", []))
    grants = [
        reader.payload(message, context, "x", header, frames, **options).grant
        for options in ({}, {"takes_own": False}, {"author": "cy"})
    ]
    # Not where this process is a scheduler, and not of an author that is no sender there.
    assert [sorted(grant.own) for grant in grants] == [["ann"], [], []]
    with refusal(PolicyDenied, "families.type-not-granted"):
        send(Serialized(header, frames), "cy")[1]()


def test_an_own_family_passes_where_both_sides_list_it(send, calls):
    _, open_ = send([1, Loud(), 2j], "bea")
    assert open_() == [1, "HEY", 2j]
    said = [(each["sender_principal"], each["recipient_principal"], each["kind"]) for each in calls]
    assert said == [("ann", "bea", "data")] * 2


@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        (("shout", "dask", "msgpack"), ("error", "shout", "dask", "msgpack")),
        (("dask", "shout", "pickle"), ("dask", "msgpack", "error", "shout", "pickle")),
        (("pickle", "shout", "dask"), ("error", "shout", "dask", "msgpack", "pickle")),
        (("shout", "pickle"), ("msgpack", "error", "shout", "pickle")),
    ],
)
def test_a_family_listed_before_dask_is_asked_before_it(listed, asked):
    """For values that dask would carry too, as large arrays that stay on one host."""
    assert ordered(listed) == asked


def test_its_code_does_not_run_where_it_is_not_listed(send, calls):
    _, open_ = send([1, Loud()], "cy")
    with refusal(PolicyDenied, "context.family"):
        open_()
    assert len(calls) == 1


def own_way(x):
    """What a sender does who does not ask what may be read."""
    name = "tests.channel.test_registered:Tiles"
    return Typed(name, (), lambda x, limits: Parts({}, [x.text.encode()]), None, None)


def test_types_of_others_are_read_where_the_policy_names_them(send, calls, monkeypatch):
    _, open_ = send({"a": Tiles("x")}, "bea")
    assert open_()["a"].text == "x"
    # Where it is not named it is not even sent: another family might carry it.
    with pytest.raises(SerializationError) as caught:
        send({"a": Tiles("x")}, "cy")
    assert 'dask: {types: ["tests.channel.test_registered:Tiles"]}' in caught.value.fix
    monkeypatch.setattr(Elsewhere, "dumps", lambda self, cls: None)
    monkeypatch.setattr(
        dispatch.functions, "for_object", lambda x, types: own_way(x) if type(x) is Tiles else None
    )
    two, open_ = send({"a": Tiles("x")}, "cy")
    with refusal(PolicyDenied, "families.type-not-granted"):
        open_()
    assert two.audit.order[-1] == "refuse"  # before anything was admitted


def test_a_channel_looks_for_the_families_that_its_policy_declares(doors, policy, monkeypatch):
    """When it is made, so that no message makes it look."""
    asked = []
    known = OwnFamilies(lambda: asked.append(1) or [])
    for module in ("families.registered.own", "families.tree", "channel.door"):
        monkeypatch.setattr(f"safeser.{module}.own_families", known)
    doors.channel("ann", policy)
    assert asked == []
    doors.channel("ann", POLICY)
    assert asked == [1]
