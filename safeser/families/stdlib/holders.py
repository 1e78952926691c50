"""Patterns, random generators, broken-down times and the user classes of ``collections``.

The one rule: what restricted pickle makes through a reviewed function is made by the same one here,
from the same plain parts; a pattern is compiled only when its payload is loaded.
"""

from __future__ import annotations

import collections
import random
import re
import time
from collections.abc import Callable
from typing import Any

from safeser.families import plain
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.reviewed import reviewed, site
from safeser.families.tree import Node
from safeser.pickles.shims.records import SHIMS
from safeser.pickles.shims.site import Site
from safeser.values import Limits

__all__ = ["register"]

Make = Callable[[Site, Any], Any]


def _made(name: str, cls: type, describe: Callable[[Any], Any], make: Make) -> Typed:
    """Return the serializer of values that *make* builds from one plain description."""

    def encode(x: Any, limits: Limits) -> Parts:
        described = describe(x)
        # Whoever receives it would refuse what this refuses.
        make(Site(limits, given=limits.max_bytes, shared=False), described)
        return Parts({"value": plain.encode(described, limits=limits)})

    def check(node: Node, limits: Limits) -> None:
        (value,) = node.expect("value")
        if type(value) is not bytes:
            node.refuse("its value is not bytes", "families.header")
        described, room = plain.decode_counted(value, limits=limits, room=limits.max_refs)
        node.refs = limits.max_refs - room
        node.value = (described, limits)

    def decode(node: Node, values: list[Any]) -> Any:
        described, limits = node.value
        with reviewed(node):
            return make(site(node, limits), described)

    return Typed(name, (cls,), encode, check, decode)


def _describe_pattern(x: re.Pattern[Any]) -> tuple[Any, int]:
    if type(x.pattern) not in (str, bytes):
        raise Unencodable(x, "it was made of something else than text")
    # Flags that stand in the pattern are in x.flags as well; compiled with them it is the same.
    return x.pattern, x.flags


def _pattern(place: Site, value: Any) -> re.Pattern[Any]:
    text, flags = value
    made: re.Pattern[Any] = SHIMS["pattern"](place, "", text, flags)
    if made.flags != flags:
        raise ValueError
    return made


def _describe_time(x: time.struct_time) -> tuple[tuple[int, ...], str | None, int | None]:
    return tuple(x), x.tm_zone, x.tm_gmtoff


def _struct_time(place: Site, value: Any) -> Any:
    parts, zone, offset = value
    extra = {"tm_zone": zone, "tm_gmtoff": offset}
    return SHIMS["struct_time"](place, "", parts, extra)


def _describe_random(x: random.Random) -> Any:
    if vars(x).keys() - {"gauss_next"}:
        raise Unencodable(x, "it has attributes of its own")
    return x.getstate()


def _random(place: Site, value: Any) -> Any:
    return SHIMS["random_state"](place, SHIMS["random"](place, ""), value)


def _user(name: str, cls: Any, kind: type) -> Typed:
    def encode(x: Any, limits: Limits) -> Parts:
        if vars(x).keys() != {"data"} or type(x.data) is not kind:
            raise Unencodable(x, f"it has attributes of its own, or holds no {kind.__name__}")
        return Parts({}, (), [(".data", x.data)])

    def check(node: Node, limits: Limits) -> None:
        node.expect(children=1)

    def decode(node: Node, values: list[Any]) -> Any:
        if type(values[0]) is not kind:
            raise ValueError
        made = cls()
        made.data = values[0]
        return made

    return Typed(name, (cls,), encode, check, decode)


def register() -> None:
    """List them; called once, when safeser.families is imported."""
    for typed in (
        _made("re:Pattern", re.Pattern, _describe_pattern, _pattern),
        _made("time:struct_time", time.struct_time, _describe_time, _struct_time),
        _made("random:Random", random.Random, _describe_random, _random),
        _user("collections:UserDict", collections.UserDict, dict),
        _user("collections:UserList", collections.UserList, list),
    ):
        registry.register(typed)
