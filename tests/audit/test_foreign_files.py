"""Files that the log did not make, under each name that it uses: refused, and left as they are."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from safeser.audit import AuditKey, AuditLog, verify
from safeser.audit import index as index_module
from safeser.errors import AuditError, ConfigError
from tests.draws import draws

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}


def contents(place: Path) -> dict[str, tuple[int, bytes]]:
    """Return what stands in a directory: the kind and mode of each file, and its bytes."""
    found = {}
    for each in place.iterdir():
        mode = each.lstat().st_mode
        if stat.S_ISLNK(mode):
            data = os.readlink(each).encode()
        else:
            data = each.read_bytes() if stat.S_ISREG(mode) else b""
        found[each.name] = (mode, data)
    return found


def refused(place: Path, key, rule: str) -> AuditError:
    """Open a log that must be refused; fail if anything in its directory changed."""
    before, descriptors = contents(place), os.listdir("/dev/fd")
    with pytest.raises(AuditError) as caught:
        AuditLog.open(place, key=key, principal="alice")
    assert contents(place) == before
    assert os.listdir("/dev/fd") == descriptors
    assert caught.value.rule == rule
    assert str(place) in caught.value.where
    assert caught.value.fix
    return caught.value


# --- the index ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"precious",
        b"x\n",
        b"\0",
        b"{}\n",
        b'{"mac":"0',
        b'{"mac":"' + b"0" * 64 + b'","record":{}}\n',
        b"x" * 300_000,
    ],
)
@pytest.mark.parametrize("head", [None, b"", b"something"])
def test_another_file_named_index(place, key, content, head):
    place.mkdir(mode=0o700)
    (place / "index").write_bytes(content)
    if head is not None:
        (place / "index.head").write_bytes(head)
    error = refused(place, key, "audit.index")
    assert error.where == str(place / "index")
    assert not verify(place, key=key).ok


@pytest.mark.parametrize("head", [b"", b"something"])
def test_another_file_named_as_the_head_of_the_index(place, key, head):
    place.mkdir(mode=0o700)
    (place / "index.head").write_bytes(head)
    refused(place, key, "audit.tampered")


def test_an_empty_index_without_anything_else_is_begun(place, key, clock, clean):
    place.mkdir(mode=0o700)
    (place / "index").touch(mode=0o600)
    (report,) = verify(place, key=key).problems
    assert (report.file, report.kind) == ("index", "index changed")
    assert "is empty" in report.text
    with AuditLog.open(place, key=key, principal="alice", clock=clock) as log:
        log.record(ADMIT)
    clean(place, key)


@pytest.mark.parametrize("other", ["index.head", "alice.log"])
def test_an_empty_index_beside_traces_of_a_log_is_refused(place, key, other):
    place.mkdir(mode=0o700)
    (place / "index").touch(mode=0o600)
    (place / other).write_bytes(b"something")
    refused(place, key, "audit.index" if other == "index.head" else "audit.tampered")


def test_an_index_of_another_key(make, place, key):
    make().close()
    refused(place, b"x" * 32, "audit.key")
    for each in place.glob("alice-*"):
        each.unlink()
    (place / "index.head").write_bytes(b"")
    refused(place, b"x" * 32, "audit.key")


@pytest.mark.parametrize("keep_head", [False, True])
def test_an_index_whose_head_was_removed_or_emptied(make, place, key, keep_head):
    make().close()
    for each in place.glob("alice-*"):
        each.unlink()
    (place / "index.head").unlink()
    if keep_head:
        (place / "index.head").touch(mode=0o600)
    refused(place, key, "audit.tampered")


def test_a_log_file_in_place_of_the_index(make, place, key, tmp_path):
    log = make()
    log.record(ADMIT)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    shutil.copy(log.path, other / "index")
    shutil.copy(Path(log.path).with_suffix(".head"), other / "index.head")
    refused(other, key, "audit.key")


@draws(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=600), st.none() | st.binary(max_size=300))
def test_any_bytes_in_place_of_the_index_stay(tmp_path, key, content, head):
    place = tmp_path / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(mode=0o700)
    (place / "index").write_bytes(content or b"x")
    if head is not None:
        (place / "index.head").write_bytes(head)
    refused(place, key, "audit.index")


# --- what is no file ------------------------------------------------------------------------------


def put(path: Path, kind: str, target: Path) -> None:
    if kind == "link":
        target.write_text("precious")
        path.symlink_to(target)
    elif kind == "dangling link":
        path.symlink_to(target)
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo", "socket"])
@pytest.mark.parametrize("name", ["index", "index.head"])
@pytest.mark.parametrize("begun", [False, True])
def test_links_folders_fifos_and_sockets(
    make, tmp_path, place, key, name, kind, begun, monkeypatch
):
    if begun:
        make().close()
        (place / name).unlink()
    else:
        place.mkdir(mode=0o700)
        if name == "index.head":
            (place / "index").touch(mode=0o600)
    monkeypatch.chdir(place)  # a path of a socket is short
    put(Path(name), kind, tmp_path / "target")
    before = contents(place)
    with pytest.raises(AuditError) as caught:
        AuditLog.open(place, key=key, principal="alice")
    assert contents(place) == before
    assert caught.value.rule == "audit.file"
    assert caught.value.where == str(place / name)
    assert "move it away" in caught.value.fix
    if kind == "link":
        assert (tmp_path / "target").read_text() == "precious"
    assert kind == "link" or not (tmp_path / "target").exists()


# --- files of others ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["index", "index.head"])
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(make, place, key, name, mode):
    make().close()
    (place / name).chmod(mode)
    assert "chmod 600" in refused(place, key, "audit.file").fix


@pytest.mark.parametrize("name", ["index", "index.head"])
def test_a_file_of_another_user_is_refused(make, place, key, name, monkeypatch):
    make().close()
    fstat, theirs = os.fstat, (place / name).stat().st_ino

    def found(handle: int) -> os.stat_result:
        result = fstat(handle)
        values = list(result)
        if result.st_ino == theirs:
            values[stat.ST_UID] += 1
        return os.stat_result(values)

    monkeypatch.setattr(os, "fstat", found)
    assert "another user" in refused(place, key, "audit.file").message


def test_files_of_other_names_are_left_alone(place, key, clock, clean):
    place.mkdir(mode=0o700)
    for name in ("README", "lock", "index.lock", "index~", "alice.head", "audit.key"):
        (place / name).write_text("precious")
    before = contents(place)
    with AuditLog.open(place, key=key, principal="alice", clock=clock) as log:
        log.record(ADMIT)
    after = contents(place)
    assert {name: after[name] for name in before} == before
    assert len(clean(place, key).notes) == len(before)


# --- the files of a process -----------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".log", ".head"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_new_file_replaces_nothing(make, place, key, tmp_path, suffix, kind, monkeypatch):
    make().close()
    monkeypatch.setattr(index_module, "new_id", lambda: "0" * 32)
    taken = place / f"alice-20261118T110640Z-{'0' * 32}{suffix}"
    (tmp_path / "target").write_text("precious")
    if kind == "file":
        taken.write_text("precious")
    else:
        taken.symlink_to(tmp_path / "target")
    with pytest.raises(AuditError, match="there is one of that name") as caught:
        make()
    assert caught.value.where == str(taken)
    assert taken.read_text() == "precious"
    monkeypatch.undo()
    make().close()  # the index is not held, and goes on


def test_an_index_that_is_replaced_before_it_is_locked_is_not_written_to(
    make, place, key, monkeypatch
):
    make().close()
    flock, away = fcntl.flock, place.with_name("away")

    def replaced(handle: int, how: int) -> None:
        if how != fcntl.LOCK_UN:
            (place / "index").rename(away)
            (place / "index").write_bytes(away.read_bytes())
        flock(handle, how)

    before = (place / "index").read_bytes()
    monkeypatch.setattr(fcntl, "flock", replaced)
    with pytest.raises(AuditError, match="was replaced"):
        make()
    assert (place / "index").read_bytes() == before == away.read_bytes()


# --- the key --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(28, "full"), KeyboardInterrupt()])
def test_a_key_that_could_not_be_written_leaves_no_part_of_it(tmp_path, monkeypatch, error):
    def failing(handle: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises((ConfigError, KeyboardInterrupt)):
        AuditKey.new().save(tmp_path / "audit.key")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    AuditKey.new().save(tmp_path / "audit.key")


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo"])
def test_a_key_is_not_written_to_what_is_there(tmp_path, kind):
    put(tmp_path / "audit.key", kind, tmp_path / "target")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        AuditKey.new().save(tmp_path / "audit.key")
    assert contents(tmp_path) == before
