"""What stands where a log shall be written: refused, and left as it is.

The one rule: a log that is refused leaves every file, and no open descriptor.
"""

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
from safeser.audit.writing.log_files import LogFiles
from safeser.errors import AuditError, ConfigError
from tests.draws import draws


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


def put(path: Path, kind: str, target: Path) -> None:
    """Put something that is no file at a path."""
    if kind.endswith("link"):
        path.symlink_to(target)
        if kind == "link":
            target.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


NO_FILES = ["link", "dangling link", "folder", "fifo", "socket"]


# --- a folder in which no log was begun -----------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "rule"),
    [
        *(
            ({"index": content, **({} if head is None else {"index.head": head})}, "audit.index")
            for content in (
                *(b"precious", b"x\n", b"\0", b"{}\n", b'{"mac":"0', b"x" * 300_000),
                b'{"mac":"' + b"0" * 64 + b'","record":{}}\n',
            )
            for head in (None, b"", b"something")
        ),
        ({"index.head": b""}, "audit.tampered"),
        ({"index.head": b"something"}, "audit.tampered"),
        ({"index": b"", "index.head": b"something"}, "audit.index"),
        ({"index": b"", "alice.log": b"something"}, "audit.tampered"),
        ({"scheduler.log": b"INFO - State start"}, "audit.tampered"),
    ],
)
def test_files_of_others_under_the_log_s_names(place, key, files, rule):
    place.mkdir(mode=0o700)
    for name, content in files.items():
        (place / name).write_bytes(content)
        (place / name).chmod(0o600)
    refused(place, key, rule)
    assert not verify(place, key=key).ok


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


def test_an_empty_index_without_anything_else_is_begun(place, key, clock, clean):
    place.mkdir(mode=0o700)
    (place / "index").touch(mode=0o600)
    (report,) = verify(place, key=key).problems
    assert (report.file, report.kind) == ("index", "index changed")
    assert "is empty" in report.text
    AuditLog.open(place, key=key, principal="alice", clock=clock).close()
    clean(place, key)


def test_files_of_other_names_are_left_alone(place, key, clock, clean):
    place.mkdir(mode=0o700)
    for name in ("README", "lock", "index.lock", "index~", "alice.head", "audit.key"):
        (place / name).write_text("precious")
    before = contents(place)
    AuditLog.open(place, key=key, principal="alice", clock=clock).close()
    after = contents(place)
    assert {name: after[name] for name in before} == before
    assert len(clean(place, key).notes) == len(before)


# --- a folder of a log ----------------------------------------------------------------------------


def without_logs(place: Path) -> Path:
    """Remove the files of processes; return the head of the index."""
    for each in place.glob("alice-*"):
        each.unlink()
    return place / "index.head"


@pytest.mark.parametrize(
    ("change", "other_key", "rule"),
    [
        (lambda place: None, True, "audit.key"),
        (lambda place: without_logs(place).write_bytes(b""), True, "audit.key"),
        (lambda place: without_logs(place).unlink(), False, "audit.tampered"),
        (lambda place: without_logs(place).write_bytes(b""), False, "audit.tampered"),
        *(
            (lambda place, name=name, mode=mode: (place / name).chmod(mode), False, "audit.file")
            for name in ("index", "index.head")
            for mode in (0o620, 0o602, 0o666)
        ),
    ],
)
def test_an_index_that_is_not_gone_on_with(make, place, key, change, other_key, rule):
    make().close()
    change(place)
    error = refused(place, b"x" * 32 if other_key else key, rule)
    assert rule != "audit.file" or "chmod 600" in error.fix


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["index", "index.head"])
@pytest.mark.parametrize("begun", [False, True])
def test_what_is_no_file(make, tmp_path, place, key, name, kind, begun, monkeypatch):
    if begun:
        make().close()
        (place / name).unlink()
    else:
        place.mkdir(mode=0o700)
        if name == "index.head":
            (place / "index").touch(mode=0o600)
    monkeypatch.chdir(place)  # a path of a socket is short
    put(Path(name), kind, tmp_path / "target")
    error = refused(place, key, "audit.file")
    assert (error.where, "move it away" in error.fix) == (str(place / name), True)
    assert (tmp_path / "target").exists() is (kind == "link")


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


@pytest.mark.parametrize("suffix", [".log", ".head"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_new_file_replaces_nothing(make, place, tmp_path, suffix, kind, monkeypatch):
    make().close()
    monkeypatch.setattr(index_module, "new_id", lambda: "0" * 32)
    taken = place / f"alice-20261118T110640Z-{'0' * 32}{suffix}"
    if kind == "file":
        taken.write_text("precious")
    else:
        put(taken, kind, tmp_path / "target")
    with pytest.raises(AuditError, match="there is one of that name") as caught:
        make()
    assert caught.value.where == str(taken)
    assert taken.read_text() == "precious"
    monkeypatch.undo()
    make().close()  # the index is not held, and goes on


def test_an_index_that_is_replaced_before_it_is_locked_is_not_written_to(make, place, monkeypatch):
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


# --- the folder itself, and its locks -------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(
            (lambda place, mode=mode: (place.mkdir(), place.chmod(mode)), "written by others")
            for mode in (0o770, 0o702, 0o777, 0o1777)
        ),
        (lambda place: (place.parent / "r").mkdir() or place.symlink_to("r"), "symbolic link"),
        (lambda place: place.write_text(""), ""),
    ],
)
def test_a_folder_that_is_not_this_user_s_alone(make, place, change, says):
    change(place)
    with pytest.raises(AuditError) as caught:
        make()
    assert says in str(caught.value)
    assert says != "written by others" or "chmod 700" in caught.value.fix
    assert place.is_file() or list(place.iterdir()) == []


def test_a_directory_of_another_user_is_refused(make, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(AuditError, match="another user"):
        make()


def test_a_held_index_is_not_waited_for_for_ever(make, place: Path, monkeypatch):
    make().close()
    monkeypatch.setattr(LogFiles._begun, "__kwdefaults__", {"wait": 0.02})
    with open(place / "index", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AuditError) as caught:
            make()
    assert caught.value.rule == "audit.locked"


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


@pytest.mark.parametrize("kind", ["file", *NO_FILES[:-1]])
def test_a_key_is_not_written_to_what_is_there(tmp_path, kind):
    if kind == "file":
        AuditKey.new().save(tmp_path / "audit.key")
    else:
        put(tmp_path / "audit.key", kind, tmp_path / "target")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        AuditKey.new().save(tmp_path / "audit.key")
    assert contents(tmp_path) == before
