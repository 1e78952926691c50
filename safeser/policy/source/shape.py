"""Resolve a parsed document to a policy, or report all faults of it with their places.

The one rule: a field that this version does not enforce is refused by name, never ignored.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from safeser.errors import ConfigError
from safeser.policy.source.faults import UndefinedName, did_you_mean, fault, shown, together
from safeser.policy.source.fields import MEANING, Stated
from safeser.policy.source.loader import INTEGER, Document, Path, is_plain
from safeser.policy.source.model import ExtendsModel, PolicyModel
from safeser.policy.source.scope import Scope

__all__ = ["MOST", "shape", "shape_as"]

M = TypeVar("M", bound=BaseModel)


class Form(NamedTuple):
    """What a file is: its model, and a noun for messages."""

    model: type[BaseModel]
    noun: str


POLICY = Form(PolicyModel, "a policy")

# Words of the policy language that later versions enforce. Until then, a file that uses one must
# not load: its author would believe in a protection that is not there.
_LATER = frozenset(
    {"audit", "deny", "detached", "enforce", "learn", "min_peer_revision", "shadow", "warn"}
)


#: Faults of one file that are reported.
MOST = 20

#: Sections that define names, and the rule of a name that they do not define.
_DEFINED: dict[Path, str] = {("principals",): "config.undefined", ("families",): "config.family"}


def shape(document: Document, scope: Scope) -> PolicyModel:
    """Return the policy that *document* spells, its names resolved.

    :param scope: empty; holds the names of the policy afterwards.
    :raises ConfigError: where a field is unknown, missing, of another type, without a meaning, or
        not enforced by this version; with all other such faults beside the first.
    """
    return shape_as(PolicyModel, document, scope, noun=POLICY.noun)


def shape_as(model: type[M], document: Document, scope: Scope, *, noun: str) -> M:
    """Return what *document* spells as *model*, with errors as those of a policy."""
    details: list[ErrorDetails] = []
    try:
        shaped = model.model_validate(document.value, context=scope)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
    else:
        if not document.faults:
            return shaped
    raise together(_faults(details, document, Form(model, noun)))


def _faults(details: list[ErrorDetails], document: Document, form: Form) -> list[ConfigError]:
    """Return the faults to report: none that follows from another one."""
    details.sort(key=lambda detail: _precedence(detail, document))
    if details and details[0]["loc"] == ("safeser",):
        return [_translated(details[0], document, form)]
    doubtful = {path for path, _ in document.faults}
    misspelt = {_path(detail)[:-1] for detail in details if detail["type"] == "extra_forbidden"}
    at_fault = [*doubtful, *(_path(each) for each in details if each["type"] != MEANING)]
    unknown = {
        rule for section, rule in _DEFINED.items() if any(p[:1] == section for p in at_fault)
    }
    faults = [error for _, error in document.faults[:MOST]]
    for detail in details:
        path = _path(detail)
        follows = (
            # The section that defines a name may be at fault itself.
            (detail["type"] == MEANING and detail["ctx"]["error"].rule in unknown)
            or (detail["type"] == "missing" and path[:-1] in misspelt)
            or any(path[: len(each)] == each for each in doubtful)
        )
        if not follows and len(faults) < MOST:
            faults.append(_translated(detail, document, form))
    return faults


def _precedence(detail: ErrorDetails, document: Document) -> tuple[int, int, int]:
    """Order errors as a reader fixes them."""
    path = _path(detail)
    place = document.place(path) if detail["type"] == MEANING else document.key_place(path)
    position = (place.line, place.column) if place else (0, 0)
    if detail["loc"] == ("safeser",):
        # A file for another version may have fields that this one does not know.
        return (0, *position)
    # A misspelt key is also reported as a missing one; the spelling is the more useful report.
    # Undefined names come last, since the section that defines them may be at fault itself.
    return ({"missing": 2, MEANING: 3}.get(detail["type"], 1), *position)


def _path(detail: ErrorDetails) -> Path:
    # Pydantic marks an error in a dictionary's key with a last "[key]".
    below: Path = detail.get("ctx", {}).get("below", ())
    return (*(part for part in detail["loc"] if part != "[key]"), *below)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """Return the model of the mapping, or of the mappings, that *field* holds."""
    forms = [field.annotation, *(e.reading.form for e in field.metadata if isinstance(e, Stated))]
    while forms:
        form = forms.pop()
        if isinstance(form, type) and issubclass(form, BaseModel):
            return form
        forms.extend(get_args(form))
    return None


def _fields_at(path: Path, form: Form) -> tuple[str, list[str]]:
    """Return the noun for the mapping at *path*, and the names of its fields in YAML."""
    model, word = form
    parts = iter(path)
    for part in parts:
        section = next(
            (
                found
                for name, field in model.model_fields.items()
                if part == (field.alias or name) and (found := _section(field)) is not None
            ),
            None,
        )
        if section is not None:
            model = section
            word = _ONE_OF.get(str(part), f"'{part}'")
            if part in _ONE_OF:
                next(parts, None)  # the name or the number of one of them
    return word, [field.alias or name for name, field in model.model_fields.items()]


#: Fields that hold many mappings, and the noun for one.
_ONE_OF = {
    "principals": "a principal",
    "contexts": "a context",
    "acknowledge": "an acknowledged path",
    "cases": "a case",
    "amend": "an amendment",
}


def _translated(detail: ErrorDetails, document: Document, form: Form) -> ConfigError:
    path = _path(detail)
    what, rule, fix = _sentence(detail, path, document, form)
    at_key = detail["type"] == "extra_forbidden" or detail["loc"][-1] == "[key]"
    place = document.key_place(path) if at_key else document.place(path)
    return fault(what, source=document.source, place=place, rule=rule, fix=fix)


def _sentence(
    detail: ErrorDetails, path: Path, document: Document, form: Form
) -> tuple[str, str, str]:
    """Return message, rule and fix for one of pydantic's errors."""
    kind, field = detail["type"], str(path[-1])
    context = detail.get("ctx", {})
    if kind == MEANING:
        error = context["error"]
        fix = error.nearest() if isinstance(error, UndefinedName) else error.fix
        return f"{_owner(path, document)}{error.message}", error.rule, fix
    if path == ("safeser",):
        return (
            "this version of safeser reads policies of version 1",
            "config.version",
            ("Start the file with 'safeser: 1'."),
        )
    if kind == "extra_forbidden":
        return _extra(field, path[:-1], form)
    if kind == "missing":
        word, _ = _fields_at(path[:-1], form)
        return f"{word} needs {field!r}", "config.missing-key", ""
    if kind in ("name", "size", "empty", "twice"):
        meant = _SIZE.match(detail["input"]) if kind == "size" else None
        fix = "" if meant is None else f"Write {meant[1]}{meant[2].upper()}iB."
        return f"{_subject(path, form)}: {detail['msg']}", f"config.{kind}", fix
    return (
        f"{_subject(path, form)} {_expectation(kind, context)}",
        "config.value",
        _quotes(kind, detail["input"]) or _wrapped(kind, detail["input"], path, form),
    )


