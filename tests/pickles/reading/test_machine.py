"""The reader: every opcode, and every way in which it is stricter than CPython's."""

from __future__ import annotations

import math
import pickle
import struct
import subprocess
import sys
import tracemalloc

import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import loads
from safeser.values import Limits

VALUES = [
    None,
    True,
    False,
    0,
    -1,
    255,
    256,
    65535,
    -65536,
    2**31,
    -(2**31) - 1,
    2**100,
    -(2**2000),
    0.0,
    -1.5e300,
    math.inf,
    "",
    "text",
    "é\n\\\u2028\U0001f600",
    "\ud800",
    "x" * 300,
    b"",
    b"\x00\xff",
    b"y" * 300,
    (),
    (1,),
    (1, 2),
    (1, 2, 3),
    (1, 2, 3, 4),
    [],
    [1, [2, [3]]],
    {},
    {"a": 1, 2: {"b": None}},
    set(),
    {1, 2},
    frozenset({"a", (1, b"b")}),
    bytearray(b"abc"),
    complex(1, -2),
    ...,
    NotImplemented,
]


def shown(value):
    """Return a name for *value* that is the same in every process: sets have no order."""
    return type(value).__name__ if isinstance(value, set | frozenset) else repr(value)[:20]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", VALUES, ids=shown)
def test_plain_values_of_every_protocol_read_as_python_reads_them(value, protocol):
    got = loads(pickle.dumps(value, protocol))
    assert got == value
    assert type(got) is type(value)


def test_nan_and_negative_zero_keep_their_bits():
    assert math.isnan(loads(pickle.dumps(math.nan, 0)))
    assert math.copysign(1, loads(pickle.dumps(-0.0, 0))) == -1


@pytest.mark.parametrize("protocol", range(6))
def test_sharing_and_cycles_are_kept(protocol):
    shared = [1]
    loop = {"twice": [shared, shared]}
    loop["self"] = loop
    got = loads(pickle.dumps(loop, protocol))
    assert got["self"] is got
    assert got["twice"][0] is got["twice"][1]


def test_a_tuple_that_holds_itself_through_a_list():
    inner = []
    outer = (inner,)
    inner.append(outer)
    got = loads(pickle.dumps(outer, 4))
    assert got[0][0] is got


