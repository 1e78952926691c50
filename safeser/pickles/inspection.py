"""Inspect a pickle without loading it: its tree, its globals, and the verdict of each profile.

The one rule: nothing is imported or built, and a peer's text is shown short, plain and escaped,
however large or cyclic the value is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from safeser.pickles.judge import Use
from safeser.pickles.names import shown
from safeser.pickles.nodes import (
    ABSENT,
    KINDS,
    Buffer,
    ByteArray,
    Call,
    DictOf,
    GlobalRef,
    Node,
    Persistent,
    Program,
)

__all__ = ["Inspection"]

_MAX_LINES = 2000
_MAX_ITEMS = 100
# Of the tree as JSON, whose readers are recursive; and of the list of globals.
_MAX_NODES = 5000
_MAX_DEPTH = 60
_MAX_USES = 5000
_MAX_INDENT = 40
_MAX_TEXT = 60


@dataclass(frozen=True, slots=True)
class Inspection:
    """The content of one pickle, and the verdicts on it.

    :param globals: every use of a global under the profile that was asked for, in stream order.
    :param verdicts: profile to ``""`` where it would let every use pass, else the first problem.
    """

    program: Program = field(repr=False)
    profile: str
    globals: tuple[Use, ...]
    verdicts: Mapping[str, str]

    @property
    def tree(self) -> Any:
        """The root node; leaves stand for themselves."""
        return self.program.root

    @property
    def permitted(self) -> bool:
        """Whether the profile that was asked for lets every use pass; budgets aside."""
        return not self.verdicts[self.profile]

    def text(self) -> str:
        """Return the tree as indented lines; shared values are shown once and then as ``&n``."""
        return "\n".join(islice(_lines(self.tree), _MAX_LINES))

    def as_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON can carry, however large or cyclic the pickle is.

        ``tree`` is nested: each part has a ``kind``. Containers and calls have an ``id``, by which
        ``{"kind": "same"}`` refers to them, and their ``size``, of which at most 100 are shown.
        """
        return {
            "protocol": self.program.protocol,
            "bytes": self.program.size,
            "profile": self.profile,
            "permitted": self.permitted,
            "verdicts": dict(self.verdicts),
            "globals": [
                {
                    "name": shown(use.name),
                    "role": use.role,
                    "offset": use.offset,
                    "problem": use.problem,
                }
                for use in self.globals[:_MAX_USES]
            ],
            "uses": len(self.globals),
            "tree": _as_json(self.tree),
        }


def _lines(root: Any) -> Iterator[str]:
    seen: set[int] = set()
    pending: list[tuple[int, str, Any]] = [(0, "", root)]
    while pending:
        depth, label, value = pending.pop()
        indent = "  " * min(depth, _MAX_INDENT) + label
        if not isinstance(value, Node):
            yield indent + _leaf(value)
        elif value.index in seen:
            yield f"{indent}&{value.index}"
        else:
            seen.add(value.index)
            yield f"{indent}{_head(value)}  #{value.index}"
            parts = _parts(value)
            pending.extend((depth + 1, name, part) for name, part in reversed(parts))


def _leaf(value: Any) -> str:
    if isinstance(value, str | bytes):
        cut = "" if len(value) <= _MAX_TEXT else f"... {len(value)} in all"
        return f"{value[:_MAX_TEXT]!a}{cut}"
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def _head(node: Node) -> str:
    if isinstance(node, GlobalRef):
        return f"global {shown(node.name)}"
    if isinstance(node, Buffer):
        return f"buffer {node.number}{' (read-only)' if node.readonly else ''}"
    if isinstance(node, ByteArray):
        return f"bytearray of {len(node.data)}"
    if isinstance(node, Call):
        callee = shown(node.callee.name) if isinstance(node.callee, GlobalRef) else "(a result)"
        return f"{_verb(node)} {callee}"
    items: list[Any] = getattr(node, "items", [])
    if isinstance(node, DictOf):
        return f"dict of {len(items) // 2}"
    name = KINDS.get(type(node))
    return f"{name} of {len(items)}" if name else "persistent id"


