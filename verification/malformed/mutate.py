"""Changes of a header and its frames, one seeded choice after the other.

The one rule: a mutation says in words what it did, so that a case can be read as well as run.
"""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from safeser.errors import SafeserError
from safeser.families import plain
from safeser.gate.values import FAMILIES

__all__ = ["Case", "Tree", "make"]

#: What a header may say in place of an honest value, besides names and values of other examples.
BOUNDARIES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 3, 7, 8, 64, 65, 255, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 32,
    (1 << 53) + 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 31), -(1 << 63), 1 << 80,
    -(1 << 200), 0.0, -0.0, 1.5, 1e308, math.nan, math.inf, -math.inf, "", "a", "C", "F", "O", "|O",
    "objects", "generic", "ns", "\0", "a\0b", "x" * 300, "x" * 70_000, "\ud800", "os:system",
    "builtins:eval", "builtins:object", "/etc/passwd", "../../../etc/passwd", "Europe/Berlin", b"",
    b"\0", b"\xc0", b"\x93\x01", b"\xff" * 64, b"\0" * 64, [], [0], [-1], [1 << 62] * 2, [1] * 65,
    [[]], (), (0,), {}, {"a": 1}, {1: 2}, set(), {1, 2}, ["O", 8, "|"], ["V", 0, "|"],
    ["U", 4, "<"], "|?1", "<M8[ns]", {"base": ["O", 8, "|"], "shape": [1]},
    {"fields": [["a", ["O", 8, "|"], 0]], "size": 8, "align": False},
]  # fmt: skip

_PICKLE = b"cos\nsystem\n(S'true'\ntR."

#: Headers of other serializers, to stand where a child stood.
FOREIGN_NODES: list[tuple[dict[str, Any], list[bytes]]] = [
    ({"serializer": "pickle", "writeable": []}, [_PICKLE]),
    ({"serializer": "cloudpickle", "writeable": []}, [_PICKLE]),
    ({"serializer": "error"}, [plain.encode(None)]),
    *(({"serializer": "msgpack"}, [plain.encode(value)]) for value in BOUNDARIES),
]


@dataclass
class Tree:
    """One node as it travels: its header without its children's, its own frames, its children."""

    header: dict[str, Any]
    frames: list[Any]
    children: list[Tree] | None = None

    @classmethod
    def of(cls, header: dict[str, Any], frames: list[Any]) -> Tree:
        own = {k: v for k, v in header.items() if k not in ("sub-headers", "frame-lengths")}
        if "sub-headers" not in header:
            return cls(own, frames)
        start = len(frames) - sum(header["frame-lengths"])
        children, position = [], start
        for inner, length in zip(header["sub-headers"], header["frame-lengths"], strict=True):
            children.append(cls.of(inner, frames[position : position + length]))
            position += length
        return cls(own, frames[:start], children)

    def flat(self) -> tuple[dict[str, Any], list[Any]]:
        header, frames = dict(self.header), list(self.frames)
        if self.children is not None:
            header["sub-headers"], header["frame-lengths"] = [], []
            for child in self.children:
                inner, more = child.flat()
                header["sub-headers"].append(inner)
                header["frame-lengths"].append(len(more))
                frames += more
        return header, frames

    def nodes(self) -> Iterator[Tree]:
        yield self
        for child in self.children or ():
            yield from child.nodes()

    def clone(self) -> Tree:
        children = None if self.children is None else [child.clone() for child in self.children]
        return Tree(copy.deepcopy(self.header), list(self.frames), children)


@dataclass
class Case:
    """Header and frames after some mutations, and what those were."""

    header: Any
    frames: list[Any]
    done: list[str] = field(default_factory=list)
    raw: bytes = b""


def make(name: str, seed: int, number: int, pool: dict[str, Tree]) -> Case:
    """Return case *number* of example *name*, which is one of *pool*."""
    rng = Random(f"{seed}:{name}:{number}")
    tree = pool[name].clone()
    done: list[str] = []
    rounds = rng.choice((1, 1, 1, 1, 2, 2, 3))
    changes = [rng.choices(_ALL, _WEIGHTS)[0] for _ in range(rounds)]
    # The tree first: once it is flat, its parts cannot be told apart any more.
    for change in changes:
        if change in _OF_TREES:
            done.append(change(tree, rng, pool))
    header, frames = tree.flat()
    case = Case(header, frames, done)
    for change in changes:
        if change not in _OF_TREES:
            done.append(change(case, rng, pool))
    return case


