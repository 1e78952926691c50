"""Check the fields of one context against the floors and against each other.

The one rule: a context that would widen a floor, or whose fields contradict each other, does not
load. Decisions keep the floors as well; what is refused here is a file that misleads its reader.
"""

from __future__ import annotations

from safeser.gate.decision import COMPUTE, SUBMIT
from safeser.gate.values import HARMLESS, SEALED, UNKNOWN, Kind
from safeser.policy.moved import retired_profile
from safeser.policy.rules import (
    CODE_OPERATIONS,
    PICKLES,
    READING,
    RETIRED_PROFILES,
    SIGNED_OPERATIONS,
    UNKNOWN_OPERATIONS,
    WEAKEST,
)
from safeser.policy.source.context import Rule, operations_of
from safeser.policy.source.entry import Entry
from safeser.policy.source.scope import GROUP

__all__ = ["check"]

#: Transports whose peers prove nothing: there is no envelope, and so no principal but ``unknown``.
_UNPROVEN = frozenset({"tcp", "tls"})


def check(entry: Entry) -> None:
    """Refuse a context whose fields do not fit together.

    :raises ConfigError: at the field that is at fault.
    """
    for each in _CHECKS:
        each(entry, entry.rule)


def _check_admin(entry: Entry, rule: Rule) -> None:
    listed = entry.listing(rule.listed - {"msgpack"})
    if rule.kinds == {Kind.ADMIN} and listed:
        entry.refuse(
            f"admin messages are plain msgpack, and no policy can let {listed[1]} into them",
            listed[0],
            rule="floor.admin",
            fix="List msgpack alone, or add the kind that carries payloads.",
        )


def _check_unknown(entry: Entry, rule: Rule) -> None:
    if UNKNOWN not in rule.senders | rule.recipients:
        return
    # What a program's own family does with bytes is not known here: it counts as the worst.
    listed = entry.listing(PICKLES | entry.scope.own)
    if listed:
        entry.refuse(
            f"no policy can let {listed[1]} pass from or to unknown",
            listed[0],
            rule="floor.unknown",
            fix="Give unknown a context of its own with dask and msgpack only.",
        )
    if rule.types:
        entry.refuse(
            "no policy can let unknown be read by what other libraries registered",
            "dask",
            rule="floor.unknown",
            fix="Give unknown a context of its own without 'dask: types'.",
        )
    if rule.classes == "own":
        entry.refuse(
            "no policy can let unknown make instances of a program's own classes",
            "classes",
            rule="floor.unknown",
            fix="Give unknown a context of its own without 'classes: own'.",
        )
    if rule.submission != "none":
        entry.refuse("no policy can let unknown submit work", "submission", rule="floor.unknown")
    beyond = sorted(rule.operations - UNKNOWN_OPERATIONS)
    if beyond:
        entry.refuse(
            f"unknown can be granted operations of group basic only, not {beyond[0]}",
            "operations",
            rule="floor.unknown",
        )


def _check_code(entry: Entry, rule: Rule) -> None:
    """Where code can pass, the file says ``submission: code``, which readers look for."""
    if rule.submission == "code":
        return
    listed = entry.listing({"cloudpickle"})
    if listed:
        entry.refuse(
            "cloudpickle is code, and a context that lists it must say 'submission: code'",
            listed[0],
            rule="config.code",
            fix="Add 'submission: code' if these senders may run any code in these recipients;"
            " otherwise take cloudpickle out.",
        )
    signed = SIGNED_OPERATIONS if rule.submission == SEALED else frozenset()
    running = sorted(rule.operations & CODE_OPERATIONS - signed)
    if running:
        entry.refuse(
            f"operation {running[0]} runs what the sender sends, and a context that grants it"
            " must say 'submission: code'",
            "operations",
            rule="config.code",
            fix="Add 'submission: code' if these senders may run any code in these recipients;"
            " otherwise do not grant it.",
        )


def _check_sealed(entry: Entry, rule: Rule) -> None:
    """``sealed`` is about graphs and about tasks of them, and about nothing else."""
    if rule.submission != SEALED:
        return
    handed = {SUBMIT, COMPUTE} & rule.operations and Kind.TASK in rule.kinds
    if not handed and not SIGNED_OPERATIONS & rule.operations:
        entry.refuse(
            f"'submission: sealed' has no effect where {SUBMIT}, {COMPUTE} of kind task and all"
            " operations that can be signed are not granted",
            "submission",
            rule="config.no-effect",
            fix=f"Grant {SUBMIT} towards a scheduler, or {COMPUTE} from it, and match kind task.",
        )
    listed = entry.listing({"pickle"})
    if listed and COMPUTE in rule.operations and rule.kinds == {Kind.TASK}:
        entry.refuse(
            "pickles have no effect here: tasks pass as their authors signed them",
            listed[0],
            rule="config.moved",
            fix="Take pickle and the field 'pickle' out.",
        )


def _check_transport(entry: Entry, rule: Rule) -> None:
    """Refuse a context whose transport never has senders and recipients like its own."""
    stranger = {UNKNOWN} in (rule.senders, rule.recipients)
    if rule.transports == {"safeser"} and stranger:
        entry.refuse(
            "this never matches: an unknown peer gets no connection on safeser://",
            "transport",
            rule="config.unreachable",
            fix="Name a principal, or another transport.",
        )
    if rule.transports <= _UNPROVEN and UNKNOWN not in rule.senders | rule.recipients:
        entry.refuse(
            "this never matches: peers on tcp:// and tls:// prove nothing and are unknown",
            "transport",
            rule="config.unreachable",
            fix="Write 'unknown' for such a peer, or another transport.",
        )


