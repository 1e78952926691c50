"""Definitions: what makes two of them the same, and what makes them different."""

from __future__ import annotations

import enum
import functools
import os
import reprlib
import sys
import types

import cloudpickle
import pytest

from safeser import tokenize
from safeser.tokens import references


def defined(source, name="f", *, module="__main__", filename="<cell 1>", **space):
    """Return what *source* defines, as a cell of a notebook does."""
    space |= {"__name__": module}
    exec(compile(source, filename, "exec"), space)
    return space[name]


def token(source, **more):
    return tokenize(defined(source, **more), ensure_deterministic=True)


def distinct(found):
    return len({tokenize(each, ensure_deterministic=True) for each in found}) == len(found)


BASE_CODE = (lambda: None).__code__
BASE = """
def f(x, y=1, *, z=2):
    'text'
    total = x + y + z
    return [each for each in {"a", "b", total} if each in {1, 2, 3}]
"""


def test_where_a_function_stands_does_not_count():
    assert token(BASE) == token("\n\n# a comment\n" + BASE, filename="<cell 9>")


@pytest.mark.parametrize(("old", "new"), [
    ("f(", "g("), ("y=1", "y=1.0"), ("y=1", "y=True"), ("y=1", "y='1'"), ("z=2", "z=3"),
    ("x + y", "x - y"), ("x + y", "y + x"), ('"b"', 'b"b"'), ("{1, 2, 3}", "{1, 2, 4}"),
    ("{1, 2, 3}", "(1, 2, 3)"), ("{1, 2, 3}", "{1, 2.0, 3}"), ("'text'", "'other'"), ("*, z", "z"),
    ("def f", "async def f"), ("return [", "yield ["), ("x + y + z", "x + y + z + w"),
])  # fmt: skip
def test_each_change_of_a_function_counts(old, new):
    changed = BASE.replace(old, new)
    assert changed != BASE
    name = "g" if new == "g(" else "f"
    assert token(changed, name=name) != token(BASE)


def test_globals_count_as_far_as_they_are_used():
    source = "def f(): return g() + K\ndef g(): return h()\ndef h(): return L\n"
    base = token(source, K=1, L={"a", "b"}, M=1)
    assert base == token(source, K=1, L={"b", "a"}, M=2)
    assert base != token(source, K=2, L={"a", "b"})
    assert base != token(source, K=1, L={"a", "c"})
    assert base != token(source, K=1)
    nested = "def f():\n  def g():\n    class A:\n      x = K\n    return lambda: L\n  return g\n"
    found = {token(nested, K=k, L=n) for k in (1, 2) for n in (1, 2)}
    assert len(found) == 4


def test_mutual_recursion_counts_on_both_sides():
    even = "def even(n): return n == 0 or odd(n - 1)\n"
    odd = "def odd(n): return n != 0 and even(n - 1)\n"
    base = token(even + odd, name="even")
    assert base == token(odd + even, name="even")
    assert base != token(even + odd, name="odd")
    assert base != token(even + odd.replace("!= 0", "!= 1"), name="even")


def test_closures_attributes_and_annotations_count():
    def made(x, tag=None, note=int):
        def inner(y):
            return x, y

        inner.__annotations__ = {"y": note}
        if tag:
            inner.tag = tag
        return inner

    found = [made(1), made(1.0), made({"a"}), made(1, tag=1), made(1, note=str), made(made(1))]
    assert len({tokenize(each) for each in found}) == len(found)
    assert tokenize(made([1])) == tokenize(made([1]))

    def empty():
        def inner():
            return later

        first = tokenize(inner, ensure_deterministic=True)
        later = 1
        return first, tokenize(inner)

    before, after = empty()
    assert before != after
    assert before == empty()[0]


CLASS = """
class Base:
    def shared(self): return 1

class C(Base):
    'doc'
    limit: int = 5
    def __init__(self, x): self.x = x
    def get(self): return super().shared() + self.x
    @property
    def double(self): return 2 * self.x
    @staticmethod
    def make(): return C(1)
"""


