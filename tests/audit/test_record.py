from __future__ import annotations

import contextlib
import json
from enum import IntEnum, StrEnum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safeser.audit import Record, render
from safeser.audit import record as records
from safeser.errors import AuditError
from safeser.gate import event as events
from tests.draws import draws

NASTY = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from('\n\r\x00\x1b\x7f\x85\u2028\u202e\ud800\udfff\U0001f4a3"\\'),
    ),
    max_size=400,
)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), NASTY, st.lists(NASTY, max_size=80))
EVENTS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True).filter(
        lambda n: n not in events.RESERVED
    ),
    VALUES,
    max_size=32,
)


@draws(100)
@given(EVENTS)
@example({"task": "\x7f"})  # the control character that is the last of ASCII
def test_any_event_becomes_one_bounded_printable_line_and_comes_back(event):
    fields = events.clean(event)
    body = events.encode({**fields, "seq": 3, "time": 5, "type": "event", "policy": "p/1/ab"})
    raw = records.line(b"\x01" * 32, body)
    assert raw.count(b"\n") == 1
    assert raw.endswith(b"\n")
    assert len(raw) <= records.MAX_LINE + 1
    assert all(32 <= byte < 127 for byte in raw[:-1])
    record = records.parse(raw[:-1])
    assert (record.sequence, record.time, record.type) == (3, 5, "event")
    assert record.fields == {**fields, "policy": "p/1/ab"}
    assert (
        json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":")).replace(
            "\x7f", "\\u007f"
        )
        == raw[:-1].decode()
    )


@draws(100)
@given(EVENTS)
def test_what_a_person_sees_is_printable_ascii_on_one_line(event):
    record = Record(0, 1_795_000_000_000_000, "event", events.clean(event), b"")
    text = render(record)
    assert text.isascii()
    assert text.isprintable()


def test_the_largest_event_fits():
    bomb = "\U0001f4a3" * 100_000
    event = {f"f{n}": [bomb] * 1000 for n in range(31)} | {"text": bomb}
    body = events.encode(events.clean(event))
    assert len(body) <= events.MAX_BODY


def test_a_list_of_empty_strings_is_not_free():
    event = {f"f{n}": [""] * 10_000 for n in range(32)}
    fields = events.clean(event)
    assert sum(len(each) for each in fields.values()) < 2_000  # type: ignore[arg-type]
    assert fields["f0"][-1] == "[+9936 more]"  # type: ignore[index]


def test_long_text_is_cut_and_says_so():
    fields = events.clean({"where": "x" * 1000, "globals": ["y" * 300]})
    assert fields == {"where": "x" * 256 + "[+744]", "globals": ["y" * 256 + "[+44]"]}


def test_subclasses_become_plain_values():
    class Text(str):
        def __getitem__(self, item):
            raise AssertionError

        def __str__(self):
            return "other"

    class Colour(StrEnum):
        RED = "red"

    class Number(IntEnum):
        ONE = 1

    fields = events.clean({"a": Text("text"), "b": Colour.RED, "c": Number.ONE, "d": True})
    assert fields == {"a": "text", "b": "red", "c": 1, "d": True}
    assert [type(each) for each in fields.values()] == [str, str, int, bool]


@pytest.mark.parametrize("number", [1 << 53, -(1 << 53), 1 << 100_000], ids=["53", "-53", "100000"])
def test_numbers_that_readers_cannot_hold_are_not_written(number: int):
    assert events.clean({"bytes": number}) == {"bytes": "out of range"}


@pytest.mark.parametrize(
    "event",
    [
        *({name: 1} for name in ("seq", "time", "", "Upper", "a b", "a\n", "a" * 33, 1)),
        *({name: "x"} for name in ("type", "policy")),
        *({"a": value} for value in (1.5, b"bytes", {"b": 1}, [1], [b"x"], object())),
        {f"f{n}": 1 for n in range(33)},
    ],
)
def test_what_the_log_does_not_know_is_refused(event):
    with pytest.raises(AuditError) as caught:
        events.clean(event)
    assert caught.value.rule == "audit.event"


def test_a_record_over_the_bound_is_refused():
    with pytest.raises(AuditError, match="larger"):
        events.encode({"x": "y" * events.MAX_BODY})


GOOD = records.line(b"\xab" * 32, b'{"seq":0,"time":1,"type":"event"}')[:-1]


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{}", b"[]", GOOD + b" ", b" " + GOOD, GOOD.upper(), GOOD.replace(b"ab", b"AB", 1)),
        *(
            GOOD.replace(b'"seq":0', b'"seq":' + number)
            for number in (
                *(b"-1", b"true", b"0.0", b"NaN", b"9007199254740992", b"9" * 5000, b'0,"seq":0'),
            )
        ),
        GOOD.replace(b'"seq":0,', b""),
        GOOD.replace(b'"event"', b"1"),
        GOOD.replace(b'{"seq":0,"time":1,"type":"event"}', b"[" * 60_000),
        GOOD.replace(b'{"seq":0,"time":1,"type":"event"}', b"[]"),
        GOOD.replace(b'"event"', b'"\xff"'),
        b'{"mac":"' + b"x" * 200_000,
    ],
)
def test_lines_that_are_not_records(raw: bytes):
    with pytest.raises(AuditError):
        records.parse(raw)


@draws(100)
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=60).map(lambda b: GOOD[:75] + b)))
def test_any_bytes_parse_or_are_refused(raw: bytes):
    parts = records.split(raw)
    if parts is not None:
        assert records.line(*parts) == raw + b"\n"
    with contextlib.suppress(AuditError):
        records.parse(raw)


@draws(100)
@given(st.integers(0, len(GOOD)), st.integers(0, 5))
def test_a_cut_line_looks_like_one(length: int, zeros: int):
    assert records.begins_like_a_line(GOOD[:length] + b"\0" * zeros)


@pytest.mark.parametrize("raw", [b"x", b'{"mac":"G', GOOD[:72] + b"x", b"x" * 70_000, b"{\n"])
def test_other_bytes_do_not_look_like_a_cut_line(raw: bytes):
    assert not records.begins_like_a_line(raw)


def test_labels_are_short_and_need_no_escape():
    assert records.label('a"b\\c\nd\u202e') == "a?b?c?d?"
    assert len(records.label("x" * 1000)) == 64
    assert records.label(None) == "?"


def test_a_record_as_a_person_sees_it():
    fields = {"sender": "alice", "where": "a b", "globals": ["m:f"], "permitted": True, "x": None}
    record = Record(4, 1_795_000_000_123_456, "event", fields, b"")
    assert render(record) == (
        "2026-11-18T11:06:40.123+00:00 4 event globals=[m:f] permitted=true sender=alice"
        ' where="a b" x=-'
    )
    assert render(Record(0, 1 << 52, "event", {}, b"")).startswith("2112")
