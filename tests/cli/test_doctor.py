"""``safeser doctor`` says what is wrong with each setting, and how to mend it."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
import socket
import sys
import threading
import time
from collections import namedtuple
from types import SimpleNamespace

import dask
import psutil
import pytest

from safeser.dask import diagnosis
from safeser.dask.diagnosis import Diagnosis
from safeser.dask.settings import close_channels_in
from safeser.dask.transport import listening
from safeser.errors import PolicyDenied
from safeser.identity import Identity, KeyState, Roster, RosterEntry

NOWHERE = "safeser://127.0.0.1:1"


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    """No settings but those of a test, whatever the environment of the tests says."""
    for name in [name for name in os.environ if name.startswith("DASK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(diagnosis, "bound_here", lambda address: [])
    with dask.config.set(safeser={}, **{"scheduler-address": None}):
        yield


@pytest.fixture
def doctor(safeser, keys, tmp_path):
    """Run the command with a client's key, and others for each option that a test names."""

    def run(*arguments, **options):
        given = {"identity": keys / "client.key", "audit": tmp_path / "audit", **options}
        words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value]
        return safeser("doctor", *words, *arguments)

    yield run
    close_channels_in(tmp_path)


@pytest.fixture
def found(doctor):
    """Run the command; return its exit code and what it found, by check."""

    def run(*arguments, **options):
        ended = doctor("--json", *arguments, **options)
        assert ended.err == ""
        return ended.code, {each["check"]: each for each in json.loads(ended.out)}

    return run


def require_wrong(result, check, *words, fix=""):
    code, by_check = result
    assert code == 1
    wrong = [each["check"] for each in by_check.values() if each["state"] == "wrong"]
    assert wrong == [check], by_check
    for word in words:
        assert word in by_check[check]["what"]
    assert by_check[check]["fix"]
    assert fix in by_check[check]["fix"]
    return by_check


def test_all_is_well_without_an_address(doctor):
    ended = doctor()
    assert ended.code == 0, ended.out
    assert ended.out.endswith("Nothing is wrong.\n")
    assert max(map(len, ended.out.splitlines())) <= 80
    checks = re.findall(r"^(\w+(?: \w+)?) {2,}(\w+) {2}", ended.out, re.MULTILINE)
    assert [name for name, state in checks if state == "fine"] == [
        "installed", "key", "roster", "policy", "principal", "log",
    ]  # fmt: skip
    assert {name for name, state in checks if state != "fine"} >= {"address", "clock"}
    ended = doctor("tcp://127.0.0.1:8786")
    assert (ended.code, "\n  address: " in ended.out) == (1, True)


def test_settings_of_dask_are_used(doctor, keys, tmp_path):
    values = {"identity": str(keys / "client.key"), "audit": str(tmp_path / "audit")}
    with dask.config.set(safeser=values, **{"scheduler-address": "tcp://127.0.0.1:8786"}):
        ended = doctor("--json", identity=None, audit=None)
    by_check = {each["check"]: each for each in json.loads(ended.out)}
    assert by_check["key"]["state"] == "fine"
    assert by_check["address"]["state"] == "wrong"


# --- each setting --------------------------------------------------------------------------------


def tomorrow(keys, tmp_path):
    """List a key of the future."""
    day = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=3)
    one = RosterEntry(Identity.generate("dave").public, "dave", KeyState.ACTIVE, day)
    Roster.load(keys / "roster").with_entry(one).save(keys / "roster")


def open_to_all(keys, tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)


def another_roster(keys, tmp_path):
    Roster().save(tmp_path / "roster")


def nothing(keys, tmp_path):
    pass


