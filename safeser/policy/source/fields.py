"""Declare fields of a policy: form in YAML, meaning, and text for operators.

The one rule: reading, the JSON Schema, ``policy show`` and ``policy explain`` know a field only by
its declaration. Its description is the docstring below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticUndefined, core_schema

from safeser.errors import ConfigError
from safeser.policy.source.faults import UndefinedName, shown
from safeser.policy.source.scope import Scope

if TYPE_CHECKING:
    from safeser.policy.source.context import Rule

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")
SIZE = re.compile(r"([1-9][0-9]{0,9})(KiB|MiB|GiB)\Z")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

#: The type of pydantic's error for a value that has the right form and no meaning.
MEANING = "meaning"


class Strict(BaseModel):
    """A mapping of a policy: no field beyond those declared, and no value converted."""

    # The docstring below a field is its description. Pydantic would read the source text of each
    # class at every start; safeser.policy.schema reads it only when the JSON Schema is made. A
    # schema is built for the model of a whole policy alone, when the first is read, and holds those
    # of all others.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


# --- forms ----------------------------------------------------------------------------------------


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def one_or_listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _listed(value)


def named(value: str) -> str:
    if not NAME.match(value):
        raise PydanticCustomError(
            "name",
            "a name must be 1 to 64 letters, digits, '_', '-', '.' or '@',"
            " and start with a letter or digit",
        )
    return value


def sized(value: Any) -> Any:
    match = SIZE.match(value) if isinstance(value, str) else None
    if match:
        return int(match[1]) * _UNITS[match[2]]
    if isinstance(value, str):
        raise PydanticCustomError(
            "size", "a size is a number of bytes, or of KiB, MiB or GiB, such as 2GiB"
        )
    return value


def filled(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise PydanticCustomError("empty", "an empty list has no meaning here")
    return distinct(value)


def distinct(value: tuple[str, ...]) -> tuple[str, ...]:
    seen: set[str] = set()
    for name in value:
        if name in seen:
            raise PydanticCustomError("twice", "{name} is listed twice", {"name": shown(name)})
        seen.add(name)
    return value


Listed = BeforeValidator(_listed)
Name = Annotated[str, AfterValidator(named)]
Text = TypeVar("Text", bound=str)
#: A list with at least one entry, each of them once.
Names = Annotated[tuple[Text, ...], Listed, AfterValidator(filled)]
#: The same, or one entry that is not in a list.
OneOrMore = Annotated[tuple[Text, ...], BeforeValidator(one_or_listed), AfterValidator(filled)]
#: A list that may be empty.
Distinct = Annotated[tuple[Text, ...], Listed, AfterValidator(distinct)]


def pattern(expression: re.Pattern[str]) -> str:
    """Return *expression* for JSON Schema, anchored, since JSON Schema searches patterns."""
    return f"^(?:{expression.pattern.removesuffix(chr(92) + 'Z')})$"


# --- meanings -------------------------------------------------------------------------------------

_Schema = Callable[[dict[str, Any]], dict[str, Any]]


def refusal(error: ConfigError, *below: str | int) -> PydanticCustomError:
    """Return what pydantic reports for *error*.

    :param below: the path from the value being read to the one at fault.
    """
    told = {"message": error.message, "error": error, "below": below}
    return PydanticCustomError(MEANING, "{message}", told)


@dataclass(frozen=True, slots=True, eq=False)
class Reading(Generic[T]):
    """How one value is read; stands in ``Annotated``, or in the declaration of a field.

    :param form: the type of the value in YAML.
    :param meaning: converts a value of that form into the one that the policy keeps. Raises
        ConfigError, or the error that :func:`refusal` returns.
    :param schema: returns the JSON Schema, given that of the form.
    """

    form: Any
    meaning: Callable[[Any, Scope], T]
    schema: _Schema = field(default=lambda made: made)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        inner = handler.generate_schema(self.form)
        return core_schema.with_info_after_validator_function(self._read, inner)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return self.schema(handler(schema))

    def _read(self, value: Any, info: ValidationInfo[Scope]) -> T:
        try:
            return self.meaning(value, info.context)
        except ConfigError as error:
            raise refusal(error) from None


def one_of(words: tuple[str, ...], what: str) -> Reading[str]:
    """Return the reading of a text that must be one of *words*; *what* names it in errors."""

    def known(name: str, scope: Scope) -> str:
        if name not in words:
            raise UndefinedName(
                f"there is no {what} {shown(name)}",
                rule=f"config.{what.replace(' ', '-')}",
                name=name,
                known=lambda: words,
            )
        return name

    return Reading(str, known, lambda made: {**made, "enum": list(words)})


# --- declarations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """The row of a field in ``policy show``.

    :param label: the label of the row.
    :param text: returns its text for a context; empty for no row.
    :param strong: tells whether the row is emphasized.
    """

    label: str
    text: Callable[[Rule], str]
    strong: Callable[[Rule], bool] = field(default=lambda rule: False)


@dataclass(frozen=True, slots=True, eq=False)
class Stated(Generic[T]):
    """The declaration of one field; see :func:`stated`."""

    reading: Reading[T]
    shown: tuple[Shown, ...]
    explained: Callable[[Rule], str] | None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler.generate_schema(Annotated[source, self.reading])


def stated(
    reading: Reading[T],
    *,
    default: T | Any = PydanticUndefined,
    alias: str | None = None,
    spelled: str | list[str] | None = None,
    shown: Shown | tuple[Shown, ...] = (),
    explained: Callable[[Rule], str] | None = None,
) -> T:
    """Declare one field of a policy.

    :param reading: its form in YAML, and its meaning.
    :param default: its value where the policy leaves it out; a field without one is required. None
        is passed to the reading, which may take the value from the scope.
    :param alias: its name in YAML, if it is not the attribute's.
    :param spelled: the default as YAML spells it, for the JSON Schema.
    :param shown: its rows in ``policy show``.
    :param explained: returns its line in ``policy explain`` for a context; empty for no line.
    """
    keywords: dict[str, Any] = {"alias": alias}
    if spelled is not None:
        keywords["json_schema_extra"] = {"default": spelled}
    if default is not PydanticUndefined:
        # A factory, so that pydantic does not write the Python value into the JSON Schema.
        keywords |= {"default_factory": lambda: default, "validate_default": default is None}
    made: Any = Field(**keywords)
    rows = (shown,) if isinstance(shown, Shown) else shown
    made.metadata.append(Stated(reading, rows, explained))
    declared: T = made
    return declared


def statements(model: type[Strict]) -> Iterator[Stated[Any]]:
    """Yield the declarations of the fields of *model*, in their order."""
    for each in model.model_fields.values():
        yield from (found for found in each.metadata if isinstance(found, Stated))
