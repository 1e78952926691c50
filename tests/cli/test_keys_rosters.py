"""``safeser keys add``, ``rotate`` and ``retire``: what a roster holds afterwards, and refusals."""

from __future__ import annotations

import fcntl
import os
import stat
import threading

import pytest

from safeser.errors import ConfigError
from safeser.identity import Identity, KeyState, PublicKey, Roster, RosterEntry, RosterFile, today
from safeser.identity.roster import parse_date

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
"""


def listed(keys, principal):
    return [e for e in Roster.load(keys / "roster").entries if e.principal == principal]


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(f"{POLICY}...\n")
    return path


def key():
    return Identity.generate("x").public.text


# --- add -----------------------------------------------------------------------------------------


def test_add_lists_a_key_of_a_known_principal(safeser, keys):
    text = key()
    ended = safeser(
        *("keys", "add", keys, text, "--principal", "client", "--not-after", "2999-01-01"),
        *("--comment", "second laptop"),
    )
    assert (ended.code, ended.err) == (0, "")
    entry = listed(keys, "client")[1]
    assert (entry.public.text, entry.state) == (text, KeyState.ACTIVE)
    assert entry.text().endswith("not_after=2999-01-01 second laptop")
    assert entry.public.fingerprint in ended.out


def test_a_new_principal_needs_the_policy_that_lists_it(safeser, keys, policy):
    refused = safeser("keys", "add", keys, key(), "--principal", "dave")
    assert refused.code == 2
    assert "[roster.unknown-principal]" in refused.err
    assert "--policy" in refused.err or "Known here" in refused.err
    refused = safeser("keys", "add", keys, key(), "--principal", "davee", "--policy", policy)
    assert "'dave'" in refused.err
    assert safeser("keys", "add", keys, key(), "--principal", "dave", "--policy", policy).code == 0
    assert len(listed(keys, "dave")) == 1


def test_a_pending_key_is_let_in_by_adding_it_again(safeser, keys):
    text = key()
    arguments = ("keys", "add", keys, text, "--principal", "client")
    assert safeser(*arguments, "--pending").code == 0
    assert listed(keys, "client")[1].state is KeyState.PENDING
    assert safeser(*arguments).code == 0
    assert listed(keys, "client")[1].state is KeyState.ACTIVE
    refused = safeser(*arguments)
    assert refused.code == 2
    assert "[roster.duplicate]" in refused.err


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["x25519:AAAA", "--principal", "client"], "config.key"),
        (["no-such.key", "--principal", "client"], "config.identity"),
        (["KEY", "--principal", "client", "--not-after", "2001-01-01"], "roster.dates"),
        (["KEY", "--principal", "client", "--not-before", "1.1.2027"], "config.roster"),
        (["KEYS/worker.key", "--principal", "client"], "roster.principal"),
        (["KEYS/worker.key", "--principal", "worker"], "roster.duplicate"),
        (
            [
                "KEY",
                "--principal",
                "client",
                "--not-before",
                "2999-02-01",
                "--not-after",
                "2999-01-01",
            ],
            "config.roster",
        ),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(safeser, keys, arguments, rule):
    before = (keys / "roster").read_bytes()
    said = [each.replace("KEYS", str(keys)).replace("KEY", key()) for each in arguments]
    ended = safeser("keys", "add", keys, *said)
    assert ended.code == 2
    assert f"[{rule}]" in ended.err
    assert ended.err.count("\n") == 1
    assert (keys / "roster").read_bytes() == before


# --- signing keys --------------------------------------------------------------------------------


@pytest.fixture
def dora():
    return Identity.generate("client")


@pytest.mark.parametrize("words", [str.split, lambda text: [text]])
@pytest.mark.parametrize("command", ["add", "rotate"])
def test_public_keys_are_one_quoted_argument_or_two_words(safeser, keys, dora, command, words):
    ended = safeser("keys", command, keys, *words(dora.public_text), "--principal", "client")
    assert (ended.code, ended.err) == (0, "")
    assert dora.public.fingerprint in ended.out
    assert dora.verifying.fingerprint in ended.out  # to compare with what its owner reads out
    assert Roster.load(keys / "roster").author_of(dora.verifying) == "client"


def test_a_key_file_lists_its_signing_key_too(safeser, keys, dora, tmp_path):
    dora.save(tmp_path / "dora.key")
    assert safeser("keys", "add", keys, tmp_path / "dora.key", "--principal", "client").code == 0
    assert Roster.load(keys / "roster").author_of(dora.verifying) == "client"


def test_an_x25519_key_alone_is_listed_without_one(safeser, keys, dora):
    ended = safeser("keys", "add", keys, dora.public.text, "--principal", "client")
    assert ended.code == 0
    assert "signing key  none" in ended.out
    assert listed(keys, "client")[1].verifying is None


def test_rotate_makes_and_lists_a_signing_key(safeser, keys, tmp_path):
    safeser("keys", "rotate", keys, tmp_path / "new.key", "--principal", "worker")
    made = Identity.load(tmp_path / "new.key")
    assert Roster.load(keys / "roster").author_of(made.verifying) == "worker"


OTHER = Identity.generate("x").verifying.text


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["KEY", "ed25519:AAAA"], "config.key"),
        (["KEY", f"ed25519:{'A' * 43}"], "config.key"),
        (["KEY", OTHER, OTHER], "config.key"),
        (["KEY", "KEY"], "config.key"),
        ([OTHER, "KEY"], "config.key"),
        ([OTHER], "config.key"),  # which names no file to be made
        (["KEYS/client.key", OTHER], "config.key"),
    ],
)
@pytest.mark.parametrize("command", ["add", "rotate"])
def test_other_words_are_refused(safeser, keys, tmp_path, monkeypatch, command, words, rule):
    monkeypatch.chdir(tmp_path)
    before = (keys / "roster").read_bytes()
    said = [each.replace("KEYS", str(keys)).replace("KEY", key()) for each in words]
    ended = safeser("keys", command, keys, *said, "--principal", "client")
    assert (ended.code, f"[{rule}]" in ended.err) == (2, True), ended.err
    assert (keys / "roster").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


@pytest.mark.parametrize("whose", ["client", "worker"])
def test_a_signing_key_is_not_listed_twice(safeser, keys, whose):
    """Also not by somebody who offers another's as his own."""
    taken = Identity.load(keys / "worker.key").verifying.text
    before = (keys / "roster").read_bytes()
    ended = safeser("keys", "add", keys, key(), taken, "--principal", whose)
    assert (ended.code, "signing key" in ended.err) == (2, True)
    assert (keys / "roster").read_bytes() == before


