"""Verdicts that are remembered, so that the same pickle is not judged over and over again.

The one rule: a verdict is found again only by everything that it depended on. That is the whole
content, the sizes of the buffers, the profile, the limits and the policy that decides; versions of
Python, safeser and the libraries are the process's own, and nothing here outlives the process.
Refusals are not remembered, nor what was seen only once: who sends a million different pickles
pushes out nobody's verdicts, and who sends each of them twice makes others slower, never wrong.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from safeser.errors import ConfigError
from safeser.pickles.budget import Budget
from safeser.pickles.build import Builder
from safeser.pickles.canonical import BYTES_PER_REF, Blobs, Canonical, apart
from safeser.pickles.emitting import emit
from safeser.pickles.nodes import Buffer, Program
from safeser.pickles.profiles import Profile
from safeser.values import Limits

__all__ = ["Programs", "Scope", "Scopes", "Unknown", "Verdict", "Verdicts", "wanted"]

# Hashing these and comparing them whole takes less time than a SHA-256, and says more.
_SHORT = 4096
_MAX_ENTRIES = 4096
_MAX_SIZE = 32 << 20
_MAX_SEEN = 8192
# An element takes some 200 bytes while it is judged, so this is 20 MB at the most.
_MAX_REFS = 100_000
_MAX_PROGRAMS = 16

# There is one for each grant of the policies that this process knows.
_MAX_SCOPES = 256


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Whose verdict it is; :meth:`Scopes.of` gives one object for what is the same.

    :param profile: by identity.
    :param policy: the policy's name for itself.
    """

    profile: Profile
    limits: Limits
    policy: str


#: Content of a pickle: itself, or its length, what of it is left out, and a hash of all the rest.
Content = bytes | tuple[int, Blobs, bytes]
Key = tuple[Content, Scope]
# Looking for a pickle hashes it once for each.
_MAX_LAYOUTS = 4
# A tuple of two numbers, and a number.
_COST_OF_PLACE, _COST_OF_SIZE = 128, 40


class Scopes:
    """One scope for each profile, limits and policy, so that looking for one hashes none of them.

    By identity only where the scope itself keeps both objects: an address alone says nothing, as
    another object may have it next.
    """

    def __init__(self) -> None:
        self._by_value: dict[tuple[Profile, Limits, str], Scope] = {}
        self._by_identity: dict[tuple[int, int, str], Scope] = {}

    def of(self, profile: Profile, limits: Limits, policy: str) -> Scope:
        key = id(profile), id(limits), policy
        found = self._by_identity.get(key)
        if found is None:
            if len(self._by_value) >= _MAX_SCOPES:
                # Verdicts are then found no more, and go with time.
                self._by_value, self._by_identity = {}, {}
            if not isinstance(limits, Limits):
                raise ConfigError(
                    f"limits is a safeser.Limits, not a {type(limits).__name__}",
                    rule="config.limits",
                )
            scope = Scope(profile, limits, policy)
            found = self._by_value.setdefault((profile, limits, policy), scope)
            if found.limits is limits:
                self._by_identity[key] = found
        return found


class Unknown(Exception):
    """No verdict covers this load; *spoilt* if one seemed to."""

    def __init__(self, *, spoilt: bool) -> None:
        super().__init__()
        self.spoilt = spoilt


@dataclass(frozen=True, slots=True)
class Verdict:
    """One pickle that was judged and accepted.

    :param wanted: how many out-of-band buffers it takes.
    :param refs: elements that it is charged; *calls* likewise.
    :param sizes: of the buffers that it was loaded with; None where it was only judged.
    :param canonical: what is loaded instead of it; None where that cannot be written.
    :param apart: what of its bytes the verdict does not depend on.
    """

    wanted: int
    refs: int
    calls: int
    sizes: tuple[int, ...] | None = None
    canonical: Canonical | None = None
    apart: Blobs = ()

    def load(
        self, data: bytes, buffers: Sequence[Any], limits: Limits, budget: Budget | None
    ) -> Any:
        """Return the object, or raise :class:`Unknown`: then the pickle is to be judged anew.

        :param data: the pickle for which the verdict was found.
        """
        sizes = _sizes(buffers) if buffers else ()
        if self.canonical is None or self.sizes != sizes:
            raise Unknown(spoilt=False)
        before = None if budget is None else budget.left()
        try:
            return self.canonical.load(buffers, limits, budget, data)
        # Whatever it was, judging and building say it in full, and from where in the stream.
        except Exception:
            if budget is not None and before is not None:
                budget.reset(before)
            raise Unknown(spoilt=True) from None


