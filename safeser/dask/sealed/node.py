"""Sealed tasks as Dask's schedulers and workers know them: nodes of a graph.

On a scheduler, a :class:`Sealed` task has a key, dependencies and flags, and nothing to run. On a
worker, a :class:`VerifiedTask` unpickles its definitions in the thread that runs it, once it has
asked again whether its author may still have it run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from dask._task_spec import Alias, GraphNode, Task, TaskRef
from distributed.metrics import context_meter
from distributed.shuffle._core import P2PBarrierTask

from safeser.dask.sealed.call import Call
from safeser.dask.sealed.graph import Head, SealedGraph
from safeser.dask.sealed.opening import open_task
from safeser.dask.sealed.writing import COROUTINE, PRODUCER
from safeser.dask.wire.reader import Reader
from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from safeser.pickles.stock import load_code

__all__ = ["Sealed", "VerifiedTask", "nodes", "same"]


class Sealed:
    """One task of a sealed graph on a scheduler, which can pass it on and nothing else."""

    __slots__ = ()

    graph: SealedGraph
    index: int
    key: Any

    def __init__(self, graph: SealedGraph, index: int) -> None:
        self.graph = graph  # type: ignore[misc]  # a slot of the class below
        self.index = index  # type: ignore[misc]  # a slot of the class below
        self.key = self._head.key
        self._dependencies = frozenset(self._head.dependencies)  # type: ignore[misc]  # Dask's slot

    @property
    def _head(self) -> Head:
        return self.graph.heads[self.index]

    @property
    def data_producer(self) -> bool:
        return bool(self._head.flags & PRODUCER)

    @property
    def call(self) -> Call:
        """All that a worker needs to verify and run it."""
        graph, index = self.graph, self.index
        head, definitions = graph.heads[index], graph.definitions
        return Call(
            graph.signed,
            index,
            graph.tree.path(index),
            graph.leaves[index],
            head,
            tuple([definitions[each] for each in head.digests]),
        )

    def says_same(self, other: Sealed) -> bool:
        """Tell whether both spell the same call in the same bytes."""
        return self.graph.leaves[self.index] == other.graph.leaves[other.index]

    @property
    def author(self) -> str:
        return self.graph.signed.statement.author

    def __call__(self, values: Any = ()) -> NoReturn:
        raise TypeError("a sealed task runs on workers alone")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a sealed task leaves its scheduler for workers alone")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sealed) and self.says_same(other)

    def __hash__(self) -> int:
        return hash((self.key, self.graph.leaves[self.index]))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("safeser-sealed", *self.graph.leaves[self.index])

    def __sizeof__(self) -> int:
        definitions = (self.graph.definitions[each] for each in self._head.digests)
        return sum(map(len, (*self.graph.leaves[self.index], *definitions)))

    def __repr__(self) -> str:
        return f"<SealedTask {self.key!r} of {self.author}>"


class SealedTask(Sealed, GraphNode):  # type: ignore[misc]  # dask ships no types
    """A sealed task like most."""

    __slots__ = ("graph", "index")


class SealedBarrier(Sealed, P2PBarrierTask):  # type: ignore[misc]  # as above
    """The sealed task between the halves of a shuffle, whose plan the scheduler reads."""

    __slots__ = ("graph", "index")

    def __init__(self, graph: SealedGraph, index: int) -> None:
        super().__init__(graph, index)
        self.spec = graph.plans[index]  # type: ignore[misc]  # Dask's slot


def nodes(graph: SealedGraph) -> dict[Any, Sealed]:
    """Return the tasks of *graph* under their keys."""
    return {
        head.key: (SealedBarrier if index in graph.plans else SealedTask)(graph, index)
        for index, head in enumerate(graph.heads)
    }


class VerifiedTask(Task):  # type: ignore[misc]  # as above
    """One task of a sealed graph on a worker, verified, decided and recorded.

    It has function and arguments, as plugins expect of a task, and opens them when they are first
    asked for. That is in the thread that runs it, unless it waits for inputs.

    :param still_valid: raises if its author may not have it run any more.
    """

    __slots__ = ("_call", "_limits", "_opened", "_still_valid")

    def __init__(self, call: Call, limits: Limits, still_valid: Callable[[], object]) -> None:
        self._call = call
        self._limits = limits
        self._still_valid = still_valid
        self._opened: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None
        self.key = call.head.key  # type: ignore[misc]  # Dask's slot
        self._dependencies = frozenset(call.head.dependencies)  # type: ignore[misc]  # likewise

    @property
    def graph(self) -> bytes:
        """The id of the graph that was signed, which no other submission has."""
        return self._call.signed.statement.graph

    def open(self) -> GraphNode:
        """Return Dask's own node, unpickled anew.

        :raises PolicyDenied: if it may not run any more.
        :raises PayloadError: if what its author wrote cannot be loaded here.
        """
        self._still_valid()
        head = self._call.head
        tree = Reader(self._limits).read(self._call.leaf.tree)
        parts = self._call.definitions
        return open_task(head.key, head.dependencies, tree, parts, _load)

    def prepare(self) -> None:
        """Open the call before its inputs arrive: its modules may register their classes.

        What goes wrong is said when it runs.
        """
        with suppress(SafeserError):
            self._parts()

    def _parts(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return function, arguments and keyword arguments of the call."""
        if self._opened is None:
            with context_meter.meter("deserialize"):  # one of Dask's fine performance metrics
                node = self.open()
            if isinstance(node, Task):
                self._opened = node.func, node.args, node.kwargs
            elif isinstance(node, Alias):
                self._opened = same, (TaskRef(node.target),), {}
            else:
                self._opened = node, (), {}
        return self._opened

    @property
    def func(self) -> Any:
        return self._parts()[0]

    @property
    def args(self) -> tuple[Any, ...]:
        if self._opened is not None:
            self._still_valid()  # nothing is called without its arguments
        return self._parts()[1]

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._parts()[2]

    @property
    def is_coro(self) -> bool:
        return bool(self._call.head.flags & COROUTINE)

    @property
    def data_producer(self) -> bool:
        return bool(self._call.head.flags & PRODUCER)

    def __reduce__(self) -> tuple[Any, ...]:
        # To a process of this worker's own executor: what runs there was verified here. Pickle lets
        # no object say that it is made as one of another class.
        return same, (self.open(),)

    def __sizeof__(self) -> int:
        return self._call.nbytes

    @property
    def author(self) -> str:
        return self._call.signed.statement.author

    def __repr__(self) -> str:
        return f"<SealedTask {self.key!r} of {self.author}>"


def same(value: Any) -> Any:
    """Return *value*: what a task calls that is another name, or that gives scattered data."""
    return value


def _load(definition: bytes) -> Any:
    try:
        return load_code(definition)
    # Granted code may raise anything; often a module is not installed here.
    except Exception as error:
        raise PayloadError(
            f"what the task is made of cannot be loaded here: {type(error).__name__}",
            rule="families.build",
            fix="The cause is chained to this error; often a module is not installed on workers.",
        ) from error
