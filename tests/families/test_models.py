"""pydantic models: validated on the other side, and then exactly what was sent."""

import datetime as dt

import numpy as np
import pytest
import registered_models as own
from families_attack import FAMILIES, GRANT, mutate_all, through
from pydantic import BaseModel, ValidationError

from safeser import families
from safeser.errors import ConfigError, PayloadError, SafeserError
from safeser.families import records, register_class
from safeser.values import Limits


def same(a, b):
    assert type(a) is type(b)
    assert a == b
    assert vars(a) == vars(b)
    assert a.model_fields_set == b.model_fields_set
    assert a.__pydantic_extra__ == b.__pydantic_extra__
    assert a.__pydantic_private__ == b.__pydantic_private__


def _grown():
    made = own.Point(x=1)
    made.tags.append("not set, and not as it begins")
    return made


def _seen():
    made = own.Remembering(x=3)
    made._seen.append(4)
    return made


WHEN = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
MODELS = [
    own.Point(x=1),
    own.Point(x=1, y=float("inf"), tags=["a"]),
    _grown(),
    own.Frozen(when=WHEN),
    own.Open(),
    own.Open(x=2, note=[1], other={"a": None}),
    own.Aliased(**{"class": "a", "OTHER": 3}),
    own.Numbers([1, 2]),
    own.WithDefault(),
    own.WithDefault(5),
    own.Bounded(low=1, high=2),
    own.Hidden(x=4),
    _seen(),
    own.Remembering(),
    own.Generic_[int](content=3),
    own.Nested(point=own.Point(x=1), by_name={"a": own.Point(x=2)}, data=(1, b"x", WHEN)),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda x: type(x).__name__)
def test_models_come_back_equal(model):
    same(model, through(model))
    assert [type(x) for x in through([model, (model,)])] == [type(model), tuple]


def test_typed_values_inside():
    got = through(own.Nested(point=own.Point(x=1), by_name={}, data=np.arange(3)))
    assert type(got.data) is np.ndarray
    assert got.data.tolist() == [0, 1, 2]
    assert isinstance(got.point, own.Point)


def test_what_is_cached_is_not_sent():
    made = own.Point(x=2)
    assert made.area == 1.0
    got = through(made)
    assert "area" not in vars(got)
    assert got.area == 1.0


def test_frozen_models_stay_frozen():
    got = through(own.Frozen(when=WHEN))
    with pytest.raises(ValidationError):
        got.when = WHEN


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (own.Unregistered(), "Unregistered"),
        (own.Derived(), "Derived"),
        (own.Point.model_construct(y=1.0), "has no value"),
        (own.Nested(point=own.Point(x=1), by_name={}, data=own.Unregistered()), "Unregistered"),
    ],
)
def test_what_is_not_registered_is_refused_by_name(model, said):
    with pytest.raises(PayloadError, match=said) as caught:
        families.serialize(model, FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"


def test_attributes_behind_the_fields_are_refused():
    made = own.Point(x=1)
    vars(made)["z"] = 1
    with pytest.raises(PayloadError, match="not fields"):
        families.serialize(made, FAMILIES)


def refused(header, frames):
    with pytest.raises(SafeserError) as caught:
        families.deserialize(header, frames, GRANT)
    return caught.value


def forged(model, changed, without=()):
    """Return the payload of *model* with other values under some names."""
    named = {name: vars(model)[name] for name in type(model).model_fields}
    named[" fields_set"] = (0,)
    if model.__pydantic_extra__ is not None:
        named[" extra"] = model.__pydantic_extra__
    if model.__pydantic_private__ is not None:
        named[" private"] = model.__pydantic_private__
    named.update(changed)
    parts = records.encode({n: v for n, v in named.items() if n not in without}, Limits())
    sent = [families.serialize(child, FAMILIES) for _, child in parts.children]
    header = {
        "serializer": "dask",
        "type": f"registered_models:{type(model).__name__}",
        "sub-header": parts.meta,
        "sub-headers": [inner for inner, _ in sent],
        "frame-lengths": [len(own_frames) for _, own_frames in sent],
    }
    return header, [frame for _, own_frames in sent for frame in own_frames]


def test_validation_has_the_last_word():
    error = refused(*forged(own.Bounded(low=1, high=2), {"low": 9}))
    assert error.rule == "families.build"
    assert "secret" not in str(error)
    assert refused(*forged(own.Point(x=1), {"x": "no number"})).rule == "families.build"
    assert families.deserialize(*forged(own.Point(x=1), {}), GRANT) == own.Point(x=1)


@pytest.mark.parametrize(
    ("model", "changed"),
    [
        (own.Point(x=1), {"x": "1"}),  # would become a number
        (own.Point(x=1), {"x": True}),
        (own.Point(x=1), {"y": 1}),
        (own.Changing(name="a"), {"name": "a"}),
        (own.Open(), {" extra": {"x": 1}}),
        (own.Turning.model_construct(x=2), {}),
        (own.Tidy(a="b"), {" extra": {"a": 5}}),
        (own.Hidden(x=1), {"x": 2}),  # its private attribute would not fit
        (own.Hidden(x=1), {" private": [1]}),
        (own.Remembering(), {" private": {"_seen": [], "_number": 8}}),
        (own.Remembering(), {" private": {"_seen": []}}),
        (own.Remembering(), {" private": {"_seen": [], "_number": 7, "_more": 1}}),
        (own.Point(x=1), {" fields_set": (4,)}),
        (own.Point(x=1), {" fields_set": (-1,)}),
        (own.Point(x=1), {" fields_set": (0, 0)}),
        (own.Point(x=1), {" fields_set": (False,)}),
        (own.Point(x=1), {" fields_set": [0]}),
        (own.Point(x=1), {" fields_set": "x"}),
        (own.Open(x=1), {" extra": {"__class__": 5}}),
        (own.Open(x=1), {" extra": {5: 5}}),
        (own.Open(x=1), {" extra": [5]}),
    ],
)
def test_what_the_class_would_not_make_is_refused(model, changed):
    error = refused(*forged(model, changed))
    assert error.rule in ("families.constructor", "families.build")


def test_a_private_attribute_that_was_deleted():
    made = own.Remembering(x=1)
    del made._seen
    same(made, through(made))


def test_fields_of_another_version():
    for changed, without in (({"z": 1}, ()), ({}, ("y",)), ({}, (" fields_set",))):
        error = refused(*forged(own.Point(x=1), changed, without))
        assert error.rule == "families.fields"


@pytest.mark.parametrize(
    ("cls", "options", "said"),
    [
        (own.Excluding, {}, "excludes a field"),
        (own.Slotted, {}, "slots"),
        (own.Abstract, {}, "is abstract"),
        (own.Unregistered, {"assigned": ["_x"]}, "no such private attribute"),
        (own.Generic_[str], {}, "name="),
        (own.Point, {}, "registered already"),
        (BaseModel, {}, "__setattr__"),
    ],
)
def test_what_cannot_be_registered(cls, options, said):
    with pytest.raises(ConfigError, match=said) as caught:
        register_class(cls, **options)
    assert caught.value.rule == "families.register"


def test_models_that_are_not_complete():
    class Later(BaseModel):
        x: "Unknown"  # noqa: F821 - on purpose

    with pytest.raises(ConfigError, match="not complete"):
        register_class(Later, name="mine:Later")


@pytest.mark.parametrize("model", [own.Point(x=1), own.Remembering(x=1), own.Numbers([1])])
def test_mutated(model):
    assert mutate_all(model, repr)[0] > 30