def test_no_proper_prefix_of_a_pickle_is_accepted():
    whole = pickle.dumps({"a": [1, 2.5, "x", b"y", (1, 2), {3}], "b": 2**70, "c": {}}, 4)
    for protocol in (0, 2, 4, 5):
        whole = pickle.dumps({"a": [1, 2.5, "x", b"y", (1, 2), {3}], "b": 2**70}, protocol)
        for cut in range(len(whole)):
            with pytest.raises(PayloadError):
                loads(whole[:cut])


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "truncated"),
        (b"N", "truncated"),
        (b"N.N", "trailing"),
        (b"N..", "trailing"),
        (b"NN.", "stack"),
        (b"(N.", "stack"),
        (b".", "stack"),
        (b"0.", "stack"),
        (b"1.", "stack"),
        (b"t.", "stack"),
        (b"a.", "stack"),
        (b"2.", "stack"),
        (b"N\x86.", "stack"),
        (b"(N\x85\x86.", "stack"),
        (b"}(Nu.", "stack"),
        (b"\x00.", "opcode"),
        (b"\xffN.", "opcode"),
        (b"N\x80\x04.", "protocol"),
        (b"\x80\x06N.", "protocol"),
        (b"\x80\xffN.", "protocol"),
        (b"g0\n.", "memo"),
        (b"h\x00.", "memo"),
        (b"j\x00\x00\x00\x00.", "memo"),
        (b"Nq\x02.", "memo"),
        (b"Nq\x00q\x00.", "memo"),
        (b"Nr\x00\x00\x10\x00.", "memo"),
        (b"Nr\xff\xff\xff\xff.", "memo"),
        (b"Np01\n.", "memo"),
        (b"Np-1\n.", "memo"),
        (b"Np 0\n.", "memo"),
        (b"Np99999999999\n.", "truncated"),
        (b"q\x00.", "stack"),
        (b"I0x10\n.", "text"),
        (b"I 1\n.", "text"),
        (b"I1_0\n.", "text"),
        (b"I007\n.", "text"),
        (b"I\n.", "text"),
        (b"I+1\n.", "text"),
        (b"L1l\n.", "text"),
        (b"L" + b"9" * 5000 + b"L\n.", "truncated"),
        (b"Fnan(1)\n.", "text"),
        (b"F1_0\n.", "text"),
        (b"S'a\n.", "text"),
        (b"Sabc\n.", "text"),
        (b"S'a' \n.", "text"),
        (b"S'\\101'\n.", "text"),
        (b"S'\xe9'\n.", "text"),
        (b"U\x01\xe9.", "text"),
        (b"T\x01\x00\x00\x00\xe9.", "text"),
        (b"T\xff\xff\xff\xff.", "truncated"),
        (b"V\\u12\n.", "text"),
        (b"X\x01\x00\x00\x00\xff.", "text"),
        (b"X\xff\xff\xff\xff.", "truncated"),
        (b"\x8d" + b"\xff" * 8 + b".", "truncated"),
        (b"\x8e" + b"\xff" * 8 + b".", "truncated"),
        (b"\x96" + b"\xff" * 8 + b".", "truncated"),
        (b"\x8b\xff\xff\xff\xff.", "truncated"),
        (b"\x8b" + struct.pack("<I", 1 << 17) + b"\x01" * (1 << 17) + b".", "max-int"),
        (b"P1\n.", "persistent-id"),
        (b"NQ.", "persistent-id"),
        (b"\x82\x41.", "extension"),
        (b"\x83\x41\x00.", "extension"),
        (b"\x84\x41\x00\x00\x00.", "extension"),
        (b"(o.", "stack"),
        (b"I-0\n.", "text"),
        (b"(K\x01o.", "callee"),
        (b"(i\xc3\xa9\nsystem\n.", "text"),
        (b"ios\nsystem\n.", "stack"),
        (b"\x80\x05\x97.", "buffers"),
        (b"\x80\x05N\x98.", "buffers"),
        (b"cos\nsys\x00tem\n.", "name"),
        (b"cos\r\nsystem\r\n.", "name"),
        (b"c\nsystem\n.", "name"),
        (b"cos\n\n.", "name"),
        (b"cos.\nsystem\n.", "name"),
        (b"c../os\nsystem\n.", "name"),
        (b"cbuiltins\nint.__class__\n.", "name"),
        (b"\x80\x04cbuiltins\nint..x\n.", "name"),
        (b"\x80\x04cbuiltins\nf.<locals>.g\n.", "name"),
        (b"\x80\x04c" + b"a" * 600 + b"\nb\n.", "name"),
        (b"\x80\x04c" + b"a" * 2000 + b"\nb\n.", "truncated"),
        (b"\x80\x04NN\x93.", "name"),
        (b"\x80\x04C\x02osX\x06\x00\x00\x00system\x93.", "name"),
        (b"N)R.", "callee"),
        (b"])R.", "callee"),
        (b"cbuiltins\nset\n]R.", "arguments"),
        (b"cbuiltins\nset\nNR.", "arguments"),
        (b"cbuiltins\nset\n)N\x92.", "arguments"),
        (b"]Nb.", "build-target"),
        (b"Nb.", "stack"),
        (b"cbuiltins\nset\n}b.", "build-target"),
        (b"cbuiltins\nset\n)R}b}b.", "build-twice"),
        (b"cbuiltins\nset\n)R}b(Ne.", "build-order"),
        (b"N(Ne.", "grow-target"),
        (b"}(Ne.", "grow-target"),
        (b"](NNu.", "grow-target"),
        (b"cbuiltins\nset\n(Ne.", "grow-target"),
        (b")Na.", "grow-target"),
        (b"](N\x90.", "grow-target"),
    ],
)
def test_what_is_not_exactly_pickle_is_refused(data, rule):
    with pytest.raises(PayloadError) as refused:
        loads(data)
    assert refused.value.rule == f"pickle.{rule}"


