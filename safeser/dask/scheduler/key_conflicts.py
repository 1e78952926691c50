"""Submissions under keys that exist: no client gets another definition's result unawares.

The one rule: before a graph touches a task that exists, who first submitted that task, and what,
is compared with what has arrived, and policy decides about a difference. It happens in
``Scheduler._create_taskstate_from_graph``, which Dask keeps free of ``await``: nothing comes
between the comparison and the creation. A graph that is refused creates and changes nothing.

Dask itself returns the result of whatever was first submitted under a key, across clients and
without a warning. So a client that knows which key another one will use decides what that one
computes.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from itertools import chain
from time import time
from typing import Any, NoReturn

from dask._task_spec import Alias
from distributed.comm.core import CommClosedError
from distributed.protocol.serialize import Serialized
from distributed.scheduler import TaskState
from distributed.utils import nbytes

from safeser.channel.events import event
from safeser.channel.records import note_refusal
from safeser.dask.contents.opened_graph import is_opened
from safeser.dask.equality.calls import Sameness, SealedComparison
from safeser.dask.equality.definitions import Comparison
from safeser.dask.equality.difference import find_difference
from safeser.dask.messages.author_statements import stating
from safeser.dask.messages.refused import GraphFailures, error_reply
from safeser.dask.scheduler.cancellation import Cancellation
from safeser.dask.scheduler.conflicts import (
    FIX,
    Conflict,
    Origin,
    Owners,
    Submission,
    describe,
    refusal,
)
from safeser.dask.scheduler.readers import Readers
from safeser.dask.scheduler.scattered import Arrivals, ScatteredData
from safeser.dask.scheduler.weak_task_dict import WeakTaskSet
from safeser.dask.sealed.node import Sealed
from safeser.dask.servers import Part, link_of
from safeser.dask.wire.reader import packed
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import Context, Kind
from safeser.policy.questions.readable import runs_code
from safeser.policy.taken_tasks import anywhere

__all__ = ["Guard"]

logger = logging.getLogger("safeser.dask")

#: Conflicts of one graph that are recorded one by one; the others are counted.
_RECORDED = 20


#: Bytes of a graph from which on a digest of them would take a millisecond.
_LARGE = 1 << 20

_submission: ContextVar[Submission | None] = ContextVar("safeser-submission", default=None)


class _Refused(BaseException):
    """Ends Dask's ``update_graph``, whose own handler would tell every client that wants a key."""

    def __init__(self, error: SafeserError, keys: set[Any]) -> None:
        super().__init__()
        self.error = error
        self.keys = keys