@pytest.mark.parametrize(
    ("before", "options", "check", "says", "fix"),
    [
        (nothing, {"identity": None}, "key", "safeser.identity is not set", "keys init"),
        (nothing, {"identity": "TMP/none"}, "key", "does not exist", ""),
        (nothing, {"roster": "TMP/none"}, "roster", "does not exist", ""),
        (nothing, {"policy": "TMP/none.yaml"}, "policy", "does not exist", ""),
        (another_roster, {"roster": "TMP/roster"}, "principal", "not listed", "keys fingerprint"),
        (tomorrow, {}, "roster", "", "clock"),
        (nothing, {"policy": "dask-cluster"}, "principal", "no principal 'client'", "Add it"),
        *(
            (nothing, {"role": role}, "principal", "'client'", "key of a")
            for role in ("scheduler", "worker", "nanny")
        ),
        (nothing, {"audit": None}, "log", "safeser.audit is not set", "DASK_SAFESER__AUDIT"),
        (open_to_all, {"audit": "TMP/open"}, "log", "log", "chmod 700"),
        (nothing, {"audit_key": "TMP/none.key"}, "log", "none.key", ""),
        (nothing, {"shadow": "TMP/none.yaml"}, "shadow", "does not exist", ""),
        (nothing, {"": "127.0.0.1:8786"}, "address", "no scheme", "safeser://"),
        (nothing, {"": "tcp://127.0.0.1:8786"}, "address", "'tcp'", "--protocol safeser"),
        (nothing, {"": "tls://127.0.0.1:8786"}, "address", "'tls'", "--protocol safeser"),
        (nothing, {"": "safeser://127.0.0.1"}, "address", "no host and port", "8786"),
    ],
)
def test_what_is_wrong_and_how_to_mend_it(found, keys, tmp_path, before, options, check, says, fix):
    before(keys, tmp_path)
    given = {k: v and v.replace("TMP", str(tmp_path)) for k, v in options.items()}
    address = [given.pop("")] if "" in given else []
    by_check = require_wrong(found(*address, **given), check, says, fix=fix)
    if check == "key":
        assert by_check["principal"]["state"] == "skipped"
    elif check == "address":
        assert by_check["scheduler"]["state"] == "skipped"


@pytest.mark.parametrize(
    ("settings", "says", "fix"),
    [
        ({"identty": "x"}, "safeser.identty", "identity"),
        ({"audit-files": {"keep-agee": "1d"}}, "keep-agee", "keep-age"),
    ],
)
def test_a_setting_that_does_not_exist(found, settings, says, fix):
    with dask.config.set(safeser=settings):
        by_check = require_wrong(found(), "settings", says, fix=fix)
    assert list(by_check) == ["installed", "settings"]


@pytest.mark.parametrize("role", ["scheduler", "worker", "nanny"])
def test_a_role_with_its_key(found, keys, role):
    assert found(role=role, identity=keys / f"{role}.key")[0] == 0


@pytest.mark.parametrize(
    ("options", "check", "says"),
    [
        ({"policy": "observe"}, "policy", "only observes: it refuses the floors, and code"),
        ({"shadow": "strict"}, "shadow", "strict revision 1, whose refusals are only recorded"),
    ],
)
def test_what_is_only_recorded_is_no_fault(found, options, check, says):
    code, checks = found(**options)
    assert (code, says in checks[check]["what"]) == (0, True)


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, "note"),
        ({"heads": "syslog"}, "fine"),
        ({"heads": ["command:/bin/cat --token=secret"]}, "fine"),
    ],
)
def test_where_heads_of_the_log_go(found, files, state):
    with dask.config.set({"safeser": {"audit-files": files}}):
        check = found()[1]["log heads"]
    assert check["state"] == state
    assert "secret" not in check["what"]


def test_a_full_disk(found, monkeypatch):
    stock = os.statvfs
    full = SimpleNamespace(f_bavail=10, f_frsize=4096)
    monkeypatch.setattr(
        os, "statvfs", lambda path: full if str(path).endswith("audit") else stock(path)
    )
    require_wrong(found(), "log", "0 MiB are free", fix="space")


def test_what_could_not_run(doctor, monkeypatch):
    ended = doctor("--role", "wrker")
    assert (ended.code, "Did you mean 'worker'" in ended.err) == (2, True)
    monkeypatch.setattr("safeser.operations.FIRST", (9999, 1))
    ended = doctor()
    assert (ended.code, "config.distributed-version" in ended.err) == (2, True)


# --- the scheduler -------------------------------------------------------------------------------


def test_nothing_listens(found):
    require_wrong(found(NOWHERE, "--timeout=0.3"), "scheduler", "refused", fix="--host")


def test_what_listens_says_nothing(found):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"safeser://127.0.0.1:{server.getsockname()[1]}"
        before = time.monotonic()
        require_wrong(found(address, "--timeout=0.5"), "scheduler", "does not answer within 0.5 s")
        assert time.monotonic() - before < 30


def test_what_listens_speaks_something_else(found):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n".ljust(4096))
                peer.recv(4096)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"safeser://127.0.0.1:{server.getsockname()[1]}"
        result = found(address, "--timeout=30")
        thread.join()
        require_wrong(result, "scheduler", "did not accept each other", fix="safeser://")


