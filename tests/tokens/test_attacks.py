"""Objects that are made to mislead: other content under the same token, code, imports, no end."""

from __future__ import annotations

import array
import collections
import enum
import itertools
import math
import struct
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest

from safeser import TokenizationError, tokenize
from safeser.tokens import graph
from safeser.tokens.kinds import describe


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Items(list):
    pass


class One(enum.IntEnum):
    ONE = 1


Pair = collections.namedtuple("Pair", "a b")
PAYLOAD_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

#: Values of which no two are the same, however they are put together.
DIFFERENT = [
    None, False, True, 0, 1, -1, 0.0, -0.0, 1.0, 1j, complex(1, 0), complex(-0.0, 0), Number(1),
    One.ONE, math.nan, PAYLOAD_NAN, math.inf, 1 << 64, "", "1", b"", b"1", bytearray(),
    bytearray(b"1"), memoryview(b"1"), array.array("b", b"1"), Text("1"), Text(""), [], (), {},
    set(), frozenset(), collections.OrderedDict(), collections.defaultdict(list),
    collections.deque(), Items(), Pair(1, 2), [1], (1,), {1}, {True}, {1.0}, frozenset({1}),
    {1: None}, {"1": None}, {b"1": None}, Items([1]), (1, 2), [1, 2], [[1], 2], [1, [2]], [[1, 2]],
    [[], []], [[[]]], [()], ([],), ["ab", "c"], ["a", "bc"], ["abc"], ["a", "b", "c"], ["a,b"],
    [b"a", "b"], ["a", b"b"], {"a": "b"}, [("a", "b")], {("a", "b")}, [["a", "b"]],
    {"a": {"b": {}}}, {"a": {}, "b": {}}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, {"a": [1], "b": [2]},
    {"a": [2], "b": [1]}, collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), int,
    float, str, bytes, type, object, type(None), len, sum, [].append, [1].append, "a".upper,
    "b".upper, str.upper, str.lower, Ellipsis, NotImplemented, range(1), range(0), slice(1),
    slice(None, 1, 1), Decimal("1"), Decimal("1.0"), ValueError(), ValueError("a"), KeyError("a"),
    Text, Number, np.int8(1), np.int64(1), np.float64(1), np.bool_(True), np.str_("1"),
    np.bytes_(b"1"), np.array(1), np.array([1]), np.array([[1]]), np.array([1], "i4"),
    np.array([1.0]), np.array([]), np.array([], "i4"), np.zeros((0, 2)), np.zeros((2, 0)),
    np.array(["1"]), np.array([b"1"]), np.array(["1"], object), np.array([b"1"], object),
    np.array([1], object), np.array([[1]], object), np.dtype("i4"), np.dtype("f4"), "i4",
    np.array([1], "M8[s]"), np.array([1], "M8[ns]"), np.array([1], "m8[s]"), np.array([-0.0]),
    np.array([0.0]), np.array([(1, 2)], "i1,i1"), np.array([(1, 2)], "i1,u1"),
    np.array([(1, 2)], [("x", "i1"), ("y", "i1")]), "x" * 70_000, b"x" * 70_000, "x" * 70_001,
    bytearray(b"x" * 70_000), ["x" * 5000], ("x" * 5000,),
]  # fmt: skip


def test_no_two_of_many_values_share_a_token():
    wrapped = [
        (way, at, make(value))
        for at, value in enumerate(DIFFERENT)
        for way, make in {
            "itself": lambda x: x,
            "list": lambda x: [x, None],
            "tuple": lambda x: (x, object),
            "dict": lambda x: {"k": x, "l": [len]},
        }.items()
    ]
    tokens = collections.defaultdict(list)
    for way, at, value in wrapped:
        tokens[tokenize(value, ensure_deterministic=True)].append((way, at, type(value)))
    assert [each for each in tokens.values() if len(each) > 1] == []


def test_an_encoding_cannot_be_given_as_bytes_or_text():
    inner = [1, len]
    node = graph.Walk(describe).encode(inner)
    assert len({tokenize(each) for each in (inner, node, [node], node.hex(), [[node]])}) == 5


class Liar(type):
    """A metaclass whose classes say that they are others."""

    def __hash__(cls):
        return hash(cls.claimed)

    def __eq__(cls, other):
        return True


class EvilBytes(bytes, metaclass=Liar):
    claimed = str


@pytest.mark.parametrize("claimed", [int, str, float, dict, list, bytes])
def test_a_class_that_equals_a_builtin_type_is_not_taken_for_it(claimed):
    evil = Liar("Evil", (), {"claimed": claimed})()
    assert tokenize([evil]) != tokenize([claimed()])
    assert tokenize(evil) != tokenize(claimed())
    assert len({tokenize([each]) for each in (EvilBytes(b"1"), b"1", "1")}) == 3


def test_what_a_class_says_of_itself_neither_runs_nor_counts():
    ran = []

    class Mask:
        __class__ = property(lambda self: int)  # pickling asks for it

        def __init__(self, x):
            self.x = x

        def __eq__(self, other):
            ran.append("eq")
            return self is other

        def __hash__(self):
            ran.append("hash")
            return 5

        def __repr__(self):
            ran.append("repr")
            return "1"

        def __getattr__(self, name):
            if not name.startswith("__"):
                ran.append(name)
            raise AttributeError(name)

    values = [Mask(1), Mask(2)]
    there, back = {values[0], values[1]}, {values[1], values[0]}
    ran.clear()
    assert len({tokenize(each) for each in (*values, 1, 5)}) == 4
    assert tokenize(there) == tokenize(back)
    assert ran == []


