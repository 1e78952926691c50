"""Refuse contexts by which a confined process could run code outside of its sandbox.

The one rule: what a confined process sends is data for every other principal. Code in the sandbox
has the key of the process and can send whatever that key may send; a context that lets another
process run it as code would run it unconfined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from safeser.policy.rules import CODE_OPERATIONS, Principal
from safeser.policy.source.context import Rule
from safeser.policy.source.faults import fault
from safeser.policy.source.loader import Document
from safeser.values import SEALED

__all__ = ["check_confined"]

_REGISTER = "register-worker"
_CLOUDPICKLE = "cloudpickle"


def check_confined(
    rules: Sequence[Rule], principals: Mapping[str, Principal], document: Document
) -> None:
    """Refuse confinement that nothing enforces, and contexts that let code out of it."""
    for name, each in principals.items():
        if each.confined is not None and not any(
            name in rule.senders and _REGISTER in rule.operations for rule in rules
        ):
            raise fault(
                f"no context lets {name!r} register a worker, so nothing confines it",
                source=document.source,
                place=document.key_place(("principals", name, "confined")),
                rule="config.no-effect",
                fix="Take 'confined' out, or grant register-worker from it to the scheduler.",
            )
    escape = _find_escape(rules, principals)
    if escape is not None:
        raise fault(
            f"context {rules[escape.place].name!r} lets code out of the sandbox of"
            f" {escape.confined}: {escape.why}",
            source=document.source,
            place=document.place(("contexts", escape.place, escape.field)),
            rule="config.confined-code",
            fix=f"Give {escape.confined} a context of its own there that takes data alone.",
        )


class _Escape(NamedTuple):
    """A context by which a confined principal can have code run in another process."""

    #: Which of the policy's contexts it is.
    place: int
    confined: str
    field: str
    why: str


def _find_escape(rules: Sequence[Rule], principals: Mapping[str, Principal]) -> _Escape | None:
    """Return the first context that lets code of a confined principal out, if there is one."""
    confined = {name for name, each in principals.items() if each.confined is not None}
    for place, rule in enumerate(rules):
        for name in sorted(confined & (rule.senders | rule.authors)):
            if not rule.recipients - {name}:
                continue  # its own kind, which is as confined
            found = _code(rule, speaks=name in rule.senders, is_author=name in rule.authors)
            if found is not None:
                return _Escape(place, name, *found)
    return None


def _code(rule: Rule, *, speaks: bool, is_author: bool) -> tuple[str, str] | None:
    """Return the field by which *rule* takes code from a sender or an author, and how."""
    if _CLOUDPICKLE in rule.deserializers:
        return "deserializers", "cloudpickle is any code"
    if speaks and rule.submission == "code":
        return "submission", "it could submit code to a process that opens it"
    if is_author and rule.submission == SEALED:
        return "authors", "what it signs would run there"
    granted = sorted(CODE_OPERATIONS & rule.operations)
    if speaks and granted:
        return "operations", f"{granted[0]} runs what it is sent"
    return None
