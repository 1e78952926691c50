"""Refuse retired spellings of approved submissions, and name their replacements.

The one rule: a policy with a retired spelling does not load, and the error names the field and its
replacement. docs/how-to/approved.md describes the migration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from safeser.policy.rules import APPROVED, COMPUTE
from safeser.policy.source.context import Rule
from safeser.policy.source.faults import fault
from safeser.policy.source.loader import Document
from safeser.values import SEALED

__all__ = ["check_authors", "retired"]

_COLLECTIONS = (
    "For arrays, frames and bags, give their authors a worker group with 'submission: sealed':"
    " docs/how-to/worker-groups.md and docs/how-to/confined-workers.md."
)


def retired(context: str, submission: str) -> str:
    """Return what to write in *context* instead of a retired profile."""
    if submission == APPROVED:
        return (
            "Take it out: tasks call the functions that 'pickle: allow' of this context lists."
            f" {_COLLECTIONS}"
        )
    return (
        f"Take it out of {context!r}, with what 'allow' lists there for tasks, and write"
        " 'submission: sealed' and 'authors: [...]' with those who submit approved functions."
        f" {_COLLECTIONS}"
    )


def check_authors(rules: Sequence[Rule], document: Document) -> None:
    """Refuse a context whose approved tasks no worker takes.

    :raises ConfigError: at its submission.
    """
    for index, rule in enumerate(rules):
        handing = [
            each for each in rules if COMPUTE in each.operations and each.senders & rule.recipients
        ]
        if rule.submission != APPROVED or not handing:
            continue
        if not any(each.submission == SEALED and each.authors & rule.senders for each in handing):
            _refuse(rule, index, handing[0], document)


def _refuse(rule: Rule, index: int, handing: Rule, document: Document) -> NoReturn:
    raise fault(
        f"context {rule.name!r}: approved tasks are signed, and no worker's context lists their"
        " authors",
        source=document.source,
        place=document.place(("contexts", index, "submission")),
        rule="config.moved",
        fix=f"Write 'submission: sealed' and 'authors: [...]' with them in context"
        f" {handing.name!r}, or in one towards workers of their own (docs/how-to/approved.md).",
    )
