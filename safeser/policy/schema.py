"""The JSON Schema of policy files, for editors that complete and underline.

The one rule: it is made from the declarations of the fields; no field, bound or word is stated here
a second time. It accepts every policy that loads, and some that ``safeser policy check`` refuses.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from safeser.policy.source import fields
from safeser.policy.source.extends import ALONE
from safeser.policy.source.fields import pattern
from safeser.policy.source.loader import INTEGER
from safeser.policy.source.model import ExtendsModel, PolicyModel

__all__ = ["json_schema"]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a policy file."""
    made = PolicyModel.model_json_schema(schema_generator=Generator)
    beside = ExtendsModel.model_json_schema(schema_generator=Generator)
    made["properties"] |= beside["properties"]
    made["$defs"] |= beside["$defs"]
    # What a policy extends gives what it does not say itself.
    rest = [name for name in made["required"] if name not in ALONE]
    made |= {
        "required": list(ALONE),
        "anyOf": [{"required": rest}, {"required": beside["required"]}],
    }
    tidied: dict[str, Any] = _tidied(made)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **tidied,
        "title": "safeser policy",
    }


class Generator(GenerateJsonSchema):
    """Writes the model's own validators as JSON Schema."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        cls: type[BaseModel] = schema["cls"]
        for name, text in _descriptions(cls):
            made["properties"][cls.model_fields[name].alias or name]["description"] = text
        return made

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        return _BEFORE.get(schema["function"]["function"], _unchanged)(inner)

    def function_after_schema(
        self, schema: core_schema.AfterValidatorFunctionSchema
    ) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        return _AFTER.get(schema["function"]["function"], _unchanged)(inner)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # A policy has no null: what is not wanted is left out.
        return self.generate_inner(schema["schema"])


def _descriptions(cls: type[BaseModel]) -> Iterator[tuple[str, str]]:
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


def _unchanged(inner: JsonSchemaValue) -> JsonSchemaValue:
    return inner


def _one_or_list(inner: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [inner["items"], inner]}


def _size(inner: JsonSchemaValue) -> JsonSchemaValue:
    return {"anyOf": [inner, {"type": "string", "pattern": pattern(fields.SIZE)}]}


def _distinct(inner: JsonSchemaValue) -> JsonSchemaValue:
    arrays = [each for each in inner.get("anyOf", [inner]) if each.get("type") == "array"]
    for each in arrays:
        each["uniqueItems"] = True
    return inner


def _filled(inner: JsonSchemaValue) -> JsonSchemaValue:
    for each in _distinct(inner).get("anyOf", [inner]):
        if each.get("type") == "array":
            each["minItems"] = 1
    return inner


def _name(inner: JsonSchemaValue) -> JsonSchemaValue:
    return {**inner, "pattern": pattern(fields.NAME)}


_BEFORE: Mapping[Any, Callable[[JsonSchemaValue], JsonSchemaValue]] = {
    fields.one_or_listed: _one_or_list,
    fields.sized: _size,
}
_AFTER: Mapping[Any, Callable[[JsonSchemaValue], JsonSchemaValue]] = {
    fields.filled: _filled,
    fields.distinct: _distinct,
    fields.named: _name,
}


#: How pydantic names bounds that it cannot place, and how JSON Schema does; by the type bounded.
_BOUNDS = {
    "integer": {"ge": "minimum", "le": "maximum"},
    "array": {"minLength": "minItems", "maxLength": "maxItems"},
    "object": {"minLength": "minProperties", "maxLength": "maxProperties"},
}
_LOST = ("ge", "le")
_LONG = 1_000


def _tidied(part: Any) -> Any:
    """Return *part* in words of JSON Schema alone, without the titles of single fields."""
    if isinstance(part, list):
        return [_tidied(each) for each in part]
    if not isinstance(part, dict):
        return part
    part = _bounded(part)
    tidied = {key: _tidied(value) for key, value in part.items() if not _is_noise(key, value)}
    if "patternProperties" in tidied:
        tidied["additionalProperties"] = False
    if isinstance(tidied.get("description"), str):
        first = " ".join(tidied["description"].partition("\n\n")[0].split())
        tidied["description"] = re.sub(r"; see :class:[^.]*(?:\.[^.]+)*\.$", ".", first).replace(
            "``", "`"
        )
    if tidied.get("type") == "integer" and tidied.get("maximum", 0) >= _LONG:
        # 1_000_000 is a number to some readers of YAML, this one's among them, and text to others.
        said = {key: tidied.pop(key) for key in ("description",) if key in tidied}
        spelt = {"type": "string", "pattern": pattern(INTEGER)}
        return {**said, "anyOf": [tidied, spelt]}
    return tidied


def _bounded(part: dict[str, Any]) -> dict[str, Any]:
    """Return *part* with its bounds under the names, and at the alternative, that they are for."""
    renamed = _BOUNDS.get(part.get("type", ""), {})
    if "anyOf" in part:
        bounds = {key: part[key] for key in _LOST if key in part}
        whole = [
            {**each, **bounds} if each.get("type") == "integer" else each for each in part["anyOf"]
        ]
        part = {**part, "anyOf": whole}
    return {
        renamed.get(key, key): value
        for key, value in part.items()
        if not ("anyOf" in part and key in _LOST)
    }


def _is_noise(key: str, value: Any) -> bool:
    return (key == "title" and isinstance(value, str)) or (
        key == "default" and not isinstance(value, str | list)
    )
