"""polars' frames: any values, panics, and what is not copied."""

import subprocess
import sys
import tracemalloc

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from safeser import families
from safeser.errors import PayloadError
from tests.samples.typed import FAMILIES, GRANT


def test_a_panic_is_a_refusal(monkeypatch):
    """Panics are no Exception: one that came through would end whatever thread reads messages."""

    def panic(*_, **__):
        raise pl.exceptions.PanicException("out of range")

    frame = pl.DataFrame({"a": [1]})
    header, frames = families.serialize(frame, FAMILIES)
    monkeypatch.setattr(pl, "from_arrow", panic)
    with pytest.raises(PayloadError, match="cannot import it"):
        families.deserialize(header, frames, GRANT)
    monkeypatch.setattr(pl.DataFrame, "to_arrow", panic)
    with pytest.raises(PayloadError, match="cannot export it"):
        families.serialize(frame, FAMILIES)


def test_arrow_is_known_where_polars_is():
    """A plan that was refused had polars' types listed without those of the tables in them."""
    code = """
import polars
from safeser import families
from safeser.errors import SafeserError
from safeser.families.registry import registry
try:
    families.serialize(polars.DataFrame({"a": [1]}).lazy(), ("dask",))
except SafeserError:
    assert registry.listed("pyarrow:Table") is not None
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_large_buffers_are_not_copied():
    frame = pl.DataFrame({"a": np.arange(100_000.0), "b": ["text that is long"] * 100_000})
    exported = frame.to_arrow(compat_level=pl.CompatLevel.newest())
    header, frames = families.serialize(frame, FAMILIES)
    sent = {pa.py_buffer(sent).address for sent in frames}
    for name in "ab":
        chunk = exported[name].chunk(0)
        assert {buffer.address for buffer in chunk.buffers() if buffer} <= sent
    received = [memoryview(bytearray(sent)) for sent in frames]
    places = {pa.py_buffer(sent).address for sent in received}
    tracemalloc.start()
    got = families.deserialize(header, received, GRANT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < frame.estimated_size() // 10
    chunk = got.to_arrow(compat_level=pl.CompatLevel.newest())["a"].chunk(0)
    assert chunk.buffers()[1].address in places
