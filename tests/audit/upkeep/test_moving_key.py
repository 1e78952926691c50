"""A key that moves one way: what a thief of tonight's machine cannot rewrite."""

from __future__ import annotations

import shutil

import pytest

from safeser.audit import AuditKey, AuditLog, read, verify
from safeser.audit.key import KeyFile, file_keys, key_after
from safeser.errors import AuditError, ConfigError
from safeser.gate.chain import pae
from tests.audit.registry.forging import Folder
from tests.audit.upkeep.conftest import ADMIT, FULL


@pytest.fixture
def moving(tmp_path, key):
    """Give the path of the machine's key, of which *key* is the initial one."""
    path = tmp_path / "audit.key"
    key.save(path, moving=True)
    return path


def test_the_key_moves_with_each_file(small, moving, place, key, clean, fill):
    with small(key=moving) as log:
        assert KeyFile(moving).load()[1].moves == 1
        fill(log, 3 * FULL)
    with small("bob", key=moving) as log:
        log.record(ADMIT)
    directory, now = KeyFile(moving).load()
    files = list(place.glob("*.log"))
    assert now.moves == len(files) > 3
    assert now.secret == key_after(key, now.moves).secret
    report = clean(place, key)
    assert (report.files, report.notes) == (len(files), ())
    for path in files:
        assert verify(path, key=key).ok
    assert directory == next(iter(read(files[0]))).text("directory")


def test_what_one_move_is():
    """The value is stated, so that another program can compute it."""
    import hashlib
    import hmac

    moved = hmac.new(bytes(32), pae(b"safeser audit v1", b"move"), hashlib.sha256).digest()
    assert key_after(AuditKey(bytes(32))).secret == moved
    assert (
        key_after(AuditKey(bytes(32)), 3).secret
        == key_after(key_after(key_after(AuditKey(bytes(32))))).secret
    )


def test_a_thief_of_the_key_cannot_rewrite_an_earlier_file(tmp_path, key, found):
    """Neither the current key nor one that was never moved gives the keys of the file."""
    folder = Folder(tmp_path / "home", initial=key)
    path = folder.closed("alice")
    folder.closed("bob")
    folder.rewritten(path, lambda fields: {**fields, **({"bytes": 4} if "bytes" in fields else {})})
    kinds = {kind for name, *_, kind in found(verify(folder.place, key=key)) if name == path.name}
    assert kinds & {"broken chain", "changed record"}


def test_the_keys_of_a_file_cannot_be_derived_once_it_is_begun(small, moving, place, key):
    log = small(key=moving)
    genesis = next(iter(read(log.path)))
    own = log._present[1]._position.keys
    stolen = KeyFile(moving).load()[1]
    derived = file_keys(stolen, directory=genesis.text("directory"), file=genesis.text("file"))
    assert genesis.number("moves") == 0
    assert derived != own
    # But the process holds the keys of its present file: it goes on with them.
    assert own == file_keys(key, directory=genesis.text("directory"), file=genesis.text("file"))
    log.close()


def test_a_moved_key_does_not_verify_and_says_why(small, moving, place):
    small(key=moving).close()
    with pytest.raises(ConfigError, match="initial key"):
        verify(place, key=moving)


def test_a_directory_that_was_emptied_is_not_begun_anew(small, moving, place):
    small(key=moving).close()
    shutil.rmtree(place)
    with pytest.raises(AuditError, match="tampered"):
        small(key=moving)


def test_a_moving_key_belongs_to_one_directory(small, moving, place, tmp_path, key):
    small(key=moving).close()
    with pytest.raises(AuditError, match="tampered"):
        AuditLog.open(tmp_path / "other", key=moving, principal="alice")
    with AuditLog.open(tmp_path / "third", key=key, principal="alice"):
        pass
    with pytest.raises(AuditError, match="does not verify with this key"):
        AuditLog.open(tmp_path / "third", key=moving, principal="alice")


def test_a_key_file_that_cannot_be_written_refuses(small, moving, place):
    log = small(key=moving)
    moving.unlink()
    with pytest.raises(AuditError, match="audit key file"):
        log.close()
    log.close()
