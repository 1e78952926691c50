"""A Security carries paths and nothing else, and a client only narrows."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import distributed
import pytest

import safeser
from safeser.audit import AuditFiles
from safeser.dask.client import Client
from safeser.dask.cluster import LocalCluster
from safeser.dask.security import Security
from safeser.dask.settings import settings_for
from safeser.errors import ConfigError
from safeser.identities import make_identities
from tests.refusal import refusal


@pytest.fixture
def security(tmp_path):
    make_identities(tmp_path / "keys", ["client"])
    return Security(
        identity=str(tmp_path / "keys" / "client.key"),
        policy="default",
        audit=str(tmp_path / "audit"),
        roles={"worker": {"identity": "/keys/worker.key"}},
        expected_scheduler="scheduler",
        deserializers=["dask", "msgpack"],
    )


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))]
)
def test_it_pickles_its_paths_and_no_key(security, tmp_path, copied):
    secret = (tmp_path / "keys" / "client.key").read_text().split()[-1]
    again = copied(security)
    assert again.overrides("nanny") == security.overrides("nanny")
    for role in ("client", "worker", "scheduler"):
        assert again.overrides(role) == security.overrides(role)
        assert again.get_connection_args(role) == security.get_connection_args(role)
        assert again.get_listen_args(role) == security.get_listen_args(role)
    assert secret.encode() not in pickle.dumps(security)
    assert all(secret not in shown for shown in (repr(security), security._repr_html_()))


def test_what_is_for_one_role_is_laid_over_what_is_for_all(security):
    assert security.overrides("worker")["identity"] == "/keys/worker.key"
    assert security.overrides("nanny")["identity"] == security.overrides("client")["identity"]
    for role in ("client", "worker", "nanny"):
        assert security.overrides(role)["expected_scheduler"] == "scheduler"


def test_only_a_client_narrows_and_is_told_where_the_scheduler_is(security):
    at = security.narrowed(None, scheduler_at="127.0.0.1:8786")
    client, worker = (at.get_connection_args(role)["safeser"] for role in ("client", "worker"))
    assert (client["deserializers"], worker["deserializers"]) == (("dask", "msgpack"), None)
    assert (client["scheduler_at"], worker["scheduler_at"]) == ("127.0.0.1:8786", None)


@pytest.mark.parametrize("copied", [copy.copy, lambda s: pickle.loads(pickle.dumps(s))])
def test_what_was_narrowed_stays_narrowed(security, copied):
    at = security.narrowed(["msgpack"], scheduler_at="127.0.0.1:8786")
    for again in (copied(at), at.narrowed(None), at.narrowed(["dask", "msgpack"])):
        given = again.get_connection_args("client")["safeser"]
        assert given == at.get_connection_args("client")["safeser"]


KEPT = {"rotate_age": "1d", "keep-age": "90d", "heads": ["file:/far/heads"]}


@pytest.mark.parametrize("given", [KEPT, AuditFiles.parse(KEPT)])
def test_how_files_of_the_log_are_kept_is_an_argument(security, tmp_path, given):
    kept = AuditFiles.parse(KEPT)
    made = Security(**security.overrides("client"), audit_files=given)
    again = pickle.loads(pickle.dumps(made))
    for each in (made, again, made.narrowed(["msgpack"])):
        assert settings_for("client", each.overrides("client")).audit_files == kept
    assert "keep_age=7776000" in repr(made)
    assert any("keep_age" in line for line in made.exports("client"))


@pytest.mark.parametrize(
    ("files", "fix"),
    [
        ({"keep-agee": "1d"}, "keep-age"),
        ({"keep-age": "soon"}, "90d"),
        ({"heads": "nowhere"}, "syslog"),
    ],
)
def test_a_way_to_keep_files_that_there_is_not_is_told_at_once(files, fix):
    for arguments in ({"audit_files": files}, {"roles": {"worker": {"audit_files": files}}}):
        with refusal(ConfigError, "config.audit-files") as caught:
            Security(**arguments)
        assert fix in caught.value.fix
    with pytest.raises(ConfigError, match="mapping"):
        Security(audit_files="1d")


@pytest.mark.parametrize(
    ("own", "asked", "left"),
    [
        (None, None, None),
        (None, ["dask"], ("dask",)),
        (["msgpack"], None, ("msgpack",)),
        (["dask", "msgpack"], ["msgpack", "pickle"], ("msgpack",)),
        (["msgpack"], ["pickle"], ()),
    ],
)
def test_narrowing_never_widens(own, asked, left):
    narrowed = Security(deserializers=own).narrowed(asked)
    assert narrowed.get_connection_args("client")["safeser"]["deserializers"] == left


@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        ({"identiy": "x"}, "identity"),
        ({"tls_ca_fil": "ca.pem"}, "tls_ca_file"),
        ({"deserializers": ["dsk"]}, "'dask'"),
        ({"deserializers": "dask"}, "deserializers=[...]"),
        ({"deserializers": ["x" * 400]}, "msgpack"),
    ],
)
def test_a_misspelt_argument_is_told_the_nearest(arguments, near):
    with pytest.raises(ConfigError) as caught:
        Security(**arguments)
    assert near in caught.value.fix
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "-"])
def test_only_a_principal_can_be_expected(name):
    with refusal(ConfigError, "config.principal"):
        Security(expected_scheduler=name)


@pytest.mark.parametrize("roles", [{"admin": {}}, {"worker": {"force": "1"}}])
def test_roles_and_names_are_known_ones(roles):
    with pytest.raises(ConfigError):
        Security(roles=roles)


# --- what a client refuses before it starts anything ---------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "rule"),
    [
        ([], {"processes": False}, "config.processes"),
        (["safeser://x:1"], {"policy": "default"}, "config.policy"),
        (["ws://x:1"], {}, "config.scheme"),
        (["x:1"], {}, "config.scheme"),
        (["tls\x1b[2J://x:1"], {}, "config.scheme"),
        (["safeser://127.0.0.1"], {}, "config.address"),
        (["safeser://x:0"], {}, "config.address"),
        (["safeser://x:65536"], {}, "config.address"),
        (["safeser://x\x1b[2J"], {}, "config.address"),
        (["safeser://x:1"], {"n_workers": 2}, "config.client"),
        (["safeser://x:1"], {"deserializer": ["dask"]}, "config.client"),
        ([], {"nworkers": 2}, "config.client"),
        ([], {"kwargs": 2}, "config.client"),
        ([], {"deserializers": ["dsk"]}, "config.family"),
        (["safeser://x:1"], {"security": True}, "config"),
        (["safeser://x:1"], {"security": distributed.Security()}, "config"),
    ],
)
def test_nothing_is_started_around_safeser(arguments, options, rule):
    with refusal(ConfigError, rule) as caught:
        Client(*arguments, **options)
    assert caught.value.fix or rule in ("config.policy", "config.scheme")
    assert "\x1b" not in str(caught.value)


def test_a_cluster_of_another_kind_is_refused():
    class Other:
        security = distributed.Security()
        scheduler_address = "tcp://x:1"

    with refusal(ConfigError, "config.scheme"):
        Client(Other())


@pytest.mark.parametrize("options", [{"processes": False}, {"protocol": "tcp"}, {"security": None}])
def test_a_local_cluster_shares_nothing_by_reference(options):
    with pytest.raises(ConfigError):
        LocalCluster(**options)


def test_a_cluster_that_cannot_start_leaves_nothing(tmp_path, monkeypatch):
    folder = tmp_path / "made"
    folder.mkdir()
    monkeypatch.setattr("safeser.dask.cluster.tempfile.mkdtemp", lambda prefix: str(folder))

    def fail(*_, **__):
        raise RuntimeError("no cluster")

    monkeypatch.setattr(distributed.LocalCluster, "__init__", fail)
    with pytest.raises(RuntimeError):
        LocalCluster()
    assert not folder.exists()
    with pytest.raises(RuntimeError):
        LocalCluster(directory=tmp_path / "kept")
    assert (tmp_path / "kept" / "keys" / "worker.key").exists()


def test_a_cluster_gets_a_folder_of_its_own(tmp_path):
    (tmp_path / "mine.key").touch()
    with refusal(ConfigError, "config.directory"):
        LocalCluster(directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.key"]


def test_a_policy_that_is_not_there_is_said_before_a_cluster_is_made(tmp_path):
    with pytest.raises(ConfigError, match="nosuch"):
        LocalCluster(policy="nosuch", directory=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("policy", ["demo", "dask-cluster", "stock-cluster"])
def test_a_policy_without_the_principals_of_a_local_cluster_is_said_before_it_is_made(
    tmp_path, policy
):
    with refusal(ConfigError, "config.principal", match="lists no principal"):
        LocalCluster(policy=policy, directory=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_policy_by_which_a_local_cluster_does_not_hear_of_its_workers_is_said(tmp_path):
    policy = tmp_path / "deaf.yaml"
    text = (Path(safeser.__file__).parent / "policies/default.yaml").read_text()
    policy.write_text(text.replace(", subscribe_worker_status]", "]"))
    with pytest.raises(ConfigError, match="grants no subscribe_worker_status") as caught:
        LocalCluster(policy=str(policy), directory=tmp_path / "new")
    assert caught.value.fix.startswith("Add subscribe_worker_status to the operations")
    assert not (tmp_path / "new").exists()