@pytest.mark.parametrize(
    "text", [b"S'a\\'b\\\\\\x41\\n'\n.", b'S"a\'b\\\\\\x41\\n"\n.'], ids=["single", "double"]
)
def test_python_2_strings_of_plain_ascii_are_read(text):
    assert loads(text) == "a'b\\A\n"


def test_python_2_short_and_long_strings_are_read():
    assert loads(b"U\x02ab.") == loads(b"T\x02\x00\x00\x00ab.") == "ab"


def test_python_2_memos_start_at_one():
    assert loads(b"]q\x01h\x01a.")[0] is not None


def test_duplicates_pops_and_marks_work_as_in_python():
    assert loads(b"N2\x86.") == (None, None)
    assert loads(b"NN0.") is None
    assert loads(b"N(0.") is None
    assert loads(b"N(NN1.") is None
    assert loads(b"(lp0\n.") == []
    assert loads(b"(K\x01K\x02d.") == {1: 2}
    assert loads(b"\x80\x02]K\x01a.") == [1]
    assert loads(b"](e.") == []


class TestFrames:
    def test_frames_that_hold_whole_opcodes_are_read(self, asm):
        body = asm.frame(b"K\x01") + b"K\x02" + asm.frame(b"\x86.")
        assert loads(b"\x80\x04" + body) == (1, 2)

    @pytest.mark.parametrize("size", range(1, 6))
    def test_an_opcode_across_the_end_of_a_frame_is_refused(self, asm, size):
        body = asm.text("abcdef") + b"."
        with pytest.raises(PayloadError) as refused:
            loads(b"\x80\x04" + asm.frame(body, size))
        assert refused.value.rule == "pickle.frame"

    @pytest.mark.parametrize(
        "data",
        [
            b"\x80\x03\x95\x02" + b"\0" * 7 + b"N.",
            b"\x95\x02" + b"\0" * 7 + b"N.",
            b"\x80\x04\x95" + b"\0" * 8 + b"N.",
            b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
            b"\x80\x04\x95\x03" + b"\0" * 7 + b"N.",
            b"\x80\x04\x95\x0b" + b"\0" * 7 + b"\x95\x01" + b"\0" * 7 + b"N.",
        ],
        ids=["protocol 3", "protocol 0", "empty", "huge", "past the end", "nested"],
    )
    def test_lying_frames_are_refused(self, data):
        with pytest.raises(PayloadError) as refused:
            loads(data)
        assert refused.value.rule == "pickle.frame"


