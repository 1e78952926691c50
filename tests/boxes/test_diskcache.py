"""A sealed cache: what is planted in its folder is refused, and nothing of it runs or is read."""

from __future__ import annotations

import os
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import diskcache
import numpy as np
import pytest

import safeser
from safeser.boxes.diskcache import SealedCache, SealedDisk
from safeser.errors import ConfigError, EnvelopeError, PayloadError, SafeserError
from tests.conftest import Witness


@pytest.fixture
def box():
    return safeser.Box.shared(safeser.Secret.generate(), audit=Witness())


@pytest.fixture
def cache(box, tmp_path):
    made = SealedCache(box, tmp_path / "cache")
    yield made
    made.close()


@pytest.fixture
def rows(tmp_path, cache):
    """The rows of the cache, as another program can change them."""
    cache.set("mine", [1], expire=60)
    cache.set("other", [2], expire=60)
    database = sqlite3.connect(tmp_path / "cache" / "cache.db", isolation_level=None)
    yield database
    database.close()


def evil(path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(path),)

    return pickle.dumps(Evil())


def test_values_pass(cache):
    cache.set("array", {"a": np.arange(3)}, expire=60)
    assert cache.get("array")["a"].tolist() == [0, 1, 2]
    assert cache.get("missing", "default") == "default"
    assert cache.delete("array")
    assert cache.get("array") is None
    cache.set("endless", "x", expire=None)
    assert cache.get("endless") == "x"
    assert list(cache.cache) == ["endless"]


def test_large_values_are_rows_too(cache, tmp_path):
    cache.set("large", np.zeros(1 << 20), expire=60)
    assert cache.get("large").nbytes == 8 << 20
    assert not list((tmp_path / "cache").rglob("*.val"))


#: What a row may be changed to; ``?`` gets a pickle that makes a folder.
PLANTED = {
    "a pickle in the row": "mode = 4, value = ?",
    "a pickle in a file": "mode = 4, value = null, filename = 'evil.val'",
    "a pickle as bytes": "value = ?",
    "a file of the cache": "mode = 2, value = null, filename = 'evil.val'",
    "an endless file": "mode = 2, value = null, filename = '/dev/zero'",
    "a text file": "mode = 3, value = null, filename = '/etc/passwd'",
    "text": "value = 'text'",
    "a number": "value = 7",
    "the value of another key": "value = (select value from Cache where key = 'other')",
    "nothing": "value = x''",
    "a part of it": "value = substr(value, 1, length(value) - 1)",
}


@pytest.mark.parametrize("change", PLANTED)
def test_what_is_planted_is_refused(cache, rows, tmp_path, change):
    data = evil(tmp_path / "ran")
    (tmp_path / "cache" / "evil.val").write_bytes(data)
    set_ = PLANTED[change]
    rows.execute(f"update Cache set {set_} where key = 'mine'", (data,) if "?" in set_ else ())
    with pytest.raises(EnvelopeError):
        cache.get("mine")
    assert not (tmp_path / "ran").exists()
    assert cache.get("other") == [2]


def test_stock_diskcache_runs_the_same_row(cache, rows, tmp_path):
    data = evil(tmp_path / "ran")
    rows.execute("update Cache set mode = 4, value = ? where key = 'mine'", (data,))
    with diskcache.Cache(str(tmp_path / "cache"), disk=diskcache.Disk) as stock:
        stock.get("mine")
    assert (tmp_path / "ran").exists()


def test_a_key_that_is_a_pickle_is_refused(cache, rows, tmp_path):
    rows.execute("update Cache set key = ?, raw = 0 where key = 'mine'", (evil(tmp_path / "ran"),))
    with pytest.raises(EnvelopeError) as caught:
        list(cache.cache)
    assert caught.value.rule == "box.cache"
    assert not (tmp_path / "ran").exists()


