"""pydantic models, whose validators are the host's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def examples() -> dict[str, object]:
    from tests.families import registered_models as own

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
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        yield value.model_dump
        yield value.model_dump_json
        yield lambda: value.model_copy(deep=True)
        yield lambda: type(value).model_validate(value.model_dump())
        yield lambda: value.model_fields_set
