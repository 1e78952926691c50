"""Parse the tree of nodes that a header and its frames describe, before any value is trusted.

The one rule: each frame belongs to exactly one node. Judging, checking and building walk these
nodes only; no header is parsed twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.plain import DEPTH_CEILING, RAISE
from safeser.families.registered.own import own_families
from safeser.gate.values import FAMILIES, Limits
from safeser.pickles import Budget, Parsed

__all__ = ["PICKLES", "PLAIN", "TRANSPORT", "Node", "check_header", "parse", "strongest"]

#: Elements of a table around the header of its only payload: the table, and a row of four.
_AROUND = 7

#: Longer than any real type name; a longer one is not repeated in an error.
_MAX_NAME = 128

#: Steps of a path that an error spells out.
_MAX_STEPS = 12


def _keys(required: str, optional: str = "") -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that a header must have and those that it may have, with ``serializer``."""
    least = frozenset({"serializer", *required.split()})
    return least, least | set(optional.split())


_KEYS = {
    "msgpack": _keys(""),
    "error": _keys("", "failed"),
    "pickle": _keys("writeable"),
    "cloudpickle": _keys("writeable"),
    "dask": _keys("type sub-header", "sub-headers frame-lengths"),
    "collection": _keys("type sub-headers frame-lengths"),
}

#: The keys of families that the host registered, which read their plain sub-header themselves.
_OWN_KEYS = _keys("sub-header")

#: Keys of a typed value that holds no other.
_LEAF = frozenset({"serializer", "type", "sub-header"})

#: The header of a value that msgpack knows, as of most values of most messages.
PLAIN = {"serializer": "msgpack"}

#: Keys by which Dask's own headers carry a pickled class, or the name of one to unpickle.
_PICKLED_TYPES = ("type-serialized", "is-collection")

#: Keys that a transport adds to the outermost header and takes out again.
TRANSPORT = ("lengths", "compression")

#: Families of which the content decides which it is.
PICKLES = ("pickle", "cloudpickle")
_COLLECTIONS = ("list", "tuple", "set", "frozenset", "dict")


Path: TypeAlias = "tuple[Path, int] | None"


