"""Collect the parts of one pandas object under one header: buffers, objects and names.

The one rule: each buffer and each object under a header belongs to exactly one part, and every
declared size is compared with the received bytes before anything is built.

A part is described by a list that opens with its kind. Numbers are sent in frames of their own,
whole blocks at once; objects are sent as typed values beside the header.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np

from safeser.errors import PayloadError
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed
from safeser.families.reviewed import site
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.pickles.shims.site import Site
from safeser.types import numpy as bounds
from safeser.types.pandas import is_kept

Array = np.ndarray[Any, Any]


class Loaded(list[Any]):
    """The values of a header's objects, and the node that they belong to.

    What builds a part is kept by the node while it waits, and so may not hold the node: a cycle
    would keep the frames in memory until the garbage collector comes by.
    """

    __slots__ = ("_site", "budget", "node")

    node: Node
    budget: Budget
    _site: Site | None

    @classmethod
    def of(cls, node: Node, values: list[Any], budget: Budget) -> Loaded:
        loaded = cls(values)
        loaded.node = node
        loaded.budget = budget
        loaded._site = None
        return loaded

    def site(self, limits: Limits) -> Site:
        """Return what reviewed constructors need for the parts: one for all, as bytes count once.

        There may be thousands of parts and of frames: to count these for each would be quadratic.
        """
        if self._site is None:
            self._site = site(self.node, limits, self.budget)
        return self._site


#: What builds a part.
Built = Callable[[Loaded], Any]

WRITEABLE, TURNED = 1, 2

#: Flags and long doubles: NumPy trusts their bytes.
_TRUSTED = frozenset("?gG")

#: Labels of columns and names that stand in the header itself.
_INLINE_NAMES = frozenset({type(None), bool, str})
#: Few short texts are cheaper inside the header than with a header or buffers of their own.
_INLINE_TEXTS = 64
_INLINE_BYTES = 1024

#: Descriptions inside each other: categories that are intervals of moments, and some to spare.
_MAX_NESTING = 8


def _plain_dtypes() -> Iterator[np.dtype[Any]]:
    for letter in "?bhilqpBHILQPefdgFDG":
        yield np.dtype(letter)
        yield np.dtype(letter).newbyteorder()
    for kind in "mM":
        for unit in ("s", "ms", "us", "ns"):
            yield np.dtype(f"{kind}8[{unit}]")


def _table() -> dict[str, np.dtype[Any]]:
    """Return the dtypes that a block may have, each under the one or two names it has here.

    The letter keeps C long and C long long apart where they are equally wide.
    """
    table: dict[str, np.dtype[Any]] = {}
    for dtype in _plain_dtypes():
        table[dtype.char + dtype.str] = dtype
        table.setdefault(dtype.str, np.dtype(dtype.str))
    return table


_DTYPES = _table()


def numbers_key(dtype: np.dtype[Any]) -> str | None:
    """Return the name under which a block of *dtype* travels, or None if none can."""
    key = dtype.str
    found = _DTYPES.get(key)
    if found is None or not is_kept(dtype) or dtype.metadata:
        return None
    return key if found.char == dtype.char else dtype.char + key


def label_of(name: object) -> bool:
    """Whether *name* may be part of a header as it is."""
    kind = type(name)
    if kind is int:
        return -(1 << 63) <= name < 1 << 64  # type: ignore[operator]  # an int, as just seen
    return kind in _INLINE_NAMES and (kind is not str or _prints(name))


def _prints(text: Any) -> bool:
    # Lone surrogates are no text that every reader of headers knows.
    return len(text) <= _INLINE_BYTES and text.isprintable()


def are_texts(items: Any) -> bool:
    """Whether *items* is a list of nothing but text and None."""
    return type(items) is list and set(map(type, items)) <= {str, type(None)}


def is_listed(described: Any) -> bool:
    """Whether *described* is a list in a header, as which Dask's messages bring tuples."""
    return type(described) is list or type(described) is tuple


