"""Families, names, inspection, profiles, writing and granted code."""

from __future__ import annotations

import collections
import decimal
import json
import pickle
import sys

import cloudpickle
import numpy as np
import pytest

from safeser.errors import ConfigError, PayloadError, PolicyDenied
from safeser.pickles import DATA_PROFILES, Entry, Profile, dumps, global_of, inspect, loads
from safeser.pickles.stock import load_code
from tests.pickles.forging import family_of
from tests.samples import opcodes as op


class TestFamily:
    @pytest.mark.parametrize("value", [
        None, {"a": [1]}, np.arange(3), np.float64(1), decimal.Decimal(1), int, np.float64,
        KeyError(1),
    ])  # fmt: skip
    def test_data_is_pickle(self, value):
        assert family_of(pickle.dumps(value)) == "pickle"

    @pytest.mark.parametrize("value", [lambda: 1, print, collections.namedtuple, json.JSONDecoder])
    def test_what_needs_more_is_cloudpickle(self, value):
        data = cloudpickle.dumps(value)
        assert family_of(data) == "cloudpickle"
        assert inspect(data).text()

    def test_a_global_counts_for_the_way_it_is_used(self):
        assert family_of(op.pickled(op.name("builtins:int"))) == "pickle"
        assert family_of(op.pickled(op.call("builtins:int"))) == "cloudpickle"

    def test_out_of_band_buffers_need_not_be_at_hand(self):
        data = pickle.dumps(np.zeros(3), 5, buffer_callback=lambda _: None)
        assert family_of(data) == "pickle"

    def test_malformed_bytes_have_no_family(self):
        for data in (b"", b"\x80\x04N", b"\x82\x01.", b"Np9\n."):
            with pytest.raises(PayloadError):
                family_of(data)

    def test_depth_bounds_data_only(self):
        deep = b"(" * 150 + b"t" * 150 + b"."
        with pytest.raises(PayloadError):
            family_of(deep)
        assert family_of(b"cos\nsystem\n" + deep[:-1] + b"R.") == "cloudpickle"


class TestGlobalOf:
    @pytest.mark.parametrize("protocol", range(6))
    def test_the_type_of_a_result(self, protocol):
        for kind in (int, np.ndarray, collections.OrderedDict, type):
            name = f"{kind.__module__}:{kind.__qualname__}"
            assert global_of(pickle.dumps(kind, protocol)) == name
        assert global_of(pickle.dumps(type(None), protocol)) == "builtins:NoneType"

    def test_anything_else_has_no_name(self):
        for data in (
            b"",
            b"garbage",
            pickle.dumps(1),
            pickle.dumps([int]),
            pickle.dumps(collections.deque()),
            op.pickled(op.call("builtins:type", 1)),
            op.pickled(op.call("builtins:type", None, None, None)),
            op.pickled(op.new("builtins:type", None)),
            op.pickled(op.name("builtins:int") + b"0" + op.name("builtins:str")) + b"x",
            b"N0" * 5000 + pickle.dumps(int),
        ):
            assert global_of(data) is None

    def test_nothing_is_imported(self):
        assert global_of(b"cantigravity\ngeohash\n.") == "antigravity:geohash"
        assert "antigravity" not in sys.modules


class TestInspection:
    def test_uses_and_verdicts(self):
        body = op.value(
            [
                op.call("collections:OrderedDict"),
                op.new("uuid:UUID"),
                op.name("os:system"),
                op.build(op.call("builtins:getattr"), None) + b")R",
                op.name("m:C") + b")}\x92",
            ]
        )
        inspection = inspect(op.pickled(body), profile=("data", "numpy"))
        uses = [(use.name, use.role, bool(use.problem)) for use in inspection.globals]
        assert uses == [
            ("collections:OrderedDict", "called", False),
            ("uuid:UUID", "instantiated", False),
            ("os:system", "referenced", True),
            ("builtins:getattr", "called", True),
            ("builtins:getattr", "built", True),
            ("<result of a call>", "called", True),
            ("m:C", "instantiated", True),
        ]
        assert not inspection.permitted
        assert [use.offset for use in inspection.globals] == sorted(
            use.offset for use in inspection.globals
        )
        document = inspection.as_dict()
        assert document["permitted"] is False
        assert set(document["verdicts"]) == {"data+numpy", *DATA_PROFILES}

    def test_the_tree_is_json(self):
        loop = {"n": 1, (1, 2): {3}, "l": [bytearray(b"x")]}
        loop["self"] = loop
        tree = json.loads(json.dumps(inspect(pickle.dumps(loop)).as_dict()))["tree"]
        assert (tree["kind"], tree["size"]) == ("dict", 4)
        assert tree["pairs"][0] == {"kind": "str", "value": "'n'"}
        assert tree["pairs"][7] == {"kind": "same", "id": tree["id"]}
        body = op.value(
            (
                op.build(op.call("os:system", b"\x97"), {None: None}),
                op.name("m:C") + b")}\x92",
                b"(im\nC\n",
                b"Pan id\n",
                b"\x97\x98",
                op.call("m:C") + b")R",
            )
        )
        tree = inspect(op.pickled(body, 5)).as_dict()["tree"]
        call, new, old, persistent, buffer, result = tree["items"]
        assert (call["kind"], call["global"], len(call["state"])) == ("call", "os:system", 1)
        assert (new["kind"], len(new["keywords"])) == ("new", 1)
        assert old["kind"] == "old instance of"
        assert persistent["items"] == [{"kind": "str", "value": "'an id'"}]
        assert (buffer["number"], buffer["readonly"]) == (1, True)
        assert result["callee"][0]["global"] == "m:C"

    def test_the_tree_is_bounded(self):
        for data in (
            b"(" * 5000 + b"t" * 5000 + b".",
            pickle.dumps([[n] for n in range(50_000)]),
            pickle.dumps([[[n, 1, 2] for n in range(90)] for _ in range(90)]),
            pickle.dumps(dict.fromkeys(range(50_000), "x" * 1000)),
        ):
            assert len(json.dumps(inspect(data).as_dict())) < 2_000_000

    def test_text_is_bounded_and_plain(self):
        hostile = op.value(op.pairs("\x1b[2J\u202e" * 50, "\x07" * 10_000, [], None))
        text = inspect(op.pickled([hostile] * 500)).text()
        assert text.replace("\n", "").isprintable()
        assert text.isascii()
        assert max(map(len, text.splitlines())) < 1000
        assert len(text.splitlines()) < 5000

    def test_too_few_buffers_are_noticed_where_they_are_given(self):
        data = pickle.dumps(np.zeros(3), 5, buffer_callback=lambda _: None)
        with pytest.raises(PayloadError):
            inspect(data, buffers=[])
        assert inspect(data, profile="numpy").permitted


