"""Parts of headers that a stock peer may get wrong, and pickles that are only looked at."""

from __future__ import annotations

import pickle
import sys
import types

import numpy as np
import pytest
import scipy.sparse as sp
import zstandard

from safeser import pickles
from safeser.dask.stock import wire
from safeser.dask.stock.client import _is_unguarded
from safeser.errors import PayloadError
from safeser.families import compression
from safeser.gate.values import Limits
from safeser.pickles import held_by

# -- compression that this machine may not have ----------------------------------------------------


@pytest.fixture
def no_known_codecs():
    """Codecs are looked for anew, here and by whatever test is next."""
    compression._codec.cache_clear()
    yield
    compression._codec.cache_clear()


@pytest.mark.usefixtures("no_known_codecs")
def test_zstandard_says_its_size(monkeypatch):
    huge = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little")
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(b"x")
    for body, message in ((huge, "over max_array"), (unsaid, "do not say"), (b"x", "how large")):
        with pytest.raises(PayloadError, match=message):
            wire.decompressed(("zstd",), [memoryview(body)], wire.Room(Limits()))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(PayloadError):
        wire.decompressed(("zstd",), [memoryview(huge)], wire.Room(Limits()))


# -- pickles that are read and never loaded --------------------------------------------------------


def test_names_of_what_pickles_hold():
    assert held_by(pickle.dumps([1])) == "list"
    assert held_by(pickle.dumps(3)) == "int"
    assert held_by(pickle.dumps(print)) == "builtins:print"
    assert held_by(pickle.dumps(sp.csr_matrix(np.eye(2)))) == "scipy.sparse._csr:csr_matrix"
    assert held_by(b"garbage") == ""
    assert held_by(bytes(1 << 17)) == ""
    assert pickles.held_by is held_by


def test_who_speaks_without_a_guard():
    def some(**attributes):
        return types.SimpleNamespace(**{"status": "running", **attributes})

    assert _is_unguarded(some(connection_args={"ssl_context": None}))
    assert _is_unguarded(some())
    assert not _is_unguarded(some(status="closed"))
    assert not _is_unguarded(some(connection_args={"guarded": 1}))
    assert not _is_unguarded(some(connection_args={"safeser": 1}))
