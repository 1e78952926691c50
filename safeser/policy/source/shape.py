"""Resolve a parsed document to a policy, or report all faults of it with their places.

The one rule: a field that this version does not enforce is refused by name, never ignored.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeVar

from safeser.errors import ConfigError
from safeser.policy.source.faults import UndefinedName, did_you_mean, fault, shown, together
from safeser.policy.source.fields import Strict
from safeser.policy.source.forms import Fault, Form, Reader, Section
from safeser.policy.source.loader import INTEGER, Document, Path, is_plain
from safeser.policy.source.model import ExtendsModel, PolicyModel
from safeser.policy.source.scope import Scope

__all__ = ["MOST", "shape", "shape_as"]

M = TypeVar("M", bound=Strict)


class File(NamedTuple):
    """What a file is: its model, and a noun for messages."""

    model: type[Strict]
    noun: str


POLICY = File(PolicyModel, "a policy")

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
    reader = Reader(scope)
    shaped = Section(model).read(document.value, (), reader)
    if reader.faults or document.faults:
        raise together(_reported(reader.faults, document, File(model, noun)))
    return shaped


def _reported(faults: list[Fault], document: Document, file: File) -> list[ConfigError]:
    """Return the errors to report: none that follows from another one."""
    faults.sort(key=lambda each: _precedence(each, document))
    if faults and faults[0].path == _VERSION:
        return [_translated(faults[0], document, file)]
    doubtful = {path for path, _ in document.faults}
    misspelt = {each.path[:-1] for each in faults if each.kind == "unknown"}
    at_fault = [*doubtful, *(each.path for each in faults if each.error is None)]
    unknown = {
        rule for section, rule in _DEFINED.items() if any(p[:1] == section for p in at_fault)
    }
    errors = [error for _, error in document.faults[:MOST]]
    for each in faults:
        follows = (
            # The section that defines a name may be at fault itself.
            (each.error is not None and each.error.rule in unknown)
            or (each.kind == "missing" and each.path[:-1] in misspelt)
            or any(each.path[: len(path)] == path for path in doubtful)
        )
        if not follows and len(errors) < MOST:
            errors.append(_translated(each, document, file))
    return errors


_VERSION: Path = ("safeser",)


def _precedence(each: Fault, document: Document) -> tuple[int, int, int]:
    """Order faults as a reader fixes them."""
    place = (document.key_place if each.error is None else document.place)(each.path)
    position = (place.line, place.column) if place else (0, 0)
    if each.path == _VERSION:
        # A file for another version may have fields that this one does not know.
        return (0, *position)
    # A misspelt key is also reported as a missing one; the spelling is the more useful report.
    # Undefined names come last, since the section that defines them may be at fault itself.
    return ({"missing": 2, "meaning": 3}.get(each.kind, 1), *position)


def _section(form: Form[Any] | None) -> type[Strict] | None:
    """Return the model of the mapping, or of the mappings, that *form* holds."""
    while form is not None:
        if isinstance(form, Section):
            return form.model
        form = form.inner
    return None


def _fields_at(path: Path, file: File) -> tuple[str, list[str]]:
    """Return the noun for the mapping at *path*, and the names of its fields in YAML."""
    model, word = file
    parts = iter(path)
    for part in parts:
        field = model.fields.get(str(part))
        section = None if field is None else _section(field.form)
        if section is not None:
            model = section
            word = _ONE_OF.get(str(part), f"'{part}'")
            if part in _ONE_OF:
                next(parts, None)  # the name or the number of one of them
    return word, list(model.fields)


#: Fields that hold many mappings, and the noun for one.
_ONE_OF = {
    "principals": "a principal",
    "contexts": "a context",
    "acknowledge": "an acknowledged path",
    "cases": "a case",
    "amend": "an amendment",
}


def _translated(each: Fault, document: Document, file: File) -> ConfigError:
    what, rule, fix = _sentence(each, document, file)
    place = (document.key_place if each.of_key else document.place)(each.path)
    return fault(what, source=document.source, place=place, rule=rule, fix=fix)


def _sentence(each: Fault, document: Document, file: File) -> tuple[str, str, str]:
    """Return message, rule and fix for one fault."""
    kind, path, error = each.kind, each.path, each.error
    if error is not None:
        fix = error.nearest() if isinstance(error, UndefinedName) else error.fix
        return f"{_owner(path, document)}{error.message}", error.rule, fix
    if path == _VERSION:
        return (
            "this version of safeser reads policies of version 1",
            "config.version",
            ("Start the file with 'safeser: 1'."),
        )
    if kind == "unknown":
        return _extra(str(path[-1]), path[:-1], file)
    if kind == "missing":
        word, _ = _fields_at(path[:-1], file)
        return f"{word} needs {str(path[-1])!r}", "config.missing-key", ""
    if kind in ("name", "size", "empty", "twice"):
        meant = _SIZE.match(str(each.given)) if kind == "size" else None
        fix = "" if meant is None else f"Write {meant[1]}{meant[2].upper()}iB."
        return f"{_subject(path, file)}: {each.message}", f"config.{kind}", fix
    fix = _quotes(kind, each.given) or _wrapped(kind, each.given, path, file)
    return f"{_subject(path, file)} {each.message}", "config.value", fix


#: A size as people write it.
_SIZE = re.compile(r"([1-9][0-9]{0,9})[ _]?([kmg])i?(?:b|ig|igs|bytes?)?\Z", re.IGNORECASE)


def _wrapped(kind: str, given: object, path: Path, file: File) -> str:
    """Return how a section is written whose first field was given in its place."""
    listed = given if isinstance(given, list) else [given]
    if kind != "section" or not all(isinstance(each, str) and is_plain(each) for each in listed):
        return ""
    _, fields = _fields_at(path, file)
    text = f"[{', '.join(map(str, listed))}]" if isinstance(given, list) else given
    return f"Write {path[-1]}: {{{fields[0]}: {text}}}."


def _quotes(kind: str, given: object) -> str:
    """Return what to do where quotes are missing, or stand where none belong."""
    if kind == "text" and isinstance(given, int):
        return "Write it in quotes."
    if isinstance(given, str) and (
        (kind == "number" and INTEGER.match(given))
        or (kind == "flag" and given in ("true", "false"))
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


def _extra(field: str, parent: Path, file: File) -> tuple[str, str, str]:
    word, fields = _fields_at(parent, file)
    if file == POLICY and not parent:
        fields += ExtendsModel.fields
    if file == POLICY and field in _LATER:
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


def _subject(path: Path, file: File) -> str:
    named = [part for part in path if isinstance(part, str)]
    return shown(named[-1]) if named else file.noun
