"""Encode the named values of one object: small plain ones in its header, others as children.

The one rule: names are checked before a value is used, and each name has exactly one value.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Mapping
from typing import Any

from safeser.families import plain
from safeser.families.registry import Parts
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import stdlib as bounds

__all__ = ["check", "encode", "is_attribute", "values"]

#: A text or collection up to here stands in the header; longer ones are children.
_MAX_TEXT = 1024
_MAX_ITEMS = 16

#: All small values of one object together; real objects of many fields stay far below.
_MAX_PLAIN = 1 << 20

_SCALARS = frozenset({type(None), bool, int, float})
_TEXTS = frozenset({str, bytes})
_FLAT = frozenset({tuple, list})


def is_attribute(name: object) -> bool:
    """Whether *name* is what source code could spell as a public or private attribute.

    No dunder, no keyword, and nothing that Python's own normalization would turn into another name:
    such an attribute could be set but never be read by its name.
    """
    return (
        bounds.is_attribute(name)
        and type(name) is str
        and not keyword.iskeyword(name)
        and (name.isascii() or unicodedata.normalize("NFKC", name) == name)
    )


def _is_small(value: Any) -> bool:
    kind = type(value)
    if kind is int:
        return bool(value.bit_length() <= 8 * _MAX_TEXT)
    if kind in _SCALARS:
        return True
    if kind in _TEXTS:
        return len(value) <= _MAX_TEXT
    return kind in _FLAT and len(value) <= _MAX_ITEMS and all(type(v) in _SCALARS for v in value)


def encode(named: Mapping[str, Any], limits: Limits) -> Parts:
    """Return how *named* travels: values of any kind under names of our own choice, in order."""
    small = {name: value for name, value in named.items() if _is_small(value)}
    if len(small) == len(named):
        body = plain.encode(small, limits=limits)
        if len(body) <= _MAX_PLAIN:
            return Parts({"plain": body})
        small = {}
    meta = {"plain": plain.encode(small, limits=limits), "names": list(named)}
    children = [(f".{name}", value) for name, value in named.items() if name not in small]
    return Parts(meta, (), children)


def check(node: Node, limits: Limits) -> tuple[str, ...]:
    """Return the names in *node*, in order; refuse the node unless each has exactly one value."""
    if "names" not in node.meta:
        (body,) = node.expect("plain")
        node.value = _decoded(node, body, limits)
        return tuple(node.value)
    body, names = node.expect("plain", "names", children=None)
    node.value = _decoded(node, body, limits)
    if not isinstance(names, (list, tuple)):
        node.refuse("its names are not a list", "families.header")
    if not all(type(name) is str for name in names) or len(set(names)) != len(names):
        node.refuse("its names are not distinct texts", "families.header")
    if not node.value.keys() <= set(names):
        node.refuse("it has values without a name", "families.header")
    if len(node.children) != len(names) - len(node.value):
        node.refuse("it has another number of names than of values", "families.child-count")
    return tuple(names)


def _decoded(node: Node, body: Any, limits: Limits) -> dict[str, Any]:
    if type(body) is not bytes or len(body) > _MAX_PLAIN:
        node.refuse("its small values are not a short run of bytes", "families.header")
    decoded = node.plain(body, limits)
    if type(decoded) is not dict or not all(type(name) is str for name in decoded):
        node.refuse("its small values have no names", "families.header")
    return decoded


def values(node: Node, built: list[Any]) -> dict[str, Any]:
    """Return name to value, in the sender's order: *node* was checked, *built* are its children."""
    small: dict[str, Any] = node.value
    if "names" not in node.meta:
        return small
    rest = iter(built)
    return {name: small[name] if name in small else next(rest) for name in node.meta["names"]}
