"""Decisions and sessions of this process as metrics of Prometheus, at Dask's ``/metrics``.

The one rule: each label is a name that the code or the policy declares, or ``other``, so that peers
cannot fill the memory of the server that scrapes it.

Dask's handlers of ``/metrics`` print the default registry of ``prometheus_client``, which any
library may register with; nothing of Dask is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from safeser.audit import AuditLog
from safeser.audit.outputs.activity import Activity
from safeser.channel import Channel
from safeser.dask.monitoring.state import activity_of
from safeser.dask.settings import open_channels

__all__ = ["Decisions", "register"]

Sample = tuple[list[str], float]


class Decisions(Collector):  # type: ignore[misc]  # its types are not read here
    """Collects the metrics of *channels*, which are asked for at each scrape."""

    def __init__(self, channels: Callable[[], Sequence[Channel]] = open_channels) -> None:
        self._channels = channels

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples, so that registering asks no channel."""
        return [family(name, text, labels=labels) for family, name, text, labels, _ in _FAMILIES]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with a sample of each principal that this process is."""
        channels = self._channels()
        for family, name, text, labels, samples in _FAMILIES:
            metric = family(name, text, labels=labels)
            for channel in channels:
                own = channel.identity.principal
                for values, number in samples(channel):
                    metric.add_metric([own, *values], number)
            yield metric


def _of_log(read: Callable[[Activity], list[Sample]]) -> Callable[[Channel], list[Sample]]:
    def samples(channel: Channel) -> list[Sample]:
        activity = activity_of(channel)
        return [] if activity is None else read(activity)

    return samples


def _decisions(activity: Activity) -> list[Sample]:
    return [
        (["permitted" if permitted else "refused", *names], number)
        for (permitted, *names), number in sorted(activity.decisions.copy().items())
    ]


def _handshakes(activity: Activity) -> list[Sample]:
    return [([rule], number) for rule, number in sorted(activity.handshakes.copy().items())]


def _failures(activity: Activity) -> list[Sample]:
    return [([], activity.failures)]


def _lost(channel: Channel) -> list[Sample]:
    audit = channel.audit
    outputs = audit.outputs if isinstance(audit, AuditLog) else None
    feeds = [] if outputs is None else outputs.feeds
    return [([feed.name], feed.lost) for feed in feeds]


def _sessions(channel: Channel) -> list[Sample]:
    return [([], len(channel.live_links()))]


def _policy(channel: Channel) -> list[Sample]:
    policy = channel.policy
    return [([policy.name, str(policy.revision), policy.sha256], 1)]


def _revision(channel: Channel) -> list[Sample]:
    return [([], channel.policy.revision)]


#: The class of each metric, its name, its text, its labels and what reads its samples.
_FAMILIES = (
    (
        CounterMetricFamily,
        "safeser_decisions",
        "Decisions on messages and payloads; messages without payloads are of no family.",
        ["principal", "outcome", "rule", "kind", "family"],
        _of_log(_decisions),
    ),
    (
        CounterMetricFamily,
        "safeser_handshakes_refused",
        "Connections whose peer got no session.",
        ["principal", "rule"],
        _of_log(_handshakes),
    ),
    (
        GaugeMetricFamily,
        "safeser_sessions",
        "Sessions that are open.",
        ["principal"],
        _sessions,
    ),
    (
        GaugeMetricFamily,
        "safeser_policy_info",
        "The policy in force; the value is 1.",
        ["principal", "policy", "revision", "sha256"],
        _policy,
    ),
    (
        GaugeMetricFamily,
        "safeser_policy_revision",
        "Revision of the policy in force.",
        ["principal"],
        _revision,
    ),
    (
        CounterMetricFamily,
        "safeser_audit_failures",
        "Calls of the audit log that could not write.",
        ["principal"],
        _of_log(_failures),
    ),
    (
        CounterMetricFamily,
        "safeser_audit_output_lost",
        "Records that are in the log's file and that an output beside it did not get.",
        ["principal", "output"],
        _lost,
    ),
)

_lock = threading.Lock()
_registered: list[Decisions] = []


def register() -> None:
    """Register the metrics of this process with the default registry, once."""
    with _lock:
        if not _registered:
            collector = Decisions()
            REGISTRY.register(collector)
            _registered.append(collector)
