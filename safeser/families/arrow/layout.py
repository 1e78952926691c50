"""Encode and decode Arrow objects as a flat list of words and a sequence of buffers.

The one rule: the reader consumes the buffers in order, each exactly once and completely, so no two
arrays share memory and no word is a pointer.

Words are text, numbers, flags and None, in the order in which the reader needs them. A word that
stands for a buffer is its size. The frame of the words also holds the small buffers, aligned to
eight bytes; each large buffer is a frame of its own, without a copy on either side. Large buffers
whose size is a multiple of eight come first, then multiples of four, of two, and odd sizes, so
numbers stay aligned when a transport concatenates frames.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.plain import Unencodable
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.pickles.shims.site import Site

__all__ = ["Reader", "Writer", "checking"]

#: Untyped on purpose: Arrow is an extra.
pa: Any = importlib.import_module("pyarrow")

#: Smaller buffers are cheaper to copy than to send as a frame of their own. The reader goes by the
#: size alone, so both sides must agree.
_LARGE = 1 << 12

_ALIGNMENT = 8


class Writer:
    """Words and buffers of one object, in the order in which a reader takes them."""

    __slots__ = ("_known", "_numbered", "_pool", "_ranked", "_words")

    def __init__(self) -> None:
        self._words: list[Any] = []
        self._pool: list[Any] = []
        self._ranked: dict[int, list[Any]] = {8: [], 4: [], 2: [], 1: []}
        self._known: dict[Any, int] = {}
        self._numbered = 0

    def put(self, *words: Any) -> None:
        self._words += words

    def buffer(self, content: Any) -> None:
        """Add *content*, anything that lends its bytes in one run; None for a buffer that lacks."""
        if content is None:
            self._words.append(-1)
            return
        size = memoryview(content).nbytes
        self._words.append(size)
        if size >= _LARGE:
            self._ranked[min(_ALIGNMENT, size & -size)].append(content)
        elif size:
            self._pool.append(content)
            if size % _ALIGNMENT:
                self._pool.append(bytes(-size % _ALIGNMENT))

    def again(self, place: object) -> bool:
        """Write a reference if *place* was written before, and tell whether it was.

        :param place: where it lies in memory; None if that says nothing.
        """
        number = None if place is None else self._known.get(place)
        self._words.append(number)
        if number is None:
            self._known[place] = self._numbered
            self._numbered += 1
        return number is not None

    def append(self, other: Writer) -> None:
        """Add all that *other* was given."""
        self._words += other._words
        self._pool += other._pool
        for rank, frames in other._ranked.items():
            self._ranked[rank] += frames

    def frames(self, limits: Limits) -> list[Any]:
        """Return the frames to send, or raise Unencodable if the receiver would refuse them."""
        large = [frame for frames in self._ranked.values() for frame in frames]
        if len(large) >= limits.max_frames:
            raise Unencodable(None, f"it has more than {limits.max_frames} large buffers")
        if any(memoryview(frame).nbytes > limits.max_array for frame in large):
            raise Unencodable(None, "a buffer is larger than max_array: send it in chunks")
        last = plain.encode([self._words, b"".join(self._pool)], limits=limits)
        return [*large, last]


class Reader:
    """Read frames word by word, and refuse any form that a Writer does not produce.

    :param refuse: raises the error that says whose frames they are, from a message and a rule.
    :param budget: of the message that they came in.
    """

    __slots__ = ("_at", "_frames", "_pool", "_refuse", "_taken", "_words", "limits", "site")

    def __init__(
        self,
        frames: Sequence[memoryview],
        limits: Limits,
        refuse: Callable[[str, str], NoReturn],
        budget: Budget | None = None,
    ) -> None:
        self._refuse = refuse
        if not frames:
            self.refuse("it has no frames")
        self.site = Site(limits, given=sum(frame.nbytes for frame in frames), budget=budget)
        self.limits = limits
        *large, last = frames
        charged = self.site.budget
        said, charged.memory = plain.decode_counted(last, limits=limits, room=charged.memory)
        if type(said) is not list or list(map(type, said)) != [list, bytes]:
            self.refuse("its last frame does not describe it")
        self._words = said[0]
        self._at = 0
        self._pool = pa.py_buffer(said[1])
        self._taken = 0
        self._frames: dict[int, list[Any]] = {8: [], 4: [], 2: [], 1: []}
        least = _ALIGNMENT
        for frame in large:
            rank = min(_ALIGNMENT, frame.nbytes & -frame.nbytes)
            if frame.nbytes < _LARGE or rank > least:
                self.refuse("its frames are not in order")
            least = rank
            self._frames[rank].append(frame)
        for waiting in self._frames.values():
            waiting.reverse()

    def word(self, *kinds: type) -> Any:
        """Return the next word, which is of exactly one of *kinds*."""
        at = self._at
        if at >= len(self._words):
            self.refuse("it ends too early")
        self._at = at + 1
        word = self._words[at]
        if type(word) not in kinds:
            self.refuse("a word of its description is of a wrong kind")
        return word

    def absent(self) -> bool:
        """Take the next word if it is None, and tell whether it was."""
        absent = self._at < len(self._words) and self._words[self._at] is None
        self._at += absent
        return absent

    def count(self) -> int:
        """Return the next word, which is a number that something may be long."""
        number: int = self.word(int)
        if number < 0:
            self.refuse("a number of its description is negative")
        return number

    def each(self) -> range:
        """Return a range of the count in the next word, which the remaining words bound."""
        number = self.count()
        if number > len(self._words) - self._at:
            self.refuse("it declares more parts than it has")
        return range(number)

    def buffer(self) -> Any:
        """Return the next buffer as read-only memory, or None where there is none."""
        size: int = self.word(int)
        if size == -1:
            return None
        if size < 0:
            self.refuse("a number of its description is negative")
        if size < _LARGE:
            start = self._taken
            self._taken += size + -size % _ALIGNMENT
            if self._taken > self._pool.size:
                self.refuse("a buffer ends outside of its frame")
            return self._pool.slice(start, size)
        waiting = self._frames[min(_ALIGNMENT, size & -size)]
        if not waiting or waiting[-1].nbytes != size:
            self.refuse("a buffer and its frame differ in size")
        return self._aligned(waiting.pop().toreadonly(), min(_ALIGNMENT, size & -size))

    def _aligned(self, frame: memoryview, rank: int) -> Any:
        made = pa.py_buffer(frame)
        if made.address % rank:
            # A frame starts where the bytes before it ended; Arrow's loops need alignment.
            self.site.charge_bytes(made.size)
            made = pa.py_buffer(bytes(frame))
        return made

    def content(self) -> bytes:
        """Return the next buffer as bytes."""
        found = self.buffer()
        if found is None:
            self.refuse("bytes of its description are missing")
        return bytes(memoryview(found))

    def end(self) -> None:
        """Refuse the frames if words or buffers remain."""
        if self._at != len(self._words) or any(self._frames.values()):
            self.refuse("it has more parts than it describes")
        if self._taken != self._pool.size:
            self.refuse("its last frame holds more than it describes")

    def refuse(self, message: str) -> NoReturn:
        self._refuse(message, "families.arrow")


@contextmanager
def checking(node: Node) -> Iterator[None]:
    """Convert errors of Arrow and of restricted pickle's functions to refusals of the node."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        # Arrow's error may quote a peer's words, so its text is left out.
        node.refuse(f"Arrow finds it invalid ({type(error).__name__})", "families.arrow")
    except PayloadError as error:
        area, _, rule = error.rule.partition(".")
        if area != "pickle":
            raise
        raise PayloadError(
            f"the header of {node.type} is refused: {error.message}",
            rule=f"families.{rule}",
            where=node.where,
            fix=error.fix,
        ) from None