# Trees


def _place(tree: Tree, rng: Random) -> Tree:
    parents = [node for node in tree.nodes() if node.children]
    return rng.choice(parents) if parents else tree


def _donor(rng: Random, pool: dict[str, Tree]) -> Tree:
    if rng.random() < 0.3:
        header, frames = rng.choice(FOREIGN_NODES)
        return Tree(dict(header), list(frames))
    return rng.choice(list(rng.choice(list(pool.values())).nodes())).clone()


def children_changed(tree: Tree, rng: Random, pool: dict[str, Tree]) -> str:
    parent = _place(tree, rng)
    if not parent.children:
        parent.children = [_donor(rng, pool)]
        return "child added where none was"
    children, position = parent.children, rng.randrange(len(parent.children))
    what = rng.choice(("dropped", "doubled", "swapped", "replaced", "added", "all dropped"))
    if what == "dropped":
        del children[position]
    elif what == "doubled":
        children.insert(position, children[position].clone())
    elif what == "swapped":
        other = rng.randrange(len(children))
        children[position], children[other] = children[other], children[position]
    elif what == "replaced":
        children[position] = _donor(rng, pool)
    elif what == "added":
        children.insert(position, _donor(rng, pool))
    else:
        parent.children = rng.choice((None, []))
    return f"child {position} {what}"


def child_type_kept(tree: Tree, rng: Random, pool: dict[str, Tree]) -> str:
    """Put an honest value of the same type, from another example, where a child stands."""
    node = rng.choice(list(tree.nodes()))
    alike = [
        other
        for donor in pool.values()
        for other in donor.nodes()
        if other.header.get("type") == node.header.get("type")
        and other.header["serializer"] == node.header["serializer"]
    ] or [rng.choice(list(pool.values()))]
    taken = rng.choice(alike).clone()
    part = rng.choice(("all", "header", "frames", "children"))
    if part in ("all", "header"):
        node.header = taken.header
    if part in ("all", "frames"):
        node.frames = taken.frames
    if part in ("all", "children"):
        node.children = taken.children
    return f"{part} of another {node.header.get('type') or node.header['serializer']}"


def retyped(tree: Tree, rng: Random, pool: dict[str, Tree]) -> str:
    node = rng.choice(list(tree.nodes()))
    donor = rng.choice(list(rng.choice(list(pool.values())).nodes()))
    node.header["type"] = donor.header.get("type", "list")
    if rng.random() < 0.3:
        node.header["serializer"] = rng.choice((*FAMILIES, "collection"))
    return f"type {node.header['type']}"


def meta_merged(tree: Tree, rng: Random, pool: dict[str, Tree]) -> str:
    node = rng.choice(list(tree.nodes()))
    donor = rng.choice(list(rng.choice(list(pool.values())).nodes()))
    given = donor.header.get("sub-header")
    own = node.header.get("sub-header")
    if isinstance(own, dict) and isinstance(given, dict) and given:
        key = rng.choice(list(given))
        own[key] = copy.deepcopy(given[key])
        return f"key {key!r} of {donor.header['type']}"
    return "nothing merged"


def nested(tree: Tree, rng: Random, pool: dict[str, Tree]) -> str:
    node = rng.choice(list(tree.nodes()))
    depth = rng.choice((1, 2, 30, 150, 300))
    inner = Tree(node.header, node.frames, node.children)
    for _ in range(depth - 1):
        inner = Tree({"serializer": "collection", "type": "list"}, [], [inner])
    node.header = {"serializer": "collection", "type": rng.choice(("list", "tuple", "set"))}
    node.frames, node.children = [], [inner]
    return f"nested {depth} deeper"


# Values inside a header


def _spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if type(value) is dict:
        for key in value:
            yield from _spots(value[key], (*path, key))
    elif type(value) is list:
        for position, item in enumerate(value):
            yield from _spots(item, (*path, position))