def test_no_file_is_removed(cache, rows, tmp_path):
    precious = tmp_path / "precious"
    precious.touch()
    rows.execute("update Cache set filename = ? where key = 'mine'", (str(precious),))
    assert cache.delete("mine")
    rows.execute("update Cache set filename = ?, expire_time = 1", (str(precious),))
    cache.cache.expire()
    assert precious.exists()


def test_values_of_other_caches_and_secrets_do_not_open(cache, box, tmp_path):
    cache.set("key", 1, expire=60)
    folder = tmp_path / "cache"
    stranger = safeser.Box.shared(safeser.Secret.generate(), audit=Witness())
    for other in (SealedCache(box, folder, name="another"), SealedCache(stranger, folder)):
        with pytest.raises(SafeserError):
            other.get("key")
        other.close()


def test_a_name_shares_no_key_with_a_shorter_one(cache, box, tmp_path):
    users, admins = (
        SealedCache(box, tmp_path / name, name=name) for name in ("users", "users: admin")
    )
    users.set("admin: flag", True, expire=60)
    admins.cache.set("flag", users.cache.get("admin: flag"), expire=60)
    with pytest.raises(EnvelopeError) as caught:
        admins.get("flag")
    assert caught.value.rule == "box.about"
    for each in (users, admins):
        each.close()


#: Rows that an attacker adds to the settings; None where the program's own are taken instead.
SETTINGS = {
    "an option of the disk": ("disk_evil", "x", "box.cache"),
    "a pragma": ("sqlite_hard_heap_limit", 1, "box.cache"),
    "SQL in a name": ("sqlite_journal_mode; x", "1", "box.cache"),
    "a method of the cache": ("get", "x", "box.cache"),
    "a name of bytes": (b"x", 1, "box.cache"),
    "text for a number": ("hits", "x", "box.cache"),
    "no eviction policy": ("eviction_policy", "nope", None),
    "SQL in a value": ("sqlite_mmap_size", "1; x", None),
    "files for large values": ("disk_min_file_size", "x", None),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_folder_are_not_taken(cache, rows, box, tmp_path, name):
    key, value, rule = SETTINGS[name]
    rows.execute("insert or replace into Settings values (?, ?)", (key, value))

    def use(opened):
        opened.set("new", 1, expire=60)
        opened.cache.cull()
        return opened.get("mine")

    def outcome(call, *arguments):
        try:
            return call(*arguments)
        except EnvelopeError as error:
            return error.rule

    with ThreadPoolExecutor(1) as pool:  # whose connection of its own takes settings again
        assert pool.submit(outcome, use, cache).result() in ([1], rule)
    opened = outcome(SealedCache, box, tmp_path / "cache")
    if rule is not None:
        assert opened == rule
        return
    assert use(opened) == [1]
    opened.close()


def test_a_folder_with_another_file(box, tmp_path):
    (tmp_path / "cache.db").write_bytes(b"no database" * 1000)
    with pytest.raises(EnvelopeError) as caught:
        SealedCache(box, tmp_path)
    assert caught.value.rule == "box.cache"


def test_settings_of_the_program_are_taken(box, tmp_path):
    cache = SealedCache(box, tmp_path, size_limit=1 << 20, eviction_policy="none")
    assert (cache.cache.size_limit, cache.cache.eviction_policy) == (1 << 20, "none")
    cache.cache.reset("size_limit", 7)
    assert (cache.cache.size_limit, cache.cache.reset("size_limit")) == (7, 7)
    cache.close()


def test_what_is_not_kept():
    disk = SealedDisk("anywhere")
    for call in (lambda: disk.put(b"key"), lambda: disk.put(7), lambda: disk.store("x", False)):
        with pytest.raises(ConfigError) as caught:
            call()
        assert caught.value.rule == "box.cache"


def test_what_cannot_be_sealed_is_not_kept(cache):
    with pytest.raises(PayloadError):
        cache.set("key", lambda: None, expire=60)
    assert cache.get("key") is None
