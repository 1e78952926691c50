"""Paths and names from Dask's configuration become one channel, or a reason why not."""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from types import SimpleNamespace

import dask
import pytest

from safeser.audit import AuditFiles, read
from safeser.channel import watcher
from safeser.dask import settings as module
from safeser.dask.roles import Roles, scheduler_of, served_by
from safeser.dask.security import Security
from safeser.dask.settings import (
    Settings,
    channel_for,
    close_channels_in,
    settings_for,
    unrecorded_channel,
)
from safeser.errors import AuditError, ConfigError
from safeser.families.registered import program
from safeser.identities import make_identities
from safeser.identity import KeyState, Roster
from safeser.operations import Server
from safeser.policy.ready import locate
from tests.conftest import until
from tests.dask.patched import serve, with_rows
from tests.refusal import refusal


@pytest.fixture
def made(tmp_path):
    """Return settings that work for every role of policy ``default``; its channels are closed."""
    keys = tmp_path / "keys"
    principals = ("scheduler", "worker", "nanny", "client")
    make_identities(keys, principals)
    roles = {role: {"identity": str(keys / f"{role}.key")} for role in principals}
    with dask.config.set({"safeser": {"audit": str(tmp_path / "audit"), **roles}}):
        yield tmp_path
    close_channels_in(tmp_path)


# --- settings -------------------------------------------------------------------------------


def test_a_roles_own_settings_and_overrides_win():
    for section in (None, {}):
        with dask.config.set({"safeser": section}):
            assert settings_for("client") == Settings()
    section = {"identity": "all.key", "audit-key": "k", "worker": {"identity": "w.key"}}
    with dask.config.set({"safeser": section}):
        assert settings_for("worker").identity == "w.key"
        assert settings_for("worker").audit_key == "k"
        assert settings_for("nanny").identity == "all.key"
        assert settings_for("worker", {"identity": "given"}).identity == "given"
        assert settings_for("worker", {"identity": None}).identity == "w.key"


@pytest.mark.parametrize(
    "section",
    [
        "x",
        {"worker": "x"},
        {"idenity": "x"},
        {"identity": 5},
        {"worker": {"audit-key": ""}},
        {"identity": "-----BEGIN\nKEY"},
        {"worker": {"force": True}},
        {"expected-scheduler": "no principal"},
        {"expected-scheduler": 1},
    ],
)
def test_what_is_no_setting_is_refused(section):
    with dask.config.set({"safeser": section}), pytest.raises(ConfigError):
        settings_for("worker")


# --- channels -------------------------------------------------------------------------------


def test_a_child_shares_no_channel_of_its_parent(made, monkeypatch):
    parent = channel_for("worker")
    monkeypatch.setattr(module, "_pid", -1)
    child = channel_for("worker")
    assert child is not parent
    parent.audit.close()


@pytest.mark.parametrize("own", [["a.b", "c"], "a.b c", "a.b, c"], ids=repr)
def test_modules_of_the_program_are_named_for_the_whole_process(made, monkeypatch, own):
    monkeypatch.setattr(program, "_named", set())
    given = Security(own=own).overrides("client") if isinstance(own, list) else {"own": own}
    channel_for("client", given)
    assert program._named == {"a.b", "c"}
    assert Settings().updated(given).absolute() == {"own": given["own"]}


def test_closed_channels_are_forgotten_and_watched_no_more(made, tmp_path):
    first = channel_for("worker")
    [files] = module._files.values()
    assert files in watcher._watcher._files
    close_channels_in(tmp_path / "elsewhere")
    assert channel_for("worker") is first
    assert channel_for("scheduler") is not first
    close_channels_in(tmp_path)
    assert files not in watcher._watcher._files
    assert channel_for("worker") is not first


@pytest.mark.parametrize("missing", ["identity", "audit"])
def test_what_must_be_set_is_named(made, missing):
    without = dask.config.set({f"safeser.{missing}": None, f"safeser.worker.{missing}": None})
    with without, refusal(ConfigError, f"config.{missing}") as caught:
        channel_for("worker")
    assert f"DASK_SAFESER__{missing.upper()}" in caught.value.fix


def test_a_roster_that_is_named_must_exist(made):
    with pytest.raises(ConfigError):
        channel_for("worker", {"roster": str(made / "no-such")})


def test_without_a_roster_the_policy_must_list_the_key(made):
    (made / "keys" / "roster").unlink()
    with refusal(ConfigError, "config.identity"):
        channel_for("worker")


