"""``safeser keys``: what is written, with which rights, and what is refused."""

from __future__ import annotations

import stat
import subprocess
import textwrap
from pathlib import Path

import pytest

from safeser import ConfigError
from safeser.audit import AuditKey
from safeser.gate.key_pairs import PrivateKey
from safeser.identities import make_identities
from safeser.identity import Identity, Roster
from safeser.identity.secret import Secret
from safeser.policy import Policy

NAMES = ("scheduler", "worker", "nanny", "client")


def secrets_of(path):
    """Return the private bytes of a key file, as it spells them."""
    found = [line.split()[-1] for line in path.read_text().splitlines() if " " in line]
    return found if path.name == "audit.key" else found[1:]  # the first names the principal


def test_init_makes_identities_that_the_roster_lists_and_shows_no_secret(safeser, tmp_path):
    folder = tmp_path / "new" / "keys"
    ended = safeser("keys", "init", folder)
    assert (ended.code, ended.err) == (0, "")
    roster = Roster.load(folder / "roster")
    assert len(roster) == 4
    for name in NAMES:
        identity = Identity.load(folder / f"{name}.key")
        assert identity.principal == name
        assert roster.principal_of(identity.public) == name
        assert roster.author_of(identity.verifying) == name
        assert identity.public.fingerprint in ended.out
    AuditKey.load(folder / "audit.key")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        secrets = secrets_of(path)
        assert len(secrets) == (1 if path.name == "audit.key" else 2)
        assert not any(secret in ended.out for secret in secrets)
    lines = ended.out.splitlines()
    assert {"export DASK_SAFESER__POLICY=default", f"export KEYS={folder}"} <= set(lines)
    assert all(len(line) <= 80 or line.endswith(".") for line in lines if "KEYS=" not in line)
    assert "The keys and audit.key are readable by you alone" in " ".join(ended.out.split())


def test_the_lines_work_in_a_shell_whatever_the_folder_is_called(safeser, tmp_path):
    folder = tmp_path / "a b; $(touch ran)'"
    out = safeser("keys", "init", folder).out
    script = "\n".join(line for line in out.splitlines() if line.startswith("export "))
    ended = subprocess.run(
        ["bash", "-c", f'{script}\necho "$DASK_SAFESER__POLICY:$DASK_SAFESER__AUDIT"'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == f"default:{folder / 'audit'}\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("users", "policy"),
    [(("alice", "bob"), "./team.yaml"), (("zoe",), "./team.yaml"), (("client",), "default")],
)
def test_init_names_the_policy_of_one_person_or_ones_own(safeser, tmp_path, users, policy):
    ended = safeser("keys", "init", tmp_path / "keys", "--principals", ",".join(users))
    assert ended.code == 0
    assert f"DASK_SAFESER__POLICY={policy}" in ended.out
    assert (tmp_path / "keys" / "client.key").exists() == ("client" in users)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["full"], "is not empty"),
        (["full/file"], "cannot be used"),
        (["new", "--principals=worker"], "worker would get two identities"),
        *(
            (["new", f"--principals={name}"], "")
            for name in ("../worker", "a b", "", "a,", "x" * 65, "-x")
        ),
    ],
)
def test_init_refuses_before_it_writes(safeser, tmp_path, words, says):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    ended = safeser("keys", "init", tmp_path / words[0], *words[1:])
    assert ended.code == 2
    assert ended.err.startswith("safeser: ")
    assert says in ended.err
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "file"]


