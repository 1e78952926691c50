"""Files that change under a channel: which are taken, when, and what bad ones change: nothing."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from safeser.channel import LiveFiles
from safeser.identity import Identity, KeyState, Roster, RosterEntry, today


class Place:
    """A folder with identity, policy and roster of one process, and its channel."""

    def __init__(self, doors, folder, policy):
        self.folder = folder
        self.identity = doors.identity("bea")
        self.roster = doors.roster(doors.policy(policy))
        self.roster.save(folder / "roster")
        self.identity.save(folder / "bea.key")
        self.text = policy + "...\n"
        self.policy = folder / "policy.yaml"
        self.policy.write_text(self.text)
        self.channel = doors.channel("bea", self.text)
        self.files = LiveFiles(
            self.channel,
            identity=folder / "bea.key",
            policy=str(self.policy),
            roster=folder / "roster",
        )
        self.look()
        assert self.events == []

    def look(self, times=3):
        for _ in range(times):
            self.files.look()

    def revision(self, number):
        return self.text.replace("revision: 3", f"revision: {number}")

    def put(self, path, data):
        """Replace a file as it should be: whole."""
        new = path.with_name("new")
        new.write_bytes(data if isinstance(data, bytes) else data.encode())
        new.chmod(0o600)
        new.replace(path)

    def roster_without(self, principal):
        listed = Roster(e for e in self.roster.entries if e.principal != principal)
        return listed.text() + listed.closing

    @property
    def events(self):
        return [(e["rule"], e["permitted"]) for e in self.channel.audit.events]


@pytest.fixture
def place(doors, tmp_path, policy):
    return Place(doors, tmp_path, policy)


def test_a_new_policy_is_taken_at_the_first_look_that_finds_it(place):
    place.put(place.policy, place.revision(4))
    place.files.look()
    assert place.channel.policy.revision == 4
    assert place.events == [("policy.adopted", True)]


@pytest.mark.parametrize("name", ["policy.yaml", "roster"])
def test_no_part_of_a_file_is_taken_and_the_whole_file_is(place, name):
    """A policy without its last context, a roster without a key: neither on any look."""
    path = place.folder / name
    whole = place.revision(4) if path == place.policy else place.roster_without("cy")
    before = place.channel.standing
    ends = {at + 1 for at, byte in enumerate(whole.encode()) if byte == ord("\n")}
    for end in sorted({*ends, *range(0, len(whole), 97), len(whole) - 1} - {len(whole)}):
        path.write_text(whole[:end])
        place.look()
        assert place.channel.standing is before
    rule = "policy.unfinished" if path == place.policy else "roster.unfinished"
    assert place.events == [(rule, False)]
    path.write_text(whole)
    place.files.look()
    assert place.events[1:] == [(f"{path.stem}.adopted", True)]


def instead(make):
    """Return what puts something else in the place of the policy."""
    return lambda p: (p.policy.unlink(), make(p.policy))


@pytest.mark.parametrize(
    "spoil",
    [
        instead(lambda path: None),
        instead(os.mkdir),
        instead(os.mkfifo),
        instead(lambda path: path.symlink_to(path)),
        lambda p: (p.put(p.policy, p.revision(4)), p.policy.chmod(0o666)),
        lambda p: p.put(p.policy, b""),
        lambda p: p.put(p.policy, p.revision(4)[:200]),
        lambda p: p.put(p.policy, b"\xff\xfe"),
        lambda p: p.put(p.policy, p.revision(4).replace("safeser: 1", "safeser: 2")),
        lambda p: p.put(p.policy, p.revision(2)),
        lambda p: p.put(p.policy, p.text.replace("name: doors", "name: windows")),
        lambda p: p.put(p.policy, b"#" * (2 << 20)),
    ],
)
def test_a_bad_policy_changes_nothing_is_reported_once_and_the_next_good_one_is_taken(
    place, spoil, caplog
):
    before = place.channel.standing
    spoil(place)
    place.look(8)
    assert place.channel.standing is before
    [(rule, permitted)] = place.events
    assert rule
    assert not permitted
    [told] = [r for r in caplog.records if "nothing changes" in r.message]
    assert rule in told.message
    if place.policy.is_dir():
        place.policy.rmdir()
    place.put(place.policy, place.revision(4))
    place.look()
    assert place.channel.policy.revision == 4
    assert len(place.events) == 2


#: Changes of a roster's text, and the rules.
BAD_ROSTERS = [
    (lambda text: "end 0\n", "roster.empty"),
    (lambda text: "", "roster.unfinished"),
    (lambda text: text.split("\n", 1)[1], "roster.unfinished"),
    (lambda text: "safeser-roster 2\n" + text, "config.roster-version"),
    (lambda text: text.splitlines(True)[0].replace(" ann ", " cy ", 1) + text, "config.roster"),
    (lambda text: text * 40_000, "config.roster"),
]


@pytest.mark.parametrize(("change", "rule"), BAD_ROSTERS)
def test_so_does_a_bad_roster(place, change, rule):
    before, path = place.channel.standing, place.folder / "roster"
    text = path.read_text()
    place.put(path, change(text))
    place.look(8)
    assert place.channel.standing is before
    assert place.events == [(rule, False)]
    place.put(path, text.replace(" cy active", " cy retired"))
    place.look()
    assert place.channel.is_silenced("cy")


def test_a_file_that_grows_without_end_is_read_as_far_as_one_may_be(place, monkeypatch):
    most = []
    reads = os.read

    def read(handle, size):
        data = reads(handle, size)
        most.append(len(data))
        return data

    monkeypatch.setattr(os, "read", read)
    path = place.folder / "roster"
    line = path.read_bytes().splitlines(True)[0]
    for _ in range(6):
        with path.open("ab") as file:
            file.write(line * 20_000)
        place.files.look()
    assert place.events == [("roster.unfinished", False), ("config.roster", False)]
    assert sum(most) < 6 * (5 << 20)


def test_the_way_kubernetes_swaps_a_folder_is_a_change(place):
    mount = place.folder / "mount"
    for version in ("..1", "..2"):
        (mount / version).mkdir(parents=True)
    (mount / "..1" / "policy.yaml").write_text(place.text)
    (mount / "..2" / "policy.yaml").write_text(place.revision(4))
    (mount / "..data").symlink_to("..1")
    (mount / "policy.yaml").symlink_to("..data/policy.yaml")
    files = LiveFiles(
        place.channel,
        identity=place.folder / "bea.key",
        policy=str(mount / "policy.yaml"),
        roster=None,
    )
    files.look()
    (mount / "..new").symlink_to("..2")
    (mount / "..new").rename(mount / "..data")
    files.look()
    assert place.channel.policy.revision == 4


def test_a_change_that_leaves_the_status_as_it_was_is_found_too(place, monkeypatch):
    """Two writes within one tick of the file system's clock, of one size."""
    status = os.stat(place.policy)
    monkeypatch.setattr("safeser.channel.reload.os", SimpleNamespace(stat=lambda path: status))
    place.policy.write_text(place.revision(4))
    place.look(8)
    assert place.channel.policy.revision == 4


