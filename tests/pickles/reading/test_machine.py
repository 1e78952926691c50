"""The reader: every opcode, and every way in which it is stricter than CPython's."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tracemalloc

import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.values import Limits
from safeser.pickles import loads
from tests.samples import opcodes as op
from tests.samples import pickles


def test_no_proper_prefix_of_a_pickle_is_accepted():
    for protocol in (0, 2, 4, 5):
        whole = pickle.dumps({"a": [1, 2.5, "x", b"y", (1, 2), {3}], "b": 2**70}, protocol)
        for cut in range(len(whole)):
            with pytest.raises(PayloadError):
                loads(whole[:cut])


#: What opcodes of Python 2 and of the stack are read as.
READ = [
    (b"S'a\\'b\\\\\\x41\\n'\n.", "a'b\\A\n"), (b'S"a\'b\\\\\\x41\\n"\n.', "a'b\\A\n"),
    (b"U\x02ab.", "ab"), (b"T\x02\x00\x00\x00ab.", "ab"), (b"N2\x86.", (None, None)),
    (b"NN0.", None), (b"N(0.", None), (b"N(NN1.", None), (b"(lp0\n.", []),
    (b"(K\x01K\x02d.", {1: 2}), (b"\x80\x02]K\x01a.", [1]), (b"](e.", []),
]  # fmt: skip


@pytest.mark.parametrize(("data", "value"), READ)
def test_what_older_pickles_say_is_read(data, value):
    assert loads(data) == value == pickle.loads(data)
    assert loads(b"]q\x01h\x01a.")[0] is not None  # their memo starts at one


def refused(data, rule, **limits):
    with pytest.raises(PayloadError) as caught:
        loads(data, limits=Limits(**limits))
    assert caught.value.rule == f"pickle.{rule}"
    return caught.value


STREAMS = [(rule, data) for rule, many in pickles.STREAMS.items() for data in many]


@pytest.mark.parametrize(("rule", "data"), STREAMS)
def test_what_is_not_exactly_pickle_is_refused(rule, data):
    with pytest.raises((PayloadError, PolicyDenied)) as caught:
        loads(data)
    error = caught.value
    assert error.rule == rule
    # Every refusal says what, where and what would allow it.
    assert error.where.startswith("byte ")
    assert error.fix.endswith(".")
    lines = str(error).split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert len(str(error)) < 700


def test_frames_that_hold_whole_opcodes_are_read():
    assert loads(b"\x80\x04" + op.frame(b"K\x01") + b"K\x02" + op.frame(b"\x86.")) == (1, 2)
    body = op.value("abcdef") + b"."
    for size in range(1, 6):
        refused(b"\x80\x04" + op.frame(body, size), "frame")


def chained(levels):
    """Return lists of which each is made flat and put into the next one through the memo."""
    body = b"]q\x00" + b"".join(b"]q%ch%ca" % (at, at - 1) for at in range(1, levels))
    return body + b"\x86" * (levels - 1) + b"."


def doubled(levels):
    return b"N\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (at, at, at + 1) for at in range(levels))


#: The limit that each is over, and the rule: elements, containers, marks, depth, keys.
OVER = [
    (b"N0" * 1000 + b"N.", "opcodes", {"max_memory": 100 << 7}),
    (b"](" + b"N" * 60 + b"e.", "max-memory", {"max_memory": 50 << 7}),
    (b"\x80\x04N" + b"\x94" * 60 + b".", "max-memory", {"max_memory": 50 << 7}),
    (b"]" * 40 + b"0" * 39 + b".", "max-memory", {"max_memory": 50 << 7}),
    (b"(" * 90 + b".", "max-memory", {"max_memory": 50 << 7}),
    (b"N" + b"\x85" * 99 + b".", "max-depth", {"max_depth": 90}),
    (b"(" * 99 + b"l" * 99 + b".", "max-depth", {"max_depth": 90}),
    (b"(" * 99 + b"t" * 99 + b".", "max-depth", {"max_depth": 90}),
    (chained(60), "max-depth", {"max_depth": 50}),
    (b"N" + b"\x85" * 200 + b"0N.", "max-depth", {}),  # of a part that is thrown away
    (op.value("x" * (1 << 20)) + b"q\x000](" + b"h\x00" * 9000 + b"e.", "sharing", {}),
    (b"](" + doubled(14) + b"e0}h\x0eNs.", "key-cost", {"max_memory": 10_000_000 << 7}),
    (op.value(1 << 500_000) + b'q\x000\x8f(' + b"".join(b"(" + b"h\x00" * 900 + b"K%ct" % at
        for at in range(9)) + b"\x90.", *("max-memory", {"max_memory": 100_000 << 7})),
    (pickle.dumps("x" * 200), "max-bytes", {"max_bytes": 100}),
    (bytearray(200), "max-bytes", {"max_bytes": 100}),
]  # fmt: skip


@pytest.mark.parametrize(("data", "rule", "limits"), OVER)
def test_over_a_limit(data, rule, limits):
    refused(data, rule, **limits)


def test_a_cycle_is_not_deep():
    assert loads(b"]q\x00h\x00a.", limits=Limits(max_depth=1))[0]
    assert loads(b"(" * 99 + b"t" * 99 + b".", limits=Limits(max_depth=100))


def test_numbers_made_to_collide_are_refused():
    colliding = [index * (2**61 - 1) for index in range(1, 200)]
    for body in (dict.fromkeys(colliding), set(colliding)):
        refused(op.pickled(body), "collisions")
    refused(b"(" + b"".join(map(op.value, colliding)) + b"\x91.", "collisions")
    assert loads(op.pickled(op.pairs(*[7, None] * 500))) == {7: None}  # one key is no collision


@pytest.mark.parametrize("body", [b"ab" * 100_000, b"\\n" * 100_000, b"\\x41" * 50_000])
def test_a_long_string_of_python_2_takes_no_more_memory_than_its_like(body):
    # As one backtracking pattern it took over a hundred bytes for each character.
    data = b"S'" + body + b"'\n."
    loads(data)
    tracemalloc.start()
    try:
        loads(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * len(data)


def test_reading_python_2_text_imports_no_codec():
    # A refused pickle leaves sys.modules as it was; bytes.decode() would import these by name.
    script = """
import sys
from safeser.errors import PayloadError
from safeser.pickles import loads
loads(b"N.")
before = set(sys.modules)
for line in (b"S'\\\\x41'\\n", b"V\\\\u0041\\n", b"S'\\\\x'\\n", b"V\\\\u00\\n"):
    try:
        loads(line + b"0.")
    except PayloadError as error:
        assert error.rule in ("pickle.stack", "pickle.text"), error
print(sorted(set(sys.modules) - before))
"""
    run = [sys.executable, "-c", script]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "[]\n"
