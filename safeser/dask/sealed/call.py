"""One sealed task on its way from the scheduler to a worker, and what both ends keep of a session.

The statement and the definitions are sent once for each connection and named by number afterwards,
as HPACK does with header fields (RFC 7541): the scheduler numbers what it sends, says when both
ends forget all of it, and the worker keeps no more than :data:`MOST_KEPT` bytes. Of an inclusion
path, the hashes at its end that the path before it has too are left out, if that is of the same
graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from safeser.dask.sealed.definitions import digest
from safeser.dask.sealed.graph import Head, read_head
from safeser.dask.sealed.merkle import HASH_SIZE, Inclusion, leaf_hash, longest_path
from safeser.dask.sealed.opening import malformed_task
from safeser.dask.sealed.statement import ASK_OPERATOR, MOST_PACKED, SignedStatement
from safeser.dask.sealed.writing import Leaf, leaf_parts
from safeser.dask.wire.reader import Reader, packed
from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.format import Buffer
from safeser.gate.values import Limits
from safeser.policy import Policy

__all__ = ["HEADER", "Call", "Kept", "Sent"]

#: The header of the payload that a sealed task is.
HEADER: dict[str, Any] = {"serializer": "sealed"}

#: Bytes of definitions that a worker keeps for one connection.
MOST_KEPT = 64 << 20

#: The cost of a part beside its bytes, at most: without it, parts of no bytes would be free.
_OVERHEAD = 256

#: A longer definition travels with each task that needs it, and is not kept.
_LONGEST_KEPT = 1 << 20


#: A statement or definition, and its digest. What is not kept is a view of what arrived.
_Part = tuple[bytes, Buffer]


@dataclass(
    slots=True, eq=False
)  # one for each task; a frozen one takes three times as long to make
class Call:
    """One task of a sealed graph, with all that it takes to verify and run it.

    :param index: of its leaf.
    :param path: its inclusion path.
    :param definitions: in the order of the head's digests, which they match.
    """

    signed: SignedStatement
    index: int
    path: bytes
    leaf: Leaf
    head: Head
    definitions: tuple[bytes, ...]

    @property
    def nbytes(self) -> int:
        return len(self.path) + sum(map(len, self.leaf)) + sum(map(len, self.definitions))


class Sent:
    """What a scheduler has sent over one connection; numbers count from 0 after each clearing.

    Messages are encoded before it is known that they leave: what :meth:`frames` adds holds once
    :meth:`commit` was called, and is gone after :meth:`rollback`.

    :ivar undo: what was so before each task since the last commit: the numbers, how many they were,
        their size, and the last task.
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._size = 0
        # The last statement, and its digest.
        self._signed: SignedStatement | None = None
        self._named = b""
        # Whose tasks may leave, in which operation, as the policy beside it decided.
        self._allowed: tuple[Policy | None, set[tuple[str | None, str]]] = (None, set())
        # Of the last task: the digest of its statement, and its inclusion path.
        self._last = b"", b""
        self.undo: list[tuple[dict[bytes, int], int, int, tuple[bytes, bytes]]] = []

    def allowed_under(self, policy: Policy) -> set[tuple[str | None, str]]:
        """Return whose tasks may leave in which operation, as was decided under *policy*."""
        decided, allowed = self._allowed
        if decided is not policy or policy.has_passed:
            allowed = set()
            self._allowed = policy, allowed
        return allowed

    def frames(self, call: Call) -> list[bytes]:
        """Return the frames that tell the worker of *call*."""
        if call.signed is not self._signed:
            self._signed, self._named = call.signed, digest(call.signed.packed)
        self.undo.append((self._numbers, len(self._numbers), self._size, self._last))
        named = (self._named, *call.head.digests)
        places: list[int | None] = [self._numbers.get(key) for key in named]
        if None not in places:  # as for nearly all tasks of a graph
            return [self._first_frame(call, places, 0, cleared=False)]
        return self._frames_with_parts(call, named)

    def _first_frame(
        self, call: Call, places: Sequence[int | None], added: int, *, cleared: bool
    ) -> bytes:
        """Return the first frame of *call*: its place, its leaf, and where its parts are.

        :param added: how many of the frames behind it are to be kept.
        """
        before, path, own = self._last, call.path, 0
        if before[0] == self._named:
            while not before[1].endswith(path[own:]):
                own += HASH_SIZE
        else:
            own = len(path)
        self._last = self._named, path
        common = (len(path) - own) // HASH_SIZE
        return packed([call.index, path[:own], common, *call.leaf, places, added, cleared])

    def _frames_with_parts(self, call: Call, named: tuple[bytes, ...]) -> list[bytes]:
        """Return the frames of a task of which the worker does not have all parts yet."""
        parts = dict(zip(named, (call.signed.packed, *call.definitions), strict=True))
        kept = {key: part for key, part in parts.items() if len(part) <= _LONGEST_KEPT}
        if sum(map(_weight, kept.values())) > MOST_KEPT:
            kept = {}
        new = sum(_weight(part) for key, part in kept.items() if key not in self._numbers)
        cleared = self._size + new > MOST_KEPT
        if cleared:
            self._numbers, self._size = {}, 0
        added: list[bytes] = []
        loose: list[bytes] = []
        numbers = {}
        for key, part in parts.items():
            if key in kept and key not in self._numbers:
                self._numbers[key] = len(self._numbers)
                self._size += _weight(part)
                added.append(part)
            elif key not in self._numbers:
                loose.append(part)
            numbers[key] = self._numbers.get(key, -len(loose))
        places = [numbers[key] for key in named]
        return [self._first_frame(call, places, len(added), cleared=cleared), *added, *loose]

    def commit(self) -> None:
        self.undo.clear()

    def rollback(self, mark: int = 0) -> None:
        """Take back all tasks after the first *mark* of :attr:`undo`."""
        if len(self.undo) > mark:
            self._numbers, count, self._size, self._last = self.undo[mark]
            while len(self._numbers) > count:
                self._numbers.popitem()
            del self.undo[mark:]


