"""The object of an allowed name: it calls itself so, or it is refused with its own name."""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import pytest

from safeser.allowed import ALLOWED_ROLES, own_object
from safeser.errors import PolicyDenied
from tests.pickles.forging import refused

SOURCE = """
import functools, enum

class Outer:
    LIMIT = 5
    class Inner:
        pass
    def method(self): ...
    @classmethod
    def make(cls): ...
    @staticmethod
    def cut(): ...

class Sub(Outer):
    pass

class Colour(enum.Enum):
    RED = 1

def train(x): ...

@functools.lru_cache
def kept(x): ...

@functools.wraps(train)
def wrapped(x): ...

half = functools.partial(train, 1)
bound = Outer().method
instance = Outer()
renamed = train
Alias = Outer
limit = 5
words = ("a",)
nothing = None
unnamed = train.__code__
"""


@pytest.fixture
def library() -> types.ModuleType:
    module = types.ModuleType("mylib")
    exec(SOURCE, vars(module))
    return module


@pytest.mark.parametrize(("name", "role"), [
    ("Outer", "class"), ("Outer", "reference"), ("Outer.Inner", "class"),
    ("Outer.method", "reference"), ("Outer.make", "callable"), ("Outer.cut", "callable"),
    ("Colour", "enum"), ("train", "reference"), ("kept", "reference"), ("limit", "constant"),
    ("Outer.LIMIT", "constant"), ("nothing", "constant"),
])  # fmt: skip
def test_what_calls_itself_so_is_found(library: types.ModuleType, name: str, role: str) -> None:
    expected: Any = library
    for part in name.split("."):
        expected = getattr(expected, part)
    assert own_object(f"mylib:{name}", role, library) == expected


@pytest.mark.parametrize("role", [role for role in ALLOWED_ROLES if role != "constant"])
@pytest.mark.parametrize(("name", "said"), [
    ("renamed", "leads to mylib:train"), ("wrapped", "leads to mylib:train"),
    ("Alias", "leads to mylib:Outer"), ("Alias.Inner", "leads to mylib:Outer.Inner"),
    ("Sub.make", "leads to mylib:Outer.make"), ("bound", "leads to mylib:Outer.method"),
    ("half", "an object without a name of its own, of class functools:partial"),
    ("instance", "an object without a name of its own, of class mylib:Outer"),
    ("instance.method", "passes through an object without a name of its own"),
    ("train.__code__", "passes through mylib:train"),
    ("functools.partial", "passes through another module"),
    ("functools", "leads to another module"),
    ("limit", "an object without a name of its own, of class builtins:int"),
    ("unnamed", "leads to an object without a name of its own"),
])  # fmt: skip
def test_everything_else_is_refused(
    library: types.ModuleType, name: str, said: str, role: str
) -> None:
    error = refused("pickle.allowed-name", own_object, f"mylib:{name}", role, library)
    assert f"mylib:{name} is allowed" in error.message
    assert said in error.message
    assert "a module of your own" in error.fix


@pytest.mark.parametrize("name", ["words", "instance", "instance.method", "functools.partial"])
def test_a_constant_is_a_plain_value_of_the_module(library: types.ModuleType, name: str) -> None:
    with pytest.raises(PolicyDenied):
        own_object(f"mylib:{name}", "constant", library)


def test_what_is_not_there_is_said_elsewhere(library: types.ModuleType) -> None:
    for name in ("gone", "Outer.gone"):
        with pytest.raises(AttributeError):
            own_object(f"mylib:{name}", "class", library)


class _Liar:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class _Text(str):
    __slots__ = ()


def test_what_lies_about_its_name_is_refused(library: types.ModuleType) -> None:
    pretending = functools.partial(print)
    pretending.__module__, pretending.__qualname__ = _Text("mylib"), "pretending"  # type: ignore[attr-defined]
    vars(library).update(liar=_Liar(), pretending=pretending)
    for name in ("liar", "pretending"):
        with pytest.raises(PolicyDenied):
            own_object(f"mylib:{name}", "reference", library)


def test_objects_of_libraries_without_a_name_are_refused() -> None:
    np = pytest.importorskip("numpy")
    vars(module := types.ModuleType("mylib")).update(
        add=np.add, kind=np.dtype("f8"), made=np.frompyfunc(abs, 1, 1), floor=sys.intern
    )
    for name in ("add", "kind", "made", "floor"):
        with pytest.raises(PolicyDenied):
            own_object(f"mylib:{name}", "reference", module)


BASES = """
import collections, ctypes, io, sqlite3, subprocess, tempfile, urllib.parse, zipfile

class File(io.FileIO): pass
class Grandchild(File):
    class Inner: pass
    def method(self): ...
class Address(ctypes.Structure): pass
class Database(sqlite3.Connection): pass
class Process(subprocess.Popen): pass
class Archive(zipfile.ZipFile): pass

class Failure(sqlite3.DatabaseError): pass
class Table(collections.UserDict): pass
class Where(urllib.parse.ParseResult): pass
"""


@pytest.fixture
def deriving() -> types.ModuleType:
    module = types.ModuleType("mylib")
    exec(BASES, vars(module))
    return module


@pytest.mark.parametrize("role", [role for role in ALLOWED_ROLES if role != "constant"])
@pytest.mark.parametrize(("name", "said"), [
    ("File", "_io:FileIO"), ("Grandchild", "_io:FileIO"), ("Grandchild.Inner", "_io:FileIO"),
    ("Grandchild.method", "_io:FileIO"), ("Address", "_ctypes:Structure"),
    ("Database", "sqlite3:Connection"), ("Process", "subprocess:Popen"),
    ("Archive", "zipfile:ZipFile"),
])  # fmt: skip
def test_a_class_that_inherits_reach_is_refused(
    deriving: types.ModuleType, name: str, said: str, role: str
) -> None:
    error = refused("pickle.allowed-name", own_object, f"mylib:{name}", role, deriving)
    assert f"mylib:{name} is allowed, but derives from {said}" in error.message


@pytest.mark.parametrize("name", ["Failure", "Table", "Where"])
def test_what_inherits_values_is_found(deriving: types.ModuleType, name: str) -> None:
    assert own_object(f"mylib:{name}", "class", deriving) is getattr(deriving, name)