def test_a_pending_key_is_let_in_with_the_signing_key_that_was_checked(safeser, keys, dora):
    add = ("keys", "add", keys)
    assert safeser(*add, dora.public_text, "--principal", "client", "--pending").code == 0
    before = (keys / "roster").read_bytes()
    ended = safeser(*add, dora.public.text, OTHER, "--principal", "client")
    assert (ended.code, "[roster.signing]" in ended.err) == (2, True)
    assert (keys / "roster").read_bytes() == before
    assert Roster.load(keys / "roster").author_of(dora.verifying) is None
    assert safeser(*add, dora.public.text, "--principal", "client").code == 0
    assert Roster.load(keys / "roster").author_of(dora.verifying) == "client"


# --- verify-only ---------------------------------------------------------------------------------


def test_a_rotated_key_opens_no_sessions_and_its_signatures_verify_until_its_day(
    safeser, keys, tmp_path
):
    old = Identity.load(keys / "worker.key")
    safeser(
        *("keys", "rotate", keys, tmp_path / "new.key", "--principal", "worker"),
        *("--until", "2999-01-01"),
    )
    ended = safeser("keys", "retire", keys, "--verify-only", keys / "worker.key")
    assert (ended.code, ended.out) == (0, f"{old.public.fingerprint} is verify-only\n")
    roster = Roster.load(keys / "roster")
    assert roster.principal_of(old.public) is None
    assert roster.author_of(old.verifying) == "worker"
    assert roster.author_of(old.verifying, on=parse_date("2999-01-02")) is None
    assert safeser("keys", "retire", keys, old.public.fingerprint).code == 0
    assert Roster.load(keys / "roster").author_of(old.verifying) is None


