"""What allowed classes may hold and be used for, and the other roles that can be allowed."""

from __future__ import annotations

import enum
import pickle
import sys

import pytest

from safeser.errors import ConfigError, PolicyDenied, SafeserError
from safeser.pickles import loads
from safeser.pickles.building.own import OwnClass
from tests.pickles.own_classes import (
    NAMES,
    Bits,
    Colour,
    Key,
    Table,
    Wide,
    Words,
    allowed,
    build_point,
    refused,
)
from tests.samples import opcodes as op

pytestmark = pytest.mark.usefixtures("own")


class TestContents:
    def test_a_hashable_class_may_be_a_key(self):
        profile = allowed(Key={"role": "class", "hashable": True})
        assert loads(pickle.dumps({Key(3): 1, (Key(4),): 2}), profile=profile) == {
            Key(3): 1,
            (Key(4),): 2,
        }
        refused(pickle.dumps({Key(3)}), allowed(Key="class"), "unhashable")

    @pytest.mark.parametrize("nested", [False, True])
    def test_but_not_before_it_is_finished(self, nested):
        # {Key: 1} where the key's own state holds the dict: CPython hashes it without its number.
        key = op.new(NAMES["Key"]) + b"q\x00"
        held = op.value({(b"h\x00",) if nested else b"h\x00": 1})
        body = op.build(key, {"number": held})
        refused(op.pickled(body), allowed(Key={"role": "class", "hashable": True}), "unfinished")

    def test_what_hashing_may_walk_is_bounded(self):
        profile = allowed(Key={"role": "class", "hashable": True})
        double = b"N\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(14))
        for held in (
            op.value((None,) * 20_000),
            op.value([None] * 20_000),
            op.value(op.pairs(*[n for n in range(20_000)])),
            b"(" + double + b"1h\x0e",
            b"N" + b"\x85" * 60,
            op.raw(b"x") + b"\x85" * 55,
        ):
            key = op.build(op.new(NAMES["Key"]), {"number": held})
            refused(op.pickled({key: None}), profile, "key-cost")
            refused(op.pickled({(key,): None}), profile, "key-cost")

    @pytest.mark.unmeasured
    def test_a_large_field_is_charged_for_each_key(self):
        held = op.value((None,) * 9_000) + b"q\x000"
        key = op.build(op.new(NAMES["Key"]), {"number": b"h\x00"})
        data = op.pickled(held + op.value([op.value({key})] * 600))
        refused(data, allowed(Key={"role": "class", "hashable": True}), "max-refs")

    def test_comparing_is_charged_as_well(self):
        held = op.value((None,) * 4_000) + b"q\x000"
        key = op.build(op.new(NAMES["Key"]), {"number": b"h\x00"})
        data = op.pickled(held + op.value([b"\x8f(" + key * 60 + b"\x90"] * 2))
        refused(data, allowed(Key={"role": "class", "hashable": True}), "max-refs")

    def test_colliding_instances_are_bounded(self):
        data = pickle.dumps({Key(n * sys.hash_info.modulus): None for n in range(200)})
        refused(data, allowed(Key={"role": "class", "hashable": True}), "collisions")

    def test_containers_that_may_be_filled(self):
        value = [Words("ab"), Table(a=1)]
        profile = allowed(
            Words={"role": "class", "grows": "list"}, Table={"role": "class", "grows": "dict"}
        )
        got = loads(pickle.dumps(value), profile=profile)
        assert got == value
        assert [type(each) for each in got] == [Words, Table]
        for each in value:
            data = pickle.dumps(each)
            refused(data, allowed(Words="class", Table="class"), "global", PolicyDenied)


class TestCallables:
    def test_the_result_is_what_was_said(self):
        data = op.pickled(op.call(NAMES["build_point"], 5))
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        assert loads(data, profile=profile).given == ((5,), {})
        other = allowed(build_other={"role": "callable", "returns": NAMES["Plain"]})
        refused(op.pickled(op.call(NAMES["build_other"], 5)), other, "class")

    def test_it_is_not_built(self):
        body = op.build(op.call(NAMES["build_point"], 5), {"a": None})
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        refused(op.pickled(body), profile, "global", PolicyDenied)


