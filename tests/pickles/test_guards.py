"""Guards that no other test would miss: each was left out, turned round or moved by one, unseen."""

from __future__ import annotations

import weakref
from typing import ClassVar

import numpy as np
import pytest

from safeser.gate.values import Limits
from safeser.pickles.building.own import OwnClass
from safeser.pickles.profiles import Entry
from safeser.pickles.shims import Site, are_plain_keys
from safeser.pickles.shims.site import check_layout, settled
from tests.pickles.forging import refused


class Held:
    """Stands for an allowed, hashable class; what it holds is what hashing it may walk."""

    def __init__(self, *parts):
        self.parts = parts


def site(**limits):
    here = Site(Limits(**limits), given=0)
    here.hashable.add(Held)
    return here


def test_what_hashing_an_object_may_walk():
    def cost(*parts):
        return site().check_hashable(Held(*parts)) - site().check_hashable(Held())

    assert cost(1) == 1
    assert cost(1 << 1024) == 3
    assert cost("text" * 1000) == 1
    assert cost(np.zeros(100)) == 1 + 200
    assert cost([1, 2]) == 3
    assert cost(Held(1)) - cost(Held()) == 1  # fields of what it holds
    assert cost(int) == 1


def test_the_cost_of_an_object_at_its_limit():
    base = site().check_hashable(Held()) - 16
    here = site(max_key_cost=base + 10)
    here.check_hashable(Held(*range(10 - 1)))
    refused("pickle.key-cost", here.check_hashable, Held(*range(40)))


@pytest.mark.parametrize(("keys", "plain"), [
    (["a", b"b"], True), ([1, 2], True), ([(1 << 64) - 1], True), ([1 << 64], False),
    ([1 - (1 << 64)], True), ([-(1 << 64)], False), ([1, 2.0], False), ([True], False),
    (["a", 1], False),
])  # fmt: skip
def test_keys_that_need_no_look(keys, plain):
    assert are_plain_keys(keys, whole=True) is plain
    assert are_plain_keys(keys, whole=False) is (plain and type(keys[0]) is not int)


def test_eight_keys_that_share_a_hash_need_a_look():
    shared = [n * ((1 << 61) - 1) for n in range(-4, 4)]
    assert are_plain_keys(shared[:8], whole=True)
    assert not are_plain_keys([*shared, *(n + 1 for n in shared)], whole=True)


@pytest.mark.parametrize("checksum", [-1, 1 << 31, 12345])
def test_a_layout_that_cython_does_not_know(checksum):
    _losses = pytest.importorskip("sklearn._loss._loss")
    kind = _losses.CyHalfMultinomialLoss
    check_layout(kind, kind().__reduce__()[1][1])
    refused("pickle.version", check_layout, kind, checksum)


def test_content_that_nothing_can_change_is_kept():
    here = Site(Limits(), given=1 << 20)
    fixed, open_ = b"abc", bytearray(b"abc")
    assert settled(here, fixed) is fixed
    assert settled(here, view := memoryview(fixed)) is view
    for content, kind in ((open_, bytearray), (memoryview(open_).toreadonly(), bytes)):
        kept = settled(here, content)
        assert (type(kept), bytes(kept)) == (kind, fixed)
        open_[0] = 0
        assert bytes(kept) == fixed
        open_[0] = fixed[0]


# -- classes of one's own -------------------------------------------------------------------------


class Elsewhere:
    def __new__(cls, *_):
        return ValueError()


class Watched:
    seen: ClassVar[list] = []

    def __new__(cls, keep=None):
        made = object.__new__(cls)
        if keep == "weakly":
            cls.seen.append(weakref.ref(made))
        elif keep:
            cls.seen.append(made)
        return made


def own(kind):
    return OwnClass(Entry(f"my.lib:{kind.__name__}", "class"), kind)


@pytest.mark.parametrize("new", [True, False])
def test_a_class_that_makes_something_else(new):
    refused("pickle.class", own(Elsewhere).make, (), {}, new=new, old=False, base="")


@pytest.mark.parametrize(("keep", "alone"), [(None, True), ("weakly", False), ("strongly", False)])
def test_an_object_that_its_class_keeps_is_not_alone(keep, alone):
    Watched.seen.clear()
    made = own(Watched).make((keep,) if keep else (), {}, new=True, old=False, base="")
    assert made[1] is alone
    Watched.seen.clear()


@pytest.mark.parametrize("name", [1, None, b"a", "a b", "", "__a", "__class__", "1a"])
def test_names_of_fields(name):
    entry = Entry("my.lib:Held", "class", fields=frozenset(("*",)))
    refused("pickle.state", OwnClass(entry, Held).build, Held(), {name: 1})


def test_a_named_tuple_past_whose_new_protocol_0_goes():
    class Pair(tuple):
        __slots__ = ()
        _fields = ("a",)

        def __new__(cls, *content):
            return [*content] if content == (1,) else tuple.__new__(cls, (0, *content))

    for content in ((1,), (2,)):
        refused("pickle.class", own(Pair)._made_of, "builtins:tuple", [content])
