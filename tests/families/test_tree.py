"""The tree of a payload: families derived from content, one grant at every depth, no frame lost."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser import families, pickles
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.families import (
    Registry,
    Typed,
    pickled,
)
from safeser.gate.values import Grant, Limits
from tests.draws import draws
from tests.samples.hostile.tree import MSGPACK, NIL, TREES, collection
from tests.samples.typed import FAMILIES, GRANT, HOSTILE

ALL = Grant("all", ("dask", "msgpack", "pickle", "cloudpickle"), profiles=("data", "numpy"))
names = st.sampled_from(
    ["serializer", "type", "sub-header", "sub-headers", "frame-lengths", "writeable", "shape"]
)
words = st.sampled_from(
    ["dask", "msgpack", "collection", "pickle", "error", "list", "dict", "numpy:ndarray",
     "pandas:NA", "builtins:bytes", "collections:deque"]
)  # fmt: skip
anything = st.recursive(
    st.sampled_from(HOSTILE) | words | st.integers(0, 3),
    lambda inner: st.dictionaries(names, inner, max_size=5) | st.lists(inner, max_size=3),
    max_leaves=12,
)


@given(anything, st.lists(st.binary(max_size=9), max_size=3))
@draws(300)
def test_any_header_gives_a_value_or_one_error(header, frames):
    with contextlib.suppress(SafeserError):
        families.claimed(header)
    with contextlib.suppress(SafeserError):
        families.derive(header, frames)
    with contextlib.suppress(SafeserError):
        repr(families.deserialize(header, frames, ALL.narrowed(["dask", "msgpack", "pickle"])))


def test_limits():
    deep = MSGPACK
    for _ in range(150):
        deep = collection("list", deep)
    cyclic = collection("list")
    cyclic["sub-headers"].append(cyclic)
    cyclic["frame-lengths"].append(1)
    nested = {"serializer": "nothing"}
    for _ in range(90):
        nested = collection("list", nested, lengths=[0])
    wide = collection("list", *[MSGPACK] * 50)
    for header, frames, limits, rule in (
        (deep, [NIL], Limits(), "families.depth"),
        (nested, [], Limits(), "families.serializer"),
        (cyclic, [NIL], Limits(max_depth=10**9), "families.memory"),
        (wide, [NIL] * 50, Limits(max_memory=50 << 7), "families.memory"),
        (wide, [NIL] * 50, Limits(max_frames=49), "families.too-large"),
        (wide, [NIL] * 50, Limits(max_bytes=49), "families.too-large"),
        (wide, [b"\x9f" + b"\xc0" * 15] * 50, Limits(max_memory=44_927), "families.memory"),
        (MSGPACK, [b"\xa2ab"], Limits(max_array=2), "families.too-large"),
    ):
        with pytest.raises(PayloadError) as caught:
            families.check(header, frames, limits=limits)
        assert caught.value.rule == rule
        assert len(str(caught.value)) < 500  # each of two hundred steps was spelled out, once


def test_families_are_derived_from_content():
    def family(x, *tried):
        header, frames = families.serialize(x, tried or FAMILIES)
        return families.claimed(header), families.derive(header, frames)

    assert family([1, "a"]) == ("msgpack", "msgpack")
    assert family(ValueError(1)) == ("error", "error")
    assert family([ValueError(1), 2]) == ("error", "error")
    assert family([ValueError(1), 2j]) == ("dask", "dask")
    assert family([]) == ("msgpack", "msgpack")
    assert family([1], "pickle") == ("pickle", "pickle")
    assert family(lambda: 1, "dask", "cloudpickle")[1] == "cloudpickle"
    # A claim is not believed in either direction.
    header, frames = families.serialize(lambda: 1, ("cloudpickle",))
    header["serializer"] = "pickle"
    assert families.claimed(header) == "pickle"
    assert families.derive(header, frames) == "cloudpickle"
    header, frames = families.serialize(1j, ("cloudpickle",))
    assert families.derive(header, frames) == "pickle"


def test_one_grant_bounds_every_depth():
    header, frames = families.serialize([np.arange(3), print], ("dask", "pickle", "cloudpickle"))
    for granted in (("dask",), ("msgpack",), ()):
        with pytest.raises(PolicyDenied) as caught:
            families.deserialize(header, frames, Grant("narrow", granted))
        assert caught.value.rule == "context.family"
        assert "narrow" in str(caught.value)
    array = families.serialize([np.arange(3)], ("dask",))
    with pytest.raises(PolicyDenied):
        families.deserialize(*array, Grant("plain", ("msgpack",)))
    failed = families.serialize(ValueError(), ("error",))
    with pytest.raises(PolicyDenied):
        families.deserialize(*failed, Grant("plain", ("msgpack",)))
    assert families.covers(("dask",), "error")
    assert not families.covers(("pickle", "cloudpickle"), "dask")


def test_denied_before_anything_is_built(monkeypatch):
    header, frames = families.serialize(
        [1j, print], ("dask", "cloudpickle"), iterate_collection=True
    )
    monkeypatch.setattr(pickles, "loads", None)
    monkeypatch.setattr(pickled, "load_code", None)
    with pytest.raises(PolicyDenied):
        families.deserialize(header, frames, GRANT)


def test_pickles_keep_buffers_and_their_flags():
    free, fixed = np.arange(1000.0), np.arange(1000.0)
    fixed.flags.writeable = False
    header, frames = families.serialize({"a": free, "b": fixed}, ("pickle",))
    assert header == {"serializer": "pickle", "writeable": [True, False]}
    assert np.shares_memory(np.frombuffer(frames[1]), free)
    narrow = ALL.narrowed(["pickle"])
    back = families.deserialize(header, [bytes(frame) for frame in frames], narrow)
    assert (back["a"] == free).all()
    assert back["a"].flags.writeable
    assert not back["b"].flags.writeable
    back = families.deserialize(header, [frames[0], *map(bytearray, frames[1:])], ALL)
    assert back["a"].flags.writeable
    assert not back["b"].flags.writeable


def test_who_may_send_code_is_not_read_first(monkeypatch):
    header, frames = families.serialize([1, 2j], ("pickle",))
    monkeypatch.setattr(pickles, "parse", None)
    assert families.deserialize(header, frames, ALL) == [1, 2j]


def test_granted_code_runs_and_its_failure_is_one_error():
    header, frames = families.serialize(lambda x: x + 1, ("cloudpickle",))
    assert families.deserialize(header, frames, ALL)(1) == 2
    with pytest.raises(PolicyDenied):
        families.deserialize(header, frames, Grant("data", ("dask", "msgpack", "pickle")))
    with pytest.raises(PayloadError, match="ModuleNotFoundError"):
        families.deserialize(header, [b"\x80\x04cno_such_module\nthing\n."], ALL)


def test_garbage_pickles_are_one_error():
    header = {"serializer": "pickle", "writeable": []}
    for data in (b"", b".", b"\x80\x05", b"garbage", b"\x80\x05N."[:-1]):
        with pytest.raises(PayloadError):
            families.derive(header, [data])
        with pytest.raises(PayloadError):
            families.judge(header, [data], GRANT)


class Model:
    def __reduce__(self):
        raise RuntimeError("secret text")


def test_order_of_families_is_kept():
    def way(x, *tried, **options):
        return families.serialize(x, tried, **options)[0]["serializer"]

    assert way([1], "pickle", "msgpack") == "pickle"
    assert way([1], "msgpack", "pickle") == "msgpack"
    assert way([1], "dask", "msgpack") == "msgpack"
    assert way([1], "dask") == "collection"
    assert way([1], "dask", "pickle") == "pickle"
    assert way([2j], "dask", "pickle") == "collection"
    assert way([2j], "dask", "pickle", iterate_collection=False) == "pickle"
    assert way([print], "dask", "pickle", "cloudpickle") == "pickle"
    assert way([[[2j]]], "dask", "pickle") == "collection"
    assert way({2j: 1}, "dask", "msgpack", "pickle") == "collection"
    assert way([1], "dask", "msgpack", iterate_collection=True) == "collection"
    assert way([b"x" * (1 << 21)], "dask", "msgpack") == "collection"
    assert way([b"x" * (1 << 21)], "msgpack") == "msgpack"
    assert way([ValueError()], "msgpack", "error") == "collection"
    assert way(ValueError(), "pickle", "dask") == "pickle"


@pytest.mark.parametrize(
    ("x", "tried", "words"),
    [
        ({"a": [1, Model()]}, FAMILIES, ["['a'][1]", "test_tree:Model", "dask, msgpack", "pickle"]),
        (Model(), ("pickle",), ["cannot be pickled", "family dask"]),
        ([np.arange(3)], ("msgpack",), ["numpy:ndarray", "[0]", "Allow family dask"]),
        (lambda: 1, FAMILIES, ["builtins:function", "cloudpickle"]),
        (Model, FAMILIES, ["cloudpickle"]),
        (1, (), ["no family at all"]),
        (Model(), (*FAMILIES, "pickle"), ["on both sides"]),
    ],
)
def test_messages_help(x, tried, words):
    with pytest.raises(PayloadError) as caught:
        families.serialize(x, tried)
    assert caught.value.rule == "families.cannot-serialize"
    for word in words:
        assert word in str(caught.value)
    assert "secret" not in str(caught.value)


class Point:
    def __init__(self, x):
        self.x = x


def point(registry):
    registry.register(Typed("points:Point", (Point,), None, None, None))
    return registry


def test_registering_a_type():
    own = point(Registry())
    assert own.named("points:Point") is own.for_object(Point(1))
    for name, cls in (("points:Point", int), ("points:Other", Point)):
        with pytest.raises(ConfigError, match="already"):
            own.register(Typed(name, (cls,), None, None, None))
    for name in ("Point", "a:b:c", "a.b", "", "os:system()", "a b:c"):
        with pytest.raises(ConfigError, match="module:qualname"):
            Typed(name, (int,), None, None, None)


def test_registered_lazily():
    own = Registry()
    loaded = []
    own.register_lazy("missing", ["missing:Thing"], lambda: __import__("no_such_module_at_all"))
    own.register_lazy(
        __name__.partition(".")[0], ["points:Point"], lambda: loaded.append(point(own))
    )
    with pytest.raises(PayloadError) as caught:
        own.named("missing:Thing")
    assert caught.value.rule == "families.not-installed"
    with pytest.raises(PayloadError, match="no type"):
        own.named("missing:Other")
    assert not loaded
    own.named("points:Point")
    assert own.for_object(Point(1)).name == "points:Point"
    assert len(loaded) == 1
    with pytest.raises(ConfigError):
        own.register_lazy("elsewhere", ["missing:Thing"], list)
    with pytest.raises(ConfigError):
        own.register(Typed("missing:Thing", (int,), None, None, None))


#: What takes the sub-header or an own collection's keys to tell.
UNREAD = ("families.child-count", "families.type", "families.hash-flood")


@pytest.mark.parametrize(("header", "frames", "rule"), TREES)
def test_deriving_refuses_as_checking_does(header, frames, rule):
    if rule in UNREAD or (header and header.get("type") == "dict"):
        return
    with pytest.raises(PayloadError) as caught:
        families.derive(header, frames)
    assert caught.value.rule == rule
