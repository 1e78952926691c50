"""Compare two policies: what the new one newly permits, newly refuses, or settles another way.

The one rule: the answer is exact. Both policies are asked about every hop of their common domain,
so that a message whose answer differs is among the changes, and no other is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from safeser.gate.values import AuditFailure, Context, Kind
from safeser.policy.confined import Confined
from safeser.policy.policy import Policy
from safeser.policy.questions.code_paths import CodePath, code_paths_among
from safeser.policy.questions.domain import Domain, Hops, Way
from safeser.policy.questions.permissions import Permission, contents, derived
from safeser.policy.rules import AUDIT_LEVELS
from safeser.policy.source.context import Rule

__all__ = ["Change", "Difference", "Effect", "Hop", "PathChange", "Setting", "compare"]

#: ``loosens`` lets through what the old policy refuses, ``tightens`` the reverse.
Effect = Literal["loosens", "tightens"]


class Hop(NamedTuple):
    """Where a permission changes: a pair of classes of principals, a kind, and ways."""

    senders: tuple[str, ...]
    recipients: tuple[str, ...]
    kind: Kind
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One permission that only one of the two policies has.

    :param hops: where; one entry for each pair of classes, kind and way.
    :param authors: the principals that its author stands for; a sender among them is not meant.
    """

    effect: Effect
    permission: Permission
    authors: tuple[str, ...]
    hops: frozenset[Hop]


