"""What clients that only look leave on a scheduler: nothing that outlives their connection.

The one rule: to ask for something makes nothing. Dask's handlers keep names that they are asked
for, tokens of readers who never say that they have read, requests that wait for keys which nobody
submits, and samplers that nobody stops; what a policy grants as looking would fill memory, or keep
what others want to let go of, long after its sender is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Collection
from functools import lru_cache
from time import monotonic
from typing import Any

from dask.utils import parse_timedelta
from distributed import versions
from distributed.metrics import time
from distributed.scheduler import Scheduler

from safeser.dask.replies import error_reply
from safeser.errors import PolicyDenied
from safeser.values import Kind

__all__ = ["forget_names_of_packages", "leave_nothing"]

logger = logging.getLogger("safeser.dask")

#: Topics that one client hears of at a time, and that one principal begins; Dask itself has one for
#: each worker and client.
_MAX_TOPICS = 10_000

#: Parts and characters of one event, by the number of its topics, that are never too many. Dask
#: keeps it under each topic, and who asks for all events is told it as often: ten megabytes of
#: events took 1.8 GB and a minute.
_MAX_REPEATED = 1 << 20

#: Levels that an answer to who asks for events has around each of them, and some to spare. One
#: event of as many levels as a message may have kept everybody from being told any.
_AROUND = 8

#: Samplers of memory that one principal has at a time; each looks at all workers, a hundred times a
#: second if it likes.
_MAX_SAMPLERS = 8

#: The latest samples of one that are kept: fourteen hours of them as often as Dask's own client
#: asks for, and no more than one answer may hold.
_MAX_SAMPLES = 100_000

#: Names of packages that are remembered; an environment has some hundred.
_MAX_PACKAGES = 1000

#: As much of a key as an error repeats.
_SHOWN = 200

#: How long the keys of a dataset are kept for a reader who was just told of them, and the name of
#: the client that wants them meanwhile.
_TOLD_SECONDS = 3.0
_TOLD = "told-of-datasets"

#: A key that is handed on arrives by another way than its task: so long may that one take.
_LATE_SECONDS = 600.0


def forget_names_of_packages() -> None:
    """Bound what this process remembers of the packages that it was asked for."""
    stock = versions._version_cached
    if stock.cache_parameters()["maxsize"] is None:
        versions._version_cached = lru_cache(maxsize=_MAX_PACKAGES)(stock.__wrapped__)


def leave_nothing(scheduler: Any) -> None:
    """Have *scheduler* keep nothing of who only looks; to be called before it listens."""
    if not isinstance(scheduler, Scheduler) or "client_desires_keys" in vars(scheduler):
        return
    _want_only_what_is_there(scheduler)
    _log_addresses(scheduler)
    _Topics(scheduler)
    variables = scheduler.extensions.get("variables")
    if variables is not None:
        _Variables(scheduler, variables)
    published = scheduler.extensions.get("publish")
    if published is not None:
        _Datasets(scheduler, published)
    semaphores = scheduler.extensions.get("semaphores")
    if semaphores is not None:
        leases = _Leases(semaphores)
        scheduler.handlers["semaphore_value"] = leases.value
        scheduler.handlers["semaphore_refresh_leases"] = leases.refresh
    if "memory_sampler_start" in scheduler.handlers:
        _Samplers(scheduler, scheduler.extensions["memory_sampler"])
    for name in ("queue_put", "variable_set"):
        if name in scheduler.handlers:
            scheduler.handlers[name] = _Known(scheduler, scheduler.handlers[name]).put


def _want_only_what_is_there(scheduler: Any) -> None:
    """Take away what Dask would print for each key that is not there, and keep for ever."""
    stock = scheduler.client_desires_keys

    def client_desires_keys(keys: Collection[Any], client: str) -> None:
        # Called without any as well: Dask makes a client of that name.
        there = [key for key in keys if key in scheduler.tasks]
        if len(there) < len(keys):
            logger.debug("%s wants %d keys that are not there", client, len(keys) - len(there))
        stock(there, client)

    scheduler.client_desires_keys = client_desires_keys
    scheduler.stream_handlers["client-desires-keys"] = client_desires_keys


def _is_deeper(value: Any, most: int) -> bool:
    """Tell whether *value* is nested more than *most* levels."""
    level = [value]
    for _ in range(most + 1):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner += part
                inner += part.values()
            elif isinstance(part, list | tuple | set):
                inner += part
        if not inner:
            return False
        level = inner
    return True


class _Leases:
    """Leases of semaphores that are there, and one line about those that nobody knows.

    Dask logs a line for each that it does not know, with the semaphore's name in it: 400 kB were
    400 MB and twelve seconds.
    """

    def __init__(self, semaphores: Any) -> None:
        self._semaphores = semaphores

    def value(self, name: Any = None) -> int:
        return len(self._semaphores.leases.get(name, ()))

    def refresh(self, name: Any = None, lease_ids: Collection[Any] = ()) -> None:
        if name not in self._semaphores.max_leases:
            return
        leases = self._semaphores.leases[name]
        unknown = sum(lease not in leases for lease in lease_ids)
        if unknown:
            logger.warning(
                "%d leases of %.60r are used that are not known: they may have timed out, and more"
                " of them be in use than it has",
                unknown,
                name,
            )
        leases.update(dict.fromkeys(lease_ids, time()))


def _log_addresses(scheduler: Any) -> None:
    """Log workers that took copies by their addresses.

    Dask logs their whole states, which are no data: after one ``replicate`` by anybody, nobody whom
    data alone may reach was told any events of all workers.
    """
    stock = scheduler.log_event

    def log_event(topic: Any, msg: Any) -> None:
        if isinstance(msg, dict) and msg.get("action") == "replicate":
            msg = {**msg, "workers": [getattr(each, "address", each) for each in msg["workers"]]}
        stock(topic, msg)

    scheduler.log_event = log_event


def _is_larger(value: Any, most: int) -> bool:
    """Tell whether *value* has more than *most* parts and characters."""
    waiting, size = [value], 0
    while waiting and size <= most:
        part = waiting.pop()
        size += 1
        if isinstance(part, dict):
            waiting += part
            waiting += part.values()
        elif isinstance(part, list | tuple | set):
            waiting += part
        elif isinstance(part, str | bytes):
            size += len(part)
        elif type(part) not in (int, float, bool, type(None)):
            return True  # a payload, whose size is told elsewhere
    return size > most


class _Topics:
    """Who hears of which topics, for as long as they are connected."""

    def __init__(self, scheduler: Any) -> None:
        self._broker = scheduler._broker
        self._heard: defaultdict[str, set[str]] = defaultdict(set)
        self._begun: Counter[str] = Counter()  # topics, by whose event was the first
        self._log = scheduler.handlers["log_event"]
        self._remove = scheduler.remove_client
        self._events = scheduler.get_events
        scheduler.remove_client = self.remove_client
        scheduler.stream_handlers["close-client"] = self.remove_client
        scheduler.stream_handlers["subscribe-topic"] = self.subscribe
        scheduler.stream_handlers["unsubscribe-topic"] = self.unsubscribe
        scheduler.handlers["events"] = self.events
        scheduler.handlers["log_event"] = self.log_event
        self._streams = scheduler.stream_comms
        self._log_worker = scheduler.stream_handlers["log-event"]
        scheduler.stream_handlers["log-event"] = self.log_worker_event

    def log_event(self, comm: Any, topic: Any, msg: Any) -> Any:
        """Log as Dask does, which keeps each topic for good: a name of its own takes a kilobyte."""
        try:
            self._begin(getattr(comm, "link", None), "log_event", topic, msg)
        except PolicyDenied as error:
            return error_reply(error)
        return self._log(topic=topic, msg=msg)

    def log_worker_event(self, worker: str, topic: Any, msg: Any) -> None:
        """Log what a worker says on its stream, where nobody waits for an answer."""
        comm = getattr(self._streams.get(worker), "comm", None)
        try:
            self._begin(getattr(comm, "link", None), "log-event", topic, msg)
        except PolicyDenied as error:
            logger.warning("%s", error)
            return
        self._log_worker(worker=worker, topic=topic, msg=msg)

    def _begin(self, link: Any, operation: str, topic: Any, msg: Any) -> None:
        """Count the topics that are new against whoever is the peer on *link*."""
        if link is not None and _is_deeper(msg, link.policy.limits.max_depth - _AROUND):
            link.refuse(
                link.inbound(Kind.DATA, operation),
                "events.deep",
                "this event has more levels than the answer to who asks for events could hold",
                fix="Log flatter data.",
            )
        times = 1 if isinstance(topic, str) else len(topic)
        if link is not None and times > 1 and _is_larger(msg, _MAX_REPEATED // times):
            link.refuse(
                link.inbound(Kind.DATA, operation),
                "events.repeated",
                f"this event is too large to be kept under {times} topics",
                fix="Log it under one topic, or log less.",
            )
        known = self._broker._topics
        new = {each for each in ([topic] if isinstance(topic, str) else topic) if each not in known}
        if link is not None and new:
            if self._begun[link.peer] + len(new) > _MAX_TOPICS:
                link.refuse(
                    link.inbound(Kind.DATA, operation),
                    "events.many-topics",
                    f"{link.peer} has begun {self._begun[link.peer]} topics of events, and may"
                    f" begin no more than {_MAX_TOPICS}",
                    fix="Log under topics that are there, and put what differs into the event.",
                )
            self._begun[link.peer] += len(new)

    def events(self, topic: str | None = None) -> Any:
        if topic is not None and topic not in self._broker._topics:
            return ()
        return self._events(topic)

    def subscribe(self, topic: str, client: str) -> None:
        heard = self._heard[client]
        if topic not in heard and len(heard) >= _MAX_TOPICS:
            logger.warning("%s hears of %d topics, and of no more", client, len(heard))
            return
        heard.add(topic)
        self._broker.subscribe(topic, client)

    def unsubscribe(self, topic: str, client: str) -> None:
        heard = self._heard.get(client, set())
        heard.discard(topic)
        if not heard:
            self._heard.pop(client, None)
        known = self._broker._topics.get(topic)
        if known is None:
            return
        known.unsubscribe(client)
        if not known.subscribers and not known.count:
            del self._broker._topics[topic]

    def remove_client(self, client: str, stimulus_id: str | None = None) -> None:
        self._remove(client, stimulus_id=stimulus_id)
        for topic in tuple(self._heard.get(client, ())):
            self.unsubscribe(topic, client)


class _Variables:
    """Readers of variables want the key from the moment they are told it, as other clients do.

    Dask has a variable keep its key until each reader says that it wants it too, and waits for that
    word for ever: a reader who says nothing keeps the key, and whoever deletes the variable waits
    with all that they submit afterwards.
    """

    def __init__(self, scheduler: Any, variables: Any) -> None:
        self._scheduler = scheduler
        self._waiting = variables.waiting
        self._get = variables.get
        self._remove = scheduler.remove_client
        # Keys that each client was told and has not spoken of yet, and how often.
        self._told: defaultdict[str, Counter[Any]] = defaultdict(Counter)
        scheduler.remove_client = self.remove_client
        scheduler.handlers["variable_get"] = self.get
        handlers = scheduler.stream_handlers
        handlers["close-client"] = self.remove_client
        handlers["client-releases-keys"] = self.release
        handlers["variable-future-received-confirm"] = self.confirm

    async def get(
        self, name: Any = None, client: str | None = None, timeout: Any = None
    ) -> dict[str, Any]:
        record: dict[str, Any] = await self._get(name=name, client=client, timeout=timeout)
        if "token" in record:
            # In the same turn of the event loop: nobody let go of the key in between.
            key = record["value"]
            if client is not None and client in self._scheduler.client_comms:
                self._told[client][key] += 1
                self._scheduler.client_desires_keys([key], client)
            self._waiting[key, name].discard(record["token"])
            if not self._waiting[key, name]:
                del self._waiting[key, name]
        return record

    def confirm(
        self, name: Any = None, key: Any = None, token: Any = None, client: str = ""
    ) -> None:
        del name, token
        told = self._told.get(client)
        if told is not None:
            told[key] -= 1
            if told[key] <= 0:
                del told[key]
            if not told:
                del self._told[client]
        self._scheduler.client_desires_keys([key], client)

    def release(self, keys: Collection[Any], client: str, stimulus_id: str | None = None) -> None:
        """Let go of what *client* does, but for what it is about to hear of: that crossed its word.

        It released an older future of that key, and makes a new one of what it was told.
        """
        told = self._told.get(client, ())
        left = [key for key in keys if key not in told]
        self._scheduler.client_releases_keys(left, client, stimulus_id)

    def remove_client(self, client: str, stimulus_id: str | None = None) -> None:
        self._told.pop(client, None)
        self._remove(client, stimulus_id=stimulus_id)


class _Datasets:
    """Readers of datasets have a moment in which to say that they want what they were told of.

    Dask's client asks for the dataset first, and says then that it wants its keys. Where somebody
    else replaced the dataset in between, and let go of it, a future would be left that never ends.
    """

    def __init__(self, scheduler: Any, published: Any) -> None:
        self._scheduler = scheduler
        self._get = published.get
        self._until: dict[Any, float] = {}
        scheduler.handlers["publish_get"] = self.get

    def get(self, names: Collection[Any]) -> Any:
        found = self._get(names=names)
        told = [key for each in found if each is not None for key in each["keys"]]
        if told:
            self._scheduler.client_desires_keys(told, _TOLD)
            if not self._until:
                self._look_later()
            self._until |= dict.fromkeys(told, monotonic() + _TOLD_SECONDS)
        return found

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(_TOLD_SECONDS, lambda: self.let_go(monotonic()))

    def let_go(self, now: float) -> None:
        """Stop wanting what nobody was told of for so long."""
        over = [key for key, until in self._until.items() if until <= now]
        for key in over:
            del self._until[key]
        self._scheduler.client_releases_keys(over, _TOLD)
        if self._until:
            self._look_later()


class _Samplers:
    """Who has memory sampled, how much is kept of it, and that it ends when they leave.

    Dask samples until somebody stops it by a key that is told to its caller alone, and looks only
    when the next sample is due whether that caller is still there.
    """

    def __init__(self, scheduler: Any, samplers: Any) -> None:
        self._scheduler = scheduler
        self._samples = samplers.samples
        self._start = samplers.start
        self._stop = samplers.stop
        self._remove = scheduler.remove_client
        self._begun: dict[str, tuple[str, str]] = {}  # by key: the client, and whose it is
        scheduler.remove_client = self.remove_client
        scheduler.stream_handlers["close-client"] = self.remove_client
        scheduler.handlers["memory_sampler_start"] = self.start
        scheduler.handlers["memory_sampler_stop"] = self.stop

    def start(self, comm: Any, client: str, measure: str, interval: float) -> Any:
        link = getattr(comm, "link", None)
        whose = client if link is None else link.peer
        running = [key for key, (_, owner) in self._running() if owner == whose]
        if link is not None and len(running) >= _MAX_SAMPLERS:
            try:
                link.refuse(
                    link.inbound(Kind.ADMIN, "memory_sampler_start"),
                    "sampler.many",
                    f"{whose} has {len(running)} memory samplers running, and may have no more",
                    fix="Leave the with block of another one, or close the client that began it.",
                )
            except PolicyDenied as error:
                return error_reply(error)
        key: str = self._start(client, measure, interval)
        if key in self._samples:  # it ends at once for a client that is not there
            self._samples[key] = deque(self._samples[key], maxlen=_MAX_SAMPLES)
            self._begun[key] = client, whose
        return key

    def _running(self) -> list[tuple[str, tuple[str, str]]]:
        """Return those that are still running; Dask ends some by itself."""
        self._begun = {key: by for key, by in self._begun.items() if key in self._samples}
        return list(self._begun.items())

    def stop(self, key: str) -> list[Any]:
        return list(self._stop(key))

    def remove_client(self, client: str, stimulus_id: str | None = None) -> None:
        self._remove(client, stimulus_id=stimulus_id)
        for key, (by, _) in self._running():
            if by == client:
                self._stop(key)


class _Known:
    """Hands a key on once it is there; Dask asks a hundred times a second, for ever."""

    def __init__(self, scheduler: Any, put: Any) -> None:
        self._tasks = scheduler.tasks
        self._put = put

    async def put(
        self,
        name: Any = None,
        key: Any = None,
        data: Any = None,
        client: str | None = None,
        timeout: Any = None,
    ) -> Any:
        if key is not None:
            await self._arrival(key, parse_timedelta(timeout))
        return await self._put(name=name, key=key, data=data, client=client, timeout=timeout)

    async def _arrival(self, key: Any, timeout: float | None) -> None:
        began = monotonic()
        most = _LATE_SECONDS if timeout is None else min(timeout, _LATE_SECONDS)
        while key not in self._tasks:
            waited = monotonic() - began
            if waited > most:
                raise TimeoutError(f"Task {str(key)[:_SHOWN]} unknown to scheduler.")  # as Dask
            await asyncio.sleep(min(max(0.01, waited / 10), 1.0))
