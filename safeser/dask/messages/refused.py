"""Log and record the refusals of one message, and make replacements for refused elements.

The one rule: only the process that waits for the result of a refused element is told, and a
replacement keeps only its valid fields. The first refusals of a message have a line, a record and
an error each. A message of two megabytes can hold three hundred thousand: the others are counted,
and share one error for each rule.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from safeser.channel import SINGLE_REFUSALS, Link
from safeser.dask.contents import failures, substitutes
from safeser.dask.contents.failures import Relayed
from safeser.dask.messages.author_statements import StatedKeys
from safeser.dask.messages.translate import STATING
from safeser.dask.wire.shapes import sound
from safeser.dask.wire.task_key import task_of
from safeser.errors import PayloadError, SafeserError
from safeser.families.errors import wire as errors
from safeser.families.errors.failures import ExceptionData
from safeser.gate.values import Context, Kind
from safeser.operations import Operation
from safeser.policy.rules import WEAKEST

logger = logging.getLogger("safeser.dask")


class Refusals:
    """The refusals of one message.

    :param message: its number in the session.
    :ivar count: how many there are.
    :ivar latest: the last of them.
    :ivar single: how many have a record of their own, and *counts* how many have none.
    """

    __slots__ = (
        *("_failures", "_graphs", "_link", "_message", "_shared"),
        *("count", "counts", "latest", "single"),
    )

    def __init__(self, link: Link, message: int | None = None) -> None:
        self._link = link
        self._message = message
        self._failures: dict[SafeserError, tuple[Any, str]] = {}
        self._shared: dict[tuple[str, bool], SafeserError] = {}
        self._graphs: GraphFailures | None = None
        self.count = self.single = 0
        self.counts: dict[Any, int] = {}
        self.latest: SafeserError | None = None

    def note(self, error: SafeserError, about: Any = None, *, heard: bool = False) -> None:
        """Log and record *error*, with the operation that the request or element *about* names.

        :param heard: whether it reaches a user, as an exception here or at the peer, who need not
            read it in a log as well. Dask's commands, which have no user, log all.
        """
        about = about or {"op": error.operation}
        error.without_frames()
        self.count, self.latest = self.count + 1, error
        if self.count <= SINGLE_REFUSALS:
            self._link.attribute(error)
            level = logging.INFO if heard else logging.WARNING
            logger.log(level, "Refused from %s: %s", self._link.peer, error)
            error.logged = True
        if self.count == SINGLE_REFUSALS:
            logger.warning("Further refusals of this message from %s are counted", self._link.peer)
        if not error.recorded:
            self._link.note_refusal(
                self._context(about),
                error,
                message=self._message,
                task=task_of(about).get("task", "") if self.count <= SINGLE_REFUSALS else "",
            )

    def told(self, error: SafeserError) -> SafeserError:
        """Return what to tell of *error*, which is noted next: itself, or what stands for many."""
        if self.count < SINGLE_REFUSALS:
            return error
        alike = error.rule, error.where == "type"
        told = self._shared.get(alike)
        if told is None:
            told = self._shared[alike] = PayloadError(
                f"more than {SINGLE_REFUSALS} parts of one message were refused, and this is one"
                " of the others",
                rule=error.rule,
                where="type" if alike[1] else "",
                fix="The audit log of the process that refused them counts it by this rule.",
            )
            self._link.attribute(told)
        return told

    def failure(self, error: SafeserError) -> tuple[Any, str]:
        """Return *error*, which is told of one or of many, as a payload and as text."""
        failure = self._failures.get(error)
        if failure is None:
            failure = refused(error, self._link.local, failed=False), str(error)
            if self.count >= SINGLE_REFUSALS:
                self._failures[error] = failure
        return failure

    def note_graph(self, element: dict[str, Any], error: SafeserError) -> None:
        """Note that a client's graph is refused, whose futures fail."""
        if self._graphs is None:
            self._graphs = GraphFailures()
        self._graphs.add(element.get("keys"), self.told(error))
        self.note(error, element, heard=True)

    def failed_graphs(self) -> list[dict[str, Any]]:
        """Return the stream elements that fail the futures of refused graphs."""
        return [] if self._graphs is None else self._graphs.elements()

    def _context(self, message: Any) -> Context:
        """Return the context of the refused *message*; unknown operations are left out of it."""
        if isinstance(message, tuple) and len(message) == 1:
            [message] = message
        name = message.get("op") if isinstance(message, dict) else None
        kind = WEAKEST.get(name) if isinstance(name, str) else None
        return self._link.inbound(
            Kind.ADMIN if kind is None else kind, None if kind is None else name
        )


