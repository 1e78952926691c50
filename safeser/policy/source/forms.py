"""The forms that values of a policy have in YAML, and how each is read.

The one rule: a value is taken as the file has it and never converted. One that has another form is
a fault with its path; reading goes on, so that all faults of a file are reported together.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from safeser.errors import ConfigError
from safeser.policy.source.faults import UndefinedName, shown
from safeser.policy.source.loader import Path
from safeser.policy.source.scope import Scope

if TYPE_CHECKING:
    from safeser.policy.source.fields import Strict

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")
M = TypeVar("M", bound="Strict")

#: Returns the JSON Schema of a meaning, given that of the form.
Schema = Callable[[dict[str, Any]], dict[str, Any]]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}\Z")
SIZE = re.compile(r"([1-9][0-9]{0,9})(KiB|MiB|GiB)\Z")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Fault(NamedTuple):
    """A value that is not what its field takes, or a field that is unknown or missing.

    :param kind: what is expected (``text``, ``number``, ``flag``, ``section``, ``value``), the last
        word of a rule ``config.KIND``, or ``unknown``, ``missing``, ``meaning``.
    :param error: of a value that has the right form and no meaning.
    :param of_key: whether the key at the end of the path is at fault.
    """

    kind: str
    path: Path
    given: object
    message: str = ""
    error: ConfigError | None = None
    of_key: bool = False


class Reader:
    """Reads one document: the names that it has defined so far, and its faults."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.faults: list[Fault] = []

    def refuse(self, kind: str, path: Path, given: object, message: str = "", **more: Any) -> T:  # type: ignore[type-var]  # in place of a value of any form
        """Note a fault; return None in place of the value."""
        self.faults.append(Fault(kind, path, given, message, **more))
        return cast("T", None)


class Form(ABC, Generic[T_co]):
    """What a value is in YAML, and what the policy keeps of it."""

    #: The form of its entries, or of what it gives a meaning to.
    inner: Form[Any] | None = None

    @abstractmethod
    def read(self, value: Any, path: Path, reader: Reader) -> T_co:
        """Return what *value* means; where *reader* has another fault afterwards, nothing."""


class Text(Form[str]):
    """A text; *named*: one that can name a principal, a group or a context."""

    def __init__(self, *, named: bool = False) -> None:
        self.named = named

    def read(self, value: Any, path: Path, reader: Reader) -> str:
        if not isinstance(value, str):
            return reader.refuse("text", path, value, "must be text")
        if self.named and not NAME.match(value):
            return reader.refuse(
                "name",
                path,
                value,
                "a name must be 1 to 64 letters, digits, '_', '-', '.' or '@',"
                " and start with a letter or digit",
            )
        return value


class Number(Form[int]):
    """A whole number in bounds; *sized*: or a text such as ``2GiB``."""

    def __init__(self, *, least: int, most: int, sized: bool = False) -> None:
        self.least, self.most, self.sized = least, most, sized

    def read(self, value: Any, path: Path, reader: Reader) -> int:
        if self.sized and isinstance(value, str):
            match = SIZE.match(value)
            if match is None:
                said = "a size is a number of bytes, or of KiB, MiB or GiB, such as 2GiB"
                return reader.refuse("size", path, value, said)
            value = int(match[1]) * _UNITS[match[2]]
        if type(value) is not int:
            return reader.refuse("number", path, value, "must be a whole number")
        if value < self.least:
            return reader.refuse("value", path, value, f"must be at least {self.least}")
        if value > self.most:
            return reader.refuse("value", path, value, f"must be at most {self.most}")
        return value


class Flag(Form[bool]):
    """True or false."""

    def read(self, value: Any, path: Path, reader: Reader) -> bool:
        if isinstance(value, bool):
            return value
        return reader.refuse("flag", path, value, "must be true or false")


class Either(Form[str | int]):
    """A text or a whole number."""

    def read(self, value: Any, path: Path, reader: Reader) -> str | int:
        if isinstance(value, str) or type(value) is int:
            return value
        return reader.refuse("value", path, value, "must be text or a whole number")


class Anything(Form[Any]):
    """What the meaning of the value around it judges."""

    def read(self, value: Any, path: Path, reader: Reader) -> Any:
        return value


class _Many(Form[T_co]):
    def __init__(self, *, least: int, most: int | None) -> None:
        self.least, self.most = least, most

    def _check_length(self, value: Any, path: Path, reader: Reader) -> None:
        if len(value) < self.least:
            reader.refuse("value", path, value, f"must have at least {self.least} entries")
        elif self.most is not None and len(value) > self.most:
            reader.refuse("value", path, value, f"must have at most {self.most} entries")


