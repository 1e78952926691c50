"""pydantic models that tests register: they must be importable by their names."""

from __future__ import annotations

import abc
import datetime as dt
import functools
import uuid
from typing import Any, Generic, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    computed_field,
    field_validator,
    model_validator,
)

from safeser.families import register_class

T = TypeVar("T")


@register_class
class Point(BaseModel):
    x: int
    y: float = 0.5
    tags: list[str] = []

    @functools.cached_property
    def area(self) -> float:
        return self.x * self.y


@register_class
class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)
    when: dt.datetime
    key: uuid.UUID = Field(default_factory=uuid.uuid4)


@register_class
class Nested(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    point: Point
    by_name: dict[str, Point]
    data: Any = None

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented way
    @property
    def size(self) -> int:
        return len(self.by_name)


@register_class
class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int = 1


@register_class
class Aliased(BaseModel):
    class_: str = Field(alias="class", validation_alias="class")
    other: int = Field(1, validation_alias="OTHER")


@register_class
class Numbers(RootModel[list[int]]):
    """A model of one list."""


@register_class
class WithDefault(RootModel[int]):
    root: int = 4


@register_class
class Bounded(BaseModel):
    low: int
    high: int
    seen: list[str] = []

    @model_validator(mode="after")
    def _ordered(self) -> Bounded:
        if self.low > self.high:
            raise ValueError("low is above high, says a secret")
        return self


@register_class
class Changing(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def _shout(cls, name: str) -> str:
        return name.upper()


@register_class
class Hidden(BaseModel):
    x: int
    _twice: int = PrivateAttr(0)

    def model_post_init(self, context: Any) -> None:
        self._twice = 2 * self.x


@register_class(assigned=["_seen"])
class Remembering(BaseModel):
    x: int = 0
    _seen: list[int] = PrivateAttr(default_factory=list)
    _number: int = PrivateAttr(7)


@register_class
class Box(BaseModel):
    """The plain class beside the generic one."""

    content: int


class Generic_(BaseModel, Generic[T]):
    content: T


register_class(Generic_[int], name=f"{__name__}:GenericOfInt")


class Unregistered(BaseModel):
    x: int = 0


@register_class
class Base(BaseModel):
    x: int = 0


class Derived(Base):
    y: int = 0


class Excluding(BaseModel):
    x: int = Field(0, exclude=True)


class Abstract(BaseModel, abc.ABC):
    @abc.abstractmethod
    def area(self) -> float: ...


@register_class
class Turning(BaseModel):
    """A class that makes an object of another one."""

    x: int = 0

    @model_validator(mode="wrap")
    @classmethod
    def _other(cls, value: Any, handler: Any) -> Any:
        return Point(x=1) if value != {} else handler(value)


@register_class
class Tidy(BaseModel):
    """A class that changes what it was given beside its fields."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str] = Field(init=False)


class Slotted(BaseModel):
    __slots__ = ("note",)
    x: int = 0


class Text(str):
    """A built-in class under a name of its own."""
