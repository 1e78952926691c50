"""What the shipped profiles say of each global: its review, results, functions and verdict."""

from __future__ import annotations

import collections
import pickle
import warnings

import numpy as np
import pytest

from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, Profile, inspect, loads
from safeser.pickles.building.build import Builder
from safeser.pickles.judge import judge
from safeser.pickles.live import Live
from safeser.pickles.nodes import Call
from safeser.pickles.profiles import ROLES, _entries
from safeser.pickles.reading.machine import read
from safeser.pickles.shims import Site, shim
from tests.pickles.forging import refused
from tests.samples import opcodes as op
from tests.samples.opcodes import call, pickled
from tests.samples.pickles_honest import STDLIB
from tests.samples.seeds import seeds


@pytest.mark.parametrize("name", DATA_PROFILES)
def test_every_entry_says_what_was_reviewed(name):
    entries = Profile.named(name).entries.values()
    assert entries
    assert [entry.name for entry in entries if not entry.why] == []
    for entry in entries:
        assert entry.role in ROLES
        assert all(callable(shim(part)) for part in (entry.make, entry.state) if part)
        assert entry.make or (entry.role in ("reference", "constant", "enum") and not entry.state)
        # What has a reviewed function is never looked up, and may be a name of other versions.
        assert entry.make or Profile.named(name).object_of(entry) is not entry


@pytest.mark.parametrize("name", ["exceptions", "sklearn"])
def test_classes_of_a_group_are_hashed_and_compared_by_identity_and_have_no_del(name):
    profile = Profile.named(name)
    looked_at = 0
    for entry in profile.entries.values():
        if entry.role != "class" or "by identity" not in entry.why:
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                found = profile.object_of(entry)
        except PayloadError:
            continue  # its library is not installed, or has it under another name
        looked_at += 1
        assert not hasattr(found, "__del__"), entry.name
        if not entry.grows and not issubclass(found, dict):
            assert (found.__hash__, found.__eq__) == (object.__hash__, object.__eq__), entry.name
    assert looked_at > 100


STATES = sorted(
    entry.state
    for entry in Profile.named("data", "numpy").entries.values()
    if entry.state
    and entry.state
    not in (
        # These are made whole, and their state is added to what they are.
        "holders.namespace_state",
        "holders.mail_policy_state",
        "records.iterator_at",
        "numpy_random.generator_state",
    )
)


@pytest.mark.parametrize("name", sorted(set(STATES)))
def test_bypass_no_state_for_what_is_no_draft(name):
    site = Site(Limits(), given=0)
    with pytest.raises(PayloadError):
        shim(name)(site, object(), {"data": [], "maps": [], "template": "", "int": 5})


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


@pytest.mark.slow
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
    error = refused("pickle.class", loads, data, profile=Profile("fresh", PROFILE.entries.values()))
    assert "another type" in error.message


def test_a_callable_that_says_nothing_is_no_entry():
    with pytest.raises(ConfigError, match="does not say what it returns"):
        list(_entries({"entry": {"my:make": {"role": "callable", "make": "plain.set"}}}))
    (entry,) = _entries({"entry": {"my:C": {"role": "class", "make": "plain.set"}}})
    assert entry.returns == ("my:C",)


@pytest.mark.slow
def test_the_first_problem_under_every_profile():
    factory = pickle.dumps([collections.defaultdict(list)], 2)
    mixed = op.value([op.new("my:A"), op.name("my:f"), op.name("builtins:list"), op.new("os:B")])
    many = [factory, op.pickled(mixed), b"Px\n.", b"cbuiltins\nlist\n)R)R."]
    many += [seed[1:] for seed in seeds()[5::6]]
    problems = 0
    for data in many:
        for asked in ("data", "functions"):
            seen = inspect(data, profile=asked)
            for name in DATA_PROFILES:
                uses = judge(seen.program, Profile.named(name))
                told = [f"{use.name} is {use.role}: {use.problem}" for use in uses if use.problem]
                assert seen.verdicts[name] == (told[0] if told else "")
                problems += bool(told)
    assert problems > 100


CALLABLES = [value for value in STDLIB if callable(value) and value is not NotImplemented]


@pytest.mark.parametrize(
    "value", CALLABLES, ids=lambda v: getattr(v, "__qualname__", type(v).__name__)
)
def test_a_callable_needs_the_profile(value):
    data = pickle.dumps(value)
    if value in (np.float64, np.dtypes.Float64DType):
        assert loads(data, profile="numpy") is value
    else:
        with pytest.raises(SafeserError):
            loads(data, profile=("data", "numpy", "exceptions"))


def test_classes_are_never_called():
    with pytest.raises(PolicyDenied):
        loads(pickled(call("builtins:int")), profile="functions")


def test_every_reference_is_there_and_computes():
    profile = Profile.named("functions")
    for entry in profile.entries.values():
        assert callable(profile.live(entry).found)
    reach = "getattr setattr delattr eval exec open input print vars globals locals __import__"
    reach += " compile type map filter memoryview"
    assert not {f"builtins:{name}" for name in reach.split()} & {
        entry.name for entry in profile.entries.values() if entry.referable
    }
    files = ("tofile", "load", "save", "fromfile", "memmap", "ndarray", "dtype", "frompyfunc")
    assert not {f"numpy:{name}" for name in files} & set(profile.entries)
