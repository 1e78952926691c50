"""Every limit at its boundary, and what every refusal has to say."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pandas as pd
import pytest

from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.pickles import DATA_PROFILES, Budget, Profile, check, inspect, loads
from safeser.values import Limits
from tests.pickles.derived import family_of

SIZED = {b"T": "<I", b"X": "<I", b"B": "<I", b"\x8d": "<Q", b"\x8e": "<Q", b"\x96": "<Q"}
SHORT = (b"U", b"\x8c", b"C")


def bounded(data, rule, **limits):
    """Assert that *data* loads with one more than the limit that refuses it."""
    ((name, most),) = limits.items()
    loads(data, limits=Limits(**{name: most + 1}), profile=("data", "numpy"))
    with pytest.raises(PayloadError) as caught:
        loads(data, limits=Limits(**{name: most}), profile=("data", "numpy"))
    assert caught.value.rule == f"pickle.{rule}"
    assert caught.value.fix
    return caught.value


class TestEachLimit:
    def test_bytes(self):
        data = pickle.dumps("x" * 100)
        bounded(data, "max-bytes", max_bytes=len(data) - 1)

    def test_bytes_of_buffers_too(self):
        buffers = []
        data = pickle.dumps(np.arange(100.0), protocol=5, buffer_callback=buffers.append)
        most = len(data) + 800
        for _ in range(3):  # the third by a remembered verdict
            loads(data, buffers=buffers, profile="numpy", limits=Limits(max_bytes=most))
            with pytest.raises(PayloadError) as caught:
                loads(data, buffers=buffers, profile="numpy", limits=Limits(max_bytes=most - 1))
            assert caught.value.rule == "pickle.max-bytes"

    @pytest.mark.parametrize("opcode", [*SIZED, *SHORT])
    def test_one_string(self, opcode):
        size = struct.pack(SIZED.get(opcode, "<B"), 100)
        data = b"\x80\x05" + opcode + size + b"x" * 100 + b"."
        error = bounded(data, "max-string", max_string=99)
        assert "limits.max_string" in error.fix
        assert error.where.startswith("byte 2 (")

    @pytest.mark.parametrize("data", [b"V" + b"x" * 100, b"S'" + b"x" * 98 + b"'"])
    def test_one_line_of_text(self, data):
        bounded(data + b"\n.", "max-string", max_string=99)

    @pytest.mark.parametrize(
        "data",
        [
            b"\x8a\x11" + b"\x01" * 17 + b".",
            b"\x8b\x11\0\0\0" + b"\x01" * 17 + b".",
            b"I" + str(1 << 129).encode() + b"\n.",
            b"L" + str(-(1 << 129)).encode() + b"L\n.",
        ],
    )
    def test_one_integer(self, data):
        bounded(data, "max-int", max_int=16)

    def test_calls(self):
        data = pickle.dumps([complex(n, 1) for n in range(10)])
        bounded(data, "max-calls", max_calls=9)

    def test_elements(self):
        loads(pickle.dumps(list(range(20))), limits=Limits(max_refs=30))
        with pytest.raises(PayloadError) as caught:
            loads(pickle.dumps(list(range(31))), limits=Limits(max_refs=30))
        assert caught.value.rule == "pickle.max-refs"

    def test_depth(self):
        bounded(b"(" * 50 + b"t" * 50 + b".", "max-depth", max_depth=48)

    def test_one_array(self):
        data = pickle.dumps(np.arange(1000, dtype="i8"), 4)
        loads(data, profile="numpy", limits=Limits(max_array=8000))
        with pytest.raises(PayloadError):
            loads(data, profile="numpy", limits=Limits(max_array=7999))

    def test_copies_may_be_some_times_the_input(self, asm):
        content = asm.raw(b"x" * (1 << 20)) + b"\x940"
        copies = [asm.call("builtins:bytearray", b"h\x00") for _ in range(12)]
        with pytest.raises(PayloadError) as caught:
            loads(asm.pickle(content + asm.list(*copies)))
        assert caught.value.rule == "pickle.max-bytes"
        assert len(loads(asm.pickle(content + asm.list(*copies[:4])))) == 4


def _often(data, budget):
    for _ in range(3):
        loads(data, budget=budget)


class TestMessages:
    """Ten thousand pickles in one message get what one pickle gets."""

    def test_elements_are_shared(self):
        limits = Limits(max_refs=1000)
        data, budget = pickle.dumps(list(range(300))), Budget(limits)
        for _ in range(3):
            loads(data, limits=limits, budget=budget)
        with pytest.raises(PayloadError) as caught:
            loads(data, limits=limits, budget=budget)
        assert caught.value.rule == "pickle.max-refs"
        assert loads(data, limits=limits)

    def test_judging_has_its_own(self):
        limits = Limits(max_calls=15)
        data, judged = pickle.dumps([complex(1, n) for n in range(10)]), Budget(limits)
        check(data, limits=limits, budget=judged)
        with pytest.raises(PayloadError):
            check(data, limits=limits, budget=judged)
        loads(data, limits=limits, budget=Budget(limits))

    def test_opcodes_are_shared_though_no_element_comes_of_them(self):
        limits = Limits(max_refs=1000)
        budget = Budget(limits)
        for _ in range(3):  # 1,202 of 4,000 opcodes each
            assert loads(b"N0" * 600 + b"N.", limits=limits, budget=budget) is None
        with pytest.raises(PayloadError) as caught:
            loads(b"N0" * 600 + b"N.", limits=limits, budget=budget)
        assert caught.value.rule == "pickle.opcodes"

    @pytest.mark.parametrize("end", [b"", b"0.", b"\xff", b"cos\nsystem\n\xff"])
    @pytest.mark.parametrize("reads", [loads, check, family_of])
    def test_pickles_that_fail_midway_are_charged_as_far_as_they_were_read(self, end, reads):
        limits = Limits(max_refs=1000)
        budget = Budget(limits)
        rules = []
        for _ in range(5):
            with pytest.raises(PayloadError) as caught:
                reads(b"N0" * 600 + end, limits=limits, budget=budget)
            rules.append(caught.value.rule)
        assert "pickle.opcodes" not in rules[:3]
        assert rules[3:] == ["pickle.opcodes"] * 2
        assert budget.opcodes == 0

    def test_free_bytes_are_given_once(self, asm):
        # Each of them alone is within what any pickle may copy.
        data = asm.pickle(
            asm.raw(b"x" * 60_000)
            + b"\x940"
            + asm.list(*[asm.call("builtins:bytearray", b"h\x00") for _ in range(15)])
        )
        budget = Budget(Limits())
        loads(data, budget=budget)
        with pytest.raises(PayloadError) as caught:
            _often(data, budget)
        assert caught.value.rule == "pickle.max-bytes"


VECTORS = {
    "unlisted": b"cos\nsystem\n)R.",
    "unlisted class": b"cmy\nPoint\n)\x81.",
    "unlisted reference": b"cmy\nfunction\n.",
    "another profile": pickle.dumps(np.float64(1)),
    "role": b"cuuid\nUUID\n)R.",
    "keywords": b"\x80\x04cuuid\nUUID\n)}X\x01\x00\x00\x00aNs\x92.",
    "built": b"cbuiltins\ncomplex\nK\x01K\x02\x86R}b.",
    "filled": b"cbuiltins\ncomplex\nK\x01K\x02\x86RNa.",
    "result": b"cbuiltins\ncomplex\nK\x01K\x02\x86R)R.",
    "instance": b"(ios\nsystem\n.",
    "extension": b"\x82\x01.",
    "persistent": b"Px\n.",
    "opcode": b"\xff.",
    "stack": b"t.",
    "memo": b"Nq\x09.",
    "trailing": b"N.N",
    "truncated": b"X\xff",
    "frame": b"\x80\x04\x95\xff\0\0\0\0\0\0\0N.",
    "name": b"cos\0\nsystem\n.",
    "text": b"Inan\n.",
    "depth": b"(" * 300 + b"t" * 300 + b".",
    "sharing": b"]q\x00" + b"".join(b"0](h%ch%ceq%c" % (i, i, i + 1) for i in range(60)) + b".",
    "arguments": b"cbuiltins\ncomplex\nNN\x86R.",
    "unhashable": b"}]Ns.",
    "target": b"cbuiltins\nint\n}b.",
    "buffers": b"\x80\x05\x97.",
    "cost": b"N\x85q\x00" + b"\x85" * 60 + b"q\x010}h\x01Ns.",
}


@pytest.mark.parametrize("data", VECTORS.values(), ids=VECTORS.keys())
def test_every_refusal_says_what_where_and_what_would_allow_it(data):
    with pytest.raises(SafeserError) as caught:
        loads(data)
    error = caught.value
    assert isinstance(error, PolicyDenied | PayloadError)
    assert error.rule.startswith("pickle.")
    assert error.where.startswith("byte ")
    assert error.fix.endswith(".")
    lines = str(error).split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert len(str(error)) < 700


class TestAdvice:
    def advice(self, data, profile="data"):
        with pytest.raises(PolicyDenied) as caught:
            loads(data, profile=profile)
        assert "The risk" in caught.value.fix or "cloudpickle" in caught.value.fix
        return caught.value

    def test_a_shipped_profile(self):
        error = self.advice(pickle.dumps(np.float64(1)))
        assert "profile numpy" in error.fix
        assert "profile data" in error.message
        assert loads(pickle.dumps(np.float64(1)), profile=("data", "numpy")) == 1

    def test_a_class_of_ones_own(self):
        error = self.advice(VECTORS["unlisted class"])
        assert '"my:Point": class' in error.fix
        assert inspect(
            VECTORS["unlisted class"], profile=Profile.named("data").allowing({"my:Point": "class"})
        ).permitted

    def test_a_reference(self):
        assert '"my:function": reference' in self.advice(VECTORS["unlisted reference"]).fix

    def test_nothing_that_runs_code(self):
        for name in ("unlisted", "instance", "result", "role"):
            fix = self.advice(VECTORS[name]).fix
            assert "allow:" not in fix

    def test_what_is_said_more_of_a_class(self, asm):
        profile = Profile.named("data").allowing({"my:Point": "class"})
        data = asm.pickle(asm.name("my:Point") + b")" + asm.dict(asm.text("x"), b"N") + b"\x92")
        assert "kwargs: [x]" in self.advice(data, profile).fix
        assert "grows: list" in self.advice(asm.pickle(asm.new("my:Point") + b"Na"), profile).fix
        assert "grows: dict" in self.advice(asm.pickle(asm.new("my:Point") + b"NNs"), profile).fix

    def test_several_names_and_one_line_for_all(self, asm):
        error = self.advice(
            asm.pickle(asm.list(asm.new("my:A"), asm.name("my:f"), asm.new("my:A")))
        )
        assert "; refused too: my:f" in error.message
        assert '{allow: {"my:A": class, "my:f": reference}}' in error.fix
        both = asm.list(asm.name("my:A"), asm.new("my:A"), asm.new("my:B"))
        assert '{"my:A": class, "my:B": class}' in self.advice(asm.pickle(both)).fix

    def test_a_profile_and_a_class(self, asm):
        scalar = pickle.dumps(np.float64(1), 2)[2:-1]
        fix = self.advice(asm.pickle(asm.list(scalar, asm.new("my:A")))).fix
        assert "profile numpy" in fix
        assert '"my:A": class' in fix

    def test_one_that_needs_code_is_all_that_is_said(self, asm):
        fix = self.advice(asm.pickle(asm.list(asm.new("my:A"), asm.new("os:A")))).fix
        assert "my:A" not in fix
        assert "cloudpickle" in fix

    def test_no_more_names_than_a_line_takes(self, asm):
        names = [asm.new(f"{'m' * 110}:A{n}") for n in range(500)]
        with pytest.raises(PolicyDenied) as caught:
            loads(asm.pickle(asm.list(*names)))
        error = caught.value
        assert ":A4 and others" in error.message
        assert "200 globals that are not listed, too many for one message" in error.fix
        assert "allow:" not in error.fix
        assert len(str(error)) < 2000

    def test_letters_that_look_like_others_are_spelt(self, asm):
        error = self.advice(asm.pickle(asm.new("m\u0430in:P\u03bfint")))
        assert error.message.startswith("m\\u0430in:P\\u03bfint is instantiated")
        assert '"m\\u0430in:P\\u03bfint": class' in error.fix
        assert "letters beyond ASCII" in error.fix
        assert "beyond ASCII" not in self.advice(asm.pickle(asm.new("main:Point"))).fix


@pytest.mark.parametrize("before", [b"", b"N0", b"]0" * 9])
def test_a_denial_says_the_byte_of_the_use(before):
    with pytest.raises(PolicyDenied) as caught:
        loads(b"\x80\x04" + before + b"cos\nsystem\n.")
    assert caught.value.where == f"byte {2 + len(before)}"


NUMBERS = np.arange(1000.0)
INDEX = pd.RangeIndex(1 << 40)
SPARSE = pd.arrays.SparseArray([0] * 999 + [1])


@pytest.mark.parametrize(
    ("value", "rule"),
    [(NUMBERS, "value.array-size"), (INDEX, "value.index"), (SPARSE, "value.sparse")],
    ids=["array", "index", "sparse"],
)
def test_what_is_over_the_limit_of_arrays_says_which_limit(value, rule):
    with pytest.raises(SafeserError) as caught:
        loads(pickle.dumps(value), profile=DATA_PROFILES, limits=Limits(max_array=500))
    assert caught.value.rule == rule
    assert "limits.max_array" in caught.value.fix


def test_each_buffer_is_held_to_the_limit_of_arrays():
    data = pickle.dumps([pickle.PickleBuffer(b"")], 5, buffer_callback=lambda _: None)
    for _ in range(3):
        assert loads(data, buffers=[bytearray(500)], limits=Limits(max_array=500))
        with pytest.raises(SafeserError) as caught:
            loads(data, buffers=[bytearray(501)], limits=Limits(max_array=500))
        assert caught.value.rule == "pickle.max-array"
        assert "limits.max_array" in caught.value.fix


LISTED = b"cbuiltins\nlen\n"


@pytest.mark.parametrize(
    "pid",
    [
        b"]",  # it could grow afterwards
        b"}",
        b"\x8f",
        b"\x96" + bytes(8),
        b"](e\x85",
        b"c_codecs\nencode\n" + b"X\1\0\0\0x\x8c\6latin1\x86R",
        b"(" + b"N" * 17 + b"t",
        b"N\x85\x85\x85\x85",
    ],
)
def test_persistent_ids_are_plain_and_small(pid):
    def unasked(_):
        pytest.fail("it was asked")

    with pytest.raises(PayloadError) as caught:
        loads(b"\x80\x05" + pid + b"Q.", profile=DATA_PROFILES, persistent_load=unasked)
    assert caught.value.rule == "pickle.persistent-id"


@pytest.mark.parametrize(
    ("pid", "said"),
    [(b"K\1", 1), (b"K\1N\x86", (1, None)), (b"(" + b"N" * 16 + b"t", (None,) * 16), (LISTED, len)],
)
def test_what_a_persistent_id_may_be(pid, said):
    loaded = loads(b"\x80\x05" + pid + b"Q.", profile=DATA_PROFILES, persistent_load=lambda i: [i])
    assert loaded == [said]
    with pytest.raises(SafeserError):
        loads(b"\x80\x05" + pid + b"Q.", profile=DATA_PROFILES)
