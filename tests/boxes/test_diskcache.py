"""A sealed cache: what is planted in its folder is refused, and nothing of it runs or is read."""

from __future__ import annotations

import os
import pickle
import sqlite3

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