def test_relative_paths_mean_what_they_meant_at_the_start(place, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(place.folder)
    from pathlib import Path

    files = LiveFiles(
        place.channel, identity=Path("bea.key"), policy="./policy.yaml", roster=Path("roster")
    )
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    place.put(place.policy, place.revision(4))
    for _ in range(3):
        files.look()
    assert place.channel.policy.revision == 4
    assert place.events == [("policy.adopted", True)]


def test_a_new_key_is_taken_once_the_roster_lists_it(place):
    """In whatever order they come: it is reported, and taken when the roster follows."""
    second = Identity.generate("bea")
    second.save(place.folder / "second.key")
    (place.folder / "second.key").replace(place.folder / "bea.key")
    place.look(6)
    assert place.events == [("identity.unlisted", False)]
    listed = place.roster.with_entry(RosterEntry(second.public, "bea", KeyState.ACTIVE, today()))
    listed.save(place.folder / "roster")
    place.look(4)
    assert place.channel.identity.public == second.public
    assert place.events[1:] == [("roster.adopted", True), ("identity.adopted", True)]


def test_a_change_is_on_its_way_until_it_is_taken_or_refused(place):
    assert place.channel.is_settled
    for revision, rule in ((4, "policy.adopted"), (3, "policy.older")):
        place.put(place.policy, "# \n" + place.revision(revision))
        assert not place.channel.is_settled
        place.files.look()
        assert place.channel.is_settled
        assert place.events[-1][0] == rule
    place.policy.unlink()
    assert not place.channel.is_settled
    place.look()


def files_of(place):
    roster = place.folder / "roster"
    return LiveFiles(
        place.channel, identity=place.folder / "bea.key", policy="default", roster=roster
    )


def test_before_the_first_look_too(place):
    assert files_of(place).are_settled()
    same = place.roster.text() + "# changed since it was loaded\n" + place.roster.closing
    place.put(place.folder / "roster", same)
    assert files_of(place).are_settled()  # it lists what it listed
    ann, *_ = [e for e in place.roster.entries if e.principal == "ann"]
    place.put(place.folder / "roster", ann.text() + "\nend 1\n")
    assert not files_of(place).are_settled()
    (place.folder / "roster").unlink()
    assert files_of(place).are_settled()  # there is nothing to wait for
