"""pydantic models, whose validators are the host's own code."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import numpy as np
from pydantic import BaseModel

from tests.samples import models as own


def examples() -> dict[str, object]:

    point = own.Point(x=1, tags=["a"])
    return {
        "point": point,
        "nested": own.Nested(point=point, by_name={"a": point}, data=(1, b"x")),
        "open": own.Open(x=2, note=[1]),
        "root": own.Numbers([1, 2]),
        "private": own.Remembering(x=1),
        "aliased": own.Aliased(**{"class": "a"}),
    }


def uses(value: object) -> Iterator[Callable[[], object]]:

    if isinstance(value, BaseModel):
        yield value.model_dump
        yield value.model_dump_json
        yield lambda: value.model_copy(deep=True)
        yield lambda: type(value).model_validate(value.model_dump())
        yield lambda: value.model_fields_set


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
    own.Point(x=1), own.Point(x=1, y=float("inf"), tags=["a"]), _grown(), own.Frozen(when=WHEN),
    own.Open(), own.Aliased(**{"class": "a", "OTHER": 3}), own.WithDefault(),
    own.WithDefault(5), own.Bounded(low=1, high=2), own.Hidden(x=4), _seen(), own.Remembering(),
    own.Generic_[int](content=3),
]  # fmt: skip


def others() -> list[object]:
    """Return more honest values."""
    deleted = own.Remembering(x=1)
    del deleted._seen
    held = own.Nested(point=own.Point(x=1), by_name={}, data=np.arange(3))
    return [*MODELS, deleted, held, [MODELS[0], (MODELS[0],)]]