def _verb(call: Call) -> str:
    if call.old:
        return "old instance of"
    return "new" if call.new else "call"


def _as_json(root: Any) -> Any:
    """Return the tree of *root* level by level, so that its bound cuts the deepest levels."""
    made = {"root": root}
    level: list[tuple[Any, Any]] = [(made, "root")]
    seen: set[int] = set()
    room = _MAX_NODES
    for depth in range(_MAX_DEPTH):
        below: list[tuple[Any, Any]] = []
        for holder, key in level:
            node = holder[key]
            room -= 1
            if not isinstance(node, Node):
                holder[key] = {"kind": type(node).__name__, "value": _leaf(node)}
            elif node.index in seen:
                holder[key] = {"kind": "same", "id": node.index}
            elif depth == _MAX_DEPTH - 1 or room < 0:
                holder[key] = {"kind": "more", "id": node.index}
            else:
                seen.add(node.index)
                holder[key] = described = _described(node)
                for inner in described.values():
                    if isinstance(inner, list):
                        below.extend((inner, at) for at in range(len(inner)))
        level = below
    return made["root"]


def _described(node: Node) -> dict[str, Any]:
    """Return the description of *node*, whose content is lists of nodes."""
    described: dict[str, Any] = {
        "kind": type(node).__name__.removesuffix("Of").lower(),
        "id": node.index,
        "offset": node.offset,
    }
    if isinstance(node, Call):
        described["kind"] = _verb(node)
        if isinstance(node.callee, GlobalRef):
            described["global"] = shown(node.callee.name)
        else:
            described["callee"] = [node.callee]
        described["arguments"] = node.args.items[:_MAX_ITEMS]
        described["keywords"] = [] if node.kwargs is None else [node.kwargs]
        described["items"], described["size"] = node.items[:_MAX_ITEMS], len(node.items)
        described["pairs"] = node.pairs[: 2 * _MAX_ITEMS]
        described["state"] = [] if node.state is ABSENT else [node.state]
    elif isinstance(node, DictOf):
        # Flat: key, value, key, value.
        described["pairs"], described["size"] = node.items[: 2 * _MAX_ITEMS], len(node.items) // 2
    elif isinstance(node, GlobalRef):
        described |= {"kind": "global", "global": shown(node.name)}
    elif isinstance(node, Buffer):
        described |= {"number": node.number, "readonly": node.readonly}
    elif isinstance(node, ByteArray):
        described["size"] = len(node.data)
    elif isinstance(node, Persistent):
        described["items"] = [node.pid]
    else:
        items: list[Any] = getattr(node, "items", [])
        described["items"], described["size"] = items[:_MAX_ITEMS], len(items)
    return {key: value for key, value in described.items() if value != []}


def _parts(node: Node) -> list[tuple[str, Any]]:
    if isinstance(node, Persistent):
        return [("", node.pid)]
    if isinstance(node, Call):
        parts = [] if isinstance(node.callee, GlobalRef) else [("callee ", node.callee)]
        parts += [("", argument) for argument in node.args.items[:_MAX_ITEMS]]
        parts += [] if node.kwargs is None else [("keywords ", node.kwargs)]
        parts += [("item ", item) for item in node.items[:_MAX_ITEMS]]
        parts += _pairs(node.pairs)
        return parts if node.state is ABSENT else [*parts, ("state ", node.state)]
    if isinstance(node, DictOf):
        return _pairs(node.items)
    return [("", item) for item in getattr(node, "items", [])[:_MAX_ITEMS]]


def _pairs(items: list[Any]) -> list[tuple[str, Any]]:
    parts = []
    for at in range(0, min(len(items), 2 * _MAX_ITEMS), 2):
        key, value = items[at], items[at + 1]
        if isinstance(key, Node):
            parts += [("key ", key), ("value ", value)]
        else:
            parts.append((f"{_leaf(key)}: ", value))
    return parts
