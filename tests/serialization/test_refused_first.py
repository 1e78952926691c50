"""What a reader would refuse is refused by the sender, and wrong arguments by their names."""

import numpy as np
import pytest

import safeser
from safeser import ConfigError, Context, PayloadError, SerializationError
from safeser.families.registry import Registry, registry
from tests.samples.typed import rule_of

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
    ("options", "rule"),
    [
        ({"policy": "default", "context": Context("a", "b")}, "families.policy"),
        ({"policy": {"contexts": []}}, "families.policy"),
        *(({"limits": wrong}, "families.limits") for wrong in ({"max_depth": 3}, 0)),
        *(({"context": wrong}, "families.context") for wrong in (5, "alice")),
    ],
)
def test_a_wrong_argument_is_named(options, rule):
    header, frames = safeser.serialize(1)
    data = safeser.serialize_bytes(1)
    assert rule_of(safeser.serialize, 1, error=ConfigError, **options) == rule
    assert rule_of(safeser.serialize_bytes, 1, error=ConfigError, **options) == rule
    assert rule_of(safeser.deserialize, header, frames, error=ConfigError, **options) == rule
    assert rule_of(safeser.deserialize_bytes, data, error=ConfigError, **options) == rule


@pytest.mark.parametrize("wrong", [5, "dask", b"dask", [1]])
def test_wrong_families_and_frames(wrong):
    header, frames = safeser.serialize([1, 2j])
    assert rule_of(safeser.serialize, 1, wrong, error=ConfigError) == "families.serializer"
    read = safeser.deserialize
    assert rule_of(read, header, frames, wrong, error=ConfigError) == "families.serializer"
    for none in (None, 5, iter(frames)):  # what can be walked once only is not two lists
        assert rule_of(read, header, none, error=ConfigError) == "families.frames"
    assert read(header, frames, iter(["dask", "msgpack"])) == [1, 2j]
    assert safeser.serialize(2j, iter(["dask", "msgpack"]))[0]["serializer"] == "dask"


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
