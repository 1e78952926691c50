"""``safeser keys add``, ``rotate`` and ``retire``: what a roster holds afterwards, and refusals.

The one rule of all: what is refused changes neither the roster nor the folder.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
import threading
from typing import NamedTuple

import pytest

from safeser.errors import ConfigError
from safeser.gate.key_pairs import PublicKey
from safeser.identity import Identity, KeyState, Roster, RosterEntry, today
from safeser.identity.edit import RosterFile

POLICY = """
safeser: 1
name: own
revision: 1
principals: {scheduler: {}, boss: {}, worker: {}, dave: {}}
contexts:
  - name: register
    sender: worker
    recipient: [scheduler, boss]
    operations: {grant: [basic, cluster]}
  - {name: look, sender: dave, recipient: scheduler, operations: {grant: [basic]}}
...
"""
BROKEN = f"ed25519:{'A' * 43}"


def listed(keys, principal):
    return [e for e in Roster.load(keys / "roster").entries if e.principal == principal]


def states(keys, principal):
    """Return each line of a principal as its state, with a sign for what else it has."""
    return " ".join(
        f"{entry.state.value}{'+' if entry.verifying else ''}"
        f"{f'<{entry.not_after}' if entry.not_after else ''}"
        for entry in listed(keys, principal)
    )


def key():
    return Identity.generate("x").public.text


@pytest.fixture
def command(safeser, keys, tmp_path, monkeypatch):
    """Run one command on the roster; return what it printed, or refused with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(POLICY)
    dora, other = Identity.generate("client"), Identity.generate("client")
    dora.save(tmp_path / "dora.key")
    client, worker = (Identity.load(keys / f"{name}.key") for name in ("client", "worker"))
    names = {
        **{"X": key(), "Y": key(), "BOTH": dora.public_text, "QUOTED": f"'{dora.public_text}'"},
        **{"PUBLIC": dora.public.text, "OTHER": other.verifying.text, "OWN": "--policy=own.yaml"},
        **{"CLIENT": client.public.text, "CLIENT_PRINT": client.public.fingerprint},
        **{"SIGNING": client.verifying.text, "SIGNING_PRINT": client.verifying.fingerprint},
        **{"CLIENT_BOTH": client.public_text, "CLIENT_QUOTED": f"'{client.public_text}'"},
        **{"WORKERS": worker.verifying.text, "WORKER": worker.public.fingerprint},
    }

    def run(text, rule=""):
        word, *rest = (names.get(each, each) for each in text.split(" "))
        before = (keys / "roster").read_bytes(), sorted(os.listdir(keys)), os.listdir(tmp_path)
        ended = safeser("keys", word, keys, *shlex.split(" ".join(rest)))
        if rule:
            assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
            assert (f"[{rule}]" if "." in rule else rule) in ended.err, ended.err
            after = (keys / "roster").read_bytes(), sorted(os.listdir(keys)), os.listdir(tmp_path)
            assert after == before
            return ended.err
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    run.names, run.dora = names, dora
    return run


class Row(NamedTuple):
    """Commands, each with the rule by which it is refused, and lines of a principal afterwards."""

    commands: list[str | tuple[str, str]]
    principal: str
    states: str


CLIENT = "--principal client"
WORKER = "--principal worker"
TO_2999 = "--until 2999-01-01"

