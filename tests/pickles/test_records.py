"""Profile data: tuples with named parts, streams, random states, patterns and time zones."""

from __future__ import annotations

import datetime
import decimal
import http
import inspect
import io
import itertools
import os
import pickle
import random
import re
import signal
import socket
import time
import urllib.parse
import uuid
import zoneinfo

import pytest

from safeser.errors import PayloadError, SafeserError
from safeser.pickles import loads

PARIS = zoneinfo.ZoneInfo("Europe/Paris")

VALUES = [
    time.gmtime(0),
    time.struct_time(range(9)),
    os.stat_result(range(10)),
    os.terminal_size((80, 25)),
    urllib.parse.urlparse("http://user@host/path;x?y#z"),
    urllib.parse.urlsplit(b"http://host"),
    urllib.parse.urldefrag("a#b"),
    decimal.Decimal("-1.50").as_tuple(),
    decimal.Decimal("nan").as_tuple(),
    re.compile(r"(?P<a>\w+)\s*[a-z]", re.IGNORECASE),
    re.compile(b"[^ab]+"),
    PARIS,
    datetime.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
    datetime.time(1, tzinfo=PARIS),
    http.HTTPStatus.OK,
    signal.SIGINT,
    socket.AF_INET,
    uuid.SafeUUID.unsafe,
    re.IGNORECASE,
    inspect.Parameter.VAR_KEYWORD,
]


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_a_value_comes_back_equal(value, protocol):
    data = pickle.dumps(value, protocol)
    got, expected = loads(data), pickle.loads(data)
    assert got == expected == value
    assert type(got) is type(value)
    assert repr(got) == repr(expected)
    if type(value) is not decimal.DecimalTuple:
        assert loads(pickle.dumps({value: 1}, protocol)) == {value: 1}


def test_bypass_of_cpu_a_tuple_of_digits_is_no_key():
    with pytest.raises(PayloadError) as caught:
        loads(pickle.dumps({decimal.Decimal(1).as_tuple(): 1}))
    assert caught.value.rule == "pickle.unhashable"


def test_what_equality_hides():
    assert loads(pickle.dumps(PARIS)) is PARIS
    assert loads(pickle.dumps(zoneinfo.ZoneInfo.no_cache("UTC"))).key == "UTC"
    assert loads(pickle.dumps(time.localtime(0))).tm_zone == time.localtime(0).tm_zone
    stat = os.stat_result(range(10), {"st_atime_ns": 5, "st_mtime": 1.5})
    assert loads(pickle.dumps(stat)).st_atime_ns == 5


def test_streams_keep_their_text_and_their_place():
    stream = io.BytesIO(b"abc")
    stream.seek(1)
    assert loads(pickle.dumps(stream)).read() == b"bc"
    for newline in (None, "", "\n", "\r", "\r\n"):
        text = io.StringIO("a\nb\r\nc", newline)
        text.seek(2)
        got = loads(pickle.dumps(text))
        expected = pickle.loads(pickle.dumps(text))
        assert got.getvalue() == expected.getvalue()
        assert got.tell() == 2
        got.seek(0, 2), expected.seek(0, 2)
        got.write("\n"), expected.write("\n")
        assert got.getvalue() == expected.getvalue()


def test_iterators_go_on_where_they_were():
    for over in ([1, 2, 3], (1, 2, 3), "abc", b"abc", range(3), bytearray(b"abc")):
        it = iter(over)
        next(it)
        assert list(loads(pickle.dumps(it))) == list(over)[1:]
    assert list(loads(pickle.dumps(iter({1: 2})))) == [1]
    assert repr(loads(pickle.dumps(itertools.count(3, 2)))) == "count(3, 2)"
    assert list(loads(pickle.dumps(itertools.repeat("a", 2)))) == ["a", "a"]


def test_random_goes_on_where_it_was():
    source = random.Random(3)
    source.gauss(0, 1)
    got = loads(pickle.dumps(source))
    assert [got.random() for _ in range(1000)] == [source.random() for _ in range(1000)]
    assert got.gauss(0, 1) == source.gauss(0, 1)


def test_decimal_contexts():
    context = decimal.Context(prec=5, rounding=decimal.ROUND_UP, Emin=-9, traps=[decimal.Inexact])
    assert repr(loads(pickle.dumps(context))) == repr(context)


