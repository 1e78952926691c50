"""Where tasks run and values are kept: on workers that take the tasks of their author.

The one rule: a worker is given the tasks, and is told to keep the values, that its own context with
the scheduler lets through; by which principal its key belongs to, never by what it says of itself.

Dask has one place for where a task may run, ``TaskState.worker_restrictions``. A task whose author
some worker does not take gets :class:`Places` there: the addresses of all workers that take it, as
they come and go. Assignment, stealing, shuffles and the state ``no-worker`` follow it unmodified.
Where every worker takes an author, Dask is left as it is, and the cost is one look for each graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from operator import attrgetter
from typing import Any, NamedTuple

from safeser.dask.same_host import anywhere
from safeser.dask.sealed.node import Sealed
from safeser.dask.servers import Part
from safeser.errors import PolicyDenied
from safeser.policy import Policy
from safeser.policy.questions.readable import readable
from safeser.policy.questions.worker_groups import UNSEALED, Takes, WorkerGroups
from safeser.policy.rules import COMPUTE
from safeser.values import UNKNOWN, Context, Kind
from safeser.wording import legible

__all__ = ["Placement", "Places"]

_STIMULUS = "safeser-placement"


class Needs(NamedTuple):
    """The conditions on workers that may run one task.

    :param author: of the task; None for a value that is kept and not computed.
    :param read: authors of the values that the worker needs.
    """

    author: str | None
    read: frozenset[str] = frozenset()


class Places(Set[str]):
    """The addresses of the workers on which one task may run, at any moment.

    It is true when it is empty: to Dask, an empty set of restrictions is none.

    :param wanted: addresses that the user names, *hosts* what else: one of them, if there are any.
    :param loose: whether others will do where none of those runs (``allow_other_workers``).
    """

    __slots__ = ("_hosts", "_loose", "_needs", "_placement", "_wanted")

    def __init__(
        self,
        placement: Placement,
        needs: Needs,
        wanted: Iterable[str] = (),
        hosts: Iterable[str] = (),
        *,
        loose: bool = False,
    ) -> None:
        self._placement = placement
        self._needs = needs
        self._wanted = frozenset(wanted)
        self._hosts = frozenset(hosts)
        self._loose = loose

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:
        return set(it)

    def narrowed(self, wanted: Iterable[str]) -> Places:
        """Return these places with other addresses that are wanted."""
        return Places(self._placement, self._needs, wanted, self._hosts, loose=self._loose)

    def copy(self) -> set[str]:
        """Return the addresses that are wanted: what Dask keeps, and restores after a shuffle."""
        return set(self._wanted)

    def _now(self) -> Set[str]:
        taking = self._placement.addresses(self._needs)
        if not self._wanted and not self._hosts:
            return taking
        scheduler = self._placement.scheduler
        wanted = self._wanted.union(*(_workers_on(scheduler, host) for host in self._hosts))
        found = {address for address in taking if address in wanted}
        if self._loose and not any(_runs(scheduler, address) for address in found):
            return taking
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __contains__(self, address: object) -> bool:
        return address in self._now()

    def __len__(self) -> int:
        return len(self._now())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Places {sorted(self)}>"


def _workers_on(scheduler: Any, host: str) -> Iterable[str]:
    """Return the workers on *host*, as Dask's ``valid_workers`` looks for them."""
    known = scheduler.host_info.get(scheduler.coerce_hostname(host))
    return () if known is None else known["addresses"]


def _runs(scheduler: Any, address: str) -> bool:
    return scheduler.workers.get(address) in scheduler.running


