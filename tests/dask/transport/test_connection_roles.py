"""Several roles in one process: each connects as itself, and nothing else opens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest
from distributed.security import Security as Stock

from safeser.dask.patches.patch import Patch
from safeser.dask.roles import Roles
from safeser.dask.security import Security
from safeser.dask.settings import close_channels_in
from safeser.dask.transport.connection_roles import own_connections, with_role
from safeser.errors import ConfigError
from safeser.identities import make_identities
from safeser.operations import Server
from tests.dask.patched import original
from tests.refusal import refusal

PROGRAM = Path(__file__).parents[1] / "programs" / "one_process.py"


@pytest.mark.cluster
def test_each_role_of_one_process_is_itself_and_other_schemes_stay_closed(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "result": [1, 1, 1, 1],
        "registered": ["worker"],
        "clients": ["client"],
        "early": {"role": "scheduler"},
        "scheduler": ["scheduler"],
        "worker": ["worker"],
        "nanny": ["nanny"],
        "client": ["client"],
        "bare": "client",
        "tcp": "scheme.sealed",
        "inproc": "scheme.sealed",
    }


@pytest.fixture
def made(tmp_path):
    keys = tmp_path / "keys"
    make_identities(keys, ("scheduler", "worker", "nanny", "client"))
    roles = {role: {"identity": str(keys / f"{role}.key")} for role in ("scheduler", "worker")}
    with dask.config.set({"safeser": {"audit": str(tmp_path / "audit"), **roles}}):
        yield keys
    close_channels_in(tmp_path)


def test_dasks_own_security_says_the_role(monkeypatch):
    stock = original("distributed.security:Security.get_connection_args")
    stated = Patch(target="m:C.f", reason="", by=with_role).replacement(stock)
    monkeypatch.setattr(Stock, "get_connection_args", stated)
    assert Stock().get_connection_args("client")["safeser"] == {"role": "client"}
    own = Security(roles={"client": {"identity": "x"}}).get_connection_args("client")["safeser"]
    assert own["roles"]["client"] == {"identity": "x"}  # safeser's own says more


def serving(arguments):
    pool = SimpleNamespace(connection_args=arguments)
    return SimpleNamespace(connection_args=arguments, rpc=pool)


def test_a_nanny_that_asked_for_its_workers_arguments_connects_as_a_nanny():
    arguments = Security(identity="shared").get_connection_args("worker")
    own_connections(serving(arguments), Server.NANNY)
    assert arguments["safeser"]["role"] == "nanny"
    assert arguments["safeser"]["roles"]["nanny"] == {"identity": "shared"}
    bare = {}
    own_connections(serving(bare), Server.SCHEDULER)
    assert bare == {"safeser": {"role": "scheduler"}}
    own_connections(object(), Server.WORKER)  # nothing of Dask's: nothing to tell


def test_a_role_without_an_identity_is_the_servers_whose_process_it_is(made):
    roles = Roles()
    roles.listening(Server.WORKER, {})
    assert roles.connecting({"role": "client"}).identity.principal == "worker"
    with dask.config.set({"safeser.client": {"identity": str(made / "client.key")}}):
        assert roles.connecting({"role": "client"}).identity.principal == "client"
    roles.listening(Server.SCHEDULER, {})
    with refusal(ConfigError, "config.role"):
        roles.connecting({"role": "client"})


def test_what_no_server_opened_is_a_clients_where_there_are_several(made):
    roles = Roles()
    for server in (Server.SCHEDULER, Server.WORKER):
        roles.listening(server, {})
    with dask.config.set({"safeser.client": {"identity": str(made / "client.key")}}):
        assert roles.connecting({}).identity.principal == "client"


def test_a_security_of_safesers_that_lacks_the_role_is_no_other(made):
    roles = Roles()
    roles.listening(Server.WORKER, {})
    given = Security().get_connection_args("client")["safeser"]
    with refusal(ConfigError, "config.identity"):
        roles.connecting(given)
