"""Decisions and sessions of this process as metrics of Prometheus, at Dask's ``/metrics``.

The one rule: each label is a name that the code or the policy declares, or ``other``, so that peers
cannot fill the memory of the server that scrapes it.

Dask's handlers of ``/metrics`` print the default registry of ``prometheus_client``, which any
library may register with; nothing of Dask is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from safeser.audit import AuditLog
from safeser.channel import Channel
from safeser.dask.settings import open_channels

__all__ = ["Decisions", "register"]

Sample = tuple[list[str], float]


class Decisions(Collector):  # type: ignore[misc]  # its types are not read here
    """Collects the metrics of *channels*, which are asked for at each scrape."""

    def __init__(self, channels: Callable[[], Sequence[Channel]] = open_channels) -> None:
        self._channels = channels

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without samples, so that registering asks no channel."""
        return [_metric(*each) for each in _FAMILIES]

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with a sample of each principal that this process is."""
        counted = [(each.identity.principal, _samples(each)) for each in self._channels()]
        for family in _FAMILIES:
            metric = _metric(*family)
            for own, samples in counted:
                for values, number in samples.get(metric.name, ()):
                    metric.add_metric([own, *values], number)
            yield metric


def _metric(family: type[Metric], name: str, text: str, labels: list[str]) -> Any:
    return family(name, text, labels=["principal", *labels])


def _samples(channel: Channel) -> dict[str, list[Sample]]:
    """Return what is counted of one principal by metric: its other labels, and their values."""
    policy = channel.policy
    log = channel.audit if isinstance(channel.audit, AuditLog) else None
    found: dict[str, list[Sample]] = {
        "safeser_sessions": [([], len(channel.live_links()))],
        "safeser_policy_info": [([policy.name, str(policy.revision), policy.sha256], 1)],
        "safeser_policy_revision": [([], policy.revision)],
    }
    if log is not None:
        activity = log.activity
        found["safeser_decisions"] = [
            (["permitted" if permitted else "refused", *names], number)
            for (permitted, *names), number in sorted(activity.decisions.copy().items())
        ]
        refused = sorted(activity.handshakes.copy().items())
        found["safeser_handshakes_refused"] = [([rule], number) for rule, number in refused]
        found["safeser_audit_failures"] = [([], activity.failures)]
    feeds = [] if log is None or log.outputs is None else log.outputs.feeds
    found["safeser_audit_output_lost"] = [([feed.name], feed.lost) for feed in feeds]
    return found


#: The class of each metric, its name, its text and its labels besides the principal.
_FAMILIES: tuple[tuple[type[Metric], str, str, list[str]], ...] = (
    (
        CounterMetricFamily,
        "safeser_decisions",
        "Decisions on messages and payloads; messages without payloads are of no family.",
        ["outcome", "rule", "kind", "family"],
    ),
    (
        CounterMetricFamily,
        "safeser_handshakes_refused",
        "Connections whose peer got no session.",
        ["rule"],
    ),
    (GaugeMetricFamily, "safeser_sessions", "Sessions that are open.", []),
    (
        GaugeMetricFamily,
        "safeser_policy_info",
        "The policy in force; the value is 1.",
        ["policy", "revision", "sha256"],
    ),
    (GaugeMetricFamily, "safeser_policy_revision", "Revision of the policy in force.", []),
    (
        CounterMetricFamily,
        "safeser_audit_failures",
        "Calls of the audit log that could not write.",
        [],
    ),
    (
        CounterMetricFamily,
        "safeser_audit_output_lost",
        "Records that are in the log's file and that an output beside it did not get.",
        ["output"],
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