def _short(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path if len(path) < 12 else (*path[:5], "...", *path[-5:])))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _alter(value: Any, rng: Random, pool: dict[str, Tree]) -> Any:
    """Return something else than *value*, near it or far from it."""
    pick = rng.random()
    if type(value) is int and pick < 0.4:
        near = (value + 1, value - 1, -value, value * 2, value // 2, value ^ 1 << rng.randrange(64))
        return rng.choice((*near, bool(value), float(value), str(value)))
    if type(value) in (list, tuple) and pick < 0.5:
        return _alter_items(list(value), rng)
    if type(value) is str and pick < 0.3:
        return rng.choice(
            (value[:-1], value + "\0", value + value, value.encode("utf-8", "replace"))
        )
    if type(value) is bytes and pick < 0.7:
        return _alter_bytes(value, rng, pool)
    if pick > 0.9:
        donor = rng.choice(list(rng.choice(list(pool.values())).nodes()))
        flat = donor.header
        return copy.deepcopy(_at(flat, rng.choice(list(_spots(flat)))))
    return copy.deepcopy(rng.choice(BOUNDARIES))


def _alter_items(items: list[Any], rng: Random) -> Any:
    what = rng.randrange(6)
    if what == 0 or not items:
        return [*items, rng.choice(BOUNDARIES)]
    position = rng.randrange(len(items))
    if what == 1:
        del items[position]
    elif what == 2:
        items.insert(position, copy.deepcopy(items[position]))
    elif what == 3:
        items.reverse()
    elif what == 4:
        return tuple(items)
    else:
        items[position] = rng.choice(BOUNDARIES)
    return items


def _alter_bytes(data: bytes, rng: Random, pool: dict[str, Tree]) -> bytes:
    """Change the value that *data* encodes, or else some of its bytes."""
    if rng.random() < 0.7:
        try:
            holder = [_thawed(plain.decode(data))]
            path = rng.choice(list(_spots(holder))[1:])
            parent = _at(holder, path[:-1])
            parent[path[-1]] = _alter(parent[path[-1]], rng, pool)
            return plain.encode(_frozen(holder[0]))
        except (SafeserError, plain.Unencodable, TypeError):
            pass
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 4))):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    return bytes(changed)


@dataclass
class _Was(Exception):
    kind: type


def _thawed(value: Any) -> Any:
    """Return *value* with each tuple as a marked list, whose items can be changed."""
    if type(value) is tuple:
        return {_Was: [_thawed(item) for item in value]}
    if type(value) is list:
        return [_thawed(item) for item in value]
    if type(value) is dict:
        return {key: _thawed(item) for key, item in value.items()}
    return value


def _frozen(value: Any) -> Any:
    if type(value) is list:
        return [_frozen(item) for item in value]
    if type(value) is dict:
        if _Was in value and type(value[_Was]) in (list, tuple):
            return tuple(_frozen(item) for item in value[_Was])
        return {key: _frozen(item) for key, item in value.items() if key is not _Was}
    return value


def value_changed(case: Case, rng: Random, pool: dict[str, Tree]) -> str:
    spots = list(_spots(case.header))
    path = rng.choice(spots)
    if not path:
        case.header = rng.choice(BOUNDARIES)
        return f"header {case.header!r:.60}"
    case.header = copy.deepcopy(case.header)
    parent = _at(case.header, path[:-1])
    new = _alter(parent[path[-1]], rng, pool)
    parent[path[-1]] = new
    return f"{_short(path)} = {new!r:.80}"


def key_changed(case: Case, rng: Random, pool: dict[str, Tree]) -> str:
    case.header = copy.deepcopy(case.header)
    places = [path for path in _spots(case.header) if isinstance(_at(case.header, path), dict)]
    if not places:
        return "no keys"
    path = rng.choice(places)
    shown = _short(path)
    inner = _at(case.header, path)
    what = rng.choice(("dropped", "added", "renamed"))
    extra = rng.choice(
        (
            "type-serialized", "is-collection", "strides", "base", "pickle", "writeable", "dtype",
            "compression", "split-num-sub-frames", "frame-lengths", "sub-headers", "shape", "", 0,
        )
    )  # fmt: skip
    if what == "added" or not inner:
        inner[extra] = rng.choice(BOUNDARIES)
        return f"{shown}: key {extra!r} added"
    key = rng.choice(list(inner))
    value = inner.pop(key)
    if what == "renamed":
        inner[extra] = value
    return f"{shown}: key {key!r} {what}"