ROWS = [
    # --- add ---
    Row([f"add X {CLIENT} --not-after 2999-01-01"], "client", "active+ active<2999-01-01"),
    Row(
        [
            ("add X --principal dave", "roster.unknown-principal"),
            ("add X --principal davee OWN", "'dave'"),
            "add X --principal dave OWN",
        ],
        "dave",
        "active",
    ),
    Row([f"add X {CLIENT} --pending"], "client", "active+ pending"),
    Row(
        [f"add X {CLIENT} --pending", f"add X {CLIENT}", (f"add X {CLIENT}", "roster.duplicate")],
        "client",
        "active+ active",
    ),
    *(
        Row([f"{verb} {words} {CLIENT}"], "client", f"active+ active{signing}")
        for verb in ("add", "rotate")
        for words, signing in (("BOTH", "+"), ("QUOTED", "+"), ("dora.key", "+"), ("PUBLIC", ""))
    ),
    Row(
        [
            f"add BOTH {CLIENT} --pending",
            (f"add PUBLIC OTHER {CLIENT}", "roster.signing"),
            f"add PUBLIC {CLIENT}",
        ],
        "client",
        "active+ active+",
    ),
    # --- rotate ---
    Row(["rotate new.key --principal nanny"], "nanny", "active+ active+"),
    Row(
        [f"rotate X {WORKER} --until 2998-01-01", f"rotate Y {WORKER} {TO_2999}"],
        "worker",
        "active+<2998-01-01 active<2999-01-01 active",
    ),
    Row([f"rotate X {WORKER}"], "worker", "active+ active"),
    # --- verify-only ---
    Row(
        [
            f"rotate X {WORKER}",
            "retire --verify-only keys/worker.key",
            f"rotate Y {WORKER} {TO_2999}",
        ],
        "worker",
        "verify-only+<2999-01-01 active<2999-01-01 active",
    ),
    Row(
        [
            f"add BOTH {CLIENT}",
            f"add X {CLIENT} --pending",
            f"retire --verify-only {CLIENT}",
            (f"retire --verify-only {CLIENT}", "roster.unknown-principal"),
        ],
        "client",
        "verify-only+ verify-only+ pending",
    ),
    Row(
        # From retired or pending it would make signatures verify that do not.
        [
            f"add BOTH {CLIENT} --pending",
            "retire keys/nanny.key",
            "retire keys/worker.key --verify-only",
            ("retire --verify-only PUBLIC", "roster.state"),
            ("retire --verify-only keys/nanny.key", "roster.state"),
            ("retire --verify-only keys/worker.key", "roster.state"),
            (f"add keys/worker.key {WORKER}", "opens no sessions again"),
        ],
        "client",
        "active+ pending+",
    ),
    Row(
        [f"add X {CLIENT}", ("retire --verify-only X", "roster.signing"), "retire X"],
        "client",
        "active+ retired",
    ),
    Row([("retire --verify-only keys/scheduler.key", "roster.last-key")], "scheduler", "active+"),
    # --- retire ---
    *(
        Row([f"retire {name}", (f"retire {name}", "roster.retired")], "client", "retired+")
        for name in ("CLIENT", "CLIENT_PRINT", "keys/client.key", "CLIENT_BOTH", "CLIENT_QUOTED")
    ),
    Row(["retire SIGNING"], "client", "retired+"),
    Row(["retire SIGNING_PRINT"], "client", "retired+"),
    Row(
        [
            f"add X {CLIENT}",
            f"add Y {CLIENT} --pending",
            f"retire {CLIENT}",
            (f"retire {CLIENT}", "roster.unknown-principal"),
        ],
        "client",
        "retired+ retired retired",
    ),
    Row(
        [
            ("retire --principal scheduler", "roster.last-key"),
            ("retire keys/scheduler.key", "roster.last-key"),
            "rotate X --principal scheduler",
            "retire keys/scheduler.key",
        ],
        "scheduler",
        "retired+ active",
    ),
    Row(
        # The policy says who else is a scheduler.
        [
            "add X --principal boss OWN",
            ("retire --principal boss OWN", "roster.last-key"),
            f"retire {WORKER} OWN",
        ],
        "boss",
        "active",
    ),
    # --- what is refused ---
    *(
        Row([(command, rule)], "client", "active+")
        for command, rule in (
            (f"add x25519:AAAA {CLIENT}", "config.key"),
            (f"add no-such.key {CLIENT}", "config.identity"),
            (f"add X {CLIENT} --not-after 2001-01-01", "roster.dates"),
            (f"add X {CLIENT} --not-before 1.1.2027", "config.roster"),
            (f"add X {CLIENT} --not-before 2999-02-01 --not-after 2999-01-01", "config.roster"),
            (f"add keys/worker.key {CLIENT}", "roster.principal"),
            (f"add keys/worker.key {WORKER}", "roster.duplicate"),
            # Somebody offers another's signing key as his own.
            (f"add X WORKERS {CLIENT}", "signing key"),
            (f"add X WORKERS {WORKER}", "signing key"),
            ("rotate new.key --principal dave", "roster.no-key"),
            (f"rotate new.key {WORKER} --until 2001-01-01", "roster.dates"),
            (f"rotate keys/nanny.key {WORKER}", "roster.principal"),
            ("retire", "roster.unknown-key"),
            ("retire X", "roster.unknown-key"),
            ("retire aaaa-bbbb-cccc-dddd", "roster.unknown-key"),
            (f"retire X {CLIENT}", "roster.unknown-key"),
            ("retire --principal cleint", "roster.unknown-principal"),
        )
    ),
    *(
        Row([(f"{verb} {words} {CLIENT}", "config.key")], "client", "active+")
        for verb in ("add", "rotate")
        for words in (
            *("X ed25519:AAAA", f"X {BROKEN}", "X OTHER OTHER", "X Y", "OTHER X", "OTHER"),
            "keys/client.key OTHER",
        )
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.commands[-1]))
def test_what_a_roster_holds_afterwards(command, keys, row):
    for each in row.commands:
        command(*([each] if isinstance(each, str) else each))
    assert states(keys, row.principal) == row.states


def test_fingerprints_are_shown_to_compare_with_what_the_owner_reads_out(command, keys):
    out = command(f"add BOTH {CLIENT} --comment laptop")
    assert command.dora.public.fingerprint in out
    assert command.dora.verifying.fingerprint in out
    assert listed(keys, "client")[1].text().endswith(" laptop")
    assert Roster.load(keys / "roster").author_of(command.dora.verifying) == "client"
    assert "signing key  none" in command(f"add X {CLIENT}")
    assert command("retire SIGNING").count("is retired") == 1


