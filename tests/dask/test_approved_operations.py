"""A part of the tables in docs/approved.md: what works under ``approved``, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.approved.operations import conflicts, judge, names, operations

WORKS = (
    "x + y",
    "da.log1p(x)",
    "x.mean(axis=0)",
    "x.argmin()",
    "x[x > 0.5]",
    "x.rechunk((20, 100))",
    "x @ y",
    "da.linalg.qr(t)[1]",
    "da.fft.fft(x.rechunk({1: -1}))",
    "da.stack([x, y])",
    "x.compute_chunk_sizes()",
    "da.random.default_rng(1).normal(size=(100,), chunks=50)",
    "x.map_blocks(lib.double, dtype='f8')",
    "df.a + df.b",
    "df.loc[10:90]",
    "df.set_index('t').loc['2000-01-02':]",
    "df.set_index('b').loc[0.2:0.5]",
    "df.a.map({1: 10, 2: 20})",
    "df.groupby('k').agg({'a': 'sum', 'b': 'mean'})",
    "df.merge(other, on='k')",
    "df.set_index('a')",
    "df.sort_values('b')",
    "df.a.rolling(3).sum()",
    "df.c.str.upper()",
    "df.t.dt.year",
    "df.describe()",
    "df.k.value_counts()",
    "df.a.idxmin()",
    "df.a.is_monotonic_increasing",
    "df.map_partitions(lib.identity)",
    "dd.from_map(lib.make_frame, [1, 2, 3])",
)
REFUSED = (
    "x.map_blocks(lambda block: block + 1)",
    "x.map_blocks(lib.unlisted)",
    "da.from_npy_stack('folder')",
    "da.store(x, out, compute=False)",
    "df.query('a > 3')",
    "df.map_partitions(lib.unlisted)",
    "dd.read_csv(csv)",
    "dd.read_parquet(parquet)",
    "df.to_csv('folder', compute=False)[0]",
)


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return names(Path(tmp_path_factory.mktemp("tables")))


@pytest.mark.parametrize("text", WORKS)
def test_works(given, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert judge("", text, given).outcome == "works"


#: Beside those of WORKS, whose keys are the same in every process.
SHARED = (
    "da.ones((100, 100), chunks=50)",
    "da.unique(k.ravel(), return_counts=True)[1]",
    "df.dropna()",
    "df.groupby('k').a.mean()",
    "df.c.str.split('_').explode()",
    "df.a.cumsum()",
)


@pytest.mark.parametrize("text", [*SHARED, *(text for text in WORKS if "random" not in text)])
def test_whoever_submits_code_may_compute_the_same_meanwhile(given, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not conflicts(text, given)


@pytest.mark.parametrize("text", REFUSED)
def test_refused(given, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert judge("", text, given).outcome in ("refused", "none")


def test_the_tables_are_broad():
    assert len(operations("arrays")) >= 120
    assert len(operations("frames")) >= 150
    listed = {text for kind in ("arrays", "frames") for _, text in operations(kind)}
    assert listed.issuperset({*WORKS, *REFUSED})
