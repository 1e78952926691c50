"""Compressed and split frames: exactly what was declared comes out, or an error before memory."""

import contextlib
import struct
import tracemalloc
import zlib

import lz4.block
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError, PayloadError, SafeserError
from safeser.families import compression, framing
from safeser.families.compression import CODECS, available, compressed, decompressed, resolve
from safeser.gate.values import Limits

TEXT = b"all work and no play " * 5_000


def opened(body, name, length):
    return bytes(decompressed(memoryview(body), name, length, where="frame 0"))


def zstd_frame(content, *, fhd=0xA0, extra=b"", size=None):
    """One Zstandard frame of a raw block; *extra* stands between descriptor and size."""
    declared = struct.pack("<I", len(content) if size is None else size)
    block = (len(content) << 3 | 1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd" + bytes([fhd]) + extra + declared + block + content


@pytest.mark.parametrize("name", CODECS)
def test_round_trip(name):
    body = compressed(TEXT, name)
    assert len(body) < len(TEXT) / 2
    assert opened(body, name, len(TEXT)) == TEXT


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("off", [-len(TEXT), -len(TEXT) - 1, -1, 1, 1000, 1 << 31, 1 << 70])
def test_another_length_than_declared_is_refused(name, off):
    with pytest.raises(PayloadError) as caught:
        opened(compressed(TEXT, name), name, len(TEXT) + off)
    assert caught.value.rule == "families.compression"


BODY = {name: compressed(TEXT, name) for name in CODECS}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        *((name, BODY[name] + b"x") for name in CODECS),
        *((name, BODY[name][:-1]) for name in CODECS), *((name, b"") for name in CODECS),
        *((name, TEXT) for name in CODECS), ("zlib", BODY["zlib"] * 2),
        ("zlib", zlib.compress(TEXT, wbits=-15)), ("zlib", zlib.compress(TEXT, wbits=31)),
        # LZ4's own size header would be a second declared length.
        ("lz4", lz4.block.compress(TEXT)),
        ("lz4", lz4.block.compress(TEXT[:5000], store_size=False)), ("zstd", BODY["zstd"] * 2),
        ("zstd", BODY["zstd"] + struct.pack("<II", 0x184D2A50, 4) + b"skip"),
        ("zstd", struct.pack("<II", 0x184D2A50, 4) + b"skip" + BODY["zstd"]),
        ("zstd", struct.pack("<II", 0x184D2A50, len(TEXT)) + TEXT),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)),
    ],
)  # fmt: skip
def test_anything_beside_one_whole_frame_is_refused(name, body):
    with pytest.raises(PayloadError) as caught:
        opened(body, name, len(TEXT))
    assert caught.value.rule == "families.compression"
    assert "play" not in str(caught.value)


def test_zstandard_headers_that_take_memory_or_need_a_dictionary_are_refused():
    content = bytes(range(200)) * 50
    assert opened(zstd_frame(content), "zstd", len(content)) == content
    for frame in (
        zstd_frame(content, fhd=0x80, extra=bytes([20 << 3])),  # a window of 1 GiB
        zstd_frame(content, fhd=0x80, extra=bytes([31 << 3])),  # one that no library takes
        zstd_frame(content, fhd=0xA1, extra=b"\x07"),  # dictionary 7
        zstd_frame(content, fhd=0xA8),  # a reserved bit
        zstd_frame(content, size=len(content) + 1),
        zstd_frame(content, size=1 << 31),
    ):
        with pytest.raises(PayloadError):
            opened(frame, "zstd", len(content))


