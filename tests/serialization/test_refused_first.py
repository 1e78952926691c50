"""What a reader would refuse is refused by the sender, and wrong arguments by their names."""

import numpy as np
import pytest

import safeser
from safeser import ConfigError, Context, PayloadError, SerializationError
from safeser.families.registry import Registry, registry

NAN = float("nan")
ARRAY = np.ones(2)


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


def test_a_misspelt_family_cannot_steer_a_terminal():
    with pytest.raises(ConfigError) as caught:
        safeser.deserialize(*safeser.serialize(1), ["\x1b[2J" + "x" * 5000])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


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
