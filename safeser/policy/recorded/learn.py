"""Propose a policy from recorded traffic: what was seen, and what its roles need, by exact names.

The one rule: what is written loads, and permits the traffic that it was learned from; what no
policy can permit is named in a comment. Names come from unverified logs: each is checked, and
quoted where YAML could read it as something else.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from safeser.errors import ConfigError
from safeser.gate.decision import COMPUTE, SUBMIT, SUBMITTING
from safeser.gate.values import ANY_AUTHOR, FAMILIES, HARMLESS, SEALED, Kind
from safeser.operations import Server
from safeser.policy.observing import taking_code
from safeser.policy.policy import Policy
from safeser.policy.questions.readable import BRINGING
from safeser.policy.questions.roles import REGISTERING, Need, Roles
from safeser.policy.questions.task_workers import schedulers
from safeser.policy.recorded.replay import leading, replay
from safeser.policy.recorded.traffic import Message, Seen, Traffic
from safeser.policy.rules import CODE_OPERATIONS, READING, SIGNED_OPERATIONS
from safeser.policy.source.context import Rule
from safeser.policy.source.loader import is_plain
from safeser.policy.source.scope import GROUP

__all__ = ["learn"]

#: Stands beside what a role needs and no record names.
_UNSEEN = "not seen, needed by the role"

#: Granted where sealed replies are all that was seen: an operation whose code is signed.
_SIGNED = "plugin-add"

#: What runs in its recipient, by families and operations.
_CODE, _RUNNING = frozenset({"cloudpickle", SEALED}), CODE_OPERATIONS | SUBMITTING


@dataclass(slots=True)
class _Cell:
    """What was seen from one sender to one recipient in one kind."""

    seen: Seen = field(default_factory=Seen)
    operations: dict[str, Seen] = field(default_factory=dict)
    carried: dict[str, Seen] = field(default_factory=dict)
    authors: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)

    def add(self, message: Message, seen: Seen) -> None:
        if message.reads:
            self.values.add(str(message.author))
            return
        self.seen.join(seen)
        if message.operation is not None:
            self.operations.setdefault(message.operation, Seen()).join(seen)
        self.carried.setdefault(message.family, Seen()).join(seen)
        if message.author not in (None, ANY_AUTHOR) and message.family not in HARMLESS:
            self.authors.add(str(message.author))


class _Grant(NamedTuple):
    """What a context of the proposal says beside its place."""

    families: tuple[str, ...]
    operations: frozenset[str]
    authors: frozenset[str]
    submission: str
    profiles: tuple[str, ...]
    allowed: tuple[str, ...]
    values: frozenset[str]
    own: bool


class _Place(NamedTuple):
    senders: frozenset[str]
    recipients: frozenset[str]
    kind: Kind


def learn(traffic: Traffic, *, like: Policy | None = None) -> str:
    """Return the text of a policy that permits *traffic*.

    :param like: the policy under which it was recorded: groups, profiles, allowed names, classes
        and values are taken from it as far as they are needed. Code is proposed where it
        sends code and nowhere else; without it, to the schedulers, workers and nannies of the logs.
    """
    if like is not None:
        like = like.written or like  # what a policy says, where it only observes
    cells: dict[tuple[str, str, Kind], _Cell] = {}
    for message, seen in sorted(traffic.messages.items(), key=lambda each: _order(each[0])):
        for each in (message, *message.halves()):
            cells.setdefault(each[:3], _Cell()).add(each, seen)
    _add_needs(cells)
    taking, leads = _add_readers(cells, traffic), leading(traffic)
    if like is not None:
        taking, leads = taking_code(like.contexts, like.families), leads | schedulers(like)
    for (_, recipient, _), cell in cells.items():
        if recipient not in taking:
            _leave_code_out(cell, is_relay=recipient in leads)
    names = sorted(
        {name for sender, recipient, _ in cells for name in (sender, recipient)}.union(
            *(cell.authors | cell.values for cell in cells.values())
        )
    )
    grants = {place: _grant(place, cell, like, names) for place, cell in cells.items()}
    unseen = any(not seen.times for cell in cells.values() for seen in cell.operations.values())
    lines = [*_head(traffic, like, unseen=unseen), *_principals(names, like), "", "contexts:"]
    groups = _groups(names, like)
    for number, (merged, grant) in enumerate(_merged(grants), 1):
        inside = [
            cell
            for (sender, recipient, kind), cell in cells.items()
            if sender in merged.senders and recipient in merged.recipients and kind is merged.kind
        ]
        lines += _context(number, merged, grant, inside, groups)
    if not cells:
        return "\n".join([*lines, "  # The logs name nothing that was permitted.", "...", ""])
    return _checked("\n".join(lines) + "\n", traffic, taking)


def _add_needs(cells: dict[tuple[str, str, Kind], _Cell]) -> None:
    """Add what the roles that were seen ask for sooner or later, such as to end a worker.

    What hands out code or reads values is not added: that is learned from traffic alone.
    """
    shuffling = any("shuffle_get_or_create" in cell.operations for cell in cells.values())
    for roles in list(_roles(cells)):
        for need in roles.needs(shuffling=shuffling):
            if _is_of_others(need, roles, cells):
                continue
            if need.is_upkeep and not any(
                need.operation in cell.operations
                for (sender, recipient, kind), cell in cells.items()
                if (sender, recipient) == need[:2] and kind.strength >= need.kind.strength
            ):
                cells.setdefault(need[:3], _Cell()).operations[need.operation] = Seen()
                # Dask's own handshake and what answers a request name no operation.
                cells.setdefault((need.sender, need.recipient, Kind.ADMIN), _Cell())
                cells.setdefault((need.recipient, need.sender, Kind.ADMIN), _Cell())


def _is_of_others(need: Need, roles: Roles, cells: Mapping[tuple[str, str, Kind], _Cell]) -> bool:
    """Tell whether *need* is between a worker and a nanny that, for all we know, is another's.

    Of one nanny principal all workers are; of several, those that share a key or have spoken.
    """
    ends = {need.sender, need.recipient}
    if len(roles.nannies) < 2 or need.recipient not in roles.nannies or len(ends) == 1:
        return False
    if need.sender == roles.scheduler or need.sender not in roles.workers:
        return False
    return not any({sender, recipient} == ends for sender, recipient, _ in cells)


def _roles(cells: Mapping[tuple[str, str, Kind], _Cell]) -> Iterator[Roles]:
    """Yield for each scheduler who registered with it, and as what."""
    found: dict[str, dict[Server, set[str]]] = {}
    for (sender, recipient, _), cell in cells.items():
        for name in REGISTERING.keys() & cell.operations.keys():
            ones = found.setdefault(recipient, {}).setdefault(REGISTERING[name], set())
            ones.add(sender)
    for scheduler, by_role in sorted(found.items()):
        yield Roles(
            scheduler,
            workers=by_role.get(Server.WORKER, ()),
            nannies=by_role.get(Server.NANNY, ()),
            clients=by_role.get(Server.CLIENT, ()),
        )


def _add_readers(cells: Mapping[tuple[str, str, Kind], _Cell], traffic: Traffic) -> frozenset[str]:
    """Add to those who fetch values from workers whose these are; return who runs code, as seen.

    Workers give their values to readers of all users alone, and to each other.
    """
    seen, leads = list(_roles(cells)), leading(traffic)
    runs = frozenset().union(*((*one.workers, *one.nannies) for one in seen))
    users = {
        sender
        for (sender, recipient, _), cell in cells.items()
        if recipient in leads and cell.operations.keys() & (SUBMITTING | BRINGING)
    }
    for (sender, recipient, _), cell in cells.items():
        if sender in runs:
            cell.values.clear()
        elif "get_data" in cell.operations and not {sender, recipient} & leads:
            cell.values |= users - runs - {sender}
    return runs | {one.scheduler for one in seen}


def _leave_code_out(cell: _Cell, *, is_relay: bool) -> None:
    """Take out of *cell* what would run in a process to which nothing is known to send code.

    An operator who wants such a line writes it by hand: a user's process has a user's key.

    :param is_relay: whether it hands sealed calls on, and opens none.
    """
    sealed = is_relay and SEALED in cell.carried
    for name in _RUNNING - (SIGNED_OPERATIONS | SUBMITTING if sealed else frozenset()):
        cell.operations.pop(name, None)
    for family in _CODE - ({SEALED} if sealed else set()):
        cell.carried.pop(family, None)
    if cell.carried.keys() <= HARMLESS:
        cell.authors.clear()


def _order(message: Message) -> tuple[object, ...]:
    sender, recipient, kind, operation, family, author, *_ = message
    return sender, recipient, kind.strength, operation or "", family, author or ""


def _checked(text: str, traffic: Traffic, taking: Collection[str]) -> str:
    """Return *text*, with a comment for each message that it refuses, which no policy permits."""
    try:
        policy = Policy.parse(text, source="<learned>")
    except ConfigError as error:
        raise ConfigError(
            f"no policy permits just this traffic: {error.message}",
            rule="config.learned",
            fix="Name the policy under which it was recorded with --like: it has groups that this"
            " needs. Or name fewer logs.",
        ) from None
    refused = replay(policy, traffic)
    by_hand = "\n#     RISK: code where none is sent to: a context that says so is written by hand"
    lines = [
        f"#   {m.sender} -> {m.recipient} {m.kind.value} {m.operation or ''} as {m.family}"
        f" of {m.author or m.sender}: {each.decision.rule}, {each.seen.times:,} times"
        + by_hand
        * (m.recipient not in taking and (m.family in _CODE or m.operation in _RUNNING))
        for each in refused
        for m in (each.message,)
    ]
    if lines:
        lines = ["", "# Recorded as permitted, and not permitted above:", *lines]
    return text + "\n".join([*lines, "...", ""])


# --- grants ---------------------------------------------------------------------------------------


def _grant(
    place: tuple[str, str, Kind], cell: _Cell, like: Policy | None, names: Collection[str]
) -> _Grant:
    asked = Message(*place, None, "msgpack", None).context(same_host=True)
    rule = None if like is None else like.match(asked)
    submission = _submission(cell, rule)
    operations = frozenset(cell.operations)
    if submission == SEALED and not operations & ({SUBMIT, COMPUTE} | SIGNED_OPERATIONS):
        operations |= {_SIGNED}
    families = {"msgpack", *cell.carried} - {SEALED, "error"}
    if "cloudpickle" in families:
        families.add("pickle")
    pickles = "pickle" in families
    allow: tuple[str, ...] = ()
    if rule is not None and pickles:
        allow = tuple(sorted(f"{each.name}={each.role}" for each in rule.allow if _simple(each)))
    values = frozenset() if rule is None else rule.values & {*names}
    if not cell.values <= values:
        values = (values | cell.values) - {place[0]}  # which reads its own anyway
    return _Grant(
        families=tuple(sorted(families, key=_strength)),
        operations=operations,
        authors=frozenset(cell.authors),
        submission=submission,
        profiles=(rule.profiles if rule is not None else ("data",)) if pickles else (),
        allowed=allow,
        values=values if READING & operations else frozenset(),
        own=rule is not None and rule.classes == "own" and "dask" in families,
    )


def _simple(allowed: object) -> bool:
    more = ("fields", "kwargs", "grows", "returns", "hashable", "setstate")
    return not any(getattr(allowed, name) for name in more)


def _strength(family: str) -> tuple[int, str]:
    return (FAMILIES.index(family) if family in FAMILIES else len(FAMILIES), family)


def _submission(cell: _Cell, rule: Rule | None) -> str:
    running = cell.operations.keys() & _RUNNING
    if "cloudpickle" in cell.carried:
        return "code"
    # Calls of actors carry no signature, and need no more than the policy says that had them.
    signed = rule is not None and rule.submission == SEALED and running <= SIGNED_OPERATIONS
    if SEALED in cell.carried or (running and signed):
        return SEALED
    return "code" if running else "none"


def _merged(grants: Mapping[tuple[str, str, Kind], _Grant]) -> list[tuple[_Place, _Grant]]:
    """Return the places with their grants, those with the same grant together."""
    senders: dict[tuple[str, Kind, _Grant], set[str]] = {}
    for (sender, recipient, kind), grant in grants.items():
        senders.setdefault((recipient, kind, grant), set()).add(sender)
    recipients: dict[tuple[frozenset[str], Kind, _Grant], set[str]] = {}
    for (recipient, kind, grant), ones in senders.items():
        recipients.setdefault((frozenset(ones), kind, grant), set()).add(recipient)
    found = [
        (_Place(ones, frozenset(others), kind), grant)
        for (ones, kind, grant), others in recipients.items()
    ]
    return sorted(found, key=lambda each: (*map(sorted, each[0][:2]), each[0].kind.strength))


# --- text -----------------------------------------------------------------------------------------


def _head(traffic: Traffic, like: Policy | None, *, unseen: bool) -> Iterator[str]:
    times = list(traffic.messages.values())
    first = min((seen.first for seen in times), default=0)
    last = max((seen.last for seen in times), default=0)
    yield f"# Learned from {traffic.times:,} permitted messages, {_span(first, last)}."
    if traffic.skipped:
        yield f"# {traffic.skipped:,} messages are left out: no policy decides about them."
    yield "# The logs are taken as they are: run 'safeser audit verify' on them first."
    yield "# Review every line marked RISK. Logs name no globals of pickles, so that 'pickle'"
    if like is None:
        yield "# is not learned: --like POLICY takes it from one."
    else:
        yield f"# and further 'values' are those of {like.name} revision {like.revision}."
    if unseen:
        yield f"# What says '{_UNSEEN}' is in no log: without it, processes lose"
        yield "# connections, wait for tasks that failed, or do not shut down."
    yield "safeser: 1"
    yield f"name: {_text(like.name if like else 'learned')}"
    yield f"revision: {like.revision + 1 if like else 1}"
    own = {message.family for message in traffic.messages} - {*FAMILIES, SEALED}
    if own:
        yield "# RISK: code of the processes that read them"
        yield f"families: [{', '.join(map(_text, sorted(own)))}]"
    yield ""


def _principals(names: Iterable[str], like: Policy | None) -> Iterator[str]:
    yield "principals:"
    for name in names:
        listed = None if like is None else like.principals.get(name)
        groups = sorted(listed.groups) if listed else []
        inside = f"groups: [{', '.join(map(_text, groups))}]" if groups else ""
        new = like is not None and listed is None
        risk = f"    # RISK: {like.name} does not list it" if like is not None and new else ""
        yield f"  {_text(name)}: {{{inside}}}{risk}"


def _groups(names: Collection[str], like: Policy | None) -> Mapping[frozenset[str], str]:
    """Return the groups by their members, as far as those were seen."""
    members: dict[str, set[str]] = {}
    for name in names:
        listed = None if like is None else like.principals.get(name)
        for group in listed.groups if listed else ():
            members.setdefault(group, set()).add(name)
    return {frozenset(each): GROUP + group for group, each in sorted(members.items())}


def _whole(cells: Iterable[_Cell]) -> _Cell:
    whole = _Cell()
    for cell in cells:
        whole.seen.join(cell.seen)
        for into, each in ((whole.operations, cell.operations), (whole.carried, cell.carried)):
            for name, one in each.items():
                into.setdefault(name, Seen()).join(one)
    return whole


def _context(
    number: int,
    place: _Place,
    grant: _Grant,
    cells: Iterable[_Cell],
    groups: Mapping[frozenset[str], str],
) -> Iterator[str]:
    whole = _whole(cells)
    yield f"  - name: {_text(_name(number, place, groups))}"
    yield f"    # {_counted(whole.seen, 'messages')}"
    yield f"    sender: {_people(place.senders, groups)}"
    yield f"    recipient: {_people(place.recipients, groups)}"
    risk = (
        "    # RISK: these end, restart and register processes"
        if place.kind is Kind.CONTROL
        else ""
    )
    yield f"    kinds: [{place.kind.value}]{risk}"
    if grant.authors:
        yield "    # RISK: what these wrote passes as if the sender wrote it"
        yield f"    authors: {_people(grant.authors, groups, single=False)}"
    if grant.values:
        yield f"    values: {_people(grant.values, groups, single=False)}"
    if grant.submission != "none":
        yield f"    # RISK: {_RISKS[grant.submission]}"
        yield f"    submission: {grant.submission}"
    if grant.families != ("msgpack",):
        seen = ", ".join(f"{name} {each.times:,}" for name, each in sorted(whole.carried.items()))
        listed = ", ".join(map(_text, grant.families))
        yield f"    serializers: [{listed}]    # {seen}"
        yield f"    deserializers: [{listed}]"
    if grant.own:
        yield "    classes: own"
    if grant.profiles:
        allow = "".join(
            f'{", " if at else ""}"{name}": {role}'
            for at, (name, _, role) in enumerate(each.partition("=") for each in grant.allowed)
        )
        more = f", allow: {{{allow}}}" if allow else ""
        yield f"    pickle: {{profile: [{', '.join(grant.profiles)}]{more}}}"
    if grant.operations:
        yield "    operations:"
        yield "      grant:"
        for name in sorted(grant.operations):
            times = whole.operations.get(name)
            said = "so that sealed replies pass" if times is None else _counted(times, "times")
            risk = "RISK: runs what is sent; " if name in CODE_OPERATIONS else ""
            # A group has the name of one of its operations.
            spelled = "worker-run" if name == "run" else name
            yield f"        - {spelled}    # {risk}{said}"


_RISKS = {
    "code": "these senders can run any code in these recipients, and read their keys",
    SEALED: "any code that its authors signed is taken, and run by workers",
}


def _people(
    names: frozenset[str], groups: Mapping[frozenset[str], str], *, single: bool = True
) -> str:
    group = groups.get(names)
    if group is not None and (len(names) > 1 or not single):
        listed = [_text(group)]
    else:
        listed = [_text(name) for name in sorted(names)]
    return listed[0] if single and len(listed) == 1 else f"[{', '.join(listed)}]"


def _text(name: str) -> str:
    """Return *name*, which is printable ASCII, as YAML that every reader takes for this text."""
    return name if is_plain(name) else f'"{name}"'


def _name(number: int, place: _Place, groups: Mapping[frozenset[str], str]) -> str:
    ends = (_label(place.senders, groups), _label(place.recipients, groups))
    return f"{'-to-'.join(ends)}-{place.kind.value}-{number}"


def _label(names: frozenset[str], groups: Mapping[frozenset[str], str]) -> str:
    """Return a short text for *names*, all of which a reader of the context's name is told of."""
    if len(names) > 1 and names in groups:
        return groups[names].removeprefix(GROUP)[:20]
    more = f"-and-{len(names) - 1}-more" if len(names) > 1 else ""
    return f"{min(names)[:20]}{more}"


def _counted(seen: Seen, what: str) -> str:
    if not seen.times:
        return _UNSEEN
    return f"{seen.times:,} {what}, {_span(seen.first, seen.last)}"


def _span(first: int, last: int) -> str:
    one, other = _moment(first), _moment(last)
    return one if one == other else f"{one} to {other}"


def _moment(microseconds: int) -> str:
    try:
        found = datetime.datetime.fromtimestamp(microseconds // 1_000_000, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return "at a time that no calendar has"
    return f"{found:%Y-%m-%d %H:%M:%S}"