class Placement(Part):
    """The authors whose tasks each worker of one scheduler takes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        #: The principal that brought the value of a task that computes nothing.
        self.owner_of: Callable[[Any], str] = lambda _: UNKNOWN
        self._contexts: dict[str, Context] = {}  # of the present workers
        #: Of all that have ever registered: one that left may come back at any time.
        self._ever: set[Context] = set()
        self._authors: set[str] = set()  # of tasks and values, as far as they were looked up
        self._gaining: list[Any] = []
        self._policy: Policy | None = None
        #: Whether a policy, or a worker, came since the existing tasks were checked.
        self._unplaced = False
        self._groups: WorkerGroups | None = None
        self._brought: dict[str, str] = {}
        self._may: dict[str, frozenset[str]] = {}
        self._kept: dict[str, frozenset[str]] = {}
        self._read: dict[tuple[str, str], bool] = {}
        self._taken: dict[Context, Takes] = {}
        self._apart: set[str] = set()
        self._addresses: dict[Needs, frozenset[str]] = {}
        self._places: dict[Needs, Places] = {}

    @property
    def _own(self) -> str:
        return self._known.channel.identity.principal

    def _forget(self) -> None:
        """Drop what was derived from the policy and from the present workers."""
        policy = self._known.channel.policy
        if policy is not self._policy:
            self._policy = policy
            self._groups, self._brought, self._may = None, {}, {}
            self._read, self._kept = {}, {}
            self._unplaced = True
        self._taken = {context: Takes.by(policy, context) for context in self._ever}
        self._apart = set(filter(self._is_apart, self._authors))
        self._addresses, self._places = {}, {}

    def _follow(self) -> None:
        """Drop what was derived from another policy than the present one."""
        if self._known.channel.policy is not self._policy:
            self._forget()

    # --- the workers -----------------------------------------------------------------------------

    def joins(self, address: str, link: Any) -> None:
        """Record the worker at *address* before it is there: from now on some tasks may not run
        on all workers.
        """
        context = link.outbound(Kind.TASK, COMPUTE)
        self._contexts[address] = context
        self._unplaced |= context not in self._ever
        self._ever.add(context)
        self._forget()
        self._place_all()

    def leaves(self, address: str) -> None:
        if self._contexts.pop(address, None) is not None:
            self._forget()

    @property
    def scheduler(self) -> Any:
        return self._server

    def addresses(self, needs: Needs) -> frozenset[str]:
        """Return the addresses of the workers that fulfil *needs*."""
        self._follow()
        found = self._addresses.get(needs)
        if found is None:
            fit = {context for context in self._ever if self._fits(context, needs)}
            found = frozenset(at for at, context in self._contexts.items() if context in fit)
            self._addresses[needs] = found
        return found

    def _fits(self, context: Context, needs: Needs) -> bool:
        takes = self._taken[context]
        if needs.author is not None and not takes.includes(needs.author):
            return False
        return all(
            self._keeps(context.recipient, takes, author) or not self._keepers(author)
            for author in needs.read
        )

    def _is_apart(self, author: str) -> bool:
        """Tell whether some worker that ever registered may hold no values of *author*.

        Data of a principal whose tasks no worker takes belongs to no group, and may be anywhere.
        """
        if all(_has(each.recipient, takes, author) for each, takes in self._taken.items()):
            return False
        return bool(self._keepers(author))

    def _keeps(self, principal: str, takes: Takes, author: str) -> bool:
        """Tell whether a worker may have values of *author*: its own ones, or those it may read."""
        return _has(principal, takes, author) or self._reads(principal, author)

    def _reads(self, worker: str, author: str) -> bool:
        """Tell whether *worker* may read values of *author* from all workers that compute them."""
        found = self._read.get((worker, author))
        if found is None:
            policy = self._known.channel.policy
            asked = [
                each
                for other in self._takers(author)
                for each in anywhere(worker, other, "get_data", Kind.DATA)
            ]
            found = self._read[worker, author] = bool(asked) and all(
                author in readable(policy, each) for each in asked
            )
        return found

    @property
    def divides(self) -> bool:
        """Whether two workers that ever registered take tasks of different authors."""
        if len(self._ever) < 2:
            return False
        self._follow()
        kinds = {(context.recipient, takes) for context, takes in self._taken.items()}
        return len(kinds) > 1

    # --- the tasks -------------------------------------------------------------------------------

    def _author_of(self, task: Any) -> str:
        """Return the author of a task or of its value."""
        if task.run_spec is None:
            return self.brought_by(self.owner_of(task))
        return _author(task.run_spec)

    def brought_by(self, principal: str) -> str:
        """Return the author of a value that *principal* scattered.

        Of those whose tasks the scheduler hands out in its own name, so are the values.
        """
        self._follow()
        found = self._brought.get(principal)
        if found is None:
            found = self._brought[principal] = self._principals.author_of(principal)
            self._note(found)
        return found

    def _note(self, author: str) -> None:
        if author not in self._authors:
            self._authors.add(author)
            if self._is_apart(author):
                self._apart.add(author)

    def require_places(self, graph: Mapping[Any, Any]) -> None:
        """Refuse a graph of which some task could run on no worker of this policy.

        :raises PolicyDenied: which says which task, and why.
        """
        if not graph:
            return
        self._follow()
        self._place_all()
        author = _author(next(iter(graph.values())))
        self._note(author)
        self._require_worker(author)
        if not self._apart:
            return
        tasks = self._server.tasks
        self._gaining = [
            tasks[key] for key in graph if key in tasks and tasks[key].run_spec is None
        ]
        for key, node in graph.items():
            if key in tasks and tasks[key].run_spec is not None:
                continue  # the task stays as it is, on the workers of its own author
            read = {self._author_of(tasks[each]) for each in node.dependencies if each in tasks}
            self._require_common(key, author, read - {author})

    def _require_worker(self, author: str) -> None:
        # A policy that names no workers says nothing about them.
        if self._principals.takes and not self._takers(author):
            raise PolicyDenied(
                f"no worker of this policy takes {_named(author)}",
                rule="worker-group.none",
                fix="Ask the operator to list the author under 'authors' of a context by which the"
                " scheduler hands tasks to workers.",
            )

    def _require_common(self, key: Any, author: str, read: set[str]) -> None:
        left = self._takers(author)
        for other in filter(self._is_apart, sorted(read)):
            left = left & self._keepers(other)
            if not left:
                raise PolicyDenied(
                    f"task {_shown(key)!r} needs a value of {_whose(other)}, and no worker that"
                    f" takes {_named(author)} may have it",
                    rule="worker-group.values",
                    fix="Compute it from data of your own group, or ask the operator for workers"
                    " whose context lists both authors.",
                )

    def _takers(self, author: str) -> frozenset[str]:
        """Return the principals whose workers could take tasks of *author* if they were here."""
        found = self._may.get(author)
        if found is None:
            found = self._may[author] = self._principals.of(author)
        return found

    def _keepers(self, author: str) -> frozenset[str]:
        """Return the principals whose workers could have values of *author* if they were here."""
        found = self._kept.get(author)
        if found is None:
            found = self._kept[author] = frozenset(
                name
                for name, takes in self._principals.takes.items()
                if self._keeps(name, takes, author)
            )
        return found

    @property
    def _principals(self) -> WorkerGroups:
        if self._groups is None:
            self._groups = WorkerGroups(self._known.channel.policy, self._own)
        return self._groups

    def place_new(self, tasks: Iterable[Any]) -> None:
        """Restrict new *tasks* of a graph to the workers that take them."""
        gaining, self._gaining = self._gaining, []
        if self._apart:
            for task in (*tasks, *gaining):
                self._place(task)

    def _place_all(self) -> None:
        """Restrict existing tasks anew, after a worker or a policy came that does not take them."""
        if not self._unplaced:
            return
        self._unplaced = False
        scheduler = self._server
        recommended = {}
        for task in scheduler.tasks.values() if self._apart else ():
            # The scheduler ignores restrictions when it takes the next task from the queue.
            if self._place(task) and task.state == "queued":
                recommended[task.key] = "released"
        # Dask looks at these again when a worker comes. Recommendations are processed LIFO.
        waiting = sorted(scheduler.unrunnable, key=attrgetter("priority"), reverse=True)
        recommended.update((task.key, "processing") for task in waiting)
        if recommended:
            scheduler.transitions(recommended, _STIMULUS)

    def _place(self, task: Any) -> bool:
        """Restrict *task* to the workers that take it; return whether it had no restriction."""
        if task.run_spec is None or isinstance(task.worker_restrictions, Places):
            return False
        author = self._author_of(task)
        # All of them: the next policy, or worker, may set others apart than now.
        read = frozenset(self._author_of(each) for each in task.dependencies) - {author}
        if not any(map(self._is_apart, {author, *read})):
            return False
        needs = Needs(author, read)
        if not (task.worker_restrictions or task.host_restrictions):
            task.worker_restrictions = self._shared(needs)
        else:
            task.worker_restrictions = Places(
                self,
                needs,
                task.worker_restrictions or (),
                task.host_restrictions or (),
                loose=task.loose_restrictions,
            )
        # Dask would add the hosts, and all workers where nothing is left.
        task.host_restrictions, task.loose_restrictions = None, False
        return True

    def _shared(self, needs: Needs) -> Places:
        if needs not in self._places:
            self._places[needs] = Places(self, needs)
        return self._places[needs]

    # --- the values ------------------------------------------------------------------------------

    def keepers(self, task: Any) -> frozenset[str] | None:
        """Return the addresses of the workers that may have the value of *task*; None for all."""
        return self.keepers_of(self._author_of(task))

    def keepers_of(self, author: str) -> frozenset[str] | None:
        """Return the addresses of the workers that may have values of *author*; None for all."""
        self._note(author)
        if not self._is_apart(author):
            return None
        return self.addresses(Needs(None, frozenset({author})))

    def interchangeable(self, addresses: Iterable[str]) -> list[list[str]]:
        """Return *addresses* in lists, in each of which all may have the same values."""
        self._follow()
        lists: dict[Any, list[str]] = {}
        for address in addresses:
            context = self._contexts.get(address)
            kind = None if context is None else (context.recipient, self._taken[context])
            lists.setdefault(kind, []).append(address)
        return list(lists.values())


def _author(node: Any) -> str:
    return node.author if isinstance(node, Sealed) else UNSEALED


def _has(principal: str, takes: Takes, author: str) -> bool:
    """Tell whether a worker may hold values of *author* that it computes or brought."""
    return author == principal or takes.includes(author)


def _named(author: str) -> str:
    return "tasks that are not sealed" if author == UNSEALED else f"sealed tasks of {author!r}"


def _whose(author: str) -> str:
    return "a task that is not sealed" if author == UNSEALED else repr(author)


def _shown(key: Any) -> str:
    return legible(str(key), 60)
