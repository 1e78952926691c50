"""A roster says whose key a key is, once, and lists nobody by accident."""

from __future__ import annotations

import datetime
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.key_pairs import PrivateKey
from safeser.identity import KeyState, Roster, RosterEntry, SigningKey
from tests.refusal import refusal

DAY = datetime.date(2026, 1, 31)


def key(number):
    return PrivateKey.from_bytes(bytes([number]) * 32).public


def signing(number):
    return SigningKey.from_bytes(bytes([number]) * 32).public


def entry(number, principal, state="active", comment="", **more):
    return RosterEntry(key(number), principal, KeyState(state), DAY, comment, **more)


K1, K2 = key(1).text, key(2).text
S1, S2 = signing(1).text, signing(2).text
TEXT = f"""\
# who may speak
{K1} alice active 2026-01-31 laptop of Alice

{K2}\t worker  retired 2026-01-31
{key(3).text} worker pending 2026-01-31
{key(4).text} worker active 2026-01-31 node 4
"""

entries_strategy = st.lists(
    st.builds(
        RosterEntry,
        st.integers(1, 40).map(key),
        st.sampled_from(["alice", "bob", "worker.1"]),
        st.sampled_from(KeyState),
        st.dates(),
        st.text(max_size=20).map(str.strip).filter(str.isprintable),
        verifying=st.none() | st.integers(1, 200).map(signing),
    ),
    max_size=10,
    unique_by=(lambda one: one.public, lambda one: one.verifying or one.public),
)


def test_example():
    roster = Roster.parse(TEXT, "here")
    assert len(roster) == 4
    assert roster.entries[0] == entry(1, "alice", comment="laptop of Alice")
    assert roster.principal_of(key(1)) == "alice"
    assert roster.principal_of(key(2)) is None  # retired
    assert roster.principal_of(key(3)) is None  # pending
    assert roster.principal_of(key(9)) is None  # unlisted
    assert roster.keys_of("worker") == (key(4),)
    assert roster.keys_of("nobody") == ()
    assert repr(roster) == "Roster(4 keys, 2 active)"


@given(entries_strategy)
def test_round_trip(entries):
    roster = Roster(entries)
    again = Roster.parse(roster.text())
    assert again == roster
    assert hash(again) == hash(roster)
    assert again.text() == roster.text()


STATES = "pending, active, verify-only or retired"

#: Lines, and what is said of them.
BAD = [
    ("alice active 2026-01-31", "a roster line is"),
    (f"{K1} alice active", "a roster line is"),
    (f"{K1} {S1} alice active", "a roster line is"),
    (f"{K1} {S1}", "a roster line is"),
    (f"x25519:AAAA alice active {DAY}", "not a public key"),
    (f"x25519:{'A' * 43} alice active {DAY}", "not the public key"),
    (f"{S1} {K1} alice active {DAY}", "not a public key"),
    (f"{S1} alice active {DAY}", "not a public key"),
    (f"{K1} al/ice active {DAY}", "principal"),
    (f"{K1} alice Active {DAY}", STATES),
    (f"{K1} alice revoked {DAY}", STATES),
    (f"{K1} {S1} alice verify_only {DAY}", STATES),
    (f"{K1} {S1} {S1} alice active {DAY}", STATES),
    (f"{K1} alice {S1} active {DAY}", STATES),
    (f"{K1} alice active 2026-1-31", "written like"),
    (f"{K1} alice active 20260131", "written like"),
    (f"{K1} alice active 2026-02-30", "written like"),
    (f"{K1} alice active 0000-01-01", "written like"),
    (f"{K1} alice active {DAY} a\x1b[31mb", "printable"),
    (f"{K1} alice active {DAY} a\u2028{K2} mallory active {DAY}", "printable"),
    (f"{K1} alice active {DAY} {'c' * 201}", "printable"),
    (f"{K2} alice active {DAY}", "listed twice"),
    (f"{K2} bob active {DAY}", "listed for alice and bob"),
    (f"{K2} bob retired {DAY}", "listed for alice and bob"),
    (f"{K1} {S2} alice active {DAY}", "signing key .* of alice is listed twice"),
    (f"{K1} {S2} alice retired {DAY}", "signing key .* of alice is listed twice"),
    (f"{K1} {S2} bob active {DAY}", "signing key .* is listed for alice and bob"),
    (f"{K1} {S2} bob pending {DAY}", "signing key .* is listed for alice and bob"),
    (f"{K1} {K1} alice active {DAY}", "not the public half of a signing key"),
    (f"{K1} ed25519:{'A' * 43} alice active {DAY}", "not the public half of any signing key"),
    (f"{K1} ed25519:AAAA alice active {DAY}", "not the public half of a signing key"),
    (f"{K1} ed25519: alice active {DAY}", "not the public half of a signing key"),
]