class Verdicts:
    """Verdicts by what they depended on; those that nobody asked for longest go first.

    Nobody waits for the lock: garbage may be collected at any moment, and a finalizer that loads a
    pickle would wait for itself. What finds it taken does without; it is a cache.
    """

    def __init__(self, *, entries: int = _MAX_ENTRIES, size: int = _MAX_SIZE) -> None:
        self._entries = entries
        self._size = size
        self._room = size
        self._kept: OrderedDict[Key, Verdict] = OrderedDict()
        #: Of what is kept, but short ones: what is left out, by length.
        self._layouts: dict[int, Counter[Blobs]] = {}
        self._seen: set[int] = set()
        self._seen_before: set[int] = set()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, data: bytes, scope: Scope) -> Verdict | None:
        """Return the verdict on *data* in *scope*, if there is one."""
        if len(data) <= _SHORT:
            return self._find((data, scope))
        for blobs in tuple(self._layouts.get(len(data), ())):
            found = self._find((_content(data, blobs), scope))
            if found is not None:
                return found
        return None

    def _find(self, key: Key) -> Verdict | None:
        found = self._kept.get(key)
        if found is not None and self._lock.acquire(blocking=False):
            try:
                if key in self._kept:
                    self._kept.move_to_end(key)
            finally:
                self._lock.release()
        return found

    def note(
        self,
        data: bytes,
        scope: Scope,
        program: Program,
        *,
        made: Builder | Canonical | None = None,
        buffers: Sequence[Any] = (),
    ) -> None:
        """Remember that *program*, which *data* says, was accepted, if it comes often enough.

        :param made: what has made its object with *buffers*, if it was loaded.
        """
        blobs = tuple(apart(program).values()) if len(data) > _SHORT else ()
        hashed = len(data) - sum(end - start for start, end in blobs)
        if hashed > max(_SHORT, program.refs * BYTES_PER_REF) or hashed > self._size >> 3:
            return
        key = _content(data, blobs), scope
        if not self._comes_again(hash((key, made is None))):
            return
        sizes = None if made is None else _sizes(buffers)
        known = self._kept.get(key)
        if known is not None and (made is None or known.sizes == sizes):
            # It is known to have no canonical form, or to need none.
            return
        canonical = emit(made) if isinstance(made, Builder) else made
        if canonical is not None and canonical.apart != blobs:
            # It would say for every content what was made of one.
            canonical = None
        verdict = Verdict(
            wanted(program), program.refs, program.calls, sizes, canonical, apart=blobs
        )
        self._keep(key, verdict)

    def spoil(self, data: bytes, scope: Scope, verdict: Verdict) -> None:
        """Never again use the canonical form of *data* that *verdict* has, which failed."""
        key = _content(data, verdict.apart), scope
        known = self._kept.get(key)
        if known is not None:
            self._keep(key, replace(known, canonical=None))

    def clear(self) -> None:
        """Forget all. Not for finalizers: this one waits."""
        with self._lock:
            for key in list(self._kept):
                self._forget(key)
            self._seen, self._seen_before = set(), set()

    def _comes_again(self, mark: int) -> bool:
        if mark in self._seen or mark in self._seen_before:
            return True
        if self._lock.acquire(blocking=False):
            try:
                if len(self._seen) >= _MAX_SEEN:
                    self._seen_before, self._seen = self._seen, set()
                self._seen.add(mark)
            finally:
                self._lock.release()
        return False

    def _keep(self, key: Key, verdict: Verdict) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._replace(key, verdict)
            finally:
                self._lock.release()

    def _replace(self, key: Key, verdict: Verdict) -> None:
        self._forget(key)
        cost = _cost(key, verdict)
        if cost > self._size >> 3:
            # Thousands of buffers of no size would push out everybody else's.
            return
        content = key[0]
        if not isinstance(content, bytes):
            layouts = self._layouts.setdefault(content[0], Counter())
            if content[1] and content[1] not in layouts and len(layouts) >= _MAX_LAYOUTS:
                return
            layouts[content[1]] += 1
        self._kept[key] = verdict
        self._room -= cost
        while self._room < 0 or len(self._kept) > self._entries:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: Key) -> None:
        found = self._kept.pop(key, None)
        if found is None:
            return
        self._room += _cost(key, found)
        content = key[0]
        if isinstance(content, bytes):
            return
        length, blobs, _ = content
        layouts = self._layouts[length]
        layouts[blobs] -= 1
        if not layouts[blobs]:
            del layouts[blobs]
        if not layouts:
            del self._layouts[length]


