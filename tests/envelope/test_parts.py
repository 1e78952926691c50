"""Long frames: cut in one way only, put together again, and no count of a peer's believed."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.envelope import check_payload, join, runs, split
from safeser.envelope import format as wire
from safeser.errors import EnvelopeError, PayloadError
from safeser.values import Limits
from tests.refusal import refusal

LONGEST = 10

frames_strategy = st.lists(st.integers(0, 45).map(lambda n: bytes(range(n))), max_size=8)


@pytest.fixture(autouse=True, scope="module")
def short():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "MAX_FRAME", LONGEST)
        yield


@given(frames_strategy)
def test_what_is_split_is_joined(frames):
    parts, counts = split(frames)
    assert all(len(part) <= LONGEST for part in parts)
    if not counts:
        assert parts == frames
        assert all(len(frame) <= LONGEST for frame in frames)
        return
    assert max(counts) > 1
    assert [bytes(frame) for frame in join(parts, counts)] == frames


@given(frames_strategy, st.lists(st.integers(-1, 5), max_size=9))
def test_there_is_one_encoding(frames, counts):
    parts, _ = split(frames)
    try:
        joined = join(parts, counts)
    except PayloadError:
        return
    again, own = split(joined)
    assert own == counts
    assert list(map(bytes, again)) == list(map(bytes, parts))


def test_no_other_encoding_of_the_same_bytes_is_joined():
    # 2 + 1 parts and 1 + 2 parts of the same sizes are told apart by their counts, which are under
    # the MAC; every other way to cut is refused.
    parts = [b"a" * 10, b"b" * 10, b"c" * 10]
    assert list(map(len, join(parts, [2, 1]))) == [20, 10]
    assert list(map(len, join(parts, [1, 2]))) == [10, 20]
    for sizes in ([10, 0], [9, 10], [5, 5], [0, 10], [10, 10, 0], [10, 9, 10]):
        with pytest.raises(PayloadError):
            join([bytes(size) for size in sizes], [len(sizes)])


#: Of two parts, the first of which is as long as one may be.
NO_COUNTS = [
    *(None, 2, "11", b"\2", {}, {2: 1}, [], [1], [1, 1], [2, 1], [0, 2], [3, -1]),
    *([True, 1], [2.0], [2**64], [[2]], [None], ["2"], [2**62, 1], [1, 2**31]),
]


@pytest.mark.parametrize("counts", NO_COUNTS)
def test_counts_that_no_frames_have_cost_nothing(counts):
    tracemalloc.start()
    try:
        with pytest.raises(PayloadError) as caught:
            join([b"a" * 10, b"b"], counts)
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()
    assert caught.value.rule == "payload.parts"


@given(
    st.lists(st.integers(0, LONGEST), max_size=20), st.integers(0, LONGEST - 1), st.integers(0, 30)
)
def test_small_frames_are_read_with_their_neighbours(lengths, small, together):
    groups = runs(lengths, small=small, together=together)
    assert [length for group in groups for length in group] == lengths
    for group in groups:
        if LONGEST not in group and len(group) > 1:
            assert max(group) <= small
            assert sum(group) <= together
    for one, other in pairwise(groups):
        apart = max(one[-1], other[0]) > small or sum(one) + other[0] > together
        assert apart or LONGEST in one


@given(frames_strategy)
def test_parts_that_were_read_into_one_buffer_are_not_copied(frames):
    parts, counts = split(frames)
    read = []
    for group in runs([len(part) for part in parts], small=3, together=9):
        buffer = memoryview(bytearray(sum(group)))
        at = 0
        for length in group:
            buffer[at : at + length] = parts[len(read)]
            read.append(buffer[at : at + length])
            at += length
    if counts:
        at = 0
        for frame, count in zip(join(read, counts), counts, strict=True):
            assert frame.obj is read[at].obj
            assert not frame.readonly
            at += count


def test_parts_that_do_not_follow_each_other_are_copied_and_no_right_to_write_is_won():
    buffer = bytearray(range(30))
    view = memoryview(buffer)
    for parts in ([view[:10], view[20:]], [view[10:20], view[:10]], [view[:10], view[:10]]):
        [whole] = join(parts, [2])
        assert bytes(whole) == b"".join(parts)
        assert whole.obj is not buffer
        assert not whole.readonly  # a copy is the reader's own
    [whole] = join([view.toreadonly()[:10], view.toreadonly()[10:20]], [2])
    assert whole.readonly


@given(frames_strategy)
def test_long_frames_cross_a_session(world, frames):
    a, b = world.sessions()
    parts, counts = split(frames)
    verified = world.read(b, world.sealed(a, b"", parts))
    got = join(verified.frames, counts) if counts else verified.frames
    assert [bytes(frame) for frame in got] == frames


def test_a_frame_that_was_not_split_is_not_sealed(world):
    a, _ = world.sessions()
    with refusal(EnvelopeError, "envelope.limits") as caught:
        a.seal(b"", [b"x" * (LONGEST + 1), b""])
    assert "split" in str(caught.value)
    assert a.seal(b"", [])


@pytest.mark.parametrize(
    ("limits", "rule"),
    [
        (Limits(max_bytes=29), "limit.max_bytes"),
        (Limits(max_array=24), "limit.max_array"),
        (Limits(max_frames=3), "limit.max_frames"),
        (Limits(max_bytes=30, max_array=25, max_frames=4), ""),
    ],
)
def test_a_payload_over_a_limit_is_named_by_it(limits, rule):
    frames = [b"x" * 25, b"y" * 5]
    if not rule:
        check_payload(frames, limits)
        check_payload([], limits)
        return
    with refusal(PayloadError, rule) as caught:
        check_payload(frames, limits)
    assert rule.removeprefix("limit.") in caught.value.fix
