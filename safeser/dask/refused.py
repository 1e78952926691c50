"""What is handled, or said, in place of a stream element that was refused.

The one rule: whoever waits for what the element was about is told, and nobody else; only fields
that nothing is wrong with are kept of it.
"""

from __future__ import annotations

from typing import Any

from safeser.dask import replies, substitutes, translate
from safeser.dask.shaped import sound
from safeser.errors import SafeserError
from safeser.operations import Operation

__all__ = ["element_instead", "failures_of_graph"]

#: Futures of a refused graph that say why as errors of their own.
_EXPLAINED = 100


def element_instead(
    row: Operation, element: dict[str, Any], error: SafeserError, *, local: str
) -> dict[str, Any] | None:
    """Return what Dask handles in place of *element*, or None to leave it out.

    :param local: who refused it, and so wrote what stands in its place.
    """
    kept = sound(row, element)
    if row.name == "task-finished" and not element.keys() - {"type"} <= kept.keys():
        # That its result is there, nothing can be told of; but its clients wait for the task.
        failure = replies.refused(error, local, failed=False)
        return substitutes.failed_report(kept, failure, str(error))
    return substitutes.for_element(row.server, kept, error)


def failures_of_graph(keys: Any, error: SafeserError) -> list[dict[str, Any]]:
    """Return what fails the futures of a refused graph, so that nobody waits for them.

    The first ones say why as errors of their own; the answer to a million keys must not be a
    million errors, so all others are cancelled at once.
    """
    if not isinstance(keys, tuple | set):
        return []
    plain = [key for key in keys if substitutes.is_plain(key)]
    failure = translate.failure_of(error)
    elements: list[dict[str, Any]] = [
        {"op": "task-erred", "key": key, "exception": failure, "traceback": None}
        for key in plain[:_EXPLAINED]
    ]
    if len(plain) > _EXPLAINED:
        rest = {"keys": plain[_EXPLAINED:], "reason": "refused", "msg": str(error)}
        elements.append({"op": "cancelled-keys", **rest})
    return elements