class Kept:
    """The statements and definitions that a worker keeps of one connection."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._size = 0
        # Of the last task: the digest of its statement, and its inclusion path.
        self._last = b"", b""

    def call(self, frames: Sequence[Any], limits: Limits) -> Call:
        """Return the task that *frames* spell, with all that they name by number.

        To be called once for each task, in the order in which they came. Who signed it is not
        verified yet; that it is what was signed is.

        :raises PayloadError: if they are malformed, name what is not kept, or would be too much.
        :raises PolicyDenied: if its definitions or its place in the graph are not what was signed.
        """
        read = Reader(limits)
        match read.read(frames[0]) if frames else None:
            case (
                int() as index,
                bytes() as own,
                int() as common,
                bytes() as head,
                bytes() as tree,
                tuple() as places,
                int() as count,
                bool() as cleared,
            ) if (
                type(index) is type(common) is type(count) is int
                and 0 <= count < len(frames)
                and places
            ):
                parts = [(digest(frame), frame) for frame in frames[1:]]
                added, loose = parts[:count], parts[count:]
            case _:
                raise malformed_task("its frames")
        self._keep(added, cleared=cleared)
        statement, *definitions = (self._found(place, loose) for place in places)
        if len(statement[1]) > MOST_PACKED:
            raise malformed_task("its statement")
        signed, inclusion = _statement(bytes(statement[1]))
        path = self._path(statement[0], own, common)
        if len(path) > longest_path(signed.statement.size):
            raise malformed_task("its path")
        self._last = statement[0], path
        hashed = leaf_hash(*leaf_parts(signed.statement.graph, head, tree))
        if inclusion.covers(hashed, index, path):
            read_of = read_head(head, read)
            if read_of.digests == tuple(found for found, _ in definitions):
                given = tuple(bytes(part) for _, part in definitions)
                return Call(signed, index, path, Leaf(head, tree), read_of, given)
        raise PolicyDenied(
            "the task is not the one that its author signed",
            rule="sealed.inclusion",
            fix=ASK_OPERATOR,
        )

    def _path(self, statement: bytes, own: bytes, common: int) -> bytes:
        """Return *own* and the last *common* hashes of the path before, in the same graph."""
        if not common:
            return own
        of, before = self._last
        if of != statement or not 0 < common * HASH_SIZE <= len(before):
            raise malformed_task("its path")
        return own + before[-common * HASH_SIZE :]

    def _keep(self, added: Sequence[_Part], *, cleared: bool) -> None:
        if cleared:
            self._parts, self._size = [], 0
        self._size += sum(_weight(part) for _, part in added)
        if self._size > MOST_KEPT:
            self._parts, self._size = [], 0
            raise PayloadError(
                f"a scheduler has its worker keep more than {MOST_KEPT} bytes of definitions",
                rule="sealed.kept",
            )
        self._parts += [(name, bytes(part)) for name, part in added]

    def _found(self, place: Any, loose: Sequence[_Part]) -> _Part:
        if type(place) is int and 0 <= place < len(self._parts):
            return self._parts[place]
        if type(place) is int and -len(loose) <= place < 0:
            return loose[-place - 1]
        raise malformed_task("a definition is missing")


def _weight(part: Buffer) -> int:
    """Return what *part* counts for; both ends of a connection say the same."""
    return len(part) + _OVERHEAD


@lru_cache(maxsize=256)
def _statement(packed: bytes) -> tuple[SignedStatement, Inclusion]:
    signed = SignedStatement.parse(packed)
    return signed, Inclusion(signed.statement.root, signed.statement.size)
