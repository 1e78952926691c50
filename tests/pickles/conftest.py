"""A small pickle assembler, and a trap that tells whether anything of a pickle's ever ran."""

from __future__ import annotations

import struct
import sys
import types
from typing import Any

import numpy as np
import pytest


class Asm:
    """Every method returns opcodes that leave one value on the stack."""

    MARK, STOP, NONE, TRUE = b"(", b".", b"N", b"\x88"
    EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT, EMPTY_SET = b")", b"]", b"}", b"\x8f"

    @staticmethod
    def text(value: str) -> bytes:
        raw = value.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(raw)) + raw

    @staticmethod
    def raw(value: bytes) -> bytes:
        return b"B" + struct.pack("<I", len(value)) + value

    @staticmethod
    def number(value: int) -> bytes:
        raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8b" + struct.pack("<I", len(raw)) + raw

    @classmethod
    def name(cls, name: str) -> bytes:
        module, _, qualname = name.partition(":")
        return cls.text(module) + cls.text(qualname) + b"\x93"

    @staticmethod
    def line_name(name: str) -> bytes:
        module, _, qualname = name.partition(":")
        return b"c" + module.encode() + b"\n" + qualname.encode() + b"\n"

    @classmethod
    def tuple(cls, *items: bytes) -> bytes:
        return b"(" + b"".join(items) + b"t"

    @classmethod
    def list(cls, *items: bytes) -> bytes:
        return b"](" + b"".join(items) + b"e"

    @classmethod
    def dict(cls, *items: bytes) -> bytes:
        return b"}(" + b"".join(items) + b"u"

    @classmethod
    def set(cls, *items: bytes) -> bytes:
        return b"\x8f(" + b"".join(items) + b"\x90"

    @classmethod
    def call(cls, callee: str | bytes, *args: bytes) -> bytes:
        callee = cls.name(callee) if isinstance(callee, str) else callee
        return callee + cls.tuple(*args) + b"R"

    @classmethod
    def new(cls, callee: str | bytes, *args: bytes) -> bytes:
        callee = cls.name(callee) if isinstance(callee, str) else callee
        return callee + cls.tuple(*args) + b"\x81"

    @staticmethod
    def build(target: bytes, state: bytes) -> bytes:
        return target + state + b"b"

    @classmethod
    def value(cls, thing: Any) -> bytes:
        """Return the opcodes of a plain value or an array; bytes are taken for opcodes already."""
        if isinstance(thing, bytes):
            return thing
        if isinstance(thing, dict):
            return cls.dict(*[cls.value(part) for pair in thing.items() for part in pair])
        if isinstance(thing, tuple):
            return cls.tuple(*[cls.value(part) for part in thing])
        if isinstance(thing, np.ndarray):
            dtype = cls.call("numpy:dtype", cls.text(thing.dtype.str[1:]), b"\x89", b"\x88")
            dtype = cls.build(dtype, cls.value(thing.dtype.__reduce__()[2]))
            shape = cls.tuple(*map(cls.number, thing.shape))
            content = cls.raw(thing.tobytes())
            return cls.call("numpy._core.numeric:_frombuffer", content, dtype, shape, cls.text("C"))
        if isinstance(thing, bool) or thing is None:
            return {None: b"N", True: b"\x88", False: b"\x89"}[thing]
        if isinstance(thing, float):
            return b"F" + repr(thing).encode() + b"\n"
        return cls.text(thing) if isinstance(thing, str) else cls.number(thing)

    @staticmethod
    def frame(body: bytes, size: int | None = None) -> bytes:
        return b"\x95" + struct.pack("<Q", len(body) if size is None else size) + body

    @staticmethod
    def pickle(body: bytes, protocol: int = 4) -> bytes:
        return (bytes([0x80, protocol]) if protocol >= 2 else b"") + body + b"."


@pytest.fixture(scope="session")
def asm() -> type[Asm]:
    return Asm


@pytest.fixture(autouse=True)
def _own_reducers():
    """Undo what tblib registers: it changes how every exception is pickled afterwards."""
    import copyreg

    before = copyreg.dispatch_table.copy()
    yield
    copyreg.dispatch_table.clear()
    copyreg.dispatch_table.update(before)


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
