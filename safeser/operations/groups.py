"""Groups within groups: what a policy grants to principals that change nothing, that play one
role of a cluster, or whose code no scheduler opens.

The one rule: every name here is in the group that it is a part of, and none of ``look`` lets its
sender keep, move, stop or start what is another's. Names are listed one by one: an operation that
a release adds to a group is in no part of it until it has been reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["PARTS", "WHOLE"]

#: Of which group each part is one.
WHOLE: Mapping[str, str] = MappingProxyType(
    {
        "look": "basic",
        "worker-reports": "cluster",
        "nanny-reports": "cluster",
        "worker-run": "run",
        "worker-plugins": "plugins",
    }
)

# Connecting, and what a client says of itself alone.
_CONNECTING = (
    "close register-client heartbeat-client close-client close-stream client-desires-keys"
    " client-releases-keys subscribe-topic unsubscribe-topic"
)

# What the cluster is and holds.
_ASKING = (
    "identity versions ping keys who_has has_what nbytes ncores ncores_running processing"
    " report-key events get_metadata publish_list queue_qsize event_is_set semaphore_value"
    " amm_running"
)

# Values, which stay where they are, and the word by which a variable's reader lets go of it.
_FETCHING = "gather get_data publish_get variable_get variable-future-received-confirm"

# What a scheduler tells its clients.
_HEARING = (
    "stream-start stream-closed key-in-memory task-erred task-retried cancelled-keys lost-data"
    " error event adjust-heartbeat-interval"
)

# What a worker tells its scheduler: that it is there, how its tasks go, and its part of shuffles.
_REPORTING = (
    "register-worker heartbeat_worker keep-alive worker-status-change add_keys add-keys"
    " release-worker-data request-refresh-who-has task-finished task-erred long-running reschedule"
    " steal-response log-event shuffle_get shuffle_get_or_create shuffle_barrier"
    " shuffle_restrict_task"
)

# Plugins that workers and nannies open, and no scheduler.
_PLUGINS = (
    "plugin-add plugin-remove plugin_add plugin_remove register_worker_plugin"
    " register_nanny_plugin unregister_worker_plugin unregister_nanny_plugin"
)

#: Names of operations, by part. ``broadcast`` and ``proxy`` are left out: workers carry out what
#: they relay as a request of the scheduler, from which ``gather`` means to fetch and keep copies.
PARTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "look": frozenset(f"{_CONNECTING} {_ASKING} {_FETCHING} {_HEARING}".split()),
        "worker-reports": frozenset(_REPORTING.split()),
        "nanny-reports": frozenset({"register_nanny", "unregister"}),
        "worker-run": frozenset({"run", "run_coroutine"}),
        "worker-plugins": frozenset(_PLUGINS.split()),
    }
)
