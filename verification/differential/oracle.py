"""What CPython's own unpicklers say about a pickle that safeser accepted.

The one rule: only bytes that safeser accepted reach a stock unpickler, and even then ``find_class``
there gives nothing but names that safeser said would be used.
"""

from __future__ import annotations

import codecs
import importlib
import io
import pickle
import pickletools
import sys
import warnings
import zoneinfo
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from safeser import pickles
from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.values import Limits
from safeser.pickles.judge import judge
from safeser.pickles.names import canonical
from safeser.pickles.reading.machine import read
from safeser.pickles.shims import shim
from tests.equality import difference

__all__ = ["Disagreement", "examine"]

PROFILE = pickles.Profile.named(*pickles.DATA_PROFILES)
LIMITS = Limits(max_bytes=1 << 20, max_memory=50_000 << 7)


# What pickle spells other things with: a nested name, and an instantiation in protocols 0 and 1.
_GETATTR, _RECONSTRUCTOR = "builtins:getattr", "copyreg:_reconstructor"
_SPELLING = {_GETATTR, _RECONSTRUCTOR, "builtins:object"}

# Whatever the shims import is imported first: what comes later, a pickle asked for.
zoneinfo.ZoneInfo("Europe/Zurich")
for _codec in ("latin-1", "raw-unicode-escape", "unicode-escape"):
    codecs.lookup(_codec)
# What says that a parameter is none of an estimator's prints it.
with suppress(ImportError):
    importlib.import_module("sklearn.utils._pprint")
# Where the package tzdata is installed, listing the zones imports it.
zoneinfo.available_timezones()
for _entry in PROFILE.entries.values():
    # Some are names of another version of their library, and some say that they are old.
    with suppress(PayloadError), warnings.catch_warnings(action="ignore"):
        PROFILE.object_of(_entry)
    for _name in filter(None, (_entry.make, _entry.state)):
        shim(_name)


class Disagreement(Exception):
    """Two readers of one pickle do not say the same."""


def examine(data: bytes, buffers: Sequence[bytes | bytearray]) -> str:
    """Return ``"accepted"``, or the rule by which *data* was refused.

    :raises Disagreement: if safeser and CPython do not read the same, or safeser fails in a way
        that is not a refusal.
    """
    before = len(sys.modules)
    try:
        ours = pickles.loads(data, buffers=_fresh(buffers), profile=PROFILE, limits=LIMITS)
    except (PolicyDenied, PayloadError) as error:
        if not error.rule:
            raise Disagreement("a refusal without a rule") from error
        ours, rule = None, error.rule
    except Exception as error:
        raise Disagreement(f"not a refusal: {type(error).__name__}") from error
    else:
        rule = ""
    if len(sys.modules) != before:
        raise Disagreement("a pickle imported something")
    if rule:
        return rule
    again = pickles.loads(data, buffers=_fresh(buffers), profile=PROFILE, limits=LIMITS)
    _same("a second load", ours, again)
    # As inspect has it, without asking each shipped profile as well.
    said = judge(read(data, buffers=len(buffers), limits=LIMITS), PROFILE)
    uses = {(use.name, use.role) for use in said}
    names = {name for name, _ in uses}
    _same("the C unpickler", ours, _read(_CUnpickler(data, names, _fresh(buffers))))
    slow = _PythonUnpickler(data, names, _fresh(buffers))
    _same("the Python unpickler", ours, _read(slow))
    acted = {use for use in uses if use[1] != "referenced"}
    if slow.acted != acted:
        raise Disagreement(f"CPython did {slow.acted ^ acted}, or safeser said so alone")
    _readable(data)
    return "accepted"


def _fresh(buffers: Sequence[bytes | bytearray]) -> list[bytes | bytearray]:
    """Return *buffers*, those that can be written to as copies: an object may share them."""
    return [bytearray(b) if isinstance(b, bytearray) else b for b in buffers]


def _read(unpickler: Any) -> Any:
    try:
        return unpickler.load()
    except Disagreement:
        raise
    except Exception as error:
        raise Disagreement(f"{type(unpickler).__name__} fails: {error!r}") from error


def _same(reader: str, ours: Any, theirs: Any) -> None:
    where = difference(ours, theirs)
    if where:
        raise Disagreement(f"{reader} gives something else at {where}")


def _readable(data: bytes) -> None:
    try:
        for _ in pickletools.genops(data):
            pass
    except Exception as error:
        raise Disagreement(f"pickletools cannot read it: {error!r}") from error


class _Names:
    """The ``find_class`` of both: what safeser said would be used, and nothing else."""

    allowed: set[str]
    protocol_known: int

    def find_class(self, module: str, name: str) -> Any:
        written = f"{module}:{name}"
        mapped = ":".join(canonical(module, name))
        spells = mapped in _SPELLING or any(said.startswith(f"{mapped}.") for said in self.allowed)
        if written not in self.allowed and mapped not in self.allowed and not spells:
            raise Disagreement(f"CPython looks up {written}, safeser did not say so")
        found = super().find_class(module, name)  # type: ignore[misc]
        self.found(found, mapped if spells or mapped in self.allowed else written)
        return found

    def found(self, _found: Any, _name: str) -> None:
        """Take note of what a name stands for."""


class _CUnpickler(_Names, pickle.Unpickler):
    def __init__(self, data: bytes, allowed: set[str], buffers: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self.allowed = allowed


class _PythonUnpickler(_Names, pickle._Unpickler):  # type: ignore[name-defined,misc]
    """Writes down what is called, instantiated and built, by the name that it was found by."""

    def __init__(self, data: bytes, allowed: set[str], buffers: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self.allowed = allowed
        self.known: dict[int, str] = {}
        self.made: dict[int, tuple[Any, str]] = {}
        self.acted: set[tuple[str, str]] = set()

    def found(self, found: Any, name: str) -> None:
        self.known[id(found)] = name

    def note(self, callee: Any, role: str) -> str:
        name = self.known.get(id(callee), "<result of a call>")
        self.acted.add((name, role))
        return name

    def keep(self, name: str) -> None:
        made = self.stack[-1]
        self.made[id(made)] = made, name

    dispatch: ClassVar = dict(pickle._Unpickler.dispatch)  # type: ignore[attr-defined]

    def load_reduce(self) -> None:
        callee, args = self.stack[-2:]
        spelling = self.known.get(id(callee))
        if spelling == _GETATTR:
            name = f"{self.known[id(args[0])]}.{args[1]}"
            super().load_reduce()
            self.known[id(self.stack[-1])] = name
        elif spelling == _RECONSTRUCTOR and _RECONSTRUCTOR not in self.allowed:
            name = self.note(args[0], "instantiated")
            super().load_reduce()
        else:
            name = self.note(callee, "called")
            super().load_reduce()
        self.keep(name)

    def load_newobj(self) -> None:
        name = self.note(self.stack[-2], "instantiated")
        super().load_newobj()
        self.keep(name)

    def load_newobj_ex(self) -> None:
        name = self.note(self.stack[-3], "instantiated")
        super().load_newobj_ex()
        self.keep(name)

    def _instantiate(self, klass: Any, args: Sequence[Any]) -> None:
        """Take note of INST and OBJ, which both end here."""
        name = self.note(klass, "called" if args else "instantiated")
        super()._instantiate(klass, args)
        self.keep(name)

    def load_build(self) -> None:
        _, name = self.made.get(id(self.stack[-2]), (None, "<result of a call>"))
        self.acted.add((name, "built"))
        super().load_build()

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.BUILD[0]] = load_build
