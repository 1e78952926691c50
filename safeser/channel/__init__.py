"""The one door: what a process seals, verifies, decides, records and loads all goes through here.

The one rule: there is no other way in. Dask's comm, the gateway and the command line bring frames
and get objects; everything between is in this room.
"""

from safeser.channel.admitted import Admitted, Received
from safeser.channel.door import Channel
from safeser.channel.link import Link
from safeser.channel.records import AuditSink

__all__ = ["Admitted", "AuditSink", "Channel", "Link", "Received"]
