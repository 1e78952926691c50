"""Build the objects of a decided message, or relay its payloads unopened.

The one rule: only a :class:`Judged` is built. It was decided and recorded with every payload in it,
and no other payload is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

from distributed.metrics import context_meter
from distributed.protocol.serialize import Serialized

from safeser.channel import Received
from safeser.dask.contents import opened_graph
from safeser.dask.contents.failures import Relayed
from safeser.dask.contents.opened_graph import check_beside
from safeser.dask.contents.shards import check_shards
from safeser.dask.messages import translate
from safeser.dask.messages.deciding import Judged, Part, is_graph
from safeser.dask.sealed.arrival import runnable
from safeser.dask.sealed.node import nodes
from safeser.dask.wire.codec import substitute
from safeser.dask.wire.fields import select
from safeser.dask.wire.shapes import check_built
from safeser.errors import PayloadError, PolicyDenied, SafeserError, SerializationError
from safeser.families.errors.unsent import unsent
from safeser.gate.values import ANY_AUTHOR, SEALED

__all__ = ["build", "load_part", "with_objects"]


def build(judged: Judged) -> Any:
    """Return the message with its payloads loaded, or relayed where this side is a relay.

    :raises PayloadError: if a payload cannot be built.
    :raises SerializationError: if its sender could not serialize it.
    """
    message = judged.body
    if judged.parts or judged.left_out:
        objects: dict[int, Any] = dict.fromkeys(judged.left_out)
        for part in judged.parts:
            objects[part.number] = load_part(judged, part)
        message = with_objects(message, objects)
        if judged.later:
            check_built(judged.later, message)
    if judged.context.operation == "update-graph":
        submission = judged.admitted.admission.grant.submission if judged.parts else "none"
        if submission != "code":
            _check_written_out(message)
    for path in judged.wrapped:
        for where, value in select(message, path):
            _refuse_bytes(value, where)
            frames = (frame for part in judged.parts for frame in part.row.frames)
            arrived = sum(memoryview(frame).nbytes for frame in frames)
            check_shards(value, judged.side.link.policy.limits, given=arrived, where=where)
    return message


def with_objects(body: Any, objects: Mapping[int, Any]) -> Any:
    """Return *body* with each reference replaced by ``objects[index]``.

    :raises PayloadError: if an object that stands as a key cannot be one.
    """
    try:
        return substitute(body, objects)
    except SafeserError:
        raise
    # Keys with equal hashes are compared by their types' own code, which may raise anything.
    except Exception:
        raise PayloadError(
            "the payloads among its keys cannot be keys", rule="payload.key"
        ) from None


def _check_written_out(message: dict[str, Any]) -> None:
    """Refuse fields beside a graph that are not plain values, since they steer the scheduler."""
    check_beside({name: part for name, part in message.items() if name != "expr_ser"})
    if not opened_graph.is_opened(message.get("expr_ser")):
        raise PayloadError("there is no graph to submit", rule="submission.graph", where="expr_ser")


def load_part(judged: Judged, part: Part) -> Any:
    """Return the object of one payload, or its relayed form where this side is a relay."""
    if not part.opened:
        return _pass_on(judged, part)
    link, permitted = judged.side.link, part.permitted
    if permitted.payload.family == SEALED:
        call = link.sealed_in(permitted)
        return runnable(link, judged.context, call)
    # Shards of a shuffle are opened here, because Dask's handler would unpickle them.
    start = perf_counter()
    value = link.load_one(permitted.inside or permitted)
    # Dask's fine performance metric. Its context manager takes as long as a small value.
    context_meter.digest_metric("deserialize", perf_counter() - start, "seconds")
    if part.row.failed:
        raise _unsent(permitted.payload, value)
    return value


def _unsent(payload: Received, reason: Any) -> SerializationError:
    what = f"{payload.author} could not send this value"
    return unsent(what, reason, rule="peer.unsent", where=payload.where)


def _pass_on(judged: Judged, part: Part) -> Serialized:
    link, permitted, failed = judged.side.link, part.permitted, part.row.failed
    payload = permitted.payload
    if is_graph(judged.context, payload.where):
        if payload.family == SEALED:
            graph = link.sealed_in(permitted)
            return opened_graph.opened(nodes(graph), graph.annotations)
        if failed and payload.family == "error":
            raise _unsent(payload, link.load_one(permitted))
        # Dask's scheduler opens this payload itself: a graph whose sender may submit code, which is
        # relayed byte for byte.
        if payload.family != "cloudpickle" or failed:
            raise PolicyDenied(
                "a graph can be opened only where code may be submitted", rule="submission.none"
            )
        return Serialized(translate.to_dask_pickle(payload.header), list(payload.frames))
    return Relayed(
        payload.header, list(payload.frames), author=_author(judged, payload), failed=failed
    )


def _author(judged: Judged, payload: Received) -> str:
    """Return the author that this side names when it relays *payload*.

    A peer may name any author; it is believed only for authors that its context lists. Relaying
    any other name would turn a worker's claim into the scheduler's.
    """
    peer = judged.side.link.peer
    if payload.author == peer:
        return peer
    vouched = judged.admitted.admission.grant.vouches_for(payload.author, sender=peer)
    return payload.author if vouched else ANY_AUTHOR


def _refuse_bytes(value: Any, where: str) -> None:
    """Refuse bytes where a handler would unpickle them without restrictions.

    An honest shard either arrives as bytes, which were decided as a pickle, or loads to something
    else. A value that becomes bytes only when loaded, such as a pickle of a pickle, was decided as
    another family.
    """
    if isinstance(value, bytes):
        raise PayloadError("a shard is a pickle of a pickle", rule="raw.wrapped", where=where)
