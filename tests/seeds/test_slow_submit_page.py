"""docs/how-to/slow-submit.md: its program prints what the page says, but for times.

The sentence: a page "Why is my submit slow?" from symptom to cure on real output.
"""

from __future__ import annotations

import re

import pytest

from tests.pages import Page
from tests.seeds.running import run

PAGE = Page("how-to/slow-submit.md")

#: A row of the upper part: process, action, family, number and bytes; the last column is a time.
_ROW = re.compile(r"(this process|\d+ workers?) +(\w+) +(\w+) +([\d,]+) +([\d,]+) +[\d,.]+$", re.M)

#: An entry of the lower part: number, bytes, a time, action and type.
_TYPE = re.compile(r"^ +([\d,]+) +([\d,]+) +[\d,.]+ +(hash|serialize|deserialize) (\S+)$", re.M)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def pickles(text: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Return number and bytes of the pickles in the table of *text*, by process and action."""
    return {
        ("workers" if "worker" in process else process, action): (number(count), number(size))
        for process, action, family, count, size in _ROW.findall(text)
        if family == "cloudpickle"
    }


def types(text: str) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the same of what the table names of the program's and Dask's graph classes."""
    return {
        (action, name): (number(count), number(size))
        for count, size, action, name in _TYPE.findall(text)
        if name.startswith(("models.", "dask."))
    }


def same(found: dict, said: dict) -> None:
    """Check that the rows are the same; other releases write some bytes more or less."""
    assert found.keys() == said.keys()
    for row, (count, size) in said.items():
        assert found[row] == (count, pytest.approx(size, rel=0.01, abs=2_000)), row


def printed(word: str) -> list[str]:
    """Return the blocks of the page's output that hold *word*."""
    blocks = re.findall(r"^```text\n(.*?)^```", PAGE.text, re.M | re.S)
    return [block for block in blocks if word in block]


@pytest.mark.cluster
def test_the_program_prints_what_the_page_says(tmp_path):
    (tmp_path / "models.py").write_text(PAGE.files["models.py"], "utf-8")
    # With the comment that names its file.
    (tmp_path / "slow.py").write_text(f"# slow.py\n{PAGE.files['slow.py']}", "utf-8")
    ended = run("slow.py", cwd=tmp_path)
    found, warned = ended.out, ended.err
    said, _ = printed("process ")
    same(pickles(found), pickles(said))
    same(types(found), types(said))
    for text in (found, said):
        assert "no counts of scheduler: it is part of this process, which counts it\n" in text
    # A list's own frame is gone in newer releases of Python.
    place = r"hash models\.Model\n +slow\.py, line 11, in (<listcomp>|main)$"
    assert re.search(place, found, re.M)
    assert re.search(place, said, re.M)
    [advice] = printed("SerializationAdvice")
    assert warned.partition("slow.py:11: ")[2].splitlines() == (
        advice.partition("slow.py:11: ")[2].splitlines()
    )
