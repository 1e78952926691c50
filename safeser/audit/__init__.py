"""Tamper-evident audit log: what was decided, by which policy, before it was done.

The one rule: a decision that cannot be recorded lets nothing through, and a log that was changed
afterwards does not verify.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeser.audit.key import AuditKey
from safeser.audit.log import AuditLog
from safeser.audit.record import Record
from safeser.audit.upkeep.settings import AuditFiles
from safeser.gate.event import SessionFacts

if TYPE_CHECKING:
    from safeser.audit.query import read, render
    from safeser.audit.report import Problem, Report
    from safeser.audit.verification.folder import verify

__all__ = [
    "AuditFiles",
    "AuditKey",
    "AuditLog",
    "Problem",
    "Record",
    "Report",
    "SessionFacts",
    "read",
    "render",
    "verify",
]

#: Imported when first used: a process that writes a log reads none.
_READERS = {
    "Problem": "safeser.audit.report",
    "Report": "safeser.audit.report",
    "read": "safeser.audit.query",
    "render": "safeser.audit.query",
    "verify": "safeser.audit.verification.folder",
}


def __getattr__(name: str) -> Any:
    if name not in _READERS:
        raise AttributeError(f"module 'safeser.audit' has no attribute {name!r}")
    value = getattr(import_module(_READERS[name]), name)
    globals()[name] = value
    return value
