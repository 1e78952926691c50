"""``safeser audit``: verification's exit codes, and reading what peers wrote without harm."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from safeser.audit import AuditKey, AuditLog, SessionFacts
from safeser.audit.reading.show import cell
from safeser.cli.audit import moment_of
from tests.audit.registry.forging import DAY, FILES, Folder


def _opened(folder: Path, principal: str, place: str = "audit", **options) -> AuditLog:
    """Begin a log in *folder*, where its key is."""
    if not (folder / "audit.key").exists():
        AuditKey.new().save(folder / "audit.key")
    return AuditLog.open(
        folder / place,
        key=folder / "audit.key",
        principal=principal,
        policy=("p", 1, "0" * 64),
        **options,
    )


@pytest.fixture
def log(tmp_path):
    with _opened(tmp_path, "worker") as opened:
        for number in range(30):
            opened.record({"event": "load", "sender": "alice", "where": f"field-{number}"})
    return opened


# --- verify ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "damaged", "code", "says"),
    [
        ("audit", False, 0, "no problem found"),
        ("audit LOG", False, 0, "audit: "),
        ("audit", True, 1, ".log:"),
        ("audit LOG", True, 1, ".log:"),
        ("audit --expect old", False, 0, ""),
        ("other --expect old", False, 1, "rolled back"),
        ("audit LOG --save-head new", False, 2, ""),
        ("audit --save-head mine", False, 2, ""),
        ("audit --expect mine", False, 2, ""),
        ("audit --expect snowman", False, 2, ""),
        ("audit --expect nowhere", False, 2, ""),
        ("audit --heads mine", False, 2, ""),
        ("audit --heads nowhere", False, 2, ""),
        ("audit --keep-age soon", False, 2, ""),
        ("audit --key nowhere", False, 2, ""),
        ("nowhere", False, 2, ""),
    ],
)
def test_codes_of_verification(safeser, log, tmp_path, monkeypatch, words, damaged, code, says):
    monkeypatch.chdir(tmp_path)
    _opened(tmp_path, "worker", "other").close()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "snowman").write_text("\N{SNOWMAN}")
    key = ("audit", "verify", "--key", "audit.key")
    assert safeser(*key, "audit", "--save-head", "old").code == 0
    if damaged:
        path = Path(log.path)
        path.write_bytes(path.read_bytes().replace(b"field-7", b"field-6"))
    ended = safeser(*key, *words.replace("LOG", log.path).split())
    assert ended.code == code
    assert says in ended.out
    assert ended.err.count("\n") == (code == 2)
    assert code != 2 or ended.err.startswith("safeser: ")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_head_that_could_not_be_written_leaves_no_part_of_it(safeser, log, tmp_path, monkeypatch):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    def full(path, mode="r", **_):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return Full()

    key, head = f"--key={tmp_path / 'audit.key'}", tmp_path / "head"
    monkeypatch.setattr(Path, "open", full)
    ended = safeser("audit", "verify", tmp_path / "audit", key, "--save-head", head)
    assert (ended.code, "No space left" in ended.err) == (2, True)
    assert not head.exists()


# --- tail -----------------------------------------------------------------------------------------


def test_tail_shows_the_newest_last(safeser, log, tmp_path):
    lines = safeser("audit", "tail", tmp_path / "audit", "-n", "3").out.splitlines()
    assert len(lines) == 3
    assert "field-28" in lines[1]
    assert "field-29" in lines[2]
    shown = safeser("audit", "tail", tmp_path / "audit", "--all").out
    assert shown.splitlines()[-1].endswith("worker close")
    assert safeser("audit", "tail", log.path, "--refused").out == ""


def test_tail_shows_what_was_refused_alone_when_asked(safeser, tmp_path):
    with _opened(tmp_path, "scheduler") as opened:
        opened.record({"event": "refuse", "where": "no-1", "permitted": False})
        opened.record({"event": "load", "where": "yes", "permitted": True})
        opened.count("alice", "scheduler", "ping", "permit", True)
        opened.flush()
        opened.count("mallory", "scheduler", "run", "operation.not-granted", False, times=3)
    shown = safeser("audit", "tail", tmp_path / "audit", "--refused").out.splitlines()
    assert len(shown) == 2
    assert "no-1" in shown[0]
    assert "mallory -> scheduler run operation.not-granted x3" in shown[1]


def test_what_is_no_record_is_named_and_left_out(safeser, log, tmp_path):
    folder = tmp_path / "audit"
    (folder / "a\n\x1b[2J.log").write_bytes(b"\x1b[2J no log\n")
    (folder / "notes.txt").write_text("mine")
    later = Path(log.path).read_bytes().replace(b'"version":2', b'"version":9')
    (folder / "later-1-2.log").write_bytes(later)
    with open(log.path, "ab") as file:
        file.write(b'nonsense\n{"mac":"00')
    ended = safeser("audit", "tail", folder)
    assert ended.code == 0
    assert "field-29" in ended.out
    assert "\x1b" not in ended.out + ended.err
    named = ended.err.splitlines()
    assert len(named) == 5
    for text in (
        "first line is no record",
        "notes.txt: it is no file",
        "version 9",
        ", line 33: a",
    ):
        assert any(text in line for line in named), (text, named)
    assert "its last line is not whole" in named[-1]


def test_tail_prints_what_peers_wrote_as_plain_text(safeser, tmp_path):
    with _opened(tmp_path, "worker") as opened:
        opened.record({"event": "load", "operation": "\x1b[2J[red]x[/red]\n:boom:"})
    out = safeser("audit", "tail", tmp_path / "audit").out
    assert "\x1b" not in out
    assert "[red]x[/red]" in out


def test_follow_shows_the_end_then_what_is_new_and_ends_cleanly(tmp_path):
    opened = _opened(tmp_path, "worker")
    place = str(tmp_path / "audit")
    for number in range(5):
        opened.record({"event": "load", "where": f"old-{number}"})
    opened.flush()
    # A shell ignores SIGINT in what it runs in the background, and children inherit that.
    command = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from safeser.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, "audit", "tail", place, "-n", "2", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        assert "old-3" in tail.stdout.readline()
        assert "old-4" in tail.stdout.readline()
        opened.record({"event": "load", "where": "new"})
        opened.flush()
        assert "new" in tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        assert tail.stderr.read() == ""
        assert tail.wait(timeout=30) == 130
    opened.close()


# --- query ----------------------------------------------------------------------------------------

HOSTILE = '=HYPERLINK("http://x")\x1b[2J\r\n<script>alert(1)</script>\u202e'


@pytest.fixture
def asked(tmp_path, safeser):
    """Two logs in two folders, and what asks them."""
    admit = {
        **{"event": "admit", "sender": "alice", "recipient": "scheduler", "family": "sealed"},
        **{"operation": "update-graph", "author": "alice", "rule": "permit", "permitted": True},
    }
    refuse = {**admit, "event": "refuse", "sender": "bob", "permitted": False}
    one = SessionFacts("aa", {"peer": "alice", "address": "10.0.0.7:99", "key": "abcd-efgh"})
    two = SessionFacts("bb", {"peer": "bob", "address": "10.0.0.8:99", "key": "ijkl-mnop"})
    for place, clock in (("one", 1_795_000_000), ("two", 1_795_000_060)):
        ticks = lambda clock=clock: clock * 10**9  # noqa: E731
        with _opened(tmp_path, f"scheduler-{place}", place, clock=ticks) as log:
            log.record_all(
                [
                    {**admit, "session": one, "message": 3, "task": f"t-{place}"},
                    {**refuse, "session": two, "rule": "pickle.global", "global": "os:system"},
                    {**refuse, "session": two, "rule": "context.none", "family": "cloudpickle"},
                    {**admit, "sender": "worker", "author": "carol", "operation": HOSTILE[:100]},
                ]
            )
            log.count("worker", "scheduler", "heartbeat", "permit", True, times=7)
            log.count("unknown", "scheduler", "handshake", "authentication", False, times=4)

    def ask(*options):
        ended = safeser("audit", "query", tmp_path / "one", tmp_path / "two", *options)
        told = "" if ended.out or "--format" in options else "safeser: no record matches\n"
        assert (ended.code, ended.err) == (0, told)
        return ended.out

    return ask


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], 10),
        (["--all"], 20),
        (["--outcome", "refused"], 6),
        (["--outcome", "permitted"], 4),
        (["--rule", "context.none", "--rule", "pickle.global"], 4),
        (["--principal", "alice"], 2),
        (["--author", "alice", "--principal", "bob"], 4),
        (["--peer", "10.0.0.8"], 4),
        (["--peer", "abcd-efgh"], 2),
        (["--global", "os:system"], 2),
        (["--global", "os:syste"], 0),
        (["--task", "t-one"], 1),
        (["--family", "cloudpickle"], 2),
        (["--operation", "handshake"], 2),
        (["--since", "2026-11-18T11:07"], 5),
        (["--until", "2026-11-18T11:07"], 5),
        (["--until", "2026-11-18T11:07:40Z", "--since", "2026-11-18T11:06:41"], 0),
    ],
)
def test_a_query_answers_exactly(asked, options, lines):
    assert len(asked(*options).splitlines()) == lines


def test_json_lines_have_every_field_in_the_order_of_time(asked):
    lines = [json.loads(line) for line in asked("--format", "jsonl").splitlines()]
    times = [each["time"] for each in lines]
    assert (times, len(set(times))) == (sorted(times), 2)
    (found,) = [each for each in lines if each.get("task") == "t-one"]
    names = ("decision", "address", "key", "policy", "log")
    assert [found[name] for name in names] == [
        *("aa-3", "10.0.0.7:99", "abcd-efgh", "p/1/0000000000000000", "scheduler-one")
    ]


def test_csv_holds_no_formula_and_no_line_of_a_peer(asked):
    text = asked("--format", "csv")
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) == 11
    assert len({len(row) for row in rows}) == 1
    assert not [cell for row in rows for cell in row if cell[:1] in tuple("=+-@\t\r")]
    assert "'=HYPERLINK" in text
    assert all(32 <= ord(char) < 127 or char == "\n" for char in text)


@pytest.mark.parametrize(
    "text",
    [
        *("=1+1", "  =1+1", "x;=1+1", "x; =1+1", 'x;"=1+1', 'x;""=1+1', 'x,y;"=1+1', '";=1+1'),
        *("x|@SUM(A1)", "x;-2+3;+4", "x;\t=1+1", '"=1+1'),
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_no_cell_is_a_formula_whatever_separates_cells(text, separator):
    """A spreadsheet of many locales reads a file of commas as one of semicolons."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(["first", cell(text), "last"])
    (cells,) = csv.reader([written.getvalue()], delimiter=separator)
    assert not [each for each in cells if each.lstrip(' "').startswith(tuple("=+-@\t\r"))]
    (cells,) = csv.reader([written.getvalue()])
    assert cells[1].replace("'", "").startswith(text.replace("\t", "\\t")[:3])


def test_control_characters_show_as_escapes_in_the_table(asked):
    text = asked("--author", "carol")
    assert "\\x1b[2J\\r\\n<script>" in text
    assert "\x1b" not in text


def test_counts_are_as_many_as_they_say(asked):
    lines = asked("--outcome", "refused", "--by", "rule", "--format", "csv").splitlines()
    assert [line.split(",")[:2] for line in lines] == [
        ["count", "rule"],
        ["8", "authentication"],
        ["2", "context.none"],
        ["2", "pickle.global"],
    ]
    assert "authentication" in asked("--outcome", "refused", "--by", "rule", "--by", "log")
    found = map(json.loads, asked("--by", "rule", "--format", "jsonl", "--all").splitlines())
    assert {each["rule"]: each["count"] for each in found}["permit"] == 18


@pytest.mark.parametrize("text", ["1 fortnight", "tomorrow", "99999999d", "2026-13-01", "x" * 99])
def test_what_names_no_moment_is_refused(safeser, log, tmp_path, text):
    ended = safeser("audit", "query", tmp_path / "audit", "--since", text)
    assert ended.code == 2
    assert "30m" in ended.err
    assert ended.err.count("\n") == 1


def test_moments():
    now = datetime(2026, 11, 26, 20, 30, tzinfo=UTC)

    def at(text):
        return datetime.fromtimestamp(moment_of(text, now=now) / 1e6, UTC)

    assert at("90s") == now - timedelta(seconds=90)
    assert at("2w") == now - timedelta(weeks=2)
    assert at("yesterday") == datetime(2026, 11, 25, tzinfo=UTC)
    assert at("today") == datetime(2026, 11, 26, tzinfo=UTC)
    assert at("2026-11-26T20:00+01:00") == datetime(2026, 11, 26, 19, tzinfo=UTC)


def test_a_report_is_one_page(safeser, log, tmp_path):
    (tmp_path / "audit" / "x.log").write_text("<b>\n")
    ended = safeser("audit", "report", tmp_path / "audit", "-o", tmp_path / "page.html")
    assert ended.code == 0
    assert ended.err.count("skipped") == 1
    text = (tmp_path / "page.html").read_text()
    assert text.startswith("<!doctype html>")
    assert "x.log" in text
    ended = safeser("audit", "report", tmp_path / "audit", "-o", tmp_path / "no" / "page.html")
    assert ended.code == 2


def test_a_removal_against_a_head_is_a_problem_unless_the_reader_knows_the_rule(safeser, tmp_path):
    folder = Folder(tmp_path / "home")
    initial, head = tmp_path / "initial.key", tmp_path / "head"
    folder.initial.save(initial)
    folder.now = 1_700_000_000
    folder.closed("alice")
    verify = ("audit", "verify", folder.place, "--key", initial)
    assert safeser(*verify, "--save-head", head).code == 0
    folder.now += 91 * DAY
    folder.tidy(replace(FILES, keep_age=90 * DAY))
    assert safeser(*verify).code == 0
    ended = safeser(*verify, "--expect", head)
    assert (ended.code, "removed file" in ended.out) == (1, True)
    assert safeser(*verify, "--expect", head, "--keep-age", "91d").code == 0
    assert safeser(*verify, "--expect", head, "--keep-age", "92d").code == 1


def test_a_moving_key_and_heads_in_a_second_place(safeser, tmp_path):
    machine, auditor, kept = tmp_path / "audit.key", tmp_path / "initial.key", tmp_path / "heads"
    made = safeser("audit", "moving-key", machine, "--auditor", auditor)
    assert (made.code, made.err) == (0, "")
    assert machine.stat().st_mode & 0o077 == auditor.stat().st_mode & 0o077 == 0
    place = tmp_path / "audit"
    with AuditLog.open(place, key=machine, principal="worker") as log:
        log.record({"event": "load", "sender": "alice"})
        kept.write_text(f"Nov 27 host safeser: {log.head()}\n")
    ended = safeser("audit", "verify", place, "--key", auditor, "--heads", kept, "--processes", "0")
    assert (ended.code, ended.err) == (0, "")
    moved = safeser("audit", "verify", place, "--key", machine)
    assert moved.code == 2
    assert "initial key" in moved.err
    kept.write_text(kept.read_text()[:-20] + "0" * 19 + "\n")
    ended = safeser("audit", "verify", place, "--key", auditor, "--heads", kept)
    assert ended.code == 1
    assert "rolled back" in ended.out


def test_a_moving_key_replaces_no_file(safeser, tmp_path):
    machine, auditor = tmp_path / "audit.key", tmp_path / "initial.key"
    machine.write_text("mine")
    assert safeser("audit", "moving-key", machine, "--auditor", auditor).code == 2
    assert machine.read_text() == "mine"
    assert not auditor.exists()
