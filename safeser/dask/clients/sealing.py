"""Sign the graphs that a client submits, and keep which of them its futures need.

The one rule: a client signs what its user submits, written out anew for each submission. A graph of
which all futures were released is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import uuid4

import dask
from dask._task_spec import DataNode
from dask.tokenize import tokenize
from dask.typing import no_default
from distributed.client import Client, Future
from distributed.protocol.serialize import Serialized, ToPickle

from safeser import pickles
from safeser.channel import Channel, Link
from safeser.dask.clients.call_pickles import pickled_in_call
from safeser.dask.clients.future_reuse import FutureReuse
from safeser.dask.clients.sent_definitions import Stated
from safeser.dask.sealed.definitions import Definitions
from safeser.dask.sealed.form import SCALARS
from safeser.dask.sealed.graph import is_sealed, without_functions, write_out
from safeser.dask.sealed.node import same
from safeser.dask.sealed.statement import SignedStatement
from safeser.errors import PolicyDenied
from safeser.families.registered.dispatch import functions
from safeser.families.registry import registry
from safeser.gate.decision import SUBMIT
from safeser.gate.values import SEALED, Grant, Kind
from safeser.identity import Identity
from safeser.pickles.stock import load_code

__all__ = ["Sealing", "TaskClient", "grant_of"]

#: Span metadata that ``submit`` and ``map`` attach to every graph. As plain data it is no payload.
_OF_FUTURES = ToPickle({"collections": [{"type": "Future"}]})

_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})
#: Levels of containers in which own classes are looked for.
_DEEPEST = 20


class Sealing(FutureReuse):
    """What clients of users and of tasks do with the graphs that they submit."""

    status: str

    def begin_to_keep(self) -> None:
        # Not super(): a worker's client becomes one of these once it has all that they have.
        FutureReuse.begin_to_keep(self)
        #: What was scattered by a task, by key: the state of its future, a copy, and its pickle.
        self._scattered: dict[Any, tuple[Any, DataNode, bytes]] = {}

    @property
    def seals(self) -> bool:
        """Whether this client signs what it submits: ``submission: sealed``."""
        link = self._policy_link()
        return link is not None and grant_of(link).submission == SEALED

    def _as_sent(self, expr: Any, *, actors: Any = None) -> Any:
        """Return *expr* as it leaves: as it is, or written out and signed.

        :raises PolicyDenied: if the scheduler would refuse it; that is recorded.
        """
        link = self._policy_link()
        if link is None or grant_of(link).submission != SEALED:
            return expr
        try:
            return self._written(expr, link, actors)
        except PolicyDenied as error:
            if not error.recorded:
                link.note_refusal(link.outbound(Kind.TASK, SUBMIT), error)
                error.recorded = True
            raise

    def _written(self, expr: Any, link: Link, actors: Any) -> Serialized:
        identity = self._identity()
        assert identity is not None
        if actors is not None and not isinstance(actors, bool):
            actors = list(self._expand_key(actors))  # type: ignore[attr-defined]  # of Dask's client
        named: set[Any] = set()
        self._call.named = named
        held = []
        for key, each in self._scattered.copy().items():  # another thread may scatter or release
            if each[0] is self.futures.get(key):
                held.append(each)
            else:  # Dask drops futures by itself, too
                self._scattered.pop(key, None)
        known = {id(node.value): pickle for _, node, pickle in held}
        return Serialized(
            *write_out(
                expr,
                identity,
                link.session.peer_key,
                link.policy.limits,
                annotations=dask.get_annotations(),
                actors=actors,
                keys=named,
                definitions=Definitions(lambda obj: known.get(id(obj)) or pickled_in_call(obj)),
                values={node.key: node for _, node, _ in held},
            )
        )

    async def _scatter(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Scatter *data*; what only workers may open is the result of a task that gives it.

        Workers hand no such object to each other. So in later graphs of this client it stands in
        the place of that result, as it was when it was scattered.
        """
        kind = type(data)
        items = list(data.values() if kind is dict else data if kind in _CONTAINERS else [data])
        stays = (
            args or kwargs.get("local_worker") or (kind is not tuple and isinstance(data, tuple))
        )
        if stays or not (self.seals and any(map(_needs_code, items))):
            return await super()._scatter(data, *args, **kwargs)
        if kind is dict:
            named = [*data.items()]
        else:
            by_content = kwargs.pop("hash", True)
            named = [
                (f"{type(x).__name__}-{tokenize(x) if by_content else uuid4().hex}", x)
                for x in items
            ]
        rest = {key: value for key, value in named if not _needs_code(value)}
        made = await super()._scatter(rest, **kwargs) if rest else {}
        for key, value in named:
            if key not in made:
                made[key] = await self._give(key, value, **kwargs)
        if kind is dict:
            return made
        futures = [made[key] for key, _ in named]
        return kind(futures) if kind in _CONTAINERS else futures[0]

    async def _give(
        self, key: Any, value: Any, *, workers: Any = None, timeout: Any = no_default, **_: Any
    ) -> Any:
        """Return a future of *value* under *key*, once it is on a worker.

        :param timeout: seconds to wait for the first worker; the client's own if not given.
        :raises TimeoutError: if there is none by then.
        """
        stock: Any = self  # Dask's client, which has both
        await stock._wait_for_workers(1, stock._timeout if timeout is no_default else timeout)
        written = pickles.dumps(value, code=True)
        copy = load_code(written)  # this process's own
        future = self.submit(same, copy, key=key, workers=workers)
        self._scattered[key] = future._state, DataNode(key, copy), written
        await future._state.wait()
        if future.status == "error":
            raise future._state.exception
        return future

    def _release_key(self, key: Any) -> None:
        self._scattered.pop(key, None)
        super()._release_key(key)

    def _send_to_scheduler(self, msg: Any) -> None:
        if msg["op"] == "update-graph":
            # Dask's client passes what it sent while it had no connection through here again.
            msg = dict(msg)
            if is_sealed(msg["expr_ser"]):
                if "annotations" in msg:
                    msg["annotations"] = ToPickle(without_functions(msg["annotations"].data))
                if msg["span_metadata"] == _OF_FUTURES:
                    msg["span_metadata"] = _OF_FUTURES.data
            # Where there is none, Dask's scheduler needs none; each would be a payload to decide.
            for name in ("annotations", "code"):
                if isinstance(msg.get(name), ToPickle) and not msg[name].data:
                    del msg[name]
        super()._send_to_scheduler(msg)

    def graphs_behind(self, key: Any) -> frozenset[bytes]:
        """Return the ids of the signed graphs that a future of *key*, if one is held, may need."""
        stated = [each.stated for each in self._kept.graphs_of([key], self.futures)]
        return frozenset(each.graph for each in _with_needs(stated))

    def _stated(self, graph: Serialized) -> Stated | None:
        """Return the id of *graph*, which was sent, with those of the graphs that it needs."""
        if not is_sealed(graph):
            return None
        needs = {
            id(each.stated): each.stated
            for each in self._kept.graphs_of(self._call.named, self.futures)
            if each.stated is not None
        }
        statement = SignedStatement.parse(bytes(graph.frames[0])).statement
        return Stated(statement.graph, tuple(needs.values()))

    def _identity(self) -> Identity | None:
        """Return the identity that signs, or None while there is no session."""
        link = self._policy_link()
        channel = None if link is None else link.channel
        return channel.identity if isinstance(channel, Channel) else None