def test_a_later_rotation_gives_verify_only_keys_a_last_day_too(safeser, keys):
    safeser("keys", "rotate", keys, key(), "--principal", "worker")
    safeser("keys", "retire", keys, "--verify-only", keys / "worker.key")
    safeser("keys", "rotate", keys, key(), "--principal", "worker", "--until", "2999-01-01")
    assert [str(e.not_after) for e in listed(keys, "worker")] == [
        "2999-01-01",
        "2999-01-01",
        "None",
    ]


def test_all_active_keys_of_a_principal_become_verify_only(safeser, keys, dora):
    pending = Identity.generate("client")
    safeser("keys", "add", keys, dora.public_text, "--principal", "client")
    safeser("keys", "add", keys, pending.public_text, "--principal", "client", "--pending")
    command = ("keys", "retire", keys, "--verify-only", "--principal", "client")
    assert safeser(*command).code == 0
    states = [e.state for e in listed(keys, "client")]
    assert states == [KeyState.VERIFY_ONLY, KeyState.VERIFY_ONLY, KeyState.PENDING]
    assert Roster.load(keys / "roster").author_of(pending.verifying) is None
    refused = safeser(*command)
    assert (refused.code, "[roster.unknown-principal]" in refused.err) == (2, True)


def test_a_key_is_not_brought_back_as_verify_only(safeser, keys, dora):
    """From retired or pending it would make signatures verify that do not."""
    safeser("keys", "add", keys, dora.public_text, "--principal", "client", "--pending")
    safeser("keys", "retire", keys, keys / "nanny.key")
    safeser("keys", "retire", keys, keys / "worker.key", "--verify-only")
    before = (keys / "roster").read_bytes()
    for name in (dora.public.text, keys / "nanny.key", keys / "worker.key"):
        refused = safeser("keys", "retire", keys, "--verify-only", name)
        assert (refused.code, "[roster.state]" in refused.err) == (2, True)
    added = safeser("keys", "add", keys, keys / "worker.key", "--principal", "worker")
    assert (added.code, "opens no sessions again" in added.err) == (2, True)
    assert (keys / "roster").read_bytes() == before


def test_a_key_without_a_signing_key_has_nothing_to_verify(safeser, keys):
    text = key()
    safeser("keys", "add", keys, text, "--principal", "client")
    refused = safeser("keys", "retire", keys, "--verify-only", text)
    assert (refused.code, "[roster.signing]" in refused.err) == (2, True)
    assert "without --verify-only" in refused.err


def test_the_last_key_of_the_scheduler_does_not_become_verify_only(safeser, keys):
    refused = safeser("keys", "retire", keys, "--verify-only", keys / "scheduler.key")
    assert (refused.code, "[roster.last-key]" in refused.err) == (2, True)
    assert listed(keys, "scheduler")[0].state is KeyState.ACTIVE


@pytest.mark.parametrize("named", ["both", "quoted", "signing key", "its fingerprint"])
def test_retire_takes_a_line_by_its_signing_key(safeser, keys, named):
    client = Identity.load(keys / "client.key")
    names = {
        "both": client.public_text.split(),
        "quoted": [client.public_text],
        "signing key": [client.verifying.text],
        "its fingerprint": [client.verifying.fingerprint],
    }
    ended = safeser("keys", "retire", keys, *names[named])
    assert (ended.code, ended.out.count("is retired")) == (0, 1)
    assert listed(keys, "client")[0].state is KeyState.RETIRED


# --- rotate --------------------------------------------------------------------------------------


