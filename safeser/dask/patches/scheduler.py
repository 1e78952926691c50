"""Rows of the list of patches for schedulers that listen on ``safeser://``, and their extensions.

The one rule: nothing is decided here. Each row names the part of the scheduler that decides.
"""

from __future__ import annotations

from safeser.dask.patches.patch import Patch
from safeser.dask.scheduler.call_profiles import Profiles
from safeser.dask.scheduler.cancellation import Cancellation
from safeser.dask.scheduler.key_conflicts import Guard
from safeser.dask.scheduler.readers import Readers
from safeser.dask.scheduler.workers import Workers

__all__ = ["ROWS"]

_SCHEDULER = "distributed.scheduler:Scheduler"

ROWS = (
    # graphs and data
    Patch(
        target=f"{_SCHEDULER}.update_graph",
        reason="A graph's tasks belong to no principal: the client that first submits under a key"
        " chooses what all others get under it.",
        by=(Guard, Guard.update_graph),
    ),
    Patch(
        target=f"{_SCHEDULER}._create_taskstate_from_graph",
        reason="A key that exists is not compared with what arrives.",
        by=(Guard, Guard.create),
        source=(f"{_SCHEDULER}._create_taskstate_from_graph", f"{_SCHEDULER}._generate_taskstates"),
    ),
    Patch(
        target="distributed.scheduler:SchedulerState.new_task",
        reason="A task does not record the principal on whose behalf it was created.",
        by=(Guard, Guard.new_task),
    ),
    Patch(
        target=f"{_SCHEDULER}.update_data",
        reason="Data is taken in under the key of another's task.",
        by=(Guard, Guard.update_data),
    ),
    Patch(
        target=f"{_SCHEDULER}.scatter",
        reason="Data is brought to workers under the key of another's task.",
        by=(Guard, Guard.scatter),
    ),
    Patch(
        target=f"{_SCHEDULER}.report",
        reason="The failure of one client's graph fails the futures of all clients of its keys.",
        by=(Guard, Guard.report),
    ),
    Patch(
        target=f"{_SCHEDULER}.stimulus_cancel",
        reason="A client without submission can cancel the work of all others.",
        by=(Cancellation, Cancellation.cancel),
    ),
    # existing tasks
    Patch(
        target=f"{_SCHEDULER}.stimulus_retry",
        reason="It releases keys that have not failed: data that another principal scattered is"
        " lost.",
        by=(Cancellation, Cancellation.retry),
    ),
    Patch(
        target=f"{_SCHEDULER}.client_desires_keys",
        reason="Keys are published that their publisher may not read.",
        by=(Readers, Readers.keep),
    ),
    Patch(
        target=f"{_SCHEDULER}.coerce_address",
        reason="Host names in requests are looked up in the event loop: one list of them blocks the"
        " cluster, and their name server learns of it.",
        by=(Workers, Workers.coerce_address),
    ),
    *(
        Patch(
            target=f"{owner}.get_profile",
            reason="A profile that is nested deeper than a message may be is refused whole.",
            needed=False,
            by=(Profiles, Profiles.get_profile),
        )
        for owner in (_SCHEDULER, "distributed.worker:Worker")
    ),
    # workers and nannies
    Patch(
        target=f"{_SCHEDULER}.add_worker",
        reason="A worker is not asked whether it is confined, and one whose registration ends half"
        " way gets tasks that wait for ever.",
        by=(Workers, Workers.register),
    ),
    Patch(
        target=f"{_SCHEDULER}.add_keys",
        reason="A copy of the value that another author's task had under the key is taken for that"
        " of the present one.",
        by=(Workers, Workers.add_keys),
    ),
    Patch(
        target="distributed.scheduler:SchedulerState._task_to_msg",
        reason="The scheduler does not state the authors of a task and its inputs.",
        by=(Workers, Workers.hand_out),
    ),
    Patch(
        target=f"{_SCHEDULER}.request_acquire_replicas",
        reason="The scheduler does not state the author of a value that a worker is to keep.",
        by=(Workers, Workers.acquire),
    ),
    Patch(
        target=f"{_SCHEDULER}.gather_on_worker",
        reason="The scheduler does not state the author of a value that a worker is to copy.",
        by=(Workers, Workers.gathered_on),
    ),
    Patch(
        target=f"{_SCHEDULER}.gather",
        reason="If a key is released and another client submits it while its value is fetched, the"
        " client that asked for the first value gets the second.",
        by=(Readers, Readers.gathered),
    ),
    # published datasets
    Patch(
        target="distributed.publish:PublishExtension.put",
        reason="Keys are published by principals that may not read their values.",
        by=(Readers, Readers.put),
        via=("scheduler",),
    ),
)
