"""Seal, verify, decide, record and load messages: the only way into a process.

The one rule: nothing bypasses this package. Dask's comm, the gateway and the command line hand in
frames and get objects; every step between is here.
"""

from safeser.channel.admitted import Admitted, Arrived, Permitted, Received, Unverified
from safeser.channel.door import Channel
from safeser.channel.events import AuditSink, PendingRecords, RefusalRecords
from safeser.channel.link import Link
from safeser.channel.records import SINGLE_REFUSALS
from safeser.channel.reload import LiveFiles
from safeser.channel.renewal import Renewal, Step
from safeser.channel.standing import Ending
from safeser.channel.unauthenticated import OpenLink, Unreadable
from safeser.channel.watcher import unwatch, watch

__all__ = [
    "SINGLE_REFUSALS",
    "Admitted",
    "Arrived",
    "AuditSink",
    "Channel",
    "Ending",
    "Link",
    "LiveFiles",
    "OpenLink",
    "PendingRecords",
    "Permitted",
    "Received",
    "RefusalRecords",
    "Renewal",
    "Step",
    "Unreadable",
    "Unverified",
    "unwatch",
    "watch",
]