def twister(asm, *, words=624, word=1, place=624, spare=b"N", version=3):
    numbers = [asm.number(word)] * words + [asm.number(place)]
    state = asm.tuple(asm.number(version), asm.tuple(*numbers), spare)
    return asm.build(asm.call("random:Random"), state)


def test_the_recipe_is_right_but_for_what_it_forges(asm):
    loads(asm.pickle(twister(asm))).random()


BYPASSES = {
    "a position behind a twister's words": lambda a: twister(a, place=625),
    "a position before a twister's words": lambda a: twister(a, place=-1),
    "a word of a twister too large": lambda a: twister(a, word=1 << 32),
    "a twister that stands still": lambda a: twister(a, word=0),
    "too few words of a twister": lambda a: twister(a, words=600),
    "a twister's older version": lambda a: twister(a, version=2),
    "a twister's spare number": lambda a: twister(a, spare=a.text("x")),
    "a struct_time of other things": lambda a: a.call(
        "time:struct_time", a.tuple(*[a.text("x")] * 9)
    ),
    "a struct_time too short": lambda a: a.call("time:struct_time", a.tuple(b"K\x01")),
    "a struct_time too large": lambda a: a.call(
        "time:struct_time", a.tuple(*[a.number(1 << 40)] * 9)
    ),
    "a struct_time's zone": lambda a: a.call(
        "time:struct_time", a.tuple(*[b"K\x01"] * 9), a.dict(a.text("tm_zone"), a.text("x" * 300))
    ),
    "a struct_time's offset": lambda a: a.call(
        "time:struct_time", a.tuple(*[b"K\x01"] * 9), a.dict(a.text("tm_gmtoff"), a.number(1 << 40))
    ),
    "a struct_time's other part": lambda a: a.call(
        "time:struct_time", a.tuple(*[b"K\x01"] * 9), a.dict(a.text("n_fields"), b"N")
    ),
    "a stat_result's other part": lambda a: a.call(
        "os:stat_result", a.tuple(*[b"K\x01"] * 10), a.dict(a.text("n_fields"), b"K\x01")
    ),
    "a stat_result of text": lambda a: a.call("os:stat_result", a.tuple(*[a.text("x")] * 10)),
    "an address of too few parts": lambda a: a.new("urllib.parse:SplitResult", a.text("x")),
    "an address of numbers": lambda a: a.new("urllib.parse:DefragResult", b"K\x01", b"K\x01"),
    "a decimal's digits": lambda a: a.new(
        "decimal:DecimalTuple", b"K\x00", a.tuple(b"K\x0a"), b"K\x00"
    ),
    "a decimal's exponent": lambda a: a.new("decimal:DecimalTuple", b"K\x00", b")", a.text("x")),
    "a context's precision": lambda a: context(a, precision=10**17),
    "a context's signal": lambda a: context(a, signal=a.name("decimal:DecimalTuple")),
    "a context's rounding": lambda a: context(a, rounding="UP"),
    "a stream's place far behind its end": lambda a: a.build(
        a.new("_io:BytesIO"), a.tuple(a.raw(b"x"), a.number(1 << 40), b"N")
    ),
    "a stream's fields": lambda a: a.build(
        a.new("_io:BytesIO"), a.tuple(a.raw(b"x"), b"K\x00", a.dict())
    ),
    "a stream of another thing": lambda a: a.build(
        a.new("_io:BytesIO"), a.tuple(a.text("x"), b"K\x00", b"N")
    ),
    "a text stream's line end": lambda a: text_stream(a, "x", "xyz"),
    "a text stream's text that it would not have written": lambda a: text_stream(a, "a\nb", "\r\n"),
    "a stream that was never given its state": lambda a: a.new("_io:StringIO"),
    "an iterator over what is no sequence": lambda a: a.call("builtins:iter", a.dict()),
    "an iterator that calls": lambda a: a.call("builtins:iter", b"]", b"N"),
    "an iterator's place": lambda a: a.build(a.call("builtins:iter", b"]"), b"J\xff\xff\xff\xff"),
    "an iterator's fields": lambda a: a.build(a.call("builtins:iter", b"]"), a.dict()),
    "an endless repetition": lambda a: a.call("itertools:repeat", b"N"),
    "a count of texts": lambda a: a.call("itertools:count", a.text("x")),
    "a pattern too long": lambda a: pattern(a, "a" * 1001),
    "a pattern of too many classes": lambda a: pattern(a, "[a]" * 33),
    "a pattern whose class takes a second": lambda a: pattern(a, "[\0-\U0010ffff]", re.IGNORECASE),
    "the same in escapes": lambda a: pattern(a, r"[\x00-\U0010ffff]", re.IGNORECASE),
    "the same with the flag inside": lambda a: pattern(a, r"(?i)[\x00-\U0010ffff]"),
    "a pattern that has a module imported": lambda a: pattern(a, r"\\\N{DIGIT ONE}"),
    "a pattern's debugging": lambda a: pattern(a, "a", re.DEBUG),
    "a pattern that is none": lambda a: pattern(a, "("),
    "a zone that is a path": lambda a: zone(a, "../../etc/passwd"),
    "a zone that is an absolute path": lambda a: zone(a, "/etc/localtime"),
    "a zone up and down": lambda a: zone(a, "Europe/../UTC"),
    "a zone with a NUL": lambda a: zone(a, "UTC\0"),
    "a zone with a line end": lambda a: zone(a, "UTC\n"),
    "a zone that there is not": lambda a: zone(a, "Europe/Nowhere"),
    "a file of the database that is no zone": lambda a: zone(a, "leapseconds"),
    "a zone that is no text": lambda a: a.call("zoneinfo:ZoneInfo._unpickle", b"N", b"K\x01"),
    "a zone cached in another way": lambda a: zone(a, "UTC", cached=b"K\x02"),
    "a zone's constructor": lambda a: a.call("zoneinfo:ZoneInfo", a.text("UTC")),
    "a zone from a file": lambda a: a.call("zoneinfo:ZoneInfo.from_file", b"N"),
    "a member that there is not": lambda a: a.call("http:HTTPStatus", b"K\x01"),
    "a member by the functional interface": lambda a: a.call(
        "http:HTTPStatus", a.text("X"), a.list(a.text("A"))
    ),
}