def _check_pickle(entry: Entry, rule: Rule) -> None:
    for index, name in enumerate(
        entry.names("pickle", "profile") if entry.spells("pickle") else ()
    ):
        if name in RETIRED_PROFILES:
            entry.refuse(
                f"profile {name} held parts of Dask's graphs, which no policy lists any more",
                "pickle",
                "profile",
                index,
                rule="config.moved",
                fix=retired_profile(rule.name),
            )
    if entry.spells("pickle") and "pickle" not in rule.listed:
        entry.refuse(
            "a pickle profile has no effect where no list of families holds pickle",
            "pickle",
            rule="config.no-effect",
            fix="Take it out, or list pickle.",
        )


def _check_types(entry: Entry, rule: Rule) -> None:
    if rule.types and "dask" not in rule.deserializers:
        entry.refuse(
            "types have no effect where 'deserializers' does not hold dask",
            "dask",
            rule="config.no-effect",
            fix="Take them out, or list dask.",
        )
    if rule.classes == "own" and "dask" not in rule.deserializers:
        entry.refuse(
            "'classes: own' has no effect where 'deserializers' does not hold dask",
            "classes",
            rule="config.no-effect",
            fix="Take it out, or list dask.",
        )


def _check_operations(entry: Entry, rule: Rule) -> None:
    """Refuse a grant whose every message is of a kind that the context does not match."""
    strongest = Kind.strongest([*rule.kinds]).strength
    for index, name in enumerate(entry.names("operations", "grant") if rule.operations else ()):
        granted = operations_of(name)
        weakest = min((WEAKEST[each] for each in granted), key=lambda kind: kind.strength)
        if weakest.strength > strongest:
            entry.refuse(
                f"{name} is of kind {weakest.value}, which this context does not match",
                "operations",
                "grant",
                index,
                rule="config.no-effect",
                fix=f"Add {weakest.value} to 'kinds', or take it out.",
            )


def _check_sender_listed(entry: Entry, rule: Rule) -> None:
    """Refuse the only sender among the authors whose payloads or values it may handle."""
    for field, why in _OF_OTHERS.items():
        for index, name in enumerate(entry.names(field)):
            # A group of one may have more members in the next revision, whose values it then reads.
            fixed = field == "authors" or not name.startswith(GROUP)
            if len(rule.senders) == 1 and rule.senders == entry.scope.members[name] and fixed:
                entry.refuse(
                    f"{name} is the sender, and {why}",
                    field,
                    index,
                    rule="config.no-effect",
                    fix="Take it out.",
                )


_OF_OTHERS = {
    "authors": "what it wrote itself needs no listing",
    "values": "it may read its own values anyway",
}


def _check_authors(entry: Entry, rule: Rule) -> None:
    if not rule.authors:
        return
    if not rule.types and rule.submission != SEALED and rule.listed <= HARMLESS:
        entry.refuse(
            "authors have no effect here: msgpack and dask pass from any author",
            "authors",
            rule="config.no-effect",
            fix="Take them out, or list the family that they may write.",
        )
    if "safeser" not in rule.transports:
        entry.refuse(
            "authors have no effect here: only what Dask relays on safeser:// names one",
            "authors",
            rule="config.no-effect",
            fix="Take them out, or add safeser to 'transport'.",
        )


def _check_values(entry: Entry, rule: Rule) -> None:
    if rule.values and not READING & rule.operations:
        entry.refuse(
            "values have no effect here: the sender may ask the recipient for none",
            "values",
            rule="config.no-effect",
            fix="Take them out, or grant gather towards a scheduler, or get_data towards a worker.",
        )
    if rule.values and UNKNOWN in rule.senders:
        entry.refuse(
            "no policy can let unknown read values of others", "values", rule="floor.unknown"
        )


def _check_key_conflicts(entry: Entry, rule: Rule) -> None:
    if not entry.spells("key_conflicts"):
        return
    graphs = SUBMIT in rule.operations and Kind.TASK in rule.kinds
    if not graphs or rule.submission == "none":
        entry.refuse(
            "key conflicts come with submitted work, which this context does not let through",
            "key_conflicts",
            rule="config.no-effect",
            fix=f"Take them out, or grant {SUBMIT} and say 'submission: sealed' or 'code'.",
        )


def _check_audit(entry: Entry, rule: Rule) -> None:
    """Where code can pass, the log says who sent it: it has a record of each piece of code."""
    if rule.audit == "counts" and _passes_code(rule):
        entry.refuse(
            "code passes here, and a log that has counts alone cannot say whose it was",
            "audit",
            rule="config.audit-level",
            fix="Write 'audit: refusals', which keeps a record of each refusal and of code.",
        )


def _check_audit_failure(entry: Entry, rule: Rule) -> None:
    """No code passes without a record, whatever the disk does."""
    # What a program's own family does with bytes is not known here: it counts as the worst.
    own = entry.listing(entry.scope.own)
    if rule.audit_failure.level and (_passes_code(rule) or own):
        what = "code" if own is None else f"family {own[1]}, which may bring code,"
        entry.refuse(
            f"{what} passes here, and it is refused where the log cannot be written",
            "audit_failure",
            rule="config.audit-failure",
            fix="Take audit_failure out, or give data a context of its own with it.",
        )


def _passes_code(rule: Rule) -> bool:
    return rule.submission in ("code", SEALED) or "cloudpickle" in rule.listed


#: In the order in which a file that fails several is corrected.
_CHECKS = (
    _check_pickle,
    _check_types,
    _check_operations,
    _check_sender_listed,
    _check_audit,
    _check_audit_failure,
    _check_admin,
    _check_unknown,
    _check_sealed,
    _check_code,
    _check_transport,
    _check_authors,
    _check_values,
    _check_key_conflicts,
)
