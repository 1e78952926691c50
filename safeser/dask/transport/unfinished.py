"""One memory budget of a process for all messages that arrive and are not decided yet.

The one rule: bytes are counted before they are read. Reads beyond the budget wait, except those of
the message that began first: so each message ends, however large it is, and none is refused for the
budget. No principal takes more than three quarters of what the others leave. While others wait, a
sender that stops sending, or sends next to nothing, loses its connection: it would keep them
waiting for as long as it likes.

Without it each peer's unfinished messages would have a budget of their own: a dozen connections
that stop after 2 GB each take as many gigabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Self

#: Bytes of all unfinished messages of a process: as much as one array or buffer may be by default.
BUDGET = 1 << 30

#: A smaller message is not worth counting: a peer has a few thousand connections at most.
COUNTED_FROM = 1 << 14

#: Waiting messages that are woken at a time, at most: each that goes on may wake others.
_WOKEN = 64

#: While others wait, a sender sends at least so many bytes a second, after so many seconds: any
#: network is faster.
LEAST_RATE, PATIENCE = 1 << 14, 30.0


class Unfinished:
    """The unfinished messages of one process, whichever event loops read them.

    :param budget: bytes that all of them may hold together; one more message may be beyond it.
    :param patience: seconds in which the rate of each sender is measured, while others wait.
    :param clock: seconds that never run backwards.
    """

    def __init__(
        self,
        budget: int = BUDGET,
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._budget = budget
        self._patience = patience
        self._clock = clock
        self._lock = Lock()
        self._held = 0
        self._shares: Counter[str] = Counter()  # of what is held, by principal
        self._arriving: dict[Arriving, None] = {}  # the first to begin first
        self._waiting: dict[Arriving, None] = {}  # the first to wait first
        self._looked = 0.0  # when stalled senders were looked for

    @property
    def held(self) -> int:
        """Bytes of unfinished messages, now."""
        return self._held

    def _take(self, message: Arriving, size: int) -> bool:
        """Count *size* more bytes of *message* if there is room for them, or if it began first."""
        with self._lock:
            if message not in self._arriving:
                self._arriving[message] = None
                message.mark(self._clock())
            if message.beyond:
                return True
            if not self._fits(message.principal, size):
                message.beyond = next(iter(self._arriving)) is message
                return message.beyond
            self._held += size
            self._shares[message.principal] += size
            message.held += size
            return True

    def _fits(self, principal: str, size: int) -> bool:
        own = self._shares[principal]
        left = self._budget - (self._held - own)
        return 4 * (own + size) <= 3 * left

    def _wait(self, message: Arriving, *, waits: bool) -> None:
        with self._lock:
            if waits:
                self._waiting[message] = None
            else:
                self._waiting.pop(message, None)

    def _remove(self, message: Arriving) -> None:
        with self._lock:
            del self._arriving[message]
            self._waiting.pop(message, None)
            self._held -= message.held
            self._shares[message.principal] -= message.held
            if not self._shares[message.principal]:
                del self._shares[message.principal]
            message.held = 0
            woken = self._next()
        for each in woken:
            each.wake()

    def _next(self) -> list[Arriving]:
        """Return those that wait and may go on: the first of all, and as many as there is room for.

        Each asks for its room again, so that to wake one too many does no harm.
        """
        first = next(iter(self._arriving), None)
        woken = [first] if first in self._waiting and first is not None else []
        free = self._budget - self._held
        for each in self._waiting:
            if free <= 0 or len(woken) >= _WOKEN:
                break
            fits = each.wanted <= free and self._fits(each.principal, each.wanted)
            if fits and each is not first:
                woken.append(each)
                free -= each.wanted
        return woken

    def _abort_stalled(self) -> None:
        """Close the connections of senders that keep others waiting and send next to nothing."""
        now = self._clock()
        with self._lock:
            if now - self._looked < self._patience / 10:
                return
            self._looked = now
            stalled = [each for each in self._arriving if each.stalls(now, self._patience)]
        for each in stalled:
            each.abort()


class Arriving:
    """One unfinished message: a context manager, inside which it is read and decided.

    It counts from its first :meth:`take`: a connection that waits for a message holds nothing.

    :param principal: of its sender.
    :param abort: closes its connection.
    :ivar complete: whether all of it has arrived; it counts until it is decided.
    """

    # Of the class, as most messages are read without a change to any of these.
    _loop: asyncio.AbstractEventLoop | None = None
    _since = 0.0  # when its rate was last measured
    _arrived = 0  # bytes since then
    held = 0
    beyond = False  # the rest of it is read beyond the budget
    complete = False
    wanted = 0  # bytes that it waits to read
    waits: asyncio.Event | None = None

    def __init__(self, owner: Unfinished, principal: str, abort: Callable[[], object]) -> None:
        self._owner = owner
        self.principal = principal
        self._abort = abort

    async def take(self, size: int) -> None:
        """Wait until *size* more bytes of this message may be read."""
        owner = self._owner
        self._loop = asyncio.get_running_loop()
        if owner._take(self, size):
            return
        self.waits, self.wanted = asyncio.Event(), size
        owner._wait(self, waits=True)
        try:
            # Room that was made before the line above woke none, so that it is asked for again.
            while not owner._take(self, size):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.waits.wait(), owner._patience / 10)
                self.waits.clear()
                owner._abort_stalled()
        finally:
            owner._wait(self, waits=False)
            self.waits = None
        # It could not send while it waited: its time begins now.
        self.mark(owner._clock())

    def mark(self, now: float) -> None:
        """Measure the sender's rate from *now* on."""
        self._since, self._arrived = now, 0

    def stalls(self, now: float, patience: float) -> bool:
        """Tell whether the sender sent next to nothing for *patience* seconds."""
        seconds = now - self._since
        if self.waits is not None or self.complete or seconds <= patience:
            return False
        slow = self._arrived < LEAST_RATE * patience
        self.mark(now)
        return slow

    def note(self, size: int) -> None:
        """Record that *size* bytes more have arrived."""
        self._arrived += size

    def wake(self) -> None:
        """Have it look for room again; from any thread."""
        event = self.waits
        if event is not None:
            self._tell(event.set)

    def abort(self) -> None:
        """Close the connection that it arrives on; from any thread."""
        self._tell(self._abort)

    def _tell(self, callback: Callable[[], object]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # its loop is closed, and so is its connection
            self._loop.call_soon_threadsafe(callback)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self in self._owner._arriving:  # few messages are so large that they count
            self._owner._remove(self)


#: Those of this process.
unfinished = Unfinished()
