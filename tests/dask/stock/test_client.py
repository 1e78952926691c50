"""What a guarded client decides by, and what is refused before anything connects."""

from __future__ import annotations

import ssl
from types import SimpleNamespace

import dask
import distributed
import pytest

from safeser.audit import AuditKey, AuditLog
from safeser.dask.client import Client
from safeser.dask.security import Security
from safeser.dask.stock import client as guarded
from safeser.dask.stock.client import guarded_security
from safeser.dask.stock.comm import Guard, GuardedBackend
from safeser.errors import ConfigError
from safeser.identities import make_identities
from tests.dask.test_client import Unconnected

TEAM = """
safeser: 1
name: team
revision: 1
principals:
  alice: {}
contexts:
  - name: stock
    sender: unknown
    recipient: alice
    deserializers: [msgpack]
    operations: {grant: [basic]}
...
"""


@pytest.fixture(autouse=True)
def no_logs(monkeypatch):
    monkeypatch.setattr(guarded, "_logs", {})
    with dask.config.set({"safeser": {}}):
        yield


@pytest.fixture
def identity(tmp_path):
    make_identities(tmp_path / "keys", ("alice", "bob"))
    (tmp_path / "team.yaml").write_text(TEAM)
    return lambda name: {"identity": str(tmp_path / "keys" / f"{name}.key")}


def rule(call, *arguments):
    with pytest.raises(ConfigError) as caught:
        call(*arguments)
    return caught.value.rule


def test_nothing_has_to_be_set():
    guard = guarded_security("tcp", None, None).guard
    assert isinstance(guard, Guard)
    assert (guard.principal, guard.policy.name) == ("client", "stock-cluster")
    assert guard.deserializers == ("dask", "msgpack")
    for permitted in (True, False):
        guard.audit.record({"event": "refuse", "rule": "one", "permitted": permitted})
        guard.audit.count("a", "b", "c", "two", permitted)
    assert guard.audit.refusals == {"one": 1, "two": 1}


def test_a_policy_that_is_set_is_the_one(identity, tmp_path):
    team = {"policy": str(tmp_path / "team.yaml")}
    guard = guarded_security("tcp", Security(**identity("alice"), **team), None).guard
    assert (guard.principal, guard.policy.name) == ("alice", "team")
    assert rule(guarded_security, "tcp", Security(**identity("bob"), **team), None) == (
        "config.guarded"
    )
    demo = Security(**identity("alice"), policy="demo")
    assert rule(guarded_security, "tcp", demo, None) == "config.guarded"


def test_whom_the_ready_policy_does_not_list_is_the_client(identity):
    assert guarded_security("tcp", Security(**identity("bob")), None).guard.principal == "client"


def test_a_log_that_is_set_is_written(identity, tmp_path):
    audit = str(tmp_path / "audit")
    assert rule(guarded_security, "tcp", Security(audit=audit), None) == "config.audit"
    AuditKey.new().save(tmp_path / "audit.key")
    keyed = Security(audit=audit, audit_key=str(tmp_path / "audit.key"))
    first = guarded_security("tcp", keyed, None).guard.audit
    assert isinstance(first, AuditLog)
    assert guarded_security("tcp", keyed, None).guard.audit is first
    first.close()
    beside = guarded_security("tcp", Security(audit=audit + "2", **identity("alice")), None)
    beside.guard.audit.close()


def test_families_only_narrow():
    assert guarded_security("tcp", None, ["dask"]).guard.deserializers == ("dask",)
    own = Security(deserializers=["msgpack", "pickle"])
    assert guarded_security("tcp", own, None).guard.deserializers == ("msgpack",)
    assert rule(guarded_security, "tcp", None, ["dask", "pickle"]) == "config.guarded"


def test_tls_wants_certificates_that_are_checked(monkeypatch):
    assert rule(guarded_security, "tls", None, None) == "config.tls"
    lenient = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    lenient.check_hostname = False
    lenient.verify_mode = ssl.CERT_NONE
    security = distributed.Security()
    monkeypatch.setattr(
        type(security), "get_connection_args", lambda self, role: {"ssl_context": lenient}
    )
    assert rule(guarded_security, "tls", security, None) == "config.tls"


def test_tls_files_are_for_guarded_clients_alone(tmp_path):
    own = Security(tls_ca_file=str(tmp_path / "ca"))
    assert rule(own.get_connection_args, "client") == "config.tls"
    assert "guarded tcp://" in repr(guarded_security("tcp", Security(), None))


@pytest.fixture
def unconnected(monkeypatch):
    schemes = []
    monkeypatch.setattr(guarded, "guard_schemes", schemes.append)
    monkeypatch.setattr(distributed.Client, "__init__", Unconnected.__init__)
    monkeypatch.setattr(distributed.Client, "_graph_to_futures", Unconnected._graph_to_futures)
    return schemes


def test_one_line_is_enough(unconnected):
    client = Client("tcp://127.0.0.1:8786", deserializers=["dask", "msgpack"])
    (address,), options = client.given
    assert address == "tcp://127.0.0.1:8786"
    assert options["deserializers"] == ["dask", "msgpack"]
    assert options["security"].get_connection_args("client")["guarded"] is client.safeser
    (schemes,) = unconnected
    assert {name: type(each) for name, each in schemes.items()} == {
        "tcp": GuardedBackend,
        "tls": GuardedBackend,
    }
    assert client._graph_to_futures(None, []) == {}


def test_arguments_that_mean_nothing_there(unconnected):
    assert rule(lambda: Client("tcp://127.0.0.1")) == "config.address"
    assert rule(lambda: Client("tcp://127.0.0.1:1", policy="demo")) == "config.policy"
    assert rule(lambda: Client("ws://127.0.0.1:1")) == "config.scheme"
    assert rule(lambda: Client("tcp://127.0.0.1:1", security="x")) == "config"
    assert unconnected == []


def test_an_unauthenticated_cluster_has_to_be_named_in_the_call(unconnected):
    with dask.config.set({"scheduler-address": "tcp://127.0.0.1:1"}):
        assert rule(Client) == "config.scheme"


def test_a_process_that_speaks_tcp_already_is_left_alone(unconnected, monkeypatch):
    monkeypatch.setattr(guarded.Worker, "_instances", [SimpleNamespace(status="running")])
    assert rule(lambda: Client("tcp://127.0.0.1:1")) == "scheme.in-use"
    assert unconnected == []


def test_peers_cannot_fill_the_count_of_refusals():
    sink = guarded_security("tcp", None, None).guard.audit
    for number in range(1000):
        sink.count("a", "b", "c", f"rule.{number}", False)
    assert len(sink.refusals) < 200
    assert sink.refusals["other"] > 800
