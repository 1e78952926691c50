"""What a worker spills has a file of a short name, whatever its key."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from distributed.spill import SpillBuffer
from zict import File

from safeser.dask.spilled import shorten_names

STOCK = File._safe_key
LONG = ["k" * 300, "/" * 100, "../" * 80, "\N{GRINNING FACE}" * 100]


@pytest.fixture(autouse=True)
def _shortened(monkeypatch):
    monkeypatch.setattr(File, "_safe_key", STOCK)
    shorten_names()
    shorten_names()


def spilling(folder, key):
    """Return a worker's values, of which *key* is the first that memory has no room for."""
    values = SpillBuffer(str(folder), target=3000)
    for number, name in enumerate((key, *map(str, range(5)))):
        values[name] = np.full(1000, number, "u1")
    return values


@pytest.mark.parametrize("key", LONG)
def test_values_under_long_keys_are_spilled(tmp_path, key):
    values = spilling(tmp_path, key)
    assert {key, "0", "1"} <= set(values.slow)
    assert [int(values[name][0]) for name in (key, "0", "4")] == [0, 1, 5]
    files = [path.name for path in tmp_path.iterdir()]
    assert len(files) == len(values.slow)
    assert max(map(len, files)) < 200


def test_one_long_key_kept_everything_in_memory(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(File, "_safe_key", STOCK)
    with caplog.at_level(logging.CRITICAL, "distributed.spill"):
        assert not len(spilling(tmp_path, LONG[0]).slow), "the control did not run"


def test_keys_that_begin_alike_have_files_of_their_own(tmp_path):
    values = SpillBuffer(str(tmp_path), target=1)
    for number in range(3):
        values["k" * 300 + str(number)] = np.full(10, number, "u1")
    assert [int(values["k" * 300 + str(number)][0]) for number in range(3)] == [0, 1, 2]
    del values["k" * 300 + "1"]
    assert len(list(tmp_path.iterdir())) == 2


def test_text_that_is_no_unicode_can_be_a_key(tmp_path):
    file = File(str(tmp_path))
    file["\udc80"] = b"x"
    assert bytes(file["\udc80"]) == b"x"
