"""Texts of records by the pattern of earlier ones, beside rendering each of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeser.audit.names import Resolver
from safeser.audit.reading import rendering, show
from safeser.audit.reading.alike import Forms
from safeser.audit.reading.rendering import Rendering
from safeser.audit.reading.search import Found
from safeser.audit.reading.show import cell, escaped, when
from safeser.audit.report import stamp
from tests.audit.reading.test_alike import CASE, EVENT, GENESIS, SESSION, line

#: A text that each way spells otherwise than a plain one.
HOSTILE = "%s %%b ;=1+1,\"'\\\x1b[2J\u00e9\n\x7f"

WAYS = {
    "table": (partial(show.lines, width=1 << 20), show._line),
    "json": (show.json_lines, show._json_line),
    "csv": (show.csv_lines, lambda found: show._csv_line(show._row(found))),
}


def records(events: list[dict], *, log: str = "worker", **more: object) -> list[Found]:
    forms = Forms(Resolver())
    raws = [line(each) for each in (GENESIS, {**SESSION, **more}, CASE, *events)]
    return [Found(log, forms.read(raw)) for raw in raws]


def compare(found: list[Found], way: str) -> None:
    whole, single = WAYS[way]
    texts = list(whole(found))
    if way == "csv":
        assert texts.pop(0) == ",".join(show.COLUMNS)
    assert texts == [single(each) for each in found]


texts = st.text(alphabet="aZ09 ;|=+-@,'()%_#{}~.", max_size=130) | st.text(max_size=20)
ints = st.integers(0, (1 << 53) - 1)


@pytest.fixture(autouse=True)
def _sooner(monkeypatch):
    monkeypatch.setattr(rendering, "_FIRST", 4)


@pytest.mark.parametrize("way", WAYS)
@given(st.lists(st.tuples(texts, texts, ints, ints), min_size=6, max_size=12), texts)
@example([("sum-1", "ab", 1, 2)] * 8, HOSTILE)
@example([("=1+1", "x|@y", 1, 2)] * 8, "")
@example([("('a', 0, 1)", "a" * 101, 0, (1 << 53) - 1)] * 8, "100%")
@example([("sum-1", "a" * n, 1, 2) for n in (*[9] * 6, 100, 101, 120, 121, 124, 128)], "")
@example([("a" * n, "", 1, 2) for n in (*[9] * 6, 100, 101, 120, 121, 124, 128)], "")
def test_a_text_is_what_rendering_gives(way, events, address):
    own = [
        {**EVENT, "task": task, "global": name, "time": time, "bytes": size, "seq": seq}
        for seq, (task, name, time, size) in enumerate(events)
    ]
    compare(records(own, address=address), way)


NINE = [{**EVENT, "n": n} for n in range(9)]
PLACED = [{**EVENT, "where": "a.b"}] * 9
SHADOWED = [{"case": 0, "shadow_rule": f"rule-{n}", "times": n} for n in range(9)]
#: What is equal, and of another type.
EQUAL = [(True, 1), (True, [True]), ([True], [1]), ({"a": True}, {"a": 1})]
#: Of files that were changed: no session's id is that long.
LENGTHS = (100, 103, 104, 105, 4_079, 4_080)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("events", "more"),
    [
        *(([*NINE, *PLACED, *SHADOWED, *NINE], {"log": log}) for log in ("a", "100%", 'a"b,c')),
        # A field of cases that an event states itself: a user is shown where it is no sender.
        *(
            ([{**EVENT, name: who} for who in (*["bob"] * 9, "alice", "bob", "alice")], {})
            for name in ("author", "task_author")
        ),
        # A case and a session that are defined anew.
        ([*NINE, {**CASE, "sender": "bob"}, *NINE, {**SESSION, "peer": "nanny"}, *NINE], {}),
        # Another session begins, which clears what is shared; the first keeps its pattern.
        ([each for n in range(1, 5) for each in ({**SESSION, "s": n}, *NINE)], {}),
        *(
            (
                [{**CASE, "permitted": one}, *NINE, {**CASE, "permitted": other}, *NINE],
                {},
            )
            for one, other in EQUAL
        ),
        # A decision is as long as its number.
        *(
            ([*[{**EVENT, "n": 7}] * 9, *[{**EVENT, "n": 1 << 52}] * 9], {"id": "i" * length})
            for length in LENGTHS
        ),
    ],
)
def test_what_each_form_says(way, events, more):
    compare(records(events, **more), way)


@pytest.mark.parametrize("way", WAYS)
def test_files_that_say_the_same_keep_their_logs_apart(way):
    """Where the records of two are shown in the order of their times."""
    pairs = zip(records(NINE), records(NINE, log="nanny"), strict=True)
    compare([each for pair in pairs for each in pair], way)


def test_an_event_like_earlier_ones_is_not_rendered():
    rendered = []
    render = Rendering(lambda found: rendered.append(found) or show._json_line(found))
    for found in records([{**EVENT, "n": n} for n in range(9)]):
        assert json.loads(render(found))["log"] == "worker"
    # Three that define, one that the form is read from, three of the form, and two samples.
    assert len(rendered) == 9


@pytest.mark.parametrize("way", WAYS)
def test_a_number_that_is_text_takes_the_long_way(way):
    """A decision would be a text of which only a part was looked at."""
    events = [{**EVENT, "n": text} for text in (*["ab"] * 9, *["a,=HYPERLINK(0),b"] * 9)]
    found = records(events)
    assert type(found[-1].record.fields) is dict
    compare(found, way)


def test_a_long_text_has_no_pattern():
    """What many sessions state would be in memory as often as there are patterns."""
    found = records([EVENT] * 9, address="x" * 5_000)
    render = Rendering(show._json_line)
    assert [*map(render, found)] == [*map(show._json_line, found)]
    assert [each.text for each in render._patterns.values()] == [None]


def test_patterns_are_bounded(monkeypatch):
    monkeypatch.setattr(rendering, "MAX_PATTERNS", 2)
    cases = [{**CASE, "case": n, "sender": f"user-{n}"} for n in range(4)]
    events = [{**EVENT, "case": n} for n in (0, 1, 2, 3, 0, 1) for _ in range(9)]
    render = Rendering(show._json_line)
    kept = []
    for found in records([*cases, *events]):
        assert render(found) == show._json_line(found)
        assert len(render._patterns) <= len(render._seen) <= 2
        kept.append(len(render._patterns))
    assert max(kept) == 2


# --- cells and times ------------------------------------------------------------------------------


@given(st.text() | st.text(alphabet="aA0 _;|=+-@\\\"'\x7f,~"))
@example("a" * 5_000)
@example("a;=1")
@example("a| @x")
@example("-")
@example("a\\")
def test_a_plain_cell_is_what_escaping_gives(text):
    shown = text[:4_096].encode("unicode_escape", "backslashreplace").decode("ascii")
    shown += "..." if len(text) > 4_096 else ""
    assert cell(text) == show._FORMULA.sub(r"\1'", shown)


@given(st.text(), st.integers(0, 30))
def test_an_escaped_text_is_its_start(text, limit):
    shown = text[:limit].encode("unicode_escape", "backslashreplace").decode("ascii")
    assert escaped(text, limit) == (shown if len(text) <= limit else shown + "...")


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9999, 12, 31)))
def test_a_time_is_that_of_the_calendar(time):
    time = time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    assert stamp(micros) == time.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert when(micros, short=True) == time.strftime("%m-%d %H:%M:%S")


@pytest.mark.parametrize("time", [(1 << 53) - 1 << 10, 1 << 62, -(1 << 62)])
def test_a_time_of_no_calendar(time):
    assert stamp(time) == when(time) == when(time, short=True) == "-"
