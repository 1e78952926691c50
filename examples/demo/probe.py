"""Count the pickles that a process loads, and tell its own from those of other processes.

The probe uses nothing of safeser. It is installed before anything that could keep an unpickler,
wraps each one of the standard library, and learns from CPython's audit event of globals that any
other unpickler looks up. A pickle that this process did not write came from another one.
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
    """Counts since the probe was installed.

    :param own: loaded pickles that this process wrote itself, as Dask does to name tasks.
    :param peer: loaded pickles that another process wrote.
    :param unwrapped: globals that an unpickler outside the probe's wrappers looked up.
    :param peer_globals: globals that pickles of other processes named.
    """

    own: int
    peer: int
    unwrapped: tuple[str, ...]
    peer_globals: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether no byte of another process reached an unpickler, wrapped or not."""
        return not self.peer and not self.unwrapped

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "own": self.own,
            "peer": self.peer,
            "unwrapped": list(self.unwrapped),
            "peer_globals": list(self.peer_globals),
        }


@dataclass(slots=True)
class _Loading:
    """One pickle that is being loaded; its digest may be known only at its end."""

    digest: bytes = b""
    globals: set[str] = field(default_factory=set)


class _HashingReader:
    """A file for an unpickler, with a digest of what was read from it."""

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
        """Return the digest of what was read since the last call."""
        digest, self._hash = self._hash.digest(), hashlib.sha256()
        return digest


class _HashingWriter:
    """A file for a pickler, with a digest of what was written to it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: Any) -> Any:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        """Return the digest of what was written since the last call."""
        digest, self._hash = self._hash.digest(), hashlib.sha256()
        return digest


class Probe:
    """Counts the pickles that this process loads, by who wrote them."""

    def __init__(self) -> None:
        self._written: set[bytes] = set()
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._own = 0
        self._peer = 0
        self._peer_globals: set[str] = set()
        self._unwrapped: set[str] = set()

    def report(self) -> Report:
        """Return the counts so far."""
        with self._lock:
            return Report(
                self._own,
                self._peer,
                tuple(sorted(self._unwrapped)),
                tuple(sorted(self._peer_globals)),
            )

    def written(self, digest: bytes) -> None:
        """Remember a pickle that this process wrote."""
        with self._lock:
            self._written.add(digest)

    @contextmanager
    def loading(self) -> Iterator[_Loading]:
        """Count one pickle, also if loading fails; its digest must be set inside the block."""
        stack: list[_Loading] = self._stack()
        loading = _Loading()
        stack.append(loading)
        try:
            yield loading
        finally:
            stack.pop()
            self._count(loading)

    def _count(self, loading: _Loading) -> None:
        with self._lock:
            if loading.digest in self._written:
                self._own += 1
            else:
                self._peer += 1
                self._peer_globals |= loading.globals

    def _stack(self) -> list[_Loading]:
        stack: list[_Loading] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Receive CPython's audit events; Python cannot remove such a hook again."""
        if event != "pickle.find_class":
            return
        name = ":".join(str(part) for part in arguments)
        stack = self._stack()
        if stack:
            stack[-1].globals.add(name)
        else:
            with self._lock:
                self._unwrapped.add(name)


def install() -> Probe:
    """Wrap every pickler and unpickler of this process; return the probe that counts their use.

    Call it before any import that keeps a reference to one, as cloudpickle does.
    """
    early = sorted({"cloudpickle", "distributed"} & sys.modules.keys())
    if early:
        raise RuntimeError(
            f"{', '.join(early)} may hold unpicklers that the probe can no longer wrap"
        )
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
        with probe.loading() as loading:
            loading.digest = hashlib.sha256(data).digest()
            return real(data, **options)

    return loads


def _dumps(real: Callable[..., bytes], probe: Probe) -> Callable[..., bytes]:
    @functools.wraps(real)
    def dumps(obj: Any, *arguments: Any, **options: Any) -> bytes:
        data = real(obj, *arguments, **options)
        probe.written(hashlib.sha256(data).digest())
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
    class Unpickler(real):  # type: ignore[misc]  # a class given as an argument
        def __init__(self, file: Any, **options: Any) -> None:
            self.__reader = _HashingReader(file)
            super().__init__(self.__reader, **options)

        def load(self) -> Any:
            with probe.loading() as loading:
                try:
                    return super().load()
                finally:
                    loading.digest = self.__reader.digest()

    return _named_like(Unpickler, real)


def _pickler(real: Any, probe: Probe) -> Any:
    class Pickler(real):  # type: ignore[misc]  # a class given as an argument
        def __init__(self, file: Any, *arguments: Any, **options: Any) -> None:
            self.__writer = _HashingWriter(file)
            super().__init__(self.__writer, *arguments, **options)

        def dump(self, obj: Any) -> Any:
            result = super().dump(obj)
            probe.written(self.__writer.digest())
            return result

    return _named_like(Pickler, real)


def _named_like(wrapped: Any, real: Any) -> Any:
    """Give *wrapped* the names of *real*, so that pickle still finds it by them."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(wrapped, name, getattr(real, name))
    return wrapped