# Frames


def frames_changed(case: Case, rng: Random, pool: dict[str, Tree]) -> str:
    donors = rng.choice(list(pool.values())).flat()[1]
    foreign = rng.choice((b"", b"\0" * 8, b"\xff" * 64, _PICKLE, *donors[:4]))
    if not case.frames:
        case.frames = [foreign]
        return "frame added where none was"
    position = rng.randrange(len(case.frames))
    what = rng.choice(_FRAME_CHANGES)
    frame = case.frames[position]
    if what == "dropped":
        del case.frames[position]
    elif what == "doubled":
        case.frames.insert(position, frame)
    elif what == "added":
        case.frames.insert(rng.randrange(len(case.frames) + 1), foreign)
    elif what == "swapped":
        other = rng.randrange(len(case.frames))
        case.frames[position], case.frames[other] = case.frames[other], case.frames[position]
    elif what == "foreign":
        case.frames[position] = foreign
    else:
        case.frames[position] = _frame(frame, what, rng, pool)
    return f"frame {position} {what}"


_FRAME_CHANGES = (
    "dropped", "doubled", "added", "swapped", "foreign", "shorter", "longer", "emptied", "odd",
    "writable", "readonly", "changed", "changed", "changed", "changed", "word", "filled", "strided",
    "typed", "no buffer",
)  # fmt: skip


def _frame(frame: Any, what: str, rng: Random, pool: dict[str, Tree]) -> Any:
    try:
        data = bytes(frame)
    except (TypeError, ValueError):
        return frame
    if what == "word":
        changed = bytearray(data.ljust(8, b"\0"))
        start = rng.randrange(0, len(changed) - 7, 4)
        word = rng.choice((-1, 0, 1, 1 << 31, (1 << 31) - 1, -(1 << 63), (1 << 63) - 1, 1 << 40))
        changed[start : start + 8] = struct.pack("<q", word)
        return bytes(changed[: len(data)])
    made: dict[str, Callable[[], Any]] = {
        "shorter": lambda: data[: -rng.choice((1, 1, 2, 4, 8, 64))],
        "longer": lambda: data + b"\0" * rng.choice((1, 1, 2, 4, 8, 64)),
        "emptied": lambda: b"",
        "odd": lambda: memoryview(bytearray(b"x" + data))[1:],
        "writable": lambda: bytearray(data),
        "readonly": lambda: memoryview(data),
        "changed": lambda: _alter_bytes(data, rng, pool),
        "filled": lambda: bytes([rng.choice((0, 1, 2, 127, 128, 255))]) * len(data),
        "strided": lambda: memoryview(data * 2)[::2],
        "typed": lambda: memoryview(data.ljust(-(-len(data) // 8) * 8, b"\0")).cast("d"),
        "no buffer": lambda: rng.choice((None, "text", 5, [data], data.hex())),
    }
    return made[what]()


# Raw msgpack


def raw_changed(case: Case, rng: Random, pool: dict[str, Tree]) -> str:
    """Write the header as bytes in which a key stands twice, or some byte is wrong."""
    if not isinstance(case.header, dict):
        return "no header to write"
    try:
        if rng.random() < 0.5:
            key = rng.choice(list(case.header) or ["type"])
            value = case.header.get(key)
            again = rng.choice((value, rng.choice(BOUNDARIES)))
            pairs = [*case.header.items()]
            pairs.insert(rng.randrange(len(pairs) + 1), (key, again))
            parts = (plain.encode(part) for pair in pairs for part in pair)
            case.raw = bytes([0x80 | min(len(pairs), 15)]) + b"".join(parts)
            return f"key {key!r} twice"
        data = bytearray(plain.encode(case.header))
    except plain.Unencodable:
        return "a header that cannot be written"
    data[rng.randrange(len(data))] = rng.randrange(256)
    case.raw = bytes(data[: rng.randrange(len(data))] if rng.random() < 0.1 else data)
    return "header's bytes changed"


_OF_TREES: list[Any] = [children_changed, child_type_kept, retyped, meta_merged, nested]
_ALL: list[Any] = [*_OF_TREES, value_changed, key_changed, frames_changed, raw_changed]
_WEIGHTS = (6, 6, 3, 4, 1, 14, 4, 10, 1)
