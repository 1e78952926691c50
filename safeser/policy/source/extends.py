"""Expand a policy that extends another one into the policy that decides.

The one rule: the expanded text is a policy like any other. It is what decides, what is hashed,
shown and compared, so that a changed base shows as another hash; errors name the line of the file
that holds it. What is extended extends nothing.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any, NoReturn

from safeser.errors import ConfigError
from safeser.policy.source.faults import Place, did_you_mean, fault, shown
from safeser.policy.source.forms import SIZE
from safeser.policy.source.loader import Document, Path, is_plain, read
from safeser.policy.source.model import AmendModel, ExtendsModel, PolicyModel
from safeser.policy.source.scope import GROUP, Scope
from safeser.policy.source.shape import shape_as

__all__ = ["ALONE", "Text", "document", "with_principal"]


#: Fields of a file that extends another alone, and those that every file has for itself.
FIELDS = tuple(ExtendsModel.fields)
ALONE = ("safeser", "name", "revision")


@dataclass(frozen=True, slots=True)
class Text:
    """The bytes of a policy with those of what it extends.

    :param source: file or label, for messages.
    :param path: the file, if it is one that can change.
    """

    data: bytes
    source: str
    base: Text | None = None
    path: FilePath | None = None

    @property
    def paths(self) -> tuple[FilePath, ...]:
        """The files that it came from, without those that ship with safeser."""
        own = () if self.path is None else (self.path,)
        return own if self.base is None else (*own, *self.base.paths)

    @property
    def expanded(self) -> bytes:
        """The bytes of a file that means the same and extends nothing.

        :raises ConfigError: if it does not expand.
        """
        return self.data if self.base is None else _spelled(document(self).value)


# Reading takes 20 ms, and the file of a running process is looked at every other second.
@lru_cache(maxsize=8)
def document(text: Text) -> Document:
    """Return the values that *text* means, with the places of both files.

    :raises ConfigError: if either is not strict YAML, or they do not fit together.
    """
    own = read(text.data, source=text.source)
    if text.base is None:
        if not own.value.keys().isdisjoint(FIELDS):
            _amendments(own)  # says what is wrong with it
        return own
    base = read(text.base.data, source=text.base.source)
    placed = {
        kind: {path: replace(place, source=base.source) for path, place in places.items()}
        for kind, places in (("places", base.places), ("keys", base.keys))
    }
    merged = _Merged(own, replace(base, places=placed["places"], keys=placed["keys"]))
    merged.run()
    digest = hashlib.sha256(_spelled(merged.value)).hexdigest()
    return Document(
        merged.value, own.source, digest, merged.places, merged.keys, tuple(merged.faults)
    )


#: Fields whose entries join, and fields that no base gives.
_LISTS = ("families", "contexts", "acknowledge")
_OWN = (*FIELDS, *ALONE)

#: Fields that name principals. An entry all of whose names in one of the first are gone goes.
_ENDS, _NAMES = ("sender", "recipient", "authors"), ("sender", "recipient", "authors", "values")


@dataclass(slots=True)
class _Merged:
    """One policy, made of values of *own* and *base*, each of which keeps its place."""

    own: Document
    base: Document
    value: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    faults: list[tuple[Path, ConfigError]] = field(default_factory=list)

    def run(self) -> None:
        if "extends" in self.base.value:
            self._refuse(
                "what a policy extends extends nothing itself",
                "extends",
                fix="Extend a ready policy, or the file that the other one extends.",
            )
        amend = _amendments(self.own)
        self.places[()] = self.own.places[()]
        # In the model's order, so that two files always give one text.
        for name in dict.fromkeys((*PolicyModel.fields, *self.own.value, *self.base.value)):
            if name in self.own.value and name not in FIELDS:
                self._take(self.own, (name,), (name,))
            if name in self.base.value and name not in _OWN:
                self._join(name)
        self._check_groups()
        for name, each in amend.items():
            self._amend(name, each)

    def _join(self, name: str) -> None:
        """Add what the base has under *name* to what the file has."""
        theirs = self.base.value[name]
        mine = self.value.get(name)
        if mine is None and name not in ("contexts", "acknowledge"):
            self._take(self.base, (name,), (name,))
        elif name in ("principals", "limits") and type(mine) is type(theirs) is dict:
            named = _named(self.base.value)
            for key in theirs:
                if key not in mine and (name == "limits" or key in named):
                    self._take(self.base, (name, key), (name, key))
        elif type(theirs) is list and type(mine) in (list, type(None)) and name in _LISTS:
            if mine is None:
                mine = self.value[name] = []
                self.places[(name,)] = self.keys[(name,)] = self.base.keys[(name,)]
            gone = _groups(self.base.value) - _groups(self.value)  # empty now
            for index, each in enumerate(theirs):
                if name == "contexts":
                    self._refuse_twice(each)
                names = _left(each, gone) if isinstance(each, dict) else {}
                if names is None or (name == "families" and each in mine):
                    continue
                to = (name, len(mine))
                self._take(self.base, (name, index), to)
                for field_, left in names.items():
                    self._replace((*to, field_), left)

    def _take(self, source: Document, path: Path, to: Path) -> None:
        """Put the value of *source* at *path*, with all that is below it, at *to*."""
        found: Any = source.value
        for part in path:
            found = found[part]
        into: Any = self.value
        for part in to[:-1]:
            into = into[part]
        if type(into) is list:
            into.append(copy.deepcopy(found))
        else:
            into[to[-1]] = copy.deepcopy(found)
        for theirs, ours in ((source.places, self.places), (source.keys, self.keys)):
            ours |= {(*to, *p[len(path) :]): at for p, at in theirs.items() if _below(p, path)}
        self.faults += [((*to, *p[len(path) :]), e) for p, e in source.faults if _below(p, path)]

    def _replace(self, path: Path, names: list[str]) -> None:
        """Leave *names* alone of a list of them, or nothing."""
        entry: Any = self.value
        for part in path[:2]:
            entry = entry[part]
        if names:
            entry[path[2]] = names
        else:
            del entry[path[2]]
        for places in (self.places, self.keys):
            for each in [each for each in places if each[:3] == path and each[3:]]:
                del places[each]

    def _check_groups(self) -> None:
        """Refuse a group of the file that is misspelt: what is meant for it would be left out."""
        named = _named(self.own.value) | _named(self.base.value)
        known = {each.removeprefix(GROUP) for each in named if each.startswith(GROUP)}
        people = self.own.value.get("principals")
        for name, each in people.items() if isinstance(people, dict) else ():
            groups = _listed(each.get("groups", [])) if isinstance(each, dict) else []
            for index, group in enumerate(groups):
                if isinstance(group, str) and group not in known:
                    said = f"no context, here or in {self.base.source}, names group {shown(group)}"
                    place = ("principals", name, "groups", index)
                    fix = did_you_mean(group, known)
                    self._refuse(said, *place, rule="config.undefined", fix=fix)

    def _refuse_twice(self, context: Any) -> None:
        """Refuse a context of the file that has the name of one in the base."""
        for index, each in enumerate(_entries(self.own.value)):
            if _name(each) == _name(context) is not None:
                self._refuse(
                    f"{self.base.source} has a context {shown(_name(each))} as well",
                    *("contexts", index, "name"),
                    rule="config.duplicate-name",
                    fix="Give this one another name: it stands above those of the other file."
                    " What that one gains is written under 'amend'.",
                )

    def _amend(self, name: str, model: AmendModel) -> None:
        contexts = _entries(self.value)
        names = [_name(each) for each in contexts]
        if name not in names:
            self._refuse(
                f"{self.base.source} has no context {shown(name)} that could be amended",
                *("amend", name),
                fix=did_you_mean(name, filter(None, names)),
            )
        index = names.index(name)
        context = contexts[index]
        allow = _held(context, "pickle", "allow", {}) if model.pickle is not None else None
        grant = _held(context, "operations", "grant", []) if model.operations is not None else None
        if model.pickle is not None and isinstance(allow, dict):
            for each in model.pickle.allow:
                origin: Path = ("amend", name, "pickle", "allow", each)
                self._refuse_known(each, allow, name, origin)
                self._take(self.own, origin, ("contexts", index, "pickle", "allow", each))
        if model.operations is not None and isinstance(grant, list):
            for number, each in enumerate(model.operations.grant):
                origin = ("amend", name, "operations", "grant", number)
                self._refuse_known(each, grant, name, origin)
                to = ("contexts", index, "operations", "grant", len(grant))
                self._take(self.own, origin, to)

    def _refuse_known(self, each: str, known: Collection[str], name: str, path: Path) -> None:
        if each in known:
            self._refuse(
                f"context {name!r} of {self.base.source} has {shown(each)} already",
                *path,
                fix="Take it out here.",
            )

    def _refuse(
        self, message: str, *path: str | int, rule: str = "config.extends", fix: str = ""
    ) -> NoReturn:
        place = self.own.key_place(path)
        raise fault(message, source=self.own.source, place=place, rule=rule, fix=fix)


def _amendments(own: Document) -> Mapping[str, AmendModel]:
    """Return what a file says under ``amend``, checked like all other fields."""
    value = {name: own.value[name] for name in FIELDS if name in own.value}
    doubtful = [each for each in own.faults if each[0][:1] and each[0][0] in FIELDS]
    part = replace(own, value=value, faults=doubtful)
    return shape_as(ExtendsModel, part, Scope(), noun="a policy").amend


def _below(path: Path, above: Path) -> bool:
    return path[: len(above)] == above


def _entries(value: Mapping[str, Any]) -> list[Any]:
    found = value.get("contexts", [])
    return found if isinstance(found, list) else []


def _named(value: Mapping[str, Any]) -> set[str]:
    """Return the principals and groups that contexts name."""
    contexts = [each for each in _entries(value) if isinstance(each, dict)]
    texts = [_listed(each.get(field, [])) for each in contexts for field in _NAMES]
    return {each for listed in texts for each in listed if isinstance(each, str)}


def _name(context: Any) -> Any:
    name = context.get("name") if isinstance(context, dict) else None
    return name if isinstance(name, str) else None


def _held(context: dict[str, Any], section: str, name: str, empty: Any) -> Any:
    """Return what a section of *context* holds, made if it is not there, to be added to.

    :returns: None if the base is at fault there, as is said where its form is checked.
    """
    fields = context.setdefault(section, {})
    if not isinstance(fields, dict):
        return None
    held = fields.setdefault(name, empty)
    if isinstance(held, str) and empty == []:
        held = fields[name] = [held]
    return held


def _listed(names: Any) -> list[Any]:
    return names if isinstance(names, list) else [names]


def _groups(value: Mapping[str, Any]) -> frozenset[str]:
    """Return the groups that principals are in, as contexts name them."""
    people = value.get("principals")
    listed = (
        each.get("groups", [])
        for each in (people.values() if isinstance(people, dict) else ())
        if isinstance(each, dict)
    )
    names = (name for each in listed for name in _listed(each))
    return frozenset(f"{GROUP}{name}" for name in names if isinstance(name, str))


def _left(entry: Mapping[str, Any], gone: frozenset[str]) -> dict[str, list[str]] | None:
    """Return the fields of *entry* that name one of *gone*, each with the names that are left.

    :returns: None if it permits nothing without them.
    """
    fields = {name: _listed(entry[name]) for name in (*_NAMES, "path") if name in entry}
    changed = {
        name: [each for each in listed if not isinstance(each, str) or each not in gone]
        for name, listed in fields.items()
        if not gone.isdisjoint(each for each in listed if isinstance(each, str))
    }
    empty = [name for name, left in changed.items() if not left and name in _ENDS]
    return None if empty or "path" in changed else changed


def with_principal(text: Text, name: str, groups: Sequence[str]) -> bytes:
    """Return the expanded *text* as it is with one more principal.

    :raises ConfigError: if it does not expand.
    """
    value: dict[str, Any] = copy.deepcopy(document(text).value)
    value["principals"][name] = {"groups": list(groups)} if groups else {}
    return _spelled(value)


# --- the expanded text ----------------------------------------------------------------------------

_WIDTH = 100


def _spelled(value: Mapping[str, Any]) -> bytes:
    """Return *value* as the bytes of a policy's file."""
    lines = [line for name, each in value.items() for line in _field(name, each, "")]
    return "\n".join([*lines, "...", ""]).encode()


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    """Yield the lines of one entry of a mapping: on one line where it fits."""
    flat = f"{indent}{_scalar(name)}: {_flow(value)}"
    fits = len(flat) <= _WIDTH and name not in ("principals", "contexts")
    if fits or not isinstance(value, dict | list):
        yield flat
    elif isinstance(value, dict):
        yield f"{indent}{_scalar(name)}:"
        for key, each in value.items():
            yield from _field(key, each, f"{indent}  ")
    else:
        yield f"{indent}{_scalar(name)}:"
        for each in value:
            lines = [f"{indent}  - {_flow(each)}"]
            if isinstance(each, dict) and each and (len(lines[0]) > _WIDTH or name == "contexts"):
                lines = [line for key in each for line in _field(key, each[key], f"{indent}    ")]
                lines[0] = f"{indent}  - {lines[0].lstrip()}"
            yield from lines


def _flow(value: Any) -> str:
    match value:
        case dict():
            return (
                f"{{{', '.join(f'{_scalar(key)}: {_flow(each)}' for key, each in value.items())}}}"
            )
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case _:
            return _scalar(value)


def _scalar(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or is_plain(value) or SIZE.match(value):
        return str(value)
    return "'{}'".format(value.replace("'", "''"))