def test_rotate_makes_a_key_and_lists_it_beside_the_old_one(safeser, keys, tmp_path):
    ended = safeser(
        *("keys", "rotate", keys, tmp_path / "new.key", "--principal", "scheduler"),
        *("--until", "2999-01-01"),
    )
    assert ended.code == 0
    old, new = listed(keys, "scheduler")
    assert str(old.not_after) == "2999-01-01"
    assert (new.state, new.not_after) == (KeyState.ACTIVE, None)
    assert Identity.load(tmp_path / "new.key").public == new.public
    assert stat.S_IMODE((tmp_path / "new.key").stat().st_mode) == 0o600
    assert old.public.fingerprint in ended.out


def test_rotate_takes_a_key_that_was_made_elsewhere(safeser, keys):
    text = key()
    assert safeser("keys", "rotate", keys, text, "--principal", "worker").code == 0
    assert [e.public.text for e in listed(keys, "worker")][1] == text
    assert listed(keys, "worker")[0].not_after is None


def test_a_date_that_is_earlier_already_stays(safeser, keys):
    for day in ("2998-01-01", "2999-01-01"):
        assert (
            safeser("keys", "rotate", keys, key(), "--principal", "worker", "--until", day).code
            == 0
        )
    days = [str(e.not_after) for e in listed(keys, "worker")]
    assert days == ["2998-01-01", "2999-01-01", "None"]


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["new.key", "--principal", "dave"], "roster.no-key"),
        (["new.key", "--principal", "worker", "--until", "2001-01-01"], "roster.dates"),
        (["KEYS/nanny.key", "--principal", "worker"], "roster.principal"),
    ],
)
def test_what_cannot_rotate_leaves_roster_and_folder_as_they_are(
    safeser, keys, tmp_path, monkeypatch, arguments, rule
):
    monkeypatch.chdir(tmp_path)
    before = (keys / "roster").read_bytes(), sorted(os.listdir(keys))
    ended = safeser("keys", "rotate", keys, *(a.replace("KEYS", str(keys)) for a in arguments))
    assert (ended.code, f"[{rule}]" in ended.err) == (2, True), ended.err
    assert ((keys / "roster").read_bytes(), sorted(os.listdir(keys))) == before
    assert not (tmp_path / "new.key").exists()


# --- retire --------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["text", "fingerprint", "file"])
def test_retire_takes_a_key_by_any_of_its_names(safeser, keys, named):
    [entry] = listed(keys, "client")
    names = {
        "text": entry.public.text,
        "fingerprint": entry.public.fingerprint,
        "file": str(keys / "client.key"),
    }
    ended = safeser("keys", "retire", keys, names[named])
    assert ended.code == 0
    assert listed(keys, "client")[0].state is KeyState.RETIRED
    assert entry.public.fingerprint in ended.out
    refused = safeser("keys", "retire", keys, names[named])
    assert "[roster.retired]" in refused.err


def test_retire_takes_all_keys_of_a_principal(safeser, keys):
    safeser("keys", "add", keys, key(), "--principal", "client")
    safeser("keys", "add", keys, key(), "--principal", "client", "--pending")
    assert safeser("keys", "retire", keys, "--principal", "client").code == 0
    assert {e.state for e in listed(keys, "client")} == {KeyState.RETIRED}
    assert (
        "[roster.unknown-principal]" in safeser("keys", "retire", keys, "--principal", "client").err
    )


def test_the_last_key_of_the_scheduler_stays_until_another_is_listed(safeser, keys):
    [entry] = listed(keys, "scheduler")
    for arguments in (["--principal", "scheduler"], [entry.public.fingerprint]):
        refused = safeser("keys", "retire", keys, *arguments)
        assert (refused.code, "[roster.last-key]" in refused.err) == (2, True)
    assert listed(keys, "scheduler")[0].state is KeyState.ACTIVE
    safeser("keys", "rotate", keys, key(), "--principal", "scheduler")
    assert safeser("keys", "retire", keys, entry.public.fingerprint).code == 0


