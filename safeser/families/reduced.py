"""Encode and decode typed values as reduced trees: the content of their pickles, in msgpack.

The one rule: the profile of its type judges a tree before anything in its payload is built, the
constructors that were reviewed for pickles build its parts, and the result must be of exactly a
class that is listed under the type's name.

A short tree is part of the header, a longer one is the last frame; each large buffer of the object
is a frame of its own before it, uncopied. Arrays of numbers are typed values beside the tree, as
everywhere else, which takes a tenth of the time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from safeser import pickles
from safeser.errors import PayloadError, PolicyDenied
from safeser.families.framing import address
from safeser.families.numpy.arrays import align, array_child
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.reviewed import reviewed
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget, Judged, Profile

__all__ = ["SHORT", "Reducers", "Row", "list_rows"]

#: Bytes of the longest tree that stands in a header; a frame of its own costs more than these.
SHORT = 1024
#: Bytes at which numbers lie where compiled code expects them.
_ALIGNMENT = 8


#: By exact class, a function that replaces ``__reduce_ex__``.
Reducers = Mapping[type, Callable[[Any], Any]]


class Row(NamedTuple):
    """One type that travels as a reduced tree.

    :param profiles: names of the pickle profiles that bound it.
    :param classes: ``module:qualname`` of the classes whose direct instances travel by this row, or
        a function that returns the classes. Those that the installed version lacks are left out.
    :param reducers: returns replacements of ``__reduce_ex__`` for classes whose own one loses data
        or writes each element as an object.
    :param rehearsed: whether the sender builds each value once, as its receiver will; otherwise its
        *reducers* refuse values that cannot be sent.
    :param without: names of entries that pickles have and this type has not.
    :param takes: whether a direct instance travels by this row; None where each does.
    """

    profiles: tuple[str, ...]
    classes: tuple[str, ...] | Callable[[], Iterable[type]]
    reducers: Callable[[], Reducers] = dict
    rehearsed: bool = True
    without: tuple[str, ...] = ()
    takes: Callable[[Any], bool] | None = None


def list_rows(
    package: str, rows: Mapping[str, Row], *, advice: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Register *rows* by type name; *package* is imported when a value of one is first needed.

    :param advice: for senders of instances of derived classes, by ``module:qualname`` of the base.
    """

    def load() -> None:
        importlib.import_module(package)
        for name, row in rows.items():
            registry.register(_typed(name, row))
        for name, said in advice.items():
            for cls in _live((name,)):
                registry.advise(cls, said)

    registry.register_lazy(package, tuple(rows), load)


def _typed(name: str, row: Row) -> Typed:
    classes = _live(row.classes) if isinstance(row.classes, tuple) else tuple(row.classes())
    profile = Profile.named(*row.profiles)
    if row.without:
        kept = (each for each in profile.entries.values() if each.name not in row.without)
        profile = Profile(profile.name, kept)
    way = _Reduced(classes, profile, row.reducers(), row.rehearsed)
    return Typed(name, classes, way.encode, way.check, way.decode, budgeted=True, takes=row.takes)


def _live(names: tuple[str, ...]) -> tuple[type, ...]:
    found = []
    for name in names:
        module, _, qualname = name.partition(":")
        cls = getattr(importlib.import_module(module), qualname, None)
        if isinstance(cls, type):
            found.append(cls)
    return tuple(found)


@dataclass(frozen=True, slots=True, eq=False)
class _Reduced:
    """Sends, checks and builds the objects of one row."""

    classes: tuple[type, ...]
    profile: Profile
    reducers: Reducers
    rehearsed: bool

    def encode(self, x: Any, limits: Limits) -> Parts:
        try:
            tree, buffers, apart, made = pickles.reduce(
                x,
                profile=self.profile,
                limits=limits,
                reducers=self.reducers,
                is_apart=_is_apart,
                rehearsed=self.rehearsed,
            )
        except (PayloadError, PolicyDenied) as error:
            raise _unencodable(x, error) from error.__cause__
        if type(made) is not type(x):
            raise Unencodable(x, "it is made again as an object of another class")
        children = [(" (array)", array) for array in apart]
        if len(tree) <= SHORT:
            return Parts({"tree": tree}, buffers, children)
        return Parts({}, [*buffers, tree], children)

    def check(self, node: Node, limits: Limits, budget: Budget) -> None:
        tree, buffers = _split(node)
        for position, child in enumerate(node.children):
            array_child(node, position)
            align(child)
        with reviewed(node):
            parsed = node.parsed
            if parsed is None:
                parsed = node.parsed = pickles.parse_tree(
                    tree,
                    buffers=len(buffers),
                    apart=len(node.children),
                    limits=limits,
                    budget=budget,
                )
            else:
                parsed.charge(budget)
            try:
                node.value = parsed.judged(self.profile, buffers=len(buffers))
            except PolicyDenied as denial:
                # No policy adds to a type's profile, so the sender makes no difference.
                node.refuse(denial.message, "families.global")

    def decode(self, node: Node, values: list[Any], budget: Budget) -> Any:
        judged: Judged = node.value
        _, buffers = _split(node)
        readonly = judged.parsed.program.readonly_buffers
        given = [
            _usable(buffer, readonly=number in readonly) for number, buffer in enumerate(buffers)
        ]
        with reviewed(node):
            made = judged.build(given, budget, apart=values)
        if type(made) not in self.classes:
            node.refuse("its tree makes an object of another class", "families.class")
        return made


def _unencodable(x: object, error: PayloadError | PolicyDenied) -> Unencodable:
    """Return the error for *x*, with the reason that its receiver would give."""
    bound = error.rule.startswith("value.")
    refused = Unencodable(x, error.message, fix=error.fix if bound else "")
    place = error.where.removeprefix("obj") if error.where.startswith("obj") else ""
    if place:
        refused.path.append(place)
    return refused


def _is_apart(x: Any) -> bool:
    """Whether *x* is an array that is sent beside the tree, as a typed value of its own."""
    if type(x) is not np.ndarray or x.dtype.hasobject or x.dtype.char == "T":
        return False
    # A broadcast array would stay one on the receiver, and compiled code may not check strides.
    return 0 not in x.strides or x.size <= 1


def _split(node: Node) -> tuple[bytes | memoryview, Sequence[memoryview]]:
    """Return the tree and the buffers of *node*."""
    if "tree" in node.meta:
        (tree,) = node.expect("tree", frames=len(node.frames), children=None)
        if type(tree) is not bytes or len(tree) > SHORT:
            node.refuse("its tree is not a short run of bytes", "families.header")
        return tree, node.frames
    node.expect(frames=max(len(node.frames), 1), children=None)
    *buffers, tree = node.frames
    if len(tree) <= SHORT:
        node.refuse("its tree is short and stands in a frame", "families.header")
    return tree, buffers


def _usable(buffer: memoryview, *, readonly: bool) -> memoryview:
    """Return *buffer*, or a copy where it must become writable or aligned.

    A frame starts where the bytes before it ended; compiled code of libraries needs alignment.
    """
    if address(buffer) % _ALIGNMENT:
        return memoryview(bytes(buffer) if readonly else bytearray(buffer))
    return buffer if readonly or not buffer.readonly else memoryview(bytearray(buffer))
