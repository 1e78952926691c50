"""The tables of docs/approved-operations.md: what works under ``approved``, and what is refused.

A part of them is measured here; `python -m benchmarks.approved` measures them all.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.approved.coverage import PLACES, UNMEASURED, missing
from benchmarks.approved.operations import conflicts, judge, names, operations
from safeser.policy.policy import Policy

WORKS = (
    "x + y",
    "da.log1p(x)",
    "da.gradient(x)",
    "da.unravel_index(da.arange(5, chunks=2), (10, 10))",
    "da.nanquantile(x, 0.5, axis=0)",
    "da.isnull(x)",
    "da.ma.masked_array(x, mask=x > 0.5)",
    "da.ma.getdata(da.ma.masked_greater(x, 0.5))",
    "da.ma.count(da.ma.masked_greater(x, 0.5), axis=0)",
    "da.fft.irfftn(x.rechunk(-1))",
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
    "df.a.case_when([(df.a > 3, 1), (df.a > 1, 2)])",
    "df.a.rolling(3).agg(['min', 'max'])",
    "df.groupby('k').get_group('a')",
    "len(df)",
    "df.map_partitions(lib.identity)",
    "dd.from_map(lib.make_frame, [1, 2, 3])",
)
#: And what is said to be the reason.
REFUSED = {
    "x.map_blocks(lambda block: block + 1)": "<lambda>",
    "x.map_blocks(lib.unlisted)": "benchmarks.approved.lib:unlisted",
    "x.view('i8')": "dask.array.chunk:view",
    "da.empty_like(x) * 0": "numpy:empty_like",
    "da.from_npy_stack(stack)": "numpy:load",
    "da.to_npy_stack('folder', x)": "numpy:save",
    "da.store(x, out, compute=False)": "dask.array.core:load_store_chunk",
    "df.query('a > 3')": "the method query",
    "df.c.str.encode('utf-8')": "the method encode",
    "df.map_partitions(lib.unlisted)": "benchmarks.approved.lib:unlisted",
    "dd.read_csv(csv)": "fsspec.core:OpenFile",
    "dd.read_parquet(parquet)": "dask.dataframe.io.parquet.core:ParquetFunctionWrapper",
    "df.to_csv('folder', compute=False)[0]": "fsspec.core:OpenFile",
}


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


@pytest.mark.parametrize(
    "text", [*SHARED, *(text for text in WORKS if "random" not in text and text != "len(df)")]
)
def test_whoever_submits_code_may_compute_the_same_meanwhile(given, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert not conflicts(text, given)


@pytest.mark.parametrize("text", REFUSED)
def test_refused(given, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    verdict = judge("", text, given)
    assert verdict.outcome == "refused"
    assert REFUSED[text] in verdict.why
    assert not list(tmp_path.rglob("*.npy"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("da.interp(v, [0.0, 1.0], [0.0, 10.0])", "AttributeError"),
        ("da.from_npy_stack('nowhere')", "FileNotFoundError"),
        ("df.a.median()", "NotImplementedError"),
        ("x.reshape(7, 7)", "ValueError"),
    ],
)
def test_what_stock_dask_fails_on_is_neither(given, text, why):
    verdict = judge("", text, given)
    assert (verdict.outcome, verdict.why.partition(":")[0]) == ("none", why)


@pytest.mark.parametrize("text", ["[x + y, x.map_blocks(lib.unlisted)]", "(df.query('a > 3'), 1)"])
def test_each_part_of_lists_and_tuples_is_judged(given, text):
    assert judge("", text, given).outcome == "refused"


@pytest.mark.parametrize("text", ["next(count)"])
def test_what_differs_is_said_to(given, text):
    assert judge("", text, {**given, "count": itertools.count()}).outcome == "differs"


@pytest.mark.parametrize("place", PLACES)
def test_every_public_name_is_measured_or_has_a_reason_not_to_be(place):
    # Those that are spelled meanwhile, or that Dask no longer has, need no reason.
    assert missing(place) == set(UNMEASURED.get(place, ()))
    assert all(UNMEASURED.get(place, {}).values())


_POLICY = """
safeser: 1
name: page
revision: 1
principals: {scheduler: {}, alice: {groups: [analysts]}}
contexts:
"""
DOCS = Path(__file__).parents[2] / "docs"
_ROW = re.compile(
    r"\| (?P<section>[^|]*)\| `(?P<text>.*)` \| (?P<outcome>[a-z, ]+)(?:: (?P<why>.*))? \|"
)


def written(kind):
    page = (DOCS / "approved-operations.md").read_text("utf-8")
    part = page.partition(f"## {kind.capitalize()}\n")[2].partition("\n## ")[0]
    count = next(line for line in part.splitlines() if line.endswith("."))
    return count, [
        {**row, "text": row["text"].replace("\\|", "|")}
        for row in (found.groupdict() for found in map(_ROW.fullmatch, part.splitlines()) if found)
    ]


@pytest.mark.parametrize("kind", ["arrays", "frames"])
def test_the_page_has_the_operations_and_their_number(kind):
    count, rows = written(kind)
    assert [row["text"] for row in rows] == [text for _, text in operations(kind)]
    found = Counter(row["outcome"] for row in rows)
    assert (
        count
        == f"{len(rows)} operations: "
        + ", ".join(
            f"{found[word]} {word}" for word in ("works", "refused", "differs") if found[word]
        )
        + "."
    )
    assert all((row["outcome"] == "refused") == bool(row["why"]) for row in rows)


def test_the_page_says_what_is_measured_here():
    rows = {row["text"]: row for kind in ("arrays", "frames") for row in written(kind)[1]}
    assert {rows[text]["outcome"] for text in WORKS} == {"works"}
    assert {rows[text]["outcome"] for text in REFUSED} == {"refused"}
    assert all(culprit in rows[text]["why"] for text, culprit in REFUSED.items())


def test_the_policy_of_the_page_loads():
    page = (DOCS / "approved.md").read_text("utf-8")
    context = page.partition("```yaml\n")[2].partition("```")[0]
    policy = Policy.parse(f"{_POLICY}{context}")
    (found,) = policy.contexts
    assert found.submission == "approved"
