"""Ways in which scanners and restricted unpicklers were broken, beyond what a row says."""

from __future__ import annotations

import copyreg
import pickle
import sys
import types

import pytest

from safeser.errors import PolicyDenied, SafeserError
from safeser.pickles import DATA_PROFILES, Profile, inspect, loads
from safeser.pickles.building import build
from tests.pickles.forging import refused
from tests.samples import opcodes as op
from tests.samples.pickles import FIRE, NOT_BLOCKED


@pytest.mark.parametrize("name", NOT_BLOCKED)
def test_no_name_is_missing_from_a_list_of_what_is_allowed(trap, name):
    modules = set(sys.modules)
    for use in (op.call(name, "true"), op.name(name), op.new(name)):
        with pytest.raises(SafeserError) as caught:
            loads(op.pickled(use), profile=DATA_PROFILES)
        assert caught.value.rule in ("pickle.global", "pickle.name")
        assert inspect(op.pickled(use), profile=DATA_PROFILES).permitted is False
    assert set(sys.modules) == modules


def test_a_cached_extension_is_no_way_past_the_list(trap):
    # Once a stock unpickler has met the code, CPython looks nothing up any more (nltk 3757).
    copyreg.add_extension("safeser_trap", "fire", 0xF0)
    copyreg._extension_cache[0xF0] = trap.fire
    try:
        with pytest.raises(SafeserError) as caught:
            loads(op.pickled(b"\x82\xf0)R"), profile=DATA_PROFILES)
    finally:
        copyreg.remove_extension("safeser_trap", "fire", 0xF0)
    assert caught.value.rule == "pickle.extension"


def test_nothing_is_built_before_the_whole_stream_is_judged(trap, monkeypatch):
    monkeypatch.setattr(build.Builder, "build", lambda _: pytest.fail("it was built"))
    for late in (b"0" + op.call(FIRE), b"\xff"):
        with pytest.raises(SafeserError):
            loads(op.pickled(op.call("builtins:bytearray") + late))


def test_an_argument_that_changes_later_is_used_as_it_was():
    # The list is an argument first and grows afterwards, as in CPython.
    data = op.pickled(b"]q\x000" + op.name("collections:deque") + b"h\x00\x85Rh\x00K\x01a\x86")
    got = loads(data)
    assert got == pickle.loads(data)
    assert len(got[0]) == 0


def test_a_denial_shows_hostile_names_short_and_plain():
    with pytest.raises(PolicyDenied) as refused:
        loads(op.pickled(op.call("a" * 300 + ":\u0430" + "b" * 150)))
    assert len(str(refused.value)) < 1000
    assert all(line.isprintable() for line in str(refused.value).split("\n"))
    assert str(refused.value).isascii()


@pytest.mark.parametrize(
    ("held", "copies", "rule"),
    [
        (op.raw(bytes(1 << 20)), op.call("builtins:bytearray", b"h\x00") * 40, "max-bytes"),
        (op.value([1] * 10_000), op.call("collections:deque", b"h\x00") * 500, "max-memory"),
    ],
)
def test_repeated_copies_are_charged(held, copies, rule):
    refused(f"pickle.{rule}", loads, op.pickled(held + b"q\x000](" + copies + b"e"))


def test_a_name_allowed_as_argument_is_not_allowed_as_a_value():
    listed = op.name("builtins:list")
    assert loads(op.pickled(op.call("collections:defaultdict", listed))) == {}
    refused(
        "pickle.global",
        loads,
        op.pickled(op.call("collections:defaultdict", listed + b"q\x00") + b"0h\x00"),
    )


@pytest.mark.parametrize("name", ["safeser_shop:gone", "safeser_gone:x"])
def test_an_allowed_global_that_is_missing_is_a_clear_refusal(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "safeser_shop", types.ModuleType("safeser_shop"))
    profile = Profile.named("data").allowing({name: "reference"})
    refused("pickle.unresolved", loads, op.pickled(op.name(name)), profile=profile)