def context(asm, *, precision=5, signal=b"", rounding="ROUND_UP"):
    signals = asm.list(signal) if signal else b"]"
    numbers = [asm.number(n) for n in (-9, 9, 1, 0)]
    return asm.call(
        "decimal:Context", asm.number(precision), asm.text(rounding), *numbers, signals, b"]"
    )


def text_stream(asm, text, newline):
    state = asm.tuple(asm.text(text), asm.text(newline), b"K\x00", b"N")
    return asm.build(asm.new("_io:StringIO"), state)


def pattern(asm, text, flags=0):
    return asm.call("re:_compile", asm.text(text), asm.number(int(flags)))


def zone(asm, key, cached=b"K\x01"):
    return asm.call("zoneinfo:ZoneInfo._unpickle", asm.text(key), cached)


@pytest.mark.parametrize("recipe", BYPASSES.values(), ids=BYPASSES.keys())
def test_bypass_unsound_states_are_refused(asm, recipe):
    with pytest.raises(SafeserError):
        loads(asm.pickle(recipe(asm)))


def test_the_recipes_are_right_but_for_what_they_forge(asm):
    assert loads(asm.pickle(context(asm))).prec == 5
    assert loads(asm.pickle(text_stream(asm, "a", "\n"))).read() == "a"
    assert loads(asm.pickle(pattern(asm, "a", re.IGNORECASE))).match("A")
    assert loads(asm.pickle(zone(asm, "UTC"))).key == "UTC"
    assert loads(asm.pickle(pattern(asm, r"\\N"))).match(r"\N")


def test_bypass_of_cpu_many_patterns_are_charged(asm):
    body = asm.list(*[pattern(asm, f"(?:{n}a*)" * 100) for n in range(100)])
    with pytest.raises(PayloadError) as caught:
        loads(asm.pickle(body))
    assert caught.value.rule == "pickle.max-refs"


def test_bypass_of_cpu_classes_of_all_characters_are_charged(asm):
    body = asm.list(*[pattern(asm, f"[{n}-\U0010ffff]" * 32) for n in "abcde"])
    with pytest.raises(PayloadError) as caught:
        loads(asm.pickle(body))
    assert caught.value.rule == "pickle.max-refs"


def test_bypass_of_state_twice_built(asm):
    body = asm.build(twister(asm), asm.tuple(b"K\x03", b")", b"N"))
    with pytest.raises(SafeserError):
        loads(asm.pickle(body))


def test_texts_of_array_are_characters():
    import array

    value = array.array("u", "a\U0001f600")
    for protocol in (0, 2, 5):
        assert loads(pickle.dumps(value, protocol)) == value
