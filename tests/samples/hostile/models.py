"""pydantic models that their classes would not make, and those that no sender sends."""

from __future__ import annotations

from safeser.families import records
from safeser.gate.values import Limits
from tests.samples import models as own
from tests.samples.typed import hostile, sent, typed

UNSENT = [
    (own.Unregistered(), "Unregistered"),
    (own.Derived(), "Derived"),
    (own.Point.model_construct(y=1.0), "has no value"),
    (own.Nested(point=own.Point(x=1), by_name={}, data=own.Unregistered()), "Unregistered"),
]


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
    children = [sent(child) for _, child in parts.children]
    return typed(f"{own.__name__}:{type(model).__name__}", *children, **parts.meta)


CHANGED = {
    "families.constructor": [
        (own.Point(x=1), {"x": "1"}), (own.Point(x=1), {"x": True}), (own.Point(x=1), {"y": 1}),
        (own.Changing(name="a"), {"name": "a"}), (own.Turning.model_construct(x=2), {}),
        (own.Hidden(x=1), {"x": 2}), (own.Hidden(x=1), {" private": [1]}),
        (own.Remembering(), {" private": {"_seen": [], "_number": 8}}),
        (own.Remembering(), {" private": {"_seen": []}}),
        (own.Remembering(), {" private": {"_seen": [], "_number": 7, "_more": 1}}),
    ],
    "families.build": [
        (own.Open(), {" extra": {"x": 1}}), (own.Tidy(a="b"), {" extra": {"a": 5}}),
        (own.Point(x=1), {" fields_set": (4,)}), (own.Point(x=1), {" fields_set": (-1,)}),
        (own.Point(x=1), {" fields_set": (0, 0)}), (own.Point(x=1), {" fields_set": (False,)}),
        (own.Point(x=1), {" fields_set": [0]}), (own.Point(x=1), {" fields_set": "x"}),
        (own.Open(x=1), {" extra": {"__class__": 5}}), (own.Open(x=1), {" extra": {5: 5}}),
        (own.Open(x=1), {" extra": [5]}),
    ],
}  # fmt: skip


def behind():
    """Return a model with an attribute that is no field."""
    made = own.Point(x=1)
    vars(made)["z"] = 1
    return made


UNSENT.append((behind(), "not fields"))
HOSTILE = [
    *hostile(forged, CHANGED),
    *hostile(
        forged,
        {
            "families.build": [
                (own.Bounded(low=1, high=2), {"low": 9}),
                (own.Point(x=1), {"x": "no number"}),
            ],
            "families.fields": [
                (own.Point(x=1), {"z": 1}),
                (own.Point(x=1), {}, ("y",)),
                (own.Point(x=1), {}, (" fields_set",)),
            ],
        },
    ),
]
