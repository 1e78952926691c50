"""What the gate imports, and what its source never says: DESIGN.md's short list of trusted code.

The checker reads the syntax trees, so that an import inside a function or for a type checker counts
as well. It is a claim about review: inside one process nothing stops code of our own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import safeser.gate

GATE = Path(safeser.gate.__file__).parent

#: Other packages, each with the part that does not touch files, names or code.
PACKAGES = {"cryptography", "msgpack", "numpy", "safeser.gate"}

#: Of the standard library: nothing that opens, imports, starts or reads pickles. Of ``os`` the gate
#: asks for the process's number alone, which a session is bound to.
STANDARD = {
    *("__future__", "base64", "binascii", "collections.abc", "dataclasses", "datetime", "enum"),
    *("functools", "hashlib", "hmac", "itertools", "json", "operator", "os", "re", "struct"),
    *("threading", "time", "typing"),
}
OF_OS = {"os.getpid"}

#: Functions of Python's own that import code, run it, or hand over a namespace.
FUNCTIONS = {"__import__", "compile", "eval", "exec", "globals", "locals", "open", "vars"}

#: What else makes objects without their constructors, or is called back by who does.
NEVER = {
    *("__new__", "__reduce__", "__reduce_ex__", "__setstate__", "__getstate__", "__dict__"),
    *("__subclasses__", "__builtins__", "import_module", "object_hook", "ext_hook", "allow_pickle"),
}

#: What looks up an attribute by a name, and where among its arguments the names are.
BY_NAME = {
    **dict.fromkeys(("getattr", "setattr", "delattr"), slice(1, 2)),
    **dict.fromkeys(("__getattribute__", "attrgetter"), slice(None)),
}

#: Where the gate says one of them nevertheless: file, name, how often, and why.
LISTED = {
    ("canonical.py", "ext_hook"): (1, "refuses extension types"),
    ("format.py", "getattr"): (1, "a limit, by the name that the gate's own code gives"),
    ("key_pairs.py", "__getstate__"): (1, "refuses to pickle or copy secrets"),
    ("key_pairs.py", "__reduce_ex__"): (1, "refuses to pickle or copy secrets"),
    ("noise.py", "__reduce__"): (1, "a copy of a refused handshake loses the detail"),
    ("refusals.py", "__reduce__"): (3, "a copy of an error keeps its rule; it has no other state"),
    ("refusals.py", "getattr"): (1, "the five attributes of _STATE, for such a copy"),
    ("session.py", "__new__"): (1, "only a Session makes a Verified; object's own, kept by name"),
    ("session.py", "__reduce_ex__"): (1, "refuses to copy what was verified"),
    ("session.py", "getattr"): (1, "the slots of Verified, once at import"),
    ("values.py", "getattr"): (1, "the fields of Limits, each checked by its constructor"),
}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # "from safeser import gate" names the parent, and a relative import no package at all.
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from named if node.module in ("safeser", "safeser.gate") else [f"{node.module}"]


def allowed(module: str) -> bool:
    within = any(module == each or module.startswith(f"{each}.") for each in PACKAGES)
    return within or module in STANDARD


def said(tree: ast.AST) -> Iterator[str]:
    """Yield each use of what is refused, and of what is in BY_NAME without a constant name."""
    constant = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            names = node.args[BY_NAME.get(called, slice(0))]
            if names and all(isinstance(name, ast.Constant) for name in names):
                constant.add(id(node.func))
        if isinstance(node, ast.Name) and node.id in FUNCTIONS:
            yield node.id
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("os."):
            yield from {ast.unparse(node)} - OF_OS
        # An import alone looks nothing up; under another name it would not be seen to.
        fields = ("id", "attr", "name", "arg", "asname")
        for name in () if getattr(node, "asname", "") is None else map(node.__dict__.get, fields):
            if name in NEVER or (name in BY_NAME and id(node) not in constant):
                yield name


SOURCES = {path.name: path.read_text() for path in sorted(GATE.glob("*.py"))}


def test_the_gate_imports_nothing_of_safeser_but_itself():
    assert len(SOURCES) > 8
    found = {name: [*imported(ast.parse(text))] for name, text in SOURCES.items()}
    assert {n: m for n, m in found.items() if not all(map(allowed, m))} == {}
    assert [*GATE.rglob("*/*.py")] == []  # a package inside would be looked at here


def test_the_gate_says_nothing_that_makes_objects_or_runs_code():
    found: dict[tuple[str, str], int] = {}
    for name, text in SOURCES.items():
        for each in said(ast.parse(text)):
            found[name, each] = found.get((name, each), 0) + 1
    assert found == {where: times for where, (times, _) in LISTED.items()}


@pytest.mark.parametrize(
    "source",
    [
        "from safeser import policy",
        "from safeser.errors import ConfigError",
        "from . import claims",
        "def f():\n    import pickle",
        "from importlib import util",
        "if TYPE_CHECKING:\n    import pydantic",
        "import socket as s",
        "from safeser.gateway import relay",
    ],
)
def test_the_checker_sees_an_import(source):
    assert not all(map(allowed, imported(ast.parse(source))))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("object.__new__(kind)", "__new__"),
        ("made.__setstate__(state)", "__setstate__"),
        ("value.__reduce_ex__(4)", "__reduce_ex__"),
        ("def __reduce__(self): ...", "__reduce__"),
        ("getattr(module, name)", "getattr"),
        ("getattr(module, f'{name}', None)", "getattr"),
        ("find = getattr", "getattr"),
        ("from operator import attrgetter as at", "attrgetter"),
        ("attrgetter(*names)", "attrgetter"),
        ("eval(text)", "eval"),
        ("msgpack.unpackb(data, object_hook=build)", "object_hook"),
        ("os.open(path, 0)", "os.open"),
        ("vars(self)[name]", "vars"),
    ],
)
def test_the_checker_sees_a_name(source, name):
    assert name in [*said(ast.parse(source))]