def test_rotate_makes_a_key_for_its_owner_alone(command, keys, tmp_path):
    out = command(f"rotate new.key --principal scheduler {TO_2999}")
    old, new = listed(keys, "scheduler")
    made = Identity.load(tmp_path / "new.key")
    assert (made.public, made.verifying) == (new.public, new.verifying)
    assert stat.S_IMODE((tmp_path / "new.key").stat().st_mode) == 0o600
    assert old.public.fingerprint in out


# --- the file ------------------------------------------------------------------------------------


def test_comments_order_and_rights_are_kept(safeser, keys):
    path = keys / "roster"
    *lines, end = path.read_text().splitlines()
    text = "# the team\n\n" + "\n# and\n".join(lines) + f"\n# the end\n{end}\n"
    path.write_text(text)
    path.chmod(0o640)
    assert safeser("keys", "retire", keys, str(keys / "client.key")).code == 0
    assert path.read_text() == text.replace("client active", "client retired")
    assert safeser("keys", "add", keys, key(), "--principal", "client").code == 0
    *kept, added, end = path.read_text().splitlines(True)
    assert "".join([*kept, "end 4\n"]) == text.replace("client active", "client retired")
    assert " client active " in added
    assert end == "end 5\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(p.name for p in keys.iterdir() if p.name.startswith(".")) == []


def test_a_link_stays_a_link(safeser, keys, tmp_path):
    (keys / "roster").rename(tmp_path / "real")
    (keys / "roster").symlink_to(tmp_path / "real")
    assert safeser("keys", "retire", keys, str(keys / "client.key")).code == 0
    assert (keys / "roster").is_symlink()
    assert listed(keys, "client")[0].state is KeyState.RETIRED


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("nonsense", "line 1"),
        ("full", "No space left"),
        ("rename", "Permission denied"),
        ("locked", "roster.locked"),  # for which one needs no more than to list the folder
    ],
)
def test_a_roster_that_cannot_be_changed_stays(command, keys, monkeypatch, fault, says):
    def failing(*given, **options):
        raise OSError(28, "No space left") if fault == "full" else OSError(13, "Permission denied")

    handle = os.open(keys, os.O_RDONLY)
    if fault == "nonsense":
        (keys / "roster").write_text("nonsense\n" + (keys / "roster").read_text())
    elif fault == "locked":
        monkeypatch.setattr("safeser.identity.files._PAUSE", 0.0)
        fcntl.flock(handle, fcntl.LOCK_EX)
    else:
        call = "safeser.identity.files.write_new" if fault == "full" else "pathlib.Path.replace"
        monkeypatch.setattr(call, failing)
    command("retire keys/client.key", says)
    os.close(handle)
    if fault == "locked":
        command("retire keys/client.key")


def test_a_roster_that_was_cut_off_is_not_changed_and_check_closes_it(safeser, keys):
    """Another command would write a closing line below what is left of it."""
    path = keys / "roster"
    whole = path.read_text()
    *lines, _ = whole.splitlines(True)
    for text in ("".join(lines), "".join(lines[:2]), "".join([*lines[:2], "end 4\n"])):
        path.write_text(text)
        for command in (("retire", keys, str(keys / "client.key")), ("check", keys)):
            ended = safeser("keys", *command)
            assert (ended.code, "[roster.unfinished]" in ended.err) == (2, True)
        assert path.read_text() == text
        count = text.count("x25519:")
        fixed = safeser("keys", "check", "--fix", keys)
        assert (fixed.code, f"{path}: fine, {count} keys" in fixed.out) == (0, True)
        assert path.read_text() == "".join(lines[:count]) + f"end {count}\n"
    path.write_text(whole[:-20])
    ended = safeser("keys", "check", "--fix", keys)
    assert (ended.code, "its last line may be cut off" in ended.err) == (2, True)
    assert path.read_text() == whole[:-20]


def test_commands_at_the_same_time_lose_nothing(keys):
    path = keys / "roster"

    def add(number):
        for _ in range(5):
            with RosterFile.edit(path) as file:
                entry = RosterEntry(
                    PublicKey.parse(key()), "client", KeyState.ACTIVE, today(), f"{number}"
                )
                file.add(entry)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(listed(keys, "client")) == 21


def test_the_path_to_the_roster_is_judged_before_it_is_followed(keys, tmp_path):
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name).symlink_to(tmp_path / other)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "link").symlink_to(keys / "roster")
    for path in (tmp_path / "one", open_to_all / "link", tmp_path / "a\0b"):
        with pytest.raises(ConfigError), RosterFile.edit(path):
            raise AssertionError("it was followed")


def test_a_roster_is_not_written_longer_than_it_can_be_read(keys, monkeypatch):
    path = keys / "roster"
    monkeypatch.setattr("safeser.identity.roster._ROSTER_MAX_BYTES", path.stat().st_size + 200)
    entry = RosterEntry(PublicKey.parse(key()), "client", KeyState.ACTIVE, today(), "\u4e00" * 90)
    with (
        pytest.raises(ConfigError, match="too large"),
        RosterFile.edit(path) as file,
    ):
        file.add(entry)
    Roster.load(path)