def test_a_channel_that_cannot_be_made_closes_its_log(made):
    policy = made / "other.yaml"
    policy.write_text(
        "safeser: 1\nname: o\nrevision: 1\nprincipals: {a: {}, b: {}}\n"
        "contexts:\n  - {name: c, sender: a, recipient: b}\n...\n"
    )
    before = len(os.listdir("/proc/self/fd"))
    with refusal(ConfigError, "config.principal"):
        channel_for("worker", {"policy": str(policy)})
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_channel_without_a_log_lets_nothing_through(made):
    channel = unrecorded_channel("worker")
    assert channel.identity.principal == "worker"
    for call in (
        lambda: channel.audit.record({"event": "admit"}),
        lambda: channel.audit.count("worker", "scheduler", "identity", "permit", True),
    ):
        with pytest.raises(AuditError):
            call()
    assert not (made / "audit").exists()


# --- roles ----------------------------------------------------------------------------------


def server(name, module_name="distributed.x"):
    """Return a handler of a server whose class has that name."""
    base = type(name, (), {"__module__": module_name, "handle": lambda self, comm: None})
    return type("Custom", (base,), {"__module__": "mine"})().handle


@pytest.mark.parametrize("name", ["Scheduler", "Worker", "Nanny"])
def test_a_listener_is_what_its_servers_class_says(name):
    assert served_by(server(name)).value == name.lower()


@pytest.mark.parametrize(
    "handler",
    [server("Server"), server("Scheduler", "mine"), server("Worker", "distributedx"), print, len],
)
def test_nothing_else_listens(handler):
    with refusal(ConfigError, "config.listener"):
        served_by(handler)


def test_a_process_connects_as_what_it_serves(made):
    roles = Roles()
    assert roles.connecting({}).identity.principal == "client"
    roles.listening(Server.WORKER, {})
    roles.listening(Server.WORKER, {})
    assert roles.connecting({}).identity.principal == "worker"
    assert roles.connecting({"role": "client"}).identity.principal == "client"


def test_a_nanny_asks_for_the_workers_arguments_and_is_itself(made):
    roles = Roles()
    assert roles.connecting({"role": "worker"}).identity.principal == "worker"
    roles.listening(Server.NANNY, {})
    assert roles.connecting({"role": "worker"}).identity.principal == "nanny"
    roles.listening(Server.WORKER, {})
    assert roles.connecting({"role": "worker"}).identity.principal == "worker"


@pytest.mark.parametrize("role", ["worker", "nanny", "scheduler"])
def test_who_could_be_of_no_use_does_not_listen(made, role):
    asked = {"roles": {role: {"identity": str(made / "keys" / "client.key")}}}
    with refusal(ConfigError, "config.role-principal") as caught:
        Roles().listening(Server(role), asked)
    assert "'client'" in caught.value.message
    assert ("NANNY" in caught.value.fix) == (role == "nanny")


@pytest.mark.parametrize(("key", "rule"), [("client", "role-principal"), ("none", "identity")])
def test_a_nanny_does_not_start_for_a_worker_that_cannot(made, key, rule):
    asked = {"roles": {"worker": {"identity": str(made / "keys" / f"{key}.key")}}}
    with refusal(ConfigError, f"config.{rule}"):
        Roles().listening(Server.NANNY, asked)


def test_a_nanny_does_not_start_for_a_worker_that_its_policy_confines(made):
    """It would run plugins, outside of the sandbox, before that worker refuses to start."""
    with dask.config.set({"safeser.policy": "analysts"}), refusal(ConfigError, "confined.nanny"):
        Roles().listening(Server.NANNY, {})


def test_a_nanny_that_does_not_know_its_workers_key_leaves_it_to_the_worker(made):
    with dask.config.set({"safeser.worker": None}):
        channel = Roles().listening(Server.NANNY, {})
    assert channel.identity.principal == "nanny"


# --- whom one expects -----------------------------------------------------------------------


@pytest.mark.parametrize("server", [Server.WORKER, Server.NANNY])
def test_a_server_expects_whom_its_settings_name_at_its_schedulers_address(made, server):
    roles = Roles()
    roles.listening(server, {}, scheduler="127.0.0.1:8786")
    assert roles.expected_at("127.0.0.1:8786", {}) is None
    with dask.config.set({"safeser.expected-scheduler": "scheduler"}):
        assert roles.expected_at("127.0.0.1:8786", {}) == "scheduler"
        assert roles.expected_at("127.0.0.1:1", {}) is None
    own = {"roles": {server.value: {"expected_scheduler": "another"}}}
    assert roles.expected_at("127.0.0.1:8786", own) == "another"


