"""Tests of a policy: cases in YAML beside it, each a message with the outcome that is expected.

The one rule: a case that does not mean something definite does not run. Fields, words and names are
checked like those of a policy, with line, column and the nearest spelling.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from safeser.errors import ConfigError
from safeser.gate.values import (
    ANY_AUTHOR,
    FAMILIES,
    SEALED,
    TRANSPORTS,
    UNKNOWN,
    Context,
    Decision,
    Kind,
)
from safeser.operations import NAMES
from safeser.policy.policy import Policy
from safeser.policy.source.context import date_schema, read_date
from safeser.policy.source.faults import did_you_mean, fault, shown
from safeser.policy.source.fields import Strict, stated
from safeser.policy.source.forms import FLAG, TEXT, Listed, Number, Reading, Section, one_of
from safeser.policy.source.loader import MAX_BYTES, Document, read
from safeser.policy.source.scope import Scope
from safeser.policy.source.shape import shape_as

__all__ = ["Case", "CaseReport", "Outcome", "run_cases"]

_NOUN = "a test of a policy"


class Case(Strict):
    """``{sender: alice, recipient: scheduler, family: pickle, expect: refuse}``."""

    sender: str = stated(TEXT)
    """The sending principal, or `unknown`."""
    recipient: str = stated(TEXT)
    """The receiving principal, or `unknown`."""
    kind: str = stated(one_of(tuple(kind.value for kind in Kind), "kind"), default="data")
    """Of the message."""
    operation: str | None = stated(TEXT, default=None)
    """Dask's operation; absent: a message that names none, such as a reply."""
    family: str = stated(TEXT)
    """Of the payload; `msgpack` for a message without one."""
    author: str | None = stated(TEXT, default=None)
    """Who wrote the payload, if not the sender."""
    transport: str | None = stated(one_of(TRANSPORTS, "transport"), default=None)
    """How the message travels."""
    same_host: bool | None = stated(FLAG, default=None)
    """Whether the other end is on this machine."""
    day: datetime.date | None = stated(Reading(TEXT, read_date, date_schema), default=None)
    """The day, UTC; absent: today. A context with 'until' may have ended."""
    side: str = stated(one_of(("open", "write"), "side"), default="open")
    """The end that decides."""
    expect: str = stated(one_of(("permit", "refuse"), "outcome"))
    """The outcome."""
    rule: str | None = stated(TEXT, default=None)
    """The rule that decides, such as `context.family`."""
    context: str | None = stated(TEXT, default=None)
    """The context that decides."""

    def __str__(self) -> str:
        operation = f" {self.operation}" if self.operation else ""
        author = f" of {self.author}" if self.author else ""
        day = f" on {self.day}" if self.day else ""
        hop = f"{self.sender} -> {self.recipient}"
        return f"{hop} {self.kind}{operation} as {self.family}{author}{day}"


class CasesModel(Strict):
    """One file of cases."""

    safeser: int = stated(Number(least=1, most=1))
    """Version of the language."""
    policy: str = stated(TEXT)
    """A ready policy's name, or a path from this file's folder."""
    cases: tuple[Case, ...] = stated(Listed(Section(Case), least=1, most=2_000))
    """Messages and what becomes of them."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case that ran.

    :param line: of the file.
    :param problem: what differs from what is expected; empty where nothing does.
    """

    case: Case
    line: int
    decision: Decision
    problem: str


@dataclass(frozen=True, slots=True)
class CaseReport:
    """The outcomes of one file."""

    policy: Policy
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.outcomes if each.problem)

    @property
    def untested(self) -> tuple[str, ...]:
        """The contexts that decided no case."""
        deciding = {each.decision.context for each in self.outcomes}
        return tuple(rule.name for rule in self.policy.contexts if rule.name not in deciding)

    @property
    def coverage(self) -> float:
        """The part of the contexts that decided a case, in percent."""
        contexts = len(self.policy.contexts)
        return 100 * (contexts - len(self.untested)) / contexts


def run_cases(path: Path) -> CaseReport:
    """Run the cases of the file at *path*.

    :raises ConfigError: if it cannot be read, or says something that has no meaning.
    """
    source = str(path)
    document = read(_bytes(path), source=source, what=_NOUN)
    model = shape_as(CasesModel, document, Scope(), noun=_NOUN)
    is_path = "/" in model.policy or model.policy.endswith(".yaml")
    policy = Policy.load(path.parent / model.policy if is_path else model.policy)
    outcomes = (
        _outcome(policy, case, _Place(document, index)) for index, case in enumerate(model.cases)
    )
    return CaseReport(policy, tuple(outcomes))


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{_NOUN} cannot be read: {error.strerror}",
            rule="config.file",
            where=ascii(str(path)).strip("'"),
            fix="Name a file of cases.",
        ) from None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one case stands in its file."""

    document: Document
    index: int

    @property
    def line(self) -> int:
        place = self.document.place(("cases", self.index))
        return place.line if place else 0

    def refuse(self, field: str, message: str, *, fix: str) -> NoReturn:
        raise fault(
            message,
            source=self.document.source,
            place=self.document.place(("cases", self.index, field)),
            rule="config.case",
            fix=fix,
        )

    def require(self, field: str, name: str | None, known: Collection[str]) -> None:
        """Refuse a name that the policy does not know: a case about it tests nothing."""
        if name is not None and name not in known:
            self.refuse(
                field,
                f"{field}: the policy and safeser know no {shown(name)}",
                fix=did_you_mean(name, known),
            )


def _outcome(policy: Policy, case: Case, place: _Place) -> Outcome:
    principals = {*policy.principals, UNKNOWN}
    place.require("sender", case.sender, principals)
    place.require("recipient", case.recipient, principals)
    place.require("author", case.author, {*principals, ANY_AUTHOR})
    place.require("operation", case.operation, NAMES)
    place.require("family", case.family, {*FAMILIES, SEALED, *policy.families})
    place.require("context", case.context, {rule.name for rule in policy.contexts})
    if case.expect == "permit" and case.rule not in (None, "permit"):
        place.refuse("rule", "what is permitted is permitted by rule permit", fix="Take it out.")
    context = Context(
        case.sender,
        case.recipient,
        case.kind,
        case.operation,
        transport=case.transport,
        same_host=case.same_host,
    )
    asked = policy if case.day is None else policy.as_of(case.day)
    decision = asked.decide(context, case.family, sealing=case.side == "write", author=case.author)
    return Outcome(case, place.line, decision, _problem(case, decision))


def _problem(case: Case, decision: Decision) -> str:
    found = "permit" if decision.permitted else "refuse"
    if found != case.expect:
        return f"expected {case.expect}, found {found} [{decision.rule}]: {decision.reason}"
    if case.rule not in (None, decision.rule):
        return f"expected rule {case.rule}, found {decision.rule}: {decision.reason}"
    if case.context not in (None, decision.context):
        return f"expected context {case.context}, found {decision.context or 'none'}"
    return ""