class Listed(_Many[tuple[T, ...]]):
    """A list.

    :param once: whether each entry may stand in it once.
    :param filled: whether it must have an entry; each may then stand in it once.
    :param alone: whether one entry may stand there without a list.
    """

    def __init__(
        self,
        inner: Form[T],
        *,
        once: bool = False,
        filled: bool = False,
        alone: bool = False,
        least: int = 0,
        most: int | None = None,
    ) -> None:
        super().__init__(least=least, most=most)
        self.inner: Form[T] = inner
        self.once, self.filled, self.alone = once or filled, filled, alone

    def read(self, value: Any, path: Path, reader: Reader) -> tuple[T, ...]:
        given = [value] if self.alone and isinstance(value, str) else value
        if not isinstance(given, list):
            return reader.refuse("value", path, value, "must be a list, such as [a, b]")
        before = len(reader.faults)
        found = tuple(
            [self.inner.read(each, (*path, index), reader) for index, each in enumerate(given)]
        )
        if len(reader.faults) > before:
            return found
        if self.filled and not found:
            return reader.refuse("empty", path, value, "an empty list has no meaning here")
        if self.once and len(set(found)) < len(found):
            seen: set[object] = set()
            twice = next(each for each in found if each in seen or seen.add(each))  # type: ignore[func-returns-value]
            return reader.refuse("twice", path, value, f"{shown(str(twice))} is listed twice")
        self._check_length(found, path, reader)
        return found


class Mapped(_Many[dict[str, T]]):
    """A mapping whose keys are the file's own."""

    def __init__(
        self, key: Text, inner: Form[T], *, least: int = 0, most: int | None = None
    ) -> None:
        super().__init__(least=least, most=most)
        self.key = key
        self.inner: Form[T] = inner

    def read(self, value: Any, path: Path, reader: Reader) -> dict[str, T]:
        if not isinstance(value, dict):
            return reader.refuse("value", path, value, "must be a mapping, such as {a: b}")
        before = len(reader.faults)
        found = {}
        for key, each in value.items():
            start = len(reader.faults)
            self.key.read(key, (*path, key), reader)
            reader.faults[start:] = (wrong._replace(of_key=True) for wrong in reader.faults[start:])
            found[key] = self.inner.read(each, (*path, key), reader)
        if len(reader.faults) == before:
            self._check_length(found, path, reader)
        return found


class Section(Form[M]):
    """A mapping whose fields *model* declares."""

    def __init__(self, model: type[M]) -> None:
        self.model = model

    def read(self, value: Any, path: Path, reader: Reader) -> M:
        if not isinstance(value, dict):
            return reader.refuse("section", path, value, "must be a mapping, such as {a: b}")
        before = len(reader.faults)
        fields, found = self.model.fields, {}
        for name, field in fields.items():
            if name in value:
                found[field.attribute] = field.form.read(value[name], (*path, name), reader)
            elif field.is_required:
                reader.refuse("missing", (*path, name), value)
        for key in value:
            if key not in fields:
                reader.refuse("unknown", (*path, key), value[key], of_key=True)
        return self.model(**found) if len(reader.faults) == before else cast("M", None)


class PartError(Exception):
    """The *error* of a part of a value, which stands *below* it."""

    def __init__(self, error: ConfigError, *below: str | int) -> None:
        super().__init__(error.message)
        self.error, self.below = error, below


class Reading(Form[T_co]):
    """How a value of one form is given its meaning.

    :param form: of the value in YAML.
    :param meaning: converts a value of that form into the one that the policy keeps. Raises
        ConfigError, or PartError.
    :param schema: returns the JSON Schema, given that of the form.
    """

    def __init__(
        self,
        form: Form[U],
        meaning: Callable[[U, Scope], T_co],
        schema: Schema = lambda made: made,
    ) -> None:
        self.inner: Form[Any] = form
        self.meaning: Callable[[Any, Scope], T_co] = meaning
        self.schema = schema

    def read(self, value: Any, path: Path, reader: Reader) -> T_co:
        before = len(reader.faults)
        given = self.inner.read(value, path, reader)
        if len(reader.faults) > before:
            return cast("T_co", None)
        try:
            return self.meaning(given, reader.scope)
        except ConfigError as error:
            return reader.refuse("meaning", path, value, error=error)
        except PartError as part:
            return reader.refuse("meaning", (*path, *part.below), value, error=part.error)


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

    return Reading(TEXT, known, lambda made: {**made, "enum": list(words)})


TEXT, NAMED, FLAG = Text(), Text(named=True), Flag()


def pattern(expression: re.Pattern[str]) -> str:
    """Return *expression* for JSON Schema, anchored, since JSON Schema searches patterns."""
    return f"^(?:{expression.pattern.removesuffix(chr(92) + 'Z')})$"