def test_a_client_expects_it_where_it_was_told(made):
    given = {"role": "client", "scheduler_at": "127.0.0.1:8786"}
    with dask.config.set({"safeser.expected-scheduler": "scheduler"}):
        assert Roles().expected_at("127.0.0.1:8786", given) == "scheduler"
        assert Roles().expected_at("127.0.0.1:1", given) is None
        assert Roles().expected_at("127.0.0.1:8786", {"role": "client"}) is None


def test_where_the_scheduler_is_comes_from_the_server_that_listens():
    handler = server("Worker")
    assert scheduler_of(handler) is None
    handler.__self__.scheduler = SimpleNamespace(address="safeser://127.0.0.1:8786")
    assert scheduler_of(handler) == "127.0.0.1:8786"
    assert scheduler_of(print) is None


def test_it_must_be_clear_whose_a_connection_is(made):
    roles = Roles()
    for one in (Server.SCHEDULER, Server.WORKER):
        roles.listening(one, {})
    with dask.config.set({"safeser.client": None}), refusal(ConfigError, "config.role") as caught:
        roles.connecting({})
    both = {"roles": {r: {"identity": "same"} for r in ("scheduler", "worker")}}
    both["roles"]["worker"]["expected_scheduler"] = "scheduler"  # is no identity
    with dask.config.set({"safeser": {"audit": "x"}}), pytest.raises(ConfigError) as caught:
        roles.connecting(both)
    assert caught.value.rule != "config.role"


def test_who_answers_where_a_worker_registers_is_its_scheduler(made):
    roles = Roles()
    roles.listening(Server.WORKER, {}, scheduler="127.0.0.1:1")
    for address in ("127.0.0.1:1", None):
        assert not roles.answered(address, "scheduler")
    roles.note_connected("127.0.0.1:2", "worker")
    roles.note_connected("127.0.0.1:1", "scheduler")
    assert roles.answered("127.0.0.1:1", "scheduler")
    assert not roles.answered("127.0.0.1:1", "worker")
    assert not roles.answered("127.0.0.1:2", "worker")


def test_only_the_stock_commands_end_the_process(made, monkeypatch, capfd):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(os.sys, "argv", ["/somewhere/pytest"])
    Roles().stop_command_line(ConfigError("no key"))
    assert ended == []
    accepted = Roles()
    accepted.note_connected("127.0.0.1:1", "scheduler")
    assert not accepted.answered("127.0.0.1:1", "scheduler")  # it is no scheduler of this process
    monkeypatch.setattr(os.sys, "argv", ["/bin/dask", "worker"])
    accepted.stop_command_line(ConfigError("no key"))
    assert ended == []
    monkeypatch.setattr("safeser.dask.roles.close_channels_in", lambda folder: None)
    Roles().stop_command_line(ConfigError("no key", fix="Make one."))
    assert ended == [2]
    assert capfd.readouterr().err == "safeser: no key [config] Make one.\n"


@pytest.mark.parametrize("server", [Server.SCHEDULER, Server.WORKER])
def test_what_peers_name_ends_no_command(made, monkeypatch, capfd, server):
    """A guest had a scheduler's command end by naming it an address that accepts nobody."""
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(os.sys, "argv", ["/bin/dask", "x"])
    monkeypatch.setattr("safeser.dask.roles.close_channels_in", lambda folder: None)
    roles = Roles()
    own = None if server is Server.SCHEDULER else "127.0.0.1:8786"
    roles.listening(server, {}, scheduler=own)
    roles.stop_command_line(ConfigError("no"), connecting_to="127.0.0.1:9")
    assert ended == []
    assert capfd.readouterr().err == ""
    if own is not None:
        roles.stop_command_line(ConfigError("no"), connecting_to=own)
        assert ended == [2]


# --- the worker of a nanny ------------------------------------------------------------------


class Stock:
    """Stands in for a nanny: what it is told of its worker's end."""

    def __init__(self, status):
        self.status = SimpleNamespace(name=status)
        self.told = []
        serve(self, Server.NANNY, SimpleNamespace())

    def _on_worker_exit_sync(self, code):
        self.told.append(code)


Started = with_rows(Stock, "distributed.nanny:Nanny._on_worker_exit_sync")


@pytest.mark.parametrize("status", ["init", "starting"])
def test_a_command_ends_as_its_first_worker_could_not_begin(monkeypatch, status):
    monkeypatch.setattr(os.sys, "argv", ["/bin/dask", "worker"])
    nanny = Started(status)
    with pytest.raises(SystemExit) as caught:
        nanny._on_worker_exit_sync(2)
    assert caught.value.code == 2
    assert nanny.told == []


