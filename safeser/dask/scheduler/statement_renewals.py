"""Send renewed statements of sealed graphs to the workers that have tasks of these graphs.

The one rule: however many statements clients renew, the scheduler sends them to workers at most
once in each :data:`PAUSE`, and to each worker only those of graphs of which it has tasks to run.
Finding these takes at most one hundredth of the scheduler's time. Tasks that are sent later carry
the renewed statement anyway.
"""

from __future__ import annotations

import contextlib
from time import perf_counter
from typing import Any

from distributed.comm.core import CommClosedError

from safeser.dask.sealed.node import Sealed
from safeser.dask.sealed.renewal import Current, Statements
from safeser.dask.servers import Part, link_of
from safeser.gate.values import Kind
from safeser.policy.rules import RENEWED

__all__ = ["PAUSE", "Renewals"]

#: Seconds for which renewals are gathered before the tasks of all workers are checked.
PAUSE = 1.0

#: How many times as long as a look takes it is until the next one: clients choose how many tasks
#: there are, and may renew statements all the time.
_SHARE = 100


class Renewals(Part):
    """The statements of the graphs of one scheduler, and those that workers have to be sent."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.statements = Statements()
        self._renewed: set[Current] = set()
        self._pause = PAUSE

    def note(self, current: Current) -> None:
        """Schedule the renewed statement of a graph for the workers with tasks of it.

        May be called by any thread.
        """
        with contextlib.suppress(ReferenceError, RuntimeError):  # the server or its loop is gone
            self._server.loop.add_callback(self._gather, current)

    def _gather(self, current: Current) -> None:
        if not self._renewed:
            self._server.loop.call_later(self._pause, self._tell)
        self._renewed.add(current)

    def _tell(self) -> None:
        renewed, self._renewed = self._renewed, set()
        begun = perf_counter()
        with contextlib.suppress(ReferenceError):
            for address, worker in self._server.workers.items():
                stream = self._server.stream_comms.get(address)
                link = link_of(stream)
                # Where policy lets a renewed statement be sent to that worker.
                if (
                    link is not None
                    and link.policy.permits_operation(link.outbound(Kind.TASK, RENEWED)).permitted
                ):
                    specs = (task.run_spec for task in worker.processing)
                    for current in renewed & {
                        spec.graph.current for spec in specs if isinstance(spec, Sealed)
                    }:
                        with contextlib.suppress(CommClosedError):
                            stream.send({"op": RENEWED, "statement": current.signed.packed})
        self._pause = max(PAUSE, _SHARE * (perf_counter() - begun))
