"""One loaded policy, with the questions of the channel, Dask's comm and the command line.

The one rule: immutable. A changed file is another policy, with another hash.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import inf
from types import MappingProxyType
from typing import Any

from safeser.errors import ConfigError, PolicyDenied
from safeser.gate.values import AuditFailure, Context, Decision, Grant, Kind, Limits
from safeser.identity import KeyState, Roster, RosterEntry
from safeser.policy.compiled import Compiled
from safeser.policy.observing import observing
from safeser.policy.periods import Clock, Periods, forward_time
from safeser.policy.ready import locate, read_policy, text_of
from safeser.policy.resolve import resolve
from safeser.policy.rules import REFUSED, KeyConflicts, Principal
from safeser.policy.source.context import Rule, start_of_day
from safeser.policy.source.extends import Text, document
from safeser.policy.source.model import AcknowledgedModel
from safeser.policy.source.scope import Scope
from safeser.policy.source.shape import shape
from safeser.tracebacks import for_callers

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Policy:
    """Which sender may hand which recipient which kind of message, in which families.

    Made by :meth:`load` or :meth:`parse`.

    :param name: the name that the file gives itself.
    :param revision: its revision, 1 or more.
    :param sha256: of the exact bytes of the file, or of the expanded text where it extends another,
        hexadecimal.
    :param source: the file or label that it came from.
    :param principals: what the policy lists under ``principals``.
    :param limits: bounds on one message; defaults where the file names none.
    :param dashboard: the address at which Dask's web pages may be served besides loopback, if any.
    :param roster: the public keys that the policy lists inline, all of them active.
    :param audit: ``"required"``, or ``"none"`` where a box may work without a log.
    :param acknowledged: paths of code that the policy says are meant.
    :param written: with ``mode: observe``, what its contexts would decide; otherwise None.
    """

    name: str
    revision: int
    sha256: str
    source: str
    principals: Mapping[str, Principal]
    limits: Limits
    roster: Roster
    dashboard: str | None
    audit: str
    acknowledged: tuple[AcknowledgedModel, ...]
    _periods: Periods
    written: Policy | None = None
    #: What the audit log has of each context that says so, by its name; of others all.
    audit_levels: Mapping[str, str] = field(init=False)
    #: What becomes of messages of contexts that do not refuse them where the log cannot be written.
    audit_failures: Mapping[str, AuditFailure] = field(init=False)

    def __post_init__(self) -> None:
        levels = {rule.name: rule.audit for rule in self.contexts if rule.audit != "all"}
        object.__setattr__(self, "audit_levels", MappingProxyType(levels))
        failures = {rule.name: rule.audit_failure for rule in self.contexts}
        passing = {name: failure for name, failure in failures.items() if failure.level}
        object.__setattr__(self, "audit_failures", MappingProxyType(passing))

    @classmethod
    @for_callers
    def load(cls, path_or_name: str | os.PathLike[str], *, clock: Clock = forward_time) -> Policy:
        """Return the policy in a file, or the ready one of that name, such as ``"default"``.

        A string is a path if it has a separator or ends in ``.yaml``.

        :param clock: returns the seconds since 1970 at which dates of contexts are compared; in one
            process the default never goes back.
        :raises ConfigError: if there is none, or it is not a policy that this version enforces
            in full.
        """
        return _made(read_policy(locate(path_or_name)), clock)

    @classmethod
    @for_callers
    def parse(
        cls, text: str | bytes | Text, source: str = "<text>", *, clock: Clock = forward_time
    ) -> Policy:
        """Return the policy that *text* spells; *source* names it in messages.

        :param text: one that extends a file is what :func:`safeser.policy.ready.read_policy` read.
        :param clock: as in :meth:`load`.
        :raises ConfigError: with file, line and column, if it is not a policy that this version
            enforces in full.
        """
        try:
            data = text.encode("utf-8") if isinstance(text, str) else text
        except UnicodeEncodeError:
            raise ConfigError(
                "a policy is UTF-8 text", rule="config.encoding", where=source
            ) from None
        whole = data if isinstance(data, Text) else text_of(bytes(data), source)
        read = document(whole)
        scope = Scope()
        model = shape(read, scope)
        principals, compiled = resolve(model, read, scope)
        # A policy gives keys no dates; the roster file is where they have a life.
        make = partial(
            cls,
            name=model.name,
            revision=model.revision,
            sha256=read.sha256,
            source=read.source,
            principals=MappingProxyType(principals),
            limits=Limits(**{name: n for name, n in vars(model.limits).items() if n is not None}),
            roster=Roster(
                RosterEntry(key, name, KeyState.ACTIVE, datetime.date.min, "listed in the policy")
                for name, principal in principals.items()
                for key in principal.keys
            ),
            dashboard=model.dashboard.address if model.dashboard is not None else None,
            audit=model.audit,
            acknowledged=model.acknowledge,
        )
        written = make(_periods=Periods(compiled, clock))
        if model.mode == "enforce":
            return written
        return make(_periods=Periods(observing(compiled, principals), clock), written=written)

    def as_of(self, day: datetime.date | None) -> Policy:
        """Return this policy as it is on *day*, UTC; None for a policy none of whose dates passes.

        It does not follow the clock.
        """
        moment = -inf if day is None else start_of_day(day)
        written = None if self.written is None else self.written.as_of(day)
        return replace(self, _periods=self._periods.at(moment), written=written)

    def renewed(self) -> Policy:
        """Return this policy, as another object if a context has ended since it was made.

        A process that derived anything from it derives it again from the other object.
        """
        if not self.has_passed:
            return self
        written = None if self.written is None else self.written.renewed()
        return replace(self, _periods=self._periods.renewed(), written=written)

    @property
    def has_passed(self) -> bool:
        """Whether a context has ended since this was made."""
        of_file = self.written is not None and self.written.has_passed
        return of_file or self._periods.has_passed

    def passed(self) -> list[Rule]:
        """Return the contexts that have ended since this was made."""
        return (self.written or self)._periods.passed()

    @property
    def _compiled(self) -> Compiled:
        return self._periods.lasting or self._periods.compiled()

    @property
    def remembered(self) -> dict[tuple[object, ...], Any]:
        """What other modules derived from this policy, by the question; empty after each end."""
        return self._compiled.remembered

    @property
    def title(self) -> str:
        """Its name and revision, as refusals name it."""
        return f"{self.name} revision {self.revision}"

    @property
    def observes(self) -> bool:
        """Whether it lets listed principals do everything, and only records what it refuses."""
        return self.written is not None

    @property
    def contexts(self) -> tuple[Rule, ...]:
        """The contexts, top to bottom; those that have ended grant nothing."""
        return self._compiled.rules

    @property
    def families(self) -> frozenset[str]:
        """The families that the policy declares beyond the built-in ones."""
        return self._periods.written.own  # no date changes them

    def decide(
        self,
        context: Context,
        family: str | None,
        *,
        sealing: bool = False,
        author: str | None = None,
    ) -> Decision:
        """Answer whether *family* may pass in *context*. Pure and total: never raises.

        :param sealing: ask for the side that seals (``serializers``), not the one that opens.
        :param author: the author of the payload, if it was not the sender.
        """
        compiled = self._periods.lasting or self._periods.compiled()
        return compiled.table.decide(context, family, sealing=sealing, author=author)

    def permits_operation(self, context: Context) -> Decision:
        """Answer whether the operation of *context* may be asked for, whatever it carries."""
        return self._compiled.table.permits_operation(context)

    def refusal(
        self, context: Context, decision: Decision, *, sealing: bool = False
    ) -> PolicyDenied:
        """Return the error for a *decision* that denies, as the process states it that decided.

        :param sealing: whether that is the sender; otherwise it is the recipient.
        """
        return PolicyDenied(
            f"{context}: {decision.reason}",
            rule=decision.rule,
            fix=decision.fix,
            policy=self.title,
            process=context.sender if sealing else context.recipient,
        )

    def grant(self, context: Context, *, sealing: bool = False) -> Grant:
        """Return the most that may pass in *context*, floors kept; callers can only narrow it.

        The operation is not judged here: :meth:`decide` and :meth:`permits_operation` do that.

        :raises PolicyDenied: if no context matches.
        """
        compiled = self._periods.lasting or self._periods.compiled()
        grant = compiled.table.grant(context, sealing=sealing)
        if grant is None:
            decision = self.decide(context, "msgpack", sealing=sealing)
            raise self.refusal(context, decision, sealing=sealing)
        return grant

    def bound(self, context: Context, *, sealing: bool = False) -> Grant:
        """Return what :meth:`grant` does; an empty grant where no context matches."""
        compiled = self._periods.lasting or self._periods.compiled()
        return compiled.table.grant(context, sealing=sealing) or _NOTHING

    def match(self, context: Context) -> Rule | None:
        """Return the context of this policy that decides for *context*, or None."""
        return self._compiled.match(context)

    def key_conflicts(self, context: Context) -> KeyConflicts:
        """Return how a submission in *context* under taken keys is answered.

        Where no context matches, both are refused; where one says nothing, another definition is
        refused, and of another principal the submitter is warned.
        """
        rule = self.match(context)
        return REFUSED if rule is None or rule.ended else rule.key_conflicts

    @property
    def lets_keys_be_taken(self) -> bool:
        """Whether a submission of another definition under a taken key may pass with a warning."""
        return self._compiled.lets_keys_be_taken

    def may_sign(self, author: str, scheduler: str, kind: Kind) -> bool:
        """Tell whether *author* may sign code in messages of *kind* that *scheduler* hands on.

        The contexts from the author to the scheduler say so, and no other.
        """
        return self._compiled.table.may_sign(author, scheduler, kind)

    def counterparts(self, principal: str) -> frozenset[str]:
        """Return the listed principals that share a context with *principal*, in any direction.

        A principal that is not listed counts as ``unknown`` here too.
        """
        table, remembered = self._compiled.table, self.remembered
        asked = ("counterparts", table.known(principal))
        found: frozenset[str] | None = remembered.get(asked)
        if found is None:
            each = (other for other in self.principals if table.meets(asked[1], other))
            found = remembered[asked] = frozenset(each)
        return found

    def __repr__(self) -> str:
        return f"Policy({self.name!r}, revision={self.revision}, sha256={self.sha256[:12]!r})"


#: The grant where no context matches.
_NOTHING = Grant(context="", families=())


# Making one takes 10 ms, and one process of 30 nannies reads the same bytes for each, twice.
@lru_cache(maxsize=4)
def _made(text: Text, clock: Clock) -> Policy:
    return Policy.parse(text, clock=clock)