@pytest.mark.parametrize("name", CODECS)
def test_a_bomb_takes_no_more_than_it_declares(name):
    bomb = compression._codec(name).compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        for length in (1 << 10, 1 << 20):
            with pytest.raises(PayloadError):
                opened(bomb, name, length)
        # A claim that no honest frame of that size could make takes nothing either.
        with pytest.raises(PayloadError):
            opened(bomb[:100], name, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_what_does_not_pay_is_left_as_it_is():
    noise = np.random.default_rng(0).bytes(100_000)
    for name in CODECS:
        assert compressed(TEXT[:9_999], name) is None
        assert compressed(noise, name) is None
        # The beginning alone would promise much.
        assert compressed(bytes(10_000) + noise, name) is None
        # The samples promise, the rest does not keep it.
        fooled = bytearray(np.random.default_rng(1).bytes(1_000_000))
        for start in range(0, 1_000_000, 247_500):
            fooled[start : start + 10_000] = bytes(10_000)
        assert compressed(fooled, name) is None
        assert compressed(np.ones(100_000), name) is not None


def test_which_codec(monkeypatch):
    assert resolve(None) is resolve(False) is None
    assert resolve("auto") == "lz4"
    assert resolve("zlib") == "zlib"
    for wanted in ("snappy", "", True, 5, ["lz4"]):
        with pytest.raises(ConfigError):
            resolve(wanted)
    compression._codec.cache_clear()
    monkeypatch.setattr(compression, "find_spec", lambda package: package == "zlib" or None)
    try:
        assert not available("lz4")
        assert resolve("auto") is None
        with pytest.raises(ConfigError, match="not installed"):
            resolve("zstd")
        assert compressed(TEXT, "lz4") is None
        with pytest.raises(PayloadError, match="Install lz4"):
            opened(BODY["lz4"], "lz4", len(TEXT))
    finally:
        compression._codec.cache_clear()


@given(st.sampled_from(CODECS), st.binary(max_size=60), st.integers(-3, 70_000), st.integers(0, 40))
def test_any_frame_gives_its_bytes_or_one_error(name, noise, length, start):
    for body in (noise, BODY[name][:start] + noise + BODY[name][start + len(noise) :]):
        with contextlib.suppress(SafeserError):
            assert len(opened(body, name, length)) == length


# --- splits ------------------------------------------------------------------------------------

HEADER = {"serializer": "x"}


def test_split_frames_are_joined_as_they_were():
    frames = [b"abc", b"", b"defgh", b"i"]
    header, sent = framing.prepared(HEADER, frames, codec=None)
    assert header == {"serializer": "x", "lengths": [3, 0, 5, 1]}
    assert sent == frames
    for arrived in (
        frames,
        [b"abcdefghi"],
        [b"", b"a", b"bcd", b"", b"efghi", b""],
        [bytes([byte]) for byte in b"abcdefghi"],
        [b"abc", b"defgh", b"i"],
    ):
        plain, made = framing.opened(header, arrived, limits=Limits())
        assert plain == HEADER
        assert [bytes(frame) for frame in made] == frames


def test_neighbours_in_one_buffer_are_joined_without_a_copy():
    whole = bytearray(range(256)) * 40
    view = memoryview(whole)
    header, _ = framing.prepared(HEADER, [whole], codec=None)
    (_, (joined,)) = framing.opened(header, [view[:1000], view[1000:]], limits=Limits())
    assert joined.obj is whole
    assert not joined.readonly
    (_, (joined,)) = framing.opened(
        header, [view[:1000].toreadonly(), view[1000:]], limits=Limits()
    )
    assert joined.obj is whole
    assert joined.readonly
    backwards = memoryview(np.arange(10240).astype("u1")[::-1])
    for apart in (
        [backwards[at : at + 1] for at in reversed(range(10240))],
        [view[5000:], view[:5000]],
        [bytes(view[:1000]), view[1000:]],
        [view[:5], view[:5], view[5:-5]],
    ):
        (_, (joined,)) = framing.opened(header, apart, limits=Limits())
        assert joined == b"".join(apart)
        assert joined.obj is not whole


@pytest.mark.parametrize(
    ("change", "frames"),
    [
        ({"lengths": [3, 4]}, [b"abcdefgh"]), ({"lengths": [3, 6]}, [b"abcdefgh"]),
        ({"lengths": [3]}, [b"abc", b"d"]), ({"lengths": [3, 5]}, []),
        ({"lengths": [-1, 9]}, [b"abcdefgh"]), ({"lengths": [True, 7]}, [b"abcdefgh"]),
        ({"lengths": [3.0, 5.0]}, [b"abcdefgh"]), ({"lengths": "ab"}, [b"abcdefgh"]),
        ({"lengths": None}, [b"abcdefgh"]), ({"lengths": {3: 5}}, [b"abcdefgh"]),
        ({"lengths": [1 << 70]}, [b""]), ({"lengths": [101]}, [b"x" * 101]),
        ({"lengths": [90] * 3}, [b"x" * 270]), ({"lengths": [1] * 21}, [b"x" * 21]),
        ({"lengths": [0] * 10}, [b""] * 41), ({"lengths": [8]}, [None]),
        ({"lengths": [8]}, [memoryview(bytes(16))[::2]]), ({"compression": [None]}, [b"x"]),
        ({"lengths": [1], "compression": []}, [b"x"]),
        ({"lengths": [1], "compression": "z"}, [b"x"]),
        ({"lengths": [1], "compression": ["zlib"]}, [b"x"]),
        ({"lengths": [1], "compression": [["zlib"]]}, [b"x"]),
        ({"lengths": [1], "compression": [["zlib", 0]]}, [b"x"]),
        ({"lengths": [1], "compression": [["zlib", True]]}, [b"x"]),
        ({"lengths": [1], "compression": [["zlib", 1 << 70]]}, [b"x"]),
        ({"lengths": [1], "compression": [[None, 1]]}, [b"x"]),
        ({"lengths": [1], "compression": [["snappy", 1]]}, [b"x"]),
    ],
)  # fmt: skip
def test_frames_that_are_not_as_declared_are_refused(change, frames):
    with pytest.raises(PayloadError) as caught:
        framing.opened(
            {**HEADER, **change},
            frames,
            limits=Limits(max_array=100, max_bytes=200, max_frames=20),
        )
    assert caught.value.rule in (
        "families.framing", "families.frame", "families.too-large", "families.compression"
    )  # fmt: skip


def test_a_header_that_is_none():
    with pytest.raises(PayloadError):
        framing.opened(None, [], limits=Limits())
    assert framing.opened(HEADER, (b"x",), limits=Limits()) == (HEADER, [b"x"])


def test_compressed_and_split():
    frames = [TEXT, b"small", np.ones(10_000)]
    header, sent = framing.prepared(HEADER, frames, codec="zlib")
    assert [way and way[0] for way in header["compression"]] == ["zlib", None, "zlib"]
    whole = b"".join(bytes(frame) for frame in sent)
    _, made = framing.opened(header, [whole[:7], whole[7:]], limits=Limits())
    assert [bytes(frame) for frame in made] == [bytes(memoryview(f).cast("B")) for f in frames]
    header, _ = framing.prepared(HEADER, [b"small"], codec="zlib")
    assert "compression" not in header


declared = st.lists(st.integers(-1, 40) | st.none() | st.just(1 << 40), max_size=4)
ways = st.lists(
    st.none() | st.tuples(st.sampled_from([*CODECS, "x", 5]), st.integers(-1, 30)), max_size=4
)


@given(declared, st.none() | ways, st.lists(st.binary(max_size=20), max_size=4))
def test_any_declaration_gives_its_frames_or_one_error(lengths, how, frames):
    header = {"serializer": "x", "lengths": lengths}
    if how is not None:
        header["compression"] = how
    with contextlib.suppress(SafeserError):
        _, made = framing.opened(header, frames, limits=Limits(max_array=100))
        assert [memoryview(frame).nbytes for frame in made] == lengths


def test_no_library_is_asked_for_more_than_it_counts(monkeypatch):
    # Their lengths are C ints: 2 GiB would be negative.
    def never(*_):
        pytest.fail("it was called")

    monkeypatch.setattr(compression, "_codec", lambda name: compression._Codec(never, never))
    with pytest.raises(PayloadError, match="cannot hold"):
        decompressed(memoryview(bytes(3_000_000)), "zlib", 1 << 31, where="frame 0")
