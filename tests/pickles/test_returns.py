"""Each listed callable and class says of which exact types its results are, and they are."""

from __future__ import annotations

import warnings

import pytest

from safeser.errors import ConfigError, PayloadError
from safeser.pickles import DATA_PROFILES, Profile, loads
from safeser.pickles.building.build import Builder
from safeser.pickles.live import Live
from safeser.pickles.nodes import Call
from safeser.pickles.profiles import _entries
from safeser.pickles.reading.machine import read
from safeser.values import Limits
from tests.samples.seeds import seeds

PROFILE = Profile.named(*DATA_PROFILES)


@pytest.mark.parametrize("name", DATA_PROFILES)
def test_every_entry_says_what_it_returns_or_why_it_does_not(name):
    for entry in Profile.named(name).entries.values():
        if entry.role in ("callable", "class"):
            assert bool(entry.returns) != bool(entry.varies), entry.name
        else:
            assert not entry.returns, entry.name


@pytest.mark.filterwarnings("ignore")
def test_what_is_returned_is_a_class_that_there_is():
    missing = []
    for entry in PROFILE.entries.values():
        for name in entry.returns:
            try:
                assert isinstance(Live(name).found, type), name
            except PayloadError:  # its library is not installed
                missing.append(name)
    assert len(missing) < len(PROFILE.entries) / 3


def test_results_are_exactly_of_the_types_that_are_listed():
    seen = set()
    with warnings.catch_warnings(action="ignore"):
        for seed in seeds():
            if seed[0] or seed[1:3] not in (b"\x80\x05", b"\x80\x02"):
                continue
            program = read(seed[1:], buffers=0, limits=Limits())
            builder = Builder(program, PROFILE, buffers=[], limits=Limits())
            try:
                builder.build()
            except PayloadError:
                continue
            for node in program.nodes:
                if type(node) is not Call:
                    continue
                entry = PROFILE.get(node.callee.name)
                made, returned = type(builder.values[node.index]), PROFILE.returned(entry)
                assert not returned or made in returned, (entry.name, made)
                seen.add(entry.name)
    assert len(seen) > 120


@pytest.mark.parametrize("into", [str, bytearray, bool])
def test_a_function_that_returns_something_else_is_refused(monkeypatch, into):
    data = b"cbuiltins\ncomplex\nK\x01K\x02\x86R."
    assert loads(data, profile=Profile("data", PROFILE.entries.values())) == 1 + 2j
    shim = "safeser.pickles.building.build.shim"
    monkeypatch.setattr(shim, lambda name: lambda site, name, *a: into())
    with pytest.raises(PayloadError) as caught:
        loads(data, profile=Profile("fresh", PROFILE.entries.values()))
    assert caught.value.rule == "pickle.class"
    assert "another type" in caught.value.message


def test_a_callable_that_says_nothing_is_no_entry():
    with pytest.raises(ConfigError, match="does not say what it returns"):
        list(_entries({"entry": {"my:make": {"role": "callable", "make": "plain.set"}}}))
    (entry,) = _entries({"entry": {"my:C": {"role": "class", "make": "plain.set"}}})
    assert entry.returns == ("my:C",)
