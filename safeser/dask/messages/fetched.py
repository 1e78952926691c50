"""Read replies to ``get_data``, in which each value is refused alone.

The one rule: all values of a reply are decided and recorded, each alone, before any of them is
built. The other fields are decided apart from the values; if they are refused, so is the reply.

A relay forwards a failure in place of a refused value. A worker that gathers dependencies handles
only replies that fail as a whole (distributed 2026.8.0, ``worker_state_machine.py``): it requests a
key that is merely missing again, for ever. So refused values reach its state as failures, in the
event that delivers the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from distributed.core import error_message
from distributed.worker_state_machine import GatherDepSuccessEvent

from safeser.dask.messages.building import build, load_part, with_objects
from safeser.dask.messages.deciding import Judged, Message, Side, judge_reply, judge_values
from safeser.dask.messages.pending import Pending
from safeser.dask.messages.refused import Refusals
from safeser.dask.wire.fields import find, holds_reference, plan
from safeser.dask.wire.reader import LEAVES
from safeser.errors import SafeserError

#: Whether values fetched in this context go to a worker's state, which handles :class:`Unfetched`.
_TAKES_PARTS: ContextVar[bool] = ContextVar("safeser-takes-parts", default=False)


def takes_parts() -> bool:
    """Tell whether the code that fetches values in this context handles :class:`Unfetched`."""
    return _TAKES_PARTS.get()


# --- reading -----------------------------------------------------------------------------------


#: Finds payloads wherever they stand in a value.
_ANYWHERE = plan(())


def read_fetched(
    side: Side, asked: Pending, message: Message, refusals: Refusals
) -> tuple[Any, Mapping[Any, SafeserError]]:
    """Decide *message*, the reply to a request for values, and each value alone; then build it.

    :param refusals: gets those of the values.
    :return: the reply with the values that may be had, and the error of each other one, by key;
        many may share one error.
    :raises SafeserError: if the sender or another field is refused, or the log cannot be written.
    """
    rest, values = _apart(message.body)
    judged: Judged | None = None
    with side.link.recorded_together() as records:
        # First, because whether the sender may send values at all is one decision and record.
        others = judge_reply(side, asked, message._replace(body=rest), records)
        if values:
            judged = judge_values(side, values, message, records)
    if judged is None:
        return build(others), {}
    key_of = {
        slot.reference.index: key
        for key, value in values.items()
        for slot in find(value, _ANYWHERE)
    }
    failed: dict[Any, SafeserError] = {}

    def refuse(key: Any, error: SafeserError) -> None:
        failed[key] = refusals.told(error)
        refusals.note(error, heard=True)

    for index, error in judged.refused:
        refuse(key_of[index], error)
    reply = build(others)
    objects: dict[int, Any] = {}
    for part in judged.parts:
        if key_of[part.number] in failed:
            continue  # another payload of the same value was refused
        try:
            objects[part.number] = load_part(judged, part)
        except SafeserError as error:
            refuse(key_of[part.number], error)
    for key, value in values.items():
        if key in failed:
            continue
        try:
            reply["data"][key] = with_objects(value, objects)
        except SafeserError as error:
            refuse(key, error)
    return reply, failed


def _apart(body: Any) -> tuple[Any, dict[Any, Any]]:
    """Split *body* into the reply without values that hold payloads, and those values by key."""
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, dict):
        return body, {}
    values = {
        key: value
        for key, value in data.items()
        if value.__class__ not in LEAVES
        and holds_reference(value)
        and not (key.__class__ not in LEAVES and holds_reference(key))
    }
    return {**body, "data": {k: v for k, v in data.items() if k not in values}}, values


# --- a worker's dependencies -------------------------------------------------------------------


class Unfetched:
    """Stands in a reply for a value that was refused here; it never leaves this worker."""

    def __init__(self, error: SafeserError) -> None:
        self.error = error


#: The fields of an error that Dask's recommendation "error" takes, in its order.
_FIELDS = ("exception", "traceback", "exception_text", "traceback_text")


def is_partly_gathered(event: Any) -> bool:
    """Tell whether *event* delivers values of which some were refused."""
    if type(event) is not GatherDepSuccessEvent:
        return False
    return any(type(value) is Unfetched for value in event.data.values())


def handle_partly_gathered(state: Any, event: GatherDepSuccessEvent) -> Any:
    """Handle *event* as Dask does, but with tasks whose values were refused as erred."""
    recommendations, instructions = state._handle_gather_dep_success(event)
    told: dict[SafeserError, Any] = {}  # many values may share an error
    for task, recommended in recommendations.items():
        value = event.data.get(task.key)
        if type(value) is Unfetched:  # exact class: isinstance could run a value's own code
            said = told.get(value.error)
            if said is None:
                message = error_message(value.error)
                said = told[value.error] = [message[name] for name in _FIELDS]
            recommendations[task] = ("error", *said, recommended[-1])
    return recommendations, instructions


async def gather_apart(gather_dep: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
    """Run ``Worker.gather_dep`` with refused values as :class:`Unfetched` among the others."""
    token = _TAKES_PARTS.set(True)
    try:
        return await gather_dep(*args, **kwargs)
    finally:
        _TAKES_PARTS.reset(token)
