"""Compare a submission with the definition of the future that the client holds under its key.

The one rule: a client never answers a submission with the result of another definition without a
warning. Before anything is sent, it compares with what it sent itself under the same key; the
policy's ``key_conflicts: {definition: ...}`` decides about a difference, as on the scheduler
(key_conflicts.py). A refused submission does not change the future that the client holds.

Dask's ``submit`` looks for its key among the futures that the client holds, before it asks the
scheduler. Such a future may also have come with a dataset, a queue or a variable, and keys can be
computed: a user who published a future under the key that Dask gives to ``submit(add, 20, 22)``
would choose that sum for all users that open the dataset. The client does not know the definition
of such a future, so that its use is a warning.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakSet

from dask._expr import LLGExpr
from dask._task_spec import Alias, Task, parse_input
from distributed.client import Future, FutureState
from distributed.protocol.serialize import Serialized, serialize, to_serialize

from safeser.channel import Link, OpenLink
from safeser.dask.clients.call_pickles import OneCall
from safeser.dask.clients.sent_definitions import Kept, Sent, SentGraph, Stated, large_buffers
from safeser.dask.equality.definitions import Comparison
from safeser.dask.equality.difference import Difference, find_difference
from safeser.dask.sealed.graph import is_sealed
from safeser.dask.transport.comm import SafeserComm
from safeser.dask.wire.task_key import shown_key
from safeser.errors import PolicyDenied, SafeserError, TokenizationError
from safeser.gate.values import Kind
from safeser.tokens import tokenize_in_order
from safeser.tracebacks import callers_level

__all__ = ["FutureReuse"]

#: Characters of a key that texts show: its submitter chose it.
_SHOWN = 60
#: Seconds to wait until the client's event loop has released what was released before.
_RELEASING = 5.0
#: What ``Client.submit`` takes for itself; all other named arguments are the function's.
_OPTIONS = frozenset(
    {"key", "workers", "resources", "retries", "priority", "fifo_timeout"}
    | {"allow_other_workers", "actor", "actors", "pure"}
)
_FIX = "Name another key, leave key= out, or release all futures of the other one first."

#: In place of that by which Dask tells one call of ``submit`` from all others.
_TOKEN = "-" * 32
#: How a task differs that is an actor now, or was one.
_ACTORS = {
    True: Difference("an actor instead of a task"),
    False: Difference("a task instead of an actor"),
}

#: By key, how what is submitted differs; None where that is unknown.
_Differences = dict[Any, Difference | None]


class FutureReuse:
    """What :class:`safeser.Client`, and clients of tasks, have before Dask's client."""

    futures: dict[Any, Any]
    _refcount_lock: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.begin_to_keep()
        super().__init__(*args, **kwargs)

    def begin_to_keep(self) -> None:
        """Have kept nothing yet."""
        self._kept = Kept()
        #: Futures that were made for keys whose future the client held already.
        self._later: dict[Any, WeakSet[Any]] = {}
        self._call = threading.local()

    # --- what is submitted -----------------------------------------------------------------------

    def submit(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        with OneCall():
            future = self._submitted_once(func, args, kwargs)
        self._warn_of_handed([future])
        return future

    def _submitted_once(self, func: Any, args: Any, kwargs: Any) -> Any:
        for is_last in (False, True):
            self._call.sent = False
            future = super().submit(func, *args, **kwargs)  # type: ignore[misc]  # of Dask's client
            if not self._call.sent and self._forget_refused([future.key]):
                continue
            sent = None if self._call.sent else self._kept.find(future.key, future._state)
            found = {} if sent is None else self._compare_call(future.key, sent, func, args, kwargs)
            if not found:
                break
            if is_last:
                self._decide(found)
            else:
                del future
                self._await_releases()
        return future

    def map(self, *args: Any, **kwargs: Any) -> Any:
        with OneCall():
            futures = super().map(*args, **kwargs)  # type: ignore[misc]  # as above
        self._warn_of_handed(futures)
        return futures

    def _graph_to_futures(self, expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        if type(expr) is LLGExpr:
            # Dask makes a token anew for each call, by which equal submissions would differ.
            expr._determ_token = _TOKEN
        keys = list(keys)
        self._forget_refused(keys)
        if not self.futures.keys().isdisjoint(keys):
            self._await_releases()
        with self._refcount_lock:
            self._call.held = held = {key: self.futures[key] for key in keys if key in self.futures}
            try:
                futures = super()._graph_to_futures(expr, keys, *args, **kwargs)  # type: ignore[misc]  # as above
            finally:
                self._call.held = None
            # Before the event loop, which takes the same lock, is told what became of the graph.
            for key in held:
                self._later.setdefault(key, WeakSet()).add(futures[key])
        self._call.sent = True
        return futures

    def _forget_refused(self, keys: Iterable[Any]) -> bool:
        """Let *keys* be submitted anew whose graph was refused; tell whether there are any.

        Of a refused graph the scheduler has nothing. Where the task itself failed, it compares with
        what it has. Futures that a program holds keep their error, which holds them in turn by its
        traceback, so that a key would never be released.
        """
        with self._refcount_lock:
            states = {key: self.futures[key] for key in keys if key in self.futures}
            found = [
                key
                for key, state in states.items()
                if state.status == "error" and isinstance(state.exception, SafeserError)
            ]
            for key in found:
                del self.futures[key]
                self._kept.drop(key)
        return bool(found)

    def _send_to_scheduler(self, msg: Any) -> None:
        held = getattr(self._call, "held", None)
        if held is None or msg["op"] != "update-graph":
            super()._send_to_scheduler(msg)  # type: ignore[misc]  # as above
            return
        graph = _kept_form(msg["expr_ser"], msg["actors"])
        if held:
            sent = {key: self._kept.find(key, state) for key, state in held.items()}
            own = {key: each for key, each in sent.items() if each is not None}
            found = self._compare(own, graph, msg["expr_ser"].frames)
            # What cannot be compared here, the scheduler compares.
            self._decide({key: each for key, each in found.items() if each is not None})
        super()._send_to_scheduler(msg)  # type: ignore[misc]  # as above
        graph.stated = self._stated(msg["expr_ser"])
        self._kept.fit(graph, self.futures)
        for key in msg["keys"]:
            if key not in held:
                self._kept.keep(key, Sent(self.futures[key], graph))

    def _as_sent(self, expr: Any) -> Any:
        """Return *expr* as Dask's client is given it."""
        return expr

    def _stated(self, graph: Serialized) -> Stated | None:
        """Return what is kept of *graph*, which was sent, if it is sealed."""
        del graph
        return None

    def _compare_call(
        self, key: Any, sent: Sent, func: Any, args: Any, kwargs: Any
    ) -> _Differences:
        """Return how a call differs from what was *sent* under its key."""
        actors = bool(kwargs.get("actor") or kwargs.get("actors"))
        named = {name: parse_input(value) for name, value in kwargs.items() if name not in _OPTIONS}
        task = Task(key, func, *map(parse_input, args), **named)
        expr = self._as_sent(LLGExpr({key: task}, _determ_token=_TOKEN))
        sent_as = Serialized(*serialize(to_serialize(expr), on_error="raise"))
        frames, graph = sent_as.frames, _kept_form(sent_as, actors)
        first = sent.graph
        if first is not None and first.is_actor(key) is actors and first.same_bytes(graph):
            return {}
        return self._compare({key: sent}, graph, frames)

    def _compare(
        self, sent: Mapping[Any, Sent], graph: SentGraph, frames: list[Any]
    ) -> _Differences:
        """Return how *graph* differs from what was *sent*, for each key for which it does."""
        left = {
            key: each
            for key, each in sent.items()
            if each.graph is None
            or not each.graph.same_bytes(graph)
            or each.graph.is_actor(key) is not graph.is_actor(key)
        }
        return _Opened(self._kept, self.futures, graph, frames).differences(left) if left else {}

    def _await_releases(self) -> None:
        """Wait until the event loop has released the futures that are released already."""
        if not self.asynchronous:  # type: ignore[attr-defined]  # of Dask's client
            done = threading.Event()
            self.loop.add_callback(done.set)  # type: ignore[attr-defined]  # as above
            done.wait(_RELEASING)

    # --- data ------------------------------------------------------------------------------------

    async def _scatter(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(data, dict):  # keys that Dask computes
            return await super()._scatter(data, *args, **kwargs)  # type: ignore[misc]  # as above
        tokens = {key: _token(value) for key, value in data.items()}
        found: _Differences = {}
        for key, token in tokens.items():
            sent = self._kept.find(key, self.futures.get(key))
            if sent is not None and sent.graph is not None:
                if sent.state.status != "error":  # else the scheduler knows what there is
                    found[key] = Difference("data instead of a task")
            elif sent is not None and not (token and sent.token):
                found[key] = None
            elif sent is not None and sent.token != token:
                found[key] = Difference("other data")
        self._decide(found)
        kept = {key: Future(key, self) for key in found}
        rest = {key: value for key, value in data.items() if key not in found}
        out = await super()._scatter(rest, *args, **kwargs) if rest else {}  # type: ignore[misc]  # as above
        for key, future in out.items():
            self._kept.keep(key, Sent(future._state, None, tokens[key]))
        return {key: kept[key] if key in kept else out[key] for key in data}

    # --- decisions -------------------------------------------------------------------------------

    def _decide(self, found: _Differences) -> None:
        """Refuse or warn of different definitions, as policy says; warn of unknown ones.

        :raises PolicyDenied: with rule ``key.definition``; nothing was sent.
        """
        if not found:
            return
        key = next((each for each, how in found.items() if how is not None), next(iter(found)))
        how, shown = found[key], shown_key(key, _SHOWN)
        others = f" and {len(found) - 1} more" if len(found) > 1 else ""
        if how is None:
            warnings.warn(
                f"key {shown!r}{others}: this client holds a future of it and cannot tell"
                f" whether the definition is the same. The first result is used. {_FIX}",
                stacklevel=callers_level(),
            )
            return
        text = (
            f"key {shown!r}{others}: this client holds a future of another definition"
            f" ({how.text(values=True)})."
        )
        link = self._policy_link()
        if link is not None:
            context = link.outbound(Kind.TASK, "update-graph")
            if link.policy.key_conflicts(context).definition != "warn":
                error = PolicyDenied(f"{text} Nothing was sent.", rule="key.definition", fix=_FIX)
                link.note_refusal(context, error, where=shown)
                error.recorded = True
                raise error
        warnings.warn(f"{text} The first result is used. {_FIX}", stacklevel=callers_level())

    def _policy_link(self) -> Link | None:
        """Return the connection by which graphs leave, or left: Dask keeps what is submitted while
        it connects again, and sends it then. None on a cluster without safeser.
        """
        comm = getattr(getattr(self, "scheduler_comm", None), "comm", None)
        # What a guarded client sends is not decided: its user names the address.
        if isinstance(comm, SafeserComm) and not isinstance(comm.link, OpenLink):
            self._latest_link: Link | None = comm.link
        return getattr(self, "_latest_link", None)

    def _warn_of_handed(self, futures: Iterable[Any]) -> None:
        for future in futures:
            if self._kept.find(future.key, future._state) is None:
                warnings.warn(
                    f"this client holds a future under key {shown_key(future.key, _SHOWN)!r} that"
                    " was not submitted by it but handed over or scattered: its value is used,"
                    " whatever was submitted now. Name another key, or release that future first.",
                    stacklevel=callers_level(),
                )
                return

    # --- what the scheduler says -----------------------------------------------------------------

    def _handle_task_erred(
        self, key: Any = None, exception: Any = None, traceback: Any = None
    ) -> None:
        """Fail the futures of a refused graph, and not the one that the client held before it.

        Dask has one state for all futures of a key.
        """
        with self._refcount_lock:
            later = self._later.pop(key, None)
        if not later or not isinstance(exception, SafeserError):
            super()._handle_task_erred(key, exception, traceback)  # type: ignore[misc]  # as above
            return
        state = FutureState(key)
        state.set_error(exception, traceback)
        for future in later:
            future._state = state
        # It may have been the task's own failure. The scheduler tells it to a client that asks.
        ask = {"op": "client-desires-keys", "keys": [key], "client": self.id}  # type: ignore[attr-defined]  # as above
        self._send_to_scheduler(ask)

    def _release_key(self, key: Any) -> None:
        self._kept.drop(key)
        self._later.pop(key, None)
        super()._release_key(key)  # type: ignore[misc]  # as above


def _kept_form(graph: Serialized, actors: Any) -> SentGraph:
    return SentGraph(graph.frames, actors, sealed=graph.header if is_sealed(graph) else None)


class _Opened:
    """The former and the new submission, opened for one comparison."""

    def __init__(
        self, kept: Kept, states: Mapping[Any, Any], graph: SentGraph, frames: list[Any]
    ) -> None:
        self._kept, self._states, self._graph = kept, states, graph
        self._large = large_buffers(frames)
        self._tasks: dict[int, dict[Any, Any]] = {}
        #: The tasks of the graph whose definition is being compared.
        self._current: dict[Any, Any] = {}
        self._missing = False

    def _of(self, graph: SentGraph) -> dict[Any, Any] | None:
        if id(graph) not in self._tasks:
            try:
                tasks = graph.tasks(self._large) if graph.known else None
            except Exception:  # an object's own code may raise anything where it is opened
                tasks = None
            if tasks is None:
                return None
            self._tasks[id(graph)] = tasks
        return self._tasks[id(graph)]

    def differences(self, sent: Mapping[Any, Sent]) -> _Differences:
        here = self._of(self._graph)
        if here is None:
            return dict.fromkeys(sent)
        comparison = Comparison(
            self._held_definition, lambda key: here.get(key) or self._held_definition(key)
        )
        found: _Differences = {}
        for key, each in sent.items():
            self._current = {}
            node = here.get(key)
            if node is None or (type(node) is Alias and node.target == key):
                continue  # its key names an existing task
            if each.graph is None:
                found[key] = Difference("a task instead of data")
            elif each.graph.is_actor(key) is not self._graph.is_actor(key):
                found[key] = _ACTORS[self._graph.is_actor(key)]
            else:
                self._missing = False
                self._current = self._of(each.graph) or {}
                known = self._current.get(key)
                if known is None:
                    found[key] = None
                elif not comparison.same(known, node):
                    found[key] = None if self._missing else find_difference(known, node)
        return found

    def _held_definition(self, key: Any) -> Any:
        """Return what *key* stood for; None if that was released, or is not known."""
        node = self._current.get(key)
        if node is None:
            sent = self._kept.find(key, self._states.get(key))
            tasks = None if sent is None or sent.graph is None else self._of(sent.graph)
            node = None if tasks is None else tasks.get(key)
        self._missing |= node is None
        return node


def _token(value: Any) -> str:
    """Return a token of scattered data, or nothing for what has none."""
    try:
        return tokenize_in_order(value, ensure_deterministic=True)
    except TokenizationError:
        return ""