@pytest.fixture
def asked(cluster, tmp_path, safeser):
    """Ask the one cluster of the run, as one of its principals."""

    def run(principal, *arguments, **options):
        given = {
            "identity": cluster.keys / f"{principal}.key",
            "policy": cluster.policy,
            "audit": cluster.audit,
            **options,
        }
        words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        ended = safeser("doctor", cluster.address, "--json", "--timeout=30", *words, *arguments)
        return ended.code, {each["check"]: each for each in json.loads(ended.out)}

    yield run
    close_channels_in(cluster.path)
    close_channels_in(tmp_path)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("principal", "role"),
    [("alice", "client"), ("nanny", "nanny")],
)
def test_a_scheduler_that_answers(asked, cluster, principal, role):
    code, found = asked(principal, f"--role={role}")
    assert code == 0, found
    assert f"scheduler answers at {cluster.address}" in found["scheduler"]["what"]
    for check in ("policy there", "clock", "scheduler"):
        assert found[check]["state"] == "fine", found
    # A nanny is granted no question about versions.
    assert found["versions there"]["state"] == ("note" if principal == "nanny" else "fine"), found
    assert cluster.address in found["bound there"]["what"]


@pytest.mark.cluster
def test_a_stranger_is_not_accepted(asked, folder):
    result = asked("alice", identity=folder.keys / "alice.key", audit=folder.audit)
    require_wrong(result, "scheduler", "did not accept each other", "alice", fix="rosters")
    close_channels_in(folder.path)


@pytest.mark.cluster
def test_another_principal_than_expected(asked):
    require_wrong(asked("alice", expected_scheduler="worker"), "scheduler", fix="worker")
    assert asked("alice", expected_scheduler="scheduler")[0] == 0


@pytest.mark.cluster
def test_a_policy_that_differs_is_noted(asked, cluster, tmp_path):
    from safeser.policy.ready import locate

    copy = tmp_path / "demo.yaml"
    copy.write_text(locate("demo").read_text().replace("revision: 1", "revision: 2", 1))
    code, found = asked("alice", policy=copy)
    assert code == 0
    assert found["policy there"]["state"] == "note"
    assert "revision 1" in found["policy there"]["what"]


# --- what a scheduler says of itself, honest or not ----------------------------------------------

MINE = {name: diagnosis._own_version(name) for name in diagnosis._PACKAGES}
PYTHON = ".".join(map(str, sys.version_info))
DENIED = PolicyDenied("viewer may not ask for versions")


def told(**packages):
    return {"host": {"python": PYTHON}, "packages": {**MINE, **packages}}


@pytest.mark.parametrize(
    ("answer", "state", "says"),
    [
        (told(), "fine", "the same as here"),
        (told(numpy="1.0"), "note", "other than here: numpy 1.0"),
        (told(distributed="2020.1"), "wrong", "distributed 2020.1"),
        ({**told(), "host": {"python": "2.7.1.final.0"}}, "note", "Python 2.7.1"),
        *((each, "note", "") for each in (None, 3, {}, {"packages": 1}, {"host": []})),
        ({"packages": {"numpy": "x" * 10**6}}, "note", ""),
        # A grant is missing, or no answer comes.
        (DENIED, "note", f"not told: {DENIED.message}"),
        (TimeoutError(), "note", "not told: TimeoutError"),
    ],
)
def test_versions(answer, state, says):
    [found] = diagnosis._compared(answer)
    assert (found.state, bool(found.fix)) == (state, state == "wrong")
    assert says in found.what
    assert len(found.what) < 300


def test_a_grant_that_is_missing_is_noted():
    assert [each.state for each in diagnosis._announced(DENIED, NOWHERE)] == ["note"]
    assert diagnosis._clock(DENIED).state == "note"


@pytest.mark.parametrize(
    ("identity", "state", "says"),
    [
        ({"started": 0.0, "workers": {}}, "fine", "started before"),
        ({"started": 10.0}, "fine", "is the same"),
        ({"started": 500.0}, "wrong", "500 s ahead"),
        ({"started": 0.0, "workers": {"a": {"last_seen": -2.0}}}, "fine", "the same"),
        (
            {"workers": {"a": {"last_seen": -90.0}, "b": {"last_seen": -300.0}, "c": 1}},
            "wrong",
            "90 s behind",
        ),
        ({"started": "now", "workers": [1]}, "fine", "started before"),
    ],
)
def test_clocks(monkeypatch, identity, state, says):
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)

    def moved(value):
        if isinstance(value, dict):
            return {name: moved(each) for name, each in value.items()}
        return value + 1_000_000 if type(value) is float else value

    found = diagnosis._clock(moved(identity))
    assert found.state == state
    assert says in found.what
    assert bool(found.fix) is (state == "wrong")


