"""Outcomes of probes: what was tried, whether the kernel refused it, and how to correct it.

The one rule: a probe that found nothing to try does not count as refused.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from safeser.errors import ConfigError

__all__ = ["REFUSED", "Outcome", "State", "Tries", "Unconfined"]

#: ``refused``: what must fail, failed. ``succeeded``: it did not. ``unproven``: nothing was there
#: to try. ``allowed``: the policy does not demand that it fails.
State = Literal["refused", "succeeded", "unproven", "allowed"]

#: How a kernel says that a process may not do something, or that it has no such call.
REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSYS, errno.EAFNOSUPPORT})

#: Examples that one message names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one probe.

    :param probe: its name.
    :param found: what was tried and what came of it.
    :param fix: the line of a sandbox's configuration that mends it, where it is not refused.
    """

    probe: str
    state: State
    found: str
    fix: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the process is as confined here as its policy demands."""
        return self.state in ("refused", "allowed")


class Tries:
    """Collects the attempts of one probe.

    :param probe: its name.
    :param what: what it attempts, as in "could *read*".
    :param fix: what mends it.
    """

    def __init__(self, probe: str, what: str, fix: str) -> None:
        self._probe = probe
        self._what = what
        self._fix = fix
        self._succeeded: list[str] = []
        self._refused: list[str] = []

    def succeeded(self, target: str) -> None:
        """Record that an attempt on *target* succeeded, which must fail."""
        self._succeeded.append(target)

    def refused(self, target: str) -> None:
        """Record that an attempt on *target* failed which succeeds in an unconfined process."""
        self._refused.append(target)

    def outcome(self) -> Outcome:
        """Return what the attempts show together."""
        if self._succeeded:
            found = f"this process could {self._what} {_listed_targets(self._succeeded)}"
            return Outcome(self._probe, "succeeded", found, self._fix)
        if not self._refused:
            found = f"no target was found to test whether this process can {self._what}"
            return Outcome(self._probe, "unproven", found, self._fix)
        return Outcome(
            self._probe, "refused", f"could not {self._what} {_listed_targets(self._refused)}"
        )


def _listed_targets(targets: list[str]) -> str:
    named = list(dict.fromkeys(targets))
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"{', '.join(named[:_NAMED])}{more}"


class Unconfined(ConfigError):
    """A process is less confined than its policy demands; each probe that shows it has an error.

    :ivar each: these errors, in the order of the probes.
    """

    default_rule = "confined"
    each: tuple[ConfigError, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Unconfined | None:
        """Return what keeps a process with *outcomes* from starting, or None."""
        found = tuple(
            ConfigError(
                f"this process is not confined as its policy demands: {each.found}",
                rule=f"confined.{each.probe}",
                fix=each.fix,
            )
            for each in outcomes
            if not each.is_met
        )
        if not found:
            return None
        first = found[0]
        error = cls(first.message, rule=first.rule, fix=first.fix)
        error.each = found
        return error
