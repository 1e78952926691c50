"""Send registered pydantic models, and validate them again on the receiver.

The one rule: the model's own validation builds it from the sent values, and it must then hold
exactly these. A validator that changes a value, or a default that differs, makes it a refusal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from safeser.families.plain import Unencodable, label
from safeser.families.registered.constructed import (
    Altered,
    is_same,
    record,
    refuse_others,
)
from safeser.families.registered.naming import refuse_class
from safeser.families.registry import Typed
from safeser.pickles.reading.layout import layout
from safeser.types.numpy import ASKED

__all__ = ["is_model", "plan_model"]

#: No field is called so: what a model knows beside its fields. Those set are told by their places.
_SET, _EXTRA, _PRIVATE = " fields_set", " extra", " private"

_SLOTS = frozenset(
    {
        "__dict__",
        "__pydantic_extra__",
        "__pydantic_fields_set__",
        "__pydantic_private__",
    }
)
_ABSENT = object()


def is_model(cls: type) -> bool:
    """Whether *cls* is a pydantic model; imports nothing, since then it could be none."""
    main = sys.modules.get("pydantic.main")
    return main is not None and issubclass(cls, main.BaseModel) and cls is not main.BaseModel


def plan_model(cls: Any, name: str, assigned: Sequence[str]) -> Typed:
    """Return the serializer of the model *cls*.

    :param assigned: private attributes that are set after validation; all others must be what the
        model gives them by itself.
    """
    fields: Mapping[str, Any] = cls.model_fields
    private = cls.__private_attributes__.keys()
    later = frozenset(assigned)
    open_ended = cls.model_config.get("extra") == "allow"
    _check_model(cls, fields, later - private)
    known = frozenset(fields) | layout(cls).cached
    beside = [_SET, *([_EXTRA] if open_ended else []), *([_PRIVATE] if private else [])]

    def read(x: Any) -> dict[str, Any]:
        held, extra = vars(x), x.__pydantic_extra__
        if not fields.keys() <= held.keys():
            raise Unencodable(x, "one of its fields has no value")
        refuse_others(x, [*held, *(() if open_ended else extra or ())], known)
        sent = {field: held[field] for field in fields}
        names = [*fields, *(extra or ())]
        sent[_SET] = tuple(n for n, name in enumerate(names) if name in x.model_fields_set)
        if open_ended:
            sent[_EXTRA] = dict(extra or {})
        if private:
            sent[_PRIVATE] = dict(x.__pydantic_private__ or {})
        return sent

    def build(sent: dict[str, Any]) -> Any:
        extra, hidden = sent.get(_EXTRA, {}), sent.get(_PRIVATE, {})
        given = _given(fields, sent[_SET], extra)
        chosen = {
            field: sent[field]
            for field, about in fields.items()
            if field in given or not is_same(about.get_default(), sent[field])
        }
        made = _validated(cls, chosen, extra)
        if type(made) is not cls:
            raise Altered("class")
        for field in fields:
            if not is_same(vars(made).get(field, _ABSENT), sent[field]):
                raise Altered(f"field {field}")
        if not is_same(made.__pydantic_extra__ or {}, extra):
            raise Altered("extra field")
        _set_private(made, hidden, later)
        object.__setattr__(made, "__pydantic_fields_set__", given)
        return made

    return record(name, cls, [*fields, *beside], read, build)


def _check_model(cls: Any, fields: Mapping[str, Any], unknown: frozenset[str]) -> None:
    if unknown:
        refuse_class(cls, "has no such private attribute as one that is said to be assigned")
    if not layout(cls).slots.keys() <= _SLOTS:
        refuse_class(cls, "keeps values in slots that are no fields")
    if not cls.__pydantic_complete__:
        refuse_class(cls, "is not complete", fix="Call model_rebuild() on it first.")
    if getattr(cls, "__abstractmethods__", None):
        refuse_class(cls, "is abstract")
    if any(field.exclude for field in fields.values()):
        refuse_class(cls, "excludes a field from what it hands out")


def _given(fields: Mapping[str, Any], places: Any, extra: Any) -> set[str]:
    """Return the names of the fields that were set, from their *places*; ValueError for others."""
    if type(places) is not tuple or type(extra) is not dict:
        raise ValueError
    if not all(type(name) is str and name[:2] != "__" and name not in ASKED for name in extra):
        raise ValueError
    names = [*fields, *extra]
    if len(set(names)) != len(names) or len(set(places)) != len(places):
        raise ValueError
    if not all(type(place) is int and 0 <= place < len(names) for place in places):
        raise ValueError
    return {names[place] for place in places}


def _validated(cls: Any, chosen: dict[str, Any], extra: dict[str, Any]) -> Any:
    if cls.__pydantic_root_model__:
        return cls.model_validate(chosen["root"]) if chosen else cls()
    if any(field.validation_alias is not None for field in cls.model_fields.values()):
        return cls.model_validate({**chosen, **extra}, by_name=True, by_alias=False)
    return cls.model_validate({**chosen, **extra})


def _set_private(made: Any, hidden: Any, later: frozenset[str]) -> None:
    held = made.__pydantic_private__
    held = {} if held is None else held
    if type(hidden) is not dict or not hidden.keys() <= held.keys() | later:
        raise Altered("private attribute")
    for name in held.keys() | hidden.keys():
        if name not in later:
            if name not in hidden or not is_same(held[name], hidden[name]):
                raise Altered(f"private attribute {label(name)}")
        elif name in hidden:
            held[name] = hidden[name]
        else:
            del held[name]
