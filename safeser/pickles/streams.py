"""Read pickles that are part of a larger file: several in a row, or joblib's with arrays between.

The one rule: the judged pickle itself states where an array's bytes begin and end, and this is
checked against the file; nothing is searched for, and no byte is left unread.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import length_hint
from typing import Any, NoReturn

from safeser.errors import PayloadError
from safeser.gate.values import ELEMENT
from safeser.pickles.budget import Budget
from safeser.pickles.nodes import Call, DictOf, GlobalRef, Program, TupleOf
from safeser.pickles.reading.loop import Handler
from safeser.pickles.reading.loop import run as loop
from safeser.pickles.reading.machine import HANDLERS, Machine

__all__ = ["WRAPPER", "Passage", "RawArray", "read_passage"]

#: What joblib's pickles hold in the place of each array; the array's bytes follow in the file.
WRAPPER = "joblib.numpy_pickle:NumpyArrayWrapper"
# The same of scikit-learn's copy, before 0.23.
_WRAPPERS = frozenset({WRAPPER, f"sklearn.externals.{WRAPPER}"})

_SUBCLASSES = frozenset({"numpy:ndarray", "numpy:matrix", "numpy:memmap"})
_FIELDS = frozenset({"subclass", "shape", "order", "dtype", "allow_mmap"})
_ALIGNMENT = "numpy_array_alignment_bytes"
_ALIGNED = 16
_MAX_DIMS = 64
#: Of one dtype, nested ones included; and of those of all arrays together, beside one for each byte
#: of the file: any number of arrays can be of one dtype.
_MAX_FIELDS = 10_000
_INT63 = 1 << 63
_CODE = re.compile(
    r"(?:(?P<fixed>b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[Mm]8)"
    r"|(?P<sized>[SUV])(?P<size>[0-9]{1,9})|(?P<object>O8?))\Z"
)
# NumPy's flag for elements that are pointers to objects.
_HAS_OBJECT = 1


@dataclass(frozen=True, slots=True)
class RawArray:
    """An array whose bytes follow the pickle that describes it.

    :param offset: where its bytes begin.
    :param dtype: as NumPy's pickles write it, e.g. ``"<f8"``.
    :param objects: its elements are a pickle of their own, not bytes.
    """

    offset: int
    size: int
    shape: tuple[int, ...]
    dtype: str
    objects: bool = False


@dataclass(frozen=True, slots=True)
class Passage:
    """One pickle within a file, from *start* to *end*, with the raw arrays between its opcodes.

    :param inner: pickles that stand where an array of objects has its elements.
    """

    program: Program
    start: int
    end: int
    arrays: tuple[RawArray, ...] = ()
    inner: tuple[Passage, ...] = ()


def read_passage(
    data: bytes, start: int, budget: Budget, *, arrays: bool = False, persistent: bool = False
) -> Passage:
    """Return the pickle that begins at byte *start*; what follows it is the caller's to read.

    :param budget: shared by all pickles of a file, and charged.
    :param arrays: read joblib's arrays where the pickle has them.
    :param persistent: the container says what persistent ids mean.
    """
    reader = (_WithArrays if arrays else _Alone)(
        data, None, budget.limits, budget, persistent=persistent, start=start
    )
    with budget.reading(reader.turns):
        program = reader.run()
    budget.spend(refs=program.refs, calls=program.calls)
    return Passage(program, start, reader.pos, tuple(reader.arrays), tuple(reader.inner))


def _frame(machine: Machine) -> None:
    """Refuse a frame that is longer than the file as a sign of truncation."""
    size = int.from_bytes(machine.data[machine.pos : machine.pos + 8], "little")
    if size > len(machine.data) - machine.pos - 8:
        machine.refuse("truncated", "a frame is cut off")
    machine.do_frame()


_ALONE = tuple(_frame if each is Machine.do_frame else each for each in HANDLERS)


class _Alone(Machine):
    """Reads one pickle and stops after it."""

    handlers: tuple[Handler | None, ...] = _ALONE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.arrays: list[RawArray] = []
        self.inner: list[Passage] = []
        #: Yields a value for each field of a dtype that the limit still covers.
        self.fields = iter(range(_MAX_FIELDS + len(self.data)))

    def run(self) -> Program:
        loop(self, self.handlers)
        return self.finish()


class _WithArrays(_Alone):
    """Reads as joblib's unpickler does: at a wrapper's BUILD it takes an array from the file."""

    def skip_array(self, wrapper: Call) -> None:
        if self.frame_end not in (0, self.pos):
            # CPython would go on inside the frame afterwards, behind joblib's back.
            self.refuse("frame", "an array's bytes begin inside a frame")
        self.frame_end = 0
        shape, dtype, aligned = self.described(wrapper)
        size, objects, shown = _element(dtype, self.fields) or self.bad_array(
            "has an unknown dtype"
        )
        if objects:
            self.read_objects(shape, shown)
            return
        bound = math.prod(length for length in shape if length) * size
        if not size or bound >= _INT63:
            self.bad_array("has an impossible size")
        if aligned:
            padding = self.take(1)[0]
            if padding > _ALIGNED or self.take(padding) != b"\xff" * padding:
                self.bad_array("is padded as joblib does not")
        taken = math.prod(shape) * size
        if taken > len(self.data) - self.pos:
            self.refuse("truncated", "an array's bytes are cut off")
        self.arrays.append(RawArray(self.pos, taken, shape, shown))
        self.pos += taken

    def described(self, wrapper: Call) -> tuple[tuple[int, ...], Any, bool]:
        """Return shape, dtype and alignment of what *wrapper* stands for."""
        state = wrapper.state
        if not wrapper.new or wrapper.args.items or wrapper.kwargs is not None:
            self.bad_array("is not made as joblib makes it")
        if type(state) is not DictOf or any(type(key) is not str for key in state.items[::2]):
            self.bad_array("is not described")
        fields = dict(zip(state.items[::2], state.items[1::2], strict=True))
        # A key twice would leave open which of the two a reader takes.
        if len(fields) * 2 != len(state.items) or fields.keys() - {_ALIGNMENT} != _FIELDS:
            self.bad_array("is described by other fields than joblib's")
        subclass, shape, alignment = fields["subclass"], fields["shape"], fields.get(_ALIGNMENT)
        if type(subclass) is not GlobalRef or subclass.name not in _SUBCLASSES:
            self.bad_array("is of an unknown class")
        if type(shape) is not TupleOf or len(shape.items) > _MAX_DIMS:
            self.bad_array("has no shape")
        if any(type(length) is not int or not 0 <= length < _INT63 for length in shape.items):
            self.bad_array("has an impossible shape")
        if fields["order"] not in ("C", "F") or type(fields["allow_mmap"]) is not bool:
            self.bad_array("has no order")
        if alignment not in (None, _ALIGNED):
            self.bad_array("is aligned as joblib does not")
        return tuple(shape.items), fields["dtype"], alignment is not None

    def read_objects(self, shape: tuple[int, ...], shown: str) -> None:
        """Read the pickle that stands in the place of elements; joblib hands it to an unpickler."""
        left = Budget(self.limits)
        left.memory, left.calls = self.refs * ELEMENT, self.calls
        # Not joblib's unpickler: in such a pickle a wrapper is a class like any other.
        left.opcodes = length_hint(self.turns)
        try:
            passage = read_passage(self.data, self.pos, left)
        finally:
            deque(islice(self.turns, length_hint(self.turns) - left.opcodes), maxlen=0)
        self.refs, self.calls = left.refs, left.calls
        size = passage.end - self.pos
        self.arrays.append(RawArray(self.pos, size, shape, shown, objects=True))
        self.inner.append(passage)
        self.pos = passage.end

    def bad_array(self, message: str) -> NoReturn:
        raise PayloadError(
            f"an array {message}",
            rule="pickle.joblib-array",
            where=f"byte {self.at}",
            fix="No profile and no limit allows this.",
        )


def _build(machine: Machine) -> None:
    machine.do_build()
    assert isinstance(machine, _WithArrays)
    target = machine.top()
    # Any other way to joblib's class is a global that no profile lists.
    if isinstance(target.callee, GlobalRef) and target.callee.name in _WRAPPERS:
        machine.skip_array(target)


_WithArrays.handlers = tuple(_build if each is Machine.do_build else each for each in _ALONE)


def _element(dtype: Any, room: Iterator[int]) -> tuple[int, bool, str] | None:
    """Return an element's size, whether it is an object, and the dtype's text; None if unknown."""
    found = _simple(dtype)
    if found is None:
        return None
    size, objects, text = found
    state = dtype.state.items
    if state[2] is not None or (state[4] is not None and not text.startswith("V")):
        return None
    parts = _fields(dtype, room)
    if parts is None:
        return None
    objects = objects or any(part[1] for part in parts)
    flags = state[7]
    if type(flags) is not int or bool(flags & _HAS_OBJECT) != objects:
        return None
    order = state[1] if state[1] in ("<", ">") else ""
    return size, objects, order + text


def _simple(dtype: Any) -> tuple[int, bool, str] | None:
    """Return the dtype by the code of *dtype*, if its state agrees."""
    if not (type(dtype) is Call and not dtype.new and type(dtype.callee) is GlobalRef):
        return None
    args, state = dtype.args.items, dtype.state
    sound = dtype.callee.name == "numpy:dtype" and len(args) == 3 and type(args[0]) is str
    match = _CODE.match(args[0]) if sound else None
    if match is None or type(state) is not TupleOf or len(state.items) not in (8, 9):
        return None
    stated = state.items[5]
    if match["sized"]:
        size = int(match["size"]) * (4 if match["sized"] == "U" else 1)
        # NumPy takes the size from the state, whatever the code says.
        return (size, False, args[0]) if type(stated) is int and stated == size else None
    if stated != -1:
        return None
    return (8, True, "O") if match["object"] else (int(args[0][1:]), False, args[0])


def _fields(dtype: Call, room: Iterator[int]) -> list[tuple[int, bool, str]] | None:
    """Return what the fields of *dtype* are, nested ones included; None if one is unknown."""
    found: list[tuple[int, bool, str]] = []
    pending: list[Any] = [dtype]
    while pending:
        part = pending.pop()
        base = _simple(part)
        spent = next(room, None) is None
        if base is None or spent or len(found) + len(pending) > _MAX_FIELDS:
            return None
        found.append(base)
        subarray, fields = part.state.items[2], part.state.items[4]
        if subarray is not None:
            pending.append(_first(subarray))
        if fields is not None:
            if type(fields) is not DictOf or len(fields.items) > _MAX_FIELDS:
                return None
            pending.extend(_first(described) for described in fields.items[1::2])
    return found


def _first(value: Any) -> Any:
    return value.items[0] if type(value) is TupleOf and value.items else None