class Guard(Part):
    """The first submitter of each task of one scheduler, and the decision of conflicts there."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._channel = self._known.channel
        self._owners = self._known.part(self._server, Owners)
        self._refused: dict[str, WeakTaskSet] = {}
        self._coming = Arrivals(*args)
        self._readers = self._known.part(self._server, Readers)
        # From the first task on, it releases those of principals that are retired.
        self._known.part(self._server, Cancellation)

    # --- who -------------------------------------------------------------------------------------

    def _current(self, client: str | None) -> Submission:
        """Return whose submission this is; the scheduler's own where no message began it."""
        own = self._channel.identity.principal
        return _submission.get() or Submission(Origin(own), client or "")

    def new_task(self, stock: Callable[..., TaskState], *args: Any, **given: Any) -> TaskState:
        """Create a task as *stock* does, and record on whose behalf."""
        task = stock(*args, **given)
        self._owners.note(task, self._current(None).origin)
        coming = self._coming.get(task.key)
        for client in coming.refused if coming is not None else ():
            self._refused.setdefault(client, WeakTaskSet()).add(task)
        return task

    def _is_worker(self, principal: str) -> bool:
        """Whether *principal* may be a worker here: it computes all submitted tasks anyway."""
        own = self._channel.identity.principal
        asked = anywhere(principal, own, "register-worker")
        return any(self._channel.policy.permits_operation(each).permitted for each in asked)

    # --- graphs ----------------------------------------------------------------------------------

    async def update_graph(self, stock: Any, *, client: str, keys: Any, **graph: Any) -> None:
        """Take a client's graph in as *stock* does, or tell that client alone why not."""
        principal = self._owners.of_client(client)
        if principal is None:  # it has left, and its principal is not known any more
            return
        origin = Origin(principal, _digest(graph.get("expr_ser")))
        link = link_of(self._server.client_comms.get(client))
        token = _submission.set(Submission(origin, client, link))
        # Without Dask's decorator, which prints a page for each refusal that passes.
        plain = partial(inspect.unwrap(stock.__func__), self._server)
        try:
            await plain(client=client, keys=keys, **graph)
        except _Refused as refused:
            self._server.log_event(
                ["scheduler", client], {"action": "update-graph", "status": "refused"}
            )
            told = [key for key in keys if key in refused.keys]
            # To the client that submitted the graph alone.
            failures = GraphFailures()
            failures.add(tuple(told), refused.error)
            for message in failures.elements():
                self._send(client, message)
        finally:
            _submission.reset(token)

    def create(
        self,
        stock: Callable[..., Any],
        *,
        dsk: Mapping[Any, Any],
        keys: set[Any],
        client: str,
        **rest: Any,
    ) -> Any:
        """Compare with what is there, then create; Dask calls it in one turn of its event loop."""
        submission = self._current(client)
        actors = rest.get("actors")
        context = self._context(submission, Kind.TASK, "update-graph")
        conflicts = [
            *self._conflicts(submission, dsk),
            *self._scattered_conflicts(dsk),
            *self._other_actors(keys if actors is True else actors or ()),
            *self._refused_before(client, dsk, keys),
        ]
        unread = self._readers.of_graph(submission.link, context, dsk)
        # Of a key that both say, what it computes is the first thing to know.
        if unread is not None and not any(each.rule == "key.definition" for each in conflicts):
            self._refuse_graph(submission, unread, keys)
        refused = self._decide(submission, conflicts, operation="update-graph", kind=Kind.TASK)
        if refused:
            # A client makes a new id each time that it connects.
            for gone in self._refused.keys() - self._server.clients.keys():
                del self._refused[gone]
            marked = self._refused.setdefault(client, WeakTaskSet())
            tasks = set()
            for task in (conflict.task for conflict in refused):
                if isinstance(task, ScatteredData):
                    task.refused.add(client)
                else:
                    tasks.add(task)
            marked.update(tasks)
            raise _Refused(refusal(submission, refused), self._unserved(keys, client, tasks))
        if unread is not None:
            self._refuse_graph(submission, unread, keys)
        return stock(dsk=dsk, keys=keys, client=client, **rest)

    def _refuse_graph(
        self, submission: Submission, error: SafeserError, keys: set[Any]
    ) -> NoReturn:
        context = self._context(submission, Kind.TASK, "update-graph")
        note_refusal(self._channel.audit, context, error)
        error.recorded = True
        raise _Refused(error, self._unserved(keys, submission.client, set())) from None

    def _conflicts(self, submission: Submission, dsk: Mapping[Any, Any]) -> Iterator[Conflict]:
        """Yield what differs from tasks that are there.

        All of the graph is compared, not only what its keys need: Dask adds dependencies to any
        task of it.
        """
        tasks = self._server.tasks

        def there(key: Any) -> Any:
            task = tasks.get(key)
            return None if task is None else self._definition(task, submission)

        def here(key: Any) -> Any:
            return dsk[key] if key in dsk else there(key)

        comparison = Comparison(there, here)
        sealed = SealedComparison(there, here, self._channel.policy.limits)
        for key, node in dsk.items():
            task = tasks.get(key)
            if task is None or (type(node) is Alias and node.target == key):
                continue
            owner = self._owners.of(task)
            origin = submission.origin
            if origin.graph and self._owners.origin_of(task) == origin:
                continue  # the same bytes of the same principal
            known = self._definition(task, submission)
            own = owner == submission.principal
            found = _compared(comparison, sealed, known, node, own=own)
            if found is Sameness.UNKNOWN:
                yield Conflict(task, "key.definition", owner, doubted=True)
            elif found is Sameness.DIFFERENT:
                differs = partial(find_difference, known, node)
                yield Conflict(task, "key.definition", owner, differs)
            elif owner != submission.principal:
                yield Conflict(task, "key.principal", owner)

    def _definition(self, task: TaskState, submission: Submission) -> Any:
        """Return what *task* computes, if its inputs are still those of its owner.

        Of data that a task depends on, Dask keeps the key alone. Once that key is forgotten, data
        of another client can have it, and the task would compute another result.
        """
        lost = task.has_lost_dependencies and self._owners.of(task) != submission.principal
        return None if lost else task.run_spec

    def _scattered_conflicts(self, keys: Iterable[Any]) -> Iterator[Conflict]:
        """Yield keys of data that is being brought to workers, and is no task yet."""
        for key in keys if self._coming else ():
            coming = self._coming.get(key)
            if coming is not None and key not in self._server.tasks:
                yield Conflict(coming, "key.definition", coming.owner)

    def _other_actors(self, actors: Iterable[Any]) -> Iterator[Conflict]:
        """Yield tasks that are no actors and would become some."""
        for key in actors:
            task = self._server.tasks.get(key)
            if task is not None and not task.actor:
                yield Conflict(task, "key.definition", self._owners.of(task))

    def _refused_before(
        self, client: str, dsk: Mapping[Any, Any], keys: set[Any]
    ) -> Iterator[Conflict]:
        """Yield tasks of others that stand under keys which this client thinks are its own.

        Its graph for them was refused. What depends on those futures, and was perhaps on its way
        already, would compute with the other task's result.
        """
        marked = self._refused.get(client)
        if not marked:
            return
        for key in {*keys, *chain.from_iterable(n.dependencies for n in dsk.values())} - dsk.keys():
            task = self._server.tasks.get(key)
            if task is not None and task in marked:
                yield Conflict(task, "key.definition", self._owners.of(task))

    def _unserved(self, keys: set[Any], client: str, refused: set[TaskState]) -> set[Any]:
        """Return those of *keys* whose futures would wait for ever, or for the wrong value."""
        tasks, state = self._server.tasks, self._server.clients.get(client)
        served = set()
        for key in keys:
            task = tasks.get(key)
            if task is not None and task not in refused and state in (task.who_wants or ()):
                served.add(key)
        return keys - served

    # --- data ------------------------------------------------------------------------------------

    async def scatter(
        self, stock: Callable[..., Awaitable[Any]], comm: Any, *args: Any, **request: Any
    ) -> Any:
        """Scatter as *stock* does, for a peer if no key of the data is another principal's."""
        if comm is None:
            return await stock(*args, **request)
        data = request["data"]
        try:
            with self._submission_from(comm, request["client"]) as submission:
                self._check_data(submission, data, operation="scatter")
                said = stating("update_data", author=submission.principal)
                with self._coming.of(submission.principal, tuple(data)), said:
                    return await stock(**request)
        except PolicyDenied as error:
            return error_reply(error)

    def update_data(
        self,
        stock: Callable[..., Any],
        comm: Any,
        *,
        who_has: Any,
        nbytes: Any,
        client: str | None = None,
    ) -> Any:
        """Record data as *stock* does, unless a key of it is another principal's.

        A key may have come to be another's since its data was on its way.

        :param comm: the connection of a client that brought data to workers by itself, and asks;
            None where it says so on its stream, and where the scheduler itself has brought it.
        """
        if comm is None and client is not None and _submission.get() is None:
            stream = self._server.client_comms.get(client)
            if stream is None:
                return None  # the client has left and waits for no answer
            comm = stream.comm
        try:
            with self._submission_from(comm, client) as submission:
                self._check_data(submission, who_has, operation="update_data")
                return stock(who_has=who_has, nbytes=nbytes, client=client)
        except PolicyDenied as error:
            if comm is None:
                raise
            if error.rule == "key.definition":
                # A client that brought nothing could otherwise have workers drop what they compute.
                sender = submission.principal
                self._coming.drop(
                    {
                        key: [each for each in addresses if self._takes_data(each, sender)]
                        for key, addresses in who_has.items()
                    }
                )
            return error_reply(error)

    def _takes_data(self, address: str, sender: str) -> bool:
        """Tell whether the worker at *address* takes data from *sender*; see direct_requests.py."""
        link = link_of(self._server.stream_comms.get(self._server.coerce_address(address)))
        if link is None:
            return False
        policy, own = self._channel.policy, self._channel.identity.principal
        return any(
            policy.permits_operation(each).permitted and runs_code(policy, each, (own,))
            for each in anywhere(sender, link.peer, "update_data", Kind.DATA)
        )

    @contextmanager
    def _submission_from(self, comm: Any, client: str | None) -> Iterator[Submission]:
        """Record for the duration of the block that what arrives came over *comm*."""
        link = getattr(comm, "link", None)
        found = self._current(client)
        if link is not None:
            found = Submission(Origin(link.peer), client or "", link)
        token = _submission.set(found)
        try:
            yield found
        finally:
            _submission.reset(token)

    def _check_data(self, submission: Submission, keys: Iterable[Any], *, operation: str) -> None:
        """Refuse data under the keys of tasks, and under keys of another principal's data.

        What data says is not compared: neither is it opened here, nor is it there any more.
        """
        found = []
        for key in keys:
            task = self._server.tasks.get(key)
            if task is None:
                coming = self._coming.get(key)
                if coming is not None and coming.owner != submission.principal:
                    found.append(Conflict(coming, "key.definition", coming.owner))
                continue
            owner = self._owners.of(task)
            if task.run_spec is not None or owner != submission.principal:
                found.append(Conflict(task, "key.definition", owner))
        refused = self._decide(submission, found, operation=operation, kind=Kind.DATA)
        if refused:
            raise refusal(submission, refused)

    # --- decisions -------------------------------------------------------------------------------

    def _decide(
        self, submission: Submission, conflicts: Sequence[Conflict], *, operation: str, kind: Kind
    ) -> list[Conflict]:
        """Record what differs, warn of what policy lets pass, and return what it does not."""
        if not conflicts:
            return []
        workers = {
            name: self._is_worker(name)
            for name in {submission.principal, *(conflict.owner for conflict in conflicts)}
        }
        context = self._context(submission, kind, operation)
        words = self._channel.policy.key_conflicts(context)
        refused: list[Conflict] = []
        warned: list[Conflict] = []
        for conflict in conflicts:
            if conflict.doubted:
                warned.append(conflict)
            elif conflict.rule == "key.definition":
                (warned if words.definition == "warn" else refused).append(conflict)
            elif not (workers[submission.principal] or workers[conflict.owner]):
                # What a worker submits in the course of a task, and what it computes for others
                # that submitted the same, is computed by workers in any case.
                (warned if words.principal == "warn" else refused).append(conflict)
        self._note(context, refused, permitted=False)
        self._note(context, warned, permitted=True)
        if warned and not refused:
            self._warn(submission, warned)
        return refused

    def _context(self, submission: Submission, kind: Kind, operation: str) -> Context:
        """Return the hop by which it came: contexts of the policy may ask how, and where from."""
        if submission.link is not None:
            found: Context = submission.link.inbound(kind, operation)
            return found
        own = self._channel.identity.principal
        return Context(submission.principal, own, kind, operation, transport="safeser")

    def _note(self, context: Context, conflicts: Sequence[Conflict], *, permitted: bool) -> None:
        audit = self._channel.audit
        for place, conflict in enumerate(conflicts):
            if place < _RECORDED:
                name = "warn" if permitted else "refuse"
                said = event(name, context, None, conflict.rule, permitted, where=conflict.key)
                audit.record({**said, "author": conflict.owner})
            else:
                audit.count(
                    sender=context.sender,
                    recipient=context.recipient,
                    operation=context.operation or "",
                    rule=conflict.rule,
                    permitted=permitted,
                )

    def _warn(self, submission: Submission, conflicts: Sequence[Conflict]) -> None:
        """Warn the client that submitted, and no other, as Dask's own warnings come."""
        fix = f" {FIX}" if conflicts[0].rule == "key.definition" else ""
        text = describe(submission, conflicts, f"Its result is used.{fix}")
        logger.warning("%s", text)
        message = {"message": text, "category": "builtins:UserWarning"}
        self._send(submission.client, {"op": "event", "topic": "warn", "event": (time(), message)})

    def _send(self, client: str, message: dict[str, Any]) -> None:
        stream = self._server.client_comms.get(client)
        if stream is not None:
            with suppress(CommClosedError):  # the client has left
                stream.send(message)

    def report(
        self,
        stock: Callable[..., Any],
        msg: dict[str, Any],
        ts: Any = None,
        client: str | None = None,
    ) -> None:
        """Report as *stock* does, but the failure of a graph only to the client that submitted it.

        Dask reports it to every client that wants one of the keys that the graph names: a graph
        that cannot even be opened would fail the futures of others.
        """
        if msg.get("op") == "task-erred" and ts is None and client is not None:
            self._send(client, msg)
        else:
            stock(msg, ts=ts, client=client)


def _digest(graph: Any) -> bytes:
    """Return a digest of the bytes of a graph; nothing if they are many or were opened already."""
    if type(graph) is not Serialized or is_opened(graph):
        return b""
    if sum(map(nbytes, graph.frames)) > _LARGE:
        return b""
    made = sha256(packed(graph.header))
    for frame in graph.frames:
        made.update(len(frame).to_bytes(8, "big"))
        made.update(frame)
    return made.digest()


def _compared(
    comparison: Comparison, sealed: SealedComparison, known: Any, node: Any, *, own: bool
) -> Sameness:
    """Return what is known of two nodes under one key, of which *known* is there, if any is.

    Of sealed ones the scheduler knows bytes, by which alone those of two authors are the same, and
    what an author says of definitions, which counts against that author.

    :param own: whether one principal submitted both.
    """
    if isinstance(known, Sealed) and isinstance(node, Sealed):
        if own:
            return sealed.compare(known, node)
        same = known.says_same(node)
    elif isinstance(known, Sealed) or isinstance(node, Sealed):
        same = False
    else:
        same = known is not None and comparison.same(known, node)
    return Sameness.SAME if same else Sameness.DIFFERENT