def wanted(program: Program) -> int:
    """Return how many out-of-band buffers *program* takes."""
    return max((node.number + 1 for node in program.nodes if type(node) is Buffer), default=0)


def _sizes(buffers: Sequence[Any]) -> tuple[int, ...]:
    return tuple([memoryview(buffer).nbytes for buffer in buffers])


def _content(data: bytes, blobs: Blobs) -> Content:
    """Return what stands for *data* in a key.

    Places and lengths of what is left out follow from the rest, which was judged with them, and
    are in the key all the same.
    """
    if len(data) <= _SHORT:
        return data
    if not blobs:
        return len(data), (), hashlib.sha256(data).digest()
    begun, view, hashed = 0, memoryview(data), hashlib.sha256()
    for start, end in blobs:
        hashed.update(view[begun:start])
        begun = end
    hashed.update(view[begun:])
    return len(data), blobs, hashed.digest()


def _cost(key: Key, verdict: Verdict) -> int:
    content = key[0]
    held = len(content) if isinstance(content, bytes) else _COST_OF_PLACE * len(content[1])
    held += _COST_OF_SIZE * len(verdict.sizes or ())
    return held + 512 + (verdict.canonical.cost if verdict.canonical else 0)


class Programs:
    """The last few programs that were read and accepted, until they are loaded.

    A message's pickles are read to find their family, then to judge them by the grant, then to
    load them. What is kept here was read from the very same bytes under the same limits.
    """

    def __init__(self, *, refs: int = _MAX_REFS, size: int = _MAX_SIZE) -> None:
        self._room = refs
        self._size = size
        self._kept: deque[tuple[bytes, Limits, Program]] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()

    def keep(self, data: bytes, limits: Limits, program: Program) -> None:
        # Few elements may be of many bytes; what is refused after this is never asked for again.
        if program.refs > self._room or len(data) > self._size >> 3:
            return
        # As for verdicts, nobody waits.
        if self._lock.acquire(blocking=False):
            try:
                self._kept.append((data, limits, program))
                while (
                    sum(kept.refs for _, _, kept in self._kept) > self._room
                    or sum(len(content) for content, _, _ in self._kept) > self._size
                    or len(self._kept) > _MAX_PROGRAMS
                ):
                    self._kept.popleft()
            finally:
                self._lock.release()

    def find(self, data: bytes, limits: Limits, *, last: bool) -> Program | None:
        """Return what *data* says, if it was read lately.

        :param last: it will not be asked for again.
        """
        for kept in tuple(self._kept):
            if kept[0] == data and kept[1] == limits:
                if last and self._lock.acquire(blocking=False):
                    try:
                        if kept in self._kept:
                            self._kept.remove(kept)
                    finally:
                        self._lock.release()
                return kept[2]
        return None
