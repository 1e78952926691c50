"""The report: right sums, bounded, and nothing of a peer's that a browser would act on."""

from __future__ import annotations

import asyncio
import re
import shutil
from html.parser import HTMLParser

import pytest

from safeser.audit import Record
from safeser.audit.reading import summary as summary_module
from safeser.audit.reading.page import page
from safeser.audit.reading.search import Found
from safeser.audit.reading.summary import Summary, summarize

HOSTILE = [
    "<script>document.title='ran'</script>",
    "<img src=x onerror=\"document.title='ran'\">",
    "' onmouseover='document.title=1",
    '"><svg onload=document.title="ran">',
    "</style></title><b>",
    "\x1b[2J\u202e",
    "javascript:alert(1)",
    "<td class=n>",
    "&lt;b&gt;",
]


def found(time: int = 0, **fields: object) -> Found:
    said = {"event": "admit", "sender": "alice", "recipient": "scheduler", "permitted": True}
    return Found("scheduler", Record(1, time * 1_000_000, "event", {**said, **fields}, b""))


def of(*records: Found) -> Summary:
    return summarize(records)


def hostile() -> str:
    names = ("sender", "recipient", "family", "rule", "author", "task_author", "task", "reason")
    records = [
        found(n, **dict.fromkeys(names, text), permitted=allowed, shadow_rule=text)
        for n, text in enumerate(HOSTILE)
        for allowed in (True, False)
    ]
    records += [found(author=text, task=text, family="sealed") for text in HOSTILE]
    return page(of(*records), logs=HOSTILE, skipped=HOSTILE, made=HOSTILE[0])


