"""Rows of the list of patches for schedulers that listen on ``safeser://``, and their extensions.

The one rule: nothing is decided here. Each row names the part of the scheduler that decides.
"""

from __future__ import annotations

from safeser.dask.patches.patch import Patch
from safeser.dask.scheduler.call_profiles import Profiles
from safeser.dask.scheduler.cancellation import Cancellation
from safeser.dask.scheduler.key_conflicts import Guard
from safeser.dask.scheduler.named_addresses import Names
from safeser.dask.scheduler.readers import Readers
from safeser.dask.scheduler.worker_authority import Workers

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
        by=(Names, Names.coerce_address),
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
        reason="A worker that registers under the id of another replaces it, and one whose"
        " registration ends half way gets tasks that wait for ever.",
        by=(Workers, Workers.register),
    ),
    Patch(
        target=f"{_SCHEDULER}.add_keys",
        reason="A worker can report the value of a task that it was never given, and all others are"
        " told to drop theirs.",
        by=(Workers, Workers.add_keys),
    ),
    Patch(
        target=f"{_SCHEDULER}.handle_task_finished",
        reason="A worker reports the result of a task that another worker computes.",
        by=(Workers, Workers.finished),
    ),
    Patch(
        target=f"{_SCHEDULER}.handle_task_erred",
        reason="A worker reports the failure of a task that another worker computes.",
        by=(Workers, Workers.erred),
    ),
    Patch(
        target="distributed.scheduler:SchedulerState._task_to_msg",
        reason="The scheduler does not record which worker it told to compute a task, nor does it"
        " state the authors of the task and its inputs.",
        by=(Workers, Workers.hand_out),
    ),
    Patch(
        target=f"{_SCHEDULER}.request_acquire_replicas",
        reason="The scheduler does not record which worker it told to keep a copy of a value, nor"
        " does it state the author of the value.",
        by=(Workers, Workers.acquire),
    ),
    Patch(
        target=f"{_SCHEDULER}.gather_on_worker",
        reason="The scheduler does not record which worker it told to copy a value, nor does it"
        " state the author of the value.",
        by=(Workers, Workers.gathered_on),
    ),
    Patch(
        target=f"{_SCHEDULER}.gather",
        reason="If a key is released and another client submits it while its value is fetched, the"
        " client that asked for the first value gets the second.",
        by=(Readers, Readers.gathered),
    ),
    # extensions: published datasets and work stealing
    Patch(
        target="distributed.publish:PublishExtension.put",
        reason="Keys are published by principals that may not read their values.",
        by=(Readers, Readers.put),
        via=("scheduler",),
    ),
    Patch(
        target="distributed.stealing:WorkStealing.move_task_confirm",
        reason="Any worker can answer for the one that was asked to give up a task.",
        by=(Workers, Workers.gave_up),
        via=("scheduler",),
    ),
)
