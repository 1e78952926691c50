"""Whether a request or stream element has the fields, and they the shapes, that its handler takes.

The one rule: what the table does not list does not reach a handler, and neither does an object of a
peer's where a handler expects a name, a number or an address. A field that holds references to
payloads is asked again when they are built, since only then it is known what stands there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safeser.dask.wire.fields import holds_reference
from safeser.dask.wire.reader import LEAVES, Reference
from safeser.errors import PayloadError, PolicyDenied
from safeser.operations import Operation
from safeser.operations.shapes import ANYTHING, SURE, UNLESS_NONE, Shape, meant

__all__ = ["Later", "check_built", "check_fields", "check_inner", "sound"]


#: Forms of one operation that are remembered; honest peers send each in a few.
_FORMS = 64


@dataclass(frozen=True, slots=True)
class Later:
    """A field that is asked again when its message is built, by the path that leads to it."""

    path: tuple[str, ...]
    fits: Shape
    operation: str


def check_fields(row: Operation, body: Mapping[str, Any], *, payloads: bool) -> list[Later]:
    """Refuse a field that *row* does not take, or whose value its handler would misbehave on.

    :param payloads: whether the message has any; fields that hold them are returned.
    :raises PolicyDenied: for a field that is not in the table.
    :raises PayloadError: for a value of another shape.
    """
    form = (*body, *map(type, body.values()))
    asked = row.forms.get(form)
    if asked is None:
        asked = _asked(row, form)
    later: list[Later] = []
    for name, fits in asked:
        value = body[name]
        if payloads and value.__class__ not in LEAVES and holds_reference(value):
            later.append(Later((name,), fits, row.name))
        elif not fits(value):
            raise _misshapen(fits, (name,), row.name)
    return later


def _asked(row: Operation, form: tuple[Any, ...]) -> Sequence[tuple[str, Shape]]:
    """Return the fields whose values need to be looked at, and their shapes.

    :param form: names of all fields, and the classes of their values in the same order.
    :raises PolicyDenied: for a field that is not in the table.
    """
    half = len(form) // 2
    asked = []
    for name, kind in zip(form[:half], form[half:], strict=True):
        fits = row.shape_of(name)
        if fits is None:
            raise _unknown(name, row.name)
        if fits is not ANYTHING and kind not in SURE.get(fits, ()):
            # Of a plain value, None passed above; a payload may still turn out to be None.
            asked.append((name, fits if kind is Reference else UNLESS_NONE.get(fits, fits)))
    # Names of a sender's own choice are not kept.
    if "*" not in row.shapes and len(row.forms) < _FORMS:
        row.forms[form] = asked
    return asked


def check_inner(
    rows: Sequence[Operation], at: str, body: Mapping[str, Any], *, payloads: bool
) -> list[Later]:
    """Do the same for a request inside a relay, which one of several servers may be asked for.

    :param at: the field of the relay that holds it.
    """
    later: list[Later] = []
    for name, value in body.items():
        found = [fits for row in rows if (fits := row.shape_of(name)) is not None]
        if not found:
            raise _unknown(name, rows[0].name)
        fits = _any_of(found)
        if fits is ANYTHING:
            continue
        if payloads and value.__class__ not in LEAVES and holds_reference(value):
            later.append(Later((at, name), fits, rows[0].name))
        elif not fits(value):
            raise _misshapen(fits, (at, name), rows[0].name)
    return later


def check_built(later: Sequence[Later], message: Any) -> None:
    """Refuse what turned out to be of another shape than its field has."""
    for field in later:
        value = message
        for step in field.path:
            value = value[step]
        if not field.fits(value):
            raise _misshapen(field.fits, field.path, field.operation)


def sound(row: Operation, element: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a refused element that nothing is wrong with, none of them a payload."""
    kept = {}
    for name, value in element.items():
        fits = row.shape_of(name)
        plain = value.__class__ in LEAVES or not holds_reference(value)
        if fits is not None and plain and fits(value):
            kept[name] = value
    return kept


def _any_of(found: Sequence[Shape]) -> Shape:
    if len(found) == 1 or ANYTHING in found:
        return ANYTHING if ANYTHING in found else found[0]
    return lambda value: any(fits(value) for fits in found)


def _unknown(name: object, operation: str) -> PolicyDenied:
    shown = "".join(c for c in str(name)[:64] if c.isprintable())
    return PolicyDenied(
        f"operation {operation} takes no field {shown!r}",
        rule="operation.unknown-field",
        fix="Use a version of distributed that this version of safeser supports.",
    )


def _misshapen(fits: Shape, path: tuple[str, ...], operation: str) -> PayloadError:
    return PayloadError(
        f"operation {operation} takes something else in that field",
        rule="operation.field-shape",
        where=".".join(path),
        fix=meant(fits) or "See which types of arguments Dask's documentation names.",
    )