def test_two_classes_that_reduce_to_the_same_differ():
    def made():
        class Made:
            def __reduce__(self):
                return int, ("5",)

        return Made

    class Other:
        def __reduce__(self):
            return int, ("5",)

    assert len({tokenize(each) for each in (made()(), Other(), 5)}) == 3
    assert tokenize(made()()) == tokenize(made()())


def test_a_function_under_a_librarys_name_is_not_the_librarys(monkeypatch):
    import json

    def dumps(obj):
        return "evil"

    dumps.__module__, dumps.__qualname__, dumps.__name__ = "json", "dumps", "dumps"
    real = tokenize(json.dumps)
    assert tokenize(dumps) != real
    monkeypatch.setattr(json, "dumps", dumps)
    assert tokenize(json.dumps) != real

    class Decimal_:
        pass

    Decimal_.__module__, Decimal_.__qualname__ = "decimal", "Decimal"
    assert tokenize(Decimal_) != tokenize(Decimal)


def test_nothing_is_imported():
    """Neither names in objects nor libraries that the process has not imported itself."""
    code = """if True:
        import sys, types
        from safeser import tokenize
        tokenize([1, {"a"}, len])
        class Evil: pass
        Evil.__module__ = "this"
        def f(): return antigravity.fly
        f.__module__ = "antigravity"
        lazy = types.ModuleType("wave")
        before = set(sys.modules)
        tokenize([Evil(), Evil, f, lazy, "this", types.SimpleNamespace(x=Evil)])
        assert set(sys.modules) == before, set(sys.modules) - before
        assert not {"numpy", "pandas", "pyarrow", "dask", "cloudpickle"} & set(sys.modules)
    """
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def nested(depth):
    made = []
    for _ in range(depth):
        made = [made]
    return made


def test_depth_is_bounded_by_memory_and_by_a_number_not_by_the_stack():
    deep = graph._DEPTH - 10
    assert tokenize(nested(deep), ensure_deterministic=True) != tokenize(nested(deep - 1))
    with pytest.raises(TokenizationError, match="nested more than 20,000 levels deep"):
        tokenize(nested(graph._DEPTH + 10), ensure_deterministic=True)
    assert tokenize(nested(graph._DEPTH + 10)) != tokenize(nested(graph._DEPTH + 10))


def test_an_object_that_reduces_to_new_ones_for_ever_ends():
    class Endless:
        def __reduce__(self):
            return Endless, (Endless(), Endless())

    with pytest.raises(TokenizationError, match="nested more than"):
        tokenize(Endless(), ensure_deterministic=True)


def test_shared_references_take_linear_time():
    made = [len]
    for _ in range(5_000):
        made = [made, made, {"a": made}]
    assert tokenize(made, ensure_deterministic=True)  # unshared, it would have 3 ** 5000 parts


def ring(count, tags=()):
    cells = [{"tag": tag} for tag in itertools.islice(itertools.cycle(tags or [0]), count)]
    for cell, after in zip(cells, cells[1:] + cells[:1], strict=True):
        cell["next"], after["previous"] = after, cell
    return cells


def test_cycles_that_differ_anywhere_differ():
    base = tokenize(ring(50, "abcde")[0], ensure_deterministic=True)
    changed = ring(50, "abcde")
    changed[25]["tag"] = "x"
    assert base != tokenize(changed[0])
    assert base == tokenize(ring(50, "abcde")[0])
    assert base == tokenize(ring(50, "abcde")[5])  # the same from there on
    assert base != tokenize(ring(50, "abcde")[1])
    crossed = ring(4, "ab")
    crossed[0]["next"], crossed[1]["next"] = crossed[1]["next"], crossed[0]["next"]
    assert tokenize(crossed[0]) != tokenize(ring(4, "ab")[0])
    one, other = [1], [1]
    one.append(one)
    other.append([1, other, 2])
    assert tokenize(one) != tokenize(other)


def test_a_chain_of_alike_parts_is_refused_rather_than_refined_for_ever(monkeypatch):
    monkeypatch.setattr(graph, "_STEPS", 2_000)
    chain = ring(200)
    del chain[-1]["next"], chain[0]["previous"]
    with pytest.raises(TokenizationError, match="too many parts that are alike"):
        tokenize(chain[100], ensure_deterministic=True)


def test_threads_do_not_mix_their_tokens():
    from concurrent.futures import ThreadPoolExecutor

    values = [[{"a": {at}}, len, ring(5)[0]] for at in range(20)]
    alone = [tokenize(each) for each in values]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenize, values * 5)) == alone * 5


class Changing:
    def __init__(self):
        self.count = itertools.count()

    def __getstate__(self):
        return {"at": next(self.count)}


@pytest.mark.parametrize("wrapped", [lambda x: x, lambda x: [x], lambda x: {"a": (1, x)}])
def test_what_has_another_state_each_time_has_no_token(wrapped):
    with pytest.raises(TokenizationError) as caught:
        tokenize(wrapped(Changing()), ensure_deterministic=True)
    assert caught.value.rule == "token.nondeterministic"
    assert len(tokenize(wrapped(Changing()))) == 64
