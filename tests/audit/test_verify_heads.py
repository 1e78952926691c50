"""What only a head that was kept elsewhere shows, and heads that are empty or foreign."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from safeser.audit import AuditLog, verify
from safeser.audit import index as index_module
from safeser.audit.chain import file_keys
from safeser.audit.chain_file import new_file
from safeser.audit.files import Directory
from safeser.audit.report import Expected, head_line
from safeser.errors import AuditError, ConfigError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}


# --- what only a head that was kept elsewhere shows -----------------------------------------------


def test_a_directory_put_back_to_an_older_state_is_found_by_its_expected_head(
    make, place, key, tmp_path
):
    log = make("alice")
    log.record(ADMIT)
    old = tmp_path / "old"
    shutil.copytree(place, old)
    early = verify(place, key=key).head
    log.record(ADMIT)
    make("bob").record(ADMIT)
    late = verify(place, key=key).head
    assert verify(place, key=key, expect=early).ok
    assert verify(place, key=key, expect=late).ok
    shutil.rmtree(place)
    shutil.copytree(old, place)
    assert verify(place, key=key).ok  # nothing in the directory can show it
    report = verify(place, key=key, expect=late)
    assert not report.ok
    kinds = [(each.file, each.kind) for each in report.problems]
    assert ("index", "index changed") in kinds or ("index", "rolled back") in kinds
    assert (Path(log.path).name, "missing tail") in kinds


def test_another_log_is_not_the_expected_one(make, place, key, tmp_path, clock):
    make("alice").record(ADMIT)
    expect = verify(place, key=key).head
    other = tmp_path / "other"
    AuditLog.open(other, key=key, principal="alice", clock=clock).close()
    report = verify(other, key=key, expect=expect)
    assert {each.kind for each in report.problems} == {"rolled back"}


def test_a_log_that_was_deleted_and_begun_anew(make, place, key):
    """The new one leaves heads in the second place, too; the expected head is of the old one."""
    make("alice").record(ADMIT)
    old = verify(place, key=key).head
    shutil.rmtree(place)
    make("alice").record(ADMIT)
    new = verify(place, key=key).head
    (problem,) = verify(place, key=key, expect=old, heads=[old, new]).problems
    assert (problem.kind, "the expected head" in problem.text) == ("rolled back", True)
    report = verify(place, key=key, heads=[old, new])
    (note,) = report.notes
    assert note.startswith("heads of other logs (1) were left out")
    (problem,) = verify(place, key=key, heads=[old]).problems
    assert problem.kind == "rolled back"


def test_a_head_that_was_cut_short_swallows_no_other(make, place, key):
    log = make("alice")
    log.record(ADMIT)
    head = verify(place, key=key).head
    for cut in (10, 60, 120, len(head) - 1):
        (found,) = Expected.gather([head[:cut] + head])
        assert found.ends.keys() >= Expected.parse(head).ends.keys()


def test_a_file_closed_since_is_as_expected(make, place, key):
    log = make("alice")
    log.record(ADMIT)
    expect = verify(place, key=key).head
    assert verify(log.path, key=key, expect=expect).ok
    log.record(ADMIT)
    log.close()
    assert verify(place, key=key, expect=expect).ok


def test_an_expected_end_with_another_mac_is_found(make, place, key):
    log = make("alice")
    log.record(ADMIT)
    expected = Expected.parse(verify(place, key=key).head)
    ends = {chain: (n, bytes(32)) for chain, ((n, _),) in expected.ends.items()}
    report = verify(place, key=key, expect=head_line(expected.directory, ends))
    assert [(each.file, each.kind) for each in report.problems] == [
        ("index", "rolled back"),
        (Path(log.path).name, "rolled back"),
    ]


@pytest.mark.parametrize(
    "text",
    ["x", "safeser-audit-head-v1", "safeser-audit-head-v2 " + "0" * 32, "x" * (17 << 20)],
)
def test_an_expected_head_that_is_none_is_refused(logs, place, key, text):
    with pytest.raises(ConfigError):
        verify(place, key=key, expect=text)


def test_what_a_process_may_still_take_back_is_not_expected(make, place, key, monkeypatch):
    log = make("alice")
    log.record(ADMIT)
    write, calls = os.write, []

    def full(handle, data):
        calls.append(data)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return write(handle, data[: len(data) - 50])  # two whole records, and a part of one

    def refused(*_):
        raise OSError(errno.EIO, "not now")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "ftruncate", refused)
    with pytest.raises(AuditError, match="No space left"):
        log.record_all([ADMIT, ADMIT, ADMIT])
    report = verify(place, key=key)
    assert report.ok
    assert len(report.notes) == 1
    monkeypatch.undo()
    log.record(ADMIT)
    assert verify(place, key=key, expect=report.head).ok
    log.close()
    assert verify(place, key=key, expect=report.head).ok


# --- heads that are empty -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1])
def test_a_file_cut_to_its_start_is_found_though_its_head_was_emptied(
    make, place, key, keep, found
):
    # Before its first record a process leaves an empty head; afterwards nobody but a forger does.
    log = make("alice")
    for number in range(5):
        log.record({"event": "admit", "where": str(number)})
    (path,) = place.glob("alice-*.log")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))
    path.with_suffix(".head").write_bytes(b"")
    assert (path.with_suffix(".head").name, 1, -1, "changed head") in found(verify(place, key=key))
    assert not verify(path, key=key).ok


@pytest.mark.parametrize("name", ["index", "alice"])
def test_a_link_whose_head_is_empty_gives_a_report(logs, place, key, name):
    path = place / "index" if name == "index" else logs[0]
    path.rename(place.parent / "kept")
    path.symlink_to(place.parent / "kept")
    head = place / "index.head" if name == "index" else path.with_suffix(".head")
    head.write_bytes(b"")
    assert not verify(place, key=key).ok
    assert not verify(path, key=key).ok


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "open", "genesis": "not hexadecimal", "name": "x.log", "file": "1" * 32},
        {"type": "close", "mac": "0", "count": -5},
    ],
)
def test_what_another_holder_of_the_key_wrote_gives_a_report(logs, place, key, clock, fields):
    directory = Directory(place, create=False)
    try:
        registered = logs[0].stem.rpartition("-")[2]
        entry = {"time": 1, "file": registered, **fields}
        index_module.update(directory, key, now=1, write=lambda entries: entries.add(entry))
    finally:
        directory.close()
    assert not verify(place, key=key).ok


@pytest.mark.parametrize("count", [0, -7, 99])
def test_a_genesis_that_names_no_record_of_the_index_gives_a_report(place, key, make, count, found):
    make("alice").close()
    file, name = index_module.new_id(), "x.log"

    def begin(entries):
        keys = file_keys(key, directory=entries.directory_id, file=file)
        chain = new_file(directory, name, file=file, keys=keys, state=None, fsync=False)
        home = {"directory": entries.directory_id, "file": file, "index_count": count}
        chain.append_all(({"time": 1, "type": "genesis", "index_mac": "", **home},), None)
        opened = {"type": "open", "genesis": chain.end.mac.hex(), "name": name, "file": file}
        entries.add({"time": 1, **opened})
        chain.close()

    directory = Directory(place, create=False)
    try:
        index_module.update(directory, key, now=1, write=begin)
    finally:
        directory.close()
    assert (name, 1, 0, "index changed") in found(verify(place, key=key))
