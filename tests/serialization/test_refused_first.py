"""What a reader would refuse is refused by the sender, and wrong arguments by their names."""

import collections

import numpy as np
import pytest

import safeser
from safeser import ConfigError, Context, Limits, PayloadError, SerializationError
from safeser.families.registry import Registry, registry

NAN = float("nan")
ARRAY = np.ones(2)
ROW = [n / 2 for n in range(20)]


@pytest.mark.parametrize(
    "value",
    [
        {NAN: 1}, [{"a": {NAN}}], {"a": ARRAY, NAN: 1}, [ARRAY, {NAN: ARRAY}],
        [ARRAY, frozenset([NAN])], {np.float64("nan"): 1}, {np.float64("nan")},
        {key: np.float64(1) for key in (*ROW, NAN)}, dict.fromkeys([*ROW, NAN], 1),
        {NAN: 1, float("nan"): 2}, collections.OrderedDict({NAN: 1}),
        collections.ChainMap({NAN: ARRAY}),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("families", [None, ["dask"]])
@pytest.mark.parametrize("iterate", [None, True])
def test_nan_is_a_key_like_others(value, families, iterate):
    data = safeser.serialize_bytes(value, families, iterate_collection=iterate)
    assert repr(safeser.deserialize_bytes(data)) == repr(value)


def test_nan_elsewhere_is_a_value_like_others():
    value = {"a": NAN, (NAN, 1): [NAN, ARRAY], 0.5: {0.25, -1.5}}
    made = safeser.deserialize_bytes(safeser.serialize_bytes(value))
    assert repr(made) == repr(value)


@pytest.mark.parametrize("families", [None, ["dask"], ["msgpack"]])
def test_depth_is_no_reason_for_a_pickle(families):
    deep = []
    for _ in range(150):
        deep = [deep]
    with pytest.raises(SerializationError, match="nested more than 100 deep") as caught:
        safeser.serialize(deep, families, on_error="raise")
    assert "pickle" not in caught.value.fix
    assert "Flatten it" in caught.value.fix
    # What it would have led to.
    header, frames = safeser.serialize(deep, ["pickle"], on_error="raise")
    with pytest.raises(PayloadError, match="nests deeper"):
        safeser.deserialize(header, frames, ["pickle"])


def test_the_depth_that_holds_is_named():
    deep = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(SerializationError, match="nested more than 200 deep"):
        safeser.serialize(deep, on_error="raise", limits=Limits(max_depth=1000))


def test_a_cycle_is_one_for_a_pickle():
    held = []
    held.append(held)
    with pytest.raises(SerializationError, match="it holds itself") as caught:
        safeser.serialize(held, on_error="raise")
    assert caught.value.fix.startswith("Break the cycle inside it, or ask for family pickle")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"policy": "default", "context": Context("a", "b")}, "policy is a safeser.Policy"),
        ({"policy": {"contexts": []}}, "policy is a safeser.Policy, not a dict"),
        ({"limits": {"max_depth": 3}}, "limits is a safeser.Limits, not a dict"),
        ({"limits": 0}, "limits is a safeser.Limits, not a int"),
    ],
)
def test_a_wrong_argument_is_named(options, named):
    header, frames = safeser.serialize(1)
    data = safeser.serialize_bytes(1)
    for call in (
        lambda: safeser.serialize(1, **options),
        lambda: safeser.serialize_bytes(1, **options),
        lambda: safeser.deserialize(header, frames, **options),
        lambda: safeser.deserialize_bytes(data, **options),
    ):
        with pytest.raises(ConfigError, match=named):
            call()


def gone():
    raise ModuleNotFoundError


def test_all_that_a_value_needs_is_said(monkeypatch):
    known = Registry()
    known.register_lazy("absent_one", ["absent_one:A"], gone)
    known.register_lazy("absent_two", ["absent_two:B"], gone)
    known.register_lazy("json", ["json:C"], gone)
    monkeypatch.setattr(registry, "_lazy_names", known._lazy_names)
    names = ["json:C", "absent_one:A", "absent_two:B"]
    header = {
        "serializer": "collection",
        "type": "list",
        "sub-headers": [{"serializer": "dask", "type": name, "sub-header": {}} for name in names],
        "frame-lengths": [0, 0, 0],
    }
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize(header, [])
    assert "need absent_two and absent_one, which are not installed" in caught.value.message
    assert "Install absent_two and absent_one" in caught.value.fix


def test_what_is_installed_under_another_name():
    known = Registry()
    known.register_lazy("sklearn", ["sklearn:absent"], gone)
    with pytest.raises(PayloadError, match="Install scikit-learn,"):
        known.named("sklearn:absent", beside=["sklearn:absent", "builtins:list"])