class TaskClient(Sealing, Client):  # type: ignore[misc]  # distributed ships no types
    """The client that a worker makes for its tasks (``worker_client``, ``get_client``).

    It submits what tasks submit, and signs it as their worker.
    """

    def _graph_to_futures(self, expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        expr = self._as_sent(expr, actors=kwargs.get("actors"))
        return super()._graph_to_futures(expr, keys, *args, **kwargs)


def _needs_code(value: Any, depth: int = 0) -> bool:
    """Tell whether *value* is or contains what family ``dask`` has no listed type for."""
    kind = type(value)
    if kind in _CONTAINERS:
        parts = [*value, *value.values()] if kind is dict else value
        if depth > _DEEPEST or SCALARS.issuperset(map(type, parts)):
            return False
        return any(_needs_code(part, depth + 1) for part in parts)
    if kind in SCALARS or isinstance(value, Future):
        return False
    return registry.for_object(value) is None and functions.for_object(value, None) is None


def grant_of(link: Link) -> Grant:
    """Return what may be submitted on *link*."""
    return link.policy.grant(link.outbound(Kind.TASK, SUBMIT), sealing=True)


def _with_needs(held: Iterable[Stated | None]) -> Iterator[Stated]:
    """Yield *held* and all that they need, each once."""
    ahead = [each for each in held if each is not None]
    seen = {id(each) for each in ahead}
    while ahead:
        each = ahead.pop()
        yield each
        for need in each.needs:
            if id(need) not in seen:
                seen.add(id(need))
                ahead.append(need)