def test_the_policy_says_who_else_is_a_scheduler(safeser, keys, policy):
    safeser("keys", "add", keys, key(), "--principal", "boss", "--policy", policy)
    refused = safeser("keys", "retire", keys, "--principal", "boss", "--policy", policy)
    assert "[roster.last-key]" in refused.err
    assert safeser("keys", "retire", keys, "--principal", "worker", "--policy", policy).code == 0


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ([], "roster.unknown-key"),
        (["KEY"], "roster.unknown-key"),
        (["aaaa-bbbb-cccc-dddd"], "roster.unknown-key"),
        (["KEY", "--principal", "client"], "roster.unknown-key"),
        (["--principal", "cleint"], "roster.unknown-principal"),
    ],
)
def test_what_is_not_there_is_not_retired(safeser, keys, arguments, rule):
    before = (keys / "roster").read_bytes()
    ended = safeser("keys", "retire", keys, *(a.replace("KEY", key()) for a in arguments))
    assert (ended.code, f"[{rule}]" in ended.err) == (2, True), ended.err
    assert (keys / "roster").read_bytes() == before


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


def test_a_folder_that_cannot_be_written_is_one_line(safeser, keys, monkeypatch):
    def full(path, data, *, mode):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safeser.identity.files.write_new", full)
    before = (keys / "roster").read_bytes()
    ended = safeser("keys", "retire", keys, str(keys / "client.key"))
    assert (ended.code, "No space left" in ended.err) == (2, True)
    assert (keys / "roster").read_bytes() == before


def test_one_that_cannot_be_renamed_leaves_nothing_behind(keys, monkeypatch):
    def denied(self, target):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.replace", denied)
    with (
        pytest.raises(ConfigError, match="Permission denied"),
        RosterFile.edit(keys / "roster") as file,
    ):
        file.retire(Identity.load(keys / "client.key").public)
    assert not [p for p in keys.iterdir() if p.name.startswith(".")]


def test_a_roster_that_does_not_load_is_not_changed(safeser, keys):
    path = keys / "roster"
    path.write_text("nonsense\n" + path.read_text())
    ended = safeser("keys", "retire", keys, str(keys / "client.key"))
    assert (ended.code, "line 1" in ended.err) == (2, True)


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


def test_a_folder_that_another_user_keeps_locked_is_one_line(safeser, keys, monkeypatch):
    """To lock it, one needs no more than to list it."""
    monkeypatch.setattr("safeser.identity.edit._PAUSE", 0.0)
    handle = os.open(keys, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    ended = safeser("keys", "retire", keys, str(keys / "client.key"))
    assert (ended.code, "[roster.locked]" in ended.err) == (2, True)
    os.close(handle)
    assert safeser("keys", "retire", keys, str(keys / "client.key")).code == 0


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


def test_many_keys_are_changed_by_reading_each_line_once(keys, monkeypatch):
    path = keys / "roster"
    workers = [PublicKey.parse(key()) for _ in range(20)]
    entries = [RosterEntry(each, "worker", KeyState.ACTIVE, today()) for each in workers]
    Roster(entries).save(path)
    read = []
    parse = RosterEntry.parse
    monkeypatch.setattr(RosterEntry, "parse", lambda line: read.append(line) or parse(line))
    with RosterFile.edit(path) as file:
        read.clear()
        file.end("worker", last_day=today(), keep=workers[0])
        file.retire(*workers[1:])
        assert len(read) == 4 * len(workers)  # each change: to find its lines, and to check it
    states = [entry.state for entry in Roster.load(path).entries]
    assert states == [KeyState.ACTIVE, *[KeyState.RETIRED] * 19]


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


def test_list_shows_days_and_the_hash(safeser, keys):
    safeser("keys", "rotate", keys, key(), "--principal", "worker", "--until", "2999-01-01")
    out = safeser("keys", "list", keys).out
    assert "2999-01-01" in out
    assert Roster.load(keys / "roster").sha256 in out