@pytest.mark.parametrize(("old", "new"), [
    ("limit: int = 5", "limit: int = 6"), ("limit: int", "limit: float"), ("2 * ", "3 * "),
    ("return 1\n", "return 2\n"), ("@staticmethod\n    def make()", "def make(C)"),
    ("C(1)", "C(2)"), ("self.x = x", "self.x = x or 1"), ("(Base)", "(Base, dict)"),
    ("'doc'", "'other'"), ("@property", "@classmethod"),
    ("    def shared", "    extra = 1\n    def shared"),
])  # fmt: skip
def test_each_change_of_a_class_counts_for_it_and_its_instances(old, new):
    changed = CLASS.replace(old, new)
    assert changed != CLASS
    assert token(changed, name="C") != token(CLASS, name="C")
    if "dict" not in new:
        one, other = (defined(each, "C")(1) for each in (CLASS, changed))
        assert tokenize(one, ensure_deterministic=True) != tokenize(other)
    assert tokenize(defined(CLASS, "C")(1)) == tokenize(defined("#\n" + CLASS, "C")(1))


def test_a_class_stays_the_same_while_it_is_used():
    cls = defined(CLASS + "\n    __slots__ = ()\n", "C")
    plain = defined("class C: pass", "C")
    before = tokenize(cls), tokenize(plain)
    import copyreg

    copyreg._slotnames(cls)
    assert plain.__annotations__ == {}
    assert (tokenize(cls), tokenize(plain)) == before


def test_attributes_and_slots_of_instances_count():
    source = "class C:\n  __slots__ = ('a', 'b')\n  def __init__(s, **k):\n"
    source += "    for n in k: setattr(s, n, k[n])"
    make = defined(source, "C")
    found = [make(), make(a=1), make(b=1), make(a=1, b=1), make(a=2), make(a="1")]
    assert distinct(found)


def test_enums_count_with_members_order_and_methods():
    def made(bases=(enum.Enum,), **members):
        return bases[0]("E", members, module="__main__")

    found = [
        made(A=1, B=2), made(B=2, A=1), made(A=1, B=3), made(A=1, B=1), made(A=1),
        made((enum.IntEnum,), A=1), made((enum.Flag,), A=1),
    ]  # fmt: skip
    assert distinct(found)
    source = "import enum\nclass E(enum.Enum):\n  A = 1\n  def m(self): return 1\n"
    new = "  def __new__(cls, v):\n    s = object.__new__(cls)\n    s._value_ = v\n    return s\n"
    changed = [source, source.replace("return 1", "return 2"), source + new]
    assert len({token(each, name="E") for each in changed}) == 3


def test_a_dataclass_counts_by_the_order_of_its_fields():
    source = "import dataclasses\n@dataclasses.dataclass(init=False, repr=False)\nclass C:\n"
    one, other = source + "  a: int\n  b: int\n", source + "  b: int\n  a: int\n"
    assert token(one, name="C") != token(other, name="C")
    assert token(one, name="C") == token(one, name="C")
    factory = source + "  a: dict = dataclasses.field(default_factory=lambda: {1: 2})\n"
    assert token(factory, name="C") != token(factory.replace("1: 2", "1: 3"), name="C")
    own = source.replace("class C:\n", "class C:\n  'own text'\n") + "  a: int\n"
    assert token(own, name="C") != token(own.replace("own", "another"), name="C")


@pytest.fixture
def module(monkeypatch):
    """A module of the user's own, which the process has imported from a file."""

    def make(source, name="usermodule", **more):
        made = types.ModuleType(name)
        made.__file__ = f"/home/user/{name}.py"
        made.__dict__.update(more)
        exec(compile(source, made.__file__, "exec"), made.__dict__)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return make


def test_ones_own_module_and_its_functions_count_by_their_code(module):
    for part in (lambda made: made.f, lambda made: made):
        one = tokenize(part(module("def f(): return 1")), ensure_deterministic=True)
        assert one == tokenize(part(module("#\ndef f(): return 1")))
        assert one != tokenize(part(module("def f(): return 2")))
        assert one != tokenize(part(module("def f(): return 1", name="other")))
    assert tokenize(sys) != tokenize(types)


