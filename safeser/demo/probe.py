"""An independent witness inside a client's process: which pickles were opened, and who made them.

The one rule: it trusts nothing of safeser's. It is installed before anything that could keep an
unpickler, it wraps every one of the standard library, and CPython's own audit event tells it of
globals that were looked up by any other way. A pickle that this very process did not make came from
a peer.
"""

from __future__ import annotations

import _pickle
import functools
import hashlib
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Probe", "Report", "install"]


@dataclass(frozen=True, slots=True)
class Report:
    """What was opened since the probe was installed.

    :param own: pickles that this process had made itself, as Dask does to name tasks.
    :param peer: pickles that it had not made.
    :param unseen: globals that were looked up outside every wrapped unpickler.
    :param peer_globals: globals that pickles of peers named.
    """

    own: int
    peer: int
    unseen: tuple[str, ...]
    peer_globals: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether no byte of a peer reached an unpickler, by a wrapped way or another."""
        return not self.peer and not self.unseen

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON."""
        return {
            "own": self.own,
            "peer": self.peer,
            "unseen": list(self.unseen),
            "peer_globals": list(self.peer_globals),
        }


@dataclass(slots=True)
class _Opening:
    """One pickle that is being opened; the digest may be known only at its end."""

    digest: bytes = b""
    globals: set[str] = field(default_factory=set)


class _Taken:
    """A file that an unpickler reads, which keeps what was taken from it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        return self._keep(self._file.read(size))

    def readline(self) -> bytes:
        return self._keep(self._file.readline())

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _keep(self, data: bytes) -> bytes:
        self._hash.update(data)
        return data

    def digest(self) -> bytes:
        """Return the digest of what was taken since the last call."""
        taken, self._hash = self._hash.digest(), hashlib.sha256()
        return taken


class _Given:
    """A file that a pickler writes, which keeps the digest of what it was given."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> Any:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        """Return the digest of what was given since the last call."""
        given, self._hash = self._hash.digest(), hashlib.sha256()
        return given


class Probe:
    """Counts what is opened in this process, by who made it."""

    def __init__(self) -> None:
        self._made: set[bytes] = set()
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._own = 0
        self._peer = 0
        self._peer_globals: set[str] = set()
        self._unseen: set[str] = set()

    def report(self) -> Report:
        """Return what was counted so far."""
        with self._lock:
            return Report(
                self._own,
                self._peer,
                tuple(sorted(self._unseen)),
                tuple(sorted(self._peer_globals)),
            )

    def made(self, digest: bytes) -> None:
        """Remember a pickle that this process made."""
        with self._lock:
            self._made.add(digest)

    @contextmanager
    def opening(self) -> Iterator[_Opening]:
        """Count one pickle, whether it loads or fails; its digest must be set before the end."""
        stack: list[_Opening] = self._stack()
        opening = _Opening()
        stack.append(opening)
        try:
            yield opening
        finally:
            stack.pop()
            self._count(opening)

    def _count(self, opening: _Opening) -> None:
        with self._lock:
            if opening.digest in self._made:
                self._own += 1
            else:
                self._peer += 1
                self._peer_globals |= opening.globals

    def _stack(self) -> list[_Opening]:
        stack: list[_Opening] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take CPython's audit events; it cannot be removed from a process once it is added."""
        if event != "pickle.find_class":
            return
        name = ":".join(str(part) for part in arguments)
        stack = self._stack()
        if stack:
            stack[-1].globals.add(name)
        else:
            with self._lock:
                self._unseen.add(name)


def install() -> Probe:
    """Wrap every pickler and unpickler of this process and return the probe that counts them.

    Call it before any import that keeps a reference to one, such as cloudpickle's.
    """
    early = sorted({"cloudpickle", "distributed"} & sys.modules.keys())
    if early:
        raise RuntimeError(f"{', '.join(early)} may hold unpicklers that the probe cannot wrap")
    probe = Probe()
    sys.addaudithook(probe.hook)
    unpickler, pickler = _unpickler(_pickle.Unpickler, probe), _pickler(_pickle.Pickler, probe)
    wrapped = {
        "Unpickler": unpickler,
        "Pickler": pickler,
        "load": _load(_pickle.load, unpickler),
        "dump": _dump(_pickle.dump, pickler),
        "loads": _loads(_pickle.loads, probe),
        "dumps": _dumps(_pickle.dumps, probe),
    }
    for name, each in wrapped.items():
        setattr(pickle, name, each)
        setattr(_pickle, name, each)
    for name, wrap in (("_Unpickler", _unpickler), ("_Pickler", _pickler)):
        setattr(pickle, name, wrap(getattr(pickle, name), probe))
    return probe


def _loads(real: Callable[..., Any], probe: Probe) -> Callable[..., Any]:
    @functools.wraps(real)
    def loads(data: Any, /, **options: Any) -> Any:
        with probe.opening() as opening:
            opening.digest = hashlib.sha256(data).digest()
            return real(data, **options)

    return loads


def _dumps(real: Callable[..., bytes], probe: Probe) -> Callable[..., bytes]:
    @functools.wraps(real)
    def dumps(obj: Any, *arguments: Any, **options: Any) -> bytes:
        data = real(obj, *arguments, **options)
        probe.made(hashlib.sha256(data).digest())
        return data

    return dumps


def _load(real: Callable[..., Any], unpickler: Any) -> Callable[..., Any]:
    @functools.wraps(real)
    def load(file: Any, **options: Any) -> Any:
        return unpickler(file, **options).load()

    return load


def _dump(real: Callable[..., Any], pickler: Any) -> Callable[..., Any]:
    @functools.wraps(real)
    def dump(obj: Any, file: Any, *arguments: Any, **options: Any) -> Any:
        return pickler(file, *arguments, **options).dump(obj)

    return dump


def _unpickler(real: Any, probe: Probe) -> Any:
    class Unpickler(real):  # type: ignore[misc]  # the class is a parameter
        def __init__(self, file: Any, **options: Any) -> None:
            self.__taken = _Taken(file)
            super().__init__(self.__taken, **options)

        def load(self) -> Any:
            with probe.opening() as opening:
                try:
                    return super().load()
                finally:
                    opening.digest = self.__taken.digest()

    return _named_like(Unpickler, real)


def _pickler(real: Any, probe: Probe) -> Any:
    class Pickler(real):  # type: ignore[misc]  # the class is a parameter
        def __init__(self, file: Any, *arguments: Any, **options: Any) -> None:
            self.__given = _Given(file)
            super().__init__(self.__given, *arguments, **options)

        def dump(self, obj: Any) -> Any:
            result = super().dump(obj)
            probe.made(self.__given.digest())
            return result

    return _named_like(Pickler, real)


def _named_like(wrapped: Any, real: Any) -> Any:
    """Give *wrapped* the name of *real*, so that it is pickled as that, too."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(wrapped, name, getattr(real, name))
    return wrapped
