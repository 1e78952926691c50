"""Keep what a client sent under each key that it holds, so that it can compare what it sends next.

The one rule: what is kept cannot change and holds nothing alive. It is the pickle that left this
process, never the objects: they would keep data and inputs from being released, and an array that
is changed in place would be compared with itself.

Buffers over 64 KiB are kept as digests. Pickles are kept up to 16 MiB each and 64 MiB together;
beyond that a definition is *unknown*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import convert_legacy_graph
from distributed.protocol import pickle

from safeser.dask.sealed.graph import reopened

__all__ = ["Kept", "Sent", "SentGraph", "Stated", "large_buffers"]

_MOST_BYTES = 64 << 20
_MOST_OF_ONE = 16 << 20
#: Larger buffers are those of arrays, which no text shows anyway.
_MOST_OF_BUFFER = 64 << 10


class _Digest(NamedTuple):
    digest: bytes
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Stated:
    """A sealed graph that a client submitted.

    :param graph: its id.
    :param needs: the graphs without whose results its tasks cannot be computed again.
    """

    graph: bytes
    needs: tuple[Stated, ...]


class SentGraph:
    """One submission as it was sent: a pickle, its buffers, and whether its tasks are actors."""

    __slots__ = ("_frames", "_sealed", "actors", "size", "stated", "uses")

    def __init__(
        self, frames: Sequence[Any], actors: Any, *, sealed: Mapping[str, Any] | None = None
    ) -> None:
        """Keep what is about to be sent.

        :param sealed: the header, where the graph is sealed: its first frame, the statement, is
            another one each time.
        """
        first, *buffers = frames or (b"",)
        self.actors = actors
        self.stated: Stated | None = None
        self.uses = 0
        self._sealed = sealed
        self._frames: list[Any] | None
        if sealed is None:
            self._frames = [bytes(first), *map(_copied, buffers)]
            self.size = sum(len(each) for each in self._frames if type(each) is bytes)
        else:
            self._frames = [b"", *map(bytes, buffers)]
            self.size = sum(map(len, self._frames))
        if self.size > _MOST_OF_ONE:
            self.forget()

    def forget(self) -> None:
        self._frames, self.size = None, 0

    @property
    def known(self) -> bool:
        return self._frames is not None

    def is_actor(self, key: Any) -> bool:
        return self.actors is True or key in (self.actors or ())

    def same_bytes(self, other: SentGraph) -> bool:
        return self.known and self._frames == other._frames

    def tasks(self, large: Mapping[bytes, Any]) -> dict[Any, Any]:
        """Return the tasks that a scheduler would make of it.

        :param large: buffers by their digests; one that is not among them differs from all of
            them, and zeros stand in its place.
        """
        assert self._frames is not None
        if self._sealed is not None:
            return reopened(self._sealed, self._frames)
        first, *buffers = self._frames
        opened = pickle.loads(first, buffers=[_filled(each, large) for each in buffers])
        return dict(convert_legacy_graph(dict(opened.__dask_graph__())))


def _bytes_of(buffer: Any) -> memoryview:
    view = memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _copied(buffer: Any) -> bytes | _Digest:
    view = _bytes_of(buffer)
    if view.nbytes <= _MOST_OF_BUFFER:
        return bytes(view)
    return _Digest(sha256(view).digest(), view.nbytes)


def _filled(buffer: Any, large: Mapping[bytes, Any]) -> Any:
    if type(buffer) is not _Digest:
        return buffer
    found = large.get(buffer.digest)
    return np.zeros(buffer.size, np.uint8) if found is None else found


def large_buffers(frames: Sequence[Any]) -> dict[bytes, Any]:
    """Return the large ones of the buffers in *frames*, by their digests."""
    found = {}
    for frame in frames[1:]:
        view = _bytes_of(frame)
        if view.nbytes > _MOST_OF_BUFFER:
            found[sha256(view).digest()] = frame
    return found


class Sent(NamedTuple):
    """What a client sent under one key, and the state of its future then."""

    state: Any
    #: None for data that was scattered.
    graph: SentGraph | None
    #: Of scattered data, its token.
    token: str = ""


class Kept:
    """The definitions that one client sent under the keys whose futures it holds."""

    def __init__(self) -> None:
        self._sent: dict[Any, Sent] = {}
        self._bytes = 0
        #: Keys that there have to be before all of them are checked again.
        self._swept = 0

    def __len__(self) -> int:
        return len(self._sent)

    def find(self, key: Any, state: Any) -> Sent | None:
        """Return what was sent under *key*, if the future of that is the one with *state*."""
        sent = self._sent.get(key)
        return sent if sent is not None and state is not None and sent.state is state else None

    def graphs_of(self, keys: Iterable[Any], states: Mapping[Any, Any]) -> list[SentGraph]:
        """Return the graphs that were sent under *keys*; *states* are of those still held."""
        found = (self.find(key, states.get(key)) for key in keys if key in self._sent)
        graphs = (sent.graph for sent in found if sent is not None and sent.graph is not None)
        return list({id(graph): graph for graph in graphs}.values())

    def keep(self, key: Any, sent: Sent) -> None:
        self.drop(key)
        self._sent[key] = sent
        graph = sent.graph
        if graph is not None:
            if graph.uses == 0:
                self._bytes += graph.size
            graph.uses += 1

    def drop(self, key: Any) -> None:
        sent = self._sent.pop(key, None)
        if sent is not None and sent.graph is not None:
            sent.graph.uses -= 1
            if sent.graph.uses == 0:
                self._bytes -= sent.graph.size

    def fit(self, graph: SentGraph, states: Mapping[Any, Any]) -> None:
        """Forget the content of *graph* where there is too much; *states* are those still held."""
        if self._bytes + graph.size > _MOST_BYTES and len(self._sent) > self._swept:
            # Dask drops futures by itself, too, as when the scheduler restarts.
            for key in [
                key for key, sent in self._sent.items() if states.get(key) is not sent.state
            ]:
                self.drop(key)
            self._swept = 2 * len(self._sent)
        if self._bytes + graph.size > _MOST_BYTES:
            graph.forget()
