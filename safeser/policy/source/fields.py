"""Declare fields of a policy: form in YAML, meaning, and text for operators.

The one rule: reading, the JSON Schema, ``policy show`` and ``policy explain`` know a field only by
its declaration. Its description is the docstring below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NoReturn,
    Self,
    TypeVar,
    dataclass_transform,
)

from safeser.policy.source.forms import Form

if TYPE_CHECKING:
    from safeser.policy.source.context import Rule

T = TypeVar("T")

#: In place of a default: the field is required.
_REQUIRED: Any = object()


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


class Stated(Generic[T]):
    """The declaration of one field; see :func:`stated`.

    :ivar attribute: its name in Python.
    :ivar name: its name in YAML.
    """

    def __init__(
        self,
        form: Form[T],
        *,
        default: T,
        key: str | None,
        spelled: str | list[str] | None,
        shown: tuple[Shown, ...],
        explained: Callable[[Rule], str] | None,
    ) -> None:
        self.form, self.default, self.spelled = form, default, spelled
        self.shown, self.explained = shown, explained
        self.attribute = self.name = key or ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.attribute = name
        self.name = self.name or name

    @property
    def is_required(self) -> bool:
        return self.default is _REQUIRED


def stated(
    form: Form[T],
    *,
    default: T = _REQUIRED,
    key: str | None = None,
    spelled: str | list[str] | None = None,
    shown: Shown | tuple[Shown, ...] = (),
    explained: Callable[[Rule], str] | None = None,
) -> T:
    """Declare one field of a policy.

    :param form: its form in YAML, and its meaning.
    :param default: its value where the policy leaves it out; a field without one is required.
    :param key: its name in YAML, if it is not the attribute's.
    :param spelled: the default as YAML spells it, for the JSON Schema.
    :param shown: its rows in ``policy show``.
    :param explained: returns its line in ``policy explain`` for a context; empty for no line.
    """
    rows = (shown,) if isinstance(shown, Shown) else shown
    declared: Any = Stated(
        form, default=default, key=key, spelled=spelled, shown=rows, explained=explained
    )
    return declared  # type: ignore[no-any-return]  # an instance has the value in its place


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(stated,))
class Strict:
    """A mapping of a policy: no field beyond those declared. Immutable.

    Its values are not checked; :class:`safeser.policy.source.forms.Section` reads them.

    :cvar fields: the declarations, by the names in YAML, in their order.
    """

    fields: ClassVar[Mapping[str, Stated[Any]]] = {}

    def __init_subclass__(cls) -> None:
        cls.fields = {each.name: each for each in vars(cls).values() if isinstance(each, Stated)}

    def __init__(self, **values: Any) -> None:
        for each in self.fields.values():
            if each.attribute not in values and each.is_required:
                raise TypeError(f"{type(self).__name__} needs {each.attribute}")
            vars(self)[each.attribute] = values.pop(each.attribute, each.default)
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def replaced(self, **values: Any) -> Self:
        """Return a copy with other *values*."""
        made = copy(self)
        vars(made).update(values)
        return made
