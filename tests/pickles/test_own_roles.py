"""What allowed classes may hold and be used for, and the other roles that can be allowed."""

from __future__ import annotations

import pickle
import sys

import pytest

from safeser.errors import ConfigError, PolicyDenied, SafeserError
from safeser.pickles import loads
from safeser.pickles.own import OwnClass
from tests.pickles.own_classes import (
    NAMES,
    Bits,
    Colour,
    Key,
    Table,
    Words,
    allowed,
    build_point,
    refused,
)

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
    def test_but_not_before_it_is_finished(self, asm, nested):
        # {Key: 1} where the key's own state holds the dict: CPython hashes it without its number.
        key = asm.new(NAMES["Key"]) + b"q\x00"
        held = asm.dict(asm.tuple(b"h\x00") if nested else b"h\x00", b"K\x01")
        body = asm.build(key, asm.dict(asm.text("number"), held))
        refused(asm.pickle(body), allowed(Key={"role": "class", "hashable": True}), "unfinished")

    def test_what_hashing_may_walk_is_bounded(self, asm):
        profile = allowed(Key={"role": "class", "hashable": True})
        double = b"N\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(14))
        for held in (
            asm.tuple(*[b"N"] * 20_000),
            asm.list(*[b"N"] * 20_000),
            asm.dict(*[asm.number(n) for n in range(20_000)]),
            b"(" + double + b"1h\x0e",
            b"N" + b"\x85" * 60,
            asm.raw(b"x") + b"\x85" * 55,
        ):
            key = asm.build(asm.new(NAMES["Key"]), asm.dict(asm.text("number"), held))
            refused(asm.pickle(asm.dict(key, b"N")), profile, "key-cost")
            refused(asm.pickle(asm.dict(asm.tuple(key), b"N")), profile, "key-cost")

    def test_a_large_field_is_charged_for_each_key(self, asm):
        held = asm.tuple(*[b"N"] * 9_000) + b"q\x000"
        key = asm.build(asm.new(NAMES["Key"]), asm.dict(asm.text("number"), b"h\x00"))
        data = asm.pickle(held + asm.list(*[asm.set(key)] * 600))
        refused(data, allowed(Key={"role": "class", "hashable": True}), "max-refs")

    def test_comparing_is_charged_as_well(self, asm):
        held = asm.tuple(*[b"N"] * 4_000) + b"q\x000"
        key = asm.build(asm.new(NAMES["Key"]), asm.dict(asm.text("number"), b"h\x00"))
        data = asm.pickle(held + asm.list(*[asm.set(*[key] * 60)] * 2))
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
    def test_the_result_is_what_was_said(self, asm):
        data = asm.pickle(asm.call(NAMES["build_point"], b"K\x05"))
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        assert loads(data, profile=profile).given == ((5,), {})
        other = allowed(build_other={"role": "callable", "returns": NAMES["Plain"]})
        refused(asm.pickle(asm.call(NAMES["build_other"], b"K\x05")), other, "class")

    def test_it_is_not_built(self, asm):
        body = asm.build(asm.call(NAMES["build_point"], b"K\x05"), asm.dict(asm.text("a"), b"N"))
        profile = allowed(build_point={"role": "callable", "returns": NAMES["Plain"]})
        refused(asm.pickle(body), profile, "global", PolicyDenied)


class TestEnums:
    def test_members_are_keys_if_they_hash_as_enums_do(self, monkeypatch):
        data = pickle.dumps({Colour.RED: 1, (Bits.ONE,): 2})
        profile = allowed(Colour="enum", Bits="enum")
        assert loads(data, profile=profile) == {Colour.RED: 1, (Bits.ONE,): 2}
        monkeypatch.setattr(Colour, "__hash__", lambda self: 1)
        refused(data, allowed(Colour="enum", Bits="enum"), "unhashable")

    def test_members_are_looked_up(self, asm):
        for member in (Colour.RED, Colour.BLUE, Bits.TWO):
            profile = allowed(Colour="enum", Bits="enum")
            assert loads(pickle.dumps(member), profile=profile) is member

    @pytest.mark.parametrize(
        "value", [b"K\x09", b"\x88", b"G?\xf0\x00\x00\x00\x00\x00\x00", b"](K\x03e"]
    )
    def test_nothing_else_is(self, asm, value):
        error = refused(
            asm.pickle(asm.call(NAMES["Colour"], value)), allowed(Colour="enum"), "arguments"
        )
        assert "Colour" in str(error)

    @pytest.mark.parametrize("value", [b"K\x03", b"K\x00"])
    def test_no_composite_is_made(self, asm, value):
        refused(asm.pickle(asm.call(NAMES["Bits"], value)), allowed(Bits="enum"), "arguments")

    def test_one_value_it_is(self, asm):
        for arguments in ((), (b"K\x01", b"K\x01"), (asm.text("New"), asm.list())):
            data = asm.pickle(asm.call(NAMES["Colour"], *arguments))
            refused(data, allowed(Colour="enum"), "arguments")

    def test_of_an_enum(self, asm):
        refused(asm.pickle(asm.call(NAMES["Plain"], b"K\x01")), allowed(Plain="enum"), "class")


def test_what_no_class_is_cannot_be_one():
    entry = allowed(Plain="class").get(NAMES["Plain"])
    for found in (1, "text", build_point, type, Colour):
        with pytest.raises(SafeserError):
            OwnClass(entry, found)


def test_a_role_of_no_kind_is_refused():
    with pytest.raises(ConfigError):
        allowed(Plain={"role": "class", "field": ["x"]})