def element_instead(
    row: Operation, element: dict[str, Any], error: SafeserError, refusals: Refusals
) -> dict[str, Any] | None:
    """Return what Dask handles in place of *element*, or None to leave it out."""
    finished = row.name == "task-finished"
    if not finished or error.where == "type":
        kept = sound(row, element)
        if row.name in STATING:
            StatedKeys.taken_from(kept)
        if not finished or element.keys() - {"type"} <= kept.keys():
            return substitutes.for_element(row.server, kept, error)
    # The report is unusable, but clients wait for the task, so it is reported as failed.
    named = {name: element[name] for name in substitutes.REPORTED if name in element}
    return substitutes.failed_report(sound(row, named), *refusals.failure(error))


class GraphFailures:
    """Elements that fail the futures of one message's refused graphs, which would wait for ever.

    The first futures get an error of their own. The answer to a million keys, of one graph or of
    many, must not be a million errors, so the others are cancelled by one element.
    """

    def __init__(self) -> None:
        self._elements: list[dict[str, Any]] = []
        self._rest: list[Any] = []
        self._why = ""

    def add(self, keys: Any, error: SafeserError) -> None:
        """Fail the futures of *keys*, which a refused graph was to compute, for *error*."""
        if not isinstance(keys, tuple | set):
            return
        plain = [key for key in keys if substitutes.is_plain(key)]
        left = SINGLE_REFUSALS - len(self._elements)
        if plain and left > 0:
            failure = failures.failure_of(error)
            self._elements += [
                {"op": "task-erred", "key": key, "exception": failure, "traceback": None}
                for key in plain[:left]
            ]
        if len(plain) > left:
            self._why = self._why or str(error)
            self._rest += plain[left:]

    def elements(self) -> list[dict[str, Any]]:
        """Return and clear the stream elements for the client."""
        reports, rest = self._elements, self._rest
        if rest:
            reports.append(
                {"op": "cancelled-keys", "keys": rest, "reason": "refused", "msg": self._why}
            )
        self._elements, self._rest, self._why = [], [], ""
        return reports


# --- replies -------------------------------------------------------------------------------------


def error_reply(error: SafeserError) -> dict[str, Any]:
    """Return the reply that makes Dask raise *error* in the process that sent the request."""
    return {
        "status": "uncaught-error",
        "exception": error,
        "traceback": None,
        "exception_text": str(error),
        "traceback_text": "",
    }


def failed_values(asked: Mapping[str, Any], value: Relayed) -> dict[str, Any]:
    """Return a reply in which *value*, a failure, stands for each value that *asked* requests.

    It tells a waiting client the reason. Without it, Dask's client requests values that its
    scheduler could not gather again, for ever.
    """
    keys = asked.get("keys")
    keys = keys if isinstance(keys, list | tuple | set | frozenset) else ()
    return {"status": "OK", "data": dict.fromkeys(keys, value)}


def failed_call(error: object) -> dict[str, Any]:
    """Return an actor's answer that its method raised *error*.

    If the request fails with anything but OSError, Dask's actor only logs it, and its caller waits
    for ever (distributed 2026.8.0, ``actor.py``, ``wait_then_set_result``).
    """
    return {"status": "error", "exception": error}


def refused(error: SafeserError, local: str, *, failed: bool = True) -> Relayed:
    """Return *error* of this process, whose principal is *local*, as a relayed payload.

    :param failed: whether it replaces a value; otherwise it is reported as an error itself.
    """
    header, frames = failures.serialize_failure(failures.failure_of(error))
    return Relayed(header, frames, author=local, failed=failed)


def why_no_values(exception: Any, *, local: str) -> Relayed | None:
    """Return the failure that a relay forwards for values that failed with *exception*.

    None where a retry may help, as after an error of the network.
    """
    if isinstance(exception, Relayed) and exception.sealed_header.get("serializer") == "error":
        return exception.as_failed() if _own_error(exception) is not None else None
    if not isinstance(exception, SafeserError):
        exception = PayloadError("a peer failed without saying why", rule="raw.exception")
    return refused(exception, local)


def unless_refused(reply: dict[str, Any]) -> dict[str, Any]:
    """Return an unopened *reply* that reports a failure, or raise the error of safeser that it is.

    Otherwise Dask raises an ``Exception`` of its text where a relay asked. The process that refused
    has logged it.
    """
    exception = reply.get("exception")
    if not isinstance(exception, Relayed) or exception.sealed_header.get("serializer") != "error":
        return reply
    said = _own_error(exception)
    error = None if said is None else errors.from_data(said)
    if not isinstance(error, SafeserError):
        return reply
    # The next reader adds that another process says so.
    error.__notes__ = []
    error.logged = True
    raise error


def _own_error(value: Relayed) -> ExceptionData | None:
    """Return what a relayed failure says if it is an error of safeser, none of the network or Dask.

    This trusts the failure's own text: a peer that lies about it gains nothing.
    """
    said = errors.decode(value.frames[0])
    return said if said.type.startswith("safeser.errors:") else None
