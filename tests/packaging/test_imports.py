"""Rules on imports that the layering contracts cannot see: pickle is a module of Python's own.

The checker reads the source, so that an import inside a function or by name counts as well.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

import safeser

ROOT = Path(safeser.__file__).parent

#: Modules that only some packages may import, and those packages. The examples, among them the
#: demo's attacks and wrapped unpicklers, are no part of the product: nothing in it imports them.
RESERVED = {
    "pickle": ("safeser.pickles",),
    "_pickle": ("safeser.pickles",),
    "cloudpickle": ("safeser.pickles",),
    "pickletools": ("safeser.pickles",),
    "shelve": (),
    "marshal": (),
    "dill": (),
    "joblib": ("safeser.dask.clients.joblib_calls",),
    "distributed": ("safeser.dask",),
    "dask": ("safeser.dask",),
    "examples": (),
}

#: What a room may never import, whatever the layers say: a relay decides and does not open.
NEVER = {"safeser.gateway": ("safeser.families", "safeser.pickles")}

#: Functions that only write, of modules whose others read.
WRITING = {
    "safeser.tokens.encoding": {"marshal.dumps"},
    "safeser.tokens.kinds": {"pickle.PickleBuffer"},
}


def within(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and name of everything that is imported, by statement or by constant name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("import_module", "__import__", "resolved") and isinstance(
                node.args[0].value, str
            ):
                yield node.lineno, node.args[0].value.partition(":")[0]


def writing(module: str, nodes: Iterable[ast.AST]) -> set[tuple[int, str]]:
    """Return line and name of what *module* may import because it only writes."""
    found: set[tuple[int, str]] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if names <= WRITING.get(module, set()):
                found |= {(node.lineno, name) for name in (node.module, *names)}
    return found


def faults(module: str, source: str) -> list[str]:
    found = []
    nodes = list(ast.walk(ast.parse(source)))
    allowed = writing(module, nodes)
    for line, name in imported(nodes):
        if (line, name) in allowed:
            continue
        for reserved, packages in RESERVED.items():
            if within(name, reserved) and not any(within(module, each) for each in packages):
                found.append(f"{module}:{line} imports {name}")
        for package, refused in NEVER.items():
            if within(module, package) and any(within(name, each) for each in refused):
                found.append(f"{module}:{line} imports {name}")
    return found


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found.append((".".join(parts).removesuffix(".__init__"), path))
    return found


@pytest.mark.slow
@pytest.mark.unmeasured
def test_every_module_keeps_to_its_rooms_imports():
    checked = modules()
    assert len(checked) > 30
    assert [f for name, path in checked for f in faults(name, path.read_text())] == []


LIBRARY = """
import sys

class NoDask:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dask", "distributed", "tornado", "pandas", "pyarrow"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoDask())
import warnings
warnings.simplefilter("error")
import safeser
"""


def in_process(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", LIBRARY + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


#: Modules with what they must not import, in the ways there are to write it.
FAULTY = [
    ("safeser.families.plain", "def f():\n    import pickle as p"),
    ("safeser.channel", "from importlib import import_module\nimport_module('_pickle')"),
    ("safeser.channel", "__import__('cloudpickle')"),
    ("safeser.policy.source.model", "from distributed.core import rpc"),
    ("safeser.picklesque", "from pickle import loads"),
    ("safeser.pickles.shims.numpy.arrays", "import dask"),
    ("safeser.gateway.relay", "from safeser import pickles"),
    ("safeser.tokens.encoding", "from marshal import dumps, loads"),
]


@pytest.mark.parametrize(("module", "source"), FAULTY)
def test_the_checker_finds(module, source):
    assert faults(module, source)


def test_the_library_works_without_dask():
    names = sorted(set(safeser.__all__) - {"Client", "LocalCluster", "Security"})
    in_process(f"for name in {names}: assert getattr(safeser, name) is not None")


def test_import_alone_is_light():
    out = in_process("print(sorted({'numpy', 'pydantic', 'typer', 'rich'} & set(sys.modules)))")
    assert out == "[]\n"


@pytest.mark.parametrize("name", ["safeser", "safeser.audit", "safeser.confinement"])
def test_names_that_are_imported_when_first_used(name):
    package = import_module(name)
    assert all(getattr(package, each) is not None for each in package.__all__)
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing
