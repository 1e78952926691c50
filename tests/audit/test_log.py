from __future__ import annotations

import errno
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from safeser.audit import AuditKey, AuditLog, read, verify
from safeser.audit import index as index_module
from safeser.audit import log as log_module
from safeser.errors import AuditError, ConfigError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}
REFUSE = {"event": "refuse", "sender": "bob", "rule": "policy.family", "permitted": False}


def records(log: AuditLog, kind: str = "event"):
    return [record for record in read(log.path) if record.type == kind]


def clean(place: Path, key: AuditKey):
    report = verify(place, key=key)
    assert report.ok, str(report)
    return report


# --- what is written ------------------------------------------------------------------------------


def test_a_record_stands_in_the_file_before_record_returns(make, place, key):
    log = make()
    log.record(ADMIT)
    (record,) = records(log)
    assert record.fields == {**ADMIT, "policy": "production/7/abababababababab"}
    assert record.time == 1_795_000_000_000_000
    assert clean(place, key).records == 2 + 2  # the index has two as well


def test_the_genesis_says_who_and_under_which_policy(make):
    log = make()
    (genesis,) = records(log, "genesis")
    assert genesis.sequence == 0
    assert genesis.text("principal") == "alice"
    assert genesis.number("pid") == os.getpid()
    assert (genesis.text("policy_name"), genesis.number("policy_revision")) == ("production", 7)
    assert genesis.text("policy_sha256") == "ab" * 32
    assert genesis.text("parent") == ""
    assert genesis.text("host")


def test_files_are_private_and_named_after_the_principal(make, place: Path):
    log = make("scheduler")
    assert Path(log.path).name.startswith("scheduler-20261118T110640Z-")
    assert place.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in place.iterdir()} == {0o600}


def test_a_new_policy_is_recorded_and_named_from_there_on(make, place, key):
    log = make()
    log.record(ADMIT)
    log.use_policy(("production", 8, "cd" * 32))
    log.record(ADMIT)
    (change,) = records(log, "policy")
    assert change.text("policy_sha256") == "cd" * 32
    assert [each.text("policy") for each in records(log)] == [
        "production/7/abababababababab",
        "production/8/cdcdcdcdcdcdcdcd",
    ]
    clean(place, key)


@pytest.mark.parametrize(
    "policy",
    [
        ("p", -1, "a" * 64),
        ("p", 1, "A" * 64),
        ("p", 1, "a"),
        (1, 1, "a" * 64),
        ("p", True, "a" * 64),
    ],
)
def test_a_policy_that_is_not_one_is_refused(make, policy):
    with pytest.raises(ConfigError):
        make(policy=policy)


def test_hostile_text_stays_on_its_line(make, place, key):
    log = make()
    for text in ("a\nb", "\x1b[2J", "\ud800", "\u202eabc", "x" * 10**6, "\x00", "\x7f\r"):
        log.record({**ADMIT, "where": text, "globals": [text] * 100})
    raw = Path(log.path).read_bytes()
    assert raw.count(b"\n") == 8
    assert all(byte == 10 or 32 <= byte < 127 for byte in raw)
    clean(place, key)


def test_an_event_that_cannot_be_recorded_raises_and_leaves_the_log_usable(make, place, key):
    log = make()
    with pytest.raises(AuditError):
        log.record({"payload": b"bytes"})  # type: ignore[dict-item]
    log.record(ADMIT)
    clean(place, key)


# --- counts ---------------------------------------------------------------------------------------


def count(log: AuditLog, operation: str = "heartbeat", *, permitted: bool = True):
    log.count("worker", "scheduler", operation, "permit", permitted)


def test_counts_become_one_record_after_a_second(make, clock, place, key):
    log = make()
    for _ in range(5):
        count(log)
    count(log, "identity")
    assert records(log, "counts") == []
    clock.tick(1)
    count(log)
    (record,) = records(log, "counts")
    assert record.fields["counts"] == [
        ["worker", "scheduler", "heartbeat", "permit", True, 6],
        ["worker", "scheduler", "identity", "permit", True, 1],
    ]
    clean(place, key)


def test_counts_are_written_after_a_thousand_and_before_the_next_event(make, clock):
    log = make()
    for _ in range(1_000):
        count(log)
    assert len(records(log, "counts")) == 1
    count(log)
    clock.tick(1)
    log.record(ADMIT)
    assert [each.type for each in read(log.path)] == ["genesis", "counts", "counts", "event"]


def test_a_clock_that_goes_back_does_not_keep_counts_for_ever(make, clock):
    log = make()
    count(log)
    clock.tick(-3600)
    count(log)
    assert len(records(log, "counts")) == 1


def test_flush_and_close_write_the_counts(make, place, key):
    log = make()
    count(log)
    log.flush()
    assert len(records(log, "counts")) == 1
    count(log, permitted=False)
    log.close()
    assert [each.type for each in read(log.path)] == ["genesis", "counts", "counts", "close"]
    clean(place, key)


def test_labels_that_a_peer_invents_share_one_bucket(make, place, key):
    log = make()
    for n in range(900):
        count(log, f"operation-{n}\n" + "\U0001f4a3" * 10_000)
    log.flush()
    (record,) = records(log, "counts")
    counts = record.fields["counts"]
    assert len(counts) <= 129  # type: ignore[arg-type]
    assert sum(each[-1] for each in counts) == 900  # type: ignore[union-attr]
    assert ["other", "other", "other", "other", True, 772] in counts  # type: ignore[operator]
    clean(place, key)


# --- floods of refusals ---------------------------------------------------------------------------


def test_a_flood_of_refusals_is_counted_and_nothing_is_lost(make, clock, place, key):
    log = make()
    for _ in range(5_000):
        log.record(REFUSE)
        clock.tick(0.001)
    log.record({**REFUSE, "sender": "carol"})
    log.flush()
    events = records(log)
    mine = [each for each in events if each.text("sender") == "bob"]
    assert len(mine) == 100
    assert [each.text("then") for each in mine] == [""] * 99 + ["counted"]
    assert len(events) == 101
    summary = [entry for each in records(log, "suppressed") for entry in each.fields["suppressed"]]  # type: ignore[attr-defined]
    assert [entry[:3] for entry in summary] == [["bob", "policy.family", 4_900]]
    clean(place, key)


def test_the_flood_is_summed_up_every_ten_seconds_and_the_burst_comes_back(make, clock):
    log = make()
    for _ in range(101):
        log.record(REFUSE)
    assert records(log, "suppressed") == []
    clock.tick(10)
    log.record(REFUSE)
    assert len(records(log, "suppressed")) == 1
    assert len(records(log)) == 101  # one token came back
    clock.tick(10_000)
    log.record(REFUSE)
    clock.tick(-5_000)
    log.record(REFUSE)
    assert len(records(log)) == 103


def test_permitted_loads_are_written_one_by_one_in_any_flood(make):
    log = make()
    for _ in range(300):
        log.record(REFUSE)
        log.record(ADMIT)
    assert sum(each.fields["permitted"] is True for each in records(log)) == 300


def test_invented_senders_and_rules_cannot_fill_memory_or_split_the_summary(make, clock):
    log = make()
    for n in range(2_000):
        log.record({**REFUSE, "sender": f"s{n}"})
    # 1,024 first refusals, then what the shared bucket lets through.
    assert len(records(log)) == 1_024 + 100
    clock.tick(1)
    for n in range(300):
        for _ in range(101):
            log.record({**REFUSE, "sender": f"s{n}"})
    log.flush()
    summary = [entry for each in records(log, "suppressed") for entry in each.fields["suppressed"]]  # type: ignore[attr-defined]
    assert len(records(log)) + sum(entry[2] for entry in summary) == 2_000 + 300 * 101
    assert len(records(log, "suppressed")) > 1
    clock.tick(100_000)
    log.record({**REFUSE, "sender": "new"})  # buckets that are full again are forgotten
    assert records(log)[-1].text("sender") == "new"


# --- the end of a log -----------------------------------------------------------------------------


def test_a_closed_log_refuses_everything_and_closing_twice_does_nothing(make, place, key):
    log = make()
    log.close()
    log.close()
    for call in (lambda: log.record(ADMIT), lambda: count(log), log.flush):
        with pytest.raises(AuditError, match="closed"):
            call()
    clean(place, key)


def test_leaving_the_context_closes(place, key, clock):
    with AuditLog.open(place, key=key, principal="alice", clock=clock) as log:
        log.record(ADMIT)
        assert repr(log) == f"AuditLog({log.path!r})"
    assert [each.type for each in read(log.path)][-1] == "close"


def test_a_log_is_not_pickled(make):
    with pytest.raises(TypeError, match="opens its own"):
        pickle.dumps(make())


def test_the_end_of_the_process_closes(make, place, key, monkeypatch):
    log = make()
    count(log)
    log_module._close_all()
    assert [each.type for each in read(log.path)] == ["genesis", "counts", "close"]
    clean(place, key)


def test_the_end_of_the_process_is_quiet_when_the_log_is_gone(make):
    log = make()
    os.unlink(log.path)
    log_module._close_all()
    with pytest.raises(AuditError, match="closed"):
        log.record(ADMIT)


def test_a_call_from_a_signal_handler_in_the_middle_is_refused(make, monkeypatch, place, key):
    log = make()
    refused = []
    write = os.write

    def interrupted(handle, data):
        monkeypatch.setattr(os, "write", write)
        for call in (lambda: log.record(ADMIT), lambda: count(log), log.flush):
            with pytest.raises(AuditError) as caught:
                call()
            refused.append(caught.value.rule)
        log.close()  # best effort: does nothing now
        return write(handle, data)

    monkeypatch.setattr(os, "write", interrupted)
    log.record(ADMIT)
    assert refused == ["audit.reentered"] * 3
    assert len(records(log)) == 1
    clean(place, key)


@pytest.mark.parametrize("now", [-1, 1 << 80])
def test_a_clock_out_of_range_is_refused(make, clock, now: int):
    log = make()
    before, clock.now = clock.now, now
    with pytest.raises(AuditError, match="clock"):
        log.record(ADMIT)
    clock.now = before
    log.record(ADMIT)


# --- where it is written --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_can_write_is_refused(make, place: Path, mode: int):
    place.mkdir()
    place.chmod(mode)
    with pytest.raises(AuditError, match="written by others") as caught:
        make()
    assert "chmod 700" in caught.value.fix
    assert list(place.iterdir()) == []


def test_a_directory_of_another_user_is_refused(make, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(AuditError, match="another user"):
        make()


def test_links_and_files_in_place_of_the_directory_are_refused(make, place: Path, tmp_path: Path):
    (tmp_path / "real").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "real")
    with pytest.raises(AuditError, match="symbolic link"):
        make()
    place.unlink()
    place.write_text("")
    with pytest.raises(AuditError):
        make()


@pytest.mark.parametrize("name", ["index", "index.head"])
def test_links_in_place_of_the_index_are_not_followed(make, place: Path, tmp_path: Path, name: str):
    place.mkdir(mode=0o700)
    target = tmp_path / "target"
    target.write_text("precious")
    (place / name).symlink_to(target)
    with pytest.raises(AuditError):
        make()
    assert target.read_text() == "precious"


def test_a_fifo_in_place_of_the_index_is_not_waited_for(make, place: Path):
    place.mkdir(mode=0o700)
    os.mkfifo(place / "index")
    with pytest.raises(AuditError, match="regular"):
        make()


def test_every_process_gets_a_file_and_the_index_names_them(make, place, key):
    for principal in ("scheduler", "worker", "worker"):
        make(principal).record(ADMIT)
    report = clean(place, key)
    assert report.files == 3


def test_another_key_does_not_continue_the_log(make, place, key):
    make().close()
    with pytest.raises(AuditError) as caught:
        make(key=b"x" * 32)
    assert caught.value.rule == "audit.key"
    clean(place, key)


def test_durability_must_be_known(make):
    with pytest.raises(ConfigError):
        make(durability="none")


def test_a_principal_that_is_none_is_refused(make):
    with pytest.raises(ConfigError):
        make("../../etc/x")


def test_a_held_index_is_not_waited_for_for_ever(make, place: Path, monkeypatch):
    make().close()
    monkeypatch.setattr(index_module, "_WAIT", 0.0)
    with open(place / "index", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(index_module.lock, "__kwdefaults__", {"wait": 0.02})
        with pytest.raises(AuditError) as caught:
            make()
    assert caught.value.rule == "audit.locked"


def test_a_file_system_without_locks_is_refused(make, monkeypatch):
    def no_lock(handle, how):
        if how != fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with pytest.raises(AuditError, match="cannot be locked"):
        make()


# --- faults ---------------------------------------------------------------------------------------


def test_partial_writes_are_finished(make, place, key, monkeypatch):
    log = make()
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    log.record(ADMIT)
    monkeypatch.undo()
    assert len(records(log)) == 1
    clean(place, key)


@pytest.mark.parametrize("after", [0, 1])
def test_a_full_disk_refuses_and_leaves_whole_records_only(make, place, key, monkeypatch, after):
    log = make()
    write = os.write
    calls = []

    def full(handle, data):
        calls.append(data)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "full")
        return write(handle, data[:20])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditError, match="No space left"):
        log.record(ADMIT)
    monkeypatch.undo()
    clean(place, key)
    log.record(ADMIT)
    assert len(records(log)) == 1
    clean(place, key)


def test_a_write_of_nothing_is_a_full_disk(make, monkeypatch):
    log = make()
    monkeypatch.setattr(os, "write", lambda handle, data: 0)
    with pytest.raises(AuditError, match="No space left"):
        log.record(ADMIT)


def test_a_torn_record_that_cannot_be_taken_back_ends_the_log(make, place, key, monkeypatch):
    log = make()
    log.record(ADMIT)
    write = os.write
    calls = []

    def full(handle, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return write(handle, data[:20])

    def refused(*_):
        raise OSError(errno.EPERM, "append only")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "ftruncate", refused)
    with pytest.raises(AuditError):
        log.record(ADMIT)
    monkeypatch.undo()
    for call in (lambda: log.record(ADMIT), log.close):
        with pytest.raises(AuditError, match="taken back"):
            call()
    report = clean(place, key)
    assert any("torn" in note for note in report.notes)


@pytest.mark.parametrize("short", [True, False])
def test_a_head_that_cannot_be_written_refuses_the_record(make, place, key, monkeypatch, short):
    log = make()

    def failing(handle, data, offset):
        if short:
            return 5
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(AuditError, match="head"):
        log.record(ADMIT)
    monkeypatch.undo()
    clean(place, key)
    log.record(ADMIT)
    assert len(records(log)) == 2  # the first was not acted on; the chain still has it
    clean(place, key)


def test_a_failed_sync_ends_the_log(make, place, key, monkeypatch):
    log = make(durability="fsync")
    log.record(ADMIT)
    log.flush()

    def broken(handle):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(AuditError, match="Input/output"):
        log.record(ADMIT)
    monkeypatch.undo()
    with pytest.raises(AuditError, match="did not take"):
        log.record(ADMIT)
    clean(place, key)


def test_counts_that_cannot_be_written_are_kept(make, clock, monkeypatch):
    log = make()
    count(log)
    clock.tick(1)

    def full(handle, data):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(AuditError):
        count(log)
    monkeypatch.undo()
    log.flush()
    (record,) = records(log, "counts")
    assert record.fields["counts"][0][-1] == 2  # type: ignore[index]


def test_opening_on_a_full_disk_is_refused_and_the_next_one_works(make, place, key, monkeypatch):
    make().close()
    write = os.write
    for fails_at in (1, 2):
        calls = []

        def full(handle, data, calls=calls, fails_at=fails_at):
            calls.append(data)
            if len(calls) == fails_at:
                raise OSError(errno.ENOSPC, "full")
            return write(handle, data)

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(AuditError, match="No space left"):
            make()
        monkeypatch.undo()
    make().record(ADMIT)
    report = verify(place, key=key)
    # An empty file without a record, and one that has its genesis only: nothing was decided there.
    assert report.ok, str(report)
    assert len(report.notes) == 2


def test_opening_without_descriptors_is_refused(make, monkeypatch):
    make().close()
    real = os.open

    def limited(path, flags, *args, **options):
        if str(path).endswith(".head") and str(path) != "index.head":
            raise OSError(errno.EMFILE, "too many")
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", limited)
    with pytest.raises(AuditError, match="Too many open files"):
        make()


def test_a_directory_that_cannot_be_synced_is_refused(make, monkeypatch):
    def broken(handle):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(AuditError, match="cannot be synced"):
        make()


def test_a_directory_removed_while_opening(make, monkeypatch, place):
    monkeypatch.setattr(log_module.Directory, "open", lambda self, name, **_: None)
    with pytest.raises(AuditError, match="gone"):
        make()


# --- somebody at the files of a running process ---------------------------------------------------


@pytest.mark.parametrize("which", ["log", "head"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_taken_away_stops_the_process(make, clock, which, how):
    log = make()
    target = Path(log.path).with_suffix(f".{which}")
    content = target.read_bytes()
    target.rename(target.with_suffix(".away"))
    if how == "replaced":
        target.write_bytes(content)
    clock.tick(1)
    with pytest.raises(AuditError, match=how) as caught:
        log.record(ADMIT)
    assert caught.value.rule == "audit.replaced"
    with pytest.raises(AuditError, match=how):
        log.record(ADMIT)


def test_a_cut_file_stops_the_process_within_64_records(make):
    log = make()
    log.record(ADMIT)
    os.truncate(log.path, 100)

    def go_on():
        for _ in range(64):
            log.record(ADMIT)

    with pytest.raises(AuditError, match="another size"):
        go_on()


# --- threads, forks, kills ------------------------------------------------------------------------


def test_threads_make_one_chain(make, place, key):
    log = make()
    barrier = threading.Barrier(6)

    def work(n: int):
        barrier.wait()
        for _ in range(200):
            log.record({**ADMIT, "sender": f"s{n}"})
            count(log)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    clean(place, key)
    assert len(records(log)) == 1_200
    total = sum(entry[-1] for each in records(log, "counts") for entry in each.fields["counts"])  # type: ignore[attr-defined]
    assert total == 1_200


def test_threads_open_logs_at_once(make, place, key):
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        log = make()
        log.record(ADMIT)
        log.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clean(place, key).files == 4


SCRIPT = """
import os, sys, time
from safeser.audit import AuditLog
log = AuditLog.open(sys.argv[1], key=bytes(range(32)), principal="alice")
EVENT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True}
"""


def run(code: str, place: Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT + code, str(place)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


def test_a_forked_child_writes_a_file_of_its_own(place, key):
    done = run(
        """
log.record(EVENT)
log.count("a", "b", "c", "d", True)
child = os.fork()
if child == 0:
    log.record(EVENT)
    log.flush()
    os._exit(0)
os.waitpid(child, 0)
idle = os.fork()
if idle == 0:
    sys.exit(0)  # never used: the end of the process leaves the parent's file alone
os.waitpid(idle, 0)
log.record(EVENT)
log.close()
""",
        place,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert clean(place, key).files == 2
    by_parent = {
        each.text("parent"): list(read(path))
        for path in sorted(place.glob("*.log"))
        for each in read(path)
        if each.type == "genesis"
    }
    parent = by_parent.pop("")
    ((named, child),) = by_parent.items()
    assert named == parent[0].text("file")
    assert [each.type for each in parent] == ["genesis", "event", "event", "counts", "close"]
    assert [each.type for each in child] == ["genesis", "event"]  # the counts are the parent's


def test_a_child_forked_without_python_knowing_gets_a_file_too(make, place, key, monkeypatch):
    log = make()
    first = log.path
    monkeypatch.setattr(os, "getpid", lambda: 1)
    log.record(ADMIT)
    assert log.path != first
    clean(place, key)


def test_a_fork_while_another_thread_holds_the_log_does_not_hang(place, key):
    done = run(
        """
import threading
held, let_go = threading.Event(), threading.Event()
def hold():
    with log._lock:
        held.set()
        let_go.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    log.record(EVENT)
    os._exit(0)
_, status = os.waitpid(child, 0)
let_go.set()
thread.join()
sys.exit(status)
""",
        place,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert clean(place, key).files == 2


def test_a_kill_in_the_middle_leaves_a_log_that_verifies_and_goes_on(make, place, key):
    for round_ in range(3):
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SCRIPT + "print(flush=True)\nwhile True:\n    log.record(EVENT)",
                str(place),
            ],
            stdout=subprocess.PIPE,
        )
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
        assert clean(place, key).files == round_ + 1
    log = make()
    log.record(ADMIT)
    log.close()
    assert clean(place, key).files == 4


def test_verifying_while_processes_write(place, key):
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            SCRIPT + "print(flush=True)\nwhile True:\n    log.record(EVENT)",
            str(place),
        ],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            for _ in range(10):
                clean(place, key)
        finally:
            process.kill()


def test_the_end_of_a_real_process_closes_its_file(place, key):
    done = run("log.record(EVENT)", place)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = place.glob("*.log")
    assert [each.type for each in read(path)] == ["genesis", "event", "close"]
    clean(place, key)


def test_a_real_file_size_limit(place, key):
    done = run(
        """
import resource
from safeser.errors import AuditError
size = os.stat(log.path).st_size + 2_000
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
for _ in range(100):
    try:
        log.record(EVENT)
    except AuditError as error:
        print(error)
        break
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.record(EVENT)
""",
        place,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "File too large" in done.stdout
    clean(place, key)
