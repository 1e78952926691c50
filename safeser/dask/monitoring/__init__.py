"""What a server of Dask shows of safeser's decisions: metrics, and a page of the dashboard.

The one rule: it only shows. No request changes anything, and text of peers is shown as text.
"""

from __future__ import annotations

import sys
from typing import Any

from safeser.audit import AuditLog
from safeser.audit.outputs.activity import Activity
from safeser.channel import Channel

__all__ = ["activity_of", "show"]


def activity_of(channel: Channel) -> Activity | None:
    """Return the counts of *channel*'s log; None where it keeps none."""
    return channel.audit.activity if isinstance(channel.audit, AuditLog) else None


def show(server: Any) -> None:
    """Add what is known of *server* to its web server: metrics, and a page where there are pages.

    The packages that these need are used where Dask has imported them for its own pages.
    """
    if "prometheus_client" in sys.modules:
        from safeser.dask.monitoring.metrics import register  # noqa: PLC0415 - needs the package

        register()
    if "distributed.dashboard.scheduler" in sys.modules:
        from safeser.dask.monitoring.page import add  # noqa: PLC0415 - needs bokeh

        add(server)