class Tags(HTMLParser):
    """The elements of a page and the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def rows_below(heading: str, text: str) -> list[list[str]]:
    """Return the cells of each row of the table below a heading."""
    table = text.partition(f"<h2>{heading}</h2>")[2].partition("<h2>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in table.split("<tr")]
    return [[re.sub("<[^>]*>", "", cell) for cell in row] for row in rows if row]


def test_hostile_texts_are_texts():
    parsed = Tags(hostile())
    assert parsed.tags == {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "code"),
        *("div", "b", "span", "svg", "rect", "line", "text", "table", "thead", "tbody"),
        *("tr", "th", "td"),
    }
    assert not [name for name in parsed.attributes if name.startswith("on")]
    assert not parsed.attributes & {"src", "href", "srcset", "action", "data"}
    for text in HOSTILE:
        assert text.encode("unicode_escape").decode("ascii") in parsed.text
    assert "\x1b" not in parsed.text


def test_the_page_names_no_host_and_forbids_all_loads():
    text = hostile()
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//|url\(|@import", text.replace("<!doctype html>", ""))


#: The least contrast of text that WCAG 2 asks for (level AA), whatever its size.
READABLE = 4.5


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_readable_in_light_and_in_dark(tmp_path, scheme):
    pytest.importorskip("tornado")
    from tests.browser import tab  # the other tests need no tornado

    # Cells of every shade, each with a refusal in it.
    many = [
        found(n, sender=f"s{n}", family="sealed", permitted=allowed, times=times, rule="r")
        for n in range(12)
        for allowed, times in ((True, 3**n), (False, 1 + n))
    ]
    text = page(
        of(*many, found(20, shadow_rule="context.family")),
        logs=["audit"],
        skipped=["x.log: it is no audit log"],
        made="now",
    )
    place = tmp_path / "page.html"
    place.write_text(text, encoding="ascii", errors="xmlcharrefreplace")

    async def look():
        async with tab(f"file://{place}", tmp_path / "own") as opened:
            await opened.shows("safeser audit report", "Files that were left out")
            await opened.prefer(scheme)
            ground = await opened.value("getComputedStyle(document.body).backgroundColor")
            return ground, await opened.drawn()

    ground, drawn = asyncio.run(look())
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 31)"}[scheme]
    shown = {each.text for each in drawn}
    assert {"safeser audit report", "users whose code ran", f"{3**11:,}", "12", "s11"} <= shown
    assert {"refused", "01-01 00:00:00", "context.family", "safeser audit verify"} <= shown
    assert [each for each in drawn if each.contrast < READABLE] == []


def test_sums_are_right():
    got = of(
        found(1),
        found(1, family="sealed", task="inc-0123456789abcdef", author="bob"),
        found(2, family="sealed", task="('fit-sum-0123456789abcdef', 3)", author="bob"),
        found(9, permitted=False, rule="context.none", sender="mallory", reason="no context"),
        found(9, permitted=False, rule="authentication", sender="unknown", times=40),
        found(10, permitted=True, shadow_rule="context.family"),
        found(10, permitted=None),
        # What a process does by itself, and what two workers with one key send each other.
        found(10, event="reload", sender="worker", recipient="worker"),
        found(10, sender="worker", recipient="worker", session="s"),
    )
    assert (got.records, got.first, got.last) == (47, 1_000_000, 10_000_000)
    assert got.pairs["worker", "worker", "no payload"] == [1, 0]
    assert got.pairs["alice", "scheduler", "sealed"] == [2, 0]
    assert got.refusals == {("context.none", "mallory"): 1, ("authentication", "unknown"): 40}
    [(key, code)] = got.code.items()
    assert key == ("bob", "alice", "scheduler", "sealed")
    assert (code.count, code.tasks) == (2, {"inc", "fit-sum"})
    assert got.shadow == {("context.family", "alice"): 1}
    text = page(got, logs=["a"], skipped=[], made="now")
    assert "47</b>decisions" in text
    rows = rows_below("Refusals by rule and peer", text)
    assert ["context.none", "mallory", "1", "no context"] in rows
    assert "41</b>refused" in text
    assert "The log holds none" in page(of(), logs=["a"], skipped=[], made="now")


def test_who_ran_code_is_the_user_beside_who_sent_it():
    """A scheduler packs pickles for its users: each is that of the user whose task it was."""
    relayed = {"sender": "scheduler", "recipient": "worker", "family": "cloudpickle"}
    packed = {**relayed, "author": "scheduler"}
    got = of(
        found(1, **packed, task_author="bob", task="fit-0123456789abcdef"),
        *(found(2, **packed, task_author="alice", task="inc-0123456789abcdef") for _ in range(2)),
        *(found(3, author="alice", family="cloudpickle") for _ in range(3)),
        found(4, **{**relayed, "family": "sealed"}, author="carol"),
        *(found(5, **packed) for _ in range(2)),
        found(6, family="cloudpickle", sender="dan"),
    )
    rows = rows_below("Who ran code", page(got, logs=["a"], skipped=[], made="now"))
    assert [(*row[:5], row[7]) for row in rows] == [
        ("alice", "alice", "scheduler", "cloudpickle", "3", ""),
        ("alice", "scheduler", "worker", "cloudpickle", "2", "inc"),
        ("scheduler", "scheduler", "worker", "cloudpickle", "2", ""),
        ("bob", "scheduler", "worker", "cloudpickle", "1", "fit"),
        ("carol", "scheduler", "worker", "sealed", "1", ""),
        ("dan", "dan", "scheduler", "cloudpickle", "1", ""),
    ]
    assert "5</b>users whose code ran" in page(got, logs=["a"], skipped=[], made="now")


def test_a_log_of_many_names_and_years_takes_bounded_memory(monkeypatch):
    monkeypatch.setattr(summary_module, "MAX_NAMES", 50)
    monkeypatch.setattr(summary_module, "MAX_PARTS", 50)
    records = [
        found(n * 100_000, sender=f"s{n}", rule=f"r{n}", permitted=n % 2 == 0, family=f"f{n}")
        for n in range(500)
    ]
    records += [found(author=f"a{n}", family="sealed", task=f"t{n}") for n in range(100)]
    got = of(*records)
    assert len(got.parts) <= 50
    assert max(map(len, (got.pairs, got.refusals, got.code))) <= 51
    assert sum(map(sum, got.parts.values())) == sum(map(sum, got.pairs.values())) == 600
    text = page(got, logs=["a"], skipped=["x"] * 100, made="now")
    assert len(text) < 60_000
    assert "more are not shown" in text
