"""``/metrics`` of a scheduler and a worker, over HTTP, and what a hostile log leaves there."""

from __future__ import annotations

import re
import urllib.request
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from safeser.audit import AuditKey, AuditLog, read
from safeser.audit.outputs.feed import Outputs
from safeser.dask import monitoring
from safeser.dask.monitoring import Decisions
from tests.processes import Cluster, Folder, until

#: Some tasks, of which one makes its own load refuse an attack.
CLIENT = """
import json, os, pickle, sys
import safeser

class Evil:
    def __reduce__(self):
        return print, ("ran",)

def own_load(data):
    try:
        safeser.pickles.loads(data)
    except safeser.SafeserError as error:
        return error.rule
    raise AssertionError("it was loaded")

with safeser.Client(sys.argv[1]) as client:
    client.wait_for_workers(int(sys.argv[2]))
    assert client.gather(client.map(lambda x: x + 1, range(5))) == [1, 2, 3, 4, 5]
    key = os.environ.get("KEY_PREFIX", "") + "load"
    print(json.dumps(client.submit(own_load, pickle.dumps(Evil()), key=key).result()))
"""


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
    log = AuditLog.open(tmp_path / "audit", key=AuditKey.new(), principal="scheduler")
    yield doors.channel("scheduler", "demo", audit=log)
    log.close()


def test_decisions_sessions_and_policy_of_a_channel(doors, recorded):
    one, two = doors.shake(doors.channel("alice", "demo"), recorded)
    found = samples(scraped(recorded))
    assert total(found, "safeser_sessions", principal="scheduler") == 1
    assert total(found, "safeser_decisions_total", rule="suite.encrypt") == 1
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
    monkeypatch.setattr(monitoring, "REGISTRY", registry)
    monkeypatch.setattr(monitoring, "_registered", [])
    for _ in range(3):
        monitoring.register()
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
def test_a_scheduler_and_a_worker_have_metrics(visit, tmp_path):
    alice = visit("demo")
    cluster, own = alice.cluster, {"principal": "scheduler"}
    before = sum(refusals(scrape(cluster, f"worker-{n}")) for n in range(2))
    strangers = total(scrape(cluster, "scheduler"), "safeser_handshakes_refused_total")
    assert alice.answer("alice", CLIENT, "2") == "pickle.global"
    # A peer with a key of alice's name that the cluster does not list.
    stranger = Folder(tmp_path)
    stranger.fresh = False
    assert stranger.run("alice", CLIENT, cluster.address, "2").code != 0

    found = scrape(cluster, "scheduler")
    decided = "safeser_decisions_total"
    assert total(found, decided, **own, outcome="permitted", kind="task") >= 2
    assert total(found, decided, **own, outcome="permitted", family="dask") >= 0
    assert total(found, "safeser_sessions", **own) >= 4
    assert total(found, "safeser_policy_info", **own, policy="demo") == 1
    assert total(found, "safeser_audit_failures_total", **own) == 0
    assert total(found, "safeser_handshakes_refused_total") > strangers

    both = [scrape(cluster, f"worker-{n}") for n in range(2)]
    for each in both:
        assert total(each, decided, principal="worker", outcome="permitted") > 0
        assert total(each, "safeser_policy_info", principal="worker") == 1
    assert sum(map(refusals, both)) == before + 1
    # What the task was refused while it ran is a record as well.
    records = [
        each
        for each in read(cluster.audit)
        if (each.text("task"), each.text("rule")) == (alice.prefix + "load", "pickle.global")
    ]
    assert [each.fields["global"] for each in records] == ["builtins:print"]
    assert {
        "event": "refuse",
        "operation": "safeser.pickles.loads",
        "permitted": False,
        "rule": "pickle.global",
        "sender": "worker",
        "recipient": "worker",
        "task_author": "alice",
    }.items() <= records[0].fields.items()
    assert records[0].fields["reason"].startswith("builtins:print")


def refusals(found: Samples) -> float:
    return total(found, "safeser_decisions_total", rule="pickle.global", outcome="refused")
