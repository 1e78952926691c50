"""What the client and the entry point do before and around Dask, without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import dask
import distributed
import pytest

import safeser.dask
from safeser.dask import client as module
from safeser.dask import patches
from safeser.dask.client import Client
from safeser.dask.patches import fingerprints
from safeser.dask.security import Security
from safeser.dask.settings import close_channels_in
from safeser.dask.transport.comm import SafeserComm
from safeser.errors import AuthenticationError, ConfigError, PayloadError, PolicyDenied
from safeser.identities import make_identities
from tests.refusal import refusal


class Unconnected:
    """Stands in for Dask's client: keeps what it was given."""

    def __init__(self, *args, **options):
        self.given = (args, options)
        self.security = options["security"]
        self.futures = {}
        self.extensions = {}
        self._refcount_lock = threading.RLock()

    def _graph_to_futures(self, expr, keys, *args, **options):
        return {}


@pytest.fixture
def unconnected(monkeypatch, tmp_path):
    make_identities(tmp_path / "keys", ("scheduler", "worker", "nanny", "alice", "bob"))

    def made(principal, **options):
        path = tmp_path / "keys" / f"{principal}.key"
        settings = {"identity": str(path), "audit": str(tmp_path / "audit"), "policy": "demo"}
        with dask.config.set({"safeser": settings}):
            return Client("safeser://127.0.0.1:1", **options)

    monkeypatch.setattr(distributed.Client, "__init__", Unconnected.__init__)
    monkeypatch.setattr(distributed.Client, "_graph_to_futures", Unconnected._graph_to_futures)
    with dask.config.set({"safeser": {"audit": str(tmp_path / "audit"), "policy": "demo"}}):
        yield made
    close_channels_in(tmp_path)


@pytest.fixture
def identity(tmp_path):
    return lambda name: dask.config.set(
        {"safeser.identity": str(tmp_path / "keys" / f"{name}.key")}
    )


@pytest.mark.parametrize(
    ("principal", "argument", "name"),
    [("bob", "serializers", "cloudpickle"), ("alice", "deserializers", "pickle")],
)
def test_a_family_that_no_context_lists_is_an_error_at_once(unconnected, principal, argument, name):
    with refusal(ConfigError, f"caller.{argument}") as caught:
        unconnected(principal, **{argument: ["dask", name]})
    assert caught.value.fix.startswith(f"Take {name} out of {argument}")


def test_a_family_that_some_context_lists_is_none(unconnected):
    """Dask's word pickle stands for cloudpickle too; msgpack carries what is administrative."""
    unconnected("alice", serializers=["dask", "pickle"], deserializers=["msgpack", "error"])


def test_whoever_may_submit_submits(unconnected, identity):
    client = unconnected("alice")
    with identity("alice"):
        assert client.safeser.identity.principal == "alice"
        assert client._graph_to_futures(None, []) == {}


def test_whoever_may_not_is_told_where_he_asks(unconnected, identity):
    client = unconnected("bob")
    with identity("bob"), refusal(PolicyDenied, "submission.none"):
        client._graph_to_futures(None, [])


@pytest.mark.parametrize("key", ["\udc80", ("x", 1 << 64)])
def test_a_key_that_no_message_can_hold_is_refused_where_it_is_submitted(
    unconnected, identity, key
):
    client = unconnected("alice")
    with identity("alice"), refusal(PayloadError, "payload.unsendable"):
        client._graph_to_futures(None, ["x", key])


def test_what_is_submitted_while_the_client_connects_again_leaves_as_before(unconnected, doors):
    """Dask keeps it until there is a connection; then nobody would write it out any more."""
    client = unconnected("alice")
    comm = SafeserComm.__new__(SafeserComm)
    comm.link = doors.links("alice", "scheduler")[0]
    client.scheduler_comm = None
    assert client._policy_link() is None
    client.scheduler_comm = SimpleNamespace(comm=comm)
    known = client._policy_link()
    assert known is comm.link
    client.scheduler_comm = None
    assert client._policy_link() is known


def test_what_is_wrong_with_keys_is_said_before_dask_connects(unconnected):
    with pytest.raises(ConfigError) as caught:
        unconnected("nobody")
    assert "nobody.key" in str(caught.value)


class Cluster:
    def __init__(self, **options):
        self.options = options
        self.security = Security()
        self.closed = 0

    def close(self):
        self.closed += 1


