"""A trap that tells whether anything of a pickle's ever ran, and what tests of pickles clean up."""

from __future__ import annotations

import contextlib
import copyreg
import sys
import types
import zoneinfo

import pytest


@pytest.fixture(autouse=True)
def _own_reducers():
    """Undo what tblib registers: it changes how every exception is pickled afterwards."""
    before = copyreg.dispatch_table.copy()
    yield
    copyreg.dispatch_table.clear()
    copyreg.dispatch_table.update(before)


@pytest.fixture
def without_tblib():
    """Forget what importing distributed registers; the fixture above puts it back."""
    for kind in list(copyreg.dispatch_table):
        if isinstance(kind, type) and issubclass(kind, BaseException):
            del copyreg.dispatch_table[kind]


@pytest.fixture
def trap(monkeypatch):
    """A module ``safeser_trap`` whose parts note that they were reached."""
    module = types.ModuleType("safeser_trap")
    module.fired = []

    def fire(*args, **_):
        module.fired.append(args)
        return module

    class Armed:
        def __new__(cls, *args):
            fire("new", *args)
            return super().__new__(cls)

        def __init__(self, *args):
            fire("init", *args)

        def __setstate__(self, state):
            fire("setstate", state)

        def __hash__(self):
            fire("hash")
            return 0

        def __reduce__(self):
            return Armed, ()

    fire.__module__ = Armed.__module__ = "safeser_trap"
    Armed.__qualname__ = "Armed"
    fire.__qualname__ = "fire"
    module.fire, module.Armed = fire, Armed
    monkeypatch.setitem(sys.modules, "safeser_trap", module)
    yield module
    assert module.fired == []


@pytest.fixture(scope="session", autouse=True)
def _warm():
    """Read the profiles and their functions first: that imports, and no pickle asked for it."""
    from safeser.pickles import DATA_PROFILES, Profile
    from safeser.pickles.shims import shim

    for entry in Profile.named(*DATA_PROFILES).entries.values():
        for name in (entry.make, entry.state):
            if name:
                shim(name)
    with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError):
        zoneinfo.ZoneInfo("Europe/Nowhere")


@pytest.fixture
def own(monkeypatch):
    """The classes of ``own_classes`` as ``safeser_own:...``."""
    from tests.pickles.own_classes import KEPT, OWN, Single

    module = types.ModuleType("safeser_own")
    for each in OWN:
        monkeypatch.setattr(each, "__module__", "safeser_own")
        monkeypatch.setattr(module, each.__name__, each, raising=False)
    monkeypatch.setitem(sys.modules, "safeser_own", module)
    KEPT.clear()
    Single.only = None
    return module
