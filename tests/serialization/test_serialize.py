"""``serialize`` and ``deserialize`` as Dask documents them, without a policy."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safeser
from safeser import SerializationError, deserialize, serialize
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.families import plain
from safeser.gate.values import Context, Limits


class Opaque:
    pass


def same(x, **options):
    header, frames = serialize(x, on_error="raise", **options)
    header = plain.decode(plain.encode(header))
    back = deserialize(header, [bytes(frame) for frame in frames])
    assert type(back) is type(x)
    return back


def test_none_means_dask_and_msgpack():
    header, frames = serialize(np.arange(3), ["pickle"])
    with pytest.raises(PolicyDenied) as caught:
        deserialize(header, frames)
    assert caught.value.rule == "context.family"
    assert "deserializers=[..., 'pickle']" in caught.value.fix
    with pytest.raises(SerializationError):
        serialize(Opaque(), on_error="raise")
    for asked in (None, ["dask", "msgpack"], ("dask",)):
        assert list(deserialize(*serialize(np.arange(3)), asked)) == [0, 1, 2]


def test_pickles_are_asked_for_by_name_and_read_by_restricted_pickle():
    header, frames = serialize({"a": (1, [2])}, ["pickle"])
    assert deserialize(header, frames, ["dask", "pickle"]) == {"a": (1, [2])}
    # Profile data holds plain values; the global is named, and nothing is imported for it.
    header, frames = serialize(np.arange(3), ["pickle"])
    with pytest.raises(PolicyDenied) as caught:
        deserialize(header, frames, ["pickle"])
    assert "numpy" in str(caught.value)


@pytest.mark.parametrize("claim", ["pickle", "cloudpickle"])
def test_code_is_never_read_without_a_policy(claim):
    header, frames = serialize(lambda: 1, ["cloudpickle"], on_error="raise")
    header["serializer"] = claim
    for asked in (["pickle"], ["cloudpickle"], ["dask", "msgpack", "pickle", "cloudpickle"]):
        with pytest.raises(PolicyDenied) as caught:
            deserialize(header, frames, asked)
        assert "granted code" in caught.value.fix or "a policy" in caught.value.fix
    # What was pickled by cloudpickle and is plain data needs no code.
    header, frames = serialize([1], ["cloudpickle"])
    assert deserialize(header, frames, ["pickle", "cloudpickle"]) == [1]


def test_on_error():
    header, frames = serialize({"x": [Opaque()]})
    assert header["serializer"] == "error"
    with pytest.raises(TypeError) as caught:
        deserialize(header, frames)
    assert isinstance(caught.value, SerializationError)
    assert "Opaque" in str(caught.value)
    with pytest.raises(TypeError) as caught:
        serialize({"x": [Opaque()]}, on_error="raise")
    assert caught.value.where == "['x'][0]"
    for word in ("Opaque", "dask, msgpack", "register_generic", "register_generic", "pickle"):
        assert word in str(caught.value)
    with pytest.raises(ConfigError):
        serialize(1, on_error="ignore")
    with pytest.raises(SerializationError, match="no family at all"):
        serialize(1, [], on_error="raise")


def test_an_exception_is_a_value_and_a_failure_is_not():
    back = deserialize(*serialize(ValueError("x")))
    assert type(back) is ValueError
    header, frames = serialize(ValueError("x"))
    header["failed"] = True
    with pytest.raises(SerializationError) as caught:
        deserialize(header, frames)
    assert caught.value.rule == "families.sender-failed"
    header["failed"] = 1
    with pytest.raises(PayloadError):
        deserialize(header, frames)


def test_iterate_collection():
    array = np.arange(3)
    together, _ = serialize([1, 2])
    assert together["serializer"] == "msgpack"
    apart, _ = serialize([1, 2], iterate_collection=True)
    assert [sub["serializer"] for sub in apart["sub-headers"]] == ["msgpack"] * 2
    # Elements decide for themselves again.
    nested, _ = serialize([[1, 2]], iterate_collection=True)
    assert nested["sub-headers"][0]["serializer"] == "msgpack"
    mixed, _ = serialize([array, 1])
    assert [sub["serializer"] for sub in mixed["sub-headers"]] == ["dask", "msgpack"]
    with pytest.raises(SerializationError):
        serialize([array], iterate_collection=False, on_error="raise")
    whole, _ = serialize([array], ["dask", "pickle"], iterate_collection=False)
    assert whole["serializer"] == "pickle"
    whole, _ = serialize([Opaque], ["dask", "msgpack", "pickle"])
    assert whole["serializer"] == "pickle"


def test_serialize_and_serialized_inside_messages():
    array = np.arange(4)
    message = {
        "op": "update",
        "whole": safeser.to_serialize([array, 1]),
        "done": safeser.Serialized(*serialize((1, array), compression="zlib")),
        "list": [safeser.Serialize("x"), safeser.Serialized(*serialize([1]))],
    }
    back = same(message)
    assert back["op"] == "update"
    assert list(back["whole"][0]) == list(back["done"][1]) == [0, 1, 2, 3]
    assert back["list"] == ["x", [1]]
    header, frames = serialize(array)
    assert serialize(safeser.Serialized(header, frames)) == (header, frames)
    assert same(safeser.Serialized(*serialize(5)).header, iterate_collection=True)


def test_what_is_serialized_already_is_parsed_before_it_is_passed_on():
    header, frames = serialize(np.arange(3), ["pickle"])
    with pytest.raises(SerializationError, match="family pickle"):
        serialize([safeser.Serialized(header, frames)], on_error="raise")
    for header, frames in (
        ({"serializer": "msgpack"}, []),
        ({"serializer": "msgpack", "lengths": [5]}, [b"x"]),
        ({"type-serialized": b"x"}, []),
        (None, []),
    ):
        with pytest.raises(PayloadError):
            serialize(safeser.Serialized(header, frames), on_error="raise")


def test_marks():
    mark = safeser.Serialize(5)
    assert mark == safeser.to_serialize(5) != safeser.Serialize(6)
    assert hash(mark) == hash(5)
    assert repr(mark) == "<Serialize: 5>"
    done = safeser.Serialized({"a": 1}, [b"x"])
    assert done == safeser.Serialized({"a": 1}, (b"x",)) != safeser.Serialized({}, [])
    assert done != 5 != mark
    assert repr(done) == "<Serialized: 1 frames>"
    with pytest.raises(TypeError):
        hash(done)


def test_large_buffers_are_not_copied():
    array = np.arange(100_000)
    data = safeser.serialize_bytes(array)
    assert np.shares_memory(safeser.deserialize_bytes(bytearray(data)), array) is False
    kept = bytearray(data)
    assert np.shares_memory(safeser.deserialize_bytes(kept), np.frombuffer(kept, "u1"))


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd", "auto"])
def test_compression(codec):
    x = {"ones": np.ones(50_000), "noise": np.random.default_rng(0).bytes(50_000), "n": 1}
    header, frames = serialize(x, compression=codec)
    assert sum(memoryview(frame).nbytes for frame in frames) < 60_000
    back = deserialize(header, [b"".join(frames)])
    assert (back["ones"] == 1).all()
    assert back["noise"] == x["noise"]
    back["ones"][0] = 2
    for wanted in ("snappy", 5):
        with pytest.raises(ConfigError):
            serialize(1, compression=wanted)


def test_nothing_is_decompressed_for_a_family_that_may_not_come(monkeypatch):
    header, frames = serialize(b"x" * 100_000, ["pickle"], compression="zlib")
    assert header["compression"]
    monkeypatch.setattr("safeser.families.framing.decompressed", None)
    with pytest.raises(PolicyDenied) as caught:
        deserialize(header, frames)
    assert caught.value.rule == "caller.deserializers"


def test_limits_are_of_the_opened_frames():
    header, frames = serialize(np.zeros(100_000), compression="zlib")
    assert deserialize(header, frames, limits=Limits(max_array=800_000)).sum() == 0
    for limits in (Limits(max_array=799_999), Limits(max_bytes=799_999)):
        with pytest.raises(PayloadError):
            deserialize(header, frames, limits=limits)


# --- one run of bytes --------------------------------------------------------------------------


def test_bytes_round_trip():
    x = {"a": np.arange(5), ("b", 1): [1, (2,)], "c": b"x" * 20_000}
    for data in (safeser.serialize_bytes(x), safeser.serialize_bytes(x, compression="zlib")):
        for form in (data, bytearray(data), memoryview(data)):
            back = safeser.deserialize_bytes(form)
            assert list(back["a"]) == list(range(5))
            assert back["b", 1] == [1, (2,)]
            assert back["c"] == x["c"]
    with pytest.raises(SerializationError):
        safeser.serialize_bytes(Opaque())
    data = safeser.serialize_bytes(Opaque(), on_error="message")
    with pytest.raises(SerializationError):
        safeser.deserialize_bytes(data)
    with pytest.raises(SerializationError, match="more parts than max_memory"):
        safeser.serialize_bytes([[2j], 2j] * 10, limits=Limits(max_memory=50 << 7))


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x01", bytes(8), b"\xff" * 8, b"\xff" * 80, (1 << 40).to_bytes(8, "little"),
        (1).to_bytes(8, "little") + b"\x05", (1).to_bytes(8, "little") + b"\x80",
        safeser.serialize_bytes([1, 2j])[:-1], safeser.serialize_bytes([1, 2j]) + b"x", 5, "text",
        memoryview(bytes(16))[::2],
    ],
)  # fmt: skip
def test_malformed_bytes(data):
    with pytest.raises(PayloadError):
        safeser.deserialize_bytes(data)


WHOLE = safeser.serialize_bytes({"a": [1, 2j, b"x" * 10], "b": np.arange(3)})


@given(st.binary(max_size=9), st.integers(0, len(WHOLE)), st.integers(0, 9))
def test_any_bytes_give_a_value_or_one_error(noise, start, cut):
    for data in (noise, WHOLE[:start] + noise + WHOLE[start + cut :]):
        with contextlib.suppress(SafeserError):
            safeser.deserialize_bytes(data, limits=Limits(max_array=1 << 16, max_memory=1000 << 7))


def test_a_header_too_large_is_not_read():
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize_bytes(WHOLE, limits=Limits(max_array=20))
    assert caught.value.rule == "families.too-large"


# --- without Dask ------------------------------------------------------------------------------


def test_it_needs_no_dask_and_importing_safeser_loads_none_of_it():
    code = (
        "import sys; sys.modules['distributed'] = sys.modules['dask'] = None\n"
        "import safeser\n"
        "assert not {'numpy', 'msgpack', 'pandas'} & set(sys.modules), 'not light'\n"
        "h, f = safeser.serialize({'a': [1, 2j]})\n"
        "assert safeser.deserialize(h, f) == {'a': [1, 2j]}\n"
        "from safeser import (to_serialize, Serialize, Serialized, register_serialization_family,\n"
        "    register_serialization, dask_serialize, dask_deserialize, register_generic)\n"
        "assert not any(m.split('.')[0] in ('pandas', 'pyarrow') for m in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_context_reaches_functions_and_no_one_decides_it():
    assert deserialize(*serialize(5, context={"sender": "tcp://x"}), context={"sender": 1}) == 5
    assert deserialize(*serialize(5, context=Context("a", "b")), context=Context("a", "b")) == 5
