"""Tamper-evident audit log: what was decided, by which policy, before it was done.

The one rule: a decision that cannot be recorded lets nothing through, and a log that was changed
afterwards does not verify.
"""

from __future__ import annotations

from safeser.audit.key import AuditKey
from safeser.audit.log import AuditLog
from safeser.audit.query import read, render
from safeser.audit.record import Record, SessionFacts
from safeser.audit.report import Problem, Report
from safeser.audit.verify import verify

__all__ = [
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