def test_what_code_uses_of_ones_own_modules_counts(module):
    source = "def f(): return usermodule.g() + usermodule.sub.K"

    def used(code, k=1):
        made = module(code)
        made.sub = module("", name="usermodule.sub", K=k, usermodule=made)
        return token(source, usermodule=made)

    base = used("def g(): return 1\ndef unused(): return 1")
    assert base == used("def g(): return 1\ndef unused(): return 2")
    assert base != used("def g(): return 2\ndef unused(): return 1")
    assert base != used("def g(): return 1\ndef unused(): return 1", k=2)


def test_a_library_counts_by_name_and_version(monkeypatch):
    monkeypatch.setattr(references, "_installed", {})
    one = tokenize(cloudpickle.dumps, ensure_deterministic=True)
    monkeypatch.setattr(cloudpickle, "__version__", "0.0.1")
    assert one == tokenize(cloudpickle.dumps), "the version of a loaded library does not change"
    monkeypatch.setattr(references, "_installed", {})
    assert one != tokenize(cloudpickle.dumps)


def test_what_a_library_holds_does_not_count_for_its_closures(monkeypatch):
    made, other = (reprlib.recursive_repr()(each) for each in (str, repr))
    assert "get_ident" in made.__code__.co_names
    before = tokenize(made, ensure_deterministic=True)
    assert before != tokenize(other)
    assert tokenize(cloudpickle.loads(cloudpickle.dumps(made))) == before
    monkeypatch.setattr(reprlib, "get_ident", object())
    assert tokenize(made, ensure_deterministic=True) == before


def test_a_namespace_that_names_itself_a_library_hides_nothing():
    source = "def f(): return K + get_ident + fillvalue"
    spaces = [{"K": 1}, {"K": 2}, {"get_ident": 1}, {"get_ident": None}, {}, {"fillvalue": None}]
    spaces.append({"get_ident": reprlib.get_ident})
    found = [token(source, module="reprlib", **each) for each in spaces]
    assert len(set(found)) == len(found)


def test_a_cache_does_not_count_and_the_function_does():
    @functools.lru_cache(maxsize=2)
    def f(x):
        return x

    before = tokenize(f, ensure_deterministic=True)
    f(1)
    assert tokenize(f) == before
    assert tokenize(functools.lru_cache(maxsize=3)(f.__wrapped__)) != before
    assert tokenize(functools.lru_cache(functools.partial(f, 1)), ensure_deterministic=True)


def test_parts_of_definitions_count():
    def code(*constants):
        return BASE_CODE.replace(co_consts=constants)

    def cell(value):
        return (lambda: value).__closure__[0]

    empty = types.CellType()
    found = [
        code(1), code(1.0), code((1,)), code(frozenset({1})), code(b"1"), code(slice(1)),
        code(slice(2)), code((1, (2,))), code(((1,), 2)), cell(1), cell(2), empty, property(len),
        property(None, len), staticmethod(len), classmethod(len), functools.cached_property(len),
        str.upper, str.lower, int.__add__, float.__add__, dict.fromkeys, dict.__dict__["fromkeys"],
        type.__dict__["__dict__"], types.FunctionType.__closure__, os.environ, type(os.environ),
        sys.getsizeof, os.getcwd,
    ]  # fmt: skip
    assert distinct(found)


def test_a_function_of_c_that_its_module_hides_counts_by_its_name(monkeypatch):
    hidden, other = os.getcwd, os.getpid
    monkeypatch.delattr("posix.getcwd")
    monkeypatch.delattr("posix.getpid")
    assert tokenize(hidden, ensure_deterministic=True) != tokenize(other, ensure_deterministic=True)
    assert tokenize(hidden) == tokenize(hidden)


def test_partials_and_methods_count_by_all_their_parts():
    class C:
        def __init__(self, x):
            self.x = x

        def f(self):
            return 1

        def g(self):
            return 1

    partial = functools.partial
    found = [
        C(1).f, C(2).f, C(1).g, C.f, partial(max), partial(max, 1), partial(max, 1, key=len),
        partial(min, 1),
        partial(max, key=1), [1].append, [2].append, [1].extend, (1).__add__, (2).__add__,
    ]  # fmt: skip
    assert distinct(found)
    assert tokenize(C(1).f) == tokenize(C(1).f)
