"""safeser.pickles.load: one pickle of a file, and not a byte of what follows."""

from __future__ import annotations

import datetime
import io
import pickle
import pickletools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser import Limits, pickles
from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles.unpickler import one_pickle

VALUES = [
    None, [1, 2.5, True], {"a": b"b" * 300, "c": "d" * 70_000}, 1 << 3000, -5, (), set("x"),
    bytearray(b"e"), datetime.date(2026, 11, 29),
]  # fmt: skip
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


class Asked(io.BytesIO):
    """A file that notes the most that it is asked for at once."""

    most = 0

    def read(self, size=-1):
        assert size >= 0
        self.most = max(self.most, size)
        return super().read(size)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_pickle_of_a_file_is_read_and_nothing_after_it(protocol):
    file = Asked(b"".join(pickle.dumps(value, protocol) for value in VALUES) + b"the rest")
    for value in VALUES:
        assert pickles.load(file) == value
    assert file.read(8) == b"the rest"
    with pytest.raises(EOFError):
        pickles.load(file)


def test_a_pickle_that_is_refused_is_read_to_its_end():
    file = io.BytesIO(pickle.dumps(print) + pickle.dumps("next"))
    with pytest.raises(PolicyDenied, match="builtins:print"):
        pickles.load(file)
    assert pickles.load(file) == "next"


def test_options_are_those_of_loads():
    file, buffers = io.BytesIO(), []
    pickle.Pickler(file, 5, buffer_callback=buffers.append).dump(pickle.PickleBuffer(b"one"))
    file.seek(0)
    assert pickles.load(file, buffers=buffers) == b"one"


@pytest.mark.parametrize(
    "data",
    [
        b"\x8e" + b"\xff" * 8,  # BINBYTES8
        b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f" + b"\x8d" + (1 << 40).to_bytes(8, "little"),
        b"B" + b"\xff" * 4,
        b"\x8b\xff\xff\xff\x7f",  # LONG4
    ],
)
def test_no_length_that_a_pickle_claims_is_asked_for(data):
    file = Asked(data)
    with pytest.raises(PayloadError) as caught:
        pickles.load(file, limits=Limits(max_bytes=1000))
    assert caught.value.rule == "pickle.max-bytes"
    assert file.most <= 8


def test_lines_and_opcodes_end_at_the_limit():
    for endless in (b"I" + b"1" * 2000, b"c" * 2000, b"N" * 2000, b"(" * 999 + b"J1234."):
        file = Asked(endless)
        with pytest.raises(PayloadError) as caught:
            pickles.load(file, limits=Limits(max_bytes=1000))
        assert caught.value.rule == "pickle.max-bytes"
        assert file.tell() <= 1008  # and the length before an argument


def test_every_opcode_is_cut_as_pickletools_cuts_it():
    for opcode in pickletools.opcodes:
        if opcode.name != "STOP":
            argument = {"uint1": b"\x03", "uint2": b"\x03\0"}.get(getattr(opcode.arg, "name", ""))
            if argument is None:
                argument = _argument(opcode.arg)
            data = opcode.code.encode("latin-1") + argument + b"."
            assert one_pickle(io.BytesIO(data + b"N").read, Limits(), set()) == data
            assert [each.name for each, _, _ in pickletools.genops(data)] == [opcode.name, "STOP"]


def _argument(arg):
    if arg is None:
        return b""
    lines = {"decimalnl_short": b"7\n", "decimalnl_long": b"7L\n", "floatnl": b"7.5\n",
             "stringnl": b"'x'\n", "unicodestringnl": b"x\n", "stringnl_noescape": b"x\n",
             "stringnl_noescape_pair": b"x\ny\n"}  # fmt: skip
    if arg.name in lines:
        return lines[arg.name]
    width = {-2: 1, -3: 4, -4: 4, -5: 8}.get(arg.n)
    return b"\0" * arg.n if width is None else (2).to_bytes(width, "little") + b"xy"


@given(st.binary(max_size=60), st.sampled_from(VALUES), st.sampled_from(PROTOCOLS), st.data())
def test_any_bytes_give_an_object_or_an_error_of_safeser(noise, value, protocol, data):
    written = pickle.dumps(value, protocol)[:200]
    at = data.draw(st.integers(0, len(written)))
    for mixed in (noise, written[:at] + noise + written[at:]):
        file = io.BytesIO(mixed)
        try:
            made = pickles.load(file)
        except EOFError:
            assert mixed == b""
        except (PayloadError, PolicyDenied):
            pass
        else:
            assert made == pickles.loads(mixed[: file.tell()])