@pytest.mark.parametrize(
    ("command", "status", "code"),
    [("dask", "init", 1), ("dask", "init", -9), ("dask", "running", 2), ("pytest", "init", 2)],
)
def test_whatever_else_happens_to_a_worker_is_its_nannys_affair(monkeypatch, command, status, code):
    monkeypatch.setattr(os.sys, "argv", [f"/bin/{command}"])
    nanny = Started(status)
    nanny._on_worker_exit_sync(code)
    assert nanny.told == [code]


# --- files that change ----------------------------------------------------------------------


def test_a_roster_that_changes_reaches_the_channel_by_itself(made):
    channel = channel_for("client")
    path = made / "keys" / "roster"
    entry = Roster.load(path).entries[-2]
    Roster.load(path).with_entry(replace(entry, state=KeyState.RETIRED)).save(path)
    until("the roster", lambda: channel.roster.entry_of(entry.public).state is KeyState.RETIRED)


# --- observing and shadows ------------------------------------------------------------------


def records(folder):
    return [record.fields for record in read(folder / "audit")]


def test_a_process_that_only_observes_records_it_at_each_start(made):
    channel = channel_for("worker", {"policy": "observe"})
    assert channel.shadow is channel.policy.written
    channel.audit.flush()
    assert [each["rule"] for each in records(made) if each.get("event") == "observe"] == [
        "policy.observe"
    ]


def test_a_shadow_is_loaded_watched_and_taken_while_the_process_runs(made):
    shadow = made / "next.yaml"
    text = locate("strict").read_text("utf-8")
    shadow.write_text(text)
    shadow.chmod(0o600)
    channel = channel_for("worker", {"shadow": str(shadow)})
    assert (channel.policy.name, channel.shadow.revision) == ("default", 1)
    (files,) = module._files.values()
    shadow.write_text(text.replace("revision: 1", "revision: 2"))
    files.look()
    assert channel.shadow.revision == 2
    shadow.write_text("broken\n...\n")
    files.look()
    assert channel.shadow.revision == 2
    rules = [each["rule"] for each in records(made) if each.get("event") == "reload"]
    assert rules == ["shadow.adopted", "config.yaml"]


def test_a_shadow_that_is_not_there_stops_the_process(made):
    with pytest.raises(ConfigError):
        channel_for("worker", {"shadow": str(made / "missing.yaml")})


def test_files_of_the_log_are_kept_as_configured():
    with dask.config.set({"safeser.audit-files": {"keep-age": "90d", "heads": "syslog"}}):
        files = settings_for("worker").audit_files
    assert files == AuditFiles(keep_age=90 * 86_400, heads=("syslog",))
    # As a job inherits it, in its environment.
    text = Settings(audit_files=files).absolute()["audit_files"]
    config = dask.config.collect_env({"DASK_SAFESER__WORKER__AUDIT_FILES": text})
    with dask.config.set(config):
        assert settings_for("worker").audit_files == files


@pytest.mark.parametrize("section", ["64MiB", ["x"], {"keep": "1d"}, {"keep-age": "soon"}])
def test_files_that_cannot_be_kept_so_are_refused(section):
    with (
        dask.config.set({"safeser.audit-files": section}),
        refusal(ConfigError, "config.audit-files"),
    ):
        settings_for("worker")


class LeftOpen:
    """A client whose loop does not answer, or does; it keeps how long it was to be waited for."""

    _asynchronous = False

    def __init__(self, clock, answers=True, status="running"):
        self.clock, self.answers, self.status, self.waits = clock, answers, status, []

    def close(self, timeout):
        self.waits.append(timeout)
        if not self.answers:
            self.clock.now += timeout
            raise TimeoutError


@pytest.fixture
def left_open(monkeypatch):
    """Return what puts clients in the place of those of this process."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def made(*kinds):
        clients = [LeftOpen(clock, **each) for each in kinds]
        monkeypatch.setattr(module, "Client", SimpleNamespace(_instances=clients))
        return clients

    return made


def test_clients_that_do_not_close_keep_a_process_once(left_open):
    stuck = {"answers": False}
    clients = left_open(stuck, {}, stuck, stuck)
    module._close_clients()
    assert [each.waits for each in clients] == [[3.0], [0.2], [0.2], [0.2]]


def test_clients_of_the_process_that_this_one_was_forked_from_are_left_to_it(
    left_open, monkeypatch
):
    monkeypatch.setattr(module, "_inherited", weakref.WeakSet())
    before = left_open({}, {})
    module._inherit()
    (own,) = left_open({})
    monkeypatch.setattr(module.Client, "_instances", [*before, own])
    module._close_clients()
    assert [each.waits for each in (*before, own)] == [[], [], [3.0]]