@pytest.mark.parametrize(("line", "said"), BAD)
def test_a_bad_line_is_named(line, said):
    with pytest.raises(ConfigError, match=said) as caught:
        Roster.parse(f"{K2} {S2} alice active {DAY}\n# a comment\n{line}\n", "team.roster")
    assert (caught.value.where, caught.value.rule) == ("team.roster line 3", "config.roster")


@given(st.text(max_size=200))
def test_any_text(text):
    for candidate in (text, f"{K1} alice active {DAY} {text}", f"{K1} {text}", f"{K1} {S1} {text}"):
        try:
            roster = Roster.parse(candidate)
        except ConfigError:
            continue
        assert {one.principal for one in roster.entries} <= {"alice"}


def test_entries_check_themselves():
    for principal, comment in (("alice", " a"), ("alice", "a "), ("no name\n", "")):
        with pytest.raises(ConfigError):
            entry(1, principal, comment=comment)


def test_too_many(monkeypatch):
    monkeypatch.setattr("safeser.identity.roster._ROSTER_MAX_ENTRIES", 2)
    with pytest.raises(ConfigError, match="at most 2"):
        Roster([entry(number, "alice") for number in range(1, 4)])


def test_with_entry():
    roster = Roster([entry(1, "alice")])
    more = roster.with_entry(entry(2, "alice", "pending"))
    assert (len(roster), more.keys_of("alice")) == (1, (key(1),))
    active = more.with_entry(entry(2, "alice"))
    assert active.keys_of("alice") == (key(1), key(2))
    assert active.with_entry(entry(1, "alice", "retired")).keys_of("alice") == (key(2),)
    other = Roster([entry(1, "bob", "retired")])
    for refuses in (lambda: active.with_entry(other.entries[0]), lambda: active.merged(other)):
        with pytest.raises(ConfigError, match="alice and bob"):
            refuses()


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("active", "active", "active"),
        ("active", "pending", "pending"),
        ("active", "retired", "retired"),
        ("pending", "retired", "retired"),
        ("active", "verify-only", "verify-only"),
        ("pending", "verify-only", "pending"),
        ("verify-only", "retired", "retired"),
    ],
)
def test_merged_takes_the_more_careful_state(one, two, both):
    a, b = Roster([entry(1, "alice", one)]), Roster([entry(1, "alice", two), entry(2, "bob")])
    for merged in (a.merged(b), b.merged(a)):
        assert {item.public: item.state.value for item in merged.entries} == {
            key(1): both,
            key(2): "active",
        }


def test_save_and_load(tmp_path):
    path = tmp_path / "roster"
    path.write_text("old")
    roster = Roster.parse(TEXT)
    roster.save(path)
    assert Roster.load(path) == Roster.load(str(path)) == roster
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]
    link = tmp_path / "link"
    link.symlink_to(path)  # a roster is public and may be mounted through links
    assert Roster.load(link) == roster


def test_a_failed_save_leaves_the_old_roster(tmp_path, monkeypatch):
    path = tmp_path / "roster"
    Roster([entry(1, "alice")]).save(path)

    def broken(*_):
        raise OSError(5, "Input/output error")

    for target in ("os.fsync", "os.replace"):
        with monkeypatch.context() as patch:
            patch.setattr(target, broken)
            with pytest.raises(ConfigError, match="cannot be written"):
                Roster().save(path)
        assert Roster.load(path).keys_of("alice") == (key(1),)
        assert list(tmp_path.iterdir()) == [path]


def refused(path, *words):
    with refusal(ConfigError, "config.roster") as caught:
        Roster.load(path)
    for word in (os.path.basename(path), *words):
        assert word in str(caught.value)


def test_files_that_are_none(tmp_path, monkeypatch):
    refused(tmp_path / "none", "does not exist", "Correct the path, or", "safeser keys init")
    refused(tmp_path, "not a regular file")
    path = tmp_path / "roster"
    path.write_bytes(b"\xff\xfe\n")
    path.chmod(0o600)
    refused(path, "UTF-8")
    monkeypatch.setattr("safeser.identity.roster._ROSTER_MAX_BYTES", 10)
    path.write_bytes(b"#" * 11)
    refused(path, "too large")
    with pytest.raises(ConfigError, match="too large"):
        Roster.parse("#" * 11)