class TestEnums:
    def test_members_are_keys_if_they_hash_as_enums_do(self, monkeypatch):
        data = pickle.dumps({Colour.RED: 1, (Bits.ONE,): 2})
        profile = allowed(Colour="enum", Bits="enum")
        assert loads(data, profile=profile) == {Colour.RED: 1, (Bits.ONE,): 2}
        monkeypatch.setattr(Colour, "__hash__", lambda self: 1)
        refused(data, allowed(Colour="enum", Bits="enum"), "unhashable")

    def test_members_are_looked_up(self):
        for member in (Colour.RED, Colour.BLUE, Bits.TWO):
            profile = allowed(Colour="enum", Bits="enum")
            assert loads(pickle.dumps(member), profile=profile) is member

    @pytest.mark.parametrize(
        "value", [b"K\x09", b"\x88", b"G?\xf0\x00\x00\x00\x00\x00\x00", b"](K\x03e"]
    )
    def test_nothing_else_is(self, value):
        error = refused(
            op.pickled(op.call(NAMES["Colour"], value)), allowed(Colour="enum"), "arguments"
        )
        assert "Colour" in str(error)

    @pytest.mark.parametrize("boundary", list(enum.FlagBoundary))
    @pytest.mark.parametrize("base", [enum.Flag, enum.IntFlag])
    def test_flags_are_composed_of_their_members_alone(self, own, monkeypatch, boundary, base):
        bits = base("Bits", {"ONE": 1, "TWO": 2, "EIGHT": 8, "ALL": 27}, boundary=boundary.value)
        bits.__module__ = own.__name__
        monkeypatch.setattr(own, "Bits", bits)
        profile = allowed(Bits="enum")
        for value in (bits.ONE, bits.ALL, bits(0), bits.ONE | bits.EIGHT, bits(11)):
            for protocol in range(6):
                assert loads(pickle.dumps(value, protocol), profile=profile) is value
        before = dict(bits._value2member_map_)
        for value in (b"K\x04", b"K\x10", b"K\x13", b"J\xff\xff\xff\xff", b"\x88"):
            data = op.pickled(op.call(NAMES["Bits"], value))
            refused(data, profile, "arguments")
        refused(op.pickled(op.call(NAMES["Bits"], b"G@\x08" + bytes(6))), profile, "arguments")
        assert bits._value2member_map_ == before

    def test_bypass_a_class_does_not_grow_by_composites_of_many_bits(self):
        def wide(value):
            return op.pickled(op.call(NAMES["Wide"], value))

        profile = allowed(Wide="enum")
        size = len(Wide._value2member_map_)
        for value in (0x1803, 0x1001):
            refused(wide(value), profile, "arguments")
        assert len(Wide._value2member_map_) == size
        assert loads(wide(Wide.MASK), profile=profile) is Wide.MASK
        # What the process has composed itself takes nothing more.
        made = Wide(0x1805)
        assert loads(wide(0x1805), profile=profile) is made

    @pytest.mark.parametrize("value", [b"K\x03", b"K\x00"])
    def test_no_composite_is_made_by_code_of_the_class(self, value):
        refused(op.pickled(op.call(NAMES["Missing"], value)), allowed(Missing="enum"), "arguments")

    def test_no_composite_is_made_by_code_of_its_metaclass(self, own, monkeypatch):
        class Meta(enum.EnumMeta):
            def __call__(cls, *args, **kwargs):
                raise AssertionError("the metaclass ran")

        class Bits(enum.Flag, metaclass=Meta):
            ONE = 1
            TWO = 2

        Bits.__module__, Bits.__qualname__ = own.__name__, "Bits"
        monkeypatch.setattr(own, "Bits", Bits)
        data = op.pickled(op.call(NAMES["Bits"], 3))
        refused(data, allowed(Bits="enum"), "arguments")

    def test_one_value_it_is(self):
        for arguments in ((), (b"K\x01", b"K\x01"), (op.value("New"), op.value([]))):
            data = op.pickled(op.call(NAMES["Colour"], *arguments))
            refused(data, allowed(Colour="enum"), "arguments")

    def test_of_an_enum(self):
        refused(op.pickled(op.call(NAMES["Plain"], 1)), allowed(Plain="enum"), "class")


def test_what_no_class_is_cannot_be_one():
    entry = allowed(Plain="class").get(NAMES["Plain"])
    for found in (1, "text", build_point, type, Colour):
        with pytest.raises(SafeserError):
            OwnClass(entry, found)


def test_a_role_of_no_kind_is_refused():
    with pytest.raises(ConfigError):
        allowed(Plain={"role": "class", "field": ["x"]})
