"""What is written of records: the ways that save time beside those that they stand for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeser.audit.reading import show
from safeser.audit.reading.show import cell, escaped, when
from safeser.audit.report import stamp


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