class TestBudgets:
    def test_the_whole_pickle(self):
        with pytest.raises(PayloadError, match="larger than allowed"):
            loads(pickle.dumps("x" * 200), limits=Limits(max_bytes=100))
        with pytest.raises(PayloadError, match="larger than allowed"):
            loads(bytearray(200), limits=Limits(max_bytes=100))

    def test_opcodes(self):
        with pytest.raises(PayloadError) as refused:
            loads(b"N0" * 1000 + b"N.", limits=Limits(max_refs=100))
        assert refused.value.rule == "pickle.opcodes"

    @pytest.mark.parametrize("body", [b"](" + b"N" * 60 + b"e", b"]" * 40 + b"0" * 39, b"(" * 90])
    def test_elements_containers_and_marks(self, body):
        with pytest.raises(PayloadError) as refused:
            loads(body + b".", limits=Limits(max_refs=50))
        assert refused.value.rule == "pickle.max-refs"

    @pytest.mark.parametrize("opener", [b"\x85", b"l", b"t"])
    def test_depth(self, opener):
        body = b"N" + b"\x85" * 99 if opener == b"\x85" else b"(" * 99 + opener * 99
        assert loads(body + b".", limits=Limits(max_depth=100)) is not None
        with pytest.raises(PayloadError) as refused:
            loads(body + b".", limits=Limits(max_depth=90))
        assert refused.value.rule == "pickle.max-depth"

    def test_depth_through_the_memo(self):
        # each list is made flat and put into the next one through the memo, last one first
        body = b"]q\x00" + b"".join(b"]" + b"q%c" % i + b"h%ca" % (i - 1) for i in range(1, 60))
        body += b"".join(b"\x86" for _ in range(59))
        with pytest.raises(PayloadError) as refused:
            loads(body + b".", limits=Limits(max_depth=50))
        assert refused.value.rule == "pickle.max-depth"

    def test_depth_in_a_part_that_is_thrown_away(self):
        with pytest.raises(PayloadError) as refused:
            loads(b"N" + b"\x85" * 200 + b"0N.")
        assert refused.value.rule == "pickle.max-depth"

    def test_doubling_lists_stand_for_more_than_they_say(self):
        body = b"]q\x00" + b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(60))
        body = body.replace(b"](", b"0](")
        with pytest.raises(PayloadError) as refused:
            loads(body + b".")
        assert refused.value.rule == "pickle.sharing"

    def test_a_long_text_shared_often(self):
        body = b"X" + struct.pack("<I", 1 << 20) + b"x" * (1 << 20) + b"q\x000](" + b"h\x00" * 9000
        with pytest.raises(PayloadError) as refused:
            loads(body + b"e.")
        assert refused.value.rule == "pickle.sharing"

    def test_a_cycle_is_not_deep(self):
        assert loads(b"]q\x00h\x00a.", limits=Limits(max_depth=1))[0]


class TestKeys:
    def test_a_tuple_that_doubles_is_not_hashed(self, asm):
        body = b"N\x85q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(14))
        with pytest.raises(PayloadError) as refused:
            loads(b"](" + body + b"e0}h\x0eNs.", limits=Limits(max_refs=10_000_000))
        assert refused.value.rule == "pickle.key-cost"

    @pytest.mark.parametrize("form", [b"}h\x00Ns.", b"\x8f(h\x00\x90.", b"(h\x00\x91."])
    def test_a_tuple_that_is_deep_is_not_hashed(self, form):
        with pytest.raises(PayloadError) as refused:
            loads(b"N" + b"\x85" * 60 + b"q\x000" + form)
        assert refused.value.rule == "pickle.key-cost"

    @pytest.mark.parametrize("key", [b"]", b"}", b"\x8f", b"]\x85", b"\x96" + bytes(8)])
    def test_what_is_not_plain_is_no_key(self, key):
        with pytest.raises(PayloadError) as refused:
            loads(b"\x80\x05}" + key + b"Ns.")
        assert refused.value.rule == "pickle.unhashable"

    def test_numbers_made_to_collide_are_refused(self, asm):
        colliding = [asm.number(index * (2**61 - 1)) for index in range(1, 200)]
        for body in (
            asm.dict(*(part for key in colliding for part in (key, b"N"))),
            asm.set(*colliding),
            b"(" + b"".join(colliding) + b"\x91",
        ):
            with pytest.raises(PayloadError) as refused:
                loads(body + b".")
            assert refused.value.rule == "pickle.collisions"

    def test_the_same_key_again_is_no_collision(self, asm):
        assert loads(asm.dict(*[asm.number(7), b"N"] * 500) + b".") == {7: None}

    def test_long_numbers_cost_what_hashing_them_costs(self, asm):
        long = asm.number(1 << 500_000) + b"q\x000"
        keys = b"".join(b"(" + b"h\x00" * 900 + b"K%ct" % (index % 100) for index in range(9))
        with pytest.raises(PayloadError) as refused:
            loads(long + b"\x8f(" + keys + b"\x90.", limits=Limits(max_refs=100_000))
        assert refused.value.rule == "pickle.max-refs"


def test_a_refusal_says_where(asm):
    with pytest.raises(PolicyDenied, match=r"os:system is called.* at byte 2\n") as refused:
        loads(asm.pickle(asm.line_name("os:system") + b")R"))
    assert refused.value.rule == "pickle.global"
    assert "profile data" in str(refused.value)


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
