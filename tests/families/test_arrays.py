"""NumPy: any array, view, scalar and dtype, without copies."""

import numpy as np
import pytest

from safeser import families
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.numpy import dtypes
from safeser.gate.values import Limits
from safeser.types import numpy as bounds
from tests.samples.same import same
from tests.samples.typed import (
    FAMILIES,
    GRANT,
    through,
    unsent,
)

NESTED = np.dtype(
    [("a", ">i4"), ("b", [("c", "U3"), ("d", "M8[s]", (2, 1))]), (("title", "e"), "?")], align=True
)


def frozen_array(array):
    array.flags.writeable = False
    return array


def test_repeated_axes_keep_their_strides():
    for sent in (
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.broadcast_to(np.arange(3.0)[:, None, None], (3, 2, 2)),
        np.broadcast_to(np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1), (5, 4, 2, 3)),
        np.broadcast_to(1.0, ()),
    ):
        header, frames = families.serialize(sent, FAMILIES)
        assert sum(map(len, frames)) < max(sent.nbytes, 9)
        back = families.deserialize(header, frames, GRANT)
        same(back, sent)
        assert back.strides == sent.strides


def test_flags_that_were_never_set_are_flags():
    # Counting a flag of 2 wrote past the buffer; memory that was never set holds such.
    junk = np.array([0, 1, 2, 255], np.uint8)
    assert through(junk.view(bool)).view(np.uint8).tolist() == [0, 1, 1, 1]
    record = np.zeros(2, [("a", "i2"), ("b", "?"), ("c", [("d", "?", 2)])])
    record["b"].view(np.uint8)[:] = 7
    record["c"]["d"].view(np.uint8)[0] = 9
    for frozen in (True, False):
        back = through(record, frozen=frozen)
        assert back["b"].view(np.uint8).tolist() == [1, 1]
        assert back["c"]["d"].view(np.uint8).tolist() == [[1, 1], [0, 0]]
        assert back.flags.writeable
    assert np.count_nonzero(through(frozen_array(junk.view(bool)))) == 3


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "i2"), ("b", "f8")]),
        np.dtype([("a", "i2"), ("b", "f8")], align=True),
        np.dtype([(("title", "a"), "U2"), ("b", "?", 2)]),
        np.dtype((np.record, [("a", "i2"), ("b", "f8")])),
        np.dtype([("a", "i2"), ("b", [("c", "i2"), ("d", "f8")])]),
    ],
)
def test_a_received_dtype_belongs_to_its_receiver(dtype):
    # Names of fields are set in place: one receiver's renaming would reach all arrays that follow.
    first, second = through(np.zeros(2, dtype)), through(np.zeros(2, dtype))
    same(first, np.zeros(2, dtype))
    inner = first.dtype["b"] if first.dtype["b"].names else first.dtype
    inner.names = ("renamed", "too")
    same(second, np.zeros(2, dtype))
    same(through(np.zeros(2, dtype)), np.zeros(2, dtype))


def test_remembered_dtypes_are_few():
    for number in range(300):
        dtype = np.dtype([(f"n{number}", "i2")])
        assert through(np.zeros(1, dtype)).dtype == dtype
        assert through(np.zeros(1, [(f"n{number}", "?")])).dtype.names == (f"n{number}",)
    assert len(dtypes._records) <= 128
    assert bounds._structure.cache_info().currsize <= 128


def test_what_a_grant_of_bytes_allows():
    header, frames = families.serialize(np.ones(100), FAMILIES)
    with pytest.raises(PayloadError) as caught:
        families.check(header, frames, limits=Limits(max_array=799))
    assert caught.value.rule == "families.too-large"


def test_a_fill_value_that_nobody_set_follows_the_dtype():
    # Sending asked for it, which set it on both sides: as floats it stayed 999999.
    masked = np.ma.array([1, 2], mask=[0, 1])
    back = through(masked)
    assert masked._fill_value is None
    assert back.astype(float).fill_value == 1e20


@pytest.mark.parametrize(
    ("dtype", "unused"),
    [
        ("g", [range(10, 16)]), (">g", [range(6)]), ("G", [range(10, 16), range(26, 32)]),
        ([("a", "i4"), ("b", "g")], [range(14, 20)]),
        ([("a", [("b", ">G")], (1, 2))], [range(6), range(16, 22), range(32, 38), range(48, 54)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("part", [slice(None), slice(None, None, 2), 1], ids=str)
def test_what_long_doubles_do_not_use_of_their_bytes_is_not_sent(dtype, unused, part):
    # Six of sixteen: whoever made the numbers left there what was there before.
    if np.finfo(np.longdouble).nmant != 63:
        pytest.skip("this platform's long double uses all of its bytes")
    array = np.zeros(6, dtype)
    raw = array.view(np.uint8).reshape(6, -1)
    for place in unused:
        raw[:, place] = 0xAB
    header, frames = families.serialize(array[part], FAMILIES)
    sent = repr([header, *map(bytes, frames)])
    assert "xab" not in sent
    loaded = families.deserialize(header, frames, GRANT)
    assert repr(loaded.tolist()) == repr(array[part].tolist())
    assert (raw[:, unused[0]] == 0xAB).all()


def test_long_doubles_that_no_arithmetic_makes_are_refused():
    # 80 bits whose leading bit contradicts the exponent: C libraries crashed when printing them.
    if np.finfo(np.longdouble).nmant != 63:
        pytest.skip("this platform's long double has no such bits")
    for dtype in (
        np.dtype("g"),
        np.dtype("G"),
        np.dtype([("a", "g")]),
        np.dtype("g").newbyteorder(),
    ):
        wrong = np.zeros(1, dtype)
        wrong.view(np.uint8)[:] = 0x7F if dtype.isnative else 0
        if not dtype.isnative:
            wrong.view(np.uint8)[7] = 0x7F
        with pytest.raises(PayloadError, match="long double"):
            families.serialize(wrong, FAMILIES)
        header, _ = families.serialize(np.zeros(1, dtype), FAMILIES)
        with pytest.raises(PayloadError, match="long double"):
            families.check(header, [wrong.tobytes()])


def test_a_file_is_never_opened(tmp_path):
    path = tmp_path / "array"
    path.write_bytes(bytes(80))
    mapped = np.memmap(path, mode="r")
    assert "np.asarray" in unsent(mapped)
    assert through(np.asarray(mapped)).tolist() == [0] * 80


@pytest.mark.parametrize("within", [lambda dtype: dtype, lambda dtype: [("in", dtype, (2,))]])
def test_fields_that_were_not_chosen_stay_at_home(within):
    """A view of some fields went with the memory of the others."""
    whole = np.zeros(3, [("name", "S4"), ("secret", "S8"), ("n", "i4")])
    whole["secret"] = b"SECRET!!"
    whole["n"] = 7
    chosen = whole[["name", "n"]]
    if within(1) != 1:
        outer = np.zeros(2, within(chosen.dtype))
        outer.view("u1")[...] = np.frombuffer(b"SECRET!!", "u1")[0]
        outer["in"]["n"] = 7
        chosen = outer
    for value in (chosen, chosen[0], chosen[::2], chosen.view(np.recarray), np.ma.array(chosen)):
        header, frames = families.serialize(value, FAMILIES)
        sent = plain.encode(header) + b"".join(map(bytes, frames))
        assert b"SECRET" not in sent
        assert b"SSSSS" not in sent  # the name has four of them
        got = through(value)
        assert got.dtype == value.dtype
        assert repr(got) == repr(value)
    frozen = np.broadcast_to(chosen[:1], (4,))
    assert repr(through(frozen)) == repr(frozen)