#: A size as people write it.
_SIZE = re.compile(r"([1-9][0-9]{0,9})[ _]?([kmg])i?(?:b|ig|igs|bytes?)?\Z", re.IGNORECASE)


def _wrapped(kind: str, given: object, path: Path, form: Form) -> str:
    """Return how a section is written whose first field was given in its place."""
    listed = given if isinstance(given, list) else [given]
    if kind != "model_type" or not all(isinstance(each, str) and is_plain(each) for each in listed):
        return ""
    _, fields = _fields_at(path, form)
    text = f"[{', '.join(map(str, listed))}]" if isinstance(given, list) else given
    return f"Write {path[-1]}: {{{fields[0]}: {text}}}."


def _quotes(kind: str, given: object) -> str:
    """Return what to do where quotes are missing, or stand where none belong."""
    if kind == "string_type" and isinstance(given, int):
        return "Write it in quotes."
    if isinstance(given, str) and (
        (kind == "int_type" and INTEGER.match(given))
        or (kind == "bool_type" and given in ("true", "false"))
    ):
        return "Write it without quotes."
    return ""


def _owner(path: Path, document: Document) -> str:
    """Name the principal or the context that holds *path*."""
    value: Any = document.value
    if len(path) < 2:
        return ""
    if path[0] == "contexts":
        name = value["contexts"][path[1]].get("name")
        return "" if name is None else f"context {name!r}: "
    return f"principal {path[1]!r}: " if path[0] == "principals" else ""


def _extra(field: str, parent: Path, form: Form) -> tuple[str, str, str]:
    word, fields = _fields_at(parent, form)
    if form == POLICY and not parent:
        fields += ExtendsModel.model_fields
    if form == POLICY and field in _LATER:
        return (
            f"{shown(field)} is not supported by this version of safeser and would not be enforced",
            "config.not-supported",
            "Take it out; nothing is protected by it.",
        )
    if parent == ("limits",) and field == "max_refs":
        return (
            "'limits: max_refs' is gone: a message is bounded by the memory that it takes",
            "config.moved",
            "Write 'max_memory: 128MiB' for 'max_refs: 1_000_000', others in proportion.",
        )
    if field == "suite" and parent[:1] in ((), ("contexts",)):
        return (
            "'suite' is gone: every session is encrypted",
            "config.moved",
            "Remove the line: every session is encrypted.",
        )
    return f"{word} has no key {shown(field)}", "config.unknown-key", did_you_mean(field, fields)


def _subject(path: Path, form: Form) -> str:
    named = [part for part in path if isinstance(part, str)]
    return shown(named[-1]) if named else form.noun


def _expectation(kind: str, context: dict[str, Any]) -> str:
    if kind in ("greater_than_equal", "less_than_equal"):
        word = "at least" if kind == "greater_than_equal" else "at most"
        return f"must be {word} {context.get('ge', context.get('le'))}"
    if kind in ("too_short", "too_long"):
        bound = context.get("min_length", context.get("max_length"))
        return f"must have at {'least' if kind == 'too_short' else 'most'} {bound} entries"
    return {
        "string_type": "must be text",
        "int_type": "must be a whole number",
        "bool_type": "must be true or false",
        "tuple_type": "must be a list, such as [a, b]",
        "dict_type": "must be a mapping, such as {a: b}",
        "model_type": "must be a mapping, such as {a: b}",
    }.get(kind, "is not what belongs here")