def are_short(items: Sequence[Any]) -> bool:
    """Whether *items* are few short texts, or None, that may stand in a header."""
    if len(items) > _INLINE_TEXTS or not set(map(type, items)) <= {str, type(None)}:
        return False
    text = "".join(filter(None, items))
    return len(text) <= _INLINE_BYTES and text.isprintable()


def build_checked(node: Node, values: list[Any], budget: Budget) -> Any:
    """Return what the function makes that the check of *node* left in it."""
    return node.value(Loaded.of(node, values, budget))


def charged(
    name: str,
    classes: tuple[type, ...],
    encode: Callable[[Any, Limits], Parts],
    check: Callable[[Node, Limits], None],
    decode: Callable[[Node, list[Any], Budget], Any] = build_checked,
    *,
    keeps: bool = False,
) -> Typed:
    """Return the type *name*, whose *decode* is charged to the budget of the message."""

    def checked(node: Node, limits: Limits, _: Budget) -> None:
        check(node, limits)

    return Typed(name, classes, encode, checked, decode, budgeted=True, keeps=keeps)


class Writer:
    """Collects the buffers and objects that belong to one header."""

    __slots__ = ("children", "frames", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.frames: list[Any] = []
        self.children: list[tuple[str, object]] = []

    def parts(self, meta: dict[str, Any]) -> Parts:
        return Parts(meta, self.frames, self.children)

    def name(self, name: object, *, where: str = ".name") -> Any:
        """Return *name* itself, or the empty list that stands for the next object."""
        if label_of(name):
            return name
        self.children.append((where, name))
        return []

    def numbers(self, x: Array, *, where: str) -> list[Any]:
        """Hand over the memory of *x*; return the name of its dtype and its flags."""
        key = numbers_key(x.dtype)
        if key is None:
            self.refuse(x, f"a column of {x.dtype.name[:40]} is not kept exactly", where)
        flags = WRITEABLE if x.flags.writeable else 0
        if x.flags.f_contiguous and not x.flags.c_contiguous:
            flags |= TURNED
            x = x.T
        self.buffer(x)
        return [key, flags]

    def buffer(self, x: Array) -> None:
        """Hand over the memory of *x*, copied only where it is not one run of bytes."""
        if x.size == 0:
            self.frames.append(b"")
            return
        self.frames.append(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)

    def objects(self, items: list[Any], *, where: str) -> list[Any] | None:
        """Return *items* if they may stand in the header, else None for the next object."""
        if are_short(items):
            return items
        self.children.append((where, items))
        return None

    @contextmanager
    def bounded(self, value: object, where: str) -> Iterator[None]:
        """Raise Unencodable for *value* at *where* if it is out of bounds."""
        try:
            yield
        except PayloadError as error:
            self.refuse(value, error.message, where)

    def refuse(self, value: object, reason: str, where: str) -> NoReturn:
        error = Unencodable(value, reason)
        error.path.append(where)
        raise error


class Part(NamedTuple):
    """One described part that was checked.

    :param kind: its kind.
    :param length: how many rows it has, or None if only building it tells.
    :param build: makes it, of one dimension; of two where it was read as a block.
    :param dtype: NumPy's dtype of the numbers that it consists of, if it does.
    """

    kind: str
    length: int | None
    build: Built
    dtype: np.dtype[Any] | None = None


class Reader:
    """Walks the description of one object, and the buffers and objects that belong to it."""

    __slots__ = ("child_at", "frame_at", "kept", "limits", "nesting", "node")

    def __init__(self, node: Node, limits: Limits) -> None:
        self.node = node
        self.limits = limits
        self.frame_at = 0
        self.child_at = 0
        self.nesting = 0
        #: The objects that only stand in a column, where nothing compares them.
        self.kept: list[Node] = []

    def refuse(self, message: str, rule: str = "families.header") -> NoReturn:
        self.node.refuse(message, rule)

    def frame(self) -> memoryview:
        at = self.frame_at
        if at >= len(self.node.frames):
            self.refuse("it describes more buffers than there are", "families.frame-count")
        self.frame_at = at + 1
        return self.node.frames[at]

    def child(self, *kinds: str) -> int:
        """Return the position of the next object, which must yield one of *kinds* if any."""
        at = self.child_at
        if at >= len(self.node.children):
            self.refuse("it describes more objects than there are", "families.child-count")
        if kinds and self.node.children[at].yields not in kinds:
            self.refuse(f"its object {at} is of a wrong type", "families.child-type")
        self.child_at = at + 1
        return at

    def finish(self) -> None:
        """Refuse buffers or objects that nothing describes."""
        if self.frame_at != len(self.node.frames):
            self.refuse("it has buffers that nothing describes", "families.frame-count")
        if self.child_at != len(self.node.children):
            self.refuse("it has objects that nothing describes", "families.child-count")
        if any(child.own and child not in self.kept for child in self.node.children):
            self.refuse("a label or one of attrs is of a class to be registered", "families.own")

    def split(self, described: Any, count: int) -> Any:
        """Return *described* if it is a list of *count* items, or refuse."""
        if not is_listed(described):
            self.refuse("a part of it is not described by a list")
        if len(described) != count:
            self.refuse("a part of it is described by too few or too many items")
        return described

    def within(self, read: Callable[[Reader, Any], Part], described: Any) -> Part:
        """Read a nested part by *read*, up to the maximum depth."""
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            self.refuse("its parts are nested too deep", "families.depth")
        part = read(self, described)
        self.nesting -= 1
        return part

    def name(self, described: Any) -> Built:
        """Return a function that builds a name, which must be hashable."""
        if is_listed(described):
            self.split(described, 0)
            at = self.child()
            return lambda values: _hashed(values[at])
        if not label_of(described):
            self.refuse("a name of it is not one that a header may hold")
        return lambda values: described

    def flags(self, flags: Any, most: int = WRITEABLE | TURNED) -> int:
        if type(flags) is not int or not 0 <= flags <= most:
            self.refuse("its flags are unknown")
        return flags

    def numbers(self, key: Any) -> Array:
        """Return the next buffer as numbers of the dtype called *key*, in one dimension."""
        dtype = _DTYPES.get(key) or _DTYPES.get(key[1:]) if type(key) is str else None
        if dtype is None:
            self.refuse("no block can have its dtype", "families.dtype")
        frame = self.frame()
        count, odd = divmod(frame.nbytes, dtype.itemsize)
        if odd:
            self.refuse("its dtype does not fit its buffer", "families.shape")
        array: Array = np.ndarray((count,), dtype, buffer=frame)
        return bounds.sound(array) if dtype.char in _TRUSTED and count else array

    def rows(self, count: int, columns: int | None) -> int:
        """Return how many rows *count* elements of a block of *columns* are."""
        if columns is None:
            return count
        rows, odd = divmod(count, columns) if columns else (0, 1)
        if odd:
            self.refuse("a block does not fit its columns", "families.shape")
        return rows

    def objects(self, described: Any) -> tuple[int, Built]:
        """Return the number of the described objects, and a function that builds their list."""
        if described is not None:
            if not is_listed(described) or not set(map(type, described)) <= {str, type(None)}:
                self.refuse("its objects are not a list of texts")
            return len(described), lambda values: list(described)
        at = self.child("builtins:list")
        child = self.node.children[at]
        held = child.children if child.serializer == "collection" else child.value
        if self.nesting == 0:  # labels are nested in an index
            self.kept.append(child)
        count = len(held)
        return count, lambda values: values[at]


def _hashed(name: Any) -> Any:
    hash(name)
    return name


def settled(array: Array, flags: int) -> Array:
    """Return *array* aligned for compiled code, and writeable or not according to *flags*.

    A buffer starts where the bytes before it ended. NumPy copes; pandas' loops need not.
    """
    if not array.flags.aligned or (flags & WRITEABLE and not array.flags.writeable):
        array = array.copy()
    if not flags & WRITEABLE:
        array.flags.writeable = False
    return array