@dataclass(frozen=True, slots=True)
class Setting:
    """A value beside the contexts that differs.

    :param what: its name, such as ``limits.max_bytes``.
    :param old: its old value as text, empty for none.
    """

    effect: Effect
    what: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class PathChange:
    """A chain of grants of code between principals, of which only one of the two policies has any.

    Another chain between the same two is no change.
    """

    effect: Effect
    path: CodePath


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs between two policies.

    :param paths: who can newly, or no longer, run code as whom.
    :param renamed: principals, by their old names, whose new names have all that they had.
    :param domain: the principals of both, by classes.
    """

    old: Policy
    new: Policy
    domain: Domain
    changes: tuple[Change, ...]
    settings: tuple[Setting, ...]
    paths: tuple[PathChange, ...]
    renamed: tuple[tuple[str, str], ...]

    @property
    def loosens(self) -> bool:
        """Whether the new policy lets anything through that the old one refuses."""
        every: tuple[Change | Setting | PathChange, ...]
        every = (*self.changes, *self.settings, *self.paths)
        return any(each.effect == "loosens" for each in every)

    def __bool__(self) -> bool:
        return bool(self.changes or self.settings or self.paths)


def compare(old: Policy, new: Policy) -> Difference:
    """Return what differs between *old* and *new*; names of contexts and groups do not count."""
    # Dates are compared as dates: the answer does not depend on the day on which it is asked.
    old, new = old.as_of(None), new.as_of(None)
    domain = Domain.of(old, new)
    asked = _Asked(old, domain), _Asked(new, domain)
    found: dict[tuple[Effect, Permission, tuple[str, ...]], set[Hop]] = {}
    for hops in domain.hops():
        for effect, permission, authors in _differing(*asked, hops):
            found.setdefault((effect, permission, authors), set()).add(Hop(*hops))
    changes = tuple(
        Change(effect, permission, authors, frozenset(where))
        for (effect, permission, authors), where in sorted(found.items(), key=lambda each: each[0])
    )
    settings = tuple(_settings(old, new, domain))
    paths = tuple(_paths(old, new, domain))
    return Difference(old, new, domain, changes, settings, paths, tuple(_renamed(old, new)))


class _Asked:
    """One policy, with what it answered so far: many hops are decided by one context."""

    def __init__(self, policy: Policy, domain: Domain) -> None:
        self.policy = policy
        self.domain = domain
        self._contents: dict[tuple[object, ...], frozenset[Permission]] = {}

    def contents(self, context: Context, authors: Collection[str]) -> frozenset[Permission]:
        """Return what the context that matches says; it matches all ways and recipients alike."""
        rule = self.policy.match(context)
        key = (rule and rule.name, context.sender, context.kind, *self.knows(context))
        found = self._contents.get(key)
        if found is None:
            found = self._contents[key] = contents(self.policy, context, authors)
        return found

    def knows(self, context: Context) -> tuple[bool, bool]:
        listed = self.policy.principals
        return context.sender in listed, context.recipient in listed


def _differing(
    old: _Asked, new: _Asked, hops: Hops
) -> Iterator[tuple[Effect, Permission, tuple[str, ...]]]:
    context = hops.context
    rules = old.policy.match(context), new.policy.match(context)
    if rules == (None, None):
        return
    yield from _ends(*rules)
    classes = old.domain.authors(context.sender)
    before, after = (derived(each.policy, context, classes) for each in (old, new))
    if not _same(*rules) or old.knows(context) != new.knows(context):
        before |= old.contents(context, classes)
        after |= new.contents(context, classes)
    differing: tuple[tuple[Effect, frozenset[Permission]], ...] = (
        ("loosens", after - before),
        ("tightens", before - after),
    )
    for effect, only in differing:
        for each in only:
            authors = classes.get(each.author, ())
            yield effect, each._replace(author=min(authors, default="")), authors


#: The fields of a context by which messages match it, that are compared apart, or that nothing is
#: decided by.
_PLACE = frozenset(
    {
        *("name", "senders", "recipients", "kinds", "until", "transports", "same_host"),
        *("audit", "audit_failure"),
    }
)


def _same(one: Rule | None, other: Rule | None) -> bool:
    """Tell whether two contexts let the same through, wherever they match."""
    if one is None or other is None:
        return False
    return all(
        getattr(one, field.attribute) == getattr(other, field.attribute)
        for field in Rule.fields.values()
        if field.attribute not in _PLACE
    )


def _ends(
    old: Rule | None, new: Rule | None
) -> Iterator[tuple[Effect, Permission, tuple[str, ...]]]:
    """Yield the date that differs, or that all has which passes newly."""
    before, after = (None if each is None else each.until for each in (old, new))
    if new is None or before == after:
        return
    value = "" if after is None else str(after)
    if old is None:
        yield "loosens", Permission("until", value), ()
        return
    later = after is None or (before is not None and after > before)
    yield "loosens" if later else "tightens", Permission("until", f"{before or ''}, {value}"), ()


def _paths(old: Policy, new: Policy, domain: Domain) -> Iterator[PathChange]:
    before, after = (
        {path.ends: path for path in code_paths_among(one, domain.classes)} for one in (old, new)
    )
    yield from (PathChange("loosens", after[ends]) for ends in after if ends not in before)
    yield from (PathChange("tightens", before[ends]) for ends in before if ends not in after)


# --- beside the contexts --------------------------------------------------------------------------


def _settings(old: Policy, new: Policy, domain: Domain) -> Iterator[Setting]:
    for limit in fields(old.limits):
        before, after = getattr(old.limits, limit.name), getattr(new.limits, limit.name)
        if before != after:
            effect: Effect = "loosens" if after > before else "tightens"
            yield Setting(effect, f"limits.{limit.name}", str(before), str(after))
    if old.dashboard != new.dashboard:
        effect = "tightens" if new.dashboard is None else "loosens"
        yield Setting(effect, "dashboard.address", old.dashboard or "", new.dashboard or "")
    if old.audit != new.audit:
        effect = "loosens" if new.audit == "none" else "tightens"
        yield Setting(effect, "audit", old.audit, new.audit)
    for family in sorted(old.families ^ new.families):
        # What may pass in it stands among the changes.
        yield _entry(f"families {family}", "declared", added=family in new.families)
    yield from _logged(old, new)
    for name in sorted(old.principals.keys() | new.principals.keys()):
        yield from _principal(name, old, new)


def _logged(old: Policy, new: Policy) -> Iterator[Setting]:
    """Yield the contexts of which the log has more or less, or stops more or less where it fails.

    One that is new, or has a new name, is compared with the defaults: what its messages were
    subject to before may differ from one to the other.
    """
    every = AUDIT_LEVELS[0]
    for name in sorted(each.name for each in new.contexts):
        before, after = (each.audit_levels.get(name, every) for each in (old, new))
        less = AUDIT_LEVELS.index(after) - AUDIT_LEVELS.index(before)
        if less:
            yield Setting("loosens" if less > 0 else "tightens", f"audit of {name}", before, after)
    for name in sorted(each.name for each in new.contexts):
        failing, now = (each.audit_failures.get(name, AuditFailure()) for each in (old, new))
        if failing != now:
            effect: Effect = "loosens" if now > failing else "tightens"
            yield Setting(effect, f"audit_failure of {name}", str(failing), str(now))


def way_words(ways: tuple[Way, ...], domain: Domain) -> str:
    """Return how messages come that come by *ways*; empty if all do."""
    if len(domain.ways) == 1:
        return ""
    transports = {name for name, _ in ways}
    hosts = {host for _, host in ways}
    over = near = ""
    if len(transports) != _TRANSPORTS:
        over = f" over {', '.join(sorted(name or 'no known transport' for name in transports))}"
    if len(hosts) != len(_HOSTS):
        near = f" from {' or '.join(words for host, words in _HOSTS.items() if host in hosts)}"
    return over + near


_TRANSPORTS = 6
_HOSTS = {True: "this host", False: "another host", None: "an unknown host"}


def _entry(what: str, value: str, *, added: bool) -> Setting:
    """Return the change by which only the new policy has a *value*, or only the old one."""
    if added:
        return Setting("loosens", what, "", value)
    return Setting("tightens", what, value, "")


def _principal(name: str, old: Policy, new: Policy) -> Iterator[Setting]:
    before, after = old.principals.get(name), new.principals.get(name)
    if before is None or after is None:
        yield _entry(f"principal {name}", "listed", added=before is None)
    keys = tuple(frozenset(each.keys) if each else frozenset() for each in (before, after))
    for key in sorted(keys[0] ^ keys[1], key=lambda each: each.fingerprint):
        yield _entry(f"key of {name}", key.fingerprint, added=key in keys[1])
    if before and after and before.confined != after.confined:
        tighter = _demands(after.confined, before.confined)
        yield Setting(
            "tightens" if tighter else "loosens",
            f"confined {name}",
            _demand(before.confined),
            _demand(after.confined),
        )


def _demand(confined: Confined | None) -> str:
    if confined is None:
        return ""
    return "; ".join(f"{what} {said}" for what, said in confined.sentences())


def _demands(one: Confined | None, other: Confined | None) -> bool:
    """Tell whether *one* lets its process do nothing that *other* does not let it."""
    if one is None or other is None:
        return other is None
    return (
        {*one.read, *one.write} <= {*other.read, *other.write}
        and {*one.write} <= {*other.write}
        and (other.execute or not one.execute)
        and (other.connect == "any" or (one.connect != "any" and _ports(one) <= _ports(other)))
    )


def _ports(confined: Confined) -> set[int]:
    return {port for ports in confined.ports for port in ports}


def _renamed(old: Policy, new: Policy) -> Iterator[tuple[str, str]]:
    """Yield the principals that stand in the new policy where another name stood in the old one."""
    gone = sorted(old.principals.keys() - new.principals.keys())
    come = sorted(new.principals.keys() - old.principals.keys())
    for name in gone:
        places = _standing(old, name)
        same = [each for each in come if _standing(new, each) == places]
        twins = [each for each in gone if _standing(old, each) == places]
        if len(same) == 1 and len(twins) == 1:
            yield name, same[0]


def _standing(policy: Policy, name: str) -> tuple[object, ...]:
    """Return in which contexts of which name, and as what, *name* stands."""
    return tuple(
        (rule.name, name in rule.senders, name in rule.recipients, name in rule.authors)
        for rule in policy.contexts
        if name in rule.senders | rule.recipients | rule.authors | rule.values
    )
