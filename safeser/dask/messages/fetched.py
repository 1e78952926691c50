"""Values that one process fetches from another in one reply: one that is refused fails alone.

The one rule: all values of a reply are decided and recorded before one of them is built, and each
for itself, as elements of a stream are. What stands beside them is decided with none of them: where
that is refused, so is the reply.

A relay hands on a failure in place of a value. A worker that gathers what its tasks depend on knows
only replies that fail as a whole (distributed 2026.8.0, ``worker_state_machine.py``): a key that is
merely missing it asks for again, for ever. So its state is told of values that were refused in the
event by which others arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from distributed.core import error_message
from distributed.worker_state_machine import GatherDepSuccessEvent

from safeser.dask.messages.building import build, load_part, with_objects
from safeser.dask.messages.deciding import Judged, Message, Side, judge_reply, judge_values
from safeser.dask.messages.pending import Pending
from safeser.dask.wire.fields import holds_reference, references
from safeser.errors import PayloadError, SafeserError

__all__ = [
    "Built",
    "Fetched",
    "Unfetched",
    "build_fetched",
    "gather_apart",
    "handle_partly_gathered",
    "is_partly_gathered",
    "judge_fetched",
    "takes_parts",
]

#: Refused values of one reply that say why as errors of their own.
_EXPLAINED = 100

#: Whether what is fetched here and now goes to a worker's state, which knows :class:`Unfetched`.
_TAKES_PARTS: ContextVar[bool] = ContextVar("safeser-takes-parts", default=False)


def takes_parts() -> bool:
    """Tell whether the code that fetches values in this context handles :class:`Unfetched`."""
    return _TAKES_PARTS.get()


# --- reading -----------------------------------------------------------------------------------


class Fetched(NamedTuple):
    """A reply to ``get_data``, decided and recorded with each of its values; none of them is built.

    :param others: what stands beside the values that hold payloads.
    :param values: those, by their keys.
    :param judged: what was decided of them; None where there are none.
    """

    others: Judged
    values: Mapping[Any, Any]
    judged: Judged | None

    @property
    def refused(self) -> Iterator[SafeserError]:
        """Why payloads of it were refused."""
        return (error for _, error in (() if self.judged is None else self.judged.refused))


def judge_fetched(side: Side, asked: Pending, message: Message) -> Fetched:
    """Decide the reply *message* to a request for values, and each value by itself.

    :raises SafeserError: for all that is not one value: the sender, another field, the log.
    """
    rest, values = _apart(message.body)
    judged: Judged | None = None
    with side.link.recorded_together() as records:
        side = side._replace(records=records)
        # First: whether the sender may send values at all is one decision and one record.
        others = judge_reply(side, asked, message._replace(body=rest))
        if values:
            judged = judge_values(side, values, message)
    return Fetched(others, values, judged)


class Built(NamedTuple):
    """A reply to ``get_data`` as far as it may come.

    :param reply: with those of its values that could be built.
    :param failed: why each of the others is missing, by its key; many may share one error.
    :param refused: why values could not be built.
    """

    reply: Any
    failed: Mapping[Any, SafeserError]
    refused: Sequence[SafeserError]


def build_fetched(fetched: Fetched) -> Built:
    """Return a reply with those of its values that may come, and why each of the others may not."""
    reply, judged = build(fetched.others), fetched.judged
    if judged is None:
        return Built(reply, {}, ())
    key_of = {index: key for key, value in fetched.values.items() for index in references(value)}
    failed, refused = _Failed(), []
    for index, error in judged.refused:
        failed.add(key_of[index], error)
    objects: dict[int, Any] = {}
    for part in judged.parts:
        if key_of[part.number] in failed.errors:
            continue  # something else in the same value was refused
        try:
            objects[part.number] = load_part(judged, part)
        except SafeserError as error:
            refused.append(failed.add(key_of[part.number], error))
    for key, value in fetched.values.items():
        if key in failed.errors:
            continue
        try:
            reply["data"][key] = with_objects(value, objects)
        except SafeserError as error:
            refused.append(failed.add(key, error))
    return Built(reply, failed.errors, refused)


class _Failed:
    """Why values of one reply failed. The first ones say it themselves, all others by the rule.

    An error of its own costs a millisecond and its traceback: ten thousand would stop a scheduler.
    """

    def __init__(self) -> None:
        self._others: dict[str, SafeserError] = {}
        self.errors: dict[Any, SafeserError] = {}

    def add(self, key: Any, error: SafeserError) -> SafeserError:
        """Note why the value of *key* failed; return *error* without what led to it."""
        error.without_frames()
        shown = error
        if len(self.errors) >= _EXPLAINED:
            shown = self._others.setdefault(error.rule, _one_of_many(error))
        self.errors[key] = shown
        return error


def _one_of_many(error: SafeserError) -> SafeserError:
    return PayloadError(
        f"more than {_EXPLAINED} values of one reply were refused, and this is one of the others",
        rule=error.rule,
        fix="The audit log of the process that refused them has each, or counts it by this rule.",
    )


def _apart(body: Any) -> tuple[Any, dict[Any, Any]]:
    """Return what is in *body* beside the values that hold payloads, and those by their keys."""
    data = body.get("data") if isinstance(body, dict) else None
    if not isinstance(data, dict):
        return body, {}
    values = {
        key: value
        for key, value in data.items()
        if holds_reference(value) and not holds_reference(key)
    }
    return {**body, "data": {k: v for k, v in data.items() if k not in values}}, values


# --- a worker's dependencies -------------------------------------------------------------------


class Unfetched:
    """Stands in a reply for a value that was refused here; it goes no further than one worker."""

    def __init__(self, error: SafeserError) -> None:
        self.error = error


#: What Dask's state keeps of an error, in the order in which it takes it.
_TOLD = ("exception", "traceback", "exception_text", "traceback_text")


def is_partly_gathered(event: Any) -> bool:
    """Tell whether *event* brings some of the values that it is about, and not all."""
    if type(event) is not GatherDepSuccessEvent:
        return False
    return any(type(value) is Unfetched for value in event.data.values())


def handle_partly_gathered(state: Any, event: GatherDepSuccessEvent) -> Any:
    """Do what Dask does with values that arrive, and with others what it does where all failed."""
    recommendations, instructions = state._handle_gather_dep_success(event)
    told: dict[SafeserError, Any] = {}  # of errors that many values share
    for task, recommended in recommendations.items():
        value = event.data.get(task.key)
        if type(value) is Unfetched:  # others' values have code of their own to ask
            said = told.get(value.error)
            if said is None:
                message = error_message(value.error)
                said = told[value.error] = [message[name] for name in _TOLD]
            recommendations[task] = ("error", *said, recommended[-1])
    return recommendations, instructions


async def gather_apart(gather_dep: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
    """Do what ``Worker.gather_dep`` does, and tell values that may not come from those that did."""
    token = _TAKES_PARTS.set(True)
    try:
        return await gather_dep(*args, **kwargs)
    finally:
        _TAKES_PARTS.reset(token)
