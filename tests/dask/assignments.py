"""Where code replaces something of Dask, as far as its text tells.

What a running process shows (programs/changed.py) is complete for what was started there; this
looks at code that did not run as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import distributed.core
import distributed.shuffle._core
import distributed.shuffle._scheduler_plugin
from distributed import Client, Nanny, Scheduler, Worker
from distributed.active_memory_manager import ActiveMemoryManagerExtension
from distributed.stealing import WorkStealing
from distributed.worker_state_machine import WorkerState

_CLASSES = (
    Scheduler,
    Worker,
    Nanny,
    Client,
    WorkStealing,
    WorkerState,
    ActiveMemoryManagerExtension,
    distributed.core.ConnectionPool,
    distributed.shuffle._core.ShuffleRun,
    distributed.shuffle._scheduler_plugin.ShuffleSchedulerPlugin,
)

#: Methods of theirs: no object of safeser's but itself is given one of that name.
METHODS = frozenset(
    name for cls in _CLASSES for name in dir(cls) if callable(getattr(cls, name, None))
)

#: Dictionaries of Dask's, by the names under which it keeps them.
TABLES = frozenset(
    [
        "handlers",
        "stream_handlers",
        "_stream_handlers",
        "extensions",
        "plugins",
        "backends",
        "families",
        "FILTERS",
    ]
)

_CHANGES = frozenset(
    ["update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "__setitem__"]
)
_SETTERS = frozenset(["setattr", "delattr"])


def replaced_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the code of each place where *text* replaces something of Dask."""
    nodes = list(ast.walk(ast.parse(text)))
    known = frozenset(_imported(nodes, ("dask", "distributed")))
    own = frozenset(["self", *_imported(nodes, ("safeser",))])
    for node in nodes:
        if _replaces(node, known, own):
            assert isinstance(node, ast.stmt | ast.expr)
            yield node.lineno, ast.unparse(node)


def _imported(nodes: Iterable[ast.AST], packages: tuple[str, ...]) -> Iterator[str]:
    """Yield the names under which a module of these *nodes* has something of *packages*."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                package = each.name.partition(".")[0]
                if package in packages:
                    yield each.asname or package
        elif isinstance(node, ast.ImportFrom) and _package(node) in packages:
            yield from (each.asname or each.name for each in node.names)


def _package(node: ast.ImportFrom) -> str:
    return (node.module or "").partition(".")[0]


def _replaces(node: ast.AST, known: frozenset[str], own: frozenset[str]) -> bool:
    if isinstance(node, ast.Call):
        return _call_replaces(node, known, own)
    if isinstance(node, ast.Assign | ast.Delete):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    else:
        return False
    while any(isinstance(each, ast.Tuple | ast.List) for each in targets):
        targets = [
            part
            for each in targets
            for part in (each.elts if isinstance(each, ast.Tuple | ast.List) else [each])
        ]
    return any(_is_dasks(each, known, own) for each in targets)


def _is_dasks(target: ast.expr, known: frozenset[str], own: frozenset[str]) -> bool:
    if isinstance(target, ast.Subscript):
        return _is_table(target.value) or _root(target) in known
    if isinstance(target, ast.Attribute):
        root = _root(target)
        return root in known or (root not in own and target.attr in METHODS)
    return False


def _is_table(value: ast.expr) -> bool:
    if isinstance(value, ast.Attribute):
        return value.attr in TABLES
    return isinstance(value, ast.Name) and value.id in TABLES


def _call_replaces(node: ast.Call, known: frozenset[str], own: frozenset[str]) -> bool:
    called = node.func
    first = node.args[0] if node.args else None
    if isinstance(called, ast.Name):
        if called.id in _SETTERS and first is not None:
            named = node.args[1] if len(node.args) > 1 else None
            method = isinstance(named, ast.Constant) and named.value in METHODS
            return _root(first) in known or (method and _root(first) not in own)
        return called.id in known and called.id.startswith("register")
    if not isinstance(called, ast.Attribute):
        return False
    if called.attr in _CHANGES and (_is_table(called.value) or _is_vars(called.value, known)):
        return True
    if called.attr in ("__setattr__", "__setitem__", "__delattr__") and first is not None:
        return _root(first) in known or _is_table(first)
    return called.attr.startswith("register") and _root(called.value) in known


def _is_vars(value: ast.expr, known: frozenset[str]) -> bool:
    """Tell whether *value* is the namespace of something of Dask."""
    if isinstance(value, ast.Attribute) and value.attr == "__dict__":
        return _root(value) in known
    is_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
    return is_call and value.func.id == "vars" and _root(value.args[0]) in known  # type: ignore[union-attr]


def _root(value: ast.expr) -> str | None:
    """Return the name that an expression such as ``a.b[c].d`` or ``vars(a)`` begins with."""
    while True:
        if isinstance(value, ast.Attribute | ast.Subscript):
            value = value.value
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.args:
            value = value.args[0]  # type(a), vars(a), getattr(a, ...)
        elif isinstance(value, ast.Call):
            value = value.func
        else:
            return value.id if isinstance(value, ast.Name) else None


def modules_of(folder: Path, *, but: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.py")):
        if but not in path.parents:
            yield path
