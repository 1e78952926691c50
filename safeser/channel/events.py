"""Events of decisions for the log: what each says, where they go, and batches written at once.

The one rule: nothing that the events of a batch permit is loaded before they are written, and no
event holds a byte of a payload.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from safeser.audit.record import printable
from safeser.gate.values import SEALED, AuditFailure, Context, Kind

#: Sender, recipient, operation, rule, outcome, kind and context of an event that is only counted.
Counted: TypeAlias = tuple[str, str, str, str, bool, str, str]

#: Families whose payloads have a digest in the log, and the size above which they have none: it
#: takes 10 ms to compute, and a larger one stands out by its size.
_DIGESTED = frozenset({"pickle", "cloudpickle"})
_MOST_DIGESTED = 16 << 20

#: Characters of a digest: 96 bits to name a payload.
_DIGEST = 24

#: Characters of the reason in the record of a refusal: its rule and place stand beside it.
_REASON = 100

#: Families whose permitted payloads stay records where the log has refusals and code.
_CODE = frozenset({"cloudpickle", SEALED})


class Described(Protocol):
    """What policy and audit read of a payload, whether it is sent or arrived."""

    @property
    def where(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def header(self) -> dict[str, Any]: ...
    @property
    def frames(self) -> tuple[Any, ...]: ...
    @property
    def author(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def task_author(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def message(self) -> int | None: ...
    @property
    def nbytes(self) -> int: ...


class AuditSink(Protocol):
    """Destination of audit records; :class:`safeser.audit.AuditLog` is the built-in one."""

    def record(self, event: Mapping[str, Any], /) -> None: ...

    def record_all(self, events: Sequence[Mapping[str, Any]], /) -> None: ...

    def count(
        self,
        sender: str,
        recipient: str,
        operation: str,
        rule: str,
        permitted: bool,
        *,
        times: int = 1,
        kind: str = "admin",
    ) -> None: ...


@runtime_checkable
class KeepingSink(AuditSink, Protocol):
    """A destination that keeps, in memory, what it cannot write."""

    def record_or_keep(
        self, events: Sequence[Mapping[str, Any]], answers: Sequence[AuditFailure], /
    ) -> None: ...

    def count_anyway(
        self,
        sender: str,
        recipient: str,
        operation: str,
        rule: str,
        permitted: bool,
        *,
        times: int = 1,
        kind: str = "admin",
    ) -> None: ...


class PendingRecords:
    """Records of permissions that are written together at the end of a block.

    A batch of Dask's stream has a record for each element, and writing them singly costs more than
    deciding them. Made by :meth:`Link.recorded_together`.

    :param count: counts a decision so many times in the log, and *record* writes events to it.
    :ivar events: the events to record.
    :ivar counts: how many are counted instead, by what a count says of each.
    :ivar written: whether the log has them all.
    """

    __slots__ = ("_count", "_record", "counts", "events", "written")

    def __init__(
        self,
        count: Callable[[Counted, int], None],
        record: Callable[[Sequence[dict[str, Any]]], None],
    ) -> None:
        self._count = count
        self._record = record
        self.events: list[dict[str, Any]] = []
        self.counts: dict[Counted, int] = {}
        self.written = False

    def count(self, decision: Counted, times: int = 1) -> None:
        self.counts[decision] = self.counts.get(decision, 0) + times

    def __enter__(self) -> PendingRecords:
        return self

    def __exit__(self, *_: object) -> None:
        for decision, times in self.counts.items():
            self._count(decision, times)
        if self.events:
            self._record(self.events)
        self.written = True
        # An Admission refers to this object and may live as long as its connection.
        self.events, self.counts = [], {}


class RefusalRecords(Protocol):
    """The records of one message's refusals, of which the first have one each.

    :ivar single: how many have a record of their own.
    :ivar counts: how many others there are, by what a count says of each.
    """

    single: int
    counts: dict[Counted, int]


def event(
    name: str,
    context: Context,
    payload: Described | None,
    rule: str,
    permitted: bool,
    *,
    where: str = "",
) -> dict[str, Any]:
    """Return the event of one decision; :meth:`Recording.event` adds what its connection knows."""
    said = {
        "event": name,
        "sender": context.sender,
        "recipient": context.recipient,
        "kind": context.kind.value,
        "operation": context.operation or "",
        "family": payload.family if payload is not None else "",
        "author": payload.author if payload is not None else "",
        "where": where or (payload.where if payload is not None else ""),
        "bytes": payload.nbytes if payload is not None else 0,
        "rule": rule,
        "permitted": permitted,
    }
    if payload is not None:
        if payload.task:
            said["task"] = payload.task
        if payload.task_author:
            said["task_author"] = payload.task_author
        digest = payload.digest
        if not digest and payload.frames and payload.family in _DIGESTED:
            digest = _digest(payload)
        if digest:
            said["digest"] = digest
    return said


def is_code(said: Mapping[str, Any]) -> bool:
    """Tell whether an event permits code, or an operation that controls a process."""
    return said["family"] in _CODE or said["kind"] == Kind.CONTROL.value


def counted(said: Mapping[str, Any]) -> Counted:
    """Return what a count says of an event; what a shadow policy refuses is told apart."""
    shadow = said.get("shadow_rule")
    rule = f"shadow.{shadow}" if shadow else said["rule"]
    where = (said["sender"], said["recipient"], said["operation"])
    return *where, rule, said["permitted"], said["kind"], said.get("context", "")


def short_reason(text: str) -> str:
    """Return what an error says as a field of a record: short, printable ASCII.

    Errors hold no payload bytes, but names of a peer's choice: globals, fields, keys.
    """
    return printable(text, _REASON)


def _digest(payload: Described) -> str:
    """Return the start of the SHA-256 of a pickle, its buffers left out, as it arrived."""
    stream = memoryview(payload.frames[0])
    return hashlib.sha256(stream).hexdigest()[:_DIGEST] if stream.nbytes <= _MOST_DIGESTED else ""
