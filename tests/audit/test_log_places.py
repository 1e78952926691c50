"""Where a log may be written, and what in its place is refused."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from safeser.audit.writing.log_files import LogFiles
from safeser.errors import AuditError, ConfigError

ADMIT = {"event": "admit", "sender": "bob", "family": "dask", "permitted": True, "bytes": 5}


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


def test_every_process_gets_a_file_and_the_index_names_them(make, place, key, clean):
    for principal in ("scheduler", "worker", "worker"):
        make(principal).record(ADMIT)
    report = clean(place, key)
    assert report.files == 3


def test_another_key_does_not_continue_the_log(make, place, key, clean):
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
    monkeypatch.setattr(LogFiles._begun, "__kwdefaults__", {"wait": 0.02})
    with open(place / "index", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
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