class TestProfiles:
    def test_one_class_may_be_listed_for_two_ways(self):
        profile = Profile.named("functions", "data", "exceptions")
        entry = profile.get("builtins:complex")
        assert (entry.role, entry.referable) == ("callable", True)
        assert profile.get("builtins:RuntimeWarning").make
        assert not Profile.named("data").get("builtins:complex").referable
        name = "dateutil.relativedelta:relativedelta"
        allowed = Profile.named("pandas").allowing({name: "reference"})
        assert not Profile.named("pandas").get(name).referable
        assert allowed.get(name).make == "pandas_times.date_offset"
        assert allowed.get(name).referable
        assert "pandas" in repr(allowed)

    @pytest.mark.parametrize(
        "profile", ["none", "code", ("data", "code"), (), "../data", "data.toml"]
    )
    def test_unknown_profiles(self, profile):
        with pytest.raises(ConfigError):
            loads(b"N.", profile=profile)

    @pytest.mark.parametrize(("name", "role"), [
        ("os.system", "reference"), ("os:sys tem", "reference"), ("os:*", "reference"),
        ("os:system", "callable"), ("os:system", "any"), ("", "class"), ("os\0:x", "class"),
    ])  # fmt: skip
    def test_only_exact_names_and_known_roles_can_be_allowed(self, name, role):
        with pytest.raises(ConfigError):
            Profile.named("data").allowing({name: role})

    def test_unknown_fields_of_an_entry_are_refused(self):
        from safeser.pickles import profiles

        with pytest.raises(ConfigError):
            list(profiles._entries({"entry": {"a:b": {"role": "class", "typo": 1}}}))

    def test_what_all_share_cannot_be_widened(self):
        shared = Profile.named("data")
        with pytest.raises(TypeError):
            shared.entries["os:system"] = Entry("os:system", "reference", reviewed=True)
        with pytest.raises(TypeError):
            shared.entries["collections:defaultdict"].args[0] = frozenset({"builtins:eval"})
        for field in ("entries", "name"):
            with pytest.raises(AttributeError):
                setattr(shared, field, {})
        with pytest.raises(AttributeError):
            shared.get("collections:defaultdict").role = "reference"

    def test_a_profile_of_ones_own(self):
        profile = Profile("mine", [Entry("builtins:len", "reference", reviewed=True)])
        assert loads(pickle.dumps(len), profile=profile) is len
        with pytest.raises(PolicyDenied, match="profile mine"):
            loads(pickle.dumps(abs), profile=profile)


class TestWriting:
    def test_code_is_written_only_where_it_is_asked_for(self):
        with pytest.raises(PayloadError, match="cannot be pickled by reference"):
            dumps(lambda: 1)
        data = dumps(lambda: 41 + 1, code=True)
        assert family_of(data) == "cloudpickle"
        assert load_code(data)() == 42

    def test_what_main_defines_goes_by_value(self, monkeypatch):
        def step(x):
            return x + 1

        step.__module__, step.__qualname__ = "__main__", "step"
        monkeypatch.setattr(sys.modules["__main__"], "step", step, raising=False)
        assert global_of(dumps(step)) == "__main__:step"
        buffers = []
        data = dumps([step, np.zeros(9)], code=True, buffer_callback=buffers.append)
        assert len(buffers) == 1
        assert load_code(data, buffers=buffers)[0](1) == 2
        assert global_of(data) is None

    def test_what_nothing_can_write(self):
        import threading

        for code in (False, True):
            with pytest.raises(PayloadError):
                dumps(threading.Lock(), code=code)


def test_two_files_import_an_unpickler():
    import ast
    import pathlib

    import safeser.pickles

    for path in pathlib.Path(safeser.pickles.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            hits = {"pickle", "_pickle", "cloudpickle", "pickletools"} & set(names)
            assert not hits or path.name in ("stock.py", "unpickler.py")
    assert not hasattr(safeser.pickles, "load_code")


def test_loads_takes_any_bytes_like():
    data = pickle.dumps([1])
    for form in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert loads(form) == [1]
        assert global_of(form) is None
