"""Say in lines what differs between two policies: one edit of a policy reads as one line.

The one rule: every change is in some line. A line about a principal stands for all changes that it
explains: the principal has another name, or is granted what another principal is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from safeser.gate.values import Kind
from safeser.policy.policy import Policy
from safeser.policy.questions.difference import Change, Difference, Effect, Hop, Setting, way_words
from safeser.policy.questions.domain import Way
from safeser.policy.questions.permissions import Permission, weakest_kind
from safeser.policy.source.scope import GROUP
from safeser.policy.source.words import groups_and_names, joined

__all__ = ["Line", "as_json", "lines", "people"]

#: Names that a line lists of one set of principals or values.
_NAMES_SHOWN = 8


class Line(NamedTuple):
    """One line for people.

    :param effect: what it does, or ``renames``, which does both.
    :param below: the rest of a long one, a line for each thing that it lists.
    """

    effect: str
    text: str
    below: tuple[str, ...] = ()


#: Characters of a line beyond which what it lists stands below it.
_LONG = 96


@dataclass(frozen=True, slots=True)
class _Place:
    """Hops that form a rectangle.

    :param kinds: in which it changes; None where it does in all kinds that it can matter in.
    """

    senders: frozenset[str]
    recipients: frozenset[str]
    kinds: frozenset[Kind] | None
    ways: frozenset[Way]


class _Said(NamedTuple):
    """One permission, or several of one sort, that change at one place."""

    effect: Effect
    place: _Place
    what: str
    values: frozenset[str]
    sides: frozenset[str]
    authors: frozenset[str]


def lines(difference: Difference) -> list[Line]:
    """Return what differs, grouped: principals first, then hops, then settings."""
    hidden, about = _principals(difference)
    said = _merged(_canonical(_said(difference.changes, hidden)))
    by_place: dict[tuple[Effect, frozenset[str], frozenset[str], frozenset[Way]], list[str]] = {}
    for each in sorted(said, key=_order):
        place = each.place
        key = (each.effect, place.senders, place.recipients, place.ways)
        by_place.setdefault(key, []).append(_phrase(each))
    found = [*about, *_paths(difference, hidden)]
    for (effect, senders, recipients, ways), phrases in by_place.items():
        may = "now may" if effect == "loosens" else "may no longer"
        who = f"{people(difference.new, senders)} -> {people(difference.new, recipients)}"
        how = way_words(tuple(ways), difference.domain)
        text = f"{who}{how}: {may} {'; '.join(phrases)}"
        if len(text) <= _LONG or len(phrases) == 1:
            found.append(Line(effect, text))
        else:
            found.append(Line(effect, f"{who}{how}: {may}", tuple(phrases)))
    for setting in difference.settings:
        if setting.what.removeprefix("principal ") not in hidden:
            found.append(Line(setting.effect, _setting(setting)))
    return found


def _order(said: _Said) -> tuple[object, ...]:
    place = said.place
    ends = sorted(place.senders), sorted(place.recipients)
    rest = sorted(said.values), sorted(said.authors), sorted(said.sides)
    return said.effect, *ends, _ORDER.index(said.what), *rest


#: What passes before what may be asked for.
_ORDER = (
    *("submit", "carry", "sealed", "profile", "name", "type", "classes", "read", "conflict"),
    *("ask", "until"),
)


def _paths(difference: Difference, hidden: Collection[str]) -> Iterator[Line]:
    for change in difference.paths:
        one, other = change.path.ends
        if {*one} <= {*hidden} or {*other} <= {*hidden}:
            continue
        loosens = change.effect == "loosens"
        policy = difference.new if loosens else difference.old
        start, *between, end = (people(policy, step) for step in change.path.steps)
        through = f", through {', '.join(between)}" if between else ""
        can = "can now" if loosens else "can no longer"
        yield Line(
            change.effect, f"a holder of the key of {start} {can} run code as {end}{through}"
        )


# --- principals -----------------------------------------------------------------------------------


def _principals(difference: Difference) -> tuple[frozenset[str], list[Line]]:
    """Return the principals whose changes one line each explains, and those lines."""
    hidden: set[str] = set()
    found = []
    for old, new in difference.renamed:
        if _cancels(difference.changes, old, new):
            hidden |= {old, new}
            found.append(Line("renames", f"{old} is called {new} now, with the same grants"))
    for members in difference.domain.classes:
        name = members[0]
        twin = None if name in hidden else _twin(difference, name)
        effects = {
            change.effect
            for change in difference.changes
            if any(_concerns(hop, change, name) for hop in change.hops)
        }
        if twin is None or not effects:
            continue
        hidden |= {*members}
        before = "unknown" if name not in difference.old.principals else "listed otherwise"
        effect = effects.pop() if len(effects) == 1 else "renames"
        who = people(difference.new, members)
        found.append(Line(effect, f"{who}: now granted what {twin} is (was {before})"))
    return frozenset(hidden), found


def _cancels(changes: Iterable[Change], old: str, new: str) -> bool:
    """Tell whether what *old* loses is what *new* gains."""

    def called(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    lost, gained = set(), set()
    for change in changes:
        author = new if change.permission.author == old else change.permission.author
        permission = change.permission._replace(author=author)
        for hop in change.hops:
            if change.effect == "tightens" and _concerns(hop, change, old):
                where = hop._replace(senders=called(hop.senders), recipients=called(hop.recipients))
                lost.add((permission, where))
            elif change.effect == "loosens" and _concerns(hop, change, new):
                gained.add((permission, hop))
            elif _concerns(hop, change, old) or _concerns(hop, change, new):
                return False
    return lost == gained


def _concerns(hop: Hop, change: Change, name: str) -> bool:
    return name in hop.senders or name in hop.recipients or name in change.authors


def _twin(difference: Difference, name: str) -> str | None:
    """Return a principal of both policies that the new one lists wherever it lists *name*."""
    old, new = difference.old, difference.new
    if name not in new.principals or new.principals[name].confined is not None:
        return None
    alone = _standing(new, name)
    moved = name not in old.principals or alone != _standing(old, name)
    if not alone or not moved:
        return None
    twins = (
        other
        for other in new.principals
        if other != name and other in old.principals and _standing(new, other) == alone
    )
    # One that stands where it stood says what is granted; two that both moved explain nothing.
    return min((each for each in twins if _standing(old, each) == alone), default=None)


def _standing(policy: Policy, name: str) -> tuple[tuple[str, bool, bool, bool, bool], ...]:
    places = (
        (r.name, name in r.senders, name in r.recipients, name in r.authors, name in r.values)
        for r in policy.contexts
    )
    return tuple(each for each in places if any(each[1:]))


# --- rectangles -----------------------------------------------------------------------------------


def _said(changes: Iterable[Change], hidden: Collection[str]) -> Iterator[_Said]:
    for change in changes:
        authors = frozenset(change.authors)
        if authors and authors <= {*hidden}:
            continue
        shown = [
            hop
            for hop in change.hops
            if not ({*hop.senders} <= {*hidden} or {*hop.recipients} <= {*hidden})
        ]
        permission = change.permission
        for place in _rectangles(shown, permission):
            yield _Said(
                change.effect,
                place,
                permission.what,
                frozenset({permission.value} - {""}),
                frozenset({permission.side} - {""}),
                authors,
            )


def _possible(permission: Permission) -> frozenset[Kind]:
    least = weakest_kind(permission).strength
    return frozenset(kind for kind in Kind if kind.strength >= least)


def _rectangles(hops: Iterable[Hop], permission: Permission) -> list[_Place]:
    possible = _possible(permission)
    kinds: dict[tuple[Any, Any, tuple[Way, ...]], set[Kind]] = {}
    for hop in hops:
        kinds.setdefault((hop.senders, hop.recipients, hop.ways), set()).add(hop.kind)
    ways: dict[tuple[Any, Any, frozenset[Kind] | None], set[Way]] = {}
    for (one, other, way), each in kinds.items():
        within = None if each == possible else frozenset(each)
        ways.setdefault((one, other, within), set()).update(way)
    senders: dict[tuple[Any, frozenset[Kind] | None, frozenset[Way]], set[str]] = {}
    for (one, other, within), by in ways.items():
        senders.setdefault((other, within, frozenset(by)), set()).update(one)
    places: dict[tuple[frozenset[str], frozenset[Kind] | None, frozenset[Way]], set[str]] = {}
    for (other, within, by_all), ones in senders.items():
        places.setdefault((frozenset(ones), within, by_all), set()).update(other)
    found = [
        _Place(ones, frozenset(others), within, by_all)
        for (ones, within, by_all), others in places.items()
    ]
    return sorted(found, key=lambda each: (sorted(each.senders), sorted(each.recipients)))


def _canonical(each: Iterable[_Said]) -> Iterator[_Said]:
    """Yield *each* with the kinds of one that is said of more kinds, where both mean the same.

    An operation of kind task that is granted in task alone, and one of kind admin that is, are one
    edit.
    """
    seen: dict[tuple[Any, ...], list[frozenset[Kind]]] = {}
    for one in sorted(each, key=lambda said: -len(_possible(Permission(said.what, *said.values)))):
        place = one.place
        if place.kinds is None:
            yield one
            continue
        possible = _possible(Permission(one.what, *one.values))
        wider = seen.setdefault((one.effect, place.senders, place.recipients, place.ways), [])
        kinds = next((each for each in wider if each & possible == place.kinds), place.kinds)
        wider.append(kinds)
        yield one._replace(place=replace(place, kinds=kinds))


def _merged(each: Iterable[_Said]) -> list[_Said]:
    """Return *each* with those joined that differ in sides, in authors, or in values alone."""
    found = list(each)
    for get, put in _JOINED:
        joint: dict[_Said, frozenset[str]] = {}
        for one in found:
            # What the sender wrote is not joined with what authors wrote.
            key = put(one, frozenset()) if get(one) else one
            joint[key] = joint.get(key, frozenset()) | get(one)
        found = [put(key, values) for key, values in joint.items()]
    return found


_JOINED: tuple[
    tuple[Callable[[_Said], frozenset[str]], Callable[[_Said, frozenset[str]], _Said]], ...
] = (
    (lambda said: said.sides, lambda said, new: said._replace(sides=new)),
    (lambda said: said.authors, lambda said, new: said._replace(authors=new)),
    (lambda said: said.values, lambda said, new: said._replace(values=new)),
)


# --- words ----------------------------------------------------------------------------------------

_VERBS: Mapping[frozenset[str], str] = {
    frozenset(): "carry",
    frozenset({"write", "open"}): "carry",
    frozenset({"write"}): "write",
    frozenset({"open"}): "have recipients open",
}
_CONFLICTS = {
    "definition": "take keys of another definition, with a warning",
    "principal": "take keys of another principal, with a warning",
}


def _phrase(said: _Said) -> str:
    values = listed(sorted(said.values))
    by = f" of {listed(sorted(said.authors))}" if said.authors else ""
    text = {
        "ask": lambda: f"ask for {listed(groups_and_names(said.values))}",
        "carry": lambda: f"{_VERBS[said.sides]} {values}{by}",
        "sealed": lambda: f"pass sealed calls{by} in {values}",
        "profile": lambda: f"use profile {values} in pickles",
        "name": lambda: f"use {values} in pickles",
        "type": lambda: f"use {values} in family dask",
        "classes": lambda: f"have instances of the recipient's {values} classes rebuilt",
        "submit": lambda: f"submit {values}",
        "read": lambda: f"read values{by}",
        "conflict": lambda: " and ".join(_CONFLICTS[each] for each in sorted(said.values)),
        "until": lambda: " and ".join(_end(each, said.effect) for each in sorted(said.values)),
    }[said.what]()
    kinds = said.place.kinds
    within = ", ".join(kind.value for kind in Kind if kinds is not None and kind in kinds)
    return text + (f" in {within}" if within else "")


def _end(value: str, effect: Effect) -> str:
    """Return the words for a date of *value*, or for the one that replaces another in it."""
    old, changed, new = value.rpartition(", ")
    if not changed:
        return f"do so until {new}" if new else "do so without end"
    was = f"was until {old}" if old else "had no end"
    if effect == "loosens":
        return f"do so {f'until {new}' if new else 'without end'} ({was})"
    return f"do so after {new} ({was})"


def listed(names: Iterable[str]) -> str:
    each = list(names)
    more = f" and {len(each) - _NAMES_SHOWN} more" if len(each) > _NAMES_SHOWN else ""
    return ", ".join(each[:_NAMES_SHOWN]) + more


def people(policy: Policy, names: Collection[str]) -> str:
    """Return *names* in few words: groups of the policy that they hold whole, and the rest."""
    left = set(names)
    if len(left) > 1 and left >= policy.principals.keys():
        rest = left - policy.principals.keys()
        return "every principal" + (f" and {joined(rest)}" if rest else "")
    groups: dict[str, set[str]] = {}
    for name, principal in policy.principals.items():
        for group in principal.groups:
            groups.setdefault(GROUP + group, set()).add(name)
    found = []
    for group, members in sorted(groups.items(), key=lambda each: (-len(each[1]), each[0])):
        if members <= left and (len(members) > 1 or members == {*names}):
            found.append(group)
            left -= members
    return ", ".join(found + ([listed(sorted(left))] if left else []))


def _setting(setting: Setting) -> str:
    what = setting.what
    if not setting.old or not setting.new:
        word = "added" if setting.new else "removed"
        value = setting.new or setting.old
        return f"{what}: {word}" + ("" if value in ("listed", "declared") else f", {value}")
    return f"{what}: {_number(setting.old)} -> {_number(setting.new)}"


def _number(text: str) -> str:
    return f"{int(text):,}" if text.isdecimal() else text


# --- for programs ---------------------------------------------------------------------------------


def as_json(difference: Difference) -> dict[str, Any]:
    """Return the whole difference as plain values, every change by itself."""
    return {
        "old": _named(difference.old),
        "new": _named(difference.new),
        "loosens": difference.loosens,
        "changes": [_change(each) for each in difference.changes],
        "settings": [
            {"effect": each.effect, "what": each.what, "old": each.old, "new": each.new}
            for each in difference.settings
        ],
        "paths": [
            {"effect": each.effect, "path": [[*step] for step in each.path.steps]}
            for each in difference.paths
        ],
        "renamed": [{"old": old, "new": new} for old, new in difference.renamed],
    }


def _named(policy: Policy) -> dict[str, Any]:
    return {"name": policy.name, "revision": policy.revision, "sha256": policy.sha256}


def _change(change: Change) -> dict[str, Any]:
    permission = change.permission
    hops = [
        {
            "senders": [*hop.senders],
            "recipients": [*hop.recipients],
            "kind": hop.kind.value,
            "ways": [[transport, same_host] for transport, same_host in hop.ways],
        }
        for hop in sorted(
            change.hops, key=lambda each: (each[:2], each.kind.strength, str(each.ways))
        )
    ]
    return {
        "effect": change.effect,
        "what": permission.what,
        "value": permission.value,
        "side": permission.side,
        "authors": [*change.authors],
        "hops": hops,
    }
