"""What the fields of one context mean together: floors, and what a word in one needs in another.

The one rule: a context that would widen a floor, or whose words contradict each other, does not
load. Deciding keeps the floors as well; what is refused here is a file that misleads its reader.
"""

from __future__ import annotations

from collections.abc import Collection

from safeser.policy.rules import (
    APPROVED,
    CODE_OPERATIONS,
    COMPUTE,
    HARMLESS,
    PICKLES,
    READING,
    SIGNED_OPERATIONS,
    SUBMIT,
    UNKNOWN_OPERATIONS,
    Rule,
)
from safeser.policy.source.entry import Entry
from safeser.values import SEALED, UNKNOWN, Kind

__all__ = ["check"]

#: Transports whose peers prove nothing: there is no envelope, and so no principal but ``unknown``.
_UNPROVEN = frozenset({"tcp", "tls"})


def check(entry: Entry, rule: Rule, *, listable: Collection[str], own: frozenset[str]) -> None:
    """Refuse *rule*, which *entry* spells, where its parts do not fit together.

    :param listable: families that a policy can list.
    :param own: those of them that it declares itself.
    :raises ConfigError: at the field that is at fault.
    """
    _check_admin(entry, rule, listable)
    _check_unknown(entry, rule, own)
    _check_approved(entry, rule)
    _check_sealed(entry, rule)
    _check_code(entry, rule)
    _check_transport(entry, rule)
    _check_authors(entry, rule)
    _check_values(entry, rule)
    _check_key_conflicts(entry, rule)


def _check_admin(entry: Entry, rule: Rule, listable: Collection[str]) -> None:
    listed = entry.listing({*listable} - {"msgpack"})
    if rule.kinds == {Kind.ADMIN} and listed:
        entry.refuse(
            f"admin messages are plain msgpack, and no policy can let {listed[1]} into them",
            listed[0],
            rule="floor.admin",
            fix="List msgpack alone, or add the kind that carries payloads.",
        )


def _check_unknown(entry: Entry, rule: Rule, own: frozenset[str]) -> None:
    if UNKNOWN not in rule.senders | rule.recipients:
        return
    # What a program's own family does with bytes is not known here: it counts as the worst.
    listed = entry.listing(PICKLES | own)
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


def _check_approved(entry: Entry, rule: Rule) -> None:
    """``approved`` means graphs of listed functions, and no code at all."""
    if rule.submission != APPROVED:
        return
    listed = entry.listing({"cloudpickle"})
    if listed:
        entry.refuse(
            "'submission: approved' lets listed functions through and no code, and cloudpickle is"
            " any code",
            listed[0],
            rule="config.approved",
            fix="Take cloudpickle out, or write 'submission: code'.",
        )
    if not _hears_of_work(rule):
        entry.refuse(
            f"'submission: approved' has no effect where {SUBMIT} is not granted for kind task",
            "submission",
            rule="config.no-effect",
            fix=f"Grant {SUBMIT} and match kind task, or leave 'submission' out.",
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
            fix="Take pickle and the field 'pickle' out. Functions of approved tasks are listed in"
            " the context of those who submit them.",
        )


def _hears_of_work(rule: Rule) -> bool:
    """Tell whether a graph can come by *rule* at all, whatever becomes of it."""
    return SUBMIT in rule.operations and Kind.TASK in rule.kinds


def _check_transport(entry: Entry, rule: Rule) -> None:
    """Refuse a context whose transport never has senders and recipients like its own."""
    stranger = {UNKNOWN} in (rule.senders, rule.recipients)
    if rule.transports == {"safeser"} and stranger:
        entry.refuse(
            "this never matches: who is unknown gets no connection on safeser://",
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


def _check_authors(entry: Entry, rule: Rule) -> None:
    if not rule.authors:
        return
    if not rule.types and rule.submission != SEALED and not entry.listing(_beyond(entry)):
        entry.refuse(
            "authors have no effect here: msgpack and dask pass whoever wrote them",
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


def _beyond(entry: Entry) -> frozenset[str]:
    return frozenset({*entry.context.serializers, *entry.context.deserializers}) - HARMLESS


def _check_key_conflicts(entry: Entry, rule: Rule) -> None:
    if entry.context.key_conflicts is None:
        return
    if not _hears_of_work(rule) or rule.submission == "none":
        entry.refuse(
            "key conflicts come with submitted work, which this context does not let through",
            "key_conflicts",
            rule="config.no-effect",
            fix=f"Take them out, or grant {SUBMIT} and say 'submission: approved' or 'code'.",
        )