@dataclass(slots=True, eq=False)
class Node:
    """One value of the tree: its serializer, what its header says, its own frames, its children.

    :param path: its parent's path and its position there; None at the top. It refers to no node: a
        cycle would keep the frames in memory until the next garbage collection.
    :param yields: name of the type that it builds, if a parent may rely on it; else "".
    :param value: the value decoded by the check, for families whose check is their decoding.
    :param budget: that of its message, from its check on.
    :param parsed: the program of a pickle, parsed to derive its family.
    :param own: whether it is, or holds, an instance of a class of the program's own that is not
        registered, and of which no code may run.
    """

    serializer: str
    type: str
    meta: dict[str, Any]
    frames: tuple[memoryview, ...]
    path: Path
    depth: int
    children: list[Node] = field(default_factory=list)
    yields: str = ""
    value: Any = None
    budget: Budget | None = None
    parsed: Parsed | None = None
    own: bool = False

    @property
    def where(self) -> str:
        steps: list[str] = []
        path = self.path
        while path is not None:
            path, position = path
            steps.append(f"sub-headers[{position}]")
        if len(steps) > _MAX_STEPS:
            # A peer that nests headers two hundred deep would otherwise write kilobytes into logs.
            steps[_MAX_STEPS // 2 : -(_MAX_STEPS // 2)] = ["..."]
        return ".".join(reversed(steps))

    def refuse(self, message: str, rule: str, *, fix: str = "") -> NoReturn:
        """Raise the :class:`PayloadError` that names this node."""
        named = f" of {self.type}" if self.type else ""
        told = f"the header{named} is refused: {message}"
        raise PayloadError(told, rule=rule, where=self.where, fix=fix)

    def plain(self, data: Any, limits: Limits) -> Any:
        """Return the plain value in *data*, which counts towards the memory of the message."""
        budget = self.budget = self.budget or Budget(limits)
        value, budget.memory = plain.decode_counted(data, limits=limits, room=budget.memory)
        return value

    def expect(self, *keys: str, frames: int = 0, children: int | None = 0) -> tuple[Any, ...]:
        """Return the values of exactly *keys*, or refuse; also counts frames and children."""
        if self.meta.keys() != set(keys):
            self.refuse(f"its keys must be exactly {', '.join(keys) or 'none'}", "families.header")
        if len(self.frames) != frames:
            self.refuse(
                f"it comes with {len(self.frames)} frames, not {frames}", "families.frame-count"
            )
        if children is not None and len(self.children) != children:
            self.refuse(
                f"it holds {len(self.children)} values, not {children}", "families.child-count"
            )
        return tuple(self.meta[key] for key in keys)


def check_header(header: Mapping[str, Any], limits: Limits) -> None:
    """Refuse a header of more elements than the table of a message with this one payload may have.

    Writers call it too. Parts that occur twice count twice, as in the message.
    """
    left, todo = limits.elements - _AROUND, list[Any]([header])
    for each in todo:
        if type(each) is dict:
            left -= 1 + 2 * len(each)
            todo += each.values()
        elif type(each) is list or type(each) is tuple:
            left -= 1 + len(each)
            todo += each
        if left < 0:
            raise PayloadError(
                "it has more parts than max_memory holds", rule="families.memory", fix=plain.LESS
            )


def strongest(families: Sequence[str]) -> str:
    """Return the strongest of *families*; ``"msgpack"`` if there are none.

    Families that the host registered rank between dask and the pickles: code that decides by the
    strongest alone must still check each one when it is built.
    """
    if len(families) == 1:  # most payloads are one value
        return families[0]
    return max(families, key=_strength, default="msgpack")


def _strength(family: str) -> float:
    return FAMILIES.index(family) if family in FAMILIES else _OWN_STRENGTH


_OWN_STRENGTH = FAMILIES.index("dask") + 0.5


def parse(
    header: Mapping[str, Any],
    frames: Sequence[Any] | None,
    *,
    limits: Limits,
    declared: Collection[str] = (),
) -> list[Node]:
    """Return the nodes of *header* over *frames*, each parent before its children.

    :param frames: the payload's buffers, or None to read the header alone.
    :param declared: families that policy names but this process may only relay.
    """
    views = None if frames is None else _views(frames, limits)
    if header == PLAIN and views is not None and len(views) == 1:
        return [Node("msgpack", "", {}, (views[0],), None, 0)]
    if isinstance(header, dict) and header.keys() == _LEAF:
        # Most payloads are one such value, and all frames are its own.
        leaf = Node("", "", {}, tuple(views or ()), None, 0, [])
        if _is_leaf(leaf, header):
            return [leaf]
    check_header(header, limits)
    nodes: list[Node] = []
    depth_limit = min(limits.max_depth, DEPTH_CEILING)
    todo: list[tuple[Any, int, int | None, Node | None, int]] = [
        (header, 0, None if views is None else len(views), None, 0)
    ]
    while todo:
        claimed, start, count, parent, position = todo.pop()
        path = (parent.path, position) if parent else None
        node = Node("", "", {}, (), path, parent.depth + 1 if parent else 0)
        if node.depth > depth_limit:
            node.refuse("values are nested too deep", "families.depth")
        lengths = _read(node, claimed, declared)
        own = _own_frames(node, count, lengths)
        if views is not None:
            node.frames = tuple(views[start : start + own])
        nodes.append(node)
        if parent is not None:
            parent.children.append(node)
        start += own
        nested = []
        for index, length in enumerate(lengths):
            nested.append((claimed["sub-headers"][index], start, length, node, index))
            start += length
        todo.extend(reversed(nested))
    return nodes


def _views(frames: Sequence[Any], limits: Limits) -> list[memoryview]:
    if len(frames) > limits.max_frames:
        raise PayloadError("a payload has more than max_frames frames", rule="families.too-large")
    views: list[memoryview] = []
    total = 0
    for frame in frames:
        try:
            view = memoryview(frame)
            if type(frame) is not bytearray and type(frame) is not bytes:
                view = view.cast("B")
        except TypeError:
            raise PayloadError(
                "a frame is not one run of bytes",
                rule="families.frame",
                where=f"frame {len(views)}",
            ) from None
        size = len(view)
        total += size
        if size > limits.max_array or total > limits.max_bytes:
            raise PayloadError(
                "frames are larger than max_array or max_bytes",
                rule="families.too-large",
                where=f"frame {len(views)}",
                fix=RAISE,
            )
        views.append(view)
    return views


def _read(node: Node, claimed: Any, declared: Collection[str]) -> list[int]:
    """Fill *node* from the header that claims to describe it; return its children's lengths."""
    if not isinstance(claimed, dict):
        node.refuse("it is not a dictionary", "families.header")
    if claimed.keys() == _LEAF and _is_leaf(node, claimed):
        return []
    _refuse_pickled_types(node, claimed)
    serializer = claimed.get("serializer")
    if not isinstance(serializer, str):
        node.refuse("it names no serializer", "families.serializer")
    keys_of = _KEYS.get(serializer)
    if keys_of is None and (serializer in declared or own_families.known(serializer)):
        keys_of = _OWN_KEYS
    if keys_of is None:
        node.refuse("it names no serializer that is registered here", "families.serializer")
    required, allowed = keys_of
    keys = claimed.keys()
    if not required <= keys <= allowed:
        _refuse_transport(node, keys)
        node.refuse(f"its keys are not those of serializer {serializer}", "families.header")
    node.serializer = serializer
    if "type" in keys:
        node.type = _type_name(node, claimed["type"])
    if serializer == "collection":
        node.yields = f"builtins:{node.type}"
    elif serializer == "error":
        node.meta = {"failed": _failed(node, claimed)}
    elif "sub-header" in keys:
        node.yields = node.type
        node.meta = _meta(node, claimed["sub-header"])
    elif "writeable" in keys:
        node.meta = {"writeable": claimed["writeable"]}
    if "sub-headers" in keys or "frame-lengths" in keys:
        return _lengths(node, claimed)
    return []


def _refuse_pickled_types(node: Node, claimed: dict[str, Any]) -> None:
    for key in _PICKLED_TYPES:
        if key in claimed:
            node.refuse(
                f"'{key}' would name a class by pickle; types are names from safeser's registry",
                "families.type-serialized",
            )


def _refuse_transport(node: Node, keys: Collection[str]) -> None:
    """Refuse the transport keys of a header from ``safeser.serialize``, and explain them."""
    added = [key for key in TRANSPORT if key in keys]
    if added and node.path is None:
        raise PayloadError(
            f"the header has '{added[0]}', which is for transports that do not keep frames apart",
            rule="families.header",
            fix="Hand a channel safeser.Serialized(header, frames), or the object itself.",
        )


def _is_leaf(node: Node, claimed: dict[str, Any]) -> bool:
    """Fill *node* and return True if *claimed*, which has the keys of a leaf, is of family dask."""
    if claimed["serializer"] != "dask":
        return False
    node.serializer = "dask"
    name = claimed["type"]
    if type(name) is not str or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        name = _type_name(node, name)
    node.type = node.yields = name
    node.meta = _meta(node, claimed["sub-header"])
    return True


def _failed(node: Node, claimed: dict[str, Any]) -> bool:
    """Return whether a failure replaces a value that could not be sent, and so is raised."""
    failed = claimed.get("failed", False)
    if type(failed) is not bool:
        node.refuse("'failed' must be a flag", "families.header")
    return failed


def _type_name(node: Node, name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        node.refuse("its type is not a name", "families.header")
    if node.serializer == "collection" and name not in _COLLECTIONS:
        node.refuse("it is not a collection that safeser knows", "families.collection")
    return name


def _meta(node: Node, meta: Any) -> dict[str, Any]:
    if isinstance(meta, dict):
        for key in meta:
            if type(key) is not str:
                break
        else:
            return meta
    node.refuse("its sub-header is not a dictionary of names", "families.header")


def _lengths(node: Node, claimed: dict[str, Any]) -> list[int]:
    headers, lengths = claimed.get("sub-headers"), claimed.get("frame-lengths")
    if not isinstance(headers, (list, tuple)) or not isinstance(lengths, (list, tuple)):
        node.refuse("sub-headers and frame-lengths must be lists", "families.header")
    if len(headers) != len(lengths):
        node.refuse("sub-headers and frame-lengths differ in length", "families.header")
    if not all(type(length) is int and length >= 0 for length in lengths):
        node.refuse("frame-lengths must be counts", "families.header")
    return list(lengths)


def _own_frames(node: Node, count: int | None, lengths: Sequence[int]) -> int:
    """Return how many frames are the node's own; all of *count* must be accounted for."""
    if node.serializer == "dask" and not lengths:
        return count or 0
    if count is None:  # a header without frames: compute how many it needs
        count = sum(lengths) + (node.serializer in ("msgpack", "error", *PICKLES))
        count += len(_writeable(node))
    own = count - sum(lengths)
    if own < 0:
        node.refuse("it declares more frames than there are", "families.frame-count")
    if node.serializer == "collection" and own != 0:
        node.refuse("it leaves frames unused", "families.frame-count")
    if node.serializer in ("msgpack", "error") and own != 1:
        node.refuse(f"it comes with {own} frames, not 1", "families.frame-count")
    if node.serializer in PICKLES and own != 1 + len(_writeable(node)):
        node.refuse(
            f"it comes with {own} frames and describes {1 + len(_writeable(node))}",
            "families.frame-count",
        )
    return own


def _writeable(node: Node) -> Sequence[bool]:
    if node.serializer not in PICKLES:
        return ()
    flags = node.meta["writeable"]
    if not isinstance(flags, (list, tuple)) or not all(type(flag) is bool for flag in flags):
        node.refuse("writeable must be a list of flags", "families.header")
    return flags