def test_a_cluster_of_its_own_is_closed_when_the_client_cannot_be_made(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(module, "LocalCluster", lambda **o: made.append(Cluster(**o)) or made[0])
    with dask.config.set({"safeser": {"audit": str(tmp_path)}}), pytest.raises(ConfigError):
        Client(n_workers=3, policy="demo")
    [cluster] = made
    assert cluster.options == {"policy": "demo", "asynchronous": False, "n_workers": 3}
    assert cluster.closed == 1


@pytest.mark.parametrize("option", ["n_workers", "threads_per_worker"])
@pytest.mark.parametrize("value", [-1, "x", "3", 2.0, True, [], object()])
def test_what_is_no_number_of_workers_is_refused_before_anything_starts(monkeypatch, option, value):
    monkeypatch.setattr(module, "LocalCluster", lambda **o: pytest.fail("a cluster was started"))
    with refusal(ConfigError, "config.client") as caught:
        Client(**{option: value})
    assert str(caught.value).startswith(f"{option}= is ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("address", [7, 2.5, b"safeser://127.0.0.1:8786", True])
def test_what_is_neither_an_address_nor_a_cluster_is_refused(address):
    with refusal(ConfigError, "config.address"):
        Client(address)


# --- the entry point --------------------------------------------------------------------------


def test_without_distributed_it_says_what_to_install(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    for call in (safeser.dask.require_distributed, safeser.dask.backend):
        with refusal(ConfigError, "config.extra") as caught:
            call()
        assert "pip install" in caught.value.fix


@pytest.mark.parametrize("older", ["2019.1.0", "2025.5.0"])
def test_an_older_distributed_is_refused(monkeypatch, older):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: older)
    with refusal(ConfigError, "config.distributed-version") as caught:
        safeser.dask.require_distributed()
    assert "2025.5.1" in str(caught.value)


def test_a_distributed_whose_source_is_unknown_is_refused(monkeypatch):
    known = fingerprints.known_sources()
    targets = {**known.targets, "dask.dot:label": frozenset()}
    other = replace(known, targets=targets, digests=frozenset())
    monkeypatch.setattr(fingerprints, "known_sources", lambda: other)
    # Whether or not a test before this one has loaded the backend.
    monkeypatch.setattr(patches, "is_applied", lambda row: row.target != "dask.dot:label")
    with refusal(ConfigError, "config.distributed-version", match=r"dask\.dot:label"):
        safeser.dask.require_distributed()


def test_a_distributed_that_lacks_what_safeser_imports_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "safeser.dask.patches", None)
    with refusal(ConfigError, "config.distributed-version"):
        safeser.dask.require_distributed()


def test_a_scheduler_file_is_read_and_its_scheme_held_against_safeser(tmp_path):
    named = tmp_path / "scheduler.json"
    named.write_text('{"address": "tcp://127.0.0.1:1"}')
    with refusal(ConfigError, "config.scheme"):
        Client(scheduler_file=str(named))


@pytest.mark.parametrize("content", ["", "[]", "{}", "no json", '{"adress": 1}'])
def test_a_scheduler_file_that_names_no_address_is_refused(tmp_path, content):
    named = tmp_path / "scheduler.json"
    named.write_text(content)
    with pytest.raises(ConfigError, match="cannot be read"):
        Client(scheduler_file=str(named))


def test_a_missing_scheduler_file_is_refused(tmp_path):
    with refusal(ConfigError, "config.scheduler-file"):
        Client(scheduler_file=str(tmp_path / "none.json"))


def test_an_address_in_dasks_configuration_is_held_against_safeser():
    tls = dask.config.set({"scheduler-address": "tls://127.0.0.1:1"})
    with tls, refusal(ConfigError, "config.scheme"):
        Client()


@pytest.mark.parametrize(("status", "raises"), [("running", False), ("connecting", True)])
def test_what_dask_asks_by_itself_prints_no_traceback(monkeypatch, status, raises):
    """Every five seconds, where the key of a client was retired."""

    async def refused(self, *_, **__):
        raise AuthenticationError("no", rule="key.retired")

    monkeypatch.setattr("distributed.Client._update_scheduler_info", refused)
    client = object.__new__(Client)
    client.status = status
    with pytest.raises(AuthenticationError) if raises else contextlib.nullcontext():
        asyncio.run(client._update_scheduler_info())
