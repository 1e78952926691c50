"""``/metrics`` of a scheduler and a worker, over HTTP, and what a hostile log leaves there."""

from __future__ import annotations

import re
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from safeser.audit.outputs.feed import Outputs
from safeser.dask.monitoring import metrics
from safeser.dask.monitoring.metrics import Decisions
from tests.conftest import Cluster, until
from tests.dask.monitoring.programs import CLIENT

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def samples(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            if each.name.startswith("safeser_"):
                labels = tuple(sorted(each.labels.items()))
                found.setdefault(each.name, {})[labels] = each.value
    return found


def total(found: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples of *name* that have at least *labels*."""
    wanted = set(labels.items())
    return sum(value for have, value in found.get(name, {}).items() if wanted <= set(have))


# --- without a cluster ----------------------------------------------------------------------------


def scraped(*channels) -> str:
    registry = CollectorRegistry()
    registry.register(Decisions(lambda: channels))
    return generate_latest(registry).decode()


@pytest.fixture
def recorded(doors, tmp_path):
    from safeser.audit import AuditKey, AuditLog

    log = AuditLog.open(tmp_path / "audit", key=AuditKey.new(), principal="scheduler")
    yield doors.channel("scheduler", "demo", audit=log)
    log.close()


def test_decisions_sessions_and_policy_of_a_channel(doors, recorded):
    one, two = doors.shake(doors.channel("alice", "demo"), recorded)
    found = samples(scraped(recorded))
    assert total(found, "safeser_sessions", principal="scheduler", suite="authenticate") == 1
    assert total(found, "safeser_decisions_total", rule="suite.authenticate") == 1
    policy = recorded.policy
    info = {"policy": "demo", "revision": str(policy.revision), "sha256": policy.sha256}
    assert total(found, "safeser_policy_info", principal="scheduler", **info) == 1
    assert total(found, "safeser_policy_revision") == policy.revision
    assert total(found, "safeser_audit_failures_total") == 0
    one.session.end("over")
    two.session.end("over")
    assert total(samples(scraped(recorded)), "safeser_sessions") == 0


def test_labels_that_peers_choose_are_other(recorded):
    hostile = 'x"} 1\nsafeser_decisions_total{outcome="permitted'
    for n in range(200):
        recorded.audit.record(
            {"event": "refuse", "sender": hostile, "permitted": False}
            | dict.fromkeys(("rule", "kind", "family", "operation", "where"), f"{hostile}{n}")
        )
    text = scraped(recorded)
    assert len(text) < 10_000
    found = samples(text)
    labels = {"outcome": "refused", "rule": "other", "kind": "other", "family": "other"}
    assert total(found, "safeser_decisions_total", **labels) == 200
    assert total(found, "safeser_decisions_total") == 200


def test_what_outputs_lost(recorded):
    sink = SimpleNamespace(name="syslog", send=print, close=bool)
    recorded.audit.outputs = Outputs([sink])
    recorded.audit.outputs.feeds[0].lost = 7
    found = samples(scraped(recorded))
    assert total(found, "safeser_audit_output_lost_total", output="syslog") == 7


def test_a_channel_without_a_log_has_sessions_and_no_decisions(doors):
    found = samples(scraped(doors.channel("scheduler", "demo")))
    assert "safeser_decisions_total" not in found
    assert total(found, "safeser_policy_info") == 1


def test_metrics_are_registered_once(monkeypatch):
    registry = CollectorRegistry()
    monkeypatch.setattr(metrics, "REGISTRY", registry)
    monkeypatch.setattr(metrics, "_registered", [])
    for _ in range(3):
        metrics.register()
    assert generate_latest(registry)


# --- over HTTP ------------------------------------------------------------------------------------


def dashboard(cluster: Cluster, name: str) -> str:
    """Return where the dashboard of the process whose log is called *name* listens by now."""

    def said() -> str | None:
        found = re.findall(r"dashboard at: *(?:http://)?(127\.0\.0\.1:\d+)", cluster.log(name))
        return found[-1] if found else None

    return f"http://{until('the dashboard', said)}"


def scrape(cluster: Cluster, name: str) -> Samples:
    with urllib.request.urlopen(f"{dashboard(cluster, name)}/metrics", timeout=30) as answer:
        return samples(answer.read().decode())


@pytest.mark.cluster
def test_a_scheduler_and_a_worker_have_metrics(cluster):
    before = sum(refusals(scrape(cluster, f"worker-{n}")) for n in range(2))
    assert cluster.run("alice", CLIENT, cluster.address, "2").answer == "pickle.global"
    refused = cluster.run("bob", CLIENT, cluster.address, "2")
    assert refused.code != 0

    found = scrape(cluster, "scheduler")
    own = {"principal": "scheduler"}
    decided = "safeser_decisions_total"
    assert total(found, decided, **own, outcome="permitted", kind="task") >= 2
    assert total(found, decided, **own, outcome="permitted", family="dask") >= 0
    assert total(found, "safeser_sessions", **own) >= 4
    assert total(found, "safeser_policy_info", **own, policy="demo") == 1
    assert total(found, "safeser_audit_failures_total", **own) == 0

    both = [scrape(cluster, f"worker-{n}") for n in range(2)]
    for each in both:
        assert total(each, decided, principal="worker", outcome="permitted") > 0
        assert total(each, "safeser_policy_info", principal="worker") == 1
    assert sum(map(refusals, both)) == before + 1


def refusals(found: Samples) -> float:
    return total(found, "safeser_decisions_total", rule="pickle.global", outcome="refused")


@pytest.mark.cluster
def test_a_peer_without_a_listed_key_is_a_refused_handshake(cluster, tmp_path):
    from tests.conftest import Folder

    stranger = Folder(tmp_path)  # keys of the same names, which the cluster does not list
    before = total(scrape(cluster, "scheduler"), "safeser_handshakes_refused_total")
    assert stranger.run("alice", CLIENT, cluster.address, "2").code != 0
    found = scrape(cluster, "scheduler")
    assert total(found, "safeser_handshakes_refused_total") > before


@pytest.mark.cluster
def test_what_a_task_is_refused_while_it_runs_is_a_record(cluster):
    from safeser.audit import read

    assert cluster.run("alice", CLIENT, cluster.address, "2").answer == "pickle.global"
    found = [
        record.fields
        for record in read(cluster.audit)
        if record.text("operation") == "safeser.pickles.loads"
    ]
    assert found
    assert {
        "event": "refuse",
        "permitted": False,
        "rule": "pickle.global",
        "sender": "worker",
        "recipient": "worker",
        "task": "own-load",
        "task_author": "alice",
        "global": "builtins:print",
    }.items() <= found[0].items()
    assert found[0]["reason"].startswith("builtins:print")
