"""The JSON Schema of policy files, for editors that complete and underline.

The one rule: it is made from the declarations of the fields; no field, bound or word is stated here
a second time. It accepts every policy that loads, and some that ``safeser policy check`` refuses.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

from safeser.policy.source.extends import ALONE
from safeser.policy.source.fields import Strict
from safeser.policy.source.forms import (
    NAME,
    SIZE,
    Either,
    Flag,
    Form,
    Listed,
    Mapped,
    Number,
    Reading,
    Section,
    Text,
    pattern,
)
from safeser.policy.source.loader import INTEGER
from safeser.policy.source.model import ExtendsModel, PolicyModel

__all__ = ["json_schema"]

_Schema = dict[str, Any]


def json_schema() -> _Schema:
    """Return the JSON Schema (2020-12) of a policy file."""
    definitions: dict[str, _Schema] = {}
    made = _section(PolicyModel, definitions)
    beside = _section(ExtendsModel, definitions)
    made["properties"] |= beside["properties"]
    # What a policy extends gives what it does not say itself.
    rest = [name for name in made["required"] if name not in ALONE]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "required": list(ALONE),
        "anyOf": [{"required": rest}, {"required": beside["required"]}],
        "$defs": definitions,
        "title": "safeser policy",
    }


def _section(model: type[Strict], definitions: dict[str, _Schema]) -> _Schema:
    """Return the schema of a mapping; those of mappings in it are put into *definitions*."""
    described = dict(_descriptions(model))
    properties = {}
    for name, field in model.fields.items():
        made = properties[name] = {
            **_form(field.form, definitions),
            "description": described[field.attribute],
        }
        if field.spelled is not None:
            made["default"] = field.spelled
    first = " ".join((model.__doc__ or "").partition("\n\n")[0].split())
    made = {
        "type": "object",
        "description": re.sub(r"; see :class:[^.]*(?:\.[^.]+)*\.$", ".", first).replace("``", "`"),
        "properties": properties,
        "additionalProperties": False,
    }
    required = [name for name, field in model.fields.items() if field.is_required]
    return {**made, "required": required} if required else made


def _form(form: Form[Any], definitions: dict[str, _Schema]) -> _Schema:
    made: _Schema = {}
    inner = {} if form.inner is None else _form(form.inner, definitions)
    match form:
        case Reading():
            made = form.schema(inner)
        case Section(model=model):
            if model.__name__ not in definitions:
                definitions[model.__name__] = _section(model, definitions)
            made = {"$ref": f"#/$defs/{model.__name__}"}
        case Listed():
            least = form.least or int(form.filled)
            made = {"type": "array", "items": inner, **_bounds("Items", least, form.most)}
            if form.once:
                made["uniqueItems"] = True
            made = {"anyOf": [inner, made]} if form.alone else made
        case Mapped():
            made = {"type": "object", **_bounds("Properties", form.least, form.most)}
            if form.key.named:
                made["patternProperties"] = {pattern(NAME): inner}
            made["additionalProperties"] = not form.key.named
        case Text():
            made = {"type": "string"} | ({"pattern": pattern(NAME)} if form.named else {})
        case Number():
            made = _number(form)
        case Either():
            made = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
        case Flag():
            made = {"type": "boolean"}
    return made


def _bounds(of: str, least: int, most: int | None) -> _Schema:
    bounds = {f"min{of}": least or None, f"max{of}": most}
    return {key: value for key, value in bounds.items() if value is not None}


#: 1_000_000 is a number to some readers of YAML, this one's among them, and text to others.
_LONG = 1_000


def _number(form: Number) -> _Schema:
    if form.least == form.most:
        return {"type": "integer", "const": form.least}
    made: _Schema = {"type": "integer", "minimum": form.least, "maximum": form.most}
    spelled = [INTEGER] if form.most >= _LONG else []
    texts = [*spelled, SIZE] if form.sized else spelled
    other = [{"type": "string", "pattern": pattern(each)} for each in texts]
    return {"anyOf": [made, *other]} if other else made


def _descriptions(cls: type[Strict]) -> Iterator[tuple[str, str]]:
    """Yield the fields that *cls* declares, each with the docstring below it."""
    (definition,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(definition, ast.ClassDef)
    for field, below in itertools.pairwise(definition.body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, inspect.cleandoc(text)