def test_init_refuses_a_folder_that_somebody_else_made_first(safeser, tmp_path, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: tmp_path.stat().st_uid + 1)
    ended = safeser("keys", "init", tmp_path)
    assert (ended.code, "belongs to another user" in ended.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_init_refuses_a_path_with_a_nul():
    with pytest.raises(ConfigError, match="cannot be used"):
        make_identities(Path("a\0b"), ["ann"])


def test_a_failed_init_leaves_no_key_behind(safeser, tmp_path, monkeypatch):
    def broken(self, path):
        raise ConfigError("the disk is full")

    monkeypatch.setattr(Roster, "save", broken)
    assert safeser("keys", "init", tmp_path / "keys").code == 2
    assert list((tmp_path / "keys").iterdir()) == []


def test_new_shows_the_line_that_a_roster_takes(safeser, tmp_path):
    ended = safeser("keys", "new", "dora", "--file", tmp_path / "dora.key")
    assert ended.code == 0
    (line,) = (each[13:] for each in ended.out.splitlines() if each.startswith("roster line  "))
    identity = Identity.load(tmp_path / "dora.key")
    assert Roster.parse(line).principal_of(identity.public) == "dora"
    assert Roster.parse(line).author_of(identity.verifying) == "dora"
    for said in (identity.public.fingerprint, identity.verifying.fingerprint):
        assert said in ended.out
    assert f"public keys  {identity.public.text} {identity.verifying.text}\n" in ended.out
    assert not any(secret in ended.out for secret in secrets_of(tmp_path / "dora.key"))
    log_key = tmp_path / "audit.key"
    assert str(log_key) in ended.out
    before = AuditKey.load(log_key)
    ended = safeser("keys", "new", "emil", "--file", tmp_path / "emil.key")
    assert "log key" not in ended.out
    assert AuditKey.load(log_key).secret == before.secret


BACKSLASH = "\\"

TEAM = """safeser: 1
name: team
revision: 1
extends: dask-cluster
principals: {carol: {groups: [engineers]}, alice: {groups: [viewers]}}
...
"""


def test_one_command_says_all_that_a_new_person_needs(safeser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(TEAM)
    out = safeser("keys", "new", "bob", "--group", "viewers", "--policy", "./team.yaml").out
    assert "bob may send to" in out
    assert "operations: look, get_task_stream, profile" in out
    lines = [line.strip() for line in out.splitlines()]
    assert "bob: {groups: [viewers]}" in lines
    at = next(n for n, line in enumerate(lines) if line.startswith("safeser keys add ROSTER "))
    (tmp_path / "team.yaml").write_text(
        TEAM.replace("principals: {", "principals: {bob: {groups: [viewers]}, ")
    )
    words = f"{lines[at].removesuffix(BACKSLASH)} {lines[at + 1]}".split()[1:]
    words[2] = "roster"
    # As it is printed; a roster that is there knows no bob, and the policy does.
    make_identities(tmp_path / "keys", ["alice"])
    (tmp_path / "keys" / "roster").rename("roster")
    assert safeser(*words).code == 0
    assert Roster.load("roster").principal_of(Identity.load("bob.key").public) == "bob"
    monkeypatch.setenv("DASK_SAFESER__POLICY", "./team.yaml")
    out = safeser("keys", "new", "bob", "--file", "second.key").out
    assert "bob may send to" in out
    assert "Put this under 'principals'" not in out


def test_who_joins_a_ready_policy_is_shown_a_file_that_extends_it(safeser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = safeser("keys", "new", "bob", "--group", "viewers", "--policy", "dask-cluster").out
    text = out.partition("as in ./team.yaml:\n")[2].partition("...\n")[0]
    (tmp_path / "team.yaml").write_text(textwrap.dedent(f"{text}...\n"))
    assert "bob" in Policy.load("./team.yaml").principals
    assert "DASK_SAFESER__POLICY=./team.yaml" in out


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--group", "viewrs"], "config.undefined"),
        (["--policy", "./none.yaml"], "config.file"),
    ],
)
def test_a_person_of_no_group_gets_no_key(safeser, tmp_path, monkeypatch, words, rule):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.yaml").write_text(TEAM)
    ended = safeser("keys", "new", "bob", "--policy", "./team.yaml", *words)
    assert ended.code == 2
    assert f"[{rule}]" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["team.yaml"]


@pytest.mark.parametrize("suffix", ["", "roster"])
def test_list_takes_the_folder_or_the_roster(safeser, keys, suffix):
    ended = safeser("keys", "list", keys / suffix)
    assert ended.code == 0
    rows = [line.split() for line in ended.out.splitlines()[2:-1]]
    assert [row[0] for row in rows] == list(NAMES)
    assert {row[2] for row in rows} == {"active"}


def test_list_names_states_days_the_hash_and_what_has_no_signing_key(safeser, keys):
    roster = keys / "roster"
    lines = roster.read_text().splitlines()
    key, _, rest = lines[1].split(" ", 2)
    lines[1] = f"{key} {rest} not_before=2026-01-01 not_after=2999-01-01 node 4"
    lines[2] = lines[2].replace("active", "verify-only")
    roster.write_text("\n".join(lines) + "\n")
    out = safeser("keys", "list", keys).out
    assert out.count("no signing key") == 1
    for said in ("verify-only", "2999-01-01", Roster.load(roster).sha256):
        assert said in out
    assert all(len(line) <= 80 for line in out.splitlines())
    for entry in Roster.load(roster).entries:
        assert entry.public.fingerprint in out  # whole, to be copied


def test_fingerprint_shows_the_public_half_only(safeser, keys):
    ended = safeser("keys", "fingerprint", keys / "worker.key")
    identity = Identity.load(keys / "worker.key")
    for said in (identity.public.fingerprint, identity.verifying.fingerprint, identity.public_text):
        assert said in ended.out
    assert not any(secret in ended.out for secret in secrets_of(keys / "worker.key"))


def test_a_key_file_without_a_signing_key_says_so(safeser, tmp_path):
    identity = Identity("dora", PrivateKey.from_bytes(bytes(32)))
    identity.save(tmp_path / "old.key")
    out = safeser("keys", "fingerprint", tmp_path / "old.key").out
    assert "signing key  none\n" in out
    assert "ed25519" not in out
    line = out.splitlines()[-1].removeprefix("roster line  ")
    assert Roster.parse(line).principal_of(identity.public) == "dora"


@pytest.mark.parametrize(
    ("words", "mode", "says"),
    [
        ("fingerprint worker.key", 0o660, "chmod 600"),
        ("fingerprint worker.key", 0o644, "chmod 600"),
        ("fingerprint roster", 0o600, "safeser keys list"),  # it need not be hidden
        ("new worker.key worker --file", 0o600, "exists already"),
    ],
)
def test_a_key_that_is_refused_stays_as_it_is(safeser, keys, words, mode, says):
    verb, name, *options = words.split()
    before = (keys / name).read_bytes()
    (keys / name).chmod(mode)
    ended = safeser("keys", verb, *options, keys / name)
    assert (ended.code, says in ended.err) == (2, True)
    assert ("chmod" in ended.err) is (mode != 0o600)
    assert (keys / name).read_bytes() == before


def test_secret_makes_a_file_that_is_never_shown_or_overwritten(safeser, tmp_path):
    path = tmp_path / "team secret"
    ended = safeser("keys", "secret", path)
    assert (ended.code, ended.err) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made = Secret.load(path)
    assert made.fingerprint in ended.out
    assert f"export SAFESER_SECRET='{path}'" in ended.out
    assert path.read_text().split()[-1] not in ended.out
    again = safeser("keys", "secret", path)
    assert (again.code, again.out) == (2, "")
    assert "exists already" in again.err
    assert Secret.load(path).id == made.id