@pytest.mark.parametrize(
    ("identity", "reached", "says"),
    [
        ({"address": "safeser://127.0.0.1:1"}, "safeser://192.0.2.1:1", "the scheduler tells"),
        (
            {"address": "safeser://192.0.2.1:1", "workers": {"safeser://127.0.0.1:5": {}}},
            "safeser://192.0.2.1:1",
            "1 of 1 workers listen on loopback",
        ),
        ({"address": "safeser://127.0.0.1:1", "workers": {"safeser://[::1]:5": {}}}, NOWHERE, ""),
        ({"address": "safeser://localhost:1"}, NOWHERE, ""),
        ({"address": "safeser://192.0.2.1:1", "workers": {"safeser://192.0.2.7:5": 1}}, "x", ""),
        ({"address": 7, "workers": 7, "n_workers": "x"}, NOWHERE, ""),
    ],
)
def test_addresses_that_a_scheduler_names(identity, reached, says):
    [found] = diagnosis._announced(identity, reached)
    assert found.state == ("wrong" if says else "fine")
    assert says in found.what
    assert len(found.what) < 300


def test_an_identity_that_is_none():
    assert list(diagnosis._announced(3, NOWHERE)) == []


Place = namedtuple("Place", "ip port")


class Running:
    """A process as psutil shows it, which listens at *places* and is connected to *peer*."""

    def __init__(self, *words, user=None, places=(), peer=None, pid=7):
        self.pid = pid
        uids = SimpleNamespace(effective=os.geteuid() if user is None else user)
        self.info = {"cmdline": list(words), "uids": uids}
        self._places, self._peer = places, peer

    def children(self, recursive):
        return []

    def net_connections(self, kind):
        if self._places is None:
            raise psutil.NoSuchProcess(self.pid)
        ends = [(place, None, psutil.CONN_LISTEN) for place in self._places]
        ends += [(("127.0.0.1", 9), self._peer, psutil.CONN_ESTABLISHED)] if self._peer else []

        return [
            SimpleNamespace(status=status, laddr=Place(*own), raddr=peer and Place(*peer))
            for own, peer, status in ends
        ]


def test_where_processes_of_one_cluster_listen(monkeypatch):
    ours, remote = ("127.0.0.1", 8786), ("192.0.2.1", 8786)
    running = [
        Running(
            "python", "/x/dask", "worker", "safeser://h:1", places=[("127.0.0.1", 5)], peer=ours
        ),
        Running("/x/dask-scheduler", places=[("127.0.0.1", 8787), ("0.0.0.0", 8786), ("::1", 1)]),
        Running("/x/dask", "worker", places=[("127.0.0.1", 6)], peer=remote, pid=8),
        # Of other clusters, other commands, other users; and one that has just ended.
        Running("/x/dask", "worker", places=[("127.0.0.1", 6)], peer=("127.0.0.1", 8888)),
        Running("/x/dask", "scheduler", places=[("127.0.0.1", 8888)]),
        Running("/x/dask", "ssh", places=[ours]),
        Running("/x/dask", "worker", user=os.geteuid() + 1, places=[ours]),
        Running("vi", "dask.py", places=[ours]),
        Running("/x/dask", "scheduler", places=None),
    ]
    monkeypatch.setattr(psutil, "process_iter", lambda names: iter(running))
    both = [
        (
            "dask-scheduler (pid 7)",
            ["all interfaces, port 8786", "[::1]:1", "127.0.0.1:8787"],
        ),
        ("dask worker (pid 7)", ["127.0.0.1:5"]),
    ]
    assert listening.bound_here("safeser://127.0.0.1:8786") == both
    assert listening.bound_here("safeser://localhost:8786") == both
    assert listening.bound_here("safeser://192.0.2.1:8786") == [
        ("dask worker (pid 8)", ["127.0.0.1:6"])
    ]
    assert listening.bound_here("safeser://no.such.host.invalid:8786") == []


def test_the_process_itself_is_found_by_its_socket(tmp_path):
    """What psutil really says: this test's own process listens, under another name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        places = [
            each.laddr.port for each in listening._sockets(psutil.Process()) if not each.raddr
        ]
        assert server.getsockname()[1] in places


def test_an_answer_that_does_not_come_ends_the_wait(monkeypatch):
    async def never(comm, **request):
        await asyncio.Event().wait()

    monkeypatch.setattr(diagnosis, "send_recv", never)
    asking = Diagnosis("client", {}, seconds=0.01)
    assert isinstance(asyncio.run(asking._answer(None, op="identity")), TimeoutError)