def unfinished(path):
    with refusal(ConfigError, "roster.unfinished") as caught:
        Roster.load(path)
    assert str(path) in caught.value.message
    assert f"'safeser keys check --fix {path}'" in caught.value.fix


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_no_part_of_a_roster_from_its_beginning_loads(tmp_path, line_break):
    """What is missing could be the day on which a key ends, or that it is retired."""
    path = tmp_path / "roster"
    roster = Roster([entry(number, "alice") for number in range(1, 13)])
    whole = (roster.text() + roster.closing).replace("\n", line_break).encode()
    path.write_bytes(whole)
    assert Roster.load(path) == roster
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        unfinished(path)


@pytest.mark.parametrize(
    ("end", "where"),
    [
        *((end, "last") for end in ("end 1", "end 3", "end 02", "end 2 ", "End 2", "", "# end 2")),
        ("end 2", "first"),
    ],
)
def test_its_last_line_is_the_number_of_its_keys(tmp_path, end, where):
    path = tmp_path / "roster"
    text = Roster([entry(1, "alice"), entry(2, "bob")]).text()
    path.write_text(f"{text}{end}\n" if where == "last" else f"{end}\n{text}")
    unfinished(path)


def test_a_file_that_is_written_to_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """Its last line would be of the new content, and what was read before of the old one."""
    path = tmp_path / "roster"
    Roster([entry(1, "alice")]).save(path)
    reads = os.read

    def read(handle, size):
        data = reads(handle, size)
        os.utime(path, ns=(0, 0))
        return data

    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read)
        refused(path, "was written to while it was read", "Try again.")
    assert Roster.load(path).keys_of("alice") == (key(1),)


def test_a_text_needs_no_closing_line_and_one_that_it_has_is_right():
    text = Roster([entry(1, "alice")]).text()
    assert Roster.parse(text) == Roster.parse(f"{text}end 1\n")
    for wrong in (f"{text}end 2\n", f"end 1\n{text}end 1\n", f"{text}end 1\nend 1\n"):
        with pytest.raises(ConfigError):
            Roster.parse(wrong)


# --- signing keys --------------------------------------------------------------------------------


def test_a_line_may_list_a_signing_key_behind_the_key():
    text = f"{K1} {S1} alice active {DAY} not_after={DAY} laptop of Alice\n{K2} bob active {DAY}\n"
    roster = Roster.parse(text)
    one, two = roster.entries
    assert (one.verifying, one.principal, one.comment) == (signing(1), "alice", "laptop of Alice")
    assert one.keys == (key(1), signing(1))
    assert (two.verifying, two.keys) == (None, (key(2),))
    assert roster.text() == text
    assert roster.entry_of(signing(1)) is roster.entry_of(key(1)) is one
    assert roster.entry_of(signing(2)) is None
    assert roster.sha256 != Roster.parse(text.replace(S1 + " ", "")).sha256


@pytest.mark.parametrize(
    ("state", "speaks", "verifies"),
    [
        ("active", True, True),
        ("verify-only", False, True),
        ("pending", False, False),
        ("retired", False, False),
    ],
)
def test_what_a_key_stands_for_in_each_state(state, speaks, verifies):
    roster = Roster([entry(1, "alice", state, verifying=signing(1))])
    assert roster.principal_of(key(1)) == ("alice" if speaks else None)
    assert roster.keys_of("alice") == ((key(1),) if speaks else ())
    assert roster.author_of(signing(1)) == ("alice" if verifies else None)


@pytest.mark.parametrize("state", ["active", "verify-only"])
@pytest.mark.parametrize(("days", "verifies"), [(-1, False), (0, True), (1, True), (2, False)])
def test_signatures_verify_on_the_days_of_the_line(state, days, verifies):
    one = datetime.timedelta(1)
    listed = entry(1, "alice", state, not_before=DAY, not_after=DAY + one, verifying=signing(1))
    author = Roster([listed]).author_of(signing(1), on=DAY + days * one)
    assert author == ("alice" if verifies else None)


@pytest.mark.parametrize("principal", ["alice", "bob"])
@pytest.mark.parametrize("state", KeyState)
def test_a_signing_key_listed_twice(principal, state):
    one = Roster([entry(1, "alice", verifying=signing(1))])
    two = entry(2, principal, state.value, verifying=signing(1))
    for refuses in (lambda: one.with_entry(two), lambda: one.merged(Roster([two]))):
        with pytest.raises(ConfigError, match=r"signing key .* listed"):
            refuses()


def test_merged_keeps_the_signing_key_that_one_of_the_two_lists():
    one = Roster([entry(1, "alice")])
    two = Roster([entry(1, "alice", "verify-only", verifying=signing(1))])
    for merged in (one.merged(two), two.merged(one), two.merged(two)):
        assert merged.author_of(signing(1)) == "alice"
        assert merged.principal_of(key(1)) is None
    other = Roster([entry(1, "alice", verifying=signing(2))])
    with pytest.raises(ConfigError, match="two signing keys"):
        two.merged(other)
